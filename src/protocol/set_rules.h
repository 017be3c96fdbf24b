/*-------------------------------------------------------------------------
 *
 * set_rules.h
 *	  Decides when a set's contenders are made, and when the set is granted.
 *
 * A set wants several locks, all of them or none.  One transaction of the ensemble
 * makes its contenders, so they all have its number, the zxid.  In any queue a waiter
 * has come later than the contender for which it waits.  So if all contenders of two
 * sets are in their queues, the set with the smaller zxid never waits for the other.
 * Sets that wait only for sets form no cycle, in whatever order they name their locks.
 *
 * That holds only if no contender of a set stands elsewhere in a queue than at the
 * set's zxid while the set waits for the rest.  Hence:
 *
 *	 - A set cannot use a grant that was there before it, unless it finds everything
 *	   that it wants at one moment, and so waits for nothing;
 *	 - a contender that gets lost alone takes the others with it: all are made
 *	   again, by one transaction;
 *	 - when nobody knows whether a transaction was executed, each queue finds out
 *	   for itself, and nothing is made before all have.
 *
 * Pure, as protocol.h is; the same simulator plays it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_RULES_H
#define ZKLOCK_SET_RULES_H

#include "protocol.h"

/* The common state of a set's locks. */
typedef struct ZkSetCount
{
	int total;
	int part[ZKLOCK_PART_GRANTED + 1]; /* so many are this to it */
	bool fixed;						   /* in the queue, and not to be made anew now */
} ZkSetCount;

typedef enum ZkSetVerdict
{
	ZKLOCK_SET_WAIT,
	ZKLOCK_SET_SEND, /* JOINTLY to each queue: one transaction of what they ask for */
	ZKLOCK_SET_GRANTED
} ZkSetVerdict;

/* Count one more of its locks. */
extern void zklock_set_count(ZkSetCount *count, const ZkLockQueue *queue, ZkLockMode mode,
							 uint64_t set);

extern ZkSetVerdict zklock_set_judge(const ZkSetCount *count);

/*
 * The transaction was refused with "rc" because of op number "failed" (-1: not known
 * which).  Returns what that means for op number "op".  The ensemble could do the ops
 * before "failed", and has not looked at those behind it.  "creates": op "op" makes a
 * contender, and so does op "failed", if that is known.
 */
extern ZkLockRc zklock_set_outcome(ZkLockRc rc, int failed, int op, bool creates);

#endif /* ZKLOCK_SET_RULES_H */
