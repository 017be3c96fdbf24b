/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Carries events from the session to the lock table, and requests from the lock
 *	  table to the session.
 *
 * This code runs in the worker only.  A step of an entry's protocol runs under the
 * entry's partition lock.  Its results for the table (granted, revoked, failed) take
 * effect before the worker releases that lock.  The worker sends the requests to the
 * ensemble afterwards.  The uuids in these requests are in shared memory by then, so a
 * successor of this process can settle what it finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#include "barrier_worker.h"
#include "deadlock_worker.h"
#include "dispatch.h"
#include "election_text.h"
#include "election_worker.h"
#include "ensemble.h"
#include "grant.h"
#include "json.h"
#include "names.h"
#include "path.h"
#include "proclock.h"
#include "reporter.h"
#include "semaphore_shared.h"
#include "semaphore_worker.h"
#include "session.h"
#include "set_worker.h"
#include "settings.h"
#include "succession.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"
#include "watches.h"

/* A session event on its way through the entries; see on_event. */
static ZkLockEventType all_event;
static int all_next = -1;		/* the next entry to feed, -1: none */
static bool tick_wanted = true; /* by some entry, perhaps */
static bool resume_due = false; /* RESUMED was overtaken */
static bool proof_due = false;	/* some entry waits for nothing but a heartbeat */

/*
 * Contenders of this session that the leader does not have, whatever the server of this
 * connection shows: the last of them.
 */
#define MAX_ABSENT 256
static struct
{
	uint64 uuid; /* low half */
	int64 sequence;
} absent[MAX_ABSENT];
static uint32 nabsent = 0;		  /* of this connection, so far */
static bool strayed_said = false; /* ... and that it shows one */

/* ------------------------------------------------------------------------
 * Actions
 * ------------------------------------------------------------------------
 */

/* The path of this server's contender; with "create" the path to create it with. */
static char *
contender_path(ZkLockKind kind, const char *name, const ZkLockAction *action,
			   uint64 uuid_hi, bool create)
{
	char child[ZKLOCK_CONTENDER_LEN + 16];

	if (zklock_kinds[kind].by_session)
		zklock_format_permit(child, uuid_hi, action->uuid, action->permits);
	else
		zklock_format_contender(child, uuid_hi, action->uuid, kind, action->mode);
	if (!create)
		snprintf(child + strlen(child), 16, "%010d", (int) action->sequence);
	return zklock_path_name(kind, name, child);
}

/* Append a contender's data.  For a candidate, which stands for the whole server, see
 * election_text.h. */
static void
describe_contender(StringInfo buf, ZkLockKind kind, int pid)
{
	if (zklock_kinds[kind].by_server)
	{
		char server[256];
		char data[sizeof(server) + ZKLOCK_CANDIDATE_MAX];

		zklock_effective_server_name(server, sizeof(server));
		zklock_candidate_write(data, server, zklock_leader_priority);
		initStringInfo(buf);
		appendStringInfoString(buf, data);
	}
	else
		zklock_describe_server(buf, pid);
}

/* Add a create or a delete to a set's transaction. */
static void
add_to_set(const ZkLockEntry *entry, ZkLockKind kind, const char *name, int pid,
		   uint32 generation, uint64 uuid_hi, const ZkLockAction *action)
{
	ZkSetMember what = {
		.entry = zklock_entry_index(entry),
		.generation = generation,
		.uuid = action->uuid,
		.creates = action->type == ZKLOCK_ACT_CREATE,
	};
	StringInfoData data = {0};
	char *path = contender_path(kind, name, action, uuid_hi, what.creates);

	if (what.creates)
		describe_contender(&data, kind, pid);
	zklock_set_worker_add(&what, path, data.data, data.len);
}

/* Create this server's contender, or write it once more.  Returns its path. */
static char *
send_own(ZkClient *client, ZkLockKind kind, const char *name, int pid, uint64 uuid_hi,
		 const ZkLockAction *action, ZkRequestTag *tag)
{
	bool create = action->type == ZKLOCK_ACT_CREATE;
	char *path = contender_path(kind, name, action, uuid_hi, create);
	StringInfoData data;

	tag->kind = create ? ZKLOCK_TAG_CREATE : ZKLOCK_TAG_MARK;
	describe_contender(&data, kind, pid);
	zklock_session_sent(
		create ? zklock_client_create(client, path, data.data, data.len,
									  ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL, tag)
			   : zklock_client_set(client, path, data.data, data.len, -1, tag));
	pfree(data.data);
	return path;
}

