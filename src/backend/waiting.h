/*-------------------------------------------------------------------------
 *
 * waiting.h
 *	  Adds the purpose of a wait for a lock to the context of all errors and messages
 *	  meanwhile.
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

/* This backend is about to wait with the proclock.  End this before the proclock ends,
 * unless an error does. */
extern void zklock_waiting_begin(ZkWaiting *waiting, int32 proclock);
extern void zklock_waiting_end(const ZkWaiting *waiting);

/* The wait was in vain: remember who was in the way, for zklock_waiting_raise_over. */
extern void zklock_waiting_note(int32 proclock);

/* A wait with a limit of its caller is over, and was noted if there was one: raise
 * 55P03 with zklock's own text. */
pg_noreturn extern void zklock_waiting_raise_over(ZkLockKind kind, const char *name,
												  int64 timeout);

#endif /* ZKLOCK_WAITING_H */
