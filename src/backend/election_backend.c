/*-------------------------------------------------------------------------
 *
 * election_backend.c
 *	  Elections: what backends ask of them.
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
#include "proclock.h"
#include "room.h"
#include "settings.h"

/* A backstop for a lost wake-up */
#define LONGEST_SLEEP 1000

static uint32 wait_event_election = 0;

/* Since when is nobody known to lead? */
static int64
undecided_since(ZkLockEntry *entry)
{
	int64 since = ((volatile const ZkLockEntry *) entry)->election.undecided;

	/* we would, but for the lease */
	if (pg_atomic_read_u64(&entry->election.leader) != 0)
		since = Max(since, (int64) pg_atomic_read_u64(&zklock_shared->lease_end));
	return since;
}

int64
zklock_election_lead(const char *name, int64 wait_ms, bool anew, ZkElectionRef *ref)
{
	Oid role = GetSessionUserId();
	ZkLockEntry *entry;
	int64 start = zklock_clock();
	int64 until;
	int64 token;
	bool hope;

	/* two sessions that ask at one moment may both be let in */
	if (zklock_max_locks_per_backend > 0 && !zklock_election_candidacy_stands(name))
		zklock_limit_check(ZKLOCK_LIMIT_ELECTIONS, zklock_election_candidacy_count(role),
						   1);
	while (hope = zklock_table_hope(),
		   !zklock_election_candidacy_enter(name, MyDatabaseId, role, ref))
	{
		if (!hope)
			zklock_raise_table_full(false);
		zklock_await_room(start, wait_ms);
	}
	zklock_election_asked(ref);
	if (zklock_election_peek(ref, &token))
		return token;

	/* Should the entry be freed and used again, we wait in vain, but not long. */
	entry = ref->entry;
	until = wait_ms == ZKLOCK_WAIT_FOREVER
		? PG_INT64_MAX
		: (anew ? start : undecided_since(entry)) + wait_ms * NS_PER_MS;
	ConditionVariablePrepareToSleep(&entry->cv);
	while (!zklock_election_peek(ref, &token))
	{
		int64 left = (until - zklock_clock() + NS_PER_MS - 1) / NS_PER_MS;
		volatile ZkLockEntry *e = entry;

		if (left <= 0 || !e->election.candidate || e->generation != ref->generation)
			break;
		(void) ConditionVariableTimedSleep(&entry->cv, (long) Min(left, LONGEST_SLEEP),
										   zklock_wait_event(&wait_event_election,
															 "ZkLockElection"));
	}
	ConditionVariableCancelSleep();
	return token;
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

	if (entry == NULL)
		return NULL; /* somebody has resigned meanwhile */
	doubt = entry->election.candidate && zklock_shared->eligible != ZKLOCK_ELIGIBLE_NO &&
		(!entry->election.verdict || pg_atomic_read_u64(&entry->election.leader) != 0);
	failed = entry->election.failed;
	zklock_entry_unlock(lock);
	if (!doubt)
		return NULL;
	if ((trouble = zklock_check_trouble()) != NULL)
		return trouble;
	return failed
		? "ZooKeeper refused the candidacy of this server; the server log says why."
		: "ZooKeeper has not said so in time.";
}

int64
zklock_election_token(const char *name)
{
	LWLock *lock;
	ZkLockEntry *entry;
	ZkElectionRef ref;
	int64 token;

	entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	if (entry == NULL)
		return 0;
	ref.entry = entry;
	ref.generation = entry->generation;
	(void) zklock_election_peek(&ref, &token);
	zklock_entry_unlock(lock);
	return token;
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
