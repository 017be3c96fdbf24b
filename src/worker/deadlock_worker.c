/*-------------------------------------------------------------------------
 *
 * deadlock_worker.c
 *	  Looks for deadlocks across servers, and ends the wait that a verdict selects.
 *
 * This is the worker's part of deadlock_rules.h.  It finds which grants of this server
 * wait for which of its waits, publishes these edges, and acts on a verdict.  A look
 * starts at each grant that another server wants (zklock_holder_blocks).  It goes from
 * the backend that has the grant, along the waits in PostgreSQL's lock manager, to the
 * backends that wait at level 2.  A backend asks for a look when it has waited for
 * deadlock_timeout (ZkProcLock.asked).  If no backend has asked, or no wanted grant
 * leads to a backend that has asked, the worker sends nothing.
 *
 * The worker looks when a backend asks.  While such a backend waits, the worker also
 * looks when another server comes to want a grant.  It checks the published edges each
 * time that it wakes.  It checks edges that lead through the lock manager every 100 ms,
 * because the lock manager reports no events.  So the worker withdraws an edge that is
 * over before anybody has read it twice.
 *
 * This code runs in the worker and not in the backend that waits, for three reasons:
 * one look serves all backends that have asked, the published edges are one text, and a
 * backend that sleeps on its entry stays ready for the grant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "storage/lmgr.h"

#include "blockers.h"
#include "deadlock_rules.h"
#include "deadlock_shared.h"
#include "deadlock_worker.h"
#include "holder.h"
#include "names.h"
#include "path.h"
#include "session.h"
#include "set_worker.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"

/* ms between two readings; ns between two looks; ms between two looks at an edge */
#define READING_PAUSE 150
#define LOOK_PAUSE	  (50 * NS_PER_MS)
#define EDGE_PAUSE	  100

/* Limits of local waits from one end of an edge to the other, and of processes that are
 * looked at for one grant. */
#define MAX_HOPS	  8
#define MAX_PROCESSES 256

/* Identifies a proclock, to tell later whether it is still the same. */
typedef struct Mark
{
	int32 proclock;
	int pid;
	int64 since; /* zklock_proclock_since: never twice at a time */
} Mark;

/* A backend that has a grant that another server wants. */
typedef struct Holder
{
	Mark mark;
	uint64 grant;
	bool set; /* ... for a set, of which it waits for others */
} Holder;

/* A backend that waits at level 2. */
typedef struct Waiter
{
	Mark mark;
	uint64 contender;
	bool joins;
	bool asks; /* it has asked again */
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
} Waiter;

/* The proclocks on which an edge of deadlock.own is based. */
typedef struct Evidence
{
	uint64 key;
	Mark holder;
	Mark waiter;
	bool set; /* the holder's is a set's */
	int nhops;
	struct
	{
		int pid;
		TimestampTz since;
	} hop[MAX_HOPS];
} Evidence;

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static ZkDeadlock deadlock;				 /* of no session to begin with */
static int nevidence = 0;
static Evidence evidence[ZKLOCK_MAX_EDGES];
static bool look_wanted = false;
static bool anybody_asked = false; /* as of the last look */
static int64 looked_at = 0;
static int told_rc = 0; /* what was refused, of which the log knows */

/* ------------------------------------------------------------------------
 * A look at the table
 * ------------------------------------------------------------------------
 */

typedef struct Look
{
	int nholders;
	int nwaiters;
	int nlocal;
	int holders_room;
	int waiters_room;
	int local_room;
	Holder *holders;
	Waiter *waiters;
	Waiter *local; /* at level 1: the names are for people */
} Look;

/* Make room in the array for one more element. */
#define ENLARGE(array, n, room)                                                          \
	do                                                                                   \
	{                                                                                    \
		if ((n) == (room))                                                               \
		{                                                                                \
			(room) = Max(32, 2 * (room));                                                \
			(array) = (array) == NULL                                                    \
				? palloc(sizeof(*(array)) * (Size) (room))                               \
				: repalloc((array), sizeof(*(array)) * (Size) (room));                   \
		}                                                                                \
	} while (0)

static Mark
mark_of(const ZkProcLock *proclock)
{
	return (Mark){.proclock = zklock_proclock_index(proclock),
				  .pid = proclock->pid,
				  .since =
					  zklock_proclock_since(proclock, (ZkProcLockState) proclock->state)};
}

