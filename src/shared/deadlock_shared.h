/*-------------------------------------------------------------------------
 *
 * deadlock_shared.h
 *	  What a backend is told whose wait the worker has ended for a deadlock.
 *
 * There are few at a time, so the texts are in a few places, the oldest of which is
 * overwritten: who comes too late learns no more than that there was one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_SHARED_H
#define ZKLOCK_DEADLOCK_SHARED_H

#include "utils/timestamp.h"

#include "part.h"

#define ZKLOCK_DEADLOCK_TEXT 8192 /* bytes, with the NUL */
#define ZKLOCK_DEADLOCK_PIDS 32

typedef struct ZkDeadlockVerdict
{
	int pid; /* whose wait it was ... */
	TimestampTz wait_start;
	int npids; /* processes of this server in the ring */
	int pids[ZKLOCK_DEADLOCK_PIDS];
	char text[ZKLOCK_DEADLOCK_TEXT]; /* UTF-8, for who may see all names ... */
	char own[ZKLOCK_DEADLOCK_TEXT];	 /* ... and for others, with their own names only */
} ZkDeadlockVerdict;

extern const ZkSharedPart zklock_deadlock_part;

/* For the worker, before it says that the wait has failed. */
extern void zklock_deadlock_verdict_put(const ZkDeadlockVerdict *verdict);

/* For the backend; false if it is not there (any more). */
extern bool zklock_deadlock_verdict_get(TimestampTz wait_start, ZkDeadlockVerdict *verdict);

#endif /* ZKLOCK_DEADLOCK_SHARED_H */
