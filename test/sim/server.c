/*-------------------------------------------------------------------------
 *
 * server.c
 *	  One simulated server, and the invariants that are no world's own.
 *
 * The ground truth is the model's leader.  A grant counts while its session
 * is alive there and its node exists; what the lease adds in the product is
 * not modelled.  A worker cannot know at once what the leader knows: an
 * administrator may delete our node in the moment in which we are granted the
 * lock.  So a grant of a node that is gone already is held against the
 * protocol only if a message that it has received was sent after that.
 *
 *-------------------------------------------------------------------------
 */
#include "semaphore_siblings.h"
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int nservers;
int ndirs;
int nqueues;
Server servers[MAX_SERVERS];
bool faults;
bool counter_jumped[MAX_DIRS];
bool numbers_repeated[MAX_DIRS];

/* Of a set's queues: what goes into its transaction, and what is to be sent behind it. */
static Multi *collecting;
static int ndeferred;
static Request deferred[2 * MAX_DIRS];

static void step(Server *server, int queue, ZkLockEvent *event);

int
queue_dir(int queue)
{
	return queue % ndirs;
}

bool
server_owns(const Server *server, int node)
{
	return !server->lost && zk.node[node].owner == server->conn.session;
}

uint64_t
server_session(const Server *server)
{
	return zk.session[server->conn.session].id;
}

const ZkContender *
server_contender(const Server *server, int queue, uint64_t uuid)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &server->queue[queue].contender[i];

		if (c->state != ZKLOCK_FREE && c->uuid == uuid)
			return c;
	}
	return NULL;
}

int
server_find(const Server *server, const Node *node)
{
	for (int q = 0; q < nqueues; q++)
	{
		if (queue_dir(q) == node->dir &&
			server_contender(server, q, node->child.uuid_lo) != NULL)
			return q;
	}
	return -1;
}

static int
number_of(const Server *server)
{
	return (int) (server - servers);
}

/* ------------------------------------------------------------------------
 * What the actions claim
 * ------------------------------------------------------------------------
 */

static void
check_granted(Server *server, int queue, const ZkLockAction *action, bool keep)
{
	int node = zk_find_token(queue_dir(queue), action->token);
	const Node *own;

	if (node < 0 || !server_owns(server, node) ||
		zk.node[node].child.uuid_lo != action->uuid ||
		zk.node[node].child.mode != action->mode ||
		zk.node[node].child.permits != server->queue[queue].permits)
		fail("token %" PRId64 " is not our contender's czxid", action->token);
	own = &zk.node[node];
	if (own->phantom)
		fail("granted to a contender that the leader does not have");
	if (own->dzxid <= server->told[queue])
	{
		/* a listing shows a name; whose node that is, the watch on it tells */
		if (server_contender(server, queue, action->uuid)->own_watched ||
			!zk_is_remade(own, server->told[queue]))
			fail("granted though our contender was gone before what we were told");
		COVER(REMADE_GRANTED);
	}
	if (own->dzxid == NEVER)
		world.check_turn(server, queue, own);

	if (action->mode == ZKLOCK_SHARED)
		COVER(GRANT_SHARED);
	else
		COVER(GRANT_EXCLUSIVE);
	table_granted(&server->table[queue], action->mode, action->token, node, keep,
				  action->demanded);
}

/*
 * 40P01 is right only if our own shared grant is there, somebody exclusive
 * stands between it and our exclusive contender, and that was so by all that
 * we could know.
 */
static void
check_deadlock(Server *server, int queue, const ZkLockAction *action)
{
	const ZkContender *shared =
		zklock_lock_queue_grant(&server->queue[queue], ZKLOCK_SHARED);
	int exclusive = zk_find_token(queue_dir(queue), action->token);

	COVER(DEADLOCK);
	if (action->mode != ZKLOCK_EXCLUSIVE || shared == NULL || exclusive < 0)
		fail("deadlock without an upgrade");
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *other = &zk.node[i];

		if (other->dir == queue_dir(queue) && other->owner != server->conn.session &&
			other->child.mode == ZKLOCK_EXCLUSIVE && other->dzxid > server->told[queue] &&
			((other->czxid > shared->token && other->czxid < zk.node[exclusive].czxid) ||
			 other->forged))
			return;
	}
	fail("deadlock reported where there is none");
}

/* Does this server keep the grant of this mode for nobody, and has not heard that
 * another one wants it? */
static bool
keeps_for_nobody(const Server *server, int queue, ZkLockMode mode)
{
	const Table *table = &server->table[queue];

	return table->usable[mode] && !table->demanded[mode] &&
		table_held(table, mode) == 0 && table_want(table, mode) == 0;
}

/* A probe has found somebody, and no contender of this server asks for the lock. */
static void
note_denied(Server *server, int queue)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			if (&servers[s] != server && keeps_for_nobody(&servers[s], queue, mode))
				server->denied[queue] = servers[s].table[queue].token[mode];
		}
	}
}

/* Does this server take it for known to the other one, which has the lock for writers,
 * that it wants the lock?  Then it asks by probes alone. */
static bool
takes_for_known(const Server *server, const Server *other, int queue)
{
	for (int i = 0; i < zk.nalive && server->asked[queue] != 0; i++)
	{
		const ZkLockChild *child = &zk.node[zk.alive[i]].child;
		const ZkContender *c = child->uuid_hi == server_session(other)
			? server_contender(other, queue, child->uuid_lo)
			: NULL;

		if (c != NULL && c->state == ZKLOCK_GRANTED && c->mode == ZKLOCK_EXCLUSIVE &&
			(uint32_t) child->hash == server->asked[queue])
			return true;
	}
	return false;
}

