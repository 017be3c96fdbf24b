/*-------------------------------------------------------------------------
 *
 * barrier_text.h
 *	  Barriers: names of parties, and the record of the rounds.
 *
 * Pure.  Whoever can reach the ensemble may have written what is read.  barrier_rules.h
 * says what these are for.  The record has a line for each round, the newest first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_TEXT_H
#define ZKLOCK_BARRIER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So many deletes of the longest paths, and the record, fit into one request. */
#ifndef ZKLOCK_BARRIER_PARTIES_MAX
#define ZKLOCK_BARRIER_PARTIES_MAX 500
#endif

/* Rounds in the record, and its bytes, with a NUL: there is always room for one of
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

/* False: it is none of ours. */
extern bool zklock_barrier_parse_party(const char *name, ZkPartyNode *node);

/* The numbers of the newest and the oldest round in a record; 0 and 1: there is none.
 * False, and the same, if it is none. */
extern bool zklock_barrier_rounds_parse(const char *text, size_t len, int64_t *newest,
										int64_t *oldest);

/* Is somebody in one of its rounds?  It has been parsed. */
extern bool zklock_barrier_rounds_have(const char *text, size_t len, const uint64_t id[2]);

/* The record with one round more, in "buf" (ZKLOCK_ROUNDS_MAX), and as many of the others
 * as there may be.  Returns its length. */
extern int zklock_barrier_rounds_add(const char *text, size_t len, int64_t round,
									 const ZkPartyNode *member, int n, char *buf);

#endif /* ZKLOCK_BARRIER_TEXT_H */
