/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Between the lock table and the session: events in, actions out.
 *
 * Runs in the worker only.  A step of an entry's protocol happens under the
 * entry's partition lock, and what it tells the table (granted, revoked,
 * failed) takes effect in the same hold of the lock.  Requests to the ensemble
 * are sent after the lock is released; the uuids they carry are in shared
 * memory by then, so that a successor of this process can settle what it
 * finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/json.h"

#include "election.h"
#include "settings.h"
#include "stat.h"
#include "worker.h"

/* What a request was for; ZkRequestTag.kind. */
typedef enum RequestKind
{
	REQUEST_OTHER, /* nobody waits for the reply */
	REQUEST_MAKE_DIR,
	REQUEST_CREATE,
	REQUEST_LIST, /* tag.hash is the listing's number */
	REQUEST_WATCH_OWN,
	REQUEST_WATCH,
	REQUEST_DELETE
} RequestKind;

#define PATH_MAX_LEN 2048

/*
 * With this many requests open we make no new ones until replies have come.  A
 * step makes a few, so this stays well below ZKLOCK_MAX_PENDING.
 */
#define ENOUGH_PENDING (ZKLOCK_MAX_PENDING / 4)

/*
 * On a new connection the library sets all watches in one packet, and the
 * ensemble drops a connection that sends more than jute.maxbuffer (1 MB): the
 * worker would then reconnect for ever.  Beyond this many bytes of watched
 * paths grants go without a watch; waiters, one a backend, have the rest.
 */
#define ENOUGH_WATCHED (512 * 1024)
#define FULL_WATCHED   (896 * 1024) /* ... waiters, too, look now and then instead */

/* Paths with a watch in the present client, by hash.  NULL: none yet. */
static HTAB *watched = NULL;
static int watched_for; /* zklock_session_opened() of that client */
static size_t watched_bytes;

typedef struct WatchedPath
{
	uint64 hash; /* key */
	size_t bytes;
} WatchedPath;

/* A session event on its way through the entries; see zklock_dispatch_all. */
static ZkLockEventType all_event;
static int all_next = -1;		/* the next entry to feed, -1: none */
static bool tick_wanted = true; /* by some entry, perhaps */
static bool resume_due = false; /* RESUMED was overtaken */

/* A name for the log: encoded if it is in a namespace.  "buf" as for encoding. */
static const char *
log_name(const char *name, char *buf)
{
	if (zklock_local_name(name) == name)
		return name;
	zklock_encode_name(name, buf);
	return buf;
}

static uint64
hash_path(const char *path)
{
	return hash_bytes_extended((const unsigned char *) path, (int) strlen(path), 0);
}

/* A watch is set on a path.  Returns the path's hash. */
static uint64
watch_set(const char *path)
{
	uint64 hash = hash_path(path);
	WatchedPath *w;
	bool found;

	if (watched == NULL || watched_for != zklock_session_opened())
	{
		HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(WatchedPath)};

		if (watched != NULL)
			hash_destroy(watched);
		watched = hash_create("zklock watches", 1024, &ctl, HASH_ELEM | HASH_BLOBS);
		watched_for = zklock_session_opened();
		watched_bytes = 0;
	}
	w = hash_search(watched, &hash, HASH_ENTER, &found);
	if (!found)
	{
		w->bytes = strlen(path) + 4; /* as serialized */
		watched_bytes += w->bytes;
	}
	return hash;
}

/* It has fired, or was not set after all. */
static void
watch_gone(uint64 hash)
{
	WatchedPath *w;

	if (watched == NULL || watched_for != zklock_session_opened())
		return;
	w = hash_search(watched, &hash, HASH_FIND, NULL);
	if (w != NULL)
	{
		watched_bytes -= w->bytes;
		hash_search(watched, &hash, HASH_REMOVE, NULL);
	}
}

/* ------------------------------------------------------------------------
 * Actions
 * ------------------------------------------------------------------------
 */

/* <root>/locks/<encoded name> or the like of an election, or that and a child. */
static void
name_path(char *buf, ZkLockKind kind, const char *name, const char *child)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];

	zklock_encode_name(name, encoded);
	snprintf(buf, PATH_MAX_LEN, "%s/%s%s%s", zklock_session_directory(kind), encoded,
			 child ? "/" : "", child ? child : "");
}

