/*-------------------------------------------------------------------------
 *
 * level2.h
 *	  Level 2: the wait for the grant of a lock, or for the grants of a set.
 *
 * acquire.c and set_backend.c look at what they wait for.  level2.c decides what a look
 * means.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEVEL2_H
#define ZKLOCK_LEVEL2_H

#include "deadlock_backend.h"
#include "level1.h"

typedef struct ZkLevel2Wait
{
	ZkWaiter waiter;
	ZkDeadlockWait long_wait;
} ZkLevel2Wait;

/* The result of a look. */
typedef struct ZkLevel2Sight
{
	bool granted;	/* but for the lease */
	bool blocked;	/* the ensemble has said that somebody else is before us */
	bool conflict;	/* somebody of this server is, who has lost level 1 */
	int32 proclock; /* one that is not granted */
	int32 first;	/* of its set, or the same */
} ZkLevel2Sight;

/* Prepare a wait; w->waiter.arg is set to "arg". */
extern void zklock_level2_begin(ZkLevel2Wait *w, const ZkWait *wait, ConditionVariable *cv,
								bool (*look)(ZkWaiter *, int64), void *arg);

/* A look has had this result, and is not the last one. */
extern void zklock_level2_sees(ZkLevel2Wait *w, int64 now, const ZkLevel2Sight *sight);

/* The wait is over, and has got the lock. */
extern void zklock_level2_end(const ZkLevel2Wait *w, int32 proclock);

#endif /* ZKLOCK_LEVEL2_H */
