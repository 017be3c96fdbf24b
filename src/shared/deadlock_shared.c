/*-------------------------------------------------------------------------
 *
 * deadlock_shared.c
 *	  Passes the worker's verdict on a deadlock to the backend whose wait it has ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "deadlock_shared.h"
#include "table.h"

#define NVERDICTS 8

typedef struct VerdictShared
{
	ZkMailbox box;
	int next;
	ZkDeadlockVerdict verdict[NVERDICTS];
} VerdictShared;

static VerdictShared *shared = NULL;

static Size
size(void)
{
	return sizeof(VerdictShared);
}

const ZkSharedPart zklock_deadlock_part = {
	.name = "zklock_deadlock",
	.nlocks = 1,
	.size = size,
	.memory = (void **) &shared,
};

void
zklock_deadlock_verdict_put(const ZkDeadlockVerdict *verdict)
{
	Assert(zklock_in_worker() && verdict->wait_start != 0);
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	shared->verdict[shared->next] = *verdict;
	shared->next = (shared->next + 1) % NVERDICTS;
	LWLockRelease(shared->box.lock);
}

bool
zklock_deadlock_verdict_get(TimestampTz wait_start, ZkDeadlockVerdict *verdict)
{
	bool found = false;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	for (int i = 0; i < NVERDICTS && !found; i++)
	{
		found = shared->verdict[i].pid == MyProcPid &&
			shared->verdict[i].wait_start == wait_start;
		if (found)
			*verdict = shared->verdict[i];
	}
	LWLockRelease(shared->box.lock);
	return found;
}