/* The same of our own contender; "sequence" below 0: as for its creation. */
static void
contender_path(char *buf, ZkLockKind kind, const char *name, const ZkLockAction *action,
			   uint64 uuid_hi, bool create)
{
	char child[ZKLOCK_CONTENDER_LEN + 16];

	zklock_format_contender(child, uuid_hi, action->uuid, kind, action->mode);
	if (!create)
		snprintf(child + strlen(child), 16, "%010d", (int) action->sequence);
	name_path(buf, kind, name, child);
}

void
zklock_describe_server(StringInfo buf, int pid)
{
	static char host[256] = "";
	char server[256];

	zklock_effective_server_name(server, sizeof(server));
	if (host[0] == '\0' && gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	initStringInfo(buf);
	appendStringInfoString(buf, "{\"server\": ");
	escape_json(buf, server);
	appendStringInfoString(buf, ", \"host\": ");
	escape_json(buf, host);
	appendStringInfo(buf, ", \"pid\": %d}", pid);
}

/* A contender's data.  In an election it is the name of the candidate, as other
 * programs (Curator's LeaderLatch) have it. */
static void
describe_contender(StringInfo buf, ZkLockKind kind, int pid)
{
	if (kind == ZKLOCK_KIND_ELECTION)
	{
		char server[256];

		zklock_effective_server_name(server, sizeof(server));
		initStringInfo(buf);
		appendStringInfoString(buf, server);
	}
	else
		zklock_describe_server(buf, pid);
}

/*
 * Make the lock directory.  At the second attempt in a row its ancestors have
 * vanished, too.
 */
static void
send_make_dir(ZkClient *client, const char *path, const ZkLockAction *action,
			  const ZkRequestTag *tag)
{
	if (action->attempt > 1)
		zklock_session_make_directories();
	(void) zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_CONTAINER, tag);
}

/*
 * The library took the request, or the session is at its end and so are all
 * requests.  Otherwise (out of memory) the protocol would wait for a reply that
 * never comes: our successor settles what we leave.
 */
static void
check_sent(int rc)
{
	if (rc != ZKLOCK_ZOK && zklock_client_connected(zklock_session_client()))
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not send a request to ZooKeeper: %s",
						zklock_client_strerror(rc))));
}

static void
send_request(const ZkLockEntry *entry, ZkLockKind kind, const char *name, int pid,
			 uint32 generation, uint64 uuid_hi, const ZkLockAction *action)
{
	ZkClient *client = zklock_session_client();
	char path[PATH_MAX_LEN];
	ZkRequestTag tag = {
		.entry = (uint32) zklock_entry_index(entry),
		.generation = generation,
		.uuid = action->uuid,
		.hash = action->hash,
	};

	if (client == NULL)
		return; /* its replies are annulled with it */

	switch (action->type)
	{
		case ZKLOCK_ACT_MAKE_DIR:
			tag.kind = REQUEST_MAKE_DIR;
			name_path(path, kind, name, NULL);
			send_make_dir(client, path, action, &tag);
			break;

		case ZKLOCK_ACT_CREATE:
		{
			StringInfoData data;

			tag.kind = REQUEST_CREATE;
			tag.patient = true; /* a listing follows it */
			contender_path(path, kind, name, action, uuid_hi, true);
			describe_contender(&data, kind, pid);
			check_sent(zklock_client_create(client, path, data.data, data.len,
											ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL, &tag));
			pfree(data.data);
			break;
		}

		case ZKLOCK_ACT_LIST:
			tag.kind = REQUEST_LIST;
			tag.hash = action->list;
			name_path(path, kind, name, NULL);
			if (action->sync)
			{
				ZkRequestTag other = {.kind = REQUEST_OTHER};

				(void) zklock_client_sync(client, zklock_session_directory(kind), &other);
			}
			if (action->watch)
				tag.path = watch_set(path);
			check_sent(zklock_client_list(client, path, action->watch, &tag));
			break;

		case ZKLOCK_ACT_WATCH_OWN:
			tag.kind = REQUEST_WATCH_OWN;
			contender_path(path, kind, name, action, uuid_hi, false);
			tag.path = watch_set(path);
			check_sent(zklock_client_get(client, path, true, &tag));
			break;

		case ZKLOCK_ACT_WATCH:
			tag.kind = REQUEST_WATCH;
			name_path(path, kind, name, action->name);
			tag.path = watch_set(path);
			check_sent(zklock_client_get(client, path, true, &tag));
			break;

		case ZKLOCK_ACT_DELETE:
			tag.kind = REQUEST_DELETE;
			tag.patient = true; /* nobody waits for it */
			contender_path(path, kind, name, action, uuid_hi, false);
			check_sent(zklock_client_delete(client, path, &tag));
			break;

		case ZKLOCK_ACT_DELETE_ORPHAN:
			tag.kind = REQUEST_OTHER;
			name_path(path, kind, name, action->name);
			ereport(LOG, (errmsg("deleting orphaned contender \"%s\"", path)));
			(void) zklock_client_delete(client, path, &tag);
			break;

		case ZKLOCK_ACT_GRANTED:
		case ZKLOCK_ACT_BLOCKED:
		case ZKLOCK_ACT_DEMANDED:
		case ZKLOCK_ACT_REVOKED:
		case ZKLOCK_ACT_FAILED:
			pg_unreachable();
	}
}