static void
send_make_dir(ZkClient *client, ZkLockKind kind, const char *path, const ZkRequestTag *tag)
{
	/* a job's has the record of its runs */
	(void) zklock_client_create(client, path, "", 0,
								zklock_kinds[kind].record ? ZKLOCK_CREATE_PERSISTENT
														  : ZKLOCK_CREATE_CONTAINER,
								tag);
}

static void
send_watch(ZkClient *client, const char *path, ZkRequestTag *tag)
{
	tag->path = zklock_watch_count(path, false);
	zklock_session_sent(zklock_client_get(client, path, true, tag));
}

static void
send_list(ZkClient *client, ZkLockKind kind, const char *path, const ZkLockAction *action,
		  ZkRequestTag *tag)
{
	if (action->sync)
		(void) zklock_client_sync(client, zklock_path_directory(kind), &zklock_no_tag);
	if (action->watch)
		tag->path = zklock_watch_count(path, true);
	zklock_session_sent(zklock_client_list(client, path, action->watch, tag));
}

static void
send_request(const ZkLockEntry *entry, ZkLockKind kind, const char *name, int pid,
			 uint32 generation, uint64 uuid_hi, const ZkLockAction *action)
{
	ZkClient *client = zklock_session_client();
	char *path = NULL;
	ZkRequestTag tag = {
		.entry = (uint32) zklock_entry_index(entry),
		.generation = generation,
		.uuid = action->uuid,
		.hash = action->hash,
	};

	Assert(zklock_unlocked());
	if (client == NULL)
		return; /* its replies are annulled with it */
	zklock_ensemble_remind(client);
	switch (action->type)
	{
		case ZKLOCK_ACT_MAKE_DIR:
			tag.kind = ZKLOCK_TAG_MAKE_DIR;
			path = zklock_path_name(kind, name, NULL);
			send_make_dir(client, kind, path, &tag);
			break;

		case ZKLOCK_ACT_WATCH_DIR:
			tag.kind = ZKLOCK_TAG_WATCH_DIR;
			path = zklock_path_name(kind, name, NULL);
			send_watch(client, path, &tag);
			break;

		case ZKLOCK_ACT_CREATE:
		case ZKLOCK_ACT_MARK:
			path = send_own(client, kind, name, pid, uuid_hi, action, &tag);
			break;

		case ZKLOCK_ACT_LIST:
			tag.kind = ZKLOCK_TAG_LIST;
			tag.hash = action->list;
			path = zklock_path_name(kind, name, NULL);
			send_list(client, kind, path, action, &tag);
			break;

		case ZKLOCK_ACT_WATCH_OWN:
			tag.kind = ZKLOCK_TAG_WATCH_OWN;
			path = contender_path(kind, name, action, uuid_hi, false);
			send_watch(client, path, &tag);
			break;

		case ZKLOCK_ACT_WATCH:
			tag.kind = ZKLOCK_TAG_WATCH;
			path = zklock_path_name(kind, name, action->name);
			if (action->once && zklock_watch_stands(path))
				break;
			send_watch(client, path, &tag);
			break;

		case ZKLOCK_ACT_DELETE:
			tag.kind = ZKLOCK_TAG_DELETE;
			path = contender_path(kind, name, action, uuid_hi, false);
			zklock_session_sent(zklock_client_delete(client, path, &tag));
			break;

		case ZKLOCK_ACT_GRANTED:
		case ZKLOCK_ACT_BLOCKED:
		case ZKLOCK_ACT_DEMANDED:
		case ZKLOCK_ACT_UNDEMANDED:
		case ZKLOCK_ACT_REVOKED:
		case ZKLOCK_ACT_FAILED:
		case ZKLOCK_ACT_ABSENT:
			pg_unreachable();
	}
	pfree(path);
}

