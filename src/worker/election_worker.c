/*-------------------------------------------------------------------------
 *
 * election_worker.c
 *	  Elections: the worker's part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"
#include "nodes/bitmapset.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "changes.h"
#include "election_worker.h"
#include "notify.h"
#include "settings.h"

static const char *
end_reason(ZkLeaderEnd end)
{
	switch (end)
	{
		case ZKLOCK_LEADER_END_RESIGNED:
			return "resigned";
		case ZKLOCK_LEADER_END_DEMOTED:
			return "not eligible any more";
		case ZKLOCK_LEADER_END_DRAINED:
			return "\"zklock.drain\" is on";
		case ZKLOCK_LEADER_END_IDLE:
			return "nobody asks for it any more";
		case ZKLOCK_LEADER_END_ABANDONED:
			return "the extension was dropped where it was asked for";
		case ZKLOCK_LEADER_END_SHUTDOWN:
			return "server shutdown";
		case ZKLOCK_LEADER_END_PRIORITY:
			return "a candidate has a higher priority";
	}
	pg_unreachable();
}

/*
 * Compare the current answer of zk_is_leader with the last announcement.  "event" has
 * just happened to the entry (NULL: no event), and has brought a grant or taken one
 * away.  The entry is locked.
 */
static void
find_news(ZkLockEntry *entry, const ZkLockEvent *event, bool granted, bool revoked,
		  ZkElectionNews *news)
{
	ZkElection *election = &entry->election;
	uint64 leader = pg_atomic_read_u64(&election->leader);
	int64 present = zklock_lease_valid() ? (int64) leader : 0;

	Assert(zklock_in_worker() && zklock_entry_is_locked(entry));
	memset(news, 0, sizeof(*news));
	if (present == election->announced)
		return;
	/* one that waits for the verdict */
	zklock_entry_broadcast(entry);
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
	zklock_shared->elections_led += (present != 0) - (election->announced != 0);
	if (granted)
		election->look_at = 0;
	election->announced = present;
	election->changes++;
	election->since = GetCurrentTimestamp();
}

/* Entries that are or were elections, so that a look at elections does not read the
 * whole table. */
static Bitmapset *elections = NULL;

static void
note_election(const ZkLockEntry *entry)
{
	MemoryContext save = MemoryContextSwitchTo(TopMemoryContext);

	elections = bms_add_member(elections, zklock_entry_index(entry));
	MemoryContextSwitchTo(save);
}

int
zklock_election_next(int i)
{
	return bms_next_member(elections, i);
}

/*
 * Does the ensemble say who leads?  After the loss of a connection, or after the
 * contender before this server's has gone, it does not until the worker has asked
 * again.
 */
static void
find_verdict(ZkLockEntry *entry)
{
	ZkElection *election = &entry->election;
	bool verdict = pg_atomic_read_u64(&election->leader) != 0;

	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		verdict |= entry->queue.contender[i].state == ZKLOCK_WAITING;
	if (verdict == election->verdict)
		return;
	if (!verdict)
		election->undecided = zklock_clock();
	pg_write_barrier(); /* pairs with zklock_election_peek */
	election->verdict = verdict;
	if (verdict)
		zklock_entry_broadcast(entry);
}

