/*-------------------------------------------------------------------------
 *
 * waiting.c
 *	  Adds the purpose of a wait for a lock to the context of all errors and messages
 *	  meanwhile.
 *
 * A wait can end by an error that PostgreSQL raises: a cancel, a timeout, or at level 1
 * a deadlock, of which PostgreSQL knows only four numbers.  The context names the lock.
 * It also says what this server already knows about the lock's holder: its own
 * proclocks, and the owner of the contender for which the wait is.
 *
 * It sends no question: a session that has waited for long has no time for that.
 * zk_contenders tells about sessions of other servers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "names.h"
#include "semaphore_shared.h"
#include "waiting.h"

/* The sessions for which a backend waits, as far as its server knows. */
typedef struct Blocker
{
	int holder;				  /* pid of a session of this server, or 0 */
	int has_permit;			  /* ... that has one of the permits */
	int waiter;				  /* ... that waits for ZooKeeper */
	bool known;				  /* a contender, of ... */
	bool last;				  /* and no other is before us */
	char server[NAMEDATALEN]; /* ... or "": another program */
} Blocker;

/* Find a holder on this server.  The entry is locked. */
static void
find_local(const ZkLockEntry *entry, const ZkProcLock *mine, Blocker *blocker)
{
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->pid == mine->pid ||
			!zklock_modes_conflict((ZkLockMode) mine->mode, (ZkLockMode) proclock->mode))
			continue;
		if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost)
			blocker->holder = proclock->pid;
		else if (proclock->state == ZKLOCK_PROCLOCK_WANTED)
			blocker->waiter = proclock->pid;
	}
}

static void
find_remote(const ZkLockEntry *entry, const ZkProcLock *mine, Blocker *blocker)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];

		if (contender->state != ZKLOCK_WAITING || contender->mode != mine->mode ||
			contender->led || contender->blocker != entry->blocker)
			continue;
		blocker->known = true;
		blocker->last = contender->blocker_last;
		strlcpy(blocker->server, entry->blocker_server, sizeof(blocker->server));
	}
}

/* Each session has an entry of its own for a permit.  The entry is locked. */
static void
find_permit(const ZkLockEntry *entry, Blocker *blocker)
{
	for (const ZkLockEntry *e = zklock_entry_first(entry); e != NULL;
		 e = zklock_entry_namesake(e))
	{
		zklock_foreach_proclock (proclock, e)
		{
			if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost)
				blocker->has_permit = proclock->pid;
		}
	}
}

/* Another session of this server may wait for this permit, too.  The entry is locked. */
static void
find_leader(const ZkLockEntry *entry, Blocker *blocker)
{
	const ZkLockEntry *first = zklock_semaphore_place_first(entry);

	if (!zklock_semaphore_siblings_is_led(&entry->queue) || first == entry)
		return;
	zklock_foreach_proclock (proclock, first)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_WANTED)
			blocker->waiter = proclock->pid;
	}
}

/*
 * Find who blocks the proclock.  Error reporting calls this, perhaps with a lock held.
 */
static void
find_blocker(const ZkProcLock *proclock, Blocker *blocker)
{
	ZkLockEntry *entry = zklock_entry(proclock->entry); /* our proclock pins it */
	LWLock *lock;

	memset(blocker, 0, sizeof(*blocker));
	if (!zklock_unlocked())
		return;
	lock = zklock_entry_lock(entry, LW_SHARED);
	find_local(entry, proclock, blocker);
	if (proclock->state == ZKLOCK_PROCLOCK_WANTED)
	{
		find_remote(entry, proclock, blocker);
		find_leader(entry, blocker);
		if (zklock_kinds[entry->kind].by_session)
			find_permit(entry, blocker);
	}
	zklock_entry_unlock(lock);
}

/* A part of a sentence that says who is in the way; "": nobody is known. */
static const char *
describe_blocker(const Blocker *blocker)
{
	const char *by = "another program";

	if (blocker->holder != 0)
		return psprintf(", which process %d holds", blocker->holder);
	if (blocker->waiter != 0)
		return psprintf(" behind process %d, which waits for ZooKeeper", blocker->waiter);
	if (blocker->has_permit != 0)
		return psprintf(", of which process %d has a permit", blocker->has_permit);
	if (!blocker->known)
		return "";
	if (blocker->server[0] != '\0')
		by = psprintf("server \"%s\"",
					  zklock_client_text(zklock_plain_text(blocker->server), false));
	return psprintf(blocker->last ? ", which %s has" : " behind %s", by);
}

static void
add_context(ZkLockKind kind, ZkLockMode mode, const char *name, const Blocker *blocker)
{
	errcontext("while waiting for %s%s \"%s\"%s",
			   !zklock_kinds[kind].modes	  ? ""
				   : mode == ZKLOCK_EXCLUSIVE ? "exclusive "
											  : "shared ",
			   zklock_kinds[kind].name, zklock_plain_name(name), describe_blocker(blocker));
}

static void
on_error(void *arg)
{
	const ZkProcLock *proclock = zklock_proclock(*(int32 *) arg);
	const ZkLockEntry *entry = zklock_entry(proclock->entry);
	Blocker blocker;

	find_blocker(proclock, &blocker);
	add_context((ZkLockKind) entry->kind, (ZkLockMode) proclock->mode, entry->name,
				&blocker);
}

void
zklock_waiting_begin(ZkWaiting *waiting, int32 proclock)
{
	waiting->proclock = proclock;
	waiting->callback.callback = on_error;
	waiting->callback.arg = &waiting->proclock;
	waiting->callback.previous = error_context_stack;
	error_context_stack = &waiting->callback;
}

void
zklock_waiting_end(const ZkWaiting *waiting)
{
	Assert(error_context_stack == &waiting->callback);
	error_context_stack = waiting->callback.previous;
}

/* ------------------------------------------------------------------------
 * Timeouts of ours
 * ------------------------------------------------------------------------
 */

static Blocker noted; /* who was in the way of the latest wait in vain */
static ZkLockMode noted_mode;

void
zklock_waiting_note(int32 index)
{
	const ZkProcLock *proclock = zklock_proclock(index);

	noted_mode = (ZkLockMode) proclock->mode;
	find_blocker(proclock, &noted);
}

void
zklock_waiting_raise_over(ZkLockKind kind, const char *name, int64 timeout)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain %s \"%s\" within %lld ms", zklock_kinds[kind].held,
					zklock_display_name(name), (long long) timeout),
			 timeout > 0 ? (add_context(kind, noted_mode, name, &noted), 0) : 0));
}
