/*-------------------------------------------------------------------------
 *
 * queue_text.c
 *	  Reads and writes the names of a queue's items, marks and chunks, and the text of a
 *	  chunk.
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

/*
 * A UUID of version 7 (RFC 9562, 5.7).  The ms since 1970 come first, so that new ids
 * come last in an index.  The 12 bits that follow are a fraction of the ms (6.2, method
 * 3), as in PostgreSQL's own uuidv7.
 */
void
zklock_item_make_id(char *id, int64_t us, uint64_t random)
{
	uint64_t time = (uint64_t) us;
	uint64_t fraction = time % 1000 * 4096 / 1000;
	char *end = zklock_write_uuid(id, time / 1000 << 16 | 7 << 12 | fraction,
								  UINT64_C(2) << 62 | random >> 2);

	*end = '\0';
}

void
zklock_item_prefix(char *buf, const char *id)
{
	snprintf(buf, ZKLOCK_ITEM_NAME, "%s-", id);
}

bool
zklock_item_parse(const char *name, ZkItemName *item)
{
	uint64_t hi;
	uint64_t lo;
	uint64_t sequence;
	const char *p = zklock_read_uuid(name, &hi, &lo);

	if (p == NULL || *p != '-')
		return false;
	p = zklock_read_digits(p + 1, 10, 10, 10, &sequence);
	if (p == NULL || *p != '\0')
		return false;
	memcpy(item->id, name, ZKLOCK_UUID_LEN);
	item->id[ZKLOCK_UUID_LEN] = '\0';
	item->sequence = (int64_t) sequence;
	return true;
}

void
zklock_item_mark(char *buf, const char *item, uint64_t life, uint32_t take)
{
	snprintf(buf, ZKLOCK_MARK_NAME, "%.*s.%016" PRIx64 "%08x", ZKLOCK_ITEM_NAME - 1, item,
			 life, take);
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

static const ZkField item_fields[] = {
	{ZKLOCK_FIELD("id", TEXT, ZkChunkItem, id), .needed = true},
	{ZKLOCK_FIELD("length", INT, ZkChunkItem, length), .needed = true,
	 .max = ZKLOCK_ITEM_MAX},
};

static const ZkShape item_shape = {ZKLOCK_SHAPE(item_fields, ZkChunkItem)};

static const ZkField head_fields[] = {
	{ZKLOCK_FIELD("timeline", INT, ZkChunkHead, timeline), .needed = true, .max = INT32_MAX},
	{ZKLOCK_FIELD("lsn", UINT64, ZkChunkHead, lsn), .needed = true},
	{ZKLOCK_FIELD("xid", UINT64, ZkChunkHead, xid), .needed = true},
	{ZKLOCK_FIELD("server", UINT64, ZkChunkHead, server), .needed = true},
	{ZKLOCK_FIELD_ITEMS("items", ZkChunkHead, item, nitems), .needed = true,
	 .shape = &item_shape},
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

bool
zklock_chunk_is_newer(const char *data, size_t len)
{
	return zklock_record_version(data, len) > head_shape.version;
}

const char *
zklock_chunk_read(const char *data, size_t len, ZkChunkHead *head)
{
	const char *end = data + len;
	size_t total = 0;

	if (zklock_record_line(&head_shape, &data, end, head) != ZKLOCK_RECORD_GOOD)
		return NULL;
	for (int i = 0; i < head->nitems; i++)
	{
		uint64_t hi;
		uint64_t lo;
		const char *behind = zklock_read_uuid(head->item[i].id, &hi, &lo);

		if (behind == NULL || *behind != '\0')
			return NULL;
		total += (size_t) head->item[i].length;
	}
	return head->nitems > 0 && (size_t) (end - data) == total ? data : NULL;
}
