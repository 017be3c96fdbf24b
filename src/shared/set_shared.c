/*-------------------------------------------------------------------------
 *
 * set_shared.c
 *	  Passes backends' wishes for several locks in one step to the worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "mailbox.h"
#include "set_shared.h"

typedef struct SetsShared
{
	ZkMailbox box;
	uint64 last_number;
	ZkSetCall call[FLEXIBLE_ARRAY_MEMBER];
} SetsShared;

static SetsShared *shared = NULL;

static Size
sets_size(void)
{
	return add_size(offsetof(SetsShared, call), mul_size(sizeof(ZkSetCall), MaxBackends));
}

static void
init(void)
{
	for (int i = 0; i < MaxBackends; i++)
		ConditionVariableInit(&shared->call[i].cv);
}

const ZkSharedPart zklock_set_part = {
	.name = "zklock_set",
	.nlocks = 1,
	.size = sets_size,
	.memory = (void **) &shared,
	.init = init,
};

static ZkSetCall *
my_call(void)
{
	Assert(!zklock_in_worker());
	return &shared->call[ZKLOCK_MY_PROC_NUMBER];
}

static void
lock_calls(LWLockMode mode)
{
	Assert(zklock_unlocked());
	LWLockAcquire(shared->box.lock, mode);
}

/* ------------------------------------------------------------------------
 * For backends
 * ------------------------------------------------------------------------
 */

uint64
zklock_set_number(void)
{
	uint64 number;

	lock_calls(LW_EXCLUSIVE);
	number = ++shared->last_number;
	LWLockRelease(shared->box.lock);
	return number;
}

void
zklock_set_post(uint64 number, int32 first, ZkLockMode mode)
{
	ZkSetCall *call = my_call();

	lock_calls(LW_EXCLUSIVE);
	Assert(call->number == 0);
	call->number = number;
	call->first = first;
	call->mode = (uint8) mode;
	call->token = 0;
	LWLockRelease(shared->box.lock);
	zklock_mailbox_post(&shared->box);
}

void
zklock_set_withdraw(void)
{
	ZkSetCall *call = my_call();

	if (call->number == 0)
		return; /* we alone write it */
	lock_calls(LW_EXCLUSIVE);
	call->number = 0;
	LWLockRelease(shared->box.lock);
	/* the worker need not know at once: it looks at the queues, and makes nothing of them */
	pg_atomic_write_u32(&shared->box.posted, 1);
}

int64
zklock_set_token(bool again)
{
	ZkSetCall *call = my_call();
	int64 token;

	lock_calls(LW_EXCLUSIVE);
	if (again)
		call->token = 0;
	token = call->token;
	LWLockRelease(shared->box.lock);
	if (again)
		zklock_mailbox_post(&shared->box);
	return token;
}

ConditionVariable *
zklock_set_cv(void)
{
	return &my_call()->cv;
}

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

bool
zklock_sets_changed(void)
{
	return zklock_mailbox_posted(&shared->box);
}

ZkSetCall *
zklock_sets_lock(int *n)
{
	Assert(zklock_in_worker());
	lock_calls(LW_SHARED);
	*n = zklock_shared->nprocs;
	return shared->call;
}

void
zklock_sets_unlock(void)
{
	LWLockRelease(shared->box.lock);
}

void
zklock_set_grant(int index, uint64 number, int64 token)
{
	ZkSetCall *call = &shared->call[index];

	Assert(zklock_in_worker() && token > 0);
	lock_calls(LW_EXCLUSIVE);
	if (call->number == number)
		call->token = token;
	LWLockRelease(shared->box.lock);
	ConditionVariableBroadcast(&call->cv);
}

void
zklock_set_wake(int index)
{
	ConditionVariableBroadcast(&shared->call[index].cv);
}