void
servers_check_denied(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int other = 0; other < nservers; other++)
		{
			for (int i = 0; i < nqueues * ZKLOCK_NMODES; i++)
			{
				int q = i / ZKLOCK_NMODES;
				ZkLockMode mode = (ZkLockMode) (i % ZKLOCK_NMODES);

				if (s == other || !keeps_for_nobody(&servers[other], q, mode))
					continue;
				if (servers[s].denied[q] != 0 &&
					servers[s].denied[q] == servers[other].table[q].token[mode])
					fail("keeps for nobody what another server was denied");
				if (mode == ZKLOCK_EXCLUSIVE && servers[other].queue[q].permits == 0 &&
					takes_for_known(&servers[s], &servers[other], q))
					fail("keeps for nobody what another server will be denied");
			}
		}
	}
}

/*
 * Whoever is told at once that somebody else has the lock must have had a reason
 * not to get it at some moment since he asked.
 */
static void
check_blocked(Server *server, int queue, const ZkLockAction *action)
{
	Table *table = &server->table[queue];
	int64_t asked_at = NEVER;

	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &table->backend[i];

		if (b->state == BACKEND_WANTS && b->mode == action->mode && b->no_wait &&
			b->heard && b->asked_at < asked_at)
			asked_at = b->asked_at;
	}
	if (server->queue[queue].contender[action->index].state == ZKLOCK_BLOCKED)
	{
		COVER(PROBE_BLOCKED);
		if (server->queue[queue].permits == 0)
			note_denied(server, queue);
	}
	if (action->hash != 0)
		server->asked[queue] = (uint32_t) action->hash;
	if (server->queue[queue].contender[action->index].state == ZKLOCK_GRANTED)
		COVER(JOIN_BLOCKED);
	if (asked_at != NEVER && !server->refused[queue] && !server->conn.deposed &&
		!world.was_blocked(server, queue, action->mode, asked_at))
		fail("told of somebody who had gone before the question");
	table_blocked(table, action->mode);
}

/* Only what was made without the sequence flag has a number that was not given yet,
 * unless the directory has forgotten that. */
static void
check_number_refused(const Server *server, int queue)
{
	int dir = queue_dir(queue);

	if (numbers_repeated[dir])
		return;
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].dir == dir && zk.node[i].forged &&
			zk.node[i].dzxid > server->told[queue])
			return;
	}
	fail("a number refused, though all were given");
}

static void
check_failed(Server *server, int queue, const ZkLockAction *action)
{
	switch (action->failure)
	{
		case ZKLOCK_FAIL_DEADLOCK:
			check_deadlock(server, queue, action);
			break;
		case ZKLOCK_FAIL_SEQUENCE:
			COVER(SEQUENCE_LIMIT);
			if (!counter_jumped[queue_dir(queue)])
				fail("sequence refused without reason");
			break;
		case ZKLOCK_FAIL_NUMBER:
			COVER(NUMBER_REFUSED);
			check_number_refused(server, queue);
			break;
		case ZKLOCK_FAIL_NO_DIRECTORY:
			if (!faults)
				fail("no directory, though nobody removes it");
			break;
		case ZKLOCK_FAIL_REFUSED:
			COVER(REFUSED);
			if (!server->refused[queue])
				fail("refused, though the ensemble refused nothing");
			break;
		case ZKLOCK_FAIL_RING:
			fail("nothing here looks for rings");
	}
	table_failed(&server->table[queue], action->mode, action->failure);
}

