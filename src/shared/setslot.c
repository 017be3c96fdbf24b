/*-------------------------------------------------------------------------
 *
 * setslot.c
 *	  Backends that want several locks in one step, as the worker sees them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "setslot.h"

typedef struct SetsShared
{
	LWLock *lock;
	uint64 last_number;
	pg_atomic_uint32 changed; /* the worker resets it */
	ZkSetSlot slot[FLEXIBLE_ARRAY_MEMBER];
} SetsShared;

static SetsShared *shared = NULL;

static Size
sets_size(void)
{
	return add_size(offsetof(SetsShared, slot), mul_size(sizeof(ZkSetSlot), MaxBackends));
}

void
zklock_set_shmem_request(void)
{
	RequestAddinShmemSpace(sets_size());
	RequestNamedLWLockTranche("zklock_sets", 1);
}

void
zklock_set_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock sets", sets_size(), &found);
	if (!found)
	{
		memset(shared, 0, sets_size());
		shared->lock = &GetNamedLWLockTranche("zklock_sets")->lock;
		pg_atomic_init_u32(&shared->changed, 0);
		for (int i = 0; i < MaxBackends; i++)
			ConditionVariableInit(&shared->slot[i].cv);
	}
	LWLockRelease(AddinShmemInitLock);
}

static ZkSetSlot *
my_slot(void)
{
	Assert(!zklock_in_worker());
	return &shared->slot[ZKLOCK_MY_PROC_NUMBER];
}

static void
lock_slots(LWLockMode mode)
{
	Assert(zklock_unlocked());
	LWLockAcquire(shared->lock, mode);
}

/* ------------------------------------------------------------------------
 * For backends
 * ------------------------------------------------------------------------
 */

uint64
zklock_set_number(void)
{
	uint64 number;

	lock_slots(LW_EXCLUSIVE);
	number = ++shared->last_number;
	LWLockRelease(shared->lock);
	return number;
}

void
zklock_set_post(uint64 number, int32 first, ZkLockMode mode)
{
	ZkSetSlot *slot = my_slot();

	lock_slots(LW_EXCLUSIVE);
	Assert(slot->number == 0);
	slot->number = number;
	slot->first = first;
	slot->mode = (uint8) mode;
	slot->token = 0;
	LWLockRelease(shared->lock);
	pg_atomic_write_u32(&shared->changed, 1);
	zklock_worker_wake();
}

void
zklock_set_withdraw(void)
{
	ZkSetSlot *slot = my_slot();

	if (slot->number == 0)
		return; /* we alone write it */
	lock_slots(LW_EXCLUSIVE);
	slot->number = 0;
	LWLockRelease(shared->lock);
	/* the worker need not know at once: it looks at the queues, and makes nothing of them */
	pg_atomic_write_u32(&shared->changed, 1);
}

int64
zklock_set_token(bool again)
{
	ZkSetSlot *slot = my_slot();
	int64 token;

	lock_slots(LW_EXCLUSIVE);
	if (again)
		slot->token = 0;
	token = slot->token;
	LWLockRelease(shared->lock);
	if (again)
	{
		pg_atomic_write_u32(&shared->changed, 1);
		zklock_worker_wake();
	}
	return token;
}

ConditionVariable *
zklock_set_cv(void)
{
	return &my_slot()->cv;
}

/* ------------------------------------------------------------------------
 * For the worker
 * ------------------------------------------------------------------------
 */

bool
zklock_sets_changed(void)
{
	return pg_atomic_exchange_u32(&shared->changed, 0) != 0;
}

ZkSetSlot *
zklock_sets_lock(int *n)
{
	Assert(zklock_in_worker());
	lock_slots(LW_SHARED);
	*n = zklock_shared->nprocs;
	return shared->slot;
}

void
zklock_sets_unlock(void)
{
	LWLockRelease(shared->lock);
}

void
zklock_set_grant(int index, uint64 number, int64 token)
{
	ZkSetSlot *slot = &shared->slot[index];

	Assert(zklock_in_worker() && token > 0);
	lock_slots(LW_EXCLUSIVE);
	if (slot->number == number)
		slot->token = token;
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&slot->cv);
}

void
zklock_set_wake(int index)
{
	ConditionVariableBroadcast(&shared->slot[index].cv);
}