/*
 * May a grant of this name be kept when nobody uses it?  Not if that was of no use
 * the last time, because another server wanted the lock first, until this server
 * has had it three times in a row since.
 */
static bool
may_keep(const ZkLockEntry *entry)
{
	const ZkLockHint *hint = zklock_entry_hint(entry);

	return entry->kind == ZKLOCK_KIND_LOCK && zklock_cache_time > 0 &&
		zklock_cache_size > 0 && (!hint->bounced || hint->streak >= 2);
}

/* Was nobody else in the queue when we last were? */
static bool
was_alone(const ZkLockEntry *entry)
{
	const ZkLockHint *hint = zklock_entry_hint(entry);

	return entry->kind == ZKLOCK_KIND_LOCK && (hint->sequence < 0 || hint->streak > 0);
}

static void
note_contender(const ZkLockEntry *entry, int64 sequence)
{
	ZkLockHint *hint = zklock_entry_hint(entry);

	/* the directory counts the contenders, from 0 when it is new */
	if (sequence != hint->sequence + 1 && sequence != 0)
		hint->streak = 0;
	else if (hint->streak < UINT8_MAX)
		hint->streak++;
	hint->sequence = (int32) sequence;
}

/* Somebody else wants a grant on which so many holds have been taken. */
static void
note_demand(const ZkLockEntry *entry, uint32 holds)
{
	ZkLockHint *hint = zklock_entry_hint(entry);

	hint->bounced = holds < 3;
	hint->streak = 0;
}

