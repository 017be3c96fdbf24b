/*-------------------------------------------------------------------------
 *
 * holder.c
 *	  Finds the backends that have this server's contenders, or wait with them.
 *
 * A contender outlives the backend for which it was made: a grant is kept, handed on
 * and shared, and a place in the queue serves any waiter here.  The proclocks say whose
 * it is at a moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#include "blockers.h"
#include "holder.h"
#include "queue_shared.h"
#include "semaphore_shared.h"

bool
zklock_holder_blocks(const ZkLockEntry *entry, const ZkContender *grant)
{
	return grant->demanded ||
		(zklock_kinds[entry->kind].by_session && zklock_semaphore_place_waits_beside(entry));
}

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
			return zklock_holder_blocks(entry, contender);
		default:
			return false;
	}
}

bool
zklock_holder_concerns(const ZkLockEntry *entry)
{
	if (zklock_kinds[entry->kind].by_server)
		return false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (zklock_holder_concerned(entry, &entry->queue.contender[i]))
			return true;
	}
	return false;
}

static void
put_session(ZkReportSession *session, int pid, const ZkProc *proc, const char *application)
{
	memset(session, 0, sizeof(*session));
	session->pid = pid;
	if (proc != NULL && proc->pid == pid)
	{
		strlcpy(session->database, proc->database, sizeof(session->database));
		strlcpy(session->user, proc->user, sizeof(session->user));
	}
	strlcpy(session->application, application, sizeof(session->application));
	session->query = -1;
}

/* Returns for how many ms the proclock has been in its state. */
static int64
state_age(const ZkProcLock *proclock)
{
	if (proclock->state == ZKLOCK_PROCLOCK_HELD)
		return (zklock_clock() - proclock->held_since) / NS_PER_MS;
	return Max(GetCurrentTimestamp() - proclock->wait_start, 0) / 1000;
}

/* Finds the proclock that has been in this state and mode for longest, or NULL. */
static const ZkProcLock *
oldest(const ZkLockEntry *entry, ZkLockMode mode, ZkProcLockState state)
{
	const ZkProcLock *found = NULL;

	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->mode == mode && proclock->state == state && !proclock->lost &&
			!proclock->failed &&
			(found == NULL ||
			 zklock_proclock_since(proclock, state) < zklock_proclock_since(found, state)))
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
	/* it is a set's, which waits for its others */
	if (proclock == NULL && granted && contender->set != 0)
	{
		proclock = oldest(entry, mode, ZKLOCK_PROCLOCK_WANTED);
		if (proclock != NULL && proclock->set != contender->set)
			proclock = NULL;
	}
	item->contender = contender->uuid;
	item->mode = mode;
	item->nsessions = 0;
	item->age = -1;
	if (proclock != NULL)
	{
		item->state = granted ? ZKLOCK_REPORT_HELD : ZKLOCK_REPORT_WAITING;
		item->age = state_age(proclock);
		if (proclock->pid != 0)
			put_session(&item->session[item->nsessions++], proclock->pid,
						zklock_proc(proclock->proc_number), proclock->application);
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
	/* of permits, in one of the places */
	for (; entry != NULL && !found; entry = zklock_entry_namesake(entry))
	{
		for (int i = 0; i < ZKLOCK_NCONTENDERS && !found; i++)
		{
			const ZkContender *contender = &entry->queue.contender[i];

			found = contender->state != ZKLOCK_FREE && contender->uuid == uuid;
			if (found)
				zklock_holder_find(entry, contender, item);
		}
	}
	zklock_entry_unlock(lock);
	return found;
}

/* ------------------------------------------------------------------------
 * The activity of sessions
 * ------------------------------------------------------------------------
 */

static int
number_of(const PGPROC *proc)
{
	return (int) (proc - ProcGlobal->allProcs);
}

bool
zklock_holder_waiter(int proc_number, ZkLocalWait *wait)
{
	int32 pending = ((volatile ZkProc *) zklock_proc(proc_number))->pending;
	const ZkProcLock *proclock;
	int32 index;
	ZkLockEntry *entry;
	LWLock *lock;
	bool waits;

	if (pending < 0)
		return false;
	/* unlocked, and so looked at again */
	proclock = zklock_proclock(pending);
	index = ((const volatile ZkProcLock *) proclock)->entry;
	if (index < 0)
		return false;
	entry = zklock_entry(index);
	lock = zklock_entry_lock(entry, LW_SHARED);
	if (lock == NULL)
		return false;
	waits = proclock->entry == index && proclock->proc_number == proc_number &&
		proclock->state != ZKLOCK_PROCLOCK_HELD;
	if (waits)
	{
		wait->pid = proclock->pid;
		wait->kind = (ZkLockKind) entry->kind;
		strlcpy(wait->name, entry->name, sizeof(wait->name));
		wait->mode = (ZkLockMode) proclock->mode;
		wait->since = proclock->wait_start;
	}
	zklock_entry_unlock(lock);
	return waits;
}

void
zklock_holder_report_wait(int proc_number, const ZkLocalWait *wait, ZkReportItem *item)
{
	item->contender = 0;
	item->mode = wait->mode;
	item->state = ZKLOCK_REPORT_WAITING;
	item->age = Max(GetCurrentTimestamp() - wait->since, 0) / 1000;
	item->nsessions = 1;
	put_session(&item->session[0], wait->pid, zklock_proc(proc_number), "");
}