static void
check_delete(const Server *server, const Request *request)
{
	for (int q = 0; q < nqueues; q++)
	{
		const Table *table = &server->table[q];

		for (int mode = 0; mode < ZKLOCK_NMODES && queue_dir(q) == request->dir; mode++)
		{
			if ((table->usable[mode] || table_held(table, (ZkLockMode) mode) > 0) &&
				strcmp(zk.node[table->node[mode]].name, request->name) == 0)
				fail("deletes a contender whose grant is in use");
		}
	}
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

/* Has a reply on this connection said so, and has no event since? */
static bool
is_watched(const Server *server, int dir, const char *name)
{
	for (int i = 0; i < server->nwatched; i++)
	{
		const Node *node = &zk.node[server->watched[i]];

		if (node->dir == dir && strcmp(node->name, name) == 0)
			return true;
	}
	return false;
}

static void
perform(Server *server, int queue, const ZkLockAction *action, bool keep)
{
	Request request = {.type = action->type, .multi = -1, .queue = queue};

	TRACE("    %s permit %d uuid %" PRIx64 " %s list %" PRIu64 " token %" PRId64
		  " %s%s%s%s",
		  request_name(action->type), action->index, action->uuid & 0xffff,
		  action->mode == ZKLOCK_SHARED ? "shared" : "exclusive", action->list,
		  action->token, action->name ? action->name : "", action->sync ? " (sync)" : "",
		  action->watch ? " (watch)" : "", action->demanded ? " (demanded)" : "");

	switch (action->type)
	{
		case ZKLOCK_ACT_GRANTED:
			check_granted(server, queue, action, keep);
			return;
		case ZKLOCK_ACT_BLOCKED:
			COVER(BLOCKED);
			check_blocked(server, queue, action);
			return;
		case ZKLOCK_ACT_DEMANDED:
			table_demanded(&server->table[queue], action->mode);
			return;
		case ZKLOCK_ACT_UNDEMANDED:
			COVER(UNDEMANDED);
			table_undemanded(&server->table[queue], action->mode);
			return;
		case ZKLOCK_ACT_REVOKED:
			COVER(REVOKED);
			table_revoked(&server->table[queue], action->mode);
			return;
		case ZKLOCK_ACT_FAILED:
			check_failed(server, queue, action);
			return;
		case ZKLOCK_ACT_ABSENT:
			if (server->nabsent == lengthof(server->absent))
				fail("simulator: too many contenders that the leader does not have");
			server->absent[server->nabsent].uuid = action->uuid;
			server->absent[server->nabsent++].sequence = action->sequence;
			return;
		default:
			break;
	}

	if (action->type == ZKLOCK_ACT_WATCH && action->once &&
		is_watched(server, queue_dir(queue), action->name))
		return;

	request.dir = queue_dir(queue);
	request.permits = server->queue[queue].permits;
	request.generation = server->generation[queue];
	request.uuid = action->uuid;
	request.mode = action->mode;
	if (action->type == ZKLOCK_ACT_MAKE_DIR)
	{
		request.ancestors = server->ancestors_due;
		server->ancestors_due = false;
	}
	request.sync = action->sync;
	request.watch = action->watch;
	request.list = action->list;
	request.hash = action->hash;
	if (action->type == ZKLOCK_ACT_WATCH)
		snprintf(request.name, sizeof(request.name), "%s", action->name);
	else if (action->type == ZKLOCK_ACT_WATCH_OWN || action->type == ZKLOCK_ACT_DELETE ||
			 action->type == ZKLOCK_ACT_MARK)
	{
		size_t len;

		if (action->sequence < 0)
			fail("%s of a contender whose name is not known", request_name(action->type));
		if (action->permits > 0)
			zklock_format_permit(request.name, server_session(server), action->uuid,
								 action->permits);
		else
			zklock_format_contender(request.name, server_session(server), action->uuid,
									ZKLOCK_KIND_LOCK, action->mode);
		len = strlen(request.name);
		snprintf(request.name + len, sizeof(request.name) - len, "%010" PRId64,
				 action->sequence);
	}
	if (action->type == ZKLOCK_ACT_DELETE)
		check_delete(server, &request);
	if (action->jointly)
	{
		Part *part = &collecting->part[collecting->n++];

		*part = (Part){
			.type = request.type,
			.dir = request.dir,
			.generation = request.generation,
			.uuid = request.uuid,
			.mode = request.mode,
			.node = -1,
		};
		memcpy(part->name, request.name, sizeof(part->name));
		if (request.type == ZKLOCK_ACT_DELETE)
			COVER(SET_REPLACED);
	}
	else if (collecting != NULL && request.type != ZKLOCK_ACT_MAKE_DIR)
		deferred[ndeferred++] = request;
	else if (server->connected)
		conn_send(&server->conn, &request);
	/* else the worker has no client; a new connection annuls the reply */
}

/*
 * Of permits all queues are of one name (semaphore_siblings.h).
 */

/* What the others are to a place. */
static void
tell_of_siblings(const Server *server, int queue, ZkLockEvent *event)
{
	event->leader = INT64_MAX;
	event->beside = 0;
	if (server->queue[queue].permits == 0)
		return;
	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &server->table[queue].backend[i];

		if (b->state == BACKEND_WANTS && b->no_wait)
			return;
	}
	for (int q = 0; q < nqueues; q++)
	{
		if (q != queue && server->queue[q].permits > 0)
			zklock_semaphore_siblings_add(event, &server->queue[q]);
	}
}

/* Does the place know of the connection?  If not it will hear, and look itself. */
static bool
has_heard(const Server *server, int queue)
{
	return server->all_next < 0 || server->all_event == ZKLOCK_EV_TICK ||
		queue < server->all_next;
}

/* The place that is the first one to wait, or -1. */
static int
first_that_waits(const Server *server)
{
	int64_t lowest = INT64_MAX;
	int first = -1;

	for (int q = 0; q < nqueues; q++)
	{
		int64_t number = zklock_semaphore_siblings_waiting(&server->queue[q]);

		if (server->queue[q].permits == 0 || number >= lowest)
			continue;
		lowest = number;
		first = q;
	}
	return first;
}

/* A step of one has been done. */
static void
tell_siblings(Server *server, int queue, const ZkLockQueue *before,
			  const ZkLockActions *actions)
{
	int first = first_that_waits(server);
	ZkLockEvent event = {.type = ZKLOCK_EV_BESIDE};

	if (first < 0 || first == queue || !has_heard(server, first))
		return;
	event.ended = zklock_semaphore_siblings_ended(before, &server->queue[queue], actions,
												  zklock_semaphore_siblings_waiting(
													  &server->queue[first]));
	if (event.ended > 0 || zklock_semaphore_siblings_is_led(&server->queue[first]))
		step(server, first, &event);
}

/* The names that a step watches have little room on a connection: two of a lock, or those
 * before one who waits for a permit, which have no more together than one. */
