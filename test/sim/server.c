/*-------------------------------------------------------------------------
 *
 * server.c
 *	  One simulated server, and the invariants.
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
#include "server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* As in protocol.c: breaks a rule on purpose. */
#ifndef ZKLOCK_MUTANT
#define ZKLOCK_MUTANT 0
#endif

int nservers;
int ndirs;
Server servers[MAX_SERVERS];
bool faults;
bool counter_jumped[MAX_DIRS];
bool numbers_repeated[MAX_DIRS];

/* Newest token granted, by session. */
static int64_t granted_token[MAX_SESSIONS][MAX_DIRS][ZKLOCK_NMODES];

/* Of a set's queues: what goes into its transaction, and what is to be sent behind it. */
static Multi *collecting;
static int ndeferred;
static Request deferred[2 * MAX_DIRS];

static void step(Server *server, int dir, ZkLockEvent *event);

void
reset_tokens(void)
{
	memset(granted_token, 0, sizeof(granted_token));
}

bool
server_owns(const Server *server, int node)
{
	return !server->lost && zk.node[node].owner == server->conn.session;
}

static bool
modes_conflict(ZkLockMode a, ZkLockMode b)
{
	return a == ZKLOCK_EXCLUSIVE || b == ZKLOCK_EXCLUSIVE;
}

uint64_t
server_session(const Server *server)
{
	return zk.session[server->conn.session].id;
}

static const ZkContender *
find_contender(const ZkLockQueue *queue, uint64_t uuid)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state != ZKLOCK_FREE && queue->contender[i].uuid == uuid)
			return &queue->contender[i];
	}
	return NULL;
}

const ZkContender *
server_contender(const Server *server, int dir, uint64_t uuid)
{
	return find_contender(&server->queue[dir], uuid);
}

static int
number_of(const Server *server)
{
	return (int) (server - servers);
}

/*
 * Does "other" come before us?  Who was there first does, whatever its number says: one
 * that was made without the sequence flag may have any.  With one exception: when we
 * listed, the directory had come past that number, so that it looked like one that was
 * given after ours.
 */
static bool
comes_before(const Node *other, const Node *own)
{
	return other->czxid < own->czxid &&
		!(other->forged && other->child.sequence > own->child.sequence &&
		  other->child.sequence < own->known);
}

/* ------------------------------------------------------------------------
 * What the actions claim
 * ------------------------------------------------------------------------
 */

/*
 * What zk_contenders would say of the queue in which "own" is granted the lock: that it
 * has it, and with it nobody whom it excludes.  Only where the numbers say who came
 * first: some are not given, and some given twice.
 */
static void
check_holders(int dir, const Node *own)
{
	const Node *node[MAX_ALIVE];
	ZkLockChild queue[MAX_ALIVE] = {{0}};
	bool holds[MAX_ALIVE];
	int n = 0;

	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *one = &zk.node[zk.alive[i]];
		int at = n;

		if (one->dir != dir)
			continue;
		for (; at > 0 && node[at - 1]->czxid > one->czxid; at--)
			node[at] = node[at - 1];
		node[at] = one;
		n++;
	}
	for (int i = 0; i < n; i++)
	{
		queue[i] = node[i]->child;
		if (i > 0 && queue[i - 1].sequence >= queue[i].sequence)
			return;
	}
	zklock_find_holders(queue, n, holds);
	for (int i = 0; i < n; i++)
	{
		if (!holds[i] && queue[i].uuid_lo == own->child.uuid_lo &&
			queue[i].uuid_hi == own->child.uuid_hi)
			fail("%s is granted, and does not hold", own->name);
		for (int j = 0; j < i; j++)
		{
			if (holds[i] && holds[j] && modes_conflict(queue[i].mode, queue[j].mode) &&
				(queue[i].uuid_hi == 0 || queue[i].uuid_hi != queue[j].uuid_hi))
				fail("%s and %s hold at a time", queue[i].name, queue[j].name);
		}
	}
}