/* Would a TICK change anything?  Read without the lock: the worker writes all of these
 * fields except an election's "failed", which a backend resets when it asks again. */
static bool
wants_tick(const ZkLockEntry *entry)
{
	return zklock_lock_queue_wants_tick(&entry->queue) ||
		(zklock_kinds[entry->kind].by_server && entry->election.failed);
}

/* Add to the event the facts that the protocol gets with each event.  The entry is
 * locked. */
static void
complete_event(ZkLockEntry *entry, ZkLockEvent *event)
{
	if (event->type == ZKLOCK_EV_NEED)
	{
		if (zklock_lock_queue_empty(&entry->queue))
		{
			entry->queue.connected = zklock_session_client() != NULL;
			entry->queue.succession = entry->kind == ZKLOCK_KIND_LOCK
				? zklock_succession_find(entry->name)
				: ZKLOCK_NO_SUCCESSION;
		}
		zklock_proclock_need(entry, event);
	}
	/* The worker alone writes this, so it may read it without the lock. */
	event->session = zklock_shared->session.uuid_hi;
	if (event->type == ZKLOCK_EV_CREATED && event->rc == ZKLOCK_RC_OK)
		zklock_grant_note_contender(entry, event->sequence);
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		event->held[mode] = entry->held[mode] > 0;
	if (zklock_kinds[entry->kind].by_session)
		zklock_semaphore_place_tell(entry, event);
	event->spare_watches = zklock_watches_too_many();
	event->no_watches = zklock_watches_full();
	zklock_grant_foresee(entry, event);
	event->keep &= !event->spare_watches;
	event->recurring = event->recurring && zklock_succession_room(entry->name);
	/* a contender bears the mark of its session */
	Assert(event->session != 0 || zklock_shared->session.id.id == 0);
	event->fresh_uuid = zklock_shared->session.next_uuid;
	zklock_shared->session.next_uuid += ZKLOCK_NCONTENDERS;
}

/* Apply the results of a step to the table.  Returns true if holders have lost a lock.
 * The entry is locked. */
static bool
tell_table(ZkLockEntry *entry, const ZkLockEvent *event, const ZkLockActions *actions)
{
	bool changed = false;
	bool lost = false;

	for (int i = 0; i < actions->n; i++)
	{
		const ZkLockAction *action = &actions->action[i];

		if (zklock_action_is_request(action->type))
			continue;
		if (action->type == ZKLOCK_ACT_REVOKED)
			lost |= entry->held[action->mode] > 0;
		if (action->type == ZKLOCK_ACT_DEMANDED)
			zklock_deadlock_demanded();
		if (zklock_grant_apply(entry, action, event->keep))
			zklock_entry_set_dirty(entry);
		changed = true;
	}
	if (changed)
		zklock_entry_broadcast(entry);
	return lost;
}

/* A request that the worker sends after a set's transaction. */
typedef struct Later
{
	ZkLockEntry *entry;
	ZkLockKind kind;
	char *name;
	uint32 generation;
	uint64 uuid_hi;
	ZkLockAction action;
} Later;

static List *later = NIL;

/* Send a request of a step.  In a step by JOINTLY, a request that belongs to the set's
 * transaction goes into it, and a later one is kept until it has been sent. */
static void
perform(ZkLockEntry *entry, ZkLockKind kind, const char *name, int pid, uint32 generation,
		const ZkLockEvent *event, const ZkLockAction *action)
{
	Later *l;

	if (action->jointly)
		add_to_set(entry, kind, name, pid, generation, event->session, action);
	else if (event->type != ZKLOCK_EV_JOINTLY || action->type == ZKLOCK_ACT_MAKE_DIR)
		send_request(entry, kind, name, pid, generation, event->session, action);
	else
	{
		l = palloc(sizeof(Later));
		*l = (Later){
			.entry = entry,
			.kind = kind,
			.name = pstrdup(name),
			.generation = generation,
			.uuid_hi = event->session,
			.action = *action,
		};
		Assert(action->name == NULL); /* it would be the event's */
		later = lappend(later, l);
	}
}