static void
check_watched(const ZkLockQueue *queue, const ZkLockActions *actions)
{
	size_t all = 0;

	for (int i = 0; i < actions->n; i++)
	{
		size_t len = actions->action[i].type == ZKLOCK_ACT_WATCH
			? strlen(actions->action[i].name)
			: 0;

		if (len > ZKLOCK_WATCHED_MAX)
			fail("a name of %zu bytes is watched", len);
		all += len;
	}
	if (all > (queue->permits > 0 ? 1 : 2) * ZKLOCK_WATCHED_MAX)
		fail("a step watches names of %zu bytes", all);
}

static void
step(Server *server, int queue, ZkLockEvent *event)
{
	static const char *const names[] = {
		[ZKLOCK_EV_NEED] = "NEED",
		[ZKLOCK_EV_JOINTLY] = "JOINTLY",
		[ZKLOCK_EV_REMOVE] = "REMOVE",
		[ZKLOCK_EV_DISCONNECTED] = "DISCONNECTED",
		[ZKLOCK_EV_CONNECTED] = "CONNECTED",
		[ZKLOCK_EV_SESSION_LOST] = "SESSION_LOST",
		[ZKLOCK_EV_RESUMED] = "RESUMED",
		[ZKLOCK_EV_TICK] = "TICK",
		[ZKLOCK_EV_MADE_DIR] = "MADE_DIR",
		[ZKLOCK_EV_CREATED] = "CREATED",
		[ZKLOCK_EV_LISTED] = "LISTED",
		[ZKLOCK_EV_WATCHED_OWN] = "WATCHED_OWN",
		[ZKLOCK_EV_WATCHED] = "WATCHED",
		[ZKLOCK_EV_WATCHED_DIR] = "WATCHED_DIR",
		[ZKLOCK_EV_MARKED] = "MARKED",
		[ZKLOCK_EV_DELETED] = "DELETED",
		[ZKLOCK_EV_NODE_DELETED] = "NODE_DELETED",
		[ZKLOCK_EV_NODE_CHANGED] = "NODE_CHANGED",
		[ZKLOCK_EV_DIR_CHANGED] = "DIR_CHANGED",
		[ZKLOCK_EV_DIR_GONE] = "DIR_GONE",
		[ZKLOCK_EV_SEEN] = "SEEN",
		[ZKLOCK_EV_BESIDE] = "BESIDE",
	};
	static const char *const rcs[] = {
		[ZKLOCK_RC_OK] = "OK",		   [ZKLOCK_RC_NO_NODE] = "NO_NODE",
		[ZKLOCK_RC_EXISTS] = "EXISTS", [ZKLOCK_RC_LOST] = "LOST",
		[ZKLOCK_RC_UNDONE] = "UNDONE", [ZKLOCK_RC_ERROR] = "ERROR",
	};
	ZkLockQueue before = server->queue[queue];
	ZkLockActions actions;

	event->session = server_session(server);
	event->spare_watches = event->no_watches = server->crowded;
	event->alone = server->alone_rate > 0 && !once_in(server->alone_rate);
	event->keep = !server->crowded && server->keep_rate > 0 && !once_in(server->keep_rate);
	event->recurring =
		!event->keep && server->recurring_rate > 0 && !once_in(server->recurring_rate);
	event->asked = server->asked[queue];
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		event->held[mode] = table_held(&server->table[queue], (ZkLockMode) mode) > 0;
	event->fresh_uuid = server->next_uuid;
	server->next_uuid += ZKLOCK_NCONTENDERS;
	tell_of_siblings(server, queue, event);
	if (tracing)
	{
		TRACE("  server %d queue %d: %s %s uuid %" PRIx64 " list %" PRIu64
			  " needed %d%d spent %d%d %s",
			  number_of(server), queue, names[event->type], rcs[event->rc],
			  event->uuid & 0xffff, event->list, event->needed[0], event->needed[1],
			  event->spent[0], event->spent[1], event->name ? event->name : "");
		for (int i = 0; i < event->nchildren; i++)
			TRACE("      %s", event->children[i].name);
	}
	if (event->rc == ZKLOCK_RC_ERROR)
		server->refused[queue] = true;

	zklock_step(&server->queue[queue], event, &actions);
	world.observe(server, queue, event, &before, &actions);
	if (server->queue[queue].orphans_left && !before.orphans_left)
		COVER(ORPHANS_LEFT);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &server->queue[queue].contender[i];

		server->polled[queue] |=
			c->polled || (c->state == ZKLOCK_GRANTED && c->list_needed == UINT64_MAX);
	}
	check_watched(&server->queue[queue], &actions);
	/* As dispatch.c: the table first, under its lock, then the requests. */
	for (int i = 0; i < actions.n; i++)
	{
		if (!zklock_action_is_request(actions.action[i].type))
			perform(server, queue, &actions.action[i], event->keep);
	}
	for (int i = 0; i < actions.n; i++)
	{
		if (zklock_action_is_request(actions.action[i].type))
			perform(server, queue, &actions.action[i], event->keep);
	}
	world.notice(server);
	/* a listing is shown to others first, see receive_listing */
	if (before.permits > 0 && event->type != ZKLOCK_EV_LISTED &&
		event->type != ZKLOCK_EV_SEEN)
		tell_siblings(server, queue, &before, &actions);
}

/* zk_break of what this server has, or waits with. */
bool
server_remove(Server *server, int queue)
{
	const ZkContender *c =
		&server->queue[queue].contender[random_below(ZKLOCK_NCONTENDERS)];
	ZkLockEvent event = {.type = ZKLOCK_EV_REMOVE, .uuid = c->uuid};

	if (!server->connected || c->state < ZKLOCK_QUEUED)
		return false;
	COVER(REMOVED);
	step(server, queue, &event);
	return true;
}

