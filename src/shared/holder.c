/*-------------------------------------------------------------------------
 *
 * holder.c
 *	  Whose this server's contenders are: which backends have them, or wait with them.
 *
 * A contender outlives the backend for which it was made: a grant is kept, handed on and
 * shared, and a place in the queue serves whoever waits here.  Whose it is at a moment
 * the proclocks say.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#include "holder.h"

bool
zklock_holder_concerned(const ZkLockEntry *entry, const ZkContender *contender)
{
	switch ((ZkContenderState) contender->state)
	{
		case ZKLOCK_QUEUED:
		case ZKLOCK_WAITING:
		case ZKLOCK_DELETING:
			return true;
		case ZKLOCK_GRANTED:
			return contender->demanded || entry->grant[contender->mode].demanded;
		default:
			return false;
	}
}

bool
zklock_holder_concerns(const ZkLockEntry *entry)
{
	if (entry->kind == ZKLOCK_KIND_ELECTION)
		return false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (zklock_holder_concerned(entry, &entry->queue.contender[i]))
			return true;
	}
	return false;
}

static void
put_session(ZkReportSession *session, const ZkProcLock *proclock)
{
	const ZkProc *proc = zklock_proc(proclock->proc_number);

	memset(session, 0, sizeof(*session));
	session->pid = proclock->pid;
	strlcpy(session->database, proc->database, sizeof(session->database));
	strlcpy(session->user, proc->user, sizeof(session->user));
	strlcpy(session->application, proclock->application, sizeof(session->application));
	session->query = -1;
}

/* Since when is the proclock in this state? */
static TimestampTz
state_since(const ZkProcLock *proclock)
{
	return proclock->state == ZKLOCK_PROCLOCK_HELD ? proclock->held_since
												   : proclock->wait_start;
}

/* The proclock that is in this state and mode for longest, or NULL. */
static const ZkProcLock *
oldest(const ZkLockEntry *entry, ZkLockMode mode, ZkProcLockState state)
{
	const ZkProcLock *found = NULL;

	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->mode == mode && proclock->state == state && !proclock->lost &&
			!proclock->failed &&
			(found == NULL || state_since(proclock) < state_since(found)))
			found = proclock;
	}
	return found;
}

void
zklock_holder_find(const ZkLockEntry *entry, const ZkContender *contender,
				   ZkReportItem *item)
{
	ZkLockMode mode = (ZkLockMode) contender->mode;
	bool granted = contender->state == ZKLOCK_GRANTED;
	const ZkProcLock *proclock = NULL;

	if (contender->state != ZKLOCK_DELETING)
		proclock =
			oldest(entry, mode, granted ? ZKLOCK_PROCLOCK_HELD : ZKLOCK_PROCLOCK_WANTED);
	item->contender = contender->uuid;
	item->nsessions = 0;
	item->age = -1;
	if (proclock != NULL)
	{
		item->state = granted ? ZKLOCK_REPORT_HELD : ZKLOCK_REPORT_WAITING;
		item->age = Max(GetCurrentTimestamp() - state_since(proclock), 0) / 1000;
		put_session(&item->session[item->nsessions++], proclock);
	}
	else if (granted && entry->grant[mode].usable)
	{
		item->state = ZKLOCK_REPORT_KEPT;
		if (entry->kept_since != 0)
			item->age = (zklock_clock() - entry->kept_since) / NS_PER_MS;
	}
	else
		item->state = ZKLOCK_REPORT_RELEASING;
}

bool
zklock_holder_lookup(ZkLockKind kind, const char *name, uint64 uuid, ZkReportItem *item)
{
	LWLock *lock;
	ZkLockEntry *entry = zklock_entry_find(kind, name, false, LW_SHARED, &lock);
	bool found = false;

	if (entry == NULL)
		return false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS && !found; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];

		found = contender->state != ZKLOCK_FREE && contender->uuid == uuid;
		if (found)
			zklock_holder_find(entry, contender, item);
	}
	zklock_entry_unlock(lock);
	return found;
}

/* ------------------------------------------------------------------------
 * What sessions do
 * ------------------------------------------------------------------------
 */

/* Whom the session waits for in a queue of the ensemble, if it does. */
static void
put_queue(ZkReportSession *session, const PGPROC *proc)
{
	int32 pending = zklock_proc((int) (proc - ProcGlobal->allProcs))->pending;
	ZkProcLock *proclock;
	int32 index;
	ZkLockEntry *entry;
	LWLock *lock;

	session->name[0] = '\0';
	if (pending < 0)
		return;
	/* unlocked, and so looked at again */
	proclock = zklock_proclock(pending);
	index = ((volatile ZkProcLock *) proclock)->entry;
	if (index < 0)
		return;
	entry = zklock_entry(index);
	lock = zklock_entry_lock(entry, LW_SHARED);
	if (lock == NULL)
		return;
	if (proclock->entry == index && proclock->pid == session->pid &&
		proclock->state == ZKLOCK_PROCLOCK_WANTED)
	{
		session->kind = (ZkLockKind) entry->kind;
		strlcpy(session->name, entry->name, sizeof(session->name));
	}
	zklock_entry_unlock(lock);
}

static void
put_wait(ZkReportSession *session)
{
	const PGPROC *proc = BackendPidGetProc(session->pid);
	uint32 info;
	const char *type;

	if (proc == NULL)
		return;
	info = ((volatile PGPROC *) unconstify(PGPROC *, proc))->wait_event_info;
	type = pgstat_get_wait_event_type(info);
	if (type != NULL)
		snprintf(session->waits, sizeof(session->waits), "%s: %s", type,
				 pgstat_get_wait_event(info));
	put_queue(session, proc);
}

void
zklock_holder_complete(ZkReportItem *items, int n)
{
	TimestampTz now = GetCurrentTimestamp();
	bool any = false;
	int nbackends;

	Assert(zklock_unlocked());
	for (int i = 0; i < n; i++)
	{
		for (int j = 0; j < items[i].nsessions; j++)
		{
			put_wait(&items[i].session[j]);
			any = true;
		}
	}
	if (!any)
		return;

	pgstat_clear_backend_activity_snapshot();
	nbackends = pgstat_fetch_stat_numbackends();
	for (int k = 1; k <= nbackends; k++)
	{
		const PgBackendStatus *status = zklock_backend_status(k);

		for (int i = 0; i < n; i++)
		{
			for (int j = 0; j < items[i].nsessions; j++)
			{
				ZkReportSession *session = &items[i].session[j];

				if (session->pid == status->st_procpid &&
					status->st_activity_start_timestamp != 0)
					session->query =
						Max(now - status->st_activity_start_timestamp, 0) / 1000;
			}
		}
	}
}