/* Tell a set that one of its queues has changed. */
static void
touch_set(uint64 set, const ZkLockActions *actions)
{
	bool news = false;

	if (set == 0)
		return;
	for (int i = 0; i < actions->n; i++)
		news |= actions->action[i].type == ZKLOCK_ACT_BLOCKED ||
			actions->action[i].type == ZKLOCK_ACT_FAILED;
	zklock_set_worker_touch(set, news);
}

static void
note_absent(const ZkLockAction *action)
{
	absent[nabsent % MAX_ABSENT].uuid = action->uuid;
	absent[nabsent++ % MAX_ABSENT].sequence = action->sequence;
}

/* A child of this session. */
static bool
is_absent(const ZkLockChild *child)
{
	for (uint32 i = 0; i < Min(nabsent, MAX_ABSENT); i++)
	{
		if (child->uuid_lo == absent[i].uuid && child->sequence == absent[i].sequence)
			return true;
	}
	return false;
}

/* The ZooKeeper server has a contender of ours that its leader does not have.  Once is
 * enough. */
static void
warn_of_strayed(ZkLockKind kind, const char *name, const char *child)
{
	char server[sizeof(zklock_shared->session.server)];
	char *path;

	if (strayed_said)
		return;
	strayed_said = true;
	path = zklock_path_name(kind, name, child);
	zklock_client_server(zklock_session_client(), server, sizeof(server));
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("ZooKeeper server %s has a znode that its leader does not have", server),
			 errdetail("It is \"%s\".", path),
			 errhint(
				 "While the other servers of the ensemble are a majority and run, stop this ZooKeeper server, remove its data, and start it again.")));
	zklock_trouble_again(false,
						 "ZooKeeper server %s has a znode that its leader does not have",
						 server);
	pfree(path);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

/* Has the entry got the event of this connection?  If not, it will get it, and look
 * then. */
static bool
has_heard(const ZkLockEntry *entry)
{
	return all_next < 0 || all_event == ZKLOCK_EV_TICK ||
		zklock_entry_index(entry) < all_next;
}

static void step(ZkLockEntry *entry, uint32 generation, ZkLockEvent *event);

static const ZkFeeder feeder = {
	.step = step,
	.has_heard = has_heard,
};

/*
 * Feed one event to an entry.  "generation" is the generation that the event is meant
 * for, 0 for any.  If the event changes what the entry needs, the worker feeds that
 * change later, as if a backend had made it: the list of dirty entries outlives the
 * worker.
 */