/* All that a set's queues ask for jointly, and then what they ask for besides. */
void
server_send_set(Server *server, int number)
{
	const Set *set = &server->set[number];
	Request request = {.type = ZKLOCK_ACT_CREATE, .multi = nmultis};

	if (nmultis == MAX_MULTIS)
		fail("simulator: too many transactions");
	collecting = &multis[nmultis++];
	*collecting = (Multi){.set = number, .failed = -1};
	ndeferred = 0;
	for (int dir = 0; dir < ndirs; dir++)
	{
		ZkLockEvent event = {.type = ZKLOCK_EV_JOINTLY, .mode = set->mode};

		if (set->dirs[dir])
			step(server, dir, &event);
	}
	collecting = NULL;
	if (!server->connected)
		return;
	conn_send(&server->conn, &request);
	for (int i = 0; i < ndeferred; i++)
		conn_send(&server->conn, &deferred[i]);
}

/*
 * The worker forgets a queue; replies to it find nobody.  What it knows of the directory
 * may be kept.
 */
void
server_forget(Server *server, int queue)
{
	ZkLockQueue old = server->queue[queue];

	zklock_lock_queue_init(&server->queue[queue], server->connected);
	server->queue[queue].permits = old.permits;
	server->generation[queue]++;
	if (old.succession.watched && !once_in(4))
		server->queue[queue].succession = old.succession;
	COVER(FORGOTTEN);
}

/*
 * An event of the session goes to every queue that is not empty.  As in
 * dispatch.c, it may take its time to reach them all while there is a
 * connection, and a later one overtakes it.
 */
bool
server_feed(Server *server)
{
	ZkLockEvent event = {.type = server->all_event};
	int queue = server->all_next;

	if (queue < 0)
		return false;
	server->all_next = queue + 1 < nqueues ? queue + 1 : -1;
	if (zklock_lock_queue_empty(&server->queue[queue]) && server->connected)
		server_forget(server, queue);
	else if (event.type != ZKLOCK_EV_TICK ||
			 zklock_lock_queue_wants_tick(&server->queue[queue]))
		step(server, queue, &event);
	for (int i = 0; event.type == ZKLOCK_EV_TICK && i < ZKLOCK_NCONTENDERS; i++)
	{
		if (server->queue[queue].contender[i].watch_later)
			fail("a grant stays without a watch");
	}
	return true;
}

static void
step_all(Server *server, ZkLockEventType type)
{
	if (type != ZKLOCK_EV_TICK)
		server->nabsent = 0;
	if (type == ZKLOCK_EV_RESUMED)
	{
		server->all_event = ZKLOCK_EV_DISCONNECTED;
		for (server->all_next = 0; server_feed(server);)
			;
		server->resume_due = false;
	}
	if (server->all_next >= 0 && server->all_event == ZKLOCK_EV_RESUMED)
		server->resume_due = true;
	if (type == ZKLOCK_EV_SESSION_LOST)
		server->resume_due = false;
	else if (type == ZKLOCK_EV_CONNECTED && server->resume_due)
	{
		type = ZKLOCK_EV_RESUMED;
		server->resume_due = false;
	}
	/* what is kept of empty queues goes with the connection */
	for (int q = 0; q < nqueues && type != ZKLOCK_EV_TICK; q++)
	{
		if (zklock_lock_queue_empty(&server->queue[q]))
			server->queue[q].succession = ZKLOCK_NO_SUCCESSION;
	}
	server->all_event = type;
	server->all_next = 0;
	while ((!server->connected || !once_in(4)) && server_feed(server))
		;
}

void
server_init(Server *server)
{
	static const int rates[] = {0, 1000, 1000, 1000, 4};

	memset(server, 0, sizeof(*server));
	server->next_uuid = random_bits() & UINT64_C(0xffff000000000000);
	server->all_next = -1;
	conn_open(&server->conn);
	for (int q = 0; q < nqueues; q++)
	{
		zklock_lock_queue_init(&server->queue[q], false);
		server->table[q].handoff_limit = random_below(3);
	}
	server->keep_rate = rates[random_below(lengthof(rates))];
	server->alone_rate = rates[random_below(lengthof(rates))];
	server->recurring_rate = rates[random_below(lengthof(rates))];
	server->crowded = once_in(16);
}

/*
 * A tick, as it should be sent: when a write on the present connection has been
 * acknowledged, which a deposed leader does not do.
 */
bool
server_tick(Server *server)
{
	const Conn *conn = &server->conn;

	if (!server->connected || !conn->up || conn->deposed || server->all_next >= 0)
		return false;
	for (int i = 0; i < conn->ns2c; i++)
	{
		if (conn->s2c[i].type == MESSAGE_CONNECTED)
			return false;
	}
	step_all(server, ZKLOCK_EV_TICK);
	return true;
}

/* Expired, closed or given up: the session's requests are annulled. */
void
server_session_lost(Server *server)
{
	server->lost = true;
	server->connected = false;
	server->resuming = false;
	server->conn.up = false;
	server->conn.ns2c = server->conn.nc2s = 0;
	server->conn.nzombies = server->conn.nlimbo = 0;
	step_all(server, ZKLOCK_EV_SESSION_LOST);
}

