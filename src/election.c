/*-------------------------------------------------------------------------
 *
 * election.c
 *	  Elections: which of the servers leads?
 *
 * An election is an entry of the lock table like a lock, with a queue of
 * contenders in ZooKeeper of the same protocol.  What is different:
 *
 *	 The wish is the server's (candidate), not a backend's.  It stays until
 *	 somebody resigns, counts as demand while the server is eligible, and pins the
 *	 entry.  So a contender that is lost queues anew.
 *
 *	 The grant serves everybody, with no level 1, until it is given up.  While it
 *	 is good, "leader" has its token, for all to read without a lock, under the
 *	 lease.
 *
 *	 A transaction may hold on to the grant (a guard), by a request like that of
 *	 a lock.  A leadership that is given up is false at once, but its contender
 *	 is deleted only when no guard is left.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "acquire.h"
#include "election.h"
#include "hold.h"
#include "loss.h"
#include "notify.h"
#include "settings.h"

/* A backstop for a lost wake-up */
#define LONGEST_SLEEP 1000

static uint32 wait_event_election = 0;

/* From now on this server is a candidate, if it is eligible.  Locked. */
static void
begin_candidacy(ZkLockEntry *entry)
{
	entry->election.candidate = true;
	entry->election.verdict = entry->election.failed = false;
	entry->election.entered = zklock_clock();
	entry->election.since = GetCurrentTimestamp();
	entry->last_rc = 0;
	zklock_entry_set_dirty(entry);
}

/* The entry of an election in which this server is a candidate.  Its leadership
 * ends here and now.  Locked. */
static void
give_up(ZkLockEntry *entry, ZkLeaderEnd end)
{
	pg_atomic_write_u64(&entry->election.leader, 0);
	entry->election.given_up = (uint8) end;
	entry->grant[ZKLOCK_EXCLUSIVE].usable = false;
	zklock_entry_set_dirty(entry);
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Make this server a candidate, unless it is one.  False: no room. */
static bool
enter(const char *name, ZkElectionRef *ref)
{
	LWLock *lock;
	ZkLockEntry *entry;

	entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	if (entry == NULL || !entry->election.candidate)
	{
		if (entry != NULL)
			zklock_entry_unlock(lock);
		entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, true, LW_EXCLUSIVE, &lock);
		if (entry == NULL)
			return false;
		if (!entry->election.candidate)
			begin_candidacy(entry);
	}
	ref->entry = entry;
	ref->generation = entry->generation;
	zklock_entry_unlock(lock);
	return true;
}

