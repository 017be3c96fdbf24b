/*-------------------------------------------------------------------------
 *
 * barrier_shared.c
 *	  Keeps this server's sessions that wait at barriers in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "barrier_shared.h"
#include "table.h"

typedef struct PartiesShared
{
	ZkMailbox box;
	int ncalls;
	int used;
	int64 stat[ZKLOCK_NPARTY_STATS];
	TimestampTz since;
	ZkBarrierCall call[FLEXIBLE_ARRAY_MEMBER];
} PartiesShared;

static PartiesShared *shared = NULL;

/* Every backend can wait.  As many again may have been cancelled while the worker has
 * not heard from the ensemble yet. */
static int
calls_wanted(void)
{
	return 2 * MaxBackends;
}

static Size
shmem_size(void)
{
	return add_size(offsetof(PartiesShared, call),
					mul_size(sizeof(ZkBarrierCall), calls_wanted()));
}

static void
init(void)
{
	shared->ncalls = calls_wanted();
	shared->since = GetCurrentTimestamp();
	for (int i = 0; i < shared->ncalls; i++)
		ConditionVariableInit(&shared->call[i].cv);
}

const ZkSharedPart zklock_barrier_part = {
	.name = "zklock_barrier",
	.nlocks = 1,
	.size = shmem_size,
	.memory = (void **) &shared,
	.init = init,
};

int
zklock_barrier_max(void)
{
	return shared->ncalls;
}

ZkBarrierCall *
zklock_barrier_call(int call)
{
	Assert(call >= 0 && call < shared->ncalls);
	return &shared->call[call];
}

int
zklock_barrier_used(void)
{
	return shared->used; /* as of a moment ago */
}

/* Called with the lock, when the backend or the worker has done with the call. */
static void
release(ZkBarrierCall *call)
{
	if (call->awaited || call->end == ZKLOCK_PARTY_NONE)
		return;
	Assert(shared->used > 0);
	call->used = false;
	shared->used--;
}

int
zklock_barrier_come(const char *name, int32 parties)
{
	uint64 id[2];
	int found = -1;

	Assert(!zklock_in_worker());
	if (!pg_strong_random(id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->ncalls && found < 0; i++)
	{
		ZkBarrierCall *call = &shared->call[i];

		if (call->used)
			continue;
		found = i;
		call->used = call->awaited = true;
		call->pid = MyProcPid;
		strlcpy(call->name, name, sizeof(call->name));
		call->end = ZKLOCK_PARTY_NONE;
		memset(&call->party, 0, sizeof(call->party));
		memcpy(call->party.id, id, sizeof(id));
		call->party.parties = parties;
		shared->used++;
	}
	LWLockRelease(shared->box.lock);
	if (found >= 0)
		zklock_mailbox_post(&shared->box);
	return found;
}

ZkPartyEnd
zklock_barrier_look(int call)
{
	ZkPartyEnd end;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	Assert(shared->call[call].awaited);
	end = shared->call[call].end;
	LWLockRelease(shared->box.lock);
	return end;
}

void
zklock_barrier_leave(int call)
{
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	shared->call[call].party.leave = true;
	LWLockRelease(shared->box.lock);
	zklock_mailbox_post(&shared->box);
}

void
zklock_barrier_done(int call, ZkPartyStat outcome, int64 us)
{
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	Assert(shared->call[call].used && shared->call[call].awaited);
	shared->call[call].awaited = false;
	shared->call[call].party.leave = true;
	release(&shared->call[call]);
	shared->stat[outcome]++;
	shared->stat[ZKLOCK_PARTY_STAT_WAIT_US] += us;
	shared->stat[ZKLOCK_PARTY_STAT_LONGEST_US] =
		Max(shared->stat[ZKLOCK_PARTY_STAT_LONGEST_US], us);
	LWLockRelease(shared->box.lock);
	zklock_mailbox_post(&shared->box);
}

bool
zklock_barrier_changed(void)
{
	return zklock_mailbox_posted(&shared->box);
}

bool
zklock_barrier_waits(int call)
{
	bool waits;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	waits = shared->call[call].used && shared->call[call].end == ZKLOCK_PARTY_NONE;
	LWLockRelease(shared->box.lock);
	return waits;
}

void
zklock_barrier_over(int call)
{
	ZkBarrierCall *s = &shared->call[call];

	Assert(zklock_in_worker());
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	Assert(s->used && s->end == ZKLOCK_PARTY_NONE && s->party.end != ZKLOCK_PARTY_NONE);
	s->end = s->party.end;
	s->other = s->party.other;
	s->rc = s->party.rc;
	release(s);
	LWLockRelease(shared->box.lock);
	ConditionVariableBroadcast(&s->cv);
}

void
zklock_barrier_count_opened(void)
{
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	shared->stat[ZKLOCK_PARTY_STAT_OPENED]++;
	LWLockRelease(shared->box.lock);
}

void
zklock_barrier_stats(int64 *n, TimestampTz *since)
{
	LWLockAcquire(shared->box.lock, LW_SHARED);
	memcpy(n, shared->stat, sizeof(shared->stat));
	*since = shared->since;
	LWLockRelease(shared->box.lock);
}

void
zklock_barrier_stats_reset(void)
{
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	memset(shared->stat, 0, sizeof(shared->stat));
	shared->since = GetCurrentTimestamp();
	LWLockRelease(shared->box.lock);
}
