/*-------------------------------------------------------------------------
 *
 * election_priorities.c
 *	  Lets a leader look for candidates of higher priority, and give way to them.
 *
 * The rule is in election_rules.h.  In each election that this server leads, it lists
 * the candidates and reads the node of each.  If one of them has a higher priority,
 * this server writes its own node, to get the time of the ensemble's clock.  Otherwise
 * it writes nothing.
 *
 * A candidate's node never changes its content, because other programs watch the node
 * for its end alone: Curator's LeaderLatch would miss the end after a change.  A server
 * whose priority has changed leaves the queue and joins it again in each election that
 * it does not lead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "dispatch.h"
#include "election_priorities.h"
#include "election_rules.h"
#include "election_text.h"
#include "election_worker.h"
#include "member.h"
#include "path.h"
#include "session.h"
#include "settings.h"
#include "tag.h"

/* For each CANDIDATES candidates, the next look comes one session timeout later. */
#define CANDIDATES 100

/* Number of gets open at a time: other programs may have filled the directory. */
#define WINDOW 128

/* Longer names are not names of candidates. */
#define CHILD_MAX 1024

/* A look at one election.  There is one at a time. */
typedef struct Look
{
	int entry; /* -1: none */
	uint32 generation;
	int64 leader; /* token of the leadership */
	char name[ZKLOCK_NAME_MAX + 1];
	MemoryContext context; /* of the names */
	char **names;		   /* of others' nodes */
	int ncandidates;
	int next;	  /* the one to get next */
	int gets;	  /* replies to come */
	ZkRival best; /* for which this server may have to resign; since 0: none */
} Look;

/* ZkRequestTag.hash */
typedef enum What
{
	LIST,
	CANDIDATE,
	TIME
} What;

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static uint32 serial = 0; /* of the look: replies to an earlier one are void */
static Look look = {.entry = -1};

static ZkRequestTag
make_tag(What what)
{
	return (ZkRequestTag){.kind = own_tag, .generation = serial, .hash = (uint64) what};
}

static int64
timeout_ns(void)
{
	return zklock_shared->session.timeout_ms * NS_PER_MS;
}

static void
end_look(void)
{
	serial++;
	if (look.context != NULL)
		MemoryContextDelete(look.context);
	look = (Look){.entry = -1};
}

/* The entry of the look, locked, if this server still leads the election in the same
 * term; else NULL. */
static ZkLockEntry *
lock_led(LWLock **lock)
{
	ZkLockEntry *entry = zklock_entry(look.entry);

	*lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (*lock == NULL)
		return NULL;
	if (entry->generation == look.generation &&
		(int64) pg_atomic_read_u64(&entry->election.leader) == look.leader)
		return entry;
	zklock_entry_unlock(*lock);
	return NULL;
}

/* Begin with the next election that is due.  False: none is due; "due" gets the time of
 * the next one, in ns. */
static bool
begin_look(int64 now, int64 *due)
{
	int i = -1;

	while ((i = zklock_election_next(i)) >= 0)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock;
		bool begins = false;

		/* Each turn comes here, so one that is not due costs no lock.  The worker alone
		 * writes look_at. */
		if (pg_atomic_read_u64(&entry->election.leader) == 0)
			continue;
		if (now < entry->election.look_at)
		{
			*due = Min(*due, entry->election.look_at);
			continue;
		}
		lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
		if (lock == NULL)
			continue;
		if (entry->kind == ZKLOCK_KIND_ELECTION &&
			pg_atomic_read_u64(&entry->election.leader) != 0)
		{
			look = (Look){
				.entry = i,
				.generation = entry->generation,
				.leader = (int64) pg_atomic_read_u64(&entry->election.leader),
			};
			strlcpy(look.name, entry->name, sizeof(look.name));
			entry->election.look_at = now + timeout_ns();
			begins = true;
		}
		zklock_entry_unlock(lock);
		if (begins)
			return true;
	}
	return false;
}

/* All candidates have been read: decide whether to ask for the time. */
static void
ask_time(void)
{
	ZkRequestTag tag = make_tag(TIME);
	LWLock *lock;
	ZkLockEntry *entry = lock_led(&lock);

	if (entry != NULL)
	{
		entry->election.look_at += look.ncandidates / CANDIDATES * timeout_ns();
		zklock_entry_unlock(lock);
	}
	if (entry == NULL || look.best.since == 0 ||
		zklock_member_touch(zklock_session_client(), &tag) != ZKLOCK_ZOK)
		end_look();
}

/* Send gets of the next candidates.  The last reply completes the look. */
static void
go_on(void)
{
	ZkRequestTag tag = make_tag(CANDIDATE);

	while (look.gets < WINDOW && look.next < look.ncandidates)
	{
		char *path =
			zklock_path_name(ZKLOCK_KIND_ELECTION, look.name, look.names[look.next++]);

		zklock_session_sent(zklock_client_get(zklock_session_client(), path, false, &tag));
		pfree(path);
		look.gets++;
	}
	if (look.gets == 0)
		ask_time();
}