/* Tell the table.  With the entry locked.  True if demand must be fed again. */
static bool
apply_to_table(ZkLockEntry *entry, const ZkLockAction *action, bool keep)
{
	ZkLockMode mode = action->mode;
	ZkLockGrant *grant = &entry->grant[mode];
	bool again = false;

	switch (action->type)
	{
		case ZKLOCK_ACT_GRANTED:
			grant->token = action->token;

			/*
			 * Tokens of this server's holders must not go back either: a fence may
			 * have seen the larger one.  A reader that comes after our writer is
			 * given the writer's; that is no lie, since whoever is granted the lock
			 * after the writer has a larger one.  The other way round it would be,
			 * for readers elsewhere may stand between the two: an older grant for
			 * writers goes.  (Mostly it has gone, because our new contender made it
			 * look demanded.)
			 */
			if (mode == ZKLOCK_SHARED && entry->grant[ZKLOCK_EXCLUSIVE].usable &&
				entry->grant[ZKLOCK_EXCLUSIVE].token < grant->token)
			{
				entry->grant[ZKLOCK_EXCLUSIVE].usable = false;
				again = true;
			}
			entry->grant[ZKLOCK_SHARED].token = Max(entry->grant[ZKLOCK_SHARED].token,
													entry->grant[ZKLOCK_EXCLUSIVE].token);
			grant->keep = keep;
			/* one for writers that may not be kept is handed over as if it were wanted */
			grant->demanded = action->demanded || (!keep && mode == ZKLOCK_EXCLUSIVE);
			grant->holds = 0;
			/* all who wait now, or as many as if they had come one by one */
			grant->handoffs = Max(zklock_handoff_limit + 1, entry->want[mode]);
			grant->usable = entry->want[mode] > 0 || zklock_election_stands(entry) ||
				(keep && !grant->demanded);
			if (keep && grant->demanded)
				note_demand(entry, 0);
			if (zklock_entry_hint(entry)->blocked)
				zklock_stat_add(entry, ZKLOCK_STAT_HANDOVERS, 1);
			zklock_entry_hint(entry)->blocked = false;
			/* if everybody has gone and it is not to be kept, give it back */
			return zklock_entry_settle(entry) || !grant->usable || again;

		case ZKLOCK_ACT_DEMANDED:
			zklock_stat_add(entry, ZKLOCK_STAT_DEMANDS, 1);
			if (!grant->demanded)
				grant->handoffs = zklock_handoff_limit;
			grant->demanded = true;
			if (grant->handoffs == 0)
				grant->usable = false;
			if (keep)
				note_demand(entry, grant->holds);
			return zklock_entry_settle(entry) || !grant->usable;

		case ZKLOCK_ACT_BLOCKED:
			/* zk_try_lock looks at the queue, too */
			zklock_entry_hint(entry)->blocked = true;
			for (int32 i = entry->requests; i >= 0; i = zklock_request(i)->next)
			{
				ZkLockRequest *request = zklock_request(i);

				if (request->mode == mode && request->state == ZKLOCK_REQUEST_WANTED &&
					request->heard)
					request->blocked = true;
			}
			return false;

		case ZKLOCK_ACT_REVOKED:
			grant->usable = false;
			(void) zklock_entry_settle(entry);
			zklock_stat_add(entry, ZKLOCK_STAT_LOSSES, entry->held[mode]);
			entry->held[mode] = 0;
			for (int32 i = entry->requests; i >= 0; i = zklock_request(i)->next)
			{
				ZkLockRequest *request = zklock_request(i);

				if (request->mode == mode && request->state == ZKLOCK_REQUEST_HELD)
				{
					request->lost = true;
					*zklock_loss_flag(request->proc_number) = 1;
				}
			}
			return true;

		case ZKLOCK_ACT_FAILED:
			entry->want[mode] = 0;
			for (int32 i = entry->requests; i >= 0; i = zklock_request(i)->next)
			{
				ZkLockRequest *request = zklock_request(i);

				if (request->mode == mode && request->state == ZKLOCK_REQUEST_WANTED &&
					!request->failed)
				{
					request->failed = true;
					request->failure = (uint8) action->failure;
					request->failure_rc = entry->last_rc;
				}
			}
			return false;

		default:
			pg_unreachable();
	}
}

/* Would a TICK do anything?  Read without the lock: the worker writes all of it, but
 * for an election's "failed", which a backend resets when it asks anew. */
static bool
wants_tick(const ZkLockEntry *entry)
{
	return zklock_queue_wants_tick(&entry->queue) ||
		(entry->kind == ZKLOCK_KIND_ELECTION && entry->election.failed);
}

/*
 * Feed one event to an entry; "generation" is the one it is meant for, 0 for
 * whichever it is.  What the event makes of the demand is fed later, as if by a
 * backend: the list of dirty entries outlives us.
 */
