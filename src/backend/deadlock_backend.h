/*-------------------------------------------------------------------------
 *
 * deadlock_backend.h
 *	  Handles waits at level 2 that last longer than deadlock_timeout.
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

/* The wait begins.  "proclock" is WANTED, or about to be. */
extern void zklock_deadlock_wait_begin(ZkDeadlockWait *wait);

/*
 * Ask for a look for deadlocks, and log that the wait goes on, when they are due.  To
 * be called now and then, and at wait->look.  "first": the first proclock of a set;
 * else the same.
 */
extern void zklock_deadlock_wait_look(ZkDeadlockWait *wait, int32 proclock, int32 first,
									  int64 now);

/* The wait has ended with the lock: log it, if the wait was logged. */
extern void zklock_deadlock_wait_end(const ZkDeadlockWait *wait, int32 proclock);

/* Raise the deadlock for which the worker has ended the wait. */
pg_noreturn extern void zklock_deadlock_raise(int32 proclock);

#endif /* ZKLOCK_DEADLOCK_BACKEND_H */
