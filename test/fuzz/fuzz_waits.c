/*-------------------------------------------------------------------------
 *
 * fuzz_waits.c
 *	  Fuzzer of src/protocol/deadlock_text.c: what a server says of its waits.
 *
 * What is read can be written, and read again it is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "deadlock_text.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char once[ZKLOCK_WAITS_TEXT_MAX + 1];
	char *text = fuzz_text(data, size);
	ZkWaitsReader reader;
	ZkWaitsReader again;
	ZkWaitEdge edge = {0};
	ZkWaitEdge other = {0};
	char *end = once;
	int n = 0;

	if (zklock_deadlock_waits_open(&reader, text, size))
	{
		ZkWaitsReader from_start = reader;

		end = zklock_deadlock_waits_begin(once, reader.server);
		while (n < ZKLOCK_MAX_EDGES && zklock_deadlock_waits_next(&reader, &edge))
		{
			end = zklock_deadlock_waits_add(end, &edge);
			n++;
		}
		CHECK((size_t) (end - once) <= ZKLOCK_WAITS_TEXT_MAX && *end == '\0');
		CHECK(zklock_is_utf8(once, strlen(once)));
		CHECK(zklock_deadlock_waits_open(&again, once, (size_t) (end - once)));
		CHECK(strcmp(again.server, from_start.server) == 0);
		for (int i = 0; i < n; i++)
		{
			CHECK(zklock_deadlock_waits_next(&from_start, &edge));
			CHECK(zklock_deadlock_waits_next(&again, &other));
			CHECK(edge.number == other.number && edge.stamp == other.stamp &&
				  edge.grant == other.grant && edge.contender == other.contender &&
				  edge.joins == other.joins && edge.kind == other.kind &&
				  edge.holder == other.holder && edge.waiter == other.waiter);
			CHECK(strcmp(edge.name, other.name) == 0 && strcmp(edge.via, other.via) == 0);
		}
		CHECK(!zklock_deadlock_waits_next(&again, &other));
	}
	free(text);
	return 0;
}
