/*-------------------------------------------------------------------------
 *
 * queue_text.h
 *	  Reads and writes the names of a queue's items, marks and chunks, and the text of a
 *	  chunk.
 *
 * Pure.  Any client of the ensemble may have written what these functions read.
 * queue_rules.h says what these znodes are for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_TEXT_H
#define ZKLOCK_QUEUE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contender.h"

/* bytes of a payload */
#define ZKLOCK_ITEM_MAX (64 * 1024)

/* ------------------------------------------------------------------------
 * Names and ids
 * ------------------------------------------------------------------------
 */

/* Room for an item's id, a UUID as text, with the NUL. */
#define ZKLOCK_ITEM_ID (ZKLOCK_UUID_LEN + 1)

/* Room for an item's name, with the NUL.  It begins with the id. */
#define ZKLOCK_ITEM_NAME (ZKLOCK_ITEM_ID + 11)

typedef struct ZkItemName
{
	char id[ZKLOCK_ITEM_ID];
	int64_t sequence;
} ZkItemName;

/* Makes an id from a time, in us since 1970, and 62 random bits. */
extern void zklock_item_make_id(char *id, int64_t us, uint64_t random);

/* Writes the part of the name before the sequence number.  Room: ZKLOCK_ITEM_NAME. */
extern void zklock_item_prefix(char *buf, const char *id);

/* False: zklock has not made this item. */
extern bool zklock_item_parse(const char *name, ZkItemName *item);

/* Room for the name of a take's mark in held/, with the NUL.  It has a random number,
 * of a server's shared memory, and a number of the take. */
#define ZKLOCK_MARK_NAME (ZKLOCK_ITEM_NAME + 25)

extern void zklock_item_mark(char *buf, const char *item, uint64_t life, uint32_t take);

/* Cuts a name of held/ off behind the item's name.  False: zklock has not made it. */
extern bool zklock_item_of_mark(char *mark, uint64_t *life, uint32_t *take);

/* Items of this queue that were taken too often go to the queue of this name. */
#define ZKLOCK_FAILED ".failed"

extern void zklock_queue_of_failed(char *buf, size_t size, const char *queue);

/* ------------------------------------------------------------------------
 * Chunks
 * ------------------------------------------------------------------------
 */

/* Room for the name of a chunk, with the NUL. */
#define ZKLOCK_CHUNK_NAME 64

/* The most items of a chunk, and so of a transaction of the ensemble. */
#define ZKLOCK_CHUNK_ITEMS 256

typedef struct ZkChunkName
{
	uint64_t system; /* PostgreSQL's system identifier: copies of a server have the same */
	uint64_t life;	 /* random: of a server's shared memory */
	uint32_t put;
	uint32_t chunk;
} ZkChunkName;

extern void zklock_chunk_format(char *buf, const ZkChunkName *name);
extern bool zklock_chunk_parse(const char *text, ZkChunkName *name);

typedef struct ZkChunkItem
{
	char id[ZKLOCK_ITEM_ID];
	int length; /* of its payload */
} ZkChunkItem;

/* The transaction that a chunk belongs to, and the chunk's items. */
typedef struct ZkChunkHead
{
	int timeline;
	uint64_t lsn; /* on which there is a record of the transaction before this */
	uint64_t xid;
	uint64_t server; /* zklock_hash_child of its name */
	int nitems;
	ZkChunkItem item[ZKLOCK_CHUNK_ITEMS];
} ZkChunkHead;

/* The longest head as text: keys, four numbers of 20 digits, items, a NUL. */
#define ZKLOCK_CHUNK_HEAD (200 + ZKLOCK_CHUNK_ITEMS * 66)
#define ZKLOCK_CHUNK_MAX  (ZKLOCK_CHUNK_HEAD + ZKLOCK_ITEM_MAX)

/* Write the head, a line; payloads follow.  Room: ZKLOCK_CHUNK_HEAD.  Returns its length. */
extern int zklock_chunk_write(char *buf, const ZkChunkHead *head);

/* Returns where the payloads begin; NULL: this is no chunk. */
extern const char *zklock_chunk_read(const char *data, size_t len, ZkChunkHead *head);

/* Is it a chunk of a newer version? */
extern bool zklock_chunk_is_newer(const char *data, size_t len);

#endif /* ZKLOCK_QUEUE_TEXT_H */