static void
take_listing(const ZkMessage *message)
{
	MemoryContext save;

	if (message->rc != ZKLOCK_ZOK)
	{
		end_look();
		return;
	}
	look.context =
		AllocSetContextCreate(TopMemoryContext, "zklock look", ALLOCSET_DEFAULT_SIZES);
	save = MemoryContextSwitchTo(look.context);
	look.names =
		palloc_extended(sizeof(char *) * ((Size) message->nchildren + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < message->nchildren; i++)
	{
		ZkLockChild child;

		if (strlen(message->children[i]) <= CHILD_MAX &&
			zklock_parse_child(message->children[i], &child) &&
			child.uuid_hi != zklock_shared->session.uuid_hi)
			look.names[look.ncandidates++] = pstrdup(message->children[i]);
	}
	MemoryContextSwitchTo(save);
	go_on();
}

static void
take_candidate(const ZkMessage *message)
{
	Assert(look.gets > 0);
	if (message->rc == ZKLOCK_ZOK && message->ephemeral_owner != 0)
	{
		ZkRival rival = {
			.priority = zklock_candidate_priority(message->data, (size_t) message->datalen),
			.since = message->ctime,
		};

		if (zklock_election_is_better(zklock_leader_priority, &rival, &look.best))
			look.best = rival;
	}
	look.gets--;
	go_on();
}

/* The time of the ensemble's clock has come: give way, or keep the lead. */
static void
decide(const ZkMessage *message)
{
	LWLock *lock;
	ZkLockEntry *entry;

	if (message->rc == ZKLOCK_ZOK &&
		zklock_election_yields(zklock_leader_priority, &look.best, message->mtime,
							   zklock_shared->session.timeout_ms) &&
		(entry = lock_led(&lock)) != NULL)
	{
		zklock_election_candidacy_give_up(entry, ZKLOCK_LEADER_END_PRIORITY);
		zklock_entry_broadcast(entry);
		zklock_entry_unlock(lock);
	}
	end_look();
}

static void
on_message(const ZkMessage *message)
{
	if (look.entry < 0 || message->tag.generation != serial)
		return;
	if (zklock_session_client() == NULL || zklock_rc_is_lost(message->rc))
	{
		end_look();
		return;
	}
	switch ((What) message->tag.hash)
	{
		case LIST:
			take_listing(message);
			break;
		case CANDIDATE:
			take_candidate(message);
			break;
		case TIME:
			decide(message);
			break;
	}
}

static void
on_event(ZkLockEventType type)
{
	if (type != ZKLOCK_EV_TICK)
		end_look();
}

/* Does this server have a contender that may wait, but whose state is not settled? */
static bool
is_unsettled(void)
{
	int i = -1;

	while ((i = zklock_election_next(i)) >= 0)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		bool unsettled = false;

		if (lock == NULL)
			continue;
		for (int j = 0; entry->kind == ZKLOCK_KIND_ELECTION && j < ZKLOCK_NCONTENDERS; j++)
		{
			uint8 state = entry->queue.contender[j].state;

			unsettled |= state == ZKLOCK_CREATING || state == ZKLOCK_UNSETTLED ||
				state == ZKLOCK_QUEUED;
		}
		zklock_entry_unlock(lock);
		if (unsettled)
			return true;
	}
	return false;
}

/* This server's priority has changed: leave each queue in which it waits, to join it
 * again. */
static void
queue_anew(void)
{
	int i = -1;

	while ((i = zklock_election_next(i)) >= 0)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		char child[ZKLOCK_CONTENDER_LEN + 16] = "";
		char name[ZKLOCK_NAME_MAX + 1];
		char *path;

		if (lock == NULL)
			continue;
		for (int j = 0; entry->kind == ZKLOCK_KIND_ELECTION && j < ZKLOCK_NCONTENDERS; j++)
		{
			const ZkContender *c = &entry->queue.contender[j];

			if (c->state != ZKLOCK_WAITING)
				continue;
			zklock_format_contender(child, zklock_shared->session.uuid_hi, c->uuid,
									ZKLOCK_KIND_ELECTION, ZKLOCK_EXCLUSIVE);
			snprintf(child + strlen(child), 16, "%010d", (int) c->sequence);
		}
		strlcpy(name, entry->name, sizeof(name));
		zklock_entry_unlock(lock);
		if (child[0] == '\0')
			continue;
		path = zklock_path_name(ZKLOCK_KIND_ELECTION, name, child);
		zklock_dispatch_removal(ZKLOCK_KIND_ELECTION, name, child);
		zklock_session_sent(
			zklock_client_delete(zklock_session_client(), path, &zklock_no_tag));
		pfree(path);
	}
}

static long
work(void)
{
	int64 now = zklock_clock();
	int64 due = PG_INT64_MAX;
	ZkRequestTag tag;
	char *path;

	if (zklock_session_client() == NULL || zklock_session_busy())
		return -1;
	if (zklock_shared->priority_told != zklock_leader_priority + 1 &&
		(zklock_shared->priority_told == 0 || !is_unsettled()))
	{
		if (zklock_shared->priority_told != 0)
			queue_anew();
		zklock_shared->priority_told = zklock_leader_priority + 1;
	}
	if (look.entry >= 0)
		return -1;
	if (!begin_look(now, &due))
		return due == PG_INT64_MAX ? -1 : (long) ((due - now) / NS_PER_MS + 1);
	serial++;
	tag = make_tag(LIST);
	path = zklock_path_name(ZKLOCK_KIND_ELECTION, look.name, NULL);
	zklock_session_sent(zklock_client_list(zklock_session_client(), path, false, &tag));
	pfree(path);
	return -1;
}

const ZkAgent zklock_election_priorities_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.work = work,
};
