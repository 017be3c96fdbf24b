/*-------------------------------------------------------------------------
 *
 * queue_text.c
 *	  Queues of work: names of items, marks and chunks, and what a chunk says.
 *
 *-------------------------------------------------------------------------
 */
#include "queue_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "record.h"

/* ------------------------------------------------------------------------
 * Names and ids
 * ------------------------------------------------------------------------
 */

void
zklock_item_prefix(char *buf, int64_t base, int index)
{
	assert(base >= 0 && base < ZKLOCK_ITEM_TOKENS);
	assert(index >= 0 && index < ZKLOCK_CHUNK_ITEMS);
	snprintf(buf, ZKLOCK_ITEM_NAME, "%" PRIx64 ".%02x-", (uint64_t) base, index);
}

bool
zklock_item_parse(const char *name, ZkItemName *item)
{
	uint64_t base;
	uint64_t index;
	uint64_t sequence;
	const char *p = zklock_read_digits(name, 16, 1, 14, &base);

	if (p == NULL || *p != '.' || base >= (uint64_t) ZKLOCK_ITEM_TOKENS ||
		(name[0] == '0' && p != name + 1))
		return false;
	p = zklock_read_digits(p + 1, 16, 2, 2, &index);
	if (p == NULL || *p != '-')
		return false;
	p = zklock_read_digits(p + 1, 10, 10, 10, &sequence);
	if (p == NULL || *p != '\0')
		return false;
	item->base = (int64_t) base;
	item->index = (int) index;
	item->sequence = (int64_t) sequence;
	return true;
}

int64_t
zklock_item_id(const ZkItemName *item, int64_t czxid)
{
	if (czxid <= 0 || czxid >= ZKLOCK_ITEM_TOKENS ||
		item->base + czxid >= ZKLOCK_ITEM_TOKENS)
		return 0;
	return (item->base + czxid) * ZKLOCK_CHUNK_ITEMS + item->index;
}

void
zklock_item_mark(char *buf, const char *item, uint64_t life, uint32_t take)
{
	snprintf(buf, ZKLOCK_MARK_NAME, "%.39s.%016" PRIx64 "%08x", item, life, take);
}

bool
zklock_item_of_mark(char *mark, uint64_t *life, uint32_t *take)
{
	char *end = strrchr(mark, '.');
	const char *p;
	uint64_t number;

	if (end == NULL)
		return false;
	*end = '\0';
	p = zklock_read_digits(end + 1, 16, 16, 16, life);
	if (p == NULL || (p = zklock_read_digits(p, 16, 8, 8, &number)) == NULL || *p != '\0')
		return false;
	*take = (uint32_t) number;
	return true;
}

void
zklock_queue_of_failed(char *buf, size_t size, const char *queue)
{
	snprintf(buf, size, "%s%s", queue, ZKLOCK_FAILED);
}

/* ------------------------------------------------------------------------
 * Chunks
 * ------------------------------------------------------------------------
 */

void
zklock_chunk_format(char *buf, const ZkChunkName *name)
{
	snprintf(buf, ZKLOCK_CHUNK_NAME, "%016" PRIx64 "-%016" PRIx64 "-%08x-%08x",
			 name->system, name->life, name->put, name->chunk);
}

bool
zklock_chunk_parse(const char *text, ZkChunkName *name)
{
	uint64_t put;
	uint64_t chunk;
	const char *p = zklock_read_digits(text, 16, 16, 16, &name->system);

	if (p == NULL || *p != '-' ||
		(p = zklock_read_digits(p + 1, 16, 16, 16, &name->life)) == NULL || *p != '-' ||
		(p = zklock_read_digits(p + 1, 16, 8, 8, &put)) == NULL || *p != '-' ||
		(p = zklock_read_digits(p + 1, 16, 8, 8, &chunk)) == NULL || *p != '\0')
		return false;
	name->put = (uint32_t) put;
	name->chunk = (uint32_t) chunk;
	return true;
}

static const ZkField head_fields[] = {
	{ZKLOCK_FIELD("timeline", INT, ZkChunkHead, timeline), .needed = true, .max = INT32_MAX},
	{ZKLOCK_FIELD("lsn", UINT64, ZkChunkHead, lsn), .needed = true},
	{ZKLOCK_FIELD("xid", UINT64, ZkChunkHead, xid), .needed = true},
	{ZKLOCK_FIELD("server", UINT64, ZkChunkHead, server), .needed = true},
	{ZKLOCK_FIELD_ITEMS("lengths", ZkChunkHead, length, nitems), .needed = true,
	 .max = ZKLOCK_ITEM_MAX},
};

static const ZkShape head_shape = {ZKLOCK_SHAPE(head_fields, ZkChunkHead), .version = 1};

int
zklock_chunk_write(char *buf, const ZkChunkHead *head)
{
	char *end;

	assert(head->nitems >= 1);
	end = zklock_record_write(&head_shape, head, buf);
	*end++ = '\n';
	assert(end - buf < ZKLOCK_CHUNK_HEAD);
	return (int) (end - buf);
}

const char *
zklock_chunk_read(const char *data, size_t len, ZkChunkHead *head)
{
	const char *end = data + len;
	size_t total = 0;

	if (zklock_record_line(&head_shape, &data, end, head) != ZKLOCK_RECORD_GOOD)
		return NULL;
	for (int i = 0; i < head->nitems; i++)
		total += (size_t) head->length[i];
	return head->nitems > 0 && (size_t) (end - data) == total ? data : NULL;
}
