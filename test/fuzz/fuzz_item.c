/*-------------------------------------------------------------------------
 *
 * fuzz_item.c
 *	  Fuzzer of src/protocol/queue_rules.c: names of items, marks and chunks, and chunks.
 *
 * A name that is read is the one that is written of it.  A chunk that is read has all of
 * its payloads in it, and can be written, and read again it is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "queue_rules.h"

static void
fuzz_name(const char *text)
{
	char ours[ZKLOCK_ITEM_NAME + 16];
	char chunk[ZKLOCK_CHUNK_NAME];
	char mark[ZKLOCK_MARK_NAME];
	uint64_t life;
	uint32_t take;
	ZkItemName item;
	ZkChunkName name;

	if (zklock_item_parse(text, &item))
	{
		zklock_item_prefix(ours, item.base, item.index);
		snprintf(ours + strlen(ours), 16, "%010lld", (long long) item.sequence);
		CHECK(strcmp(ours, text) == 0 && strlen(text) < ZKLOCK_ITEM_NAME);
		for (int64_t czxid = 1; czxid > 0 && czxid < INT64_MAX / 3; czxid *= 3)
		{
			int64_t id = zklock_item_id(&item, czxid);

			CHECK(id >= 0);
			CHECK(id == 0 ||
				  (id / ZKLOCK_CHUNK_ITEMS == item.base + czxid &&
				   id % ZKLOCK_CHUNK_ITEMS == item.index));
		}
		CHECK(zklock_item_id(&item, INT64_MAX) == 0);
		zklock_item_mark(mark, text, UINT64_MAX, UINT32_MAX);
		CHECK(zklock_item_of_mark(mark, &life, &take));
		CHECK(strcmp(mark, text) == 0 && life == UINT64_MAX && take == UINT32_MAX);
	}
	snprintf(mark, sizeof(mark), "%s", text);
	(void) zklock_item_of_mark(mark, &life, &take);
	if (zklock_chunk_parse(text, &name))
	{
		zklock_chunk_format(chunk, &name);
		CHECK(strcmp(chunk, text) == 0);
	}
}

static void
fuzz_chunk(const char *text, size_t len)
{
	static ZkChunkHead head;
	static ZkChunkHead again;
	static char once[ZKLOCK_CHUNK_HEAD + 8192];
	const char *payload = zklock_chunk_read(text, len, &head);
	size_t rest;
	size_t total = 0;
	int n;

	if (payload == NULL)
		return;
	CHECK(payload > text && payload <= text + len);
	CHECK(head.nitems >= 1 && head.nitems <= ZKLOCK_CHUNK_ITEMS);
	for (int i = 0; i < head.nitems; i++)
	{
		CHECK(head.length[i] >= 0 && head.length[i] <= ZKLOCK_ITEM_MAX);
		total += (size_t) head.length[i];
	}
	rest = (size_t) (text + len - payload);
	CHECK(total == rest);
	n = zklock_chunk_write(once, &head);
	CHECK(n > 0 && n < ZKLOCK_CHUNK_HEAD && once[n - 1] == '\n');
	if (rest > sizeof(once) - (size_t) n)
		return;
	memcpy(once + n, payload, rest);
	CHECK(zklock_chunk_read(once, (size_t) n + rest, &again) == once + n);
	CHECK(again.timeline == head.timeline && again.lsn == head.lsn &&
		  again.xid == head.xid && again.server == head.server &&
		  again.nitems == head.nitems);
	CHECK(memcmp(again.length, head.length,
				 sizeof(head.length[0]) * (size_t) head.nitems) == 0);
	CHECK(zklock_chunk_read(once, (size_t) n + rest + 1, &again) == NULL);
	CHECK(rest == 0 || zklock_chunk_read(once, (size_t) n + rest - 1, &again) == NULL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_name(text);
	fuzz_chunk(text, size);
	free(text);
	return 0;
}
