/*-------------------------------------------------------------------------
 *
 * proclock.c
 *	  Manages proclocks: a backend's wishes and holds on an entry of the lock table.
 *
 * Need is level-triggered.  A backend changes the counters want and held under the
 * partition lock.  If that concerns the worker, the backend puts the entry on the list
 * of dirty ones, and the worker reads the counters when it gets there.  So a wish that
 * comes and goes, or comes twice, costs nothing and cannot be lost.  If a wish is
 * cancelled in the moment in which it is granted, the side that takes the lock second
 * sees a grant that nobody wants.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "election_shared.h"
#include "grant.h"
#include "proclock.h"
#include "semaphore_shared.h"
#include "stat.h"

/*
 * Returns the backend's own proclock, for which it needs no spinlock; if that is in use,
 * one of the free list; -1: there is none.  A job's run may outlive its backend, and
 * keeps its proclock then, so a job has one of the free list.
 */
static int32
allocate_proclock(ZkLockKind kind)
{
	int32 index = ZKLOCK_MY_PROC_NUMBER;

	if (zklock_proclock(index)->entry < 0 && !zklock_kinds[kind].record)
		return index;
	SpinLockAcquire(&zklock_shared->mutex);
	index = zklock_shared->free_proclock;
	if (index >= 0)
		zklock_shared->free_proclock = zklock_proclock(index)->next;
	SpinLockRelease(&zklock_shared->mutex);
	return index;
}

static void
free_proclock(int32 index)
{
	Assert(zklock_proclock(index)->entry == -1);
	if (index < zklock_shared->nprocs)
		return; /* it is a backend's own */
	SpinLockAcquire(&zklock_shared->mutex);
	zklock_proclock(index)->next = zklock_shared->free_proclock;
	zklock_shared->free_proclock = index;
	SpinLockRelease(&zklock_shared->mutex);
}

static void
link_proclock(ZkLockEntry *entry, int32 index)
{
	zklock_proclock(index)->next = entry->proclocks;
	zklock_proclock(index)->prev = -1;
	if (entry->proclocks >= 0)
		zklock_proclock(entry->proclocks)->prev = index;
	entry->proclocks = index;
	zklock_partition(entry)->nproclocks++;
}

/* Does another backend of this server stand in the way of a newcomer? */
static bool
stands_behind(const ZkLockEntry *entry, ZkLockMode mode)
{
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->pid != MyProcPid &&
			zklock_modes_conflict(mode, (ZkLockMode) proclock->mode))
			return true;
	}
	return false;
}

/* Does this backend hold the entry in shared mode? */
static bool
reads(const ZkLockEntry *entry)
{
	if (entry->held[ZKLOCK_SHARED] == 0)
		return false;
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost &&
			proclock->pid == MyProcPid && proclock->mode == ZKLOCK_SHARED)
			return true;
	}
	return false;
}

/* "token", if not NULL: takes a hold, too. */
static int32
make_proclock(ZkLockKind kind, const char *name, uint32 hash, int permits,
			  ZkLockMode mode, ZkLockScope scope, bool no_wait, uint64 set, int64 *token)
{
	LWLock *lock;
	ZkLockEntry *entry;
	ZkProcLock *proclock;
	int32 index;

	Assert(!zklock_in_worker());
	Assert(zklock_kinds[kind].modes || mode == ZKLOCK_EXCLUSIVE);
	Assert(zklock_kinds[kind].by_session == (permits > 0));
	index = allocate_proclock(kind);
	if (index < 0)
		return ZKLOCK_NO_PROCLOCK;
	proclock = zklock_proclock(index);
	Assert(proclock->entry == -1);
	proclock->database = MyDatabaseId;
	proclock->role = MyProc->roleId;
	strlcpy(proclock->application, application_name, sizeof(proclock->application));

	entry = zklock_kinds[kind].by_session
		? zklock_semaphore_place_make(name, permits, &lock)
		: zklock_entry_find_hashed(kind, name, hash, true, LW_EXCLUSIVE, &lock);
	if (entry == NULL)
	{
		free_proclock(index);
		return ZKLOCK_NO_ENTRY;
	}
	proclock->entry = zklock_entry_index(entry);
	proclock->pid = MyProcPid;
	proclock->proc_number = ZKLOCK_MY_PROC_NUMBER;
	proclock->mode = (uint8) mode;
	proclock->state = ZKLOCK_PROCLOCK_LOCAL;
	proclock->scope = (uint8) scope;
	proclock->no_wait = no_wait;
	proclock->upgrade = mode == ZKLOCK_EXCLUSIVE && !no_wait && reads(entry);
	proclock->lost = proclock->failed = proclock->blocked = false;
	proclock->failure_rc = 0;
	proclock->run.number = 0;
	proclock->set = set;
	proclock->set_next = -1;
	proclock->asked = proclock->asks = false;
	proclock->count[ZKLOCK_SCOPE_TRANSACTION] = proclock->count[ZKLOCK_SCOPE_SESSION] = 0;
	proclock->wait_start = token == NULL ? GetCurrentTimestamp() : 0;
	proclock->waited = stands_behind(entry, mode);
	proclock->end = ZKLOCK_PROCLOCK_END_CANCELED;
	proclock->again = proclock->again_counted = 0;
	link_proclock(entry, index);
	zklock_grant_update_kept(entry);
	zklock_grant_stays(entry);
	/* a grant that waits for those at level 1: they may have to wait for the set now */
	if (set != 0 && zklock_grant_settle(entry))
		zklock_entry_set_dirty(entry);
	/* readers whom we are about to wait for (zklock_proclock_finds_grant) */
	if (proclock->upgrade && entry->want[ZKLOCK_SHARED] > 0)
		zklock_entry_broadcast(entry);
	if (token != NULL)
	{
		*token = zklock_proclock_take(index, false) ? entry->grant[mode].token : 0;
		if (*token == 0)
			proclock->wait_start = GetCurrentTimestamp(); /* another clock, for views */
	}
	zklock_entry_unlock(lock);
	return index;
}