static void
step(ZkLockEntry *entry, uint32 generation, ZkLockEvent *event)
{
	ZkLockActions actions;
	char name[ZKLOCK_NAME_MAX + 1];
	char shown[ZKLOCK_ENCODED_MAX + 1];
	bool changed = false;
	bool lost = false;
	ZkLockKind kind;
	ZkElectionNews news;
	int pid;
	LWLock *lock;

	/* The worker alone writes these, so it may read them without the lock. */
	uint64 uuid_hi = zklock_shared->session.uuid_hi;

	lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (lock == NULL)
		return;
	if (generation != 0 && generation != entry->generation)
	{
		LWLockRelease(lock);
		return; /* the one it was meant for is history */
	}
	if (event->type == ZKLOCK_EV_DEMAND)
	{
		if (zklock_queue_idle(&entry->queue))
			entry->queue.connected = zklock_session_client() != NULL;
		zklock_entry_demand(entry, event);
	}
	event->session = uuid_hi;
	if (event->type == ZKLOCK_EV_CREATED && event->rc == ZKLOCK_RC_OK)
		note_contender(entry, event->sequence);
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		event->held[mode] = entry->held[mode] > 0;
	if (watched_for == zklock_session_opened())
	{
		event->spare_watches = watched_bytes > ENOUGH_WATCHED;
		event->no_watches = watched_bytes > FULL_WATCHED;
	}
	event->keep = !event->spare_watches && may_keep(entry);
	event->alone = was_alone(entry);
	event->fresh_uuid = zklock_shared->session.next_uuid;
	zklock_shared->session.next_uuid += ZKLOCK_NCONTENDERS;
	zklock_step(&entry->queue, event, &actions);
	for (int i = 0; i < actions.n; i++)
	{
		if (actions.action[i].type < ZKLOCK_ACT_GRANTED)
			continue;
		if (actions.action[i].type == ZKLOCK_ACT_REVOKED)
			lost |= entry->held[actions.action[i].mode] > 0;
		if (apply_to_table(entry, &actions.action[i], event->keep))
			zklock_entry_set_dirty(entry);
		changed = true;
	}
	if (entry->kind == ZKLOCK_KIND_ELECTION)
		zklock_election_step(entry, event, &actions, &news);
	tick_wanted |= wants_tick(entry);
	generation = entry->generation;
	kind = (ZkLockKind) entry->kind;
	pid = entry->last_pid;
	strlcpy(name, entry->name, sizeof(name));
	if (changed)
		ConditionVariableBroadcast(&entry->cv);
	zklock_entry_release(entry);
	LWLockRelease(lock);

	if (kind == ZKLOCK_KIND_ELECTION)
		zklock_election_announce(name, &news);
	else if (lost)
		ereport(LOG,
				(errmsg("lock \"%s\" was lost while held", log_name(name, shown)),
				 event->type == ZKLOCK_EV_SESSION_LOST
					 ? errdetail("The ZooKeeper session ended.")
					 : errdetail("Its contender in ZooKeeper is gone.")));
	for (int i = 0; i < actions.n; i++)
	{
		if (actions.action[i].type < ZKLOCK_ACT_GRANTED)
			send_request(entry, kind, name, pid, generation, uuid_hi, &actions.action[i]);
	}
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static bool
enough_pending(void)
{
	ZkClient *client = zklock_session_client();

	return client != NULL && zklock_client_pending(client) > ENOUGH_PENDING;
}

static void
feed_all(void)
{
	while (all_next >= 0 && !enough_pending())
	{
		ZkLockEntry *entry = zklock_entry(all_next);
		ZkLockEvent event = {.type = all_event};

		/*
		 * Unlocked: an entry that comes into use meanwhile learns of the
		 * connection when its first demand is fed.
		 */
		if (entry->in_use && (all_event != ZKLOCK_EV_TICK || wants_tick(entry)))
			step(entry, 0, &event);
		if (++all_next == zklock_shared->nentries)
			all_next = -1;
	}
}

bool
zklock_dispatch_dirty(void)
{
	int32 index;

	feed_all();
	while (!enough_pending())
	{
		ZkLockEvent event = {.type = ZKLOCK_EV_DEMAND};

		if ((index = zklock_table_next_dirty()) < 0)
			return all_next < 0;
		step(zklock_entry(index), 0, &event);
	}
	return false;
}

void
zklock_dispatch_all(ZkLockEventType type)
{
	/* A tick is nothing beside the rest, and mostly for nobody. */
	if (type == ZKLOCK_EV_TICK)
	{
		if (all_next >= 0 || !tick_wanted)
			return;
		tick_wanted = false; /* who goes on wanting one says so */
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
	all_event = type;
	all_next = 0;
	feed_all();
}

/* An entry with a grant that is kept for nobody. */
typedef struct IdleEntry
{
	int64 since;
	int32 index;
} IdleEntry;

static int
older_first(const void *a, const void *b)
{
	int64 x = ((const IdleEntry *) a)->since;
	int64 y = ((const IdleEntry *) b)->since;

	return x < y ? -1 : x > y;
}

/* Give the grant up, unless it was used meanwhile. */
static void
evict(const IdleEntry *idle)
{
	ZkLockEntry *entry = zklock_entry(idle->index);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE);

	if (lock == NULL)
		return;
	if (entry->idle_since == idle->since)
		zklock_entry_evict(entry);
	LWLockRelease(lock);
}

long
zklock_dispatch_sweep(void)
{
	static int64 sweep_at = 0;
	static int sweep_time = 0; /* zklock_cache_time as of then */
	int64 now = zklock_clock();
	int64 age = zklock_cache_time * NS_PER_MS;
	int64 interval = Min(Max(age / 8, 100 * NS_PER_MS), 10000 * NS_PER_MS);
	uint32 nidle = pg_atomic_read_u32(&zklock_shared->nidle);
	uint32 excess = nidle - Min(nidle, (uint32) zklock_cache_size);
	uint32 n = 0;
	bool room = pg_atomic_exchange_u32(&zklock_shared->room_wanted, 0) != 0;
	IdleEntry *idle;

	if (room)
	{
		/* besides what is on its way out */
		uint32 leaving = pg_atomic_read_u32(&zklock_shared->nleaving);
		uint32 wanted = nidle / 16 + 1;

		room = leaving < wanted;
		if (room)
			excess = Max(excess, wanted - leaving);
	}
	if (nidle == 0)
		return -1;
	if (!room && excess <= (uint32) zklock_cache_size / 16 && now < sweep_at &&
		zklock_cache_time == sweep_time)
		return (long) ((Min(sweep_at - now, interval)) / NS_PER_MS + 1);
	sweep_at = now + interval;
	sweep_time = zklock_cache_time;

	idle = palloc_extended(sizeof(IdleEntry) * (nidle + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < zklock_shared->nentries; i++)
	{
		IdleEntry e = {.since = zklock_entry(i)->idle_since, .index = i};

		if (e.since == 0)
			continue;
		if (now - e.since >= age)
		{
			evict(&e);
			excess -= Min(excess, 1);
		}
		else if (n <= nidle)
			idle[n++] = e;
	}
	if (excess > 0)
		qsort(idle, n, sizeof(IdleEntry), older_first);
	for (uint32 i = 0; i < Min(excess, n); i++)
		evict(&idle[i]);
	pfree(idle);
	return (long) (interval / NS_PER_MS);
}

bool
zklock_dispatch_holds(void)
{
	for (int i = 0; i < zklock_shared->nentries; i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		bool held;

		if (lock == NULL)
			continue;
		held = entry->held[ZKLOCK_SHARED] > 0 || entry->held[ZKLOCK_EXCLUSIVE] > 0;
		LWLockRelease(lock);
		if (held)
			return true;
	}
	return false;
}

/* The entry that a request was made for, or NULL if it is history. */
static ZkLockEntry *
tagged_entry(const ZkRequestTag *tag)
{
	ZkLockEntry *entry;

	if (tag->entry >= (uint32) zklock_shared->nentries)
		return NULL;
	entry = zklock_entry((int32) tag->entry);
	/* only an entry with an idle queue is freed by others than us */
	if (!entry->in_use || entry->generation != tag->generation)
		return NULL;
	return entry;
}

static ZkLockRc
protocol_rc(int rc)
{
	switch (rc)
	{
		case ZKLOCK_ZOK:
			return ZKLOCK_RC_OK;
		case ZKLOCK_ZNONODE:
			return ZKLOCK_RC_NO_NODE;
		case ZKLOCK_ZNODEEXISTS:
			return ZKLOCK_RC_EXISTS;
		case ZKLOCK_ZCONNECTIONLOSS:
		case ZKLOCK_ZOPERATIONTIMEOUT:
		case ZKLOCK_ZSESSIONEXPIRED:
			return ZKLOCK_RC_LOST;
		default:
			return ZKLOCK_RC_ERROR;
	}
}

static void
dispatch_listing(const ZkMessage *message, ZkLockEntry *entry, ZkLockEvent *event)
{
	ZkLockChild *children = palloc(sizeof(ZkLockChild) * Max(message->nchildren, 1));

	for (int i = 0; i < message->nchildren; i++)
	{
		if (zklock_parse_child(message->children[i], &children[event->nchildren]))
			event->nchildren++;
	}
	event->children = children;
	step(entry, message->tag.generation, event);
	pfree(children);
}

/* The entry in whose directory a node is, or NULL; the node's own name to "child". */
static ZkLockEntry *
entry_of_path(const char *path, const char **child)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];
	char name[ZKLOCK_NAME_MAX + 1];

	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
	{
		const char *directory = zklock_session_directory((ZkLockKind) kind);
		size_t len = strlen(directory);
		const char *start = path + len + 1;
		size_t encoded_len;

		if (strncmp(path, directory, len) != 0 || path[len] != '/')
			continue;
		encoded_len = strcspn(start, "/");
		if (encoded_len >= sizeof(encoded))
			return NULL;
		strlcpy(encoded, start, encoded_len + 1);
		*child = start[encoded_len] == '/' ? start + encoded_len + 1 : NULL;
		return zklock_decode_name(encoded, name)
			? zklock_table_find((ZkLockKind) kind, name)
			: NULL;
	}
	return NULL;
}