static void
check_granted(Server *server, int dir, const ZkLockAction *action, bool keep)
{
	int node = zk_find_token(dir, action->token);
	const Node *own;

	if (node < 0 || zk.node[node].dir != dir || !server_owns(server, node) ||
		zk.node[node].child.uuid_lo != action->uuid ||
		zk.node[node].child.mode != action->mode)
		fail("token %" PRId64 " is not our contender's czxid", action->token);
	own = &zk.node[node];
	if (own->dzxid <= server->told[dir])
		fail("granted though our contender was gone before what we were told");

	if (own->dzxid == NEVER)
	{
		for (int i = 0; i < zk.nalive; i++)
		{
			const Node *other = &zk.node[zk.alive[i]];

			if (other->dir == dir && other->owner != own->owner &&
				comes_before(other, own) &&
				modes_conflict(own->child.mode, other->child.mode))
				fail("granted though %s is before us", other->name);
		}
		for (int i = 0; i < zk.nsessions; i++)
		{
			for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
			{
				if (i != own->owner && modes_conflict(action->mode, (ZkLockMode) mode) &&
					granted_token[i][dir][mode] > action->token)
					fail("token %" PRId64 " after token %" PRId64, action->token,
						 granted_token[i][dir][mode]);
			}
		}
		granted_token[own->owner][dir][action->mode] = action->token;
		check_holders(dir, own);
	}

	if (action->mode == ZKLOCK_SHARED)
		COVER(GRANT_SHARED);
	else
		COVER(GRANT_EXCLUSIVE);
	table_granted(&server->table[dir], action->mode, action->token, node, keep,
				  action->demanded);
}

/*
 * 40P01 is right only if our own shared grant is there, somebody exclusive
 * stands between it and our exclusive contender, and that was so by all that
 * we could know.
 */
static void
check_deadlock(Server *server, int dir, const ZkLockAction *action)
{
	const ZkContender *shared = zklock_queue_grant(&server->queue[dir], ZKLOCK_SHARED);
	int exclusive = zk_find_token(dir, action->token);

	COVER(DEADLOCK);
	if (action->mode != ZKLOCK_EXCLUSIVE || shared == NULL || exclusive < 0)
		fail("deadlock without an upgrade");
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *other = &zk.node[i];

		if (other->dir == dir && other->owner != server->conn.session &&
			other->child.mode == ZKLOCK_EXCLUSIVE && other->dzxid > server->told[dir] &&
			((other->czxid > shared->token && other->czxid < zk.node[exclusive].czxid) ||
			 other->forged))
			return;
	}
	fail("deadlock reported where there is none");
}

/*
 * Whoever is told at once that somebody else has the lock must have had a reason
 * not to get it at some moment since he asked.
 */
static void
check_blocked(Server *server, int dir, const ZkLockAction *action)
{
	Table *table = &server->table[dir];
	int64_t asked_at = NEVER;

	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &table->backend[i];

		if (b->state == BACKEND_WANTS && b->mode == action->mode && b->no_wait &&
			b->heard && b->asked_at < asked_at)
			asked_at = b->asked_at;
	}
	if (server->queue[dir].contender[action->slot].state == ZKLOCK_BLOCKED)
		COVER(PROBE_BLOCKED);
	if (server->queue[dir].contender[action->slot].state == ZKLOCK_GRANTED)
		COVER(JOIN_BLOCKED);
	if (asked_at != NEVER && !server->refused[dir])
	{
		bool found = false;

		for (int i = 0; i < zk.nnodes && !found; i++)
		{
			const Node *other = &zk.node[i];

			found = other->dir == dir && other->owner != server->conn.session &&
				modes_conflict(other->child.mode, action->mode) && other->dzxid > asked_at;
		}
		if (!found && !server->conn.deposed)
			fail("told of somebody who had gone before the question");
	}
	table_blocked(table, action->mode);
}