int64
zklock_election_lead(const char *name, int64 wait_ms, ZkElectionRef *ref)
{
	ZkLockEntry *entry;
	int64 start = zklock_clock();
	int64 until;
	int64 token;
	bool hope;

	while (hope = zklock_table_hope(), !enter(name, ref))
	{
		if (!hope)
			zklock_raise_table_full(false);
		zklock_await_room(start, wait_ms);
	}
	if (zklock_election_peek(ref, &token))
		return token;

	/* Should the entry be freed and used again, we wait in vain, but not long. */
	entry = ref->entry;
	until = wait_ms == ZKLOCK_WAIT_FOREVER ? PG_INT64_MAX
										   : entry->election.entered + wait_ms * NS_PER_MS;
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
	ZkLockRequest *request;
	ZkLockEntry *entry;
	LWLock *lock;
	bool leader;

	if (held != NULL)
	{
		/* it may have been given up since, but not to anybody else */
		if (zklock_loss_settle(held))
			zklock_held_raise_lost(held);
		(void) zklock_hold_reserve(ZKLOCK_KIND_ELECTION, name);
		zklock_hold_add(held, ZKLOCK_EXCLUSIVE, ZKLOCK_TRANSACTION);
		*token = held->token[ZKLOCK_EXCLUSIVE];
		return true;
	}

	held = zklock_hold_reserve(ZKLOCK_KIND_ELECTION, name);
	index = zklock_request_make(ZKLOCK_KIND_ELECTION, name, ZKLOCK_EXCLUSIVE,
								ZKLOCK_TRANSACTION, false);
	if (index < 0)
	{
		zklock_held_forget(held);
		zklock_raise_table_full(false);
	}
	request = zklock_request(index);
	entry = zklock_entry(request->entry);

	lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our request pins it */
	*token = (int64) pg_atomic_read_u64(&entry->election.leader);
	leader = *token != 0 && zklock_lease_valid();
	if (leader)
	{
		request->state = ZKLOCK_REQUEST_HELD;
		entry->held[ZKLOCK_EXCLUSIVE]++;
	}
	zklock_entry_unlock(lock);

	if (!leader)
	{
		zklock_request_end(index);
		zklock_held_forget(held);
		return false;
	}
	held->request[ZKLOCK_EXCLUSIVE] = index;
	held->token[ZKLOCK_EXCLUSIVE] = *token;
	zklock_hold_add(held, ZKLOCK_EXCLUSIVE, ZKLOCK_TRANSACTION);
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
	{
		entry->election.candidate = false;
		give_up(entry, ZKLOCK_END_RESIGNED);
		/* one that waits for the verdict */
		zklock_entry_broadcast(entry);
	}
	zklock_entry_unlock(lock);
	return candidate;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static const char *
end_reason(ZkLeaderEnd end)
{
	switch (end)
	{
		case ZKLOCK_END_RESIGNED:
			return "resigned";
		case ZKLOCK_END_DEMOTED:
			return "not eligible any more";
		case ZKLOCK_END_SHUTDOWN:
			return "server shutdown";
	}
	pg_unreachable();
}

/*
 * Compare what zk_is_leader says with what was announced.  "event" has just
 * happened to the entry, or nothing if it is NULL, and has brought a grant or
 * taken one away.  Locked.
 */
static void
find_news(ZkLockEntry *entry, const ZkLockEvent *event, bool granted, bool revoked,
		  ZkElectionNews *news)
{
	ZkElection *election = &entry->election;
	uint64 leader = pg_atomic_read_u64(&election->leader);
	int64 present = zklock_lease_valid() ? (int64) leader : 0;

	memset(news, 0, sizeof(*news));
	if (present == election->announced)
		return;
	news->gained = present;
	news->lost = election->announced;
	if (present != 0 && !granted)
		news->reason = "the lease is good again";
	else if (present != 0 && event->type == ZKLOCK_EV_NODE_DELETED)
		news->reason = "the candidate before it is gone";
	else if (present != 0)
		news->reason = "first among the candidates";
	else if (leader != 0)
		news->reason = "the lease has lapsed";
	else if (revoked && event->type == ZKLOCK_EV_SESSION_LOST)
		news->reason = "the ZooKeeper session ended";
	else if (revoked)
		news->reason = "its contender in ZooKeeper is gone";
	else
		news->reason = end_reason((ZkLeaderEnd) election->given_up);
	election->announced = present;
	election->changes++;
	election->since = GetCurrentTimestamp();
}

void
zklock_election_step(ZkLockEntry *entry, const ZkLockEvent *event,
					 const ZkLockActions *actions, ZkElectionNews *news)
{
	ZkElection *election = &entry->election;
	bool stands = zklock_election_stands(entry);
	bool granted = false;
	bool revoked = false;
	const ZkLockAction *failed = NULL;

	for (int i = 0; i < actions->n; i++)
	{
		const ZkLockAction *action = &actions->action[i];

		switch (action->type)
		{
			case ZKLOCK_ACT_GRANTED:
				if (stands)
					pg_atomic_write_u64(&election->leader, (uint64) action->token);
				election->verdict = true;
				granted = true;
				break;
			case ZKLOCK_ACT_BLOCKED:
				election->verdict = true;
				break;
			case ZKLOCK_ACT_REVOKED:
				pg_atomic_write_u64(&election->leader, 0);
				revoked = true;
				break;
			case ZKLOCK_ACT_FAILED:
				failed = action;
				break;
			default:
				break;
		}
	}
	find_news(entry, event, granted, revoked, news);

	/* Refused: said once, and tried again with each heartbeat. */
	if (failed != NULL)
	{
		news->failed = stands && !election->failed;
		news->failure = failed->failure;
		election->failed = true;
	}
	else if (zklock_queue_grant(&entry->queue, ZKLOCK_EXCLUSIVE) != NULL)
		election->failed = false;
	if (event->type == ZKLOCK_EV_TICK && stands && !entry->queue.needed[ZKLOCK_EXCLUSIVE])
		zklock_entry_set_dirty(entry);
}

void
zklock_election_announce(const char *name, const ZkElectionNews *news)
{
	if (news->lost != 0)
	{
		ereport(LOG,
				(errmsg("this server is no longer leader of election \"%s\", token %lld: %s",
						name, (long long) news->lost, news->reason)));
		zklock_notify_add(name, false);
	}
	if (news->gained != 0)
	{
		ereport(LOG,
				(errmsg("this server became leader of election \"%s\", token %lld: %s",
						name, (long long) news->gained, news->reason)));
		zklock_notify_add(name, true);
	}
	if (news->failed)
		ereport(LOG,
				(errmsg("could not become a candidate in election \"%s\", trying on", name),
				 news->failure == ZKLOCK_FAIL_SEQUENCE
					 ? errdetail("The sequence numbers of its directory are used up.")
					 : news->failure == ZKLOCK_FAIL_NUMBER
					 ? errdetail("A contender has a sequence number that was never given.")
					 : errdetail("ZooKeeper refused, or the directory could not be made."),
				 news->failure == ZKLOCK_FAIL_NUMBER
					 ? errhint("Delete it from the election's directory in ZooKeeper, or let the program that made it use sequential znodes.")
					 : 0));
}

/* Do something with every election in which this server is a candidate. */
static void
for_each_candidacy(void (*what)(ZkLockEntry *entry, ZkElectionNews *news))
{
	for (int i = 0; i < zklock_shared->nentries; i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		ZkElectionNews news = {0};
		char name[ZKLOCK_NAME_MAX + 1];
		LWLock *lock;

		if (entry->kind != ZKLOCK_KIND_ELECTION ||
			(lock = zklock_entry_lock(entry, LW_EXCLUSIVE)) == NULL)
			continue;
		if (entry->kind == ZKLOCK_KIND_ELECTION && entry->election.candidate)
			what(entry, &news);
		strlcpy(name, entry->name, sizeof(name));
		zklock_entry_unlock(lock);
		zklock_election_announce(name, &news);
	}
}

static void
look_at_lease(ZkLockEntry *entry, ZkElectionNews *news)
{
	find_news(entry, NULL, false, false, news);
}

static void
demote(ZkLockEntry *entry, ZkElectionNews *news)
{
	give_up(entry, ZKLOCK_END_DEMOTED);
	zklock_entry_broadcast(entry);
}

static void
shut_down(ZkLockEntry *entry, ZkElectionNews *news)
{
	give_up(entry, ZKLOCK_END_SHUTDOWN);
	zklock_entry_broadcast(entry);
}

/* The candidacy begins only now: its first verdict can be waited for. */
static void
stand(ZkLockEntry *entry, ZkElectionNews *news)
{
	begin_candidacy(entry);
}

/* Elections of "zklock.elections" from this position on have found no room. */
#define NONE_UNENTERED	   (-1)
#define UNENTERED_RETRY_MS 100

static int first_unentered = NONE_UNENTERED;

static void
enter_listed_from(int first)
{
	char *list = pstrdup(zklock_elections);
	int told = first_unentered;
	List *names;

	first_unentered = NONE_UNENTERED;
	if (!SplitGUCList(list, ',', &names))
		return; /* the setting's check refuses that */
	for (int i = first; i < list_length(names); i++)
	{
		const char *name = list_nth(names, i);
		ZkElectionRef ref;

		if (enter(name, &ref))
			continue;
		first_unentered = i;
		if (i != told)
			ereport(LOG,
					(errmsg("could not enter election \"%s\", trying on", name),
					 errdetail("The lock table is full."),
					 errhint("You might need to increase \"zklock.max_locks\".")));
		break;
	}
}

void
zklock_election_enter_listed(void)
{
	first_unentered = NONE_UNENTERED;
	enter_listed_from(0);
}

static bool draining = false;

void
zklock_election_drain(void)
{
	draining = true;
	zklock_shared->eligible = ZKLOCK_ELIGIBLE_NO;
	for_each_candidacy(shut_down);
}

long
zklock_election_work(void)
{
	static bool lease = false;
	int64 left;
	long due;

	if (!draining)
	{
		bool may = zklock_leader_eligible == ZKLOCK_LEADER_ANY || !RecoveryInProgress();
		ZkEligibility eligible = may ? ZKLOCK_ELIGIBLE_YES : ZKLOCK_ELIGIBLE_NO;

		if (zklock_shared->eligible != eligible)
		{
			zklock_shared->eligible = eligible;
			for_each_candidacy(may ? stand : demote);
		}
	}
	if (zklock_lease_valid() != lease)
	{
		lease = !lease;
		for_each_candidacy(look_at_lease);
	}
	if (first_unentered != NONE_UNENTERED && !draining)
		enter_listed_from(first_unentered);
	zklock_notify_work();

	left = (int64) pg_atomic_read_u64(&zklock_shared->lease_end) - zklock_clock();
	due = lease ? (long) Max(left / NS_PER_MS + 1, 1) : PG_INT32_MAX;
	if (first_unentered != NONE_UNENTERED && zklock_table_hope())
	{
		/* the sweep's next round makes some */
		pg_atomic_write_u32(&zklock_shared->room_wanted, 1);
		due = Min(due, UNENTERED_RETRY_MS);
	}
	return due;
}