/*
 * The worker looks at a table entry that has changed; not before a session event has
 * reached everybody, as in dispatch.c: a queue that has not heard that its worker is a
 * new one would trust what it reads.
 */
bool
server_need(Server *server, int queue)
{
	ZkLockEvent event = {0};

	if (!server->table[queue].dirty || server->all_next >= 0)
		return false;
	server->table[queue].dirty = false;
	table_need(&server->table[queue], &server->queue[queue], &event);
	if (zklock_lock_queue_empty(&server->queue[queue]))
	{
		if (once_in(2))
			server_forget(server, queue);
		server->queue[queue].connected = server->connected;
	}
	step(server, queue, &event);
	return true;
}

/* To each queue as if its part had been asked for alone. */
static void
receive_multi(Server *server, const Message *message)
{
	const Multi *multi = &multis[message->request.multi];

	for (int i = 0; i < multi->n; i++)
	{
		const Part *part = &multi->part[i];
		bool creates = part->type == ZKLOCK_ACT_CREATE &&
			(multi->failed < 0 || multi->part[multi->failed].type == ZKLOCK_ACT_CREATE);
		ZkLockEvent event = {
			.type = part->type == ZKLOCK_ACT_CREATE ? ZKLOCK_EV_CREATED : ZKLOCK_EV_DELETED,
			.rc = zklock_set_outcome(message->rc, multi->failed, i, creates),
			.uuid = part->uuid,
			.sequence = -1,
		};

		if (part->generation != server->generation[part->dir])
			continue;
		if (message->zxid > server->told[part->dir])
			server->told[part->dir] = message->zxid;
		if (event.rc == ZKLOCK_RC_OK && part->type == ZKLOCK_ACT_CREATE)
		{
			event.sequence = zk.node[part->node].child.sequence;
			event.token = zk.node[part->node].czxid;
		}
		step(server, part->dir, &event);
	}
}

/* A listing, as the queue has it. */
static void
take_listing(Server *server, int queue, const Message *message, ZkLockChild *children,
			 ZkLockEvent *event)
{
	int n = 0;

	event->changed = message->changed;
	for (int i = 0; i < message->nchildren; i++)
	{
		Node *node = &zk.node[message->children[i]];
		bool absent = false;

		for (int j = 0; j < server->nabsent; j++)
			absent |= node->child.uuid_hi == server_session(server) &&
				node->child.uuid_lo == server->absent[j].uuid &&
				node->child.sequence == server->absent[j].sequence;
		if (absent)
		{
			COVER(STRAYED);
			if (zk_find(queue_dir(queue), node->name) >= 0)
				fail("a server has strayed, by a contender that the leader has");
			continue;
		}
		children[n] = node->child;
		if (node->owner == server->conn.session)
			node->known = message->next;
		if (node->child.uuid_hi == server_session(server))
		{
			int knower = server_find(server, node);

			children[n].sibling = knower >= 0 && knower != queue;
			children[n].leaving = children[n].sibling && has_heard(server, knower) &&
				zklock_semaphore_siblings_leaves(server_contender(server, knower,
																  node->child.uuid_lo));
		}
		n++;
	}
	event->nchildren = n;
	if (message->zxid > server->told[queue])
		server->told[queue] = message->zxid;
	step(server, queue, event);
}

/* Of permits other places are shown it, too: the first one that waits, and the next one
 * if that is granted a permit.  Then who is the first one now is told so. */
static void
receive_listing(Server *server, int queue, const Message *message, ZkLockChild *children,
				ZkLockEvent *event)
{
	bool permits = server->queue[queue].permits > 0;
	int shown = queue;
	int first;

	take_listing(server, queue, message, children, event);
	while (permits && (first = first_that_waits(server)) >= 0 && first != shown &&
		   has_heard(server, first))
	{
		ZkLockEvent seen = {
			.type = message->rc == ZKLOCK_RC_OK ? ZKLOCK_EV_SEEN : ZKLOCK_EV_BESIDE,
			.children = children,
			.next_number = message->next,
			.ended = ZKLOCK_ENDED_UNKNOWN, /* for BESIDE */
		};

		shown = first;
		take_listing(server, first, message, children, &seen);
	}
}

