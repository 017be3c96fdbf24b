/*-------------------------------------------------------------------------
 *
 * barrier_text.h
 *	  Reads and writes the names of a barrier's parties, and the record of its rounds.
 *
 * Pure.  Any client of the ensemble may have written what these functions read.
 * barrier_rules.h says what the names and the record are for.  The record has a line
 * for each round, the newest first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_TEXT_H
#define ZKLOCK_BARRIER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

/* One request has room for the deletes of this many of the longest paths, and the
 * record. */
#ifndef ZKLOCK_BARRIER_PARTIES_MAX
#define ZKLOCK_BARRIER_PARTIES_MAX 500
#endif

/* Rounds in the record, and its bytes with a NUL.  It always has room for a round of
 * ZKLOCK_BARRIER_PARTIES_MAX. */
#ifndef ZKLOCK_ROUNDS_KEPT
#define ZKLOCK_ROUNDS_KEPT 32
#endif
#ifndef ZKLOCK_ROUNDS_MAX
#define ZKLOCK_ROUNDS_MAX (20 * 1024)
#endif

#define ZKLOCK_PARTY_NAME_MAX 96 /* of our own, with the NUL */

/* What a child's name says. */
typedef struct ZkPartyNode
{
	uint64_t id[2];
	uint64_t session;
	int32_t parties;
	int64_t sequence;
} ZkPartyNode;

/* A party's name without the sequence number; room: ZKLOCK_PARTY_NAME_MAX. */
extern void zklock_barrier_format_party(char *buf, const uint64_t id[2], uint64_t session,
										int32_t parties);

/* False: zklock has not made this name. */
extern bool zklock_barrier_parse_party(const char *name, ZkPartyNode *node);

/* Reads the numbers of the newest and the oldest round of a record; 0 and 1: it has
 * no round.  They are the same if the text is not GOOD. */
extern ZkRecordRead zklock_barrier_rounds_parse(const char *text, size_t len,
												int64_t *newest, int64_t *oldest);

/* Is this id in one of the record's rounds?  The record must have been parsed. */
extern bool zklock_barrier_rounds_have(const char *text, size_t len, const uint64_t id[2]);

/* Writes the record with one more round into "buf" (ZKLOCK_ROUNDS_MAX), with as many
 * of the other rounds as there may be.  Returns its length. */
extern int zklock_barrier_rounds_add(const char *text, size_t len, int64_t round,
									 const ZkPartyNode *member, int n, char *buf);

#endif /* ZKLOCK_BARRIER_TEXT_H */
