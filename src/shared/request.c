/*-------------------------------------------------------------------------
 *
 * request.c
 *	  Requests: what backends want of an entry of the lock table, and have.
 *
 * Demand is level-triggered.  A backend changes the counters want and held
 * under the partition lock and puts the entry on the list of dirty ones; the
 * worker reads the counters whenever it gets there.  So a wish that comes and
 * goes, or comes twice, costs nothing and cannot be lost; and a wish that is
 * cancelled in the moment it is granted is seen as a grant that nobody wants,
 * by whichever side holds the lock second.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "candidacy.h"
#include "grant.h"
#include "request.h"
#include "stat.h"

static void
free_request(int32 index)
{
	SpinLockAcquire(&zklock_shared->mutex);
	zklock_request(index)->next = zklock_shared->free_request;
	zklock_shared->free_request = index;
	zklock_shared->requests_used--;
	SpinLockRelease(&zklock_shared->mutex);
}

/* Does another backend of this server stand in the way of one that comes now? */
static bool
stands_behind(const ZkLockEntry *entry, ZkLockMode mode)
{
	zklock_foreach_request (request, entry)
	{
		if (request->pid != MyProcPid &&
			zklock_modes_conflict(mode, (ZkLockMode) request->mode))
			return true;
	}
	return false;
}

int32
zklock_request_make(ZkLockKind kind, const char *name, ZkLockMode mode, ZkLockScope scope,
					bool no_wait)
{
	LWLock *lock;
	ZkLockEntry *entry;
	ZkLockRequest *request;
	int32 index;

	SpinLockAcquire(&zklock_shared->mutex);
	index = zklock_shared->free_request;
	if (index >= 0)
	{
		zklock_shared->free_request = zklock_request(index)->next;
		zklock_shared->requests_used++;
	}
	SpinLockRelease(&zklock_shared->mutex);
	if (index < 0)
		return ZKLOCK_NO_REQUEST;
	request = zklock_request(index);
	request->database = MyDatabaseId;
	request->role = MyProc->roleId;
	strlcpy(request->application, application_name, sizeof(request->application));

	entry = zklock_entry_find(kind, name, true, LW_EXCLUSIVE, &lock);
	if (entry == NULL)
	{
		free_request(index);
		return ZKLOCK_NO_ENTRY;
	}
	request->entry = zklock_entry_index(entry);
	request->pid = MyProcPid;
	request->proc_number = ZKLOCK_MY_PROC_NUMBER;
	request->mode = (uint8) mode;
	request->state = ZKLOCK_REQUEST_LOCAL;
	request->scope = (uint8) scope;
	request->no_wait = no_wait;
	request->lost = request->failed = request->blocked = false;
	request->failure_rc = 0;
	request->count[ZKLOCK_TRANSACTION] = request->count[ZKLOCK_SESSION] = 0;
	request->wait_start = GetCurrentTimestamp();
	request->waited = stands_behind(entry, mode);
	request->end = ZKLOCK_END_CANCELED;
	request->again = request->again_counted = 0;
	request->next = entry->requests;
	request->prev = -1;
	if (entry->requests >= 0)
		zklock_request(entry->requests)->prev = index;
	entry->requests = index;
	zklock_grant_update_idle(entry);
	if (entry->leaving)
	{
		entry->leaving = false; /* wanted after all */
		pg_atomic_sub_fetch_u32(&zklock_shared->nleaving, 1);
	}
	zklock_entry_unlock(lock);
	return index;
}

/* Does another backend of this server hold what conflicts? */
static bool
held_by_other(const ZkLockEntry *entry, ZkLockMode mode)
{
	if (entry->held[ZKLOCK_EXCLUSIVE] == 0 &&
		(mode == ZKLOCK_SHARED || entry->held[ZKLOCK_SHARED] == 0))
		return false;
	zklock_foreach_request (request, entry)
	{
		if (request->state == ZKLOCK_REQUEST_HELD && !request->lost &&
			request->pid != MyProcPid &&
			zklock_modes_conflict(mode, (ZkLockMode) request->mode))
			return true;
	}
	return false;
}

