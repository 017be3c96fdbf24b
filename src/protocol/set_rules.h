/*-------------------------------------------------------------------------
 *
 * set_rules.h
 *	  Several locks in one step: when a set's contenders are made, and when it is granted.
 *
 * A set wants several locks, all of them or none.  Its contenders are made by one
 * transaction of the ensemble, so they all have its number, the zxid.  Who waits for
 * whom in any queue has come there later; so of two sets whose contenders are all in
 * their queues, the one with the smaller zxid never waits for the other.  Sets that wait
 * for sets only are no circle, in whatever order they name their locks.
 *
 * That holds if nothing of a set stands elsewhere in a queue than at its zxid while it
 * waits for the rest.  Hence:
 *	 - a grant that was there before the set is of no use to it, unless it finds all that
 *	   it wants at one moment, and so waits for nothing;
 *	 - a contender that gets lost, alone, takes the others with it: all are made anew, by
 *	   one transaction again;
 *	 - when nobody knows whether a transaction was executed, each queue finds out for
 *	   itself, and nothing is made before all have.
 *
 * Pure, as protocol.h is, and played by the same simulator.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_RULES_H
#define ZKLOCK_SET_RULES_H

#include "protocol.h"

/* What is known of a set's locks together. */
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
 * which).  What does that mean for op number "op"?  The ensemble could do the ops before
 * "failed", and has not looked at those behind it.  "creates": op "op" makes a contender,
 * and so does op "failed", if that is known.
 */
extern ZkLockRc zklock_set_outcome(ZkLockRc rc, int failed, int op, bool creates);

#endif /* ZKLOCK_SET_RULES_H */
