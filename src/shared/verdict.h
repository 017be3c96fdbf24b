/*-------------------------------------------------------------------------
 *
 * verdict.h
 *	  What a backend is told whose wait the worker has ended for a deadlock.
 *
 * There are few at a time, so the texts are in a few slots, the oldest of which is
 * overwritten: who comes too late learns no more than that there was one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VERDICT_H
#define ZKLOCK_VERDICT_H

#include "utils/timestamp.h"

#define ZKLOCK_VERDICT_TEXT 8192 /* bytes, with the NUL */
#define ZKLOCK_VERDICT_PIDS 32

typedef struct ZkVerdict
{
	int pid; /* whose wait it was ... */
	TimestampTz wait_start;
	int npids; /* processes of this server in the ring */
	int pids[ZKLOCK_VERDICT_PIDS];
	char text[ZKLOCK_VERDICT_TEXT]; /* UTF-8, for who may see all names ... */
	char own[ZKLOCK_VERDICT_TEXT];	/* ... and for others, with their own names only */
} ZkVerdict;

/* For shmem_request_hook and shmem_startup_hook. */
extern void zklock_verdict_shmem_request(void);
extern void zklock_verdict_shmem_startup(void);

/* For the worker, before it says that the wait has failed. */
extern void zklock_verdict_put(const ZkVerdict *verdict);

/* For the backend; false if it is not there (any more). */
extern bool zklock_verdict_get(TimestampTz wait_start, ZkVerdict *verdict);

#endif /* ZKLOCK_VERDICT_H */