/* Find the contender for a wish, or the grant that the wish would join. */
static bool
find_contender(const ZkLockEntry *entry, ZkLockMode mode, uint64 *contender, bool *joins)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &entry->queue.contender[i];

		if (c->mode != mode)
			continue;
		*joins = c->state == ZKLOCK_GRANTED && entry->held[mode] > 0;
		*contender = c->uuid;
		if (c->state == ZKLOCK_QUEUED || c->state == ZKLOCK_WAITING || *joins)
			return true;
	}
	return false;
}

static void
add_waiter(Waiter *w, const ZkLockEntry *entry, const ZkProcLock *proclock)
{
	memset(w, 0, sizeof(*w));
	w->mark = mark_of(proclock);
	w->kind = (ZkLockKind) entry->kind;
	strlcpy(w->name, entry->name, sizeof(w->name));
}

static void
look_at_entry(Look *look, const ZkLockEntry *entry)
{
	zklock_foreach_proclock (proclock, entry)
	{
		ZkLockMode mode = (ZkLockMode) proclock->mode;
		const ZkContender *grant;
		uint64 contender;
		bool joins;

		switch ((ZkProcLockState) proclock->state)
		{
			case ZKLOCK_PROCLOCK_HELD:
				grant = zklock_lock_queue_grant(&entry->queue, mode);
				if (proclock->lost || grant == NULL || !zklock_holder_blocks(entry, grant))
					break;
				ENLARGE(look->holders, look->nholders, look->holders_room);
				look->holders[look->nholders++] =
					(Holder){.mark = mark_of(proclock), .grant = grant->uuid};
				break;
			case ZKLOCK_PROCLOCK_WANTED:
				/* a set's that is granted waits for its others, as if it were held */
				grant = zklock_lock_queue_grant(&entry->queue, mode);
				if (proclock->set != 0 && grant != NULL && grant->set == proclock->set &&
					grant->demanded && !proclock->failed)
				{
					ENLARGE(look->holders, look->nholders, look->holders_room);
					look->holders[look->nholders++] = (Holder){.mark = mark_of(proclock),
															   .grant = grant->uuid,
															   .set = true};
					break;
				}
				if (!proclock->asked || proclock->failed ||
					!find_contender(entry, mode, &contender, &joins))
					break;
				ENLARGE(look->waiters, look->nwaiters, look->waiters_room);
				add_waiter(&look->waiters[look->nwaiters], entry, proclock);
				look->waiters[look->nwaiters].contender = contender;
				look->waiters[look->nwaiters].joins = joins;
				look->waiters[look->nwaiters].asks = proclock->asks;
				look->nwaiters++;
				proclock->asks = false; /* set under the lock in exclusive mode */
				break;
			case ZKLOCK_PROCLOCK_LOCAL:
				/* of a set, the one that it is at */
				if (proclock->set != 0 &&
					zklock_proc(proclock->proc_number)->pending !=
						mark_of(proclock).proclock)
					break;
				ENLARGE(look->local, look->nlocal, look->local_room);
				add_waiter(&look->local[look->nlocal++], entry, proclock);
				break;
		}
	}
}

static void
look_at_table(Look *look)
{
	memset(look, 0, sizeof(*look));
	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
	{
		LWLock *lock = zklock_partition_lock(i, LW_SHARED);

		for (ZkLockEntry *e = zklock_partition_next(i, NULL); e != NULL;
			 e = zklock_partition_next(i, e))
		{
			/* nobody waits for an election, who could hold something meanwhile */
			if (e->proclocks >= 0 && !zklock_kinds[e->kind].by_server)
				look_at_entry(look, e);
		}
		zklock_entry_unlock(lock);
	}
}

/* ------------------------------------------------------------------------
 * From grants to waits
 * ------------------------------------------------------------------------
 */

/* A process that a search has reached from a process with a grant. */
typedef struct Reached
{
	int pid;
	int before; /* index; -1: it has the grant */
	ZkBlocker by;
} Reached;

static bool
same_namespace(const char *a, const char *b)
{
	size_t len = (size_t) (zklock_local_name(a) - a);

	return len == (size_t) (zklock_local_name(b) - b) && strncmp(a, b, len) == 0;
}