void
zklock_holder_set_wait(ZkLockKind kind, const char *name)
{
	ZkProc *proc = zklock_proc(ZKLOCK_MY_PROC_NUMBER);

	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	if (name == NULL)
		proc->wait_since = 0;
	else
	{
		if (proc->wait_since == 0)
			proc->wait_since = GetCurrentTimestamp();
		proc->wait_kind = kind;
		strlcpy(proc->wait_name, name, sizeof(proc->wait_name));
	}
	LWLockRelease(zklock_queue_shared->box.lock);
}

bool
zklock_holder_other_waiter(int proc_number, ZkLocalWait *wait)
{
	const ZkProc *proc = zklock_proc(proc_number);
	bool waits;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	waits = proc->wait_since != 0;
	if (waits)
	{
		wait->pid = proc->pid;
		wait->kind = proc->wait_kind;
		strlcpy(wait->name, proc->wait_name, sizeof(wait->name));
		wait->mode = ZKLOCK_EXCLUSIVE;
		wait->since = proc->wait_since;
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	return waits;
}

/* Says what the session waits for.  True: for a lock of PostgreSQL's. */
static bool
put_wait(ZkReportSession *session, const PGPROC *proc)
{
	uint32 info = ((volatile PGPROC *) unconstify(PGPROC *, proc))->wait_event_info;
	const char *type = pgstat_get_wait_event_type(info);
	int number = number_of(proc);
	ZkLocalWait wait;

	if ((zklock_holder_waiter(number, &wait) ||
		 (zklock_holder_other_waiter(number, &wait) && wait.kind == ZKLOCK_KIND_JOB)) &&
		wait.pid == session->pid)
	{
		session->kind = wait.kind;
		strlcpy(session->name, wait.name, sizeof(session->name));
	}
	if (type != NULL)
		snprintf(session->waits, sizeof(session->waits), "%s: %s", type,
				 pgstat_get_wait_event(info));
	return (info & 0xFF000000) == PG_WAIT_LOCK;
}

/* Finds a session that blocks one that waits to put, or else for a lock of
 * PostgreSQL's: its pid, 0 if it is a prepared transaction, -1 if there is none any
 * more. */
static int
find_blocker(int pid, bool puts)
{
	ZkBlocker *blockers;
	int nputs;
	int writer;

	if (puts)
	{
		writer = zklock_queue_writer(pid, &nputs);
		return writer != 0 ? writer : -1;
	}
	return zklock_blockers(pid, &blockers) > 0 ? blockers[0].pid : -1;
}

static bool
has_session(const ZkReportItem *item, int pid)
{
	for (int i = 0; i < item->nsessions; i++)
	{
		if (item->session[i].pid == pid)
			return true;
	}
	return false;
}

/* Says what the item's session waits for, which session of this server blocks it, and
 * which blocks that one. */
static void
follow(ZkReportItem *item)
{
	for (int i = 0; i < item->nsessions; i++)
	{
		ZkReportSession *session = &item->session[i];
		const PGPROC *proc = BackendPidGetProc(session->pid);
		const PGPROC *other;
		ZkLocalWait wait;
		bool puts;
		int blocker;

		if (proc == NULL)
			return;
		puts = zklock_holder_other_waiter(number_of(proc), &wait) &&
			wait.kind == ZKLOCK_KIND_QUEUE && wait.pid == session->pid;
		if (!put_wait(session, proc) && !puts)
			return;
		blocker = find_blocker(session->pid, puts);
		if (blocker == 0)
			strlcat(session->waits, " (of a prepared transaction)", sizeof(session->waits));
		if (blocker > 0 && item->nsessions == ZKLOCK_REPORT_SESSIONS)
			strlcat(session->waits, " ...", sizeof(session->waits)); /* cut off */
		if (blocker <= 0 || item->nsessions == ZKLOCK_REPORT_SESSIONS ||
			has_session(item, blocker))
			return;
		other = BackendPidGetProc(blocker);
		put_session(&item->session[item->nsessions++], blocker,
					other != NULL ? zklock_proc(number_of(other)) : NULL, "");
	}
}

/* Says since when its statement runs, and the session's application name, by
 * PostgreSQL's statistics. */
static void
put_activity(ZkReportSession *session, const PgBackendStatus *status, TimestampTz now)
{
	if (status->st_activity_start_timestamp != 0)
		session->query = Max(now - status->st_activity_start_timestamp, 0) / 1000;
	if (session->application[0] == '\0' && status->st_appname != NULL)
		strlcpy(session->application, status->st_appname, sizeof(session->application));
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
		follow(&items[i]);
		any |= items[i].nsessions > 0;
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
				if (items[i].session[j].pid == status->st_procpid)
					put_activity(&items[i].session[j], status, now);
			}
		}
	}
}

void
zklock_holder_session(int pid, ZkReportItem *item)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	memset(item, 0, offsetof(ZkReportItem, session));
	item->state = ZKLOCK_REPORT_WAITING;
	item->age = -1;
	if (proc == NULL)
		return;
	put_session(&item->session[item->nsessions++], pid, zklock_proc(number_of(proc)), "");
	zklock_holder_complete(item, 1);
}