static void
step(ZkLockEntry *entry, uint32 generation, ZkLockEvent *event)
{
	ZkLockActions actions;
	ZkLockQueue before;
	ZkPlaceNews places = {0};
	char name[ZKLOCK_NAME_MAX + 1];
	char shown[ZKLOCK_ENCODED_MAX + 1];
	bool lost;
	ZkLockKind kind;
	ZkElectionNews news;
	ZkLockSuccession succession = ZKLOCK_NO_SUCCESSION;
	uint64 set;
	int pid;
	LWLock *lock;

	Assert(zklock_in_worker());
	lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (lock == NULL)
		return;
	if (generation != 0 && generation != entry->generation)
	{
		zklock_entry_unlock(lock);
		return; /* the one it was meant for is history */
	}
	complete_event(entry, event);
	if (zklock_kinds[entry->kind].by_session)
		before = entry->queue;
	zklock_step(&entry->queue, event, &actions);
	/* a listing is shown to others first, see dispatch_listing */
	if (zklock_kinds[entry->kind].by_session && event->type != ZKLOCK_EV_LISTED &&
		event->type != ZKLOCK_EV_SEEN)
		zklock_semaphore_note(&feeder, entry, &before, &actions, &places);
	lost = tell_table(entry, event, &actions);
	if (zklock_kinds[entry->kind].by_server)
		zklock_election_step(entry, event, &actions, &news);
	zklock_reporter_note(entry);
	tick_wanted |= wants_tick(entry);
	proof_due |= zklock_lock_queue_wants_proof(&entry->queue);
	if (zklock_lock_queue_empty(&entry->queue))
		succession = entry->queue.succession;
	generation = entry->generation;
	kind = (ZkLockKind) entry->kind;
	set = entry->queue.set[ZKLOCK_SHARED] != 0 ? entry->queue.set[ZKLOCK_SHARED]
											   : entry->queue.set[ZKLOCK_EXCLUSIVE];
	pid = entry->last_pid;
	strlcpy(name, entry->name, sizeof(name));
	zklock_entry_release(entry);
	zklock_entry_unlock(lock);

	if (succession.watched)
		zklock_succession_remember(name, &succession);
	if (zklock_kinds[kind].by_server)
		zklock_election_announce(name, &news);
	else if (lost)
		ereport(LOG,
				(errmsg("%s \"%s\" was lost while held", zklock_kinds[kind].held,
						zklock_log_name(name, shown)),
				 event->type == ZKLOCK_EV_SESSION_LOST
					 ? errdetail("The ZooKeeper session ended.")
					 : errdetail("Its contender in ZooKeeper is gone.")));
	for (int i = 0; i < actions.n; i++)
	{
		if (zklock_action_is_request(actions.action[i].type))
			perform(entry, kind, name, pid, generation, event, &actions.action[i]);
		else if (actions.action[i].type == ZKLOCK_ACT_ABSENT)
			note_absent(&actions.action[i]);
	}
	touch_set(set, &actions);
	zklock_semaphore_tell(&feeder, &places);
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
feed_all(void)
{
	/*
	 * The end of a connection makes no requests.  It reaches everybody before anything
	 * else does: events and replies of the next one then find nobody who believes in
	 * what he knew by the last.
	 */
	bool at_once =
		all_event == ZKLOCK_EV_DISCONNECTED || all_event == ZKLOCK_EV_SESSION_LOST;

	while (all_next >= 0 && (at_once || !zklock_session_busy()))
	{
		ZkLockEntry *entry = zklock_entry(all_next);
		ZkLockEvent event = {.type = all_event};

		/*
		 * Unlocked: an entry that comes into use meanwhile learns of the
		 * connection when its first need is fed.
		 */
		if (entry->in_use && (all_event != ZKLOCK_EV_TICK || wants_tick(entry)))
			step(entry, 0, &event);
		if (++all_next >= zklock_entries_end())
			all_next = -1;
	}
}

static void
work_on_dirty(void)
{
	int32 index;

	feed_all();
	while (all_next < 0 && !zklock_session_busy() &&
		   (index = zklock_table_next_dirty()) >= 0)
	{
		ZkLockEvent event = {.type = ZKLOCK_EV_NEED};

		step(zklock_entry(index), 0, &event);
	}
	/* while an event is on its way a tick goes nowhere */
	if (proof_due && all_next < 0)
	{
		proof_due = false;
		pg_atomic_write_u32(&zklock_shared->write_wanted, 1);
	}
}

/* Create a set's contenders.  In this one step all its queues ask for their creation,
 * and for the reads that follow it. */
static void
send_set(const ZkSetWork *work)
{
	ListCell *cell;
	ZkClient *client = zklock_session_client();

	Assert(client != NULL);
	for (int i = 0; i < work->n; i++)
	{
		ZkLockEvent event = {.type = ZKLOCK_EV_JOINTLY, .mode = work->mode};

		step(zklock_entry(work->member[i].entry), work->member[i].generation, &event);
	}
	zklock_ensemble_remind(client);
	zklock_session_sent(zklock_set_worker_send(client));
	foreach (cell, later)
	{
		const Later *l = lfirst(cell);

		send_request(l->entry, l->kind, l->name, 0, l->generation, l->uuid_hi, &l->action);
	}
	list_free_deep(later);
	later = NIL;
}

static void
work_on_sets(void)
{
	ZkSetWork work;

	while (all_next < 0 && zklock_session_client() != NULL && !zklock_session_busy() &&
		   zklock_set_worker_next(&work))
		send_set(&work);
}

static void
on_event(ZkLockEventType type)
{
	/* A tick is nothing beside the rest, and mostly for nobody. */
	if (type == ZKLOCK_EV_TICK)
	{
		if (all_next >= 0 || !tick_wanted)
			return;
		tick_wanted = false; /* who goes on wanting one says so */
	}

	/* A process that ended has told nobody of the end of its connection. */
	if (type == ZKLOCK_EV_RESUMED)
	{
		on_event(ZKLOCK_EV_DISCONNECTED);
		resume_due = false;
	}

	/*
	 * Any other event overtakes one that has not reached all entries: an entry
	 * that missed a connection need not hear of its end.  Only our start must
	 * not be missed, since it annuls the predecessor's requests; the next
	 * connection does that instead.
	 */
	if (all_next >= 0 && all_event == ZKLOCK_EV_RESUMED)
		resume_due = true;
	if (type == ZKLOCK_EV_SESSION_LOST)
		resume_due = false;
	else if (type == ZKLOCK_EV_CONNECTED && resume_due)
	{
		type = ZKLOCK_EV_RESUMED;
		resume_due = false;
	}
	if (type != ZKLOCK_EV_TICK)
	{
		zklock_succession_forget_all();
		nabsent = 0;
		strayed_said = false;
	}
	if (type == ZKLOCK_EV_SESSION_LOST || type == ZKLOCK_EV_RESUMED)
		zklock_set_worker_forget();
	all_event = type;
	all_next = 0;
	feed_all();
	/* all have heard of the end of their grants, before there is another lease */
	Assert(all_next < 0 ||
		   (type != ZKLOCK_EV_SESSION_LOST && type != ZKLOCK_EV_DISCONNECTED));
}

static bool
is_held(const ZkLockEntry *entry)
{
	return entry->held[ZKLOCK_SHARED] > 0 || entry->held[ZKLOCK_EXCLUSIVE] > 0;
}

bool
zklock_dispatch_holds(void)
{
	return zklock_table_any(is_held);
}

/* Is the entry in use by a session?  A run's job that was left to the server is not. */
static bool
is_in_use(const ZkLockEntry *entry)
{
	zklock_foreach_proclock (proclock, entry)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost && proclock->pid != 0)
			return true;
	}
	return false;
}