/* Append a lock's name so that it can be shown: always in UTF-8. */
static void
append_name(StringInfo buf, ZkLockKind kind, const char *name)
{
	name = zklock_local_name(name);
	appendStringInfo(buf, "%s \"", zklock_kinds[kind].name);
	if (zklock_is_utf8(name, strlen(name)))
		appendStringInfoString(buf, name);
	else
	{
		enlargeStringInfo(buf, 3 * (int) strlen(name) + 1);
		buf->len += (int) zklock_escape(name, strlen(name), true, buf->data + buf->len);
	}
	appendStringInfoChar(buf, '"');
}

/* Append what a process waits for.  At level 1 that is a lock: the text names it only
 * to a waiter ("for_whom") of the same namespace. */
static void
append_what(StringInfo buf, const Look *look, const ZkBlocker *by, const char *for_whom)
{
	StringInfoData tag;

	if (by->tag.locktag_type == LOCKTAG_ADVISORY && by->tag.locktag_field1 == 0)
	{
		for (int i = 0; i < look->nlocal; i++)
		{
			const Waiter *local = &look->local[i];

			if (local->mark.pid != by->waiting)
				continue;
			if (same_namespace(local->name, for_whom))
				append_name(buf, local->kind, local->name);
			else
				appendStringInfoString(buf, "a lock of another namespace");
			return;
		}
	}
	initStringInfo(&tag);
	DescribeLockTag(&tag, &by->tag);
	appendStringInfo(buf, "%s on ",
					 GetLockmodeName(by->tag.locktag_lockmethodid, by->mode));
	if (zklock_is_utf8(tag.data, (size_t) tag.len))
		appendStringInfoString(buf, tag.data);
	else
	{
		enlargeStringInfo(buf, 3 * tag.len + 1);
		buf->len +=
			(int) zklock_escape(tag.data, (size_t) tag.len, true, buf->data + buf->len);
	}
	pfree(tag.data);
}

/* Append the local waits that lead to reached[at], in their order. */
static void
append_way(StringInfo buf, const Look *look, const Reached *reached, int at,
		   const char *for_whom)
{
	if (reached[at].before < 0)
		return;
	append_way(buf, look, reached, reached[at].before, for_whom);
	appendStringInfo(buf, "%sprocess %d waits for ", buf->len > 0 ? "; " : "",
					 reached[at].by.waiting);
	append_what(buf, look, &reached[at].by, for_whom);
	appendStringInfo(buf, ", blocked by process %d", reached[at].pid);
}

/* Make an edge from a grant to a wait.  False: there are too many waits between them. */
static bool
make_edge(const Look *look, const Holder *holder, const Waiter *waiter,
		  const Reached *reached, int at, ZkOwnEdge *own, Evidence *seen)
{
	StringInfoData via;

	memset(own, 0, sizeof(*own));
	memset(seen, 0, sizeof(*seen));
	for (int i = at; reached[i].before >= 0; i = reached[i].before)
	{
		if (seen->nhops == MAX_HOPS)
			return false;
		seen->hop[seen->nhops].pid = reached[i].by.waiting;
		seen->hop[seen->nhops].since = reached[i].by.since;
		seen->nhops++;
	}
	seen->holder = holder->mark;
	seen->waiter = waiter->mark;
	seen->set = holder->set;
	own->edge.grant = holder->grant;
	own->edge.contender = waiter->contender;
	own->edge.joins = waiter->joins;
	own->edge.kind = waiter->kind;
	strlcpy(own->edge.name, waiter->name, sizeof(own->edge.name));
	own->edge.holder = holder->mark.pid;
	own->edge.waiter = waiter->mark.pid;
	own->again = waiter->asks;

	own->key =
		hash_bytes_extended((const unsigned char *) seen, sizeof(*seen),
							holder->grant ^
								hash_bytes_extended((const unsigned char *) &waiter->contender,
													sizeof(waiter->contender),
													waiter->joins));
	seen->key = own->key;

	initStringInfo(&via);
	append_way(&via, look, reached, at, waiter->name);
	if (via.len > ZKLOCK_VIA_MAX)
	{
		via.len = (int) zklock_clip_utf8(via.data, ZKLOCK_VIA_MAX - 3);
		via.data[via.len] = '\0';
		appendStringInfoString(&via, "...");
	}
	strlcpy(own->edge.via, via.data, sizeof(own->edge.via));
	pfree(via.data);
	return true;
}

