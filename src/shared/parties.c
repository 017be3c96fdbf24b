/*-------------------------------------------------------------------------
 *
 * parties.c
 *	  Sessions of this server that wait at barriers, in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "parties.h"
#include "table.h"

typedef struct PartiesShared
{
	LWLock *lock;
	pg_atomic_uint32 changed; /* the worker resets it */
	int nslots;
	int used;
	int64 stat[ZKLOCK_NPARTY_STATS];
	TimestampTz since;
	ZkPartySlot slot[FLEXIBLE_ARRAY_MEMBER];
} PartiesShared;

static PartiesShared *shared = NULL;

/* Every backend can wait; as many again may have been cancelled, and the worker has not
 * heard from the ensemble yet. */
static int
slots_wanted(void)
{
	return 2 * MaxBackends;
}

static Size
shmem_size(void)
{
	return add_size(offsetof(PartiesShared, slot),
					mul_size(sizeof(ZkPartySlot), slots_wanted()));
}

void
zklock_parties_shmem_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(shmem_size()));
	RequestNamedLWLockTranche("zklock_barrier", 1);
}

void
zklock_parties_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock barriers", shmem_size(), &found);
	if (!found)
	{
		memset(shared, 0, shmem_size());
		shared->lock = &GetNamedLWLockTranche("zklock_barrier")->lock;
		shared->nslots = slots_wanted();
		shared->since = GetCurrentTimestamp();
		pg_atomic_init_u32(&shared->changed, 0);
		for (int i = 0; i < shared->nslots; i++)
			ConditionVariableInit(&shared->slot[i].cv);
	}
	LWLockRelease(AddinShmemInitLock);
}

int
zklock_parties_max(void)
{
	return shared->nslots;
}

ZkPartySlot *
zklock_party_slot(int slot)
{
	Assert(slot >= 0 && slot < shared->nslots);
	return &shared->slot[slot];
}

int
zklock_parties_used(void)
{
	return shared->used; /* as of a moment ago */
}

/* With the lock, when somebody has done with it. */
static void
release(ZkPartySlot *slot)
{
	if (slot->awaited || slot->end == ZKLOCK_PARTY_NONE)
		return;
	Assert(shared->used > 0);
	slot->used = false;
	shared->used--;
}

static void
tell_worker(void)
{
	pg_atomic_write_u32(&shared->changed, 1);
	zklock_worker_wake();
}

int
zklock_party_come(const char *name, int32 parties)
{
	uint64 id[2];
	int found = -1;

	Assert(!zklock_in_worker());
	if (!pg_strong_random(id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots && found < 0; i++)
	{
		ZkPartySlot *slot = &shared->slot[i];

		if (slot->used)
			continue;
		found = i;
		slot->used = slot->awaited = true;
		slot->pid = MyProcPid;
		strlcpy(slot->name, name, sizeof(slot->name));
		slot->end = ZKLOCK_PARTY_NONE;
		memset(&slot->party, 0, sizeof(slot->party));
		memcpy(slot->party.id, id, sizeof(id));
		slot->party.parties = parties;
		shared->used++;
	}
	LWLockRelease(shared->lock);
	if (found >= 0)
		tell_worker();
	return found;
}

ZkPartyEnd
zklock_party_look(int slot)
{
	ZkPartyEnd end;

	LWLockAcquire(shared->lock, LW_SHARED);
	Assert(shared->slot[slot].awaited);
	end = shared->slot[slot].end;
	LWLockRelease(shared->lock);
	return end;
}

void
zklock_party_leave(int slot)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->slot[slot].party.leave = true;
	LWLockRelease(shared->lock);
	tell_worker();
}

void
zklock_party_done(int slot, ZkPartyStat outcome, int64 us)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	Assert(shared->slot[slot].used && shared->slot[slot].awaited);
	shared->slot[slot].awaited = false;
	shared->slot[slot].party.leave = true;
	release(&shared->slot[slot]);
	shared->stat[outcome]++;
	shared->stat[ZKLOCK_PARTY_STAT_WAIT_US] += us;
	shared->stat[ZKLOCK_PARTY_STAT_LONGEST_US] =
		Max(shared->stat[ZKLOCK_PARTY_STAT_LONGEST_US], us);
	LWLockRelease(shared->lock);
	tell_worker();
}

bool
zklock_parties_changed(void)
{
	return pg_atomic_exchange_u32(&shared->changed, 0) != 0;
}

bool
zklock_party_waits(int slot)
{
	bool waits;

	LWLockAcquire(shared->lock, LW_SHARED);
	waits = shared->slot[slot].used && shared->slot[slot].end == ZKLOCK_PARTY_NONE;
	LWLockRelease(shared->lock);
	return waits;
}

void
zklock_party_over(int slot)
{
	ZkPartySlot *s = &shared->slot[slot];

	Assert(zklock_in_worker());
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	Assert(s->used && s->end == ZKLOCK_PARTY_NONE && s->party.end != ZKLOCK_PARTY_NONE);
	s->end = s->party.end;
	s->other = s->party.other;
	s->rc = s->party.rc;
	release(s);
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&s->cv);
}

void
zklock_party_count_opened(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->stat[ZKLOCK_PARTY_STAT_OPENED]++;
	LWLockRelease(shared->lock);
}

void
zklock_party_stats(int64 *n, TimestampTz *since)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	memcpy(n, shared->stat, sizeof(shared->stat));
	*since = shared->since;
	LWLockRelease(shared->lock);
}

void
zklock_party_stats_reset(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	memset(shared->stat, 0, sizeof(shared->stat));
	shared->since = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
}
