/*-------------------------------------------------------------------------
 *
 * verdict.c
 *	  What a backend is told whose wait the worker has ended for a deadlock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "verdict.h"

#define NVERDICTS 8

typedef struct VerdictShared
{
	LWLock *lock;
	int next;
	ZkVerdict verdict[NVERDICTS];
} VerdictShared;

static VerdictShared *shared = NULL;

void
zklock_verdict_shmem_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(VerdictShared)));
	RequestNamedLWLockTranche("zklock_verdict", 1);
}

void
zklock_verdict_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock verdicts", sizeof(VerdictShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche("zklock_verdict")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
zklock_verdict_put(const ZkVerdict *verdict)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->verdict[shared->next] = *verdict;
	shared->next = (shared->next + 1) % NVERDICTS;
	LWLockRelease(shared->lock);
}

bool
zklock_verdict_get(TimestampTz wait_start, ZkVerdict *verdict)
{
	bool found = false;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < NVERDICTS && !found; i++)
	{
		found = shared->verdict[i].pid == MyProcPid &&
			shared->verdict[i].wait_start == wait_start;
		if (found)
			*verdict = shared->verdict[i];
	}
	LWLockRelease(shared->lock);
	return found;
}