static bool
is_reached(const Reached *reached, int n, int pid)
{
	for (int i = 0; i < n; i++)
		if (reached[i].pid == pid)
			return true;
	return false;
}

/* Add the edges of one grant that one backend has.  Returns the new number of edges. */
static int
follow(const Look *look, const Holder *holder, ZkOwnEdge *edges, int nedges)
{
	static Reached reached[MAX_PROCESSES];
	int n = 1;

	memset(reached, 0, sizeof(reached));
	reached[0] = (Reached){.pid = holder->mark.pid, .before = -1};
	for (int i = 0; i < n; i++)
	{
		ZkBlocker *blockers;
		int nblockers;

		for (int j = 0; j < look->nwaiters && nedges < ZKLOCK_MAX_EDGES; j++)
		{
			if (look->waiters[j].mark.pid == reached[i].pid &&
				make_edge(look, holder, &look->waiters[j], reached, i, &edges[nedges],
						  &evidence[nedges]))
				nedges++;
		}
		nblockers = zklock_blockers(reached[i].pid, &blockers);
		for (int j = 0; j < nblockers && n < MAX_PROCESSES; j++)
		{
			if (blockers[j].pid != 0 && !is_reached(reached, n, blockers[j].pid))
				reached[n++] =
					(Reached){.pid = blockers[j].pid, .before = i, .by = blockers[j]};
		}
		if (blockers != NULL)
			pfree(blockers);
	}
	return nedges;
}

static void
look_around(void)
{
	static ZkOwnEdge edges[ZKLOCK_MAX_EDGES];
	Look look;
	int n = 0;

	look_at_table(&look);
	anybody_asked = look.nwaiters > 0;
	for (int i = 0; i < look.nholders && anybody_asked; i++)
		n = follow(&look, &look.holders[i], edges, n);
	nevidence = n;
	zklock_shared->session.next_uuid +=
		(uint64) zklock_deadlock_look(&deadlock, edges, n,
									  zklock_shared->session.next_uuid);
}

/* ------------------------------------------------------------------------
 * Checks of published edges
 * ------------------------------------------------------------------------
 */

static const Evidence *
find_evidence(uint64 key)
{
	for (int i = 0; i < nevidence; i++)
		if (evidence[i].key == key)
			return &evidence[i];
	return NULL;
}

/* Is it the same proclock in the same state?  The words are read one after the other
 * without the lock.  end_wait checks the facts that matter again under the lock. */
static bool
is_still(const Mark *mark, ZkProcLockState state)
{
	const volatile ZkProcLock *proclock = zklock_proclock(mark->proclock);

	return proclock->entry >= 0 && proclock->pid == mark->pid &&
		zklock_proclock_since(proclock, state) == mark->since &&
		proclock->state == state && !proclock->failed && !proclock->lost;
}

static bool
is_true(const Evidence *seen)
{
	if (!is_still(&seen->holder, seen->set ? ZKLOCK_PROCLOCK_WANTED : ZKLOCK_PROCLOCK_HELD) ||
		!is_still(&seen->waiter, ZKLOCK_PROCLOCK_WANTED))
		return false;
	for (int i = 0; i < seen->nhops; i++)
		if (!zklock_blocked_since(seen->hop[i].pid, seen->hop[i].since))
			return false;
	return true;
}

/* Withdraw edges that are over.  Returns whether an edge is left that can change
 * without an event. */
static bool
withdraw(void)
{
	bool hops = false;

	for (int i = deadlock.nown; --i >= 0;)
	{
		const Evidence *seen = find_evidence(deadlock.own[i].key);

		if (seen == NULL || !is_true(seen))
			zklock_deadlock_drop(&deadlock, i);
		else
			hops |= seen->nhops > 0;
	}
	return hops;
}

/* ------------------------------------------------------------------------
 * A verdict
 * ------------------------------------------------------------------------
 */