bool
zklock_request_conflicts(int32 index)
{
	return held_by_other(zklock_entry(zklock_request(index)->entry),
						 zklock_request(index)->mode);
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

bool
zklock_request_take(int32 index, bool wish)
{
	ZkLockRequest *request = zklock_request(index);
	ZkLockEntry *entry = zklock_entry(request->entry);
	ZkLockGrant *grant = &entry->grant[request->mode];

	if (grant->usable && !request->failed && !zklock_shared->draining &&
		!held_by_other(entry, (ZkLockMode) request->mode) && zklock_lease_valid())
	{
		zklock_stat_acquired(entry, request);
		if (request->state == ZKLOCK_REQUEST_WANTED)
			entry->want[request->mode]--;
		request->state = ZKLOCK_REQUEST_HELD;
		entry->held[request->mode]++;
		grant->holds++;
		if (grant->demanded && --grant->handoffs <= 0)
			grant->usable = false;
		/* a demanded grant in the other mode goes before it is waited for */
		if (zklock_grant_settle(entry))
			zklock_entry_set_dirty(entry);
		return true;
	}
	if (wish && request->state == ZKLOCK_REQUEST_LOCAL)
	{
		request->state = ZKLOCK_REQUEST_WANTED;
		request->waited |= queued(entry, request->mode);
		request->heard = request->blocked = false;
		entry->want[request->mode]++;
		entry->last_pid = MyProcPid;
		(void) zklock_grant_settle(entry);
		zklock_entry_set_dirty(entry);
	}
	return false;
}

void
zklock_request_end(int32 index)
{
	ZkLockRequest *request = zklock_request(index);
	ZkLockEntry *entry = zklock_entry(request->entry);
	ZkLockMode mode = (ZkLockMode) request->mode;
	bool changed = false;
	LWLock *lock;

	/* our request pins the entry */
	lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (request->state == ZKLOCK_REQUEST_WANTED && !request->failed)
	{
		entry->want[mode]--;
		changed = true;
	}
	else if (request->state == ZKLOCK_REQUEST_HELD && !request->lost)
	{
		entry->held[mode]--;
		/* while the grant is kept there is nothing for the worker to do */
		changed = entry->held[mode] == 0 && !entry->grant[mode].usable;
	}
	Assert(entry->want[mode] >= 0 && entry->held[mode] >= 0);
	zklock_stat_ended(entry, request);

	if (request->prev >= 0)
		zklock_request(request->prev)->next = request->next;
	else
		entry->requests = request->next;
	if (request->next >= 0)
		zklock_request(request->next)->prev = request->prev;
	request->entry = -1;

	changed |= zklock_grant_settle(entry);
	if (changed)
		zklock_entry_set_dirty(entry);
	else if (entry->requests < 0)
		zklock_entry_release(entry);
	/* somebody who is kept from the grant by us alone (held_by_other) */
	if (entry->want[ZKLOCK_SHARED] > 0 || entry->want[ZKLOCK_EXCLUSIVE] > 0)
		zklock_entry_broadcast(entry);
	zklock_entry_unlock(lock);
	free_request(index);
}

void
zklock_request_abandon(int32 index)
{
	ZkLockRequest *request = zklock_request(index);
	ZkLockEntry *entry = zklock_entry(request->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our request pins it */

	/*
	 * A reader's is shared in any case, and others may hold it and join it.  Beside a
	 * writer's nobody else holds one, and its readers would be given the writer's token
	 * (zklock_grant_apply).
	 */
	if (request->state == ZKLOCK_REQUEST_HELD && !request->lost &&
		request->mode == ZKLOCK_EXCLUSIVE && entry->kind == ZKLOCK_KIND_LOCK)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
			entry->grant[mode].usable = false;
	}
	zklock_entry_unlock(lock);
}

void
zklock_request_demand(ZkLockEntry *entry, ZkLockEvent *event)
{
	bool patient[ZKLOCK_NMODES] = {false, false};

	zklock_foreach_request (request, entry)
	{
		if (request->state != ZKLOCK_REQUEST_WANTED || request->failed)
			continue;
		if (!request->no_wait)
			patient[request->mode] = true;
		else if (!request->heard)
			event->asks[request->mode] = true;
		request->heard = true;
	}
	event->type = ZKLOCK_EV_DEMAND;
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
