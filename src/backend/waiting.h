/*-------------------------------------------------------------------------
 *
 * waiting.h
 *	  What a wait for a lock is for: said in the context of all that is reported meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITING_H
#define ZKLOCK_WAITING_H

#include "table.h"

typedef struct ZkWaiting
{
	ErrorContextCallback callback;
	int32 proclock;
} ZkWaiting;

/* This backend is about to wait with the proclock.  To be ended before that is, if not by
 * an error. */
extern void zklock_waiting_begin(ZkWaiting *waiting, int32 proclock);
extern void zklock_waiting_end(const ZkWaiting *waiting);

/*
 * The wait at level 2 has lasted for "lock_timeout" ms: raise 55P03 with a detail that
 * says who has the lock, if that can be found out soon.
 */
pg_noreturn extern void zklock_waiting_raise_timeout(int32 proclock, int64 lock_timeout);

/* The same of a wait that was limited by its caller: 55P03, in our words. */
pg_noreturn extern void zklock_waiting_raise_over(ZkLockKind kind, const char *name,
												  int64 timeout);

/* A wait that is not for a lock (for room in the table, say) has lasted for lock_timeout:
 * 55P03, with PostgreSQL's own message. */
pg_noreturn extern void zklock_waiting_raise_lock_timeout(void);
#define ZKLOCK_LOCK_TIMEOUT_MESSAGE "canceling statement due to lock timeout"

#endif /* ZKLOCK_WAITING_H */