/* The grant is gone.  Whether somebody else leads is found out after that. */
static void
end_leadership(ZkElection *election)
{
	if (election->verdict)
		election->undecided = zklock_clock();
	election->verdict = false;
	pg_write_barrier(); /* pairs with zklock_election_peek */
	pg_atomic_write_u64(&election->leader, 0);
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

	Assert(entry->kind == ZKLOCK_KIND_ELECTION && zklock_entry_is_locked(entry));
	for (int i = 0; i < actions->n; i++)
	{
		const ZkLockAction *action = &actions->action[i];

		switch (action->type)
		{
			case ZKLOCK_ACT_GRANTED:
				if (stands)
					pg_atomic_write_u64(&election->leader, (uint64) action->token);
				granted = true;
				break;
			case ZKLOCK_ACT_REVOKED:
				end_leadership(election);
				revoked = true;
				break;
			case ZKLOCK_ACT_FAILED:
				failed = action;
				break;
			default:
				break;
		}
	}
	find_verdict(entry);
	find_news(entry, event, granted, revoked, news);
	if (election->candidate)
		note_election(entry);

	/* Refused: said once, and tried again with each heartbeat. */
	if (failed != NULL)
	{
		news->failed = stands && !election->failed;
		news->failure = failed->failure;
		election->failed = true;
	}
	else if (zklock_lock_queue_grant(&entry->queue, ZKLOCK_EXCLUSIVE) != NULL)
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
		zklock_changes_add_leader(name, false);
	}
	if (news->gained != 0)
	{
		ereport(LOG,
				(errmsg("this server became leader of election \"%s\", token %lld: %s",
						name, (long long) news->gained, news->reason)));
		zklock_changes_add_leader(name, true);
	}
	if (news->failed)
		ereport(LOG,
				(errmsg("could not become a candidate in election \"%s\", will try again",
						name),
				 news->failure == ZKLOCK_FAIL_SEQUENCE
					 ? errdetail("The sequence numbers of its directory are used up.")
					 : news->failure == ZKLOCK_FAIL_NUMBER
					 ? errdetail("A contender has a sequence number that was never given.")
					 : errdetail("ZooKeeper refused, or the directory could not be made."),
				 news->failure == ZKLOCK_FAIL_NUMBER
					 ? errhint("Delete it from the election's directory in ZooKeeper, or let the program that made it use sequential znodes.")
					 : 0));
}

/* Call a function for each election in which this server is a candidate. */
static void
for_each_candidacy(void (*what)(ZkLockEntry *entry, ZkElectionNews *news))
{
	for (int i = 0; i < zklock_entries_end(); i++)
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
	zklock_election_candidacy_give_up(entry, ZKLOCK_LEADER_END_DEMOTED);
	zklock_entry_broadcast(entry);
}

static void
step_aside(ZkLockEntry *entry, ZkElectionNews *news)
{
	zklock_election_candidacy_give_up(entry, ZKLOCK_LEADER_END_DRAINED);
	zklock_entry_broadcast(entry);
}

static void
shut_down(ZkLockEntry *entry, ZkElectionNews *news)
{
	zklock_election_candidacy_give_up(entry, ZKLOCK_LEADER_END_SHUTDOWN);
	zklock_entry_broadcast(entry);
}

/* The candidacy begins only now, so that backends can wait for its verdict. */
static void
stand(ZkLockEntry *entry, ZkElectionNews *news)
{
	zklock_election_candidacy_begin(entry);
}

/* Elections of "zklock.elections" from this position on are not entered, for lack of
 * room. */
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

		if (zklock_election_candidacy_enter(name, InvalidOid, InvalidOid, &ref))
			continue;
		first_unentered = i;
		if (i != told)
			ereport(LOG,
					(errmsg("could not enter election \"%s\", will try again", name),
					 errdetail("The lock table is full."),
					 errhint("You might need to increase \"zklock.max_locks\".")));
		break;
	}
}

static void
enter_listed(void)
{
	first_unentered = NONE_UNENTERED;
	enter_listed_from(0);
}

/* ------------------------------------------------------------------------
 * Elections that nobody wants any more
 * ------------------------------------------------------------------------
 */

/* Time between two looks; the worker's knowledge of who asks is that old at most. */
#define LOOK_NS INT64CONST(1000000000)

/* Does a setting name the election?  Then the server wants it, even if nobody asks. */
static bool
is_listed(const char *name)
{
	char *list = pstrdup(zklock_elections);
	List *names;
	ListCell *cell;
	bool found = false;

	if (SplitGUCList(list, ',', &names))
	{
		foreach (cell, names)
			found |= strcmp(lfirst(cell), name) == 0;
	}
	list_free(names);
	pfree(list);
	return found;
}