static void
receive_reply(Server *server, const Message *message)
{
	const Request *request = &message->request;
	int queue = request->queue;
	ZkLockChild children[MAX_ALIVE];
	ZkLockEvent event = {
		.rc = message->rc,
		.uuid = request->uuid,
		.hash = request->hash,
		.list = request->list,
		.sequence = -1,
		.marked = message->marked,
	};

	if (request->multi >= 0)
	{
		receive_multi(server, message);
		return;
	}
	/* whoever asked may have gone */
	if (request->type == ZKLOCK_ACT_MAKE_DIR && message->rc == ZKLOCK_RC_NO_NODE)
		server->ancestors_due = true;
	if (request->generation != server->generation[queue])
		return;
	if (message->zxid > server->told[queue])
		server->told[queue] = message->zxid;

	switch (request->type)
	{
		case ZKLOCK_ACT_MAKE_DIR:
			event.type = ZKLOCK_EV_MADE_DIR;
			break;
		case ZKLOCK_ACT_CREATE:
			event.type = ZKLOCK_EV_CREATED;
			break;
		case ZKLOCK_ACT_LIST:
			event.type = ZKLOCK_EV_LISTED;
			break;
		case ZKLOCK_ACT_WATCH_OWN:
			event.type = ZKLOCK_EV_WATCHED_OWN;
			break;
		case ZKLOCK_ACT_WATCH:
			event.type = ZKLOCK_EV_WATCHED;
			break;
		case ZKLOCK_ACT_WATCH_DIR:
			event.type = ZKLOCK_EV_WATCHED_DIR;
			break;
		case ZKLOCK_ACT_MARK:
			event.type = ZKLOCK_EV_MARKED;
			break;
		default:
			event.type = ZKLOCK_EV_DELETED;
			if (message->rc == ZKLOCK_RC_ERROR)
				COVER(DELETE_REFUSED);
			break;
	}
	if (message->rc == ZKLOCK_RC_OK && message->node >= 0)
	{
		event.sequence = zk.node[message->node].child.sequence;
		event.token = zk.node[message->node].czxid;
		event.owned = zk.node[message->node].owner == server->conn.session;
	}
	event.children = children;
	event.next_number = message->next;
	if (request->type == ZKLOCK_ACT_LIST)
	{
		receive_listing(server, queue, message, children, &event);
		return;
	}
	if (request->type == ZKLOCK_ACT_WATCH && message->rc == ZKLOCK_RC_OK &&
		server->nwatched < MAX_WATCHES)
		server->watched[server->nwatched++] = message->node;
	step(server, queue, &event);
}

/* All queues of the directory hear of it. */
static void
step_dir(Server *server, int dir, const ZkLockEvent *event)
{
	for (int q = 0; q < nqueues; q++)
	{
		ZkLockEvent copy = *event;

		if (queue_dir(q) == dir)
			step(server, q, &copy);
	}
}

static void
receive_dir_watch(Server *server, const Message *message)
{
	ZkLockEvent event = {.type = ZKLOCK_EV_DIR_CHANGED};

	if (!is_children_watch(message->node))
	{
		event.type = ZKLOCK_EV_DIR_GONE;
		if (message->deleted)
			COVER(DIR_GONE);
		else
			COVER(DIR_DATA_CHANGED);
	}
	step_dir(server, dir_of_watch(message->node), &event);
}

static void
receive_watch(Server *server, const Message *message)
{
	const Node *node = &zk.node[message->node];
	bool own = node->child.uuid_hi == server_session(server);
	ZkLockEvent event = {
		.type = message->deleted ? ZKLOCK_EV_NODE_DELETED : ZKLOCK_EV_NODE_CHANGED,
		.hash = node->child.hash,
		.uuid = own ? node->child.uuid_lo : 0,
		.name = node->name,
	};

	if (!message->deleted)
		COVER(NODE_CHANGED);
	for (int q = 0; q < nqueues; q++)
	{
		if (queue_dir(q) == node->dir && message->zxid > server->told[q])
			server->told[q] = message->zxid;
	}
	for (int i = 0; i < server->nwatched; i++)
	{
		if (server->watched[i] == message->node)
			server->watched[i--] = server->watched[--server->nwatched];
	}
	step_dir(server, node->dir, &event);

	if (server_owns(server, message->node) && message->deleted &&
		server_find(server, node) >= 0)
	{
		const ZkContender *c =
			server_contender(server, server_find(server, node), node->child.uuid_lo);

		/* one that is not settled is looked for anyway; another place may watch it */
		if (c->state != ZKLOCK_DELETING &&
			(c->state != ZKLOCK_UNSETTLED || nqueues == ndirs))
			fail("our contender was deleted and we do not mind");
	}
}

/* The worker takes one message.  False if there is none. */
bool
server_receive(Server *server)
{
	Message message;

	if (!conn_receive(&server->conn, &message))
		return false;
	switch (message.type)
	{
		case MESSAGE_REPLY:
			receive_reply(server, &message);
			break;
		case MESSAGE_WATCH:
			if (is_dir_watch(message.node))
				receive_dir_watch(server, &message);
			else
				receive_watch(server, &message);
			break;
		case MESSAGE_CONNECTED:
			server->connected = true;
			server->nwatched = 0;

			/*
			 * The new follower may be behind what events told, and a new
			 * worker has been told nothing.
			 */
			for (int q = 0; q < nqueues; q++)
			{
				if (server->resuming)
					server->told[q] = 0;
				else if (server->told[q] > server->conn.seen)
					server->told[q] = server->conn.seen;
			}
			step_all(server, server->resuming ? ZKLOCK_EV_RESUMED : ZKLOCK_EV_CONNECTED);
			server->resuming = false;
			break;
		case MESSAGE_DISCONNECTED:
			server->connected = false;
			server->nwatched = 0;
			if (!server->resuming)
				step_all(server, ZKLOCK_EV_DISCONNECTED);
			break;
	}
	return true;
}

/* Is one of a place's contenders gone, and it will hear of that at the next tick? */
static bool
watches_later(const Server *server, int queue)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS && server->queue[queue].permits > 0; i++)
	{
		const ZkContender *c = &server->queue[queue].contender[i];

		if (c->watch_later &&
			zk.node[zk_find_token(queue_dir(queue), c->token)].dzxid != NEVER)
			return true;
	}
	return false;
}

bool
servers_need_tick(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			if (servers[s].refused[q] || servers[s].polled[q] || servers[s].crowded ||
				watches_later(&servers[s], q))
				return true;
		}
	}
	return false;
}