bool
zklock_dispatch_sessions_hold(void)
{
	return zklock_table_any(is_in_use);
}

static bool
contends(const ZkLockEntry *entry)
{
	return !zklock_kinds[entry->kind].by_server && !zklock_lock_queue_empty(&entry->queue);
}

bool
zklock_dispatch_contends(void)
{
	return zklock_table_any(contends);
}

/* The entry that a request was made for, or NULL if that entry is gone. */
static ZkLockEntry *
tagged_entry(const ZkRequestTag *tag)
{
	ZkLockEntry *entry;

	if (tag->entry >= (uint32) zklock_shared->nentries)
		return NULL;
	entry = zklock_entry((int32) tag->entry);
	/* only an entry with an empty queue is freed by others than us */
	if (!entry->in_use || entry->generation != tag->generation)
		return NULL;
	return entry;
}

static void
dispatch_listing(const ZkMessage *message, ZkLockEntry *entry, ZkLockEvent *event)
{
	ZkLockChild *children = palloc(sizeof(ZkLockChild) * Max(message->nchildren, 1));

	for (int i = 0; i < message->nchildren; i++)
	{
		ZkLockChild *child = &children[event->nchildren];

		if (!zklock_parse_child(message->children[i], child))
			continue;
		if (nabsent > 0 && child->uuid_hi == zklock_shared->session.uuid_hi &&
			is_absent(child))
			warn_of_strayed((ZkLockKind) entry->kind, entry->name, message->children[i]);
		else
			event->nchildren++;
	}
	event->children = children;
	event->next_number = message->ncreated;
	event->changed = zklock_ensemble_token(message->zxid);
	if (zklock_kinds[entry->kind].by_session)
		zklock_semaphore_listed(&feeder, entry, message->tag.generation, event, children);
	else
		step(entry, message->tag.generation, event);
	pfree(children);
}

/* Does a contender of this server wait for this child?  It watches the one before it,
 * too. */
static bool
waits_for(const ZkLockEntry *entry, uint64 hash)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (entry->queue.contender[i].state == ZKLOCK_WAITING &&
			entry->queue.contender[i].blocker == hash)
			return true;
	}
	return false;
}

