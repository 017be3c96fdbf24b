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
 * lock_timeout at level 2 is ours to raise.  There the ensemble is asked, too, since who
 * has waited in vain wants to know for whom.  It costs little: of all who wait for a name
 * on a server one writer, or one group of readers, is at level 2.  The error is put off
 * for that by no more time than the wait has taken, and a second.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "contenders.h"
#include "json.h"
#include "names.h"
#include "semaphore_shared.h"
#include "waiting.h"

#define LONGEST_QUESTION_MS 1000

/* For whom a backend waits, as far as its server knows. */
typedef struct Blocker
{
	int holder;				  /* pid of a session of this server, or 0 */
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
	if (!blocker->known)
		return "";
	if (blocker->server[0] != '\0')
		by = psprintf("server \"%s\"",
					  zklock_client_text(zklock_plain_text(blocker->server), false));
	return psprintf(blocker->last ? ", which %s has" : " behind %s", by);
}

static void
on_error(void *arg)
{
	const ZkProcLock *proclock = zklock_proclock(*(int32 *) arg);
	const ZkLockEntry *entry = zklock_entry(proclock->entry);
	Blocker blocker;

	find_blocker(proclock, &blocker);
	errcontext("while waiting for %s%s \"%s\"%s",
			   !zklock_kinds[entry->kind].modes			? ""
				   : proclock->mode == ZKLOCK_EXCLUSIVE ? "exclusive "
														: "shared ",
			   zklock_kinds[entry->kind].name, zklock_plain_name(entry->name),
			   describe_blocker(&blocker));
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

/* A sentence: whose contender is it? */
static const char *
describe_owner(const ZkNode *node, const ZkOwner *owner)
{
	const ZkReportItem *item = owner != NULL ? &owner->item : NULL;
	char *server = palloc((Size) node->datalen + 1);
	const char *who;

	if (!zklock_json_field(node->data, (size_t) node->datalen, "server", server))
		return psprintf("A program that is not zklock has it, with token %lld.",
						(long long) node->token);
	server = zklock_display_bytes(server, (int) strlen(server), false);
	who = psprintf("server \"%s\"", zklock_client_text(server, true));
	if (item != NULL && item->state == ZKLOCK_REPORT_HELD && item->nsessions > 0)
		return psprintf("Process %d of %s held it as of %s.", item->session[0].pid, who,
						timestamptz_to_str(owner->as_of));
	if (item != NULL && item->state != ZKLOCK_REPORT_WAITING)
		return psprintf("It was in state \"%s\" on %s as of %s.",
						zklock_report_state_name(item->state), who,
						timestamptz_to_str(owner->as_of));
	return psprintf("It is granted to %s, with token %lld.", who, (long long) node->token);
}

/* A sentence: who has the lock?  NULL if that is not found out in time, for somebody who
 * has waited for so many ms. */
static const char *
describe_holder(ZkLockKind kind, const char *name, int64 waited_ms)
{
	int64 until = zklock_clock() + Min(waited_ms, LONGEST_QUESTION_MS) * NS_PER_MS;
	ZkContenders queue;
	ZkMembers members;

	/* ours may be before his, two at most */
	zklock_contenders_ask(kind, name, ZKLOCK_NMODES + 1, until, &queue);
	zklock_members_ask(until, &members);
	for (int i = 0; i < queue.n && queue.holds[i]; i++)
	{
		ZkOwner owner;
		bool known = zklock_members_owner(&members, kind, name, &queue, i, &owner);

		if (queue.nodes[i].ephemeral_owner != members.session ||
			(known && owner.item.nsessions > 0 && owner.item.session[0].pid != MyProcPid))
			return describe_owner(&queue.nodes[i], known ? &owner : NULL);
	}
	return NULL;
}

void
zklock_waiting_raise_timeout(int32 index, int64 lock_timeout)
{
	const ZkProcLock *proclock = zklock_proclock(index);
	const ZkLockEntry *entry = zklock_entry(proclock->entry);
	const char *holder;

	/* the sleep on the entry is over; the question has one of its own */
	ConditionVariableCancelSleep();
	holder = describe_holder((ZkLockKind) entry->kind, entry->name, lock_timeout);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg(ZKLOCK_LOCK_TIMEOUT_MESSAGE),
			 holder != NULL ? errdetail("%s", holder) : 0));
}

void
zklock_waiting_raise_lock_timeout(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg(ZKLOCK_LOCK_TIMEOUT_MESSAGE)));
}

void
zklock_waiting_raise_over(ZkLockKind kind, const char *name, int64 timeout)
{
	const char *holder = timeout > 0 ? describe_holder(kind, name, timeout) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain %s \"%s\" within %lld ms", zklock_kinds[kind].held,
					zklock_display_name(name), (long long) timeout),
			 holder != NULL ? errdetail("%s", holder) : 0));
}
