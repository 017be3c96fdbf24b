/*-------------------------------------------------------------------------
 *
 * election_backend.c
 *	  Elections: the backend's part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "callbacks.h"
#include "check.h"
#include "election_backend.h"
#include "hold.h"
#include "limit.h"
#include "loss.h"
#include "names.h"
#include "proclock.h"
#include "room.h"
#include "settings.h"
#include "waiter.h"

/* A backstop for a lost wake-up */
#define LONGEST_SLEEP 1000

static ZkWaitEvent wait_event_election = {.name = "ZkLockElection"};

/* The time since which nobody is known to lead. */
static int64
undecided_since(ZkLockEntry *entry)
{
	int64 since = ((volatile const ZkLockEntry *) entry)->election.undecided;

	/* we would, but for the lease */
	if (pg_atomic_read_u64(&entry->election.leader) != 0)
		since = Max(since, (int64) pg_atomic_read_u64(&zklock_shared->lease_end));
	return since;
}

typedef struct Asking
{
	const char *name;
	Oid role;
	ZkElectionRef *ref;
	int64 token;
} Asking;

static ZkRoom
try_to_enter(void *arg)
{
	const Asking *a = arg;

	return zklock_election_candidacy_enter(a->name, MyDatabaseId, a->role, a->ref)
		? ZKLOCK_ROOM_FOUND
		: ZKLOCK_ROOM_AWAITED;
}

/* If the entry is freed and used for another name, this waits in vain, but not for
 * long. */
static bool
look_for_verdict(ZkWaiter *waiter, int64 now)
{
	Asking *a = waiter->arg;
	volatile ZkLockEntry *entry = a->ref->entry;

	return zklock_election_peek(a->ref, &a->token) || !entry->election.candidate ||
		entry->generation != a->ref->generation;
}

static void
on_verdict_error(void *arg)
{
	errcontext("while waiting to know who leads election \"%s\"",
			   zklock_plain_name(((const Asking *) arg)->name));
}

int64
zklock_election_lead(const char *name, int64 wait_ms, bool anew, ZkElectionRef *ref)
{
	Asking a = {.name = name, .role = GetSessionUserId(), .ref = ref};
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_for_verdict,
		.context = on_verdict_error,
		.arg = &a,
		.limits = &limits,
		.event = &wait_event_election,
		.longest = LONGEST_SLEEP,
	};

	/* two sessions that ask at one moment may both be let in */
	if (zklock_max_locks_per_backend > 0 && !zklock_election_candidacy_stands(name))
		zklock_limit_check(ZKLOCK_LIMIT_ELECTIONS,
						   zklock_election_candidacy_count(a.role), 1);
	zklock_wait_begin(&limits, ZKLOCK_WAIT_FOREVER);
	zklock_room_wait(ZKLOCK_KIND_ELECTION, name, &limits, wait_ms, try_to_enter, &a);
	zklock_election_asked(ref);
	if (zklock_election_peek(ref, &a.token))
		return a.token;

	if (wait_ms != ZKLOCK_WAIT_FOREVER)
		limits.until =
			(anew ? limits.start : undecided_since(ref->entry)) + wait_ms * NS_PER_MS;
	waiter.cv = &ref->entry->cv;
	(void) zklock_wait_for(&waiter);
	return a.token;
}

const char *
zklock_election_doubt(const char *name)
{
	LWLock *lock;
	ZkLockEntry *entry =
		zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	bool doubt;
	bool failed;
	const char *trouble;
	const char *hint;

	if (entry == NULL)
		return NULL; /* somebody has resigned meanwhile */
	doubt = entry->election.candidate && zklock_shared->eligible != ZKLOCK_ELIGIBLE_NO &&
		(!entry->election.verdict || pg_atomic_read_u64(&entry->election.leader) != 0);
	failed = entry->election.failed;
	zklock_entry_unlock(lock);
	if (!doubt)
		return NULL;
	if ((trouble = zklock_check_trouble(&hint)) != NULL)
		return trouble;
	return failed
		? "ZooKeeper refused the candidacy of this server; the server log says why."
		: "ZooKeeper has not said so in time.";
}

bool
zklock_election_guard(const char *name, int64 *token)
{
	ZkHeldLock *held = zklock_held_find(ZKLOCK_KIND_ELECTION, name);
	int32 index;
	ZkProcLock *proclock;
	ZkLockEntry *entry;
	LWLock *lock;
	bool leader;

	Assert(IsTransactionState());
	if (held != NULL)
	{
		/* it may have been given up since, but not to anybody else */
		if (zklock_loss_settle(held))
			zklock_loss_raise(held);
		zklock_callbacks_begin();
		(void) zklock_hold_reserve(ZKLOCK_KIND_ELECTION, name);
		zklock_hold_add(held, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_TRANSACTION);
		*token = held->token[ZKLOCK_EXCLUSIVE];
		return true;
	}

	zklock_callbacks_begin();
	held = zklock_hold_reserve(ZKLOCK_KIND_ELECTION, name);
	index = zklock_proclock_make(ZKLOCK_KIND_ELECTION, name, 0, ZKLOCK_EXCLUSIVE,
								 ZKLOCK_SCOPE_TRANSACTION, false);
	if (index < 0)
	{
		zklock_held_forget(held);
		zklock_raise_table_full(false);
	}
	proclock = zklock_proclock(index);
	entry = zklock_entry(proclock->entry);

	lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */
	*token = (int64) pg_atomic_read_u64(&entry->election.leader);
	leader = *token != 0 && zklock_lease_valid();
	if (leader)
	{
		proclock->state = ZKLOCK_PROCLOCK_HELD;
		entry->held[ZKLOCK_EXCLUSIVE]++;
	}
	zklock_entry_unlock(lock);

	if (!leader)
	{
		zklock_proclock_end(index);
		zklock_held_forget(held);
		return false;
	}
	held->proclock[ZKLOCK_EXCLUSIVE] = index;
	held->token[ZKLOCK_EXCLUSIVE] = *token;
	zklock_hold_add(held, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_TRANSACTION);
	return true;
}

bool
zklock_election_resign(const char *name)
{
	LWLock *lock;
	ZkLockEntry *entry;
	bool candidate;

	entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_EXCLUSIVE, &lock);
	if (entry == NULL)
		return false;
	candidate = entry->election.candidate;
	if (candidate)
		zklock_election_candidacy_end(entry, ZKLOCK_LEADER_END_RESIGNED);
	zklock_entry_unlock(lock);
	return candidate;
}