/* Append a server's name in UTF-8, either from its text or this server's. */
static void
append_process(StringInfo buf, int pid, const char *server)
{
	appendStringInfo(buf, "process %d of server \"%s\"", pid, server);
}

/*
 * Describe the ring, wait by wait.  The first wait is the one that ends, which is that
 * of the last edge.  The waits of the other edges follow in order.  Texts of other
 * servers are UTF-8 (deadlock_text.c).
 *
 * Without "all" the text is for the session whose wait ends.  It contains only the
 * names that belong to this session: the name of the lock that it waits for, and the
 * name of the lock that it has.
 */
static void
describe_ring(StringInfo buf, bool all)
{
	const ZkFollowed *last = &deadlock.ring[deadlock.nring - 1];
	const ZkFollowed *waits = last;

	for (int i = 0; i < deadlock.nring; i++)
	{
		const ZkFollowed *edge = &deadlock.ring[i];
		bool own = i == 0 || (edge == last && edge->edge.holder == edge->edge.waiter);

		if (buf->len > 0)
			appendStringInfoString(buf, "; ");
		append_process(buf, waits->edge.waiter, waits->server);
		appendStringInfoString(buf, " waits for ");
		if (!same_namespace(waits->edge.name, last->edge.name))
			appendStringInfoString(buf, "a lock of another namespace");
		else if (all || own)
			append_name(buf, waits->edge.kind, waits->edge.name);
		else
			appendStringInfo(buf, "a %s", zklock_kinds[waits->edge.kind].name);
		appendStringInfoString(buf, ", held by ");
		append_process(buf, edge->edge.holder, edge->server);
		if (all && edge->edge.via[0] != '\0' &&
			same_namespace(edge->edge.name, last->edge.name))
			appendStringInfo(buf, "; there %s", edge->edge.via);
		else if (edge->edge.holder != edge->edge.waiter)
			appendStringInfo(buf, "; there process %d waits for process %d",
							 edge->edge.holder, edge->edge.waiter);
		waits = edge;
	}
	appendStringInfoChar(buf, '.');
	buf->data[0] = (char) pg_toupper((unsigned char) buf->data[0]);
}

static void
put_text(char *text, bool all)
{
	StringInfoData buf;

	initStringInfo(&buf);
	describe_ring(&buf, all);
	if (buf.len >= ZKLOCK_DEADLOCK_TEXT)
	{
		buf.len = (int) zklock_clip_utf8(buf.data, ZKLOCK_DEADLOCK_TEXT - 4);
		buf.data[buf.len] = '\0';
		appendStringInfoString(&buf, "...");
	}
	strlcpy(text, buf.data, ZKLOCK_DEADLOCK_TEXT);
	pfree(buf.data);
}

static void
add_pid(ZkDeadlockVerdict *verdict, int pid)
{
	for (int i = 0; i < verdict->npids; i++)
		if (verdict->pids[i] == pid)
			return;
	if (verdict->npids < ZKLOCK_DEADLOCK_PIDS)
		verdict->pids[verdict->npids++] = pid;
}

