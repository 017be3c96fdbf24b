/*-------------------------------------------------------------------------
 *
 * fuzz_history.c
 *	  Fuzzer of src/protocol/history.c: the file, and the base of tokens.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "history.h"

#define NOW	 INT64_C(1000000000)
#define WAIT INT64_C(5000000)

/* What is taken for ours is what we would write, and sound. */
static void
check_history(ZkHistory *history, const char *text, size_t size)
{
	char again[ZKLOCK_HISTORY_TEXT_MAX];
	ZkHistorySight sight = {.base = history->base, .zxid = INT64_MAX, .version = -1};

	CHECK(history->known && history->base >= 0 && history->base <= ZKLOCK_BASE_MAX);
	CHECK(history->top >= history->base && history->ceiling >= history->top);
	CHECK(history->version == -1 && (history->found || !history->mended));
	CHECK(history->found == (history->until > 0));
	CHECK(!history->found || history->until >= NOW + WAIT);
	if (!history->found || history->wait > WAIT)
	{
		/* the ceiling is written as it is only while nothing is granted */
		if (history->found)
		{
			CHECK(zklock_history_format(history, false, again) == size);
			CHECK(memcmp(again, text, size) == 0);
		}
	}
	(void) zklock_history_check(history, &sight);
	CHECK(zklock_history_raise(history, history->base, 1) >= history->base);
	CHECK(zklock_history_token(history, INT64_MAX) == INT64_MAX);
	(void) zklock_history_see(history, INT64_MAX);
	CHECK(history->top == INT64_MAX);
	CHECK(zklock_history_format(history, false, again) < sizeof(again));
}

/* The same with a sum that is right: or nothing would come as far as the numbers. */
static size_t
with_sum(const char *text, size_t size, char *summed)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	if (size > 4096)
		size = 4096;
	for (size_t i = 0; i < size; i++)
	{
		summed[i] = text[i];
		sum = (sum ^ (unsigned char) text[i]) * UINT64_C(0x100000001b3);
	}
	return size +
		(size_t) sprintf(summed + size, "sum %016llx\n", (unsigned long long) sum);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size > 0 ? size : 1);
	char *summed = malloc(4096 + 32);
	ZkHistory history;
	int64_t base;
	size_t len;

	CHECK(text != NULL && summed != NULL);
	if (size > 0)
		memcpy(text, data, size);
	zklock_history_init(&history);
	if (zklock_history_parse(&history, text, size, NOW, WAIT))
		check_history(&history, text, size);
	else
		CHECK(!history.known);
	len = with_sum(text, size, summed);
	zklock_history_init(&history);
	if (zklock_history_parse(&history, summed, len, NOW, WAIT))
		check_history(&history, summed, len);
	if (zklock_history_parse_base(text, size, &base))
	{
		CHECK(size > 0 && size <= 19 && base >= 0 && base <= ZKLOCK_BASE_MAX);
		CHECK(text[0] != '0' || size == 1);
	}
	free(text);
	free(summed);
	return 0;
}