/* Remember whom a contender of this server waits for, for errors that end the wait.
 * The reply to the get that sets the watch names its server. */
static void
note_blocker(ZkLockEntry *entry, const ZkMessage *message)
{
	char *server = palloc((Size) message->datalen + 1);
	LWLock *lock;

	if (!zklock_json_field(message->data, (size_t) message->datalen, "server", server))
		server[0] = '\0';
	lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (lock != NULL && waits_for(entry, message->tag.hash))
	{
		entry->blocker = message->tag.hash;
		strlcpy(entry->blocker_server, server, NAMEDATALEN);
		entry->blocker_server[zklock_clip_utf8(entry->blocker_server,
											   strlen(entry->blocker_server))] = '\0';
	}
	if (lock != NULL)
		zklock_entry_unlock(lock);
	pfree(server);
}

/* Feed an event of the directory or of a child to the entries that it concerns. */
static void
step_name(ZkLockKind kind, const char *name, const ZkLockEvent *event)
{
	ZkLockEntry *entry;
	ZkLockEvent copy = *event;

	if (zklock_kinds[kind].by_session)
		zklock_semaphore_changed(&feeder, name, event);
	else if ((entry = zklock_table_find(kind, name)) != NULL)
		step(entry, 0, &copy);
}

/* The watch on a directory's children has fired, or the watch on the directory, or
 * both. */
static void
dispatch_dir_watch(ZkLockKind kind, const char *name, bool children, bool data)
{
	ZkLockEvent gone = {.type = ZKLOCK_EV_DIR_GONE};
	ZkLockEvent changed = {.type = ZKLOCK_EV_DIR_CHANGED};

	if (data)
	{
		if (kind == ZKLOCK_KIND_LOCK)
			zklock_succession_forget(name);
		if (!zklock_kinds[kind].by_session) /* which watch no data of it */
			step_name(kind, name, &gone);
	}
	if (children)
		step_name(kind, name, &changed);
}

/* Handle a watch.  No other agent has a watch on such a path. */
static bool
on_watch(const ZkWatch *watch)
{
	ZkLockChild parsed;
	ZkLockEvent event = {0};

	if (watch->child == NULL)
	{
		dispatch_dir_watch(watch->kind, watch->name, watch->children, watch->data);
		return true;
	}
	event.type = watch->message == ZKLOCK_MSG_NODE_DELETED ? ZKLOCK_EV_NODE_DELETED
														   : ZKLOCK_EV_NODE_CHANGED;
	event.name = watch->child;
	event.hash = zklock_hash_child(watch->child);
	if (zklock_parse_child(watch->child, &parsed) &&
		parsed.uuid_hi == zklock_shared->session.uuid_hi)
		event.uuid = parsed.uuid_lo;
	step_name(watch->kind, watch->name, &event);
	return true;
}

void
zklock_dispatch_removal(ZkLockKind kind, const char *name, const char *child)
{
	ZkLockEvent event = {.type = ZKLOCK_EV_REMOVE};
	ZkLockChild parsed;

	if (!zklock_parse_child(child, &parsed) ||
		parsed.uuid_hi != zklock_shared->session.uuid_hi)
		return;
	event.hash = parsed.hash; /* by which a permit's place is found */
	event.uuid = parsed.uuid_lo;
	step_name(kind, name, &event);
}

static void
note_refusal(ZkLockEntry *entry, const ZkMessage *message)
{
	char shown[ZKLOCK_ENCODED_MAX + 1];

	/* a candidacy is tried again and again: say it once */
	zklock_trouble_again(!zklock_kinds[entry->kind].by_server ||
							 entry->last_rc != message->rc,
						 "ZooKeeper refused a request for %s \"%s\": %s",
						 zklock_kinds[entry->kind].name,
						 zklock_log_name(entry->name, shown), zklock_rc_text(message->rc));
	entry->last_rc = message->rc; /* goes to the proclocks with a FAILED */
}

/* Feed the reply of a set's transaction to each queue, as if each part had been
 * requested alone. */