int32
zklock_proclock_make(ZkLockKind kind, const char *name, int permits, ZkLockMode mode,
					 ZkLockScope scope, bool no_wait)
{
	return make_proclock(kind, name, zklock_name_hash(kind, name), permits, mode, scope,
						 no_wait, 0, NULL);
}

int32
zklock_proclock_make_held(const char *name, uint32 hash, ZkLockMode mode,
						  ZkLockScope scope, bool no_wait, int64 *token)
{
	return make_proclock(ZKLOCK_KIND_LOCK, name, hash, 0, mode, scope, no_wait, 0, token);
}

int32
zklock_proclock_make_part(const char *name, ZkLockMode mode, ZkLockScope scope,
						  bool no_wait, uint64 set)
{
	return make_proclock(ZKLOCK_KIND_LOCK, name, zklock_name_hash(ZKLOCK_KIND_LOCK, name),
						 0, mode, scope, no_wait, set, NULL);
}

/* Does another backend of this server hold a conflicting mode? */
static bool
held_by_other(const ZkLockEntry *entry, ZkLockMode mode)
{
	if (entry->held[ZKLOCK_EXCLUSIVE] == 0 &&
		(mode == ZKLOCK_SHARED || entry->held[ZKLOCK_SHARED] == 0))
		return false;
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost &&
			proclock->pid != MyProcPid &&
			zklock_modes_conflict(mode, (ZkLockMode) proclock->mode))
			return true;
	}
	return false;
}

/*
 * The caller has level 1.  A reader of this server that wants to write waits for it
 * there, and later callers stand behind that reader: so few join a spent grant.
 */
static bool
finds_grant(const ZkLockEntry *entry, ZkLockMode mode)
{
	Assert(zklock_entry_is_locked(entry));
	if (entry->grant[mode].usable)
		return true;
	if (mode != ZKLOCK_SHARED || entry->held[ZKLOCK_SHARED] == 0)
		return false;
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->upgrade && proclock->state == ZKLOCK_PROCLOCK_LOCAL)
			return true;
	}
	return false;
}

bool
zklock_proclock_finds_grant(int32 index)
{
	return finds_grant(zklock_entry(zklock_proclock(index)->entry),
					   zklock_proclock(index)->mode);
}

bool
zklock_proclock_conflicts(int32 index)
{
	const ZkProcLock *proclock = zklock_proclock(index);

	/* a set needs new contenders, so a reader is in its way, too */
	return held_by_other(zklock_entry(proclock->entry),
						 proclock->set != 0 ? ZKLOCK_EXCLUSIVE
											: (ZkLockMode) proclock->mode);
}

/* A session is about to wait for a permit.  Permits that are kept on this server do
 * not help it, but stand in its way. */
static void
give_up_kept_permits(const ZkLockEntry *place)
{
	if (zklock_partition(place)->nkept == 0)
		return;
	for (ZkLockEntry *e = zklock_entry_first(place); e != NULL;
		 e = zklock_entry_namesake(e))
		zklock_grant_give_up(e);
}

