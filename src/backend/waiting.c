/*-------------------------------------------------------------------------
 *
 * waiting.c
 *	  What a wait for a lock is for: said in the context of all that is reported meanwhile.
 *
 * A wait ends by errors that PostgreSQL raises: a cancel, a timeout, at level 1 a
 * deadlock, of which it knows no more than four numbers.  The context names the lock, and
 * says what this server knows anyway of who has it: its own proclocks, and whose the
 * contender is for which it waits.
 *
 * It asks nobody: who has waited in vain for long has no time for that, and of others'
 * sessions zk_contenders tells.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "names.h"
#include "semaphore_shared.h"
#include "waiting.h"

/* For whom a backend waits, as far as its server knows. */
typedef struct Blocker
{
	int holder;				  /* pid of a session of this server, or 0 */
	int has_permit;			  /* ... that has one of the permits */
	int waiter;				  /* ... that waits for ZooKeeper */
	bool known;				  /* a contender, of ... */
	bool last;				  /* and no other is before us */
	char server[NAMEDATALEN]; /* ... or "": another program */
} Blocker;

/* With the entry locked. */
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

/* Of permits each session has an entry of its own.  With the entry locked. */
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

/* Of permits another session here may wait for this one, too.  With the entry locked. */
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

/* Called wherever something is reported: perhaps with a lock. */
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

/* A part of a sentence: who is in the way?  "": nobody is known. */
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