/* Only what was made without the sequence flag has a number that was not given yet,
 * unless the directory has forgotten that. */
static void
check_number_refused(const Server *server, int dir)
{
	if (numbers_repeated[dir])
		return;
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].dir == dir && zk.node[i].forged &&
			zk.node[i].dzxid > server->told[dir])
			return;
	}
	fail("a number refused, though all were given");
}

static void
check_failed(Server *server, int dir, const ZkLockAction *action)
{
	switch (action->failure)
	{
		case ZKLOCK_FAIL_DEADLOCK:
			check_deadlock(server, dir, action);
			break;
		case ZKLOCK_FAIL_SEQUENCE:
			COVER(SEQUENCE_LIMIT);
			if (!counter_jumped[dir])
				fail("sequence refused without reason");
			break;
		case ZKLOCK_FAIL_NUMBER:
			COVER(NUMBER_REFUSED);
			check_number_refused(server, dir);
			break;
		case ZKLOCK_FAIL_NO_DIRECTORY:
			if (!faults)
				fail("no directory, though nobody removes it");
			break;
		case ZKLOCK_FAIL_REFUSED:
			COVER(REFUSED);
			if (!server->refused[dir])
				fail("refused, though the ensemble refused nothing");
			break;
		case ZKLOCK_FAIL_RING:
			fail("nothing here looks for rings");
	}
	table_failed(&server->table[dir], action->mode, action->failure);
}

