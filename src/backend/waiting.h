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

/* It was in vain: remember for whom it was, for zklock_waiting_raise_over. */
extern void zklock_waiting_note(int32 proclock);

/* A wait that was limited by its caller, and noted if it was one, is over: 55P03, in our
 * words. */
pg_noreturn extern void zklock_waiting_raise_over(ZkLockKind kind, const char *name,
												  int64 timeout);

#endif /* ZKLOCK_WAITING_H */