/* Does the server wait in the mode already? */
static bool
queued(const ZkLockEntry *entry, int mode)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (entry->queue.contender[i].state == ZKLOCK_WAITING &&
			entry->queue.contender[i].mode == mode)
			return true;
	}
	return false;
}

/* The proclock takes a hold on the grant, at the time "now". */
static void
take_hold(ZkLockEntry *entry, ZkProcLock *proclock, int64 now)
{
	ZkLockGrant *grant = &entry->grant[proclock->mode];

	proclock->held_since = now;
	if (proclock->state == ZKLOCK_PROCLOCK_WANTED)
		entry->want[proclock->mode]--;
	proclock->state = ZKLOCK_PROCLOCK_HELD;
	entry->held[proclock->mode]++;
	if (entry->kind == ZKLOCK_KIND_JOB)
		pg_atomic_add_fetch_u32(&zklock_shared->njobs, 1);
	grant->holds++;
	if (!grant->usable)
		zklock_entry_set_dirty(entry); /* one less who waits to join it */
	else if (grant->demanded && --grant->handoffs <= 0)
		grant->usable = false;
	/* a demanded grant in the other mode goes before it is waited for */
	if (entry->grant[ZKLOCK_NMODES - 1 - proclock->mode].usable &&
		zklock_grant_settle(entry))
		zklock_entry_set_dirty(entry);
}

static void
state_wish(ZkLockEntry *entry, ZkProcLock *proclock)
{
	proclock->state = ZKLOCK_PROCLOCK_WANTED;
	proclock->waited |= queued(entry, proclock->mode);
	proclock->heard = proclock->blocked = false;
	entry->want[proclock->mode]++;
	entry->last_pid = MyProcPid;
	if (zklock_kinds[entry->kind].by_session)
		give_up_kept_permits(entry);
	(void) zklock_grant_settle(entry);
	zklock_entry_set_dirty(entry);
}

bool
zklock_proclock_take(int32 index, bool wish)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	bool wanted = proclock->state == ZKLOCK_PROCLOCK_WANTED;
	int64 now;

	Assert(zklock_entry_is_locked(entry));
	Assert(proclock->pid == MyProcPid && proclock->state != ZKLOCK_PROCLOCK_HELD);
	if (finds_grant(entry, (ZkLockMode) proclock->mode) && !proclock->failed &&
		!zklock_shared->stopping && !held_by_other(entry, (ZkLockMode) proclock->mode) &&
		zklock_lease_valid_at(now = zklock_clock()))
	{
		take_hold(entry, proclock, now);
		zklock_stat_acquired(entry, proclock, wanted);
		return true;
	}
	if (wish && proclock->state == ZKLOCK_PROCLOCK_LOCAL)
		state_wish(entry, proclock);
	return false;
}

void
zklock_proclock_wish(int32 index)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	Assert(proclock->pid == MyProcPid && proclock->set != 0);
	Assert(proclock->state == ZKLOCK_PROCLOCK_LOCAL);
	state_wish(entry, proclock);
	zklock_entry_unlock(lock);
}

bool
zklock_proclock_join(int32 index, int64 token)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	ZkLockMode mode = (ZkLockMode) proclock->mode;
	const ZkLockGrant *grant = &entry->grant[mode];
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */
	int64 now = zklock_clock();
	bool joined;

	Assert(proclock->pid == MyProcPid && proclock->set != 0);
	Assert(proclock->state == (token == 0 ? ZKLOCK_PROCLOCK_LOCAL : ZKLOCK_PROCLOCK_WANTED));
	joined = grant->usable && (token == 0 ? !grant->demanded : grant->token == token) &&
		!proclock->failed && !zklock_shared->stopping && !held_by_other(entry, mode) &&
		zklock_lease_valid_at(now);
	if (joined)
		take_hold(entry, proclock, now);
	zklock_entry_unlock(lock);
	return joined;
}

void
zklock_proclock_leave(int32 index, bool wish)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	Assert(proclock->pid == MyProcPid && proclock->state == ZKLOCK_PROCLOCK_HELD);
	if (!proclock->lost)
		entry->held[proclock->mode]--;
	proclock->lost = false;
	proclock->state = ZKLOCK_PROCLOCK_LOCAL;
	if (wish)
		state_wish(entry, proclock);
	else if (zklock_grant_settle(entry))
		zklock_entry_set_dirty(entry);
	zklock_entry_unlock(lock);
}

void
zklock_proclock_count(int32 index, bool cold)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	zklock_stat_acquired(entry, proclock, cold);
	proclock->set = 0;
	zklock_entry_unlock(lock);
}

