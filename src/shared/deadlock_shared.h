/*-------------------------------------------------------------------------
 *
 * deadlock_shared.h
 *	  Passes the worker's verdict on a deadlock to the backend whose wait it has ended.
 *
 * There are few verdicts at a time, so the texts are in a few places, and a new text
 * overwrites the oldest.  A backend that comes too late learns only that there was a
 * deadlock.
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

/* For the worker.  Call it before saying that the wait has failed. */
extern void zklock_deadlock_verdict_put(const ZkDeadlockVerdict *verdict);

/* For the backend.  False: the verdict is not there (any more). */
extern bool zklock_deadlock_verdict_get(TimestampTz wait_start, ZkDeadlockVerdict *verdict);

#endif /* ZKLOCK_DEADLOCK_SHARED_H */
