/*-------------------------------------------------------------------------
 *
 * level2.h
 *	  Level 2: the wait for the grant of a lock, or those of a set.
 *
 * acquire.c and set_backend.c look at what they wait for, and sleep here in between.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEVEL2_H
#define ZKLOCK_LEVEL2_H

#include "storage/condition_variable.h"

#include "deadlock_backend.h"
#include "level1.h"

typedef struct ZkLevel2Wait
{
	const ZkWait *wait;
	ConditionVariable *cv; /* NULL: not begun */
	int64 unproven;		   /* since when a grant waits for a lease, ns; 0: it does not */
	ZkDeadlockWait long_wait;
} ZkLevel2Wait;

/* What a look has found. */
typedef struct ZkLevel2Sight
{
	bool granted;	/* but for the lease */
	bool blocked;	/* the ensemble has said that somebody else is before us */
	bool conflict;	/* somebody of this server is, who has lost level 1 */
	int32 proclock; /* one that is not granted */
	int32 first;	/* of its set, or the same */
} ZkLevel2Sight;

/* Before the wish is stated, so that no answer is missed. */
extern void zklock_level2_begin(ZkLevel2Wait *w, const ZkWait *wait, ConditionVariable *cv);

/*
 * Sleep until something may have changed since "now", when the look was taken.  False:
 * the time is up, and somebody else has the lock.  Raises 55P03 for lock_timeout, what
 * zklock_check_connection does, and 58000 for a lease that does not come.
 */
extern bool zklock_level2_sleep(ZkLevel2Wait *w, int64 now, const ZkLevel2Sight *sight);

/* For a moment, whatever it is. */
extern void zklock_level2_pause(const ZkLevel2Wait *w);

/* Not to be called after an error, which ends the sleep in its own way.  "proclock":
 * that of what has been granted, -1: none. */
extern void zklock_level2_end(const ZkLevel2Wait *w, int32 proclock);

#endif /* ZKLOCK_LEVEL2_H */
