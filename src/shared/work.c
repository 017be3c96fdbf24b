/*-------------------------------------------------------------------------
 *
 * work.c
 *	  Work that is handed out, in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/ipc.h"
#include "storage/shmem.h"

#include "settings.h"
#include "table.h"
#include "work.h"

ZkWork *zklock_work = NULL;

static Size
work_size(void)
{
	return MAXALIGN(add_size(offsetof(ZkWork, taken),
							 mul_size(sizeof(ZkTaken), (Size) zklock_max_items_held)));
}

void
zklock_work_shmem_request(void)
{
	RequestAddinShmemSpace(work_size());
	RequestNamedLWLockTranche("zklock_work", 1);
}

void
zklock_work_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zklock_work = ShmemInitStruct("zklock work", work_size(), &found);
	if (!found)
	{
		memset(zklock_work, 0, work_size());
		zklock_work->lock = &GetNamedLWLockTranche("zklock_work")->lock;
		if (!pg_strong_random(&zklock_work->life, sizeof(zklock_work->life)))
			ereport(FATAL,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random number")));
		pg_atomic_init_u32(&zklock_work->wanted, 0);
		ConditionVariableInit(&zklock_work->room_cv);
		for (int i = 0; i < ZKLOCK_WORK_COUNTERS; i++)
			pg_atomic_init_u64(&zklock_work->count[i], 0);
		for (int i = 0; i < ZKLOCK_WORK_PUTS; i++)
			ConditionVariableInit(&zklock_work->put[i].cv);
		zklock_work->ntakes = zklock_max_items_held;
		for (int i = 0; i < zklock_work->ntakes; i++)
		{
			ConditionVariableInit(&zklock_work->taken[i].cv);
			zklock_work->taken[i].next = i + 1 < zklock_work->ntakes ? i + 1 : -1;
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

#ifdef USE_ASSERT_CHECKING
static bool
is_locked(void)
{
	return LWLockHeldByMeInMode(zklock_work->lock, LW_EXCLUSIVE);
}
#endif

uint32
zklock_work_serial(void)
{
	Assert(is_locked());
	if (++zklock_work->last_serial == 0)
		zklock_work->last_serial = 1;
	return zklock_work->last_serial;
}

ZkWorkBuffer *
zklock_work_buffer(void)
{
	Assert(is_locked());
	for (int i = 0; i < ZKLOCK_WORK_BUFFERS; i++)
		if (zklock_work->buffer[i].state == ZKLOCK_BUFFER_FREE)
			return &zklock_work->buffer[i];
	return NULL;
}

ZkTaken *
zklock_taken_make(const char *queue, bool waits)
{
	int32 i = zklock_work->free_take;
	ZkTaken *taken;

	Assert(is_locked());
	if (i < 0)
		return NULL;
	taken = &zklock_work->taken[i];
	Assert(taken->take.state == ZKLOCK_TAKE_FREE);
	zklock_work->free_take = taken->next;
	zklock_work->takes_high = Max(zklock_work->takes_high, i + 1);
	zklock_work->takes_used++;
	taken->take = (ZkTake){.state = ZKLOCK_TAKE_WANTED};
	taken->serial = zklock_work_serial();
	taken->order = ++zklock_work->last_order;
	taken->puts = zklock_work->committed;
	taken->none = taken->refused = taken->pause = taken->made = false;
	taken->waits = waits;
	taken->rc = 0;
	taken->loss = ZKLOCK_ITEM_KEPT;
	taken->unproven_since = 0;
	taken->buffer = -1;
	taken->item[0] = '\0';
	strlcpy(taken->queue, queue, sizeof(taken->queue));
	return taken;
}

void
zklock_taken_free_buffer(ZkTaken *taken)
{
	Assert(is_locked());
	if (taken->buffer < 0)
		return;
	Assert(zklock_work->buffer[taken->buffer].state == ZKLOCK_BUFFER_READING);
	zklock_work->buffer[taken->buffer].state = ZKLOCK_BUFFER_FREE;
	taken->buffer = -1;
	ConditionVariableSignal(&zklock_work->room_cv);
}

void
zklock_taken_free(ZkTaken *taken)
{
	Assert(is_locked() && taken->take.state == ZKLOCK_TAKE_FREE);
	zklock_taken_free_buffer(taken);
	taken->serial = 0; /* replies to what was asked for it are nobody's */
	taken->next = zklock_work->free_take;
	zklock_work->free_take = (int32) (taken - zklock_work->taken);
	zklock_work->takes_used--;
}

int
zklock_work_writer(int pid, int *nputs)
{
	int writer = 0;

	*nputs = 0;
	LWLockAcquire(zklock_work->lock, LW_SHARED);
	for (int i = 0; i < ZKLOCK_WORK_PUTS; i++)
	{
		const ZkPut *first = &zklock_work->put[i];
		int n = 0;

		for (int j = i; j < ZKLOCK_WORK_PUTS; j++)
			n += zklock_work->put[j].state == ZKLOCK_PUT_WRITING &&
				zklock_work->put[j].pid == first->pid;
		if (first->state != ZKLOCK_PUT_WRITING || first->pid == pid || n <= *nputs)
			continue;
		writer = first->pid;
		*nputs = n;
	}
	LWLockRelease(zklock_work->lock);
	return writer;
}

void
zklock_work_wake(void)
{
	pg_atomic_write_u32(&zklock_work->wanted, 1);
	zklock_worker_wake();
}

bool
zklock_work_busy(void)
{
	bool busy;

	LWLockAcquire(zklock_work->lock, LW_SHARED);
	busy = zklock_work->takes_used > 0;
	for (int i = 0; i < ZKLOCK_WORK_PUTS && !busy; i++)
		busy = zklock_work->put[i].state != ZKLOCK_PUT_FREE;
	LWLockRelease(zklock_work->lock);
	return busy;
}

bool
zklock_work_owed(void)
{
	bool owed = false;

	LWLockAcquire(zklock_work->lock, LW_SHARED);
	for (int i = 0; i < zklock_work->takes_high && !owed; i++)
	{
		const ZkTake *take = &zklock_work->taken[i].take;

		owed = take->state == ZKLOCK_TAKE_DONE ||
			(take->state != ZKLOCK_TAKE_FREE && take->state != ZKLOCK_TAKE_RETURNED &&
			 !take->leaving);
	}
	for (int i = 0; i < ZKLOCK_WORK_PUTS && !owed; i++)
		owed = zklock_work->put[i].state == ZKLOCK_PUT_WRITING ||
			zklock_work->put[i].state == ZKLOCK_PUT_COMMITTED;
	LWLockRelease(zklock_work->lock);
	return owed;
}

bool
zklock_work_has_items(void)
{
	bool found = false;

	LWLockAcquire(zklock_work->lock, LW_SHARED);
	for (int i = 0; i < zklock_work->takes_high && !found; i++)
		found = zklock_work->taken[i].take.state > ZKLOCK_TAKE_WANTED;
	LWLockRelease(zklock_work->lock);
	return found;
}

void
zklock_work_count(ZkWorkCounter counter, int64 n)
{
	(void) pg_atomic_fetch_add_u64(&zklock_work->count[counter], n);
}

void
zklock_work_reset(void)
{
	for (int i = 0; i < ZKLOCK_WORK_COUNTERS; i++)
		pg_atomic_write_u64(&zklock_work->count[i], 0);
}