/* A watch fired: find the entry by the path. */
static void
dispatch_watch(const ZkMessage *message)
{
	const char *child;
	ZkLockChild parsed;
	ZkLockEntry *entry;
	ZkLockEvent event = {0};

	if (message->path == NULL || message->path[0] != '/')
		return;
	watch_gone(hash_path(message->path));
	if ((entry = entry_of_path(message->path, &child)) == NULL)
		return;
	if (child == NULL)
	{
		event.type = ZKLOCK_EV_DIR_CHANGED;
		step(entry, 0, &event);
		return;
	}

	event.type = message->type == ZKLOCK_MSG_NODE_DELETED ? ZKLOCK_EV_NODE_DELETED
														  : ZKLOCK_EV_NODE_CHANGED;
	event.name = child;
	event.hash = zklock_hash_child(child);
	if (zklock_parse_child(child, &parsed) &&
		parsed.uuid_hi == zklock_shared->session.uuid_hi)
		event.uuid = parsed.uuid_lo;
	step(entry, 0, &event);
}

/* As if its deletion had been heard of already.  Should the delete be lost, the node is
 * an orphan, which the next listing or the next look for orphans removes. */
void
zklock_dispatch_removal(ZkLockKind kind, const char *name, const char *child)
{
	ZkLockEvent event = {.type = ZKLOCK_EV_NODE_DELETED};
	ZkLockEntry *entry = zklock_table_find(kind, name);
	ZkLockChild parsed;

	if (entry == NULL || !zklock_parse_child(child, &parsed) ||
		parsed.uuid_hi != zklock_shared->session.uuid_hi)
		return;
	event.name = child;
	event.hash = parsed.hash;
	event.uuid = parsed.uuid_lo;
	step(entry, 0, &event);
}

