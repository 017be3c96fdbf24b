/*-------------------------------------------------------------------------
 *
 * deadlock_backend.h
 *	  Waits at level 2 that last longer than deadlock_timeout.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_BACKEND_H
#define ZKLOCK_DEADLOCK_BACKEND_H

#include "hold.h"

typedef struct ZkDeadlockWait
{
	int64 start; /* ns of CLOCK_BOOTTIME */
	int64 look;	 /* when to look next */
	bool logged; /* that it goes on */
} ZkDeadlockWait;

/* The wait begins; "proclock" is WANTED, or about to be. */
extern void zklock_deadlock_wait_begin(ZkDeadlockWait *wait);

/* To be called now and then, and at wait->look: asks whether it is a deadlock, says that
 * the wait goes on.  "first": of a set, the first; else the same. */
extern void zklock_deadlock_wait_look(ZkDeadlockWait *wait, int32 proclock, int32 first,
									  int64 now);

/* It has ended by the lock: say so, if that was said. */
extern void zklock_deadlock_wait_end(const ZkDeadlockWait *wait, int32 proclock);

/* The worker has ended it for a deadlock. */
pg_noreturn extern void zklock_deadlock_raise(int32 proclock);

#endif /* ZKLOCK_DEADLOCK_BACKEND_H */
