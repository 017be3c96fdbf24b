/*-------------------------------------------------------------------------
 *
 * queue_shared.c
 *	  Keeps takes, puts and payloads of queues in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "queue_shared.h"
#include "settings.h"
#include "table.h"

ZkQueueShared *zklock_queue_shared = NULL;

static Size
queue_size(void)
{
	return add_size(offsetof(ZkQueueShared, taken),
					mul_size(sizeof(ZkQueueTake), (Size) zklock_max_items()));
}

static void
init(void)
{
	if (!pg_strong_random(&zklock_queue_shared->life, sizeof(zklock_queue_shared->life)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	ConditionVariableInit(&zklock_queue_shared->room_cv);
	for (int i = 0; i < ZKLOCK_QUEUE_COUNTERS; i++)
		pg_atomic_init_u64(&zklock_queue_shared->count[i], 0);
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
		ConditionVariableInit(&zklock_queue_shared->staged[i].cv);
	zklock_queue_shared->ntakes = zklock_max_items();
	for (int i = 0; i < zklock_queue_shared->ntakes; i++)
	{
		ConditionVariableInit(&zklock_queue_shared->taken[i].cv);
		zklock_queue_shared->taken[i].next =
			i + 1 < zklock_queue_shared->ntakes ? i + 1 : -1;
	}
}

const ZkSharedPart zklock_queue_part = {
	.name = "zklock_queue",
	.nlocks = 1,
	.size = queue_size,
	.memory = (void **) &zklock_queue_shared,
	.init = init,
};

#ifdef USE_ASSERT_CHECKING
static bool
is_locked(void)
{
	return LWLockHeldByMeInMode(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
}
#endif

ZkQueueBuffer *
zklock_queue_buffer(void)
{
	Assert(is_locked());
	for (int i = 0; i < ZKLOCK_QUEUE_BUFFERS; i++)
		if (zklock_queue_shared->buffer[i].state == ZKLOCK_BUFFER_FREE)
			return &zklock_queue_shared->buffer[i];
	return NULL;
}

ZkQueueTake *
zklock_queue_take_make(const char *queue, bool waits, int most)
{
	int32 i = zklock_queue_shared->free_take;
	ZkQueueTake *taken;

	Assert(is_locked());
	if (i < 0)
		return NULL;
	taken = &zklock_queue_shared->taken[i];
	Assert(taken->take.state == ZKLOCK_TAKE_FREE);
	zklock_queue_shared->free_take = taken->next;
	zklock_queue_shared->takes_high = Max(zklock_queue_shared->takes_high, i + 1);
	zklock_queue_shared->takes_used++;
	taken->take = (ZkTake){.state = ZKLOCK_TAKE_WANTED, .most = most};
	taken->waker = i;
	taken->pid = MyProcPid;
	taken->serial = zklock_mailbox_serial(&zklock_queue_shared->box);
	taken->order = ++zklock_queue_shared->last_order;
	taken->puts = zklock_queue_shared->committed;
	taken->none = taken->refused = taken->failing = taken->pause = false;
	taken->made = ZKLOCK_TAKE_NOTHING;
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
zklock_queue_take_wake(const ZkQueueTake *taken)
{
	ConditionVariableBroadcast(&zklock_queue_shared->taken[taken->waker].cv);
}

void
zklock_queue_take_free_buffer(ZkQueueTake *taken)
{
	Assert(is_locked());
	if (taken->buffer < 0)
		return;
	Assert(zklock_queue_shared->buffer[taken->buffer].state == ZKLOCK_BUFFER_READING);
	zklock_queue_shared->buffer[taken->buffer].state = ZKLOCK_BUFFER_FREE;
	taken->buffer = -1;
	ConditionVariableSignal(&zklock_queue_shared->room_cv);
}

void
zklock_queue_take_free(ZkQueueTake *taken)
{
	Assert(is_locked() && taken->take.state == ZKLOCK_TAKE_FREE);
	zklock_queue_take_free_buffer(taken);
	taken->serial = 0; /* replies to what was asked for it are nobody's */
	taken->next = zklock_queue_shared->free_take;
	zklock_queue_shared->free_take = (int32) (taken - zklock_queue_shared->taken);
	zklock_queue_shared->takes_used--;
}

int
zklock_queue_writer(int pid, int *nputs)
{
	int writer = 0;

	*nputs = 0;
	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
	{
		const ZkQueuePut *first = &zklock_queue_shared->staged[i];
		int n = 0;

		for (int j = i; j < ZKLOCK_QUEUE_PUTS; j++)
			n += zklock_queue_shared->staged[j].put.state == ZKLOCK_PUT_WRITING &&
				zklock_queue_shared->staged[j].pid == first->pid;
		if (first->put.state != ZKLOCK_PUT_WRITING || first->pid == pid || n <= *nputs)
			continue;
		writer = first->pid;
		*nputs = n;
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	return writer;
}

bool
zklock_queue_busy(void)
{
	bool busy;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	busy = zklock_queue_shared->takes_used > 0;
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS && !busy; i++)
		busy = zklock_queue_shared->staged[i].put.state != ZKLOCK_PUT_FREE;
	LWLockRelease(zklock_queue_shared->box.lock);
	return busy;
}

bool
zklock_queue_owed(void)
{
	bool owed = false;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	for (int i = 0; i < zklock_queue_shared->takes_high && !owed; i++)
	{
		const ZkTake *take = &zklock_queue_shared->taken[i].take;

		owed = take->state == ZKLOCK_TAKE_DONE ||
			(take->state != ZKLOCK_TAKE_FREE && take->state != ZKLOCK_TAKE_RETURNED &&
			 !take->leaving);
	}
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS && !owed; i++)
		owed = zklock_queue_shared->staged[i].put.state == ZKLOCK_PUT_WRITING ||
			zklock_queue_shared->staged[i].put.state == ZKLOCK_PUT_COMMITTED;
	LWLockRelease(zklock_queue_shared->box.lock);
	return owed;
}

bool
zklock_queue_has_items(void)
{
	bool found = false;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	for (int i = 0; i < zklock_queue_shared->takes_high && !found; i++)
		found = zklock_queue_shared->taken[i].take.state > ZKLOCK_TAKE_WANTED;
	LWLockRelease(zklock_queue_shared->box.lock);
	return found;
}

void
zklock_queue_count(ZkQueueCounter counter, int64 n)
{
	(void) pg_atomic_fetch_add_u64(&zklock_queue_shared->count[counter], n);
}

void
zklock_queue_reset(void)
{
	for (int i = 0; i < ZKLOCK_QUEUE_COUNTERS; i++)
		pg_atomic_write_u64(&zklock_queue_shared->count[i], 0);
}