void
zklock_dispatch_message(const ZkMessage *message)
{
	ZkLockEntry *entry;
	ZkLockEvent event = {0};
	char shown[ZKLOCK_ENCODED_MAX + 1];

	if (message->type == ZKLOCK_MSG_NODE_DELETED || message->type == ZKLOCK_MSG_NODE_CHANGED)
	{
		dispatch_watch(message);
		return;
	}

	if (message->tag.path != 0 && message->rc != ZKLOCK_ZOK)
		watch_gone(message->tag.path);
	if (message->tag.kind == REQUEST_OTHER)
	{
		if (protocol_rc(message->rc) == ZKLOCK_RC_ERROR)
			zklock_session_refused(message);
		return;
	}
	if ((entry = tagged_entry(&message->tag)) == NULL)
		return;

	event.rc = protocol_rc(message->rc);
	event.uuid = message->tag.uuid;
	event.hash = message->tag.hash;
	event.token = message->czxid;
	if (event.rc == ZKLOCK_RC_ERROR)
	{
		/* a candidacy is tried again and again: say it once */
		if (entry->kind == ZKLOCK_KIND_LOCK || entry->last_rc != message->rc)
			zklock_session_error("ZooKeeper refused a request for %s \"%s\": %s",
								 entry->kind == ZKLOCK_KIND_LOCK ? "lock" : "election",
								 log_name(entry->name, shown),
								 zklock_client_strerror(message->rc));
		entry->last_rc = message->rc; /* goes to the requests with a FAILED */
	}

	switch ((RequestKind) message->tag.kind)
	{
		case REQUEST_MAKE_DIR:
			event.type = ZKLOCK_EV_MADE_DIR;
			break;
		case REQUEST_CREATE:
			event.type = ZKLOCK_EV_CREATED;
			if (event.rc == ZKLOCK_RC_OK)
			{
				const char *child = message->path ? strrchr(message->path, '/') : NULL;
				ZkLockChild parsed;

				if (child != NULL && zklock_parse_child(child + 1, &parsed))
					event.sequence = parsed.sequence;
				else
					event.rc = ZKLOCK_RC_LOST; /* exists, but where? settle it */
			}
			break;
		case REQUEST_LIST:
			event.type = ZKLOCK_EV_LISTED;
			event.list = message->tag.hash;
			dispatch_listing(message, entry, &event);
			return;
		case REQUEST_WATCH_OWN:
			event.type = ZKLOCK_EV_WATCHED_OWN;
			break;
		case REQUEST_WATCH:
			event.type = ZKLOCK_EV_WATCHED;
			break;
		case REQUEST_DELETE:
			event.type = ZKLOCK_EV_DELETED;
			break;
		case REQUEST_OTHER:
			return;
	}
	step(entry, message->tag.generation, &event);
}