static void
check_delete(Server *server, int dir, const Request *request)
{
	const Table *table = &server->table[dir];

	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		if ((table->usable[mode] || table_held(table, (ZkLockMode) mode) > 0) &&
			strcmp(zk.node[table->node[mode]].name, request->name) == 0)
			fail("deletes a contender whose grant is in use");
	}
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static void
perform(Server *server, int dir, const ZkLockAction *action, bool keep)
{
	Request request = {.type = action->type, .multi = -1, .dir = dir};

	TRACE("    %s slot %d uuid %" PRIx64 " %s list %" PRIu64 " token %" PRId64 " %s%s%s%s",
		  request_name(action->type), action->slot, action->uuid & 0xffff,
		  action->mode == ZKLOCK_SHARED ? "shared" : "exclusive", action->list,
		  action->token, action->name ? action->name : "", action->sync ? " (sync)" : "",
		  action->watch ? " (watch)" : "", action->demanded ? " (demanded)" : "");

	switch (action->type)
	{
		case ZKLOCK_ACT_GRANTED:
			check_granted(server, dir, action, keep);
			return;
		case ZKLOCK_ACT_BLOCKED:
			COVER(BLOCKED);
			check_blocked(server, dir, action);
			return;
		case ZKLOCK_ACT_DEMANDED:
			table_demanded(&server->table[dir], action->mode);
			return;
		case ZKLOCK_ACT_UNDEMANDED:
			COVER(UNDEMANDED);
			table_undemanded(&server->table[dir], action->mode);
			return;
		case ZKLOCK_ACT_REVOKED:
			COVER(REVOKED);
			table_revoked(&server->table[dir], action->mode);
			return;
		case ZKLOCK_ACT_FAILED:
			check_failed(server, dir, action);
			return;
		default:
			break;
	}

	if (action->type == ZKLOCK_ACT_WATCH && strlen(action->name) > ZKLOCK_WATCHED_MAX)
		fail("a name of %zu bytes is watched", strlen(action->name));

	request.generation = server->generation[dir];
	request.uuid = action->uuid;
	request.mode = action->mode;
	request.attempt = action->attempt;
	request.sync = action->sync;
	request.watch = action->watch;
	request.list = action->list;
	request.hash = action->hash;
	if (action->type == ZKLOCK_ACT_WATCH || action->type == ZKLOCK_ACT_DELETE_ORPHAN)
		snprintf(request.name, sizeof(request.name), "%s", action->name);
	else if (action->type == ZKLOCK_ACT_WATCH_OWN || action->type == ZKLOCK_ACT_DELETE)
	{
		size_t len;

		if (action->sequence < 0)
			fail("%s of a contender whose name is not known", request_name(action->type));
		zklock_format_contender(request.name, server_session(server), action->uuid,
								ZKLOCK_KIND_LOCK, action->mode);
		len = strlen(request.name);
		snprintf(request.name + len, sizeof(request.name) - len, "%010" PRId64,
				 action->sequence);
	}
	if (action->type == ZKLOCK_ACT_DELETE || action->type == ZKLOCK_ACT_DELETE_ORPHAN)
		check_delete(server, dir, &request);
	if (action->jointly)
	{
		Part *part = &collecting->part[collecting->n++];

		*part = (Part){
			.type = request.type,
			.dir = dir,
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

/* Notice what is worth counting, by comparing before and after. */
static void
observe(const ZkLockEvent *event, const ZkLockQueue *before, const ZkLockQueue *after,
		const ZkLockActions *actions)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *old = &before->contender[i];
		const ZkContender *new = &after->contender[i];

		if (event->type == ZKLOCK_EV_LISTED && old->state == ZKLOCK_UNSETTLED &&
			new->uuid == old->uuid &&new->state > ZKLOCK_UNSETTLED)
		{
			COVER(ADOPTED);
			if (new->set != 0)
				COVER(SET_ADOPTED);
		}
		if (event->type == ZKLOCK_EV_NEED && !event->needed[old->mode])
		{
			if (old->state == ZKLOCK_CREATING)
				COVER(WITHDRAWN_CREATING);
			if (old->state == ZKLOCK_WAITING)
				COVER(WITHDRAWN_WAITING);
		}
		if (event->type == ZKLOCK_EV_LISTED && old->state == ZKLOCK_PROBING &&
			new->state == ZKLOCK_CREATING)
			COVER(PROBE_FREE);
		if (event->type == ZKLOCK_EV_LISTED && old->state == ZKLOCK_QUEUED &&
			new->state == ZKLOCK_DELETING && after->needed[old->mode])
			COVER(NUMBER_SHARED);
		if (old->state != ZKLOCK_WAITING && new->polled)
			COVER(POLLED);
		if (event->type == ZKLOCK_EV_LISTED && old->state == ZKLOCK_WAITING &&
			!old->blocker_last && new->blocker_last)
			COVER(FORESEEN);
		if (event->type == ZKLOCK_EV_CREATED && old->state == ZKLOCK_CREATING &&
			new->uuid == old->uuid && event->rc == ZKLOCK_RC_OK)
		{
			if (new->state == ZKLOCK_GRANTED)
				COVER(SUCCEEDED);
			else if (before->succession.watched && before->succession.last >= 0 &&
					 new->sequence > before->succession.last + 1)
				COVER(NOT_SUCCEEDED);
		}
		if (event->type == ZKLOCK_EV_CONNECTED && old->state == ZKLOCK_GRANTED)
			COVER(RECONNECT_GRANTED);
		if (event->type == ZKLOCK_EV_SESSION_LOST && old->state == ZKLOCK_GRANTED)
			COVER(EXPIRED_GRANTED);
		if (event->type == ZKLOCK_EV_SESSION_LOST &&
			(old->state == ZKLOCK_CREATING || old->state == ZKLOCK_UNSETTLED))
			COVER(EXPIRED_CREATING);
		if (event->type == ZKLOCK_EV_RESUMED && old->state == ZKLOCK_GRANTED)
			COVER(RESUMED_GRANTED);
		if (event->type == ZKLOCK_EV_RESUMED && old->state == ZKLOCK_CREATING)
			COVER(RESUMED_CREATING);

		/*
		 * The hand-over between servers: nobody else was before the one that
		 * went, both watches stood.  This must not cost a listing.
		 */
		if (event->type == ZKLOCK_EV_NODE_DELETED && old->state == ZKLOCK_WAITING &&
			old->blocker == event->hash && old->blocker_last && old->own_watched &&
			old->blocker_watched && before->connected)
		{
			bool granted = false;
			bool alone = true;

			for (int j = 0; j < ZKLOCK_NCONTENDERS; j++)
			{
				/* another one of ours may have reasons of its own to list */
				if (j != i && before->contender[j].state != ZKLOCK_FREE &&
					before->contender[j].state < ZKLOCK_GRANTED)
					alone = false;
			}
			for (int j = 0; j < actions->n; j++)
			{
				if (alone && actions->action[j].type == ZKLOCK_ACT_LIST)
					fail("a hand-over costs a listing");
				if (actions->action[j].type == ZKLOCK_ACT_GRANTED &&
					actions->action[j].uuid == old->uuid)
					granted = true;
			}
			if (!granted)
				fail("the last blocker has gone and nobody is granted the lock");
			COVER(DIRECT_HANDOVER);
		}
	}
}

static void
step(Server *server, int dir, ZkLockEvent *event)
{
	static const char *const names[] = {"NEED",			"JOINTLY",		"DISCONNECTED",
										"CONNECTED",	"SESSION_LOST", "RESUMED",
										"TICK",			"MADE_DIR",		"CREATED",
										"LISTED",		"WATCHED_OWN",	"WATCHED",
										"WATCHED_DIR",	"DELETED",		"NODE_DELETED",
										"NODE_CHANGED", "DIR_CHANGED",	"DIR_GONE"};
	static const char *const rcs[] = {"OK",	  "NO_NODE", "EXISTS",
									  "LOST", "UNDONE",	 "ERROR"};
	ZkLockQueue before = server->queue[dir];
	ZkLockActions actions;

	event->session = server_session(server);
	event->spare_watches = event->no_watches = server->crowded;
	event->alone = server->alone_rate > 0 && !once_in(server->alone_rate);
	event->keep = !server->crowded && server->keep_rate > 0 && !once_in(server->keep_rate);
	event->recurring =
		!event->keep && server->recurring_rate > 0 && !once_in(server->recurring_rate);
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		event->held[mode] = table_held(&server->table[dir], (ZkLockMode) mode) > 0;
	event->fresh_uuid = server->next_uuid;
	server->next_uuid += ZKLOCK_NCONTENDERS;
	if (tracing)
	{
		TRACE("  server %d lock %d: %s %s uuid %" PRIx64 " list %" PRIu64
			  " needed %d%d spent %d%d %s",
			  number_of(server), dir, names[event->type], rcs[event->rc],
			  event->uuid & 0xffff, event->list, event->needed[0], event->needed[1],
			  event->spent[0], event->spent[1], event->name ? event->name : "");
		for (int i = 0; i < event->nchildren; i++)
			TRACE("      %s", event->children[i].name);
	}
	if (event->rc == ZKLOCK_RC_ERROR)
		server->refused[dir] = true;

	zklock_step(&server->queue[dir], event, &actions);
	observe(event, &before, &server->queue[dir], &actions);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &server->queue[dir].contender[i];

		server->polled[dir] |=
			c->polled || (c->state == ZKLOCK_GRANTED && c->list_needed == UINT64_MAX);
	}
	/* As dispatch.c: the table first, under its lock, then the requests. */
	for (int i = 0; i < actions.n; i++)
	{
		if (!zklock_action_is_request(actions.action[i].type))
			perform(server, dir, &actions.action[i], event->keep);
	}
	for (int i = 0; i < actions.n; i++)
	{
		if (zklock_action_is_request(actions.action[i].type))
			perform(server, dir, &actions.action[i], event->keep);
	}
	sets_notice(server);
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
		bool fixed;
		ZkLockPart part =
			zklock_queue_part(&server->queue[dir], set->mode, set->number, &fixed);

		if (set->dirs[dir] && (ZKLOCK_MUTANT != 18 || part == ZKLOCK_PART_READY))
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
static void
forget(Server *server, int dir)
{
	ZkLockSuccession succession = server->queue[dir].succession;

	zklock_queue_init(&server->queue[dir], server->connected);
	server->generation[dir]++;
	if (succession.watched && !once_in(4))
		server->queue[dir].succession = succession;
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
	int dir = server->all_next;

	if (dir < 0)
		return false;
	server->all_next = dir + 1 < ndirs ? dir + 1 : -1;
	if (zklock_queue_empty(&server->queue[dir]) && server->connected)
		forget(server, dir);
	else if (event.type != ZKLOCK_EV_TICK || zklock_queue_wants_tick(&server->queue[dir]))
		step(server, dir, &event);
	for (int i = 0; event.type == ZKLOCK_EV_TICK && i < ZKLOCK_NCONTENDERS; i++)
	{
		if (server->queue[dir].contender[i].watch_later)
			fail("a grant stays without a watch");
	}
	return true;
}

static void
step_all(Server *server, ZkLockEventType type)
{
	if (type == ZKLOCK_EV_TICK && server->all_next >= 0)
		return;
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
	for (int dir = 0; dir < ndirs && type != ZKLOCK_EV_TICK; dir++)
	{
		if (zklock_queue_empty(&server->queue[dir]))
			server->queue[dir].succession = ZKLOCK_NO_SUCCESSION;
	}
	server->all_event = type;
	server->all_next = 0;
	while ((!server->connected || !once_in(4)) && server_feed(server))
		;
}

void
server_init(Server *server)
{
	memset(server, 0, sizeof(*server));
	server->next_uuid = random_bits() & UINT64_C(0xffff000000000000);
	server->all_next = -1;
	conn_open(&server->conn);
	for (int dir = 0; dir < MAX_DIRS; dir++)
		zklock_queue_init(&server->queue[dir], false);
}

/*
 * A tick, as it should be sent: when a write on the present connection has been
 * acknowledged, which a deposed leader does not do.
 */
void
server_tick(Server *server)
{
	const Conn *conn = &server->conn;

	if (!server->connected || !conn->up || conn->deposed)
		return;
	for (int i = 0; i < conn->ns2c; i++)
	{
		if (conn->s2c[i].type == MESSAGE_CONNECTED)
			return;
	}
	step_all(server, ZKLOCK_EV_TICK);
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
server_need(Server *server, int dir)
{
	ZkLockEvent event = {0};

	if (!server->table[dir].dirty || server->all_next >= 0)
		return false;
	server->table[dir].dirty = false;
	table_need(&server->table[dir], &server->queue[dir], &event);
	if (zklock_queue_empty(&server->queue[dir]))
	{
		if (once_in(2))
			forget(server, dir);
		server->queue[dir].connected = server->connected;
	}
	step(server, dir, &event);
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

static void
receive_reply(Server *server, const Message *message)
{
	const Request *request = &message->request;
	int dir = request->dir;
	ZkLockChild children[MAX_ALIVE];
	ZkLockEvent event = {
		.rc = message->rc,
		.uuid = request->uuid,
		.hash = request->hash,
		.list = request->list,
		.sequence = -1,
	};

	if (request->multi >= 0)
	{
		receive_multi(server, message);
		return;
	}
	if (request->generation != server->generation[dir] ||
		request->type == ZKLOCK_ACT_DELETE_ORPHAN)
		return;
	if (message->zxid > server->told[dir])
		server->told[dir] = message->zxid;

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
	}
	for (int i = 0; i < message->nchildren; i++)
	{
		Node *node = &zk.node[message->children[i]];

		children[i] = node->child;
		if (node->owner == server->conn.session)
			node->known = message->next;
	}
	event.children = children;
	event.nchildren = message->nchildren;
	event.next_number = message->next;
	step(server, dir, &event);
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
	step(server, dir_of_watch(message->node), &event);
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
	if (message->zxid > server->told[node->dir])
		server->told[node->dir] = message->zxid;
	step(server, node->dir, &event);

	if (own && message->deleted)
	{
		const ZkContender *c =
			find_contender(&server->queue[node->dir], node->child.uuid_lo);

		if (c != NULL && c->state != ZKLOCK_DELETING)
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

			/*
			 * The new follower may be behind what events told, and a new
			 * worker has been told nothing.
			 */
			for (int dir = 0; dir < ndirs; dir++)
			{
				if (server->resuming)
					server->told[dir] = 0;
				else if (server->told[dir] > server->conn.seen)
					server->told[dir] = server->conn.seen;
			}
			step_all(server, server->resuming ? ZKLOCK_EV_RESUMED : ZKLOCK_EV_CONNECTED);
			server->resuming = false;
			break;
		case MESSAGE_DISCONNECTED:
			server->connected = false;
			if (!server->resuming)
				step_all(server, ZKLOCK_EV_DISCONNECTED);
			break;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Invariants
 * ------------------------------------------------------------------------
 */

/* The grant is in use on this server, and counts. */
static bool
counts(const Server *server, int dir, int mode)
{
	const Table *table = &server->table[dir];

	if (!table->usable[mode] && table_held(table, (ZkLockMode) mode) == 0)
		return false;
	return server_owns(server, table->node[mode]) &&
		zk.session[server->conn.session].alive &&
		zk.node[table->node[mode]].dzxid == NEVER;
}

/* No two servers hold conflicting grants of one name. */
static void
check_exclusion(int dir)
{
	for (int a = 0; a < nservers; a++)
	{
		if (!counts(&servers[a], dir, ZKLOCK_EXCLUSIVE))
			continue;
		for (int b = 0; b < nservers; b++)
		{
			if (b != a &&
				(counts(&servers[b], dir, ZKLOCK_EXCLUSIVE) ||
				 counts(&servers[b], dir, ZKLOCK_SHARED)))
				fail("servers %d and %d hold lock %d", a, b, dir);
		}
	}
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
	for (int dir = 0; server_knows_all(server) && dir < ndirs; dir++)
	{
		const Table *table = &server->table[dir];

		if (table->dirty || server->refused[dir])
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
		if (table_joins(table) && !wanted_by_others(server, dir) && !server->crowded &&
			!server->polled[dir])
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
	for (int dir = 0; dir < ndirs; dir++)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			const ZkContender *grant =
				zklock_queue_grant(&server->queue[dir], (ZkLockMode) mode);

			if (grant != NULL && !server->refused[dir] && !grant->watch_later &&
				zk.node[zk_find_token(dir, grant->token)].dzxid != NEVER)
				fail("server %d has not noticed the loss of its grant", number_of(server));
		}
	}
}

void
check_invariants(void)
{
	for (int dir = 0; dir < ndirs; dir++)
		check_exclusion(dir);
	for (int s = 0; s < nservers; s++)
	{
		check_belief(&servers[s]);
		check_answered(&servers[s]);
	}
	check_sets();

	/* Every contender of ours is known to its queue. */
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		for (int s = 0; s < nservers; s++)
		{
			if (server_owns(&servers[s], zk.alive[i]) && !node->orphan &&
				find_contender(&servers[s].queue[node->dir], node->child.uuid_lo) == NULL)
				fail("server %d does not know its contender %s", s, node->name);
		}
	}

	/* A table and its queue agree on what is granted. */
	for (int s = 0; s < nservers; s++)
	{
		for (int dir = 0; dir < ndirs; dir++)
		{
			const Table *table = &servers[s].table[dir];

			for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
			{
				const ZkContender *grant =
					zklock_queue_grant(&servers[s].queue[dir], (ZkLockMode) mode);

				if ((table->usable[mode] || table_held(table, (ZkLockMode) mode) > 0) &&
					(grant == NULL || grant->token != table->token[mode]))
					fail("server %d: the table believes in a grant that is gone", s);
			}
		}
	}
}