/* Does anybody want the election?  A transaction that requires the leadership does.
 * The entry is locked. */
static void
look_at_wish(ZkLockEntry *entry, int64 now)
{
	ZkElection *election = &entry->election;

	if (election->asked || entry->proclocks >= 0 || election->idle_since == 0)
		election->idle_since = now;
	election->asked = false;
	if (zklock_election_idle_time > 0 &&
		now - election->idle_since >= zklock_election_idle_time * (1000 * NS_PER_MS) &&
		!is_listed(entry->name))
		zklock_election_candidacy_end(entry, ZKLOCK_LEADER_END_IDLE);
}

static void
note_predecessors(ZkLockEntry *entry, ZkElectionNews *news)
{
	note_election(entry);
}

static void
look_at_wishes(void)
{
	static int64 look_at = 0;
	int64 now = zklock_clock();
	int i = -1;

	if (now < look_at)
		return;
	if (look_at == 0)
		for_each_candidacy(note_predecessors);
	look_at = now + LOOK_NS;
	while ((i = bms_next_member(elections, i)) >= 0)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
		char name[ZKLOCK_NAME_MAX + 1];
		bool stays = lock != NULL && entry->kind == ZKLOCK_KIND_ELECTION &&
			entry->election.candidate;
		bool resigned = false;

		if (stays)
		{
			look_at_wish(entry, now);
			resigned = !entry->election.candidate;
			strlcpy(name, entry->name, sizeof(name));
		}
		if (lock != NULL)
			zklock_entry_unlock(lock);
		if (!stays)
			elections = bms_del_member(elections, i);
		if (resigned)
			ereport(LOG,
					(errmsg("resigned from election \"%s\": nobody has asked for it for %d s",
							name, zklock_election_idle_time)));
	}
}

static bool
leads(void)
{
	int i = -1;

	while ((i = bms_next_member(elections, i)) >= 0)
	{
		/* as of a moment ago; of an entry that is another's by now it says 0, or as much */
		if (pg_atomic_read_u64(&zklock_entry(i)->election.leader) != 0)
			return true;
	}
	return false;
}

static void
leave_if_abandoned(ZkLockEntry *entry, ZkElectionNews *news)
{
	if (!entry->election.abandoned)
		return;
	entry->election.abandoned = false;
	if (!is_listed(entry->name))
		zklock_election_candidacy_end(entry, ZKLOCK_LEADER_END_ABANDONED);
}

static bool stopping = false;

static void
set_stopping(void)
{
	stopping = true;
	zklock_shared->eligible = ZKLOCK_ELIGIBLE_NO;
	for_each_candidacy(shut_down);
}

static long
work(void)
{
	static bool lease = false;
	int64 left;
	long due;

	if (!stopping)
	{
		bool may = !zklock_drain &&
			(zklock_leader_eligible == ZKLOCK_LEADER_ANY || !RecoveryInProgress());
		ZkEligibility eligible = may ? ZKLOCK_ELIGIBLE_YES : ZKLOCK_ELIGIBLE_NO;

		zklock_shared->draining = zklock_drain;
		if (zklock_shared->eligible != eligible)
		{
			zklock_shared->eligible = eligible;
			for_each_candidacy(may ? stand : zklock_drain ? step_aside : demote);
		}
	}
	if (zklock_lease_valid() != lease)
	{
		lease = !lease;
		for_each_candidacy(look_at_lease);
	}
	if (first_unentered != NONE_UNENTERED && !stopping)
		enter_listed_from(first_unentered);
	if (pg_atomic_exchange_u32(&zklock_shared->abandoned, 0) != 0)
		for_each_candidacy(leave_if_abandoned);
	look_at_wishes();
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

static bool
ask(ZkAgentAsk what)
{
	return what == ZKLOCK_AGENT_BOUND && leads();
}

const ZkAgent zklock_election_agent = {
	.work = work,
	.ask = ask,
	.reload = enter_listed,
	.stop = set_stopping,
};