/* For the trace: who waits? */
void
servers_show(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			const Table *table = &servers[s].table[q];

			TRACE("server %d queue %d: usable %d%d demanded %d%d keep %d%d dirty %d", s,
				  q, table->usable[0], table->usable[1], table->demanded[0],
				  table->demanded[1], table->keep[0], table->keep[1], table->dirty);
			for (int i = 0; i < NPARTS; i++)
			{
				if (table->backend[i].state != BACKEND_IDLE)
					TRACE("  backend %d state %d mode %d set %" PRIu64, i,
						  table->backend[i].state, table->backend[i].mode,
						  table->backend[i].set);
			}
			for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
			{
				const ZkContender *c = &servers[s].queue[q].contender[i];

				if (c->state != ZKLOCK_FREE)
					TRACE("  contender %" PRIx64 " state %d mode %d set %" PRIu64
						  " token %" PRId64,
						  c->uuid & 0xffff, c->state, c->mode, c->set, c->token);
			}
		}
	}
}

/* ------------------------------------------------------------------------
 * Invariants
 * ------------------------------------------------------------------------
 */

/* The grant is in use on this server, and counts. */
bool
server_counts(const Server *server, int queue, ZkLockMode mode)
{
	const Table *table = &server->table[queue];

	if (!table->usable[mode] && table_held(table, mode) == 0)
		return false;
	return server_owns(server, table->node[mode]) &&
		zk.session[server->conn.session].alive &&
		zk.node[table->node[mode]].dzxid == NEVER;
}

/* Has the server heard everything there is to hear? */
bool
server_knows_all(const Server *server)
{
	const Conn *conn = &server->conn;

	return server->connected && server->all_next < 0 && conn->up && !conn->deposed &&
		conn->nc2s == 0 && conn->ns2c == 0 && conn->view == zk.zxid &&
		zk.session[conn->session].alive;
}

/* Does anybody but this server stand in the queue who does not share? */
static bool
wanted_by_others(const Server *server, int dir)
{
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		if (node->dir == dir && node->owner != server->conn.session &&
			node->child.mode == ZKLOCK_EXCLUSIVE)
			return true;
	}
	return false;
}

/*
 * One that has, and whose worker has nothing left to do, owes nobody an answer: who would
 * not wait has gone, who would for a while knows that he is in vain, and readers share
 * what only readers want.
 */
static void
check_answered(const Server *server)
{
	for (int q = 0; server_knows_all(server) && q < nqueues; q++)
	{
		const Table *table = &server->table[q];

		if (table->dirty || server->refused[q])
			continue;
		for (int i = 0; i < NPARTS; i++)
		{
			const Backend *b = &table->backend[i];

			if (b->state != BACKEND_WANTS || table->usable[b->mode] || b->set != 0)
				continue;
			if (b->no_wait)
				fail("server %d: who would not wait is not told", number_of(server));
			if (b->mode == ZKLOCK_SHARED && table_joins(table) && !b->blocked)
				fail("server %d: a reader does not know that it waits", number_of(server));
		}
		if (table_joins(table) && !wanted_by_others(server, queue_dir(q)) &&
			!server->crowded && !server->polled[q])
			fail("server %d: readers wait for readers", number_of(server));
	}
}

/*
 * A server that has heard everything there is to hear believes in no grant
 * whose contender is gone.  (Where a watch was refused it may, and where there is none
 * before the next tick.)
 */
static void
check_belief(const Server *server)
{
	if (!server_knows_all(server) || server->crowded)
		return;
	for (int q = 0; q < nqueues; q++)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			const ZkContender *grant =
				zklock_lock_queue_grant(&server->queue[q], (ZkLockMode) mode);

			if (grant != NULL && !server->refused[q] && !grant->watch_later &&
				zk.node[zk_find_token(queue_dir(q), grant->token)].dzxid != NEVER)
				fail("server %d has not noticed the loss of its grant", number_of(server));
		}
	}
}

/* Will there be another listing, since nobody knows what became of a create? */
static bool
is_doubted(const Server *server, int dir)
{
	for (int q = 0; q < nqueues; q++)
	{
		const ZkLockQueue *queue = &server->queue[q];

		if (queue_dir(q) != dir)
			continue;
		if (queue->orphans_left)
			return true;
		for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		{
			if (queue->contender[i].state == ZKLOCK_CREATING ||
				queue->contender[i].state == ZKLOCK_UNSETTLED)
				return true;
		}
	}
	return false;
}

void
check_invariants(void)
{
	world.check();
	for (int s = 0; s < nservers; s++)
	{
		check_belief(&servers[s]);
		check_answered(&servers[s]);
	}

	/* Every contender of ours is known to its queue, or about to be found. */
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		for (int s = 0; s < nservers; s++)
		{
			if (server_owns(&servers[s], zk.alive[i]) &&
				server_find(&servers[s], node) < 0 &&
				!(node->orphan && is_doubted(&servers[s], node->dir)))
				fail("server %d does not know its contender %s", s, node->name);
		}
	}

	/* A table and its queue agree on what is granted. */
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			const Table *table = &servers[s].table[q];

			for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
			{
				const ZkContender *grant =
					zklock_lock_queue_grant(&servers[s].queue[q], (ZkLockMode) mode);

				if ((table->usable[mode] || table_held(table, (ZkLockMode) mode) > 0) &&
					(grant == NULL || grant->token != table->token[mode]))
					fail("server %d: the table believes in a grant that is gone", s);
			}
		}
	}
}
