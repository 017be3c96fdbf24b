/*-------------------------------------------------------------------------
 *
 * fuzz_barrier.c
 *	  Fuzzer of src/protocol/barrier_rules.c: names of parties, and the record of rounds.
 *
 * A name that is read is written likewise.  To a record that is read a round can
 * be added, and then it is a record, with all that are in it.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "barrier_rules.h"

static void
fuzz_name(const char *text)
{
	char ours[ZKLOCK_PARTY_NAME_MAX + 16];
	ZkPartyNode node;

	if (!zklock_barrier_parse_party(text, &node))
		return;
	zklock_barrier_format_party(ours, node.id, node.session, node.parties);
	snprintf(ours + strlen(ours), 16, "%010d", (int) node.sequence);
	CHECK(strcmp(ours, text) == 0);
}

static void
fuzz_record(const char *text, size_t len)
{
	static char next[ZKLOCK_ROUNDS_MAX];
	static ZkPartyNode member[ZKLOCK_BARRIER_PARTIES_MAX];
	int n = len > 0 ? 1 + (unsigned char) text[0] * ZKLOCK_BARRIER_PARTIES_MAX / 256 : 1;
	int64_t newest;
	int64_t oldest;
	int64_t then;
	int length;

	if (!zklock_barrier_rounds_parse(text, len, &newest, &oldest))
	{
		CHECK(newest == 0 && oldest == 1);
		return;
	}
	if (len >= ZKLOCK_ROUNDS_MAX || newest > INT64_C(99999999999999999))
		return;
	for (int i = 0; i < n; i++)
		member[i].id[0] = member[i].id[1] = (uint64_t) i + 1;
	length = zklock_barrier_rounds_add(text, len, newest + 1, member, n, next);
	CHECK(length > 0 && length < ZKLOCK_ROUNDS_MAX && next[length] == '\0');
	CHECK(zklock_barrier_rounds_parse(next, (size_t) length, &then, &oldest));
	CHECK(then == newest + 1 && oldest >= 1 && oldest <= then);
	for (int i = 0; i < n; i++)
		CHECK(zklock_barrier_rounds_have(next, (size_t) length, member[i].id));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_name(text);
	fuzz_record(text, size);
	free(text);
	return 0;
}