static void
dispatch_set(const ZkMessage *message)
{
	ZkSetMember what;
	ZkLockEvent event;

	while (zklock_set_worker_reply(message, &what, &event))
	{
		ZkLockEntry *entry = zklock_entry(what.entry);

		if (event.rc == ZKLOCK_RC_ERROR && entry->in_use &&
			entry->generation == what.generation)
			note_refusal(entry, message);
		step(entry, what.generation, &event);
	}
}

/* Take the sequence number of the contender that was created. */
static void
take_created(const ZkMessage *message, ZkLockEvent *event)
{
	const char *child = message->path ? strrchr(message->path, '/') : NULL;
	ZkLockChild parsed;

	if (child != NULL && zklock_parse_child(child + 1, &parsed))
		event->sequence = parsed.sequence;
	else
		event->rc = ZKLOCK_RC_LOST; /* exists, but where? settle it */
}

static void
on_message(const ZkMessage *message)
{
	ZkLockEntry *entry;
	ZkLockEvent event = {0};

	if (message->tag.kind == ZKLOCK_TAG_SET)
	{
		dispatch_set(message);
		return;
	}
	if (message->tag.path != 0 && message->rc != ZKLOCK_ZOK)
		zklock_watch_gone(message->tag.path);
	if (message->tag.kind == ZKLOCK_TAG_NONE)
	{
		if (zklock_reply_rc(message->rc) == ZKLOCK_RC_ERROR)
			zklock_trouble_refused(message);
		return;
	}
	if ((entry = tagged_entry(&message->tag)) == NULL)
		return;

	event.rc = zklock_reply_rc(message->rc);
	event.uuid = message->tag.uuid;
	event.hash = message->tag.hash;
	event.token = zklock_ensemble_token(message->czxid);
	event.owned = message->ephemeral_owner == zklock_shared->session.id.id;
	if (event.rc == ZKLOCK_RC_ERROR)
		note_refusal(entry, message);

	switch ((ZkTagKind) message->tag.kind)
	{
		case ZKLOCK_TAG_MAKE_DIR:
			event.type = ZKLOCK_EV_MADE_DIR;
			break;
		case ZKLOCK_TAG_WATCH_DIR:
			event.type = ZKLOCK_EV_WATCHED_DIR;
			break;
		case ZKLOCK_TAG_CREATE:
			event.type = ZKLOCK_EV_CREATED;
			if (event.rc == ZKLOCK_RC_OK)
				take_created(message, &event);
			break;
		case ZKLOCK_TAG_LIST:
			event.type = ZKLOCK_EV_LISTED;
			event.list = message->tag.hash;
			dispatch_listing(message, entry, &event);
			return;
		case ZKLOCK_TAG_WATCH_OWN:
			event.type = ZKLOCK_EV_WATCHED_OWN;
			break;
		case ZKLOCK_TAG_WATCH:
			event.type = ZKLOCK_EV_WATCHED;
			event.marked = event.rc == ZKLOCK_RC_OK && message->version > 0;
			if (event.rc == ZKLOCK_RC_OK)
			{
				zklock_watch_confirm(message->tag.path);
				note_blocker(entry, message);
			}
			break;
		case ZKLOCK_TAG_MARK:
			event.type = ZKLOCK_EV_MARKED;
			break;
		case ZKLOCK_TAG_DELETE:
			event.type = ZKLOCK_EV_DELETED;
			break;
		default:
			return;
	}
	step(entry, message->tag.generation, &event);
}

static long
work(void)
{
	work_on_dirty();
	work_on_sets();
	return -1;
}

static bool
ask(ZkAgentAsk what)
{
	switch (what)
	{
		case ZKLOCK_AGENT_WANTS:
			return zklock_table_proclocks() > 0;
		case ZKLOCK_AGENT_HOLDS:
		case ZKLOCK_AGENT_BUSY:
			return zklock_dispatch_holds();
		case ZKLOCK_AGENT_TICKS:
			return tick_wanted || all_next >= 0;
		default:
			return false;
	}
}

const ZkAgent zklock_lock_agent = {
	.event = on_event,
	.message = on_message,
	.watch = on_watch,
	.work = work,
	.ask = ask,
};