/* End the wait of the last edge in the ring. */
static void
end_wait(void)
{
	const ZkFollowed *last = &deadlock.ring[deadlock.nring - 1];
	const Evidence *seen = NULL;
	static ZkDeadlockVerdict verdict;
	ZkProcLock *proclock;
	ZkLockEntry *entry;
	int32 entry_index;
	LWLock *lock;
	uint64 set = 0;

	for (int i = 0; i < nevidence; i++)
	{
		if (evidence[i].waiter.pid == last->edge.waiter && is_true(&evidence[i]))
			seen = &evidence[i];
	}
	if (seen == NULL)
		return;

	memset(&verdict, 0, sizeof(verdict));
	verdict.pid = seen->waiter.pid;
	verdict.wait_start = seen->waiter.since;
	put_text(verdict.text, true);
	put_text(verdict.own, false);
	for (int i = 0; i < deadlock.nring; i++)
	{
		if (deadlock.ring[i].session != deadlock.session)
			continue;
		add_pid(&verdict, deadlock.ring[i].edge.waiter);
		add_pid(&verdict, deadlock.ring[i].edge.holder);
	}
	for (int i = 0; i < seen->nhops; i++)
		add_pid(&verdict, seen->hop[i].pid);
	zklock_deadlock_verdict_put(&verdict);

	proclock = zklock_proclock(seen->waiter.proclock);
	entry_index = proclock->entry;
	if (entry_index < 0)
		return;
	entry = zklock_entry(entry_index);
	lock = zklock_entry_lock(entry, LW_EXCLUSIVE);
	if (lock == NULL)
		return;
	if (proclock->entry == entry_index && is_still(&seen->waiter, ZKLOCK_PROCLOCK_WANTED))
	{
		proclock->failed = true;
		proclock->failure = (uint8) ZKLOCK_FAIL_RING;
		entry->want[proclock->mode]--;
		set = proclock->set;
		zklock_entry_set_dirty(entry);
		zklock_entry_broadcast(entry);
	}
	zklock_entry_unlock(lock);
	if (set != 0)
		zklock_set_worker_touch(set, true);
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

static ZkRequestTag
make_tag(ZkDeadlockAct act)
{
	return (ZkRequestTag){.kind = own_tag,
						  .generation = deadlock.serial,
						  .uuid = (uint64) act};
}

static char *
make_path(uint64 session)
{
	return psprintf("%s/%016llx", zklock_path_waits(), (unsigned long long) session);
}

/* Format all edges of this server. */
static char *
make_text(void)
{
	char *text = palloc(ZKLOCK_WAITS_TEXT_MAX + 1);
	char server[256];
	char *end;

	zklock_effective_server_name(server, sizeof(server));
	if (!zklock_is_utf8(server, strlen(server)))
		server[0] = '\0';
	end = zklock_deadlock_waits_begin(text, server);
	for (int i = 0; i < deadlock.nown; i++)
		end = zklock_deadlock_waits_add(end, &deadlock.own[i].edge);
	return text;
}

static void
send_request(ZkClient *client, ZkDeadlockAct act)
{
	ZkRequestTag tag = make_tag(act);
	ZkLockKind kind;
	const char *name;
	char *text;
	int rc = ZKLOCK_ZOK;

	Assert(zklock_unlocked());
	switch (act)
	{
		case ZKLOCK_DO_CREATE:
			text = make_text();
			rc = zklock_client_create(client, make_path(deadlock.session), text,
									  (int) strlen(text), ZKLOCK_CREATE_EPHEMERAL, &tag);
			pfree(text);
			break;
		case ZKLOCK_DO_SET:
			text = make_text();
			rc = zklock_client_set(client, make_path(deadlock.session), text,
								   (int) strlen(text), -1, &tag);
			pfree(text);
			break;
		case ZKLOCK_DO_DELETE:
			rc = zklock_client_delete(client, make_path(deadlock.session), &tag);
			break;
		case ZKLOCK_DO_SERVERS:
			(void) zklock_client_sync(client, zklock_path_waits(), &zklock_no_tag);
			rc = zklock_client_list(client, zklock_path_waits(), false, &tag);
			break;
		case ZKLOCK_DO_LIST:
			name = zklock_deadlock_name(&deadlock, &kind);
			rc = zklock_client_list(client, zklock_path_name(kind, name, NULL), false,
									&tag);
			break;
		case ZKLOCK_DO_READ:
			rc = zklock_client_get(client, make_path(deadlock.reads), false, &tag);
			break;
		case ZKLOCK_DO_NOTHING:
		case ZKLOCK_DO_END:
			pg_unreachable();
	}
	if (rc == ZKLOCK_ZOK)
		return;
	zklock_session_sent(rc);
	/* what was to be told of the connection's end is on its way */
	zklock_deadlock_connected(&deadlock, false);
}

static void
take_listing(const ZkMessage *message, ZkLockRc rc)
{
	ZkLockChild *children =
		MemoryContextAllocHuge(CurrentMemoryContext,
							   sizeof(ZkLockChild) * (Size) Max(message->nchildren, 1));
	int n = 0;

	for (int i = 0; i < message->nchildren; i++)
	{
		if (zklock_parse_child(message->children[i], &children[n]))
			n++;
	}
	zklock_deadlock_listed(&deadlock, message->tag.generation, rc, children, n);
	pfree(children);
}

/* Log a refusal, once for each reason in a session: the worker tries again at each
 * look.  A reply does not say which request was refused. */
static void
tell_refused(ZkDeadlockAct act, int rc)
{
	zklock_trouble_again(rc != told_rc,
						 "deadlocks across servers may not be found, since ZooKeeper refused a request on %s: %s",
						 act == ZKLOCK_DO_LIST ? "the queue of a lock"
											   : zklock_path_waits(),
						 zklock_rc_text(rc));
	told_rc = rc;
}

static void
on_message(const ZkMessage *message)
{
	ZkLockRc rc = zklock_reply_rc(message->rc);
	uint32 serial = message->tag.generation;
	ZkDeadlockAct act = (ZkDeadlockAct) message->tag.uuid;

	/* the directory could not be made, either */
	if (rc == ZKLOCK_RC_ERROR ||
		(rc == ZKLOCK_RC_NO_NODE && act == ZKLOCK_DO_CREATE && deadlock.made))
		tell_refused(act, message->rc);
	switch (act)
	{
		case ZKLOCK_DO_CREATE:
		case ZKLOCK_DO_SET:
		case ZKLOCK_DO_DELETE:
			zklock_deadlock_wrote(&deadlock, rc, message->zxid);
			break;
		case ZKLOCK_DO_SERVERS:
			zklock_deadlock_servers(&deadlock, serial, rc, message->children,
									message->nchildren);
			break;
		case ZKLOCK_DO_LIST:
			take_listing(message, rc);
			break;
		case ZKLOCK_DO_READ:
			zklock_deadlock_read(&deadlock, serial, rc, message->zxid,
								 message->data != NULL ? message->data : "",
								 message->data != NULL ? (size_t) message->datalen : 0);
			break;
		case ZKLOCK_DO_NOTHING:
		case ZKLOCK_DO_END:
			break;
	}
}

/* ------------------------------------------------------------------------
 * Times of looks
 * ------------------------------------------------------------------------
 */

static void
on_event(ZkLockEventType type)
{
	uint64 session = zklock_shared->session.uuid_hi;

	switch (type)
	{
		case ZKLOCK_EV_CONNECTED:
		case ZKLOCK_EV_RESUMED:
			if (deadlock.session != session)
			{
				zklock_deadlock_init(&deadlock, session, READING_PAUSE * NS_PER_MS);
				told_rc = 0;
				/* what a predecessor may have left is in a session that goes on */
				if (type == ZKLOCK_EV_CONNECTED)
					deadlock.node = ZKLOCK_NODE_NONE;
			}
			zklock_deadlock_connected(&deadlock, true);
			look_wanted = true;
			break;
		case ZKLOCK_EV_DISCONNECTED:
		case ZKLOCK_EV_SESSION_LOST:
			zklock_deadlock_connected(&deadlock, false);
			if (type == ZKLOCK_EV_SESSION_LOST)
				deadlock.session = 0;
			break;
		default:
			break;
	}
}

void
zklock_deadlock_demanded(void)
{
	look_wanted |= anybody_asked;
}

static long
work(void)
{
	ZkClient *client = zklock_session_client();
	int64 now = zklock_clock();
	ZkDeadlockAct act;
	int64 due;
	bool hops = false;

	if (pg_atomic_exchange_u32(&zklock_shared->look_wanted, 0) != 0)
		look_wanted = true;
	if (client == NULL || deadlock.session == 0 || !deadlock.connected)
		return -1;
	if (deadlock.nown > 0)
		hops = withdraw();
	if (look_wanted && now - looked_at >= LOOK_PAUSE)
	{
		look_wanted = false;
		looked_at = now;
		look_around();
		hops = true; /* perhaps */
	}
	while ((act = zklock_deadlock_next(&deadlock, now)) != ZKLOCK_DO_NOTHING)
	{
		if (act == ZKLOCK_DO_END)
			end_wait();
		else
			send_request(client, act);
	}
	due = zklock_deadlock_due(&deadlock, now);
	if (due >= 0)
		due = due / NS_PER_MS + 1;
	if (hops && deadlock.nown > 0)
		due = due >= 0 ? Min(due, EDGE_PAUSE) : EDGE_PAUSE;
	if (look_wanted)
		due = LOOK_PAUSE / NS_PER_MS;
	return (long) due;
}

const ZkAgent zklock_deadlock_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.work = work,
};