/* Does a set wait for the entry?  Level 1 lets few proclocks come this far; there may
 * be a thousand behind it. */
static bool
set_waits(const ZkLockEntry *entry)
{
	if (entry->want[ZKLOCK_SHARED] == 0 && entry->want[ZKLOCK_EXCLUSIVE] == 0)
		return false;
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_WANTED && proclock->set != 0)
			return true;
	}
	return false;
}

/* A proclock that was HELD, and not lost, is not HELD any more. */
static void
uncount_held(ZkLockEntry *entry, ZkLockMode mode)
{
	entry->held[mode]--;
	if (entry->kind == ZKLOCK_KIND_JOB)
		pg_atomic_sub_fetch_u32(&zklock_shared->njobs, 1);
}

/* "lock" locks the entry.  This releases it. */
static void
end_proclock(int32 index, ZkLockEntry *entry, LWLock *lock)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockMode mode = (ZkLockMode) proclock->mode;
	bool changed = false;

	if (proclock->state == ZKLOCK_PROCLOCK_WANTED && !proclock->failed)
	{
		entry->want[mode]--;
		changed = true;
	}
	else if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost)
	{
		uncount_held(entry, mode);
		/* while the grant is kept there is nothing for the worker to do */
		changed = entry->held[mode] == 0 && !entry->grant[mode].usable;
	}
	Assert(entry->want[mode] >= 0 && entry->held[mode] >= 0);

	if (proclock->prev >= 0)
		zklock_proclock(proclock->prev)->next = proclock->next;
	else
		entry->proclocks = proclock->next;
	if (proclock->next >= 0)
		zklock_proclock(proclock->next)->prev = proclock->prev;
	zklock_partition(entry)->nproclocks--;
	proclock->entry = -1;

	changed |= zklock_grant_settle(entry);
	/* what is kept for nobody is so from now on */
	zklock_stat_ended(entry, proclock,
					  entry->kept_since != 0 ? entry->kept_since : zklock_clock());
	/* what was held until now is of no use to a set: the worker spends it (spend_for_set) */
	if (changed || set_waits(entry))
		zklock_entry_set_dirty(entry);
	else if (entry->proclocks < 0 && entry->kept_since == 0) /* what is kept stays */
		zklock_entry_release(entry);
	/* somebody who is kept from the grant by us alone (held_by_other) */
	if (entry->want[ZKLOCK_SHARED] > 0 || entry->want[ZKLOCK_EXCLUSIVE] > 0)
		zklock_entry_broadcast(entry);
	zklock_entry_unlock(lock);
	free_proclock(index);
}

void
zklock_proclock_end(int32 index)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */
	bool unsettled = proclock->run.number > 0;
	Oid database = proclock->database;

	Assert(proclock->pid == MyProcPid);
	if (unsettled && !proclock->lost)
	{
		proclock->pid = 0;
		for (int scope = 0; scope < ZKLOCK_NSCOPES; scope++)
			proclock->count[scope] = 0;
		zklock_entry_unlock(lock);
	}
	else
		end_proclock(index, entry, lock);
	if (unsettled)
		zklock_job_want_settler(database, true);
}

/* ------------------------------------------------------------------------
 * Runs of jobs that are not settled
 * ------------------------------------------------------------------------
 */

void
zklock_proclock_set_run(int32 index, ZkJobId run)
{
	ZkProcLock *proclock = zklock_proclock(index);
	LWLock *lock = zklock_entry_lock(zklock_entry(proclock->entry), LW_EXCLUSIVE);

	Assert(proclock->pid == MyProcPid && proclock->state == ZKLOCK_PROCLOCK_HELD);
	proclock->run = run;
	zklock_entry_unlock(lock);
}

/* Returns the proclock's entry and its lock; NULL: the proclock is free. */
static ZkLockEntry *
lock_entry_of(const ZkProcLock *proclock, LWLock **lock)
{
	int32 index = ((const volatile ZkProcLock *) proclock)->entry;
	ZkLockEntry *entry;

	if (index < 0)
		return NULL;
	entry = zklock_entry(index);
	*lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (*lock == NULL)
		return NULL;
	if (proclock->entry == index)
		return entry;
	zklock_entry_unlock(*lock);
	return NULL;
}

void
zklock_proclock_settled(int32 index, ZkJobId run)
{
	ZkProcLock *proclock = zklock_proclock(index);
	LWLock *lock;
	ZkLockEntry *entry = lock_entry_of(proclock, &lock);

	if (entry == NULL)
		return;
	if (proclock->run.number != run.number || proclock->run.token != run.token)
		zklock_entry_unlock(lock);
	else if (proclock->pid == 0)
		end_proclock(index, entry, lock);
	else
	{
		proclock->run.number = 0;
		zklock_entry_unlock(lock);
	}
}

bool
zklock_proclock_next_left(int32 from, ZkLeftRun *left)
{
	for (int32 i = from; i < zklock_shared->nproclocks; i++)
	{
		/* unlocked, and so looked at again */
		const ZkProcLock *proclock = zklock_proclock(i);
		ZkLockEntry *entry;
		LWLock *lock;
		bool found;

		if (proclock->pid != 0 || (entry = lock_entry_of(proclock, &lock)) == NULL)
			continue;
		found = proclock->pid == 0;
		if (found)
		{
			left->proclock = i;
			left->run = proclock->run;
			left->database = proclock->database;
			strlcpy(left->name, entry->name, sizeof(left->name));
		}
		zklock_entry_unlock(lock);
		if (found)
			return true;
	}
	return false;
}

void
zklock_proclock_abandon(int32 index)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	Assert(proclock->pid == MyProcPid);

	/*
	 * A reader's is shared in any case, and others may hold it and join it.  Beside a
	 * writer's nobody else holds one, and its readers would be given the writer's token
	 * (zklock_grant_apply).
	 */
	if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost &&
		proclock->mode == ZKLOCK_EXCLUSIVE && !zklock_kinds[entry->kind].by_server)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
			entry->grant[mode].usable = false;
	}
	zklock_entry_unlock(lock);
}

void
zklock_proclock_forfeit(int32 index)
{
	ZkProcLock *proclock = zklock_proclock(index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	ZkLockMode mode = (ZkLockMode) proclock->mode;
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	Assert(proclock->pid == MyProcPid && proclock->state == ZKLOCK_PROCLOCK_HELD);
	if (!proclock->lost)
	{
		proclock->lost = true;
		uncount_held(entry, mode);
		zklock_stat_add(entry, ZKLOCK_STAT_LOSSES, 1);
		/* The leadership is the server's, and the grant of other readers theirs.  A
		 * reader after a writer would be given its token. */
		if (!zklock_kinds[entry->kind].by_server && entry->held[mode] == 0)
		{
			entry->grant[mode].usable = false;
			if (mode == ZKLOCK_EXCLUSIVE)
				entry->grant[ZKLOCK_SHARED].usable = false;
		}
		(void) zklock_grant_settle(entry);
		zklock_entry_set_dirty(entry);
	}
	*zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) = 1;
	zklock_entry_unlock(lock);
}

/*
 * A set wants a contender that is made with its others.  A grant from before would
 * stand before the set's place.  So it goes, unless somebody holds it that has lost
 * level 1.
 */
static void
spend_for_set(ZkLockEntry *entry, uint64 set)
{
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		const ZkContender *grant =
			zklock_lock_queue_grant(&entry->queue, (ZkLockMode) mode);

		if (entry->grant[mode].usable && entry->held[mode] == 0 &&
			(grant == NULL || grant->set != set))
			entry->grant[mode].usable = false;
	}
}

void
zklock_proclock_need(ZkLockEntry *entry, ZkLockEvent *event)
{
	bool patient[ZKLOCK_NMODES] = {false, false};

	Assert(zklock_in_worker() && zklock_entry_is_locked(entry));
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->state != ZKLOCK_PROCLOCK_WANTED || proclock->failed)
			continue;
		if (!proclock->no_wait)
			patient[proclock->mode] = true;
		else if (!proclock->heard)
			event->asks[proclock->mode] = true;
		proclock->heard = true;
		event->set[proclock->mode] = proclock->set;
		if (proclock->set != 0)
			spend_for_set(entry, proclock->set);
	}
	event->type = ZKLOCK_EV_NEED;
	event->joins = entry->want[ZKLOCK_SHARED] > 0 && entry->held[ZKLOCK_SHARED] > 0 &&
		!entry->grant[ZKLOCK_SHARED].usable;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		bool usable = entry->grant[mode].usable;

		event->needed[mode] = entry->want[mode] > 0 || entry->held[mode] > 0 || usable;
		event->spent[mode] = entry->held[mode] == 0 && !usable;
		event->probe[mode] =
			entry->want[mode] > 0 && !patient[mode] && zklock_entry_hint(entry)->blocked;
	}
	if (zklock_election_stands(entry))
		event->needed[ZKLOCK_EXCLUSIVE] = true;
}
