/*-------------------------------------------------------------------------
 *
 * slots_sim.c
 *	  Plays seeded schedules of slots (slots.h, and protocol.h for each place) against
 *	  the model of ZooKeeper.
 *
 * Each server has a few places, of one session each, in one directory.  A schedule has
 * three phases, as in sim.c: chaos, in which everything happens at random; calm, in which
 * everybody who waits must get a slot without the help of a tick; and a drain, after
 *which nothing may be left.
 *
 * The ground truth is the model's leader.  A slot counts while its session is alive there
 * and its node exists.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "slots.h"

#define NPLACES	   3
#define CALM_STEPS 20000

typedef enum BackendState
{
	BACKEND_NONE,
	BACKEND_WANTS,
	BACKEND_HOLDS
} BackendState;

/* One entry of the lock table, of the kind slot, and its session. */
typedef struct Place
{
	bool in_use;
	BackendState backend;
	bool no_wait; /* the session leaves when it hears that no slot is free */
	bool heard;	  /* the worker has looked since it came */
	int64_t asked_at;
	bool usable; /* the grant; as in grant.h */
	bool keep;
	bool demanded;
	int64_t token;
	int node;
	bool dirty;
	int generation;
	ZkLockQueue queue;
	int64_t told;
	bool refused;
	bool polled;
} Place;

typedef struct Server
{
	Conn conn;
	bool lost;
	bool resuming;
	bool connected;
	ZkLockEventType all_event;
	int all_next;
	bool resume_due;
	uint64_t next_uuid;
	int keep_rate;
	int alone_rate;
	bool crowded; /* too many watches */
	Place place[NPLACES];
} Server;

typedef enum Phase
{
	PHASE_CHAOS,
	PHASE_CALM,
	PHASE_DRAIN
} Phase;

static int nservers;
static Server servers[MAX_SERVERS];
static Phase phase;
static int deposed_rate;
static int usual;	/* number of slots */
static bool agreed; /* everybody names that */
static int calm_wishes;

/* ------------------------------------------------------------------------
 * Trace, and what has happened
 * ------------------------------------------------------------------------
 */

static char heading[160];

void
show_heading(void)
{
	if (heading[0] != '\0')
		trace("%s", heading);
	heading[0] = '\0';
}

typedef enum Happened
{
	SEEN_GRANTED,
	SEEN_GRANTED_BESIDE,
	SEEN_GRANTED_AFTER_WAIT,
	SEEN_WAITS_FIRST,
	SEEN_WAITS_BEHIND,
	SEEN_MARK,
	SEEN_MARK_LOST,
	SEEN_MARKED_BEFORE,
	SEEN_KEPT,
	SEEN_KEPT_TAKEN,
	SEEN_KEPT_DEMANDED,
	SEEN_OTHER_NUMBER,
	SEEN_SIBLINGS,
	SEEN_PROBE_BLOCKED,
	SEEN_PROBE_FREE,
	SEEN_FOREIGNER,
	SEEN_REVOKED,
	SEEN_ADOPTED,
	SEEN_ORPHAN,
	SEEN_LULL,
	NSEEN
} Happened;

static long seen[NSEEN];
static const char *const seen_name[NSEEN] = {
	[SEEN_GRANTED] = "slots granted",
	[SEEN_GRANTED_BESIDE] = "slots granted beside others",
	[SEEN_GRANTED_AFTER_WAIT] = "slots granted after a wait",
	[SEEN_WAITS_FIRST] = "waits as the first",
	[SEEN_WAITS_BEHIND] = "waits behind one who waits",
	[SEEN_MARK] = "nodes written for who waits behind",
	[SEEN_MARK_LOST] = "such writes lost",
	[SEEN_MARKED_BEFORE] = "nodes that were written before they were watched",
	[SEEN_KEPT] = "slots kept for nobody",
	[SEEN_KEPT_TAKEN] = "kept slots taken",
	[SEEN_KEPT_DEMANDED] = "kept slots given up on demand",
	[SEEN_OTHER_NUMBER] = "slots granted beside another number of slots",
	[SEEN_SIBLINGS] = "slots granted beside one of the same server",
	[SEEN_PROBE_BLOCKED] = "probes that found no slot",
	[SEEN_PROBE_FREE] = "probes that found one",
	[SEEN_FOREIGNER] = "foreigners who count",
	[SEEN_REVOKED] = "slots lost",
	[SEEN_ADOPTED] = "contenders adopted",
	[SEEN_ORPHAN] = "orphans deleted",
	[SEEN_LULL] = "lulls in which nobody waits for a free slot",
};

static int
report(void)
{
	return report_counts("", seen, seen_name, NSEEN);
}

/* ------------------------------------------------------------------------
 * Truth
 * ------------------------------------------------------------------------
 */

static int
number_of(const Server *server)
{
	return (int) (server - servers);
}

static uint64_t
session_id(const Server *server)
{
	return zk.session[server->conn.session].id;
}

/* Who is in the queue, in its order. */
static int
true_queue(ZkLockChild *queue, const Node **nodes)
{
	int n = 0;

	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];
		int at = n++;

		for (; at > 0 && queue[at - 1].sequence > node->child.sequence; at--)
		{
			queue[at] = queue[at - 1];
			nodes[at] = nodes[at - 1];
		}
		queue[at] = node->child;
		nodes[at] = node;
	}
	return n;
}

/* Is the node entitled to a slot? */
static bool
entitled(const Node *node)
{
	ZkLockChild queue[MAX_ALIVE] = {{0}};
	const Node *nodes[MAX_ALIVE];
	bool holds[MAX_ALIVE];
	int n = true_queue(queue, nodes);

	zklock_slots_find_holders(queue, n, holds);
	for (int i = 0; i < n; i++)
	{
		if (nodes[i] == node)
			return holds[i];
	}
	return false;
}

/* The place has a slot, and it counts. */
static bool
counts(const Server *server, const Place *place)
{
	return (place->usable || place->backend == BACKEND_HOLDS) && !server->lost &&
		zk.node[place->node].owner == server->conn.session &&
		zk.session[server->conn.session].alive && zk.node[place->node].dzxid == NEVER;
}

/* While somebody has a slot of N, no more than N have one. */
static void
check_number(void)
{
	int least = INT32_MAX;
	int n = 0;

	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			if (!counts(&servers[s], &servers[s].place[p]))
				continue;
			n++;
			if (servers[s].place[p].queue.slots < least)
				least = servers[s].place[p].queue.slots;
		}
	}
	if (n > least)
		fail("%d have a slot, and one of them said %d", n, least);
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

static const Place *
knows(const Server *server, uint64_t uuid)
{
	for (int p = 0; p < NPLACES; p++)
	{
		if (find_contender(&server->place[p].queue, uuid) != NULL)
			return &server->place[p];
	}
	return NULL;
}

/* Has the server heard everything there is to hear? */
static bool
knows_all(const Server *server)
{
	const Conn *conn = &server->conn;

	return server->connected && server->all_next < 0 && conn->up && !conn->deposed &&
		conn->nc2s == 0 && conn->ns2c == 0 && conn->view == zk.zxid &&
		zk.session[conn->session].alive;
}

static void
check_invariants(void)
{
	check_number();
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		for (int s = 0; s < nservers; s++)
		{
			if (!servers[s].lost && node->owner == servers[s].conn.session &&
				!node->orphan && knows(&servers[s], node->child.uuid_lo) == NULL)
				fail("server %d does not know its contender %s", s, node->name);
		}
	}
	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			const Place *place = &servers[s].place[p];
			const ZkContender *grant = zklock_queue_grant(&place->queue, ZKLOCK_EXCLUSIVE);

			if ((place->usable || place->backend == BACKEND_HOLDS) &&
				(grant == NULL || grant->token != place->token))
				fail("server %d: place %d believes in a slot that is gone", s, p);
			if (grant != NULL && knows_all(&servers[s]) && !place->refused &&
				!servers[s].crowded && !grant->watch_later &&
				zk.node[zk_find_token(0, grant->token)].dzxid != NEVER)
				fail("server %d has not noticed the loss of its slot", s);
			if (place->backend == BACKEND_WANTS && place->no_wait && !place->dirty &&
				knows_all(&servers[s]) && !place->refused && !place->usable)
				fail("server %d: who would not wait is not told", s);
		}
	}
}

/* ------------------------------------------------------------------------
 * The table
 * ------------------------------------------------------------------------
 */

static bool
sibling_waits(const Server *server, const Place *place)
{
	for (int p = 0; p < NPLACES; p++)
	{
		if (&server->place[p] != place && server->place[p].backend == BACKEND_WANTS)
			return true;
	}
	return false;
}

static void
settle(Server *server, Place *place)
{
	if (place->usable && place->backend == BACKEND_NONE)
	{
		if (place->demanded || !place->keep || sibling_waits(server, place))
			place->usable = false;
		else
			seen[SEEN_KEPT]++;
	}
	place->dirty = true;
}

/* What is kept for nobody and no use to whoever comes now goes. */
static void
give_up_kept(Server *server)
{
	for (int p = 0; p < NPLACES; p++)
	{
		Place *place = &server->place[p];

		if (place->usable && place->backend == BACKEND_NONE)
		{
			place->usable = false;
			place->dirty = true;
		}
	}
}

static bool
start(Server *server, int slots, bool no_wait)
{
	Place *vacant = NULL;

	for (int p = 0; p < NPLACES; p++)
	{
		Place *place = &server->place[p];

		if (place->usable && place->backend == BACKEND_NONE &&
			place->queue.slots == slots && !sibling_waits(server, place))
		{
			place->backend = BACKEND_HOLDS;
			seen[SEEN_KEPT_TAKEN]++;
			return true;
		}
		if (!place->in_use)
			vacant = place;
	}
	give_up_kept(server);
	if (vacant == NULL)
		return false;
	zklock_queue_init(&vacant->queue, false);
	vacant->queue.slots = slots;
	vacant->generation++;
	vacant->in_use = true;
	vacant->backend = BACKEND_WANTS;
	vacant->no_wait = no_wait;
	vacant->heard = false;
	vacant->asked_at = zk.zxid;
	vacant->refused = vacant->polled = false;
	vacant->told = 0;
	vacant->dirty = true;
	return true;
}

static void
check_granted(Server *server, Place *place, const ZkLockAction *action, bool keep)
{
	int node = zk_find_token(0, action->token);
	const Node *own;

	if (node < 0 || zk.node[node].owner != server->conn.session ||
		zk.node[node].child.uuid_lo != action->uuid ||
		zk.node[node].child.slots != place->queue.slots)
		fail("token %" PRId64 " is not our contender's czxid", action->token);
	own = &zk.node[node];
	if (own->dzxid <= place->told)
		fail("granted though our contender was gone before what we were told");
	if (own->dzxid == NEVER && zk.session[server->conn.session].alive && !entitled(own))
		fail("granted out of turn");
	if (place->usable || place->backend == BACKEND_HOLDS)
		fail("granted what is granted already");
	seen[SEEN_GRANTED]++;
	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			const Place *other = &servers[s].place[p];

			if (!counts(&servers[s], other))
				continue;
			seen[SEEN_GRANTED_BESIDE]++;
			if (&servers[s] == server)
				seen[SEEN_SIBLINGS]++;
			if (other->queue.slots != place->queue.slots)
				seen[SEEN_OTHER_NUMBER]++;
		}
	}
	place->token = action->token;
	place->node = node;
	place->keep = keep;
	place->demanded = action->demanded || !keep;
	place->usable = place->backend == BACKEND_WANTS || !place->demanded;
	settle(server, place);
}

/* Who is told that there is no slot must have had a reason to wait since he asked. */
static void
check_blocked(Server *server, Place *place)
{
	int n = 0;
	int least = place->queue.slots;

	(void) server;
	if (place->backend != BACKEND_WANTS || !place->no_wait || !place->heard)
		return;
	for (int i = 0; i < zk.nnodes; i++)
	{
		const ZkLockChild *child = &zk.node[i].child;

		if (zk.node[i].dzxid <= place->asked_at)
			continue;
		n++;
		if (child->slots > 0 && child->slots < least)
			least = child->slots;
	}
	if (n < least && !place->refused && !server->conn.deposed)
		fail("told that there is no slot, though there was one all the time");
	place->backend = BACKEND_NONE;
	settle(server, place);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static void
check_delete(const Server *server, const Request *request)
{
	for (int p = 0; p < NPLACES; p++)
	{
		const Place *place = &server->place[p];

		if ((place->usable || place->backend == BACKEND_HOLDS) &&
			strcmp(zk.node[place->node].name, request->name) == 0)
			fail("deletes a contender whose slot is in use");
	}
}

static void
perform(Server *server, Place *place, const ZkLockAction *action, bool keep)
{
	Request request = {.type = action->type, .multi = -1, .slots = place->queue.slots};

	TRACE("    %s slot %d uuid %" PRIx64 " list %" PRIu64 " token %" PRId64 " %s%s%s%s",
		  request_name(action->type), action->slot, action->uuid & 0xffff, action->list,
		  action->token, action->name ? action->name : "", action->sync ? " (sync)" : "",
		  action->watch ? " (watch)" : "", action->demanded ? " (demanded)" : "");

	switch (action->type)
	{
		case ZKLOCK_ACT_GRANTED:
			check_granted(server, place, action, keep);
			return;
		case ZKLOCK_ACT_BLOCKED:
			check_blocked(server, place);
			return;
		case ZKLOCK_ACT_DEMANDED:
			if (place->usable && place->backend == BACKEND_NONE)
				seen[SEEN_KEPT_DEMANDED]++;
			place->demanded = true;
			settle(server, place);
			return;
		case ZKLOCK_ACT_UNDEMANDED:
			fail("a demand of a slot is withdrawn");
		case ZKLOCK_ACT_REVOKED:
			seen[SEEN_REVOKED]++;
			if (place->backend == BACKEND_HOLDS)
				place->backend = BACKEND_NONE;
			place->usable = false;
			place->dirty = true;
			return;
		case ZKLOCK_ACT_FAILED:
			if (action->failure != ZKLOCK_FAIL_REFUSED &&
				action->failure != ZKLOCK_FAIL_NO_DIRECTORY)
				fail("failure %d", (int) action->failure);
			if (action->failure == ZKLOCK_FAIL_REFUSED && !place->refused)
				fail("refused, though the ensemble refused nothing");
			if (place->backend == BACKEND_WANTS)
				place->backend = BACKEND_NONE;
			place->dirty = true;
			return;
		case ZKLOCK_ACT_MARK:
			seen[SEEN_MARK]++;
			break;
		default:
			break;
	}

	request.place = (int) (place - server->place);
	request.generation = place->generation;
	request.uuid = action->uuid;
	request.mode = action->mode;
	request.attempt = action->attempt;
	request.sync = action->sync;
	request.watch = action->watch;
	request.list = action->list;
	request.hash = action->hash;
	if (action->type == ZKLOCK_ACT_WATCH || action->type == ZKLOCK_ACT_DELETE_ORPHAN)
		snprintf(request.name, sizeof(request.name), "%s", action->name);
	else if (action->type == ZKLOCK_ACT_WATCH_OWN || action->type == ZKLOCK_ACT_DELETE ||
			 action->type == ZKLOCK_ACT_MARK)
	{
		size_t len;

		if (action->sequence < 0)
			fail("%s of a contender whose name is not known", request_name(action->type));
		zklock_format_slot(request.name, session_id(server), action->uuid, action->slots);
		len = strlen(request.name);
		snprintf(request.name + len, sizeof(request.name) - len, "%010" PRId64,
				 action->sequence);
	}
	if (action->type == ZKLOCK_ACT_DELETE_ORPHAN)
		seen[SEEN_ORPHAN]++;
	if (action->type == ZKLOCK_ACT_DELETE || action->type == ZKLOCK_ACT_DELETE_ORPHAN)
		check_delete(server, &request);
	if (server->connected)
		conn_send(&server->conn, &request);
}

static void
observe(const ZkLockQueue *before, const ZkLockQueue *after, const ZkLockEvent *event)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *old = &before->contender[i];
		const ZkContender *new = &after->contender[i];

		if (new->state == ZKLOCK_WAITING && old->state != ZKLOCK_WAITING)
			seen[new->first ? SEEN_WAITS_FIRST : SEEN_WAITS_BEHIND]++;
		if (new->state == ZKLOCK_GRANTED && old->state != ZKLOCK_GRANTED && old->waited)
			seen[SEEN_GRANTED_AFTER_WAIT]++;
		if (new->state == ZKLOCK_BLOCKED && old->state == ZKLOCK_PROBING)
			seen[SEEN_PROBE_BLOCKED]++;
		if (new->state == ZKLOCK_CREATING && old->state == ZKLOCK_PROBING)
			seen[SEEN_PROBE_FREE]++;
		if (old->state == ZKLOCK_UNSETTLED && new->state == ZKLOCK_QUEUED)
			seen[SEEN_ADOPTED]++;
		if (old->mark_sent && event->type == ZKLOCK_EV_MARKED &&
			event->rc == ZKLOCK_RC_LOST && new->uuid == event->uuid)
			seen[SEEN_MARK_LOST]++;
		if (event->type == ZKLOCK_EV_WATCHED && event->marked &&
			old->state == ZKLOCK_WAITING && new->state == ZKLOCK_QUEUED)
			seen[SEEN_MARKED_BEFORE]++;
	}
}

static void
step(Server *server, Place *place, ZkLockEvent *event)
{
	ZkLockQueue before = place->queue;
	ZkLockActions actions;

	event->session = session_id(server);
	event->spare_watches = event->no_watches = server->crowded;
	event->alone = server->alone_rate > 0 && !once_in(server->alone_rate);
	event->keep = !server->crowded && server->keep_rate > 0 && !once_in(server->keep_rate);
	event->held[ZKLOCK_EXCLUSIVE] = place->backend == BACKEND_HOLDS;
	event->fresh_uuid = server->next_uuid;
	server->next_uuid += ZKLOCK_NCONTENDERS;
	TRACE("  server %d place %d: event %d rc %d uuid %" PRIx64 " list %" PRIu64
		  " needed %d %s",
		  number_of(server), (int) (place - server->place), event->type, event->rc,
		  event->uuid & 0xffff, event->list, event->needed[ZKLOCK_EXCLUSIVE],
		  event->name ? event->name : "");
	for (int i = 0; tracing && i < event->nchildren; i++)
		TRACE("      %s", event->children[i].name);
	if (event->rc == ZKLOCK_RC_ERROR)
		place->refused = true;

	zklock_step(&place->queue, event, &actions);
	observe(&before, &place->queue, event);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		place->polled |= place->queue.contender[i].polled;
	for (int i = 0; i < actions.n; i++)
	{
		if (!zklock_action_is_request(actions.action[i].type))
			perform(server, place, &actions.action[i], event->keep);
	}
	for (int i = 0; i < actions.n; i++)
	{
		if (zklock_action_is_request(actions.action[i].type))
			perform(server, place, &actions.action[i], event->keep);
	}
	if (zklock_queue_empty(&place->queue) && place->backend == BACKEND_NONE &&
		!place->usable && !place->dirty)
		place->in_use = false;
}

static bool
server_feed(Server *server)
{
	ZkLockEvent event = {.type = server->all_event};
	Place *place;

	if (server->all_next < 0)
		return false;
	place = &server->place[server->all_next];
	server->all_next = server->all_next + 1 < NPLACES ? server->all_next + 1 : -1;
	if (place->in_use &&
		(event.type != ZKLOCK_EV_TICK || zklock_queue_wants_tick(&place->queue)))
		step(server, place, &event);
	for (int i = 0; event.type == ZKLOCK_EV_TICK && i < ZKLOCK_NCONTENDERS; i++)
	{
		if (place->queue.contender[i].watch_later)
			fail("a slot stays without a watch");
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
	server->all_event = type;
	server->all_next = 0;
	while ((!server->connected || !once_in(4)) && server_feed(server))
		;
}

static void
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

static void
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

static bool
server_need(Server *server, Place *place)
{
	ZkLockEvent event = {.type = ZKLOCK_EV_NEED};
	bool wants = place->backend == BACKEND_WANTS;

	if (!place->in_use || !place->dirty || server->all_next >= 0)
		return false;
	place->dirty = false;
	event.needed[ZKLOCK_EXCLUSIVE] = place->backend != BACKEND_NONE || place->usable;
	event.spent[ZKLOCK_EXCLUSIVE] = !place->usable && place->backend != BACKEND_HOLDS;
	event.probe[ZKLOCK_EXCLUSIVE] = wants && place->no_wait;
	event.asks[ZKLOCK_EXCLUSIVE] = wants && place->no_wait && !place->heard;
	place->heard = true;
	if (zklock_queue_empty(&place->queue))
		place->queue.connected = server->connected;
	step(server, place, &event);
	return true;
}

static void
receive_reply(Server *server, const Message *message)
{
	const Request *request = &message->request;
	Place *place = &server->place[request->place];
	ZkLockChild children[MAX_ALIVE];
	ZkLockEvent event = {
		.rc = message->rc,
		.uuid = request->uuid,
		.hash = request->hash,
		.list = request->list,
		.sequence = -1,
		.marked = message->marked,
	};

	if (request->generation != place->generation || !place->in_use ||
		request->type == ZKLOCK_ACT_DELETE_ORPHAN)
		return;
	if (message->zxid > place->told)
		place->told = message->zxid;
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
		case ZKLOCK_ACT_MARK:
			event.type = ZKLOCK_EV_MARKED;
			break;
		default:
			event.type = ZKLOCK_EV_DELETED;
			break;
	}
	if (message->rc == ZKLOCK_RC_OK && message->node >= 0)
	{
		event.sequence = zk.node[message->node].child.sequence;
		event.token = zk.node[message->node].czxid;
	}
	for (int i = 0; i < message->nchildren; i++)
	{
		const Place *knower;

		children[i] = zk.node[message->children[i]].child;
		knower = children[i].uuid_hi == session_id(server)
			? knows(server, children[i].uuid_lo)
			: NULL;
		children[i].sibling = knower != NULL && knower != place;
	}
	event.children = children;
	event.nchildren = message->nchildren;
	event.next_number = message->next;
	step(server, place, &event);
}

/* All places hear of what happens in their directory. */
static void
receive_watch(Server *server, const Message *message)
{
	const Node *node = is_dir_watch(message->node) ? NULL : &zk.node[message->node];
	bool own = node != NULL && node->child.uuid_hi == session_id(server);

	for (int p = 0; p < NPLACES; p++)
	{
		Place *place = &server->place[p];
		ZkLockEvent event = {.type = ZKLOCK_EV_DIR_CHANGED};

		if (!place->in_use)
			continue;
		if (node != NULL)
		{
			event.type = message->deleted ? ZKLOCK_EV_NODE_DELETED : ZKLOCK_EV_NODE_CHANGED;
			event.hash = node->child.hash;
			event.uuid = own ? node->child.uuid_lo : 0;
			event.name = node->name;
			if (message->zxid > place->told)
				place->told = message->zxid;
		}
		step(server, place, &event);
	}
}

static bool
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
			receive_watch(server, &message);
			break;
		case MESSAGE_CONNECTED:
			server->connected = true;
			for (int p = 0; p < NPLACES; p++)
			{
				Place *place = &server->place[p];

				if (server->resuming)
					place->told = 0;
				else if (place->told > server->conn.seen)
					place->told = server->conn.seen;
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
 * What can happen.  Each returns whether it did anything.
 * ------------------------------------------------------------------------
 */

static bool
do_receive(Server *server, Place *place)
{
	(void) place;
	return server_receive(server);
}

static bool
do_apply(Server *server, Place *place)
{
	(void) place;
	return conn_apply(&server->conn);
}

static bool
do_catch_up(Server *server, Place *place)
{
	(void) place;
	return conn_catch_up(&server->conn, 1 + random_below(8));
}

static bool
do_zombie(Server *server, Place *place)
{
	(void) place;
	return conn_apply_zombie(&server->conn);
}

static bool
do_feed(Server *server, Place *place)
{
	(void) place;
	return server->all_next >= 0 && server_feed(server);
}

static bool
do_need(Server *server, Place *place)
{
	return server_need(server, place);
}

static bool
do_take(Server *server, Place *place)
{
	(void) server;
	if (place->backend != BACKEND_WANTS || !place->usable)
		return false;
	place->backend = BACKEND_HOLDS;
	place->dirty = true;
	return true;
}

static bool
do_start(Server *server, Place *place)
{
	int slots = agreed || !once_in(4) ? usual : 1 + random_below(4);

	(void) place;
	if ((phase == PHASE_CALM && calm_wishes == 0) || !start(server, slots, once_in(4)))
		return false;
	if (phase == PHASE_CALM)
		calm_wishes--;
	return true;
}

static bool
do_release(Server *server, Place *place)
{
	if (place->backend != BACKEND_HOLDS)
		return false;
	place->backend = BACKEND_NONE;
	settle(server, place);
	return true;
}

static bool
do_withdraw(Server *server, Place *place)
{
	if (place->backend != BACKEND_WANTS)
		return false;
	place->backend = BACKEND_NONE;
	settle(server, place);
	return true;
}

static bool
do_evict(Server *server, Place *place)
{
	(void) server;
	if (!place->usable || place->backend != BACKEND_NONE)
		return false;
	place->usable = false;
	place->dirty = true;
	return true;
}

static bool
do_break(Server *server, Place *place)
{
	(void) place;
	if (!server->conn.up)
		return false;
	conn_break(&server->conn);
	return true;
}

static bool
do_break_useless(Server *server, Place *place)
{
	if (!server->conn.up ||
		(!server->conn.deposed && zk.session[server->conn.session].alive))
		return false;
	return do_break(server, place);
}

static bool
do_reconnect(Server *server, Place *place)
{
	Conn *conn = &server->conn;

	(void) place;
	if (server->lost || conn->up)
		return false;
	if (!zk.session[conn->session].alive)
	{
		server_session_lost(server);
		return true;
	}
	if (phase == PHASE_CHAOS && once_in(deposed_rate))
		conn_reconnect(conn, RECONNECT_DEPOSED);
	else
		conn_reconnect(conn, once_in(2) ? RECONNECT_FENCED : RECONNECT_SAME);
	return true;
}

static bool
do_open(Server *server, Place *place)
{
	(void) place;
	if (!server->lost || server->all_next >= 0)
		return false;
	conn_open(&server->conn);
	server->lost = false;
	return true;
}

static bool
do_expire(Server *server, Place *place)
{
	(void) place;
	if (server->lost || !zk.session[server->conn.session].alive)
		return false;
	zk_expire(server->conn.session);
	return true;
}

static bool
do_abandon(Server *server, Place *place)
{
	(void) place;
	if (server->lost || !zk.session[server->conn.session].alive)
		return false;
	for (int i = random_below(8); i > 0; i--)
		conn_apply(&server->conn);
	server_session_lost(server);
	return true;
}

static bool
do_expire_abandoned(Server *server, Place *place)
{
	(void) server;
	(void) place;
	for (int i = 0; i < zk.nsessions; i++)
	{
		bool owned = false;

		for (int s = 0; s < nservers; s++)
			owned |= !servers[s].lost && servers[s].conn.session == i;
		if (zk.session[i].alive && !owned)
		{
			zk_expire(i);
			return true;
		}
	}
	return false;
}

static bool
do_worker_dies(Server *server, Place *place)
{
	(void) place;
	if (server->lost || server->resuming || !zk.session[server->conn.session].alive)
		return false;
	server->resuming = true;
	server->connected = false;
	if (server->all_next >= 0 && server->all_event == ZKLOCK_EV_RESUMED)
		server->all_next = -1; /* the successor's will do */
	conn_resume(&server->conn,
				once_in(2 * deposed_rate) ? RECONNECT_DEPOSED
					: once_in(2)		  ? RECONNECT_FENCED
										  : RECONNECT_SAME);
	return true;
}

static bool
do_tick(Server *server, Place *place)
{
	(void) place;
	server_tick(server);
	return true;
}

static int
some_node(bool foreign)
{
	int found = -1;
	int n = 0;

	for (int i = 0; i < zk.nalive; i++)
	{
		if ((zk.node[zk.alive[i]].owner == FOREIGN) == foreign && once_in(++n))
			found = zk.alive[i];
	}
	return found;
}

static bool
do_foreign_come(Server *server, Place *place)
{
	char prefix[NAME_LEN];

	(void) server;
	(void) place;
	if (zk.nalive > MAX_ALIVE / 2)
		return false;
	if (!zk.dir[0].exists)
	{
		zk.ancestors = true;
		zk_make_dir(0);
	}
	snprintf(prefix, sizeof(prefix),
			 once_in(2) ? "x-%016" PRIx64 "-"
						: "_c_%08" PRIx64 "-1111-4222-8333-444455556666-lease-",
			 random_bits() & 0xffffffff);
	zk_create(0, prefix, FOREIGN);
	seen[SEEN_FOREIGNER]++;
	return true;
}

static bool
do_foreign_go(Server *server, Place *place)
{
	int node = some_node(true);

	(void) server;
	(void) place;
	if (node < 0)
		return false;
	zk_delete(node);
	return true;
}

static bool
do_change(Server *server, Place *place)
{
	int node = some_node(once_in(2));

	(void) server;
	(void) place;
	if (node < 0)
		return false;
	zk_change(node);
	return true;
}

static bool
do_admin_delete(Server *server, Place *place)
{
	int node = some_node(false);

	(void) server;
	(void) place;
	if (node < 0)
		return false;
	zk_delete(node);
	return true;
}

static bool
do_reap(Server *server, Place *place)
{
	(void) server;
	(void) place;
	if (!zk.dir[0].exists || !zk.dir[0].container || !zk_dir_empty(0))
		return false;
	zk_remove_dir(0);
	return true;
}

typedef struct Kind
{
	const char *name;
	bool (*function)(Server *server, Place *place);
	int weight[3]; /* by phase */
	bool fault;
} Kind;

static const Kind kinds[] = {
	{"receives", do_receive, {300, 300, 300}, false},
	{"request", do_apply, {300, 300, 300}, false},
	{"catches up", do_catch_up, {60, 60, 60}, false},
	{"late request", do_zombie, {40, 40, 40}, false},
	{"event goes on", do_feed, {100, 100, 100}, false},
	{"worker looks", do_need, {120, 120, 120}, false},
	{"backend wakes up", do_take, {100, 100, 100}, false},
	{"backend wants", do_start, {60, 20, 0}, false},
	{"kept are swept", do_evict, {10, 0, 60}, true},
	{"backend releases", do_release, {40, 30, 60}, false},
	{"backend gives up", do_withdraw, {15, 0, 60}, true},
	{"connection breaks", do_break, {8, 0, 0}, true},
	{"connection was no use", do_break_useless, {10, 60, 60}, false},
	{"reconnects", do_reconnect, {60, 60, 60}, false},
	{"new session", do_open, {60, 60, 60}, false},
	{"session expires", do_expire, {2, 0, 0}, true},
	{"session given up", do_abandon, {1, 0, 0}, true},
	{"old session expires", do_expire_abandoned, {10, 60, 60}, false},
	{"new worker", do_worker_dies, {3, 0, 0}, true},
	{"tick", do_tick, {6, 0, 0}, true},
	{"foreigner comes", do_foreign_come, {8, 0, 0}, true},
	{"foreigner goes", do_foreign_go, {20, 30, 30}, false},
	{"node is changed", do_change, {10, 0, 0}, true},
	{"contender is deleted", do_admin_delete, {3, 0, 0}, true},
	{"directory is reaped", do_reap, {20, 20, 20}, true},
};

static int weight[lengthof(kinds)];
static int total_weight;

static void
set_phase(Phase new_phase, const int *factor)
{
	phase = new_phase;
	total_weight = 0;
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		weight[i] = kinds[i].weight[phase];
		if (kinds[i].fault && phase == PHASE_CHAOS)
			weight[i] *= factor[i];
		total_weight += weight[i];
	}
	TRACE("phase %d", phase);
}

static bool
try_kind(size_t kind, Server *server, Place *place)
{
	if (tracing)
		snprintf(heading, sizeof(heading), "%ld: server %d place %d: %s", step_count,
				 number_of(server), (int) (place - server->place), kinds[kind].name);
	if (kinds[kind].function(server, place))
	{
		step_count++;
		show_heading();
		check_invariants();
		return true;
	}
	heading[0] = '\0';
	return false;
}

/* Try everything that has a weight, and is in "kinds_mask", once; false: nothing is left. */
static bool
scan(bool messages_only)
{
	for (size_t kind = 0; kind < lengthof(kinds); kind++)
	{
		if (weight[kind] == 0 ||
			(messages_only && kinds[kind].function != do_receive &&
			 kinds[kind].function != do_apply && kinds[kind].function != do_catch_up &&
			 kinds[kind].function != do_feed && kinds[kind].function != do_need &&
			 kinds[kind].function != do_take))
			continue;
		for (int s = 0; s < nservers; s++)
		{
			for (int p = 0; p < NPLACES; p++)
			{
				if (try_kind(kind, &servers[s], &servers[s].place[p]))
					return true;
			}
		}
	}
	return false;
}

static bool
one_step(void)
{
	for (int attempt = 0; attempt < 100; attempt++)
	{
		Server *server;
		int r = random_below(total_weight);
		size_t kind = 0;

		while (r >= weight[kind])
			r -= weight[kind++];
		server = &servers[random_below(nservers)];
		if (try_kind(kind, server, &server->place[random_below(NPLACES)]))
			return true;
	}
	return scan(false);
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static bool
all_quiet(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			if (servers[s].place[p].backend != BACKEND_NONE)
				return false;
		}
	}
	return true;
}

static bool
any_needs_tick(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			if (servers[s].place[p].refused || servers[s].place[p].polled ||
				servers[s].crowded)
				return true;
		}
	}
	return false;
}

static const char *
who_waits(void)
{
	static char text[64];

	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			if (servers[s].place[p].backend != BACKEND_NONE)
				snprintf(text, sizeof(text), "server %d, place %d (%s)", s, p,
						 servers[s].place[p].backend == BACKEND_WANTS ? "wants" : "holds");
		}
	}
	return text;
}

/* Is there a contender whose worker is gone?  It does not say that it is granted a slot,
 * and goes when its session expires. */
static bool
any_abandoned(void)
{
	for (int i = 0; i < zk.nalive; i++)
	{
		int owner = zk.node[zk.alive[i]].owner;
		bool owned = owner == FOREIGN;

		for (int s = 0; s < nservers; s++)
			owned |= !servers[s].lost && servers[s].conn.session == owner;
		if (!owned)
			return true;
	}
	return false;
}

/* Nobody takes or releases anything for a while: no free slot stays unused by anybody who
 * waits for one. */
static void
lull(void)
{
	for (int i = 0; scan(true); i++)
	{
		if (i == CALM_STEPS)
			fail("a lull never ends");
	}
	for (int s = 0; s < nservers; s++)
	{
		if (!knows_all(&servers[s]))
			return;
	}
	if (any_abandoned())
		return;
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		for (int s = 0; s < nservers; s++)
		{
			const Place *place = node->owner == servers[s].conn.session
				? knows(&servers[s], node->child.uuid_lo)
				: NULL;

			if (place != NULL && place->backend == BACKEND_WANTS && entitled(node) &&
				!any_needs_tick())
				fail("%s waits for a slot that is free", node->name);
		}
	}
	seen[SEEN_LULL]++;
}

static void
run_calm(void)
{
	int idle_rounds = 0;

	for (int i = 0; !all_quiet() || calm_wishes > 0; i++)
	{
		if (i == CALM_STEPS)
			fail("%s waits for ever", who_waits());
		if (once_in(32))
			lull();
		if (one_step())
		{
			idle_rounds = 0;
			continue;
		}
		calm_wishes = 0;
		if (all_quiet())
			break;
		if (idle_rounds++ >= 4)
			fail("%s waits, and nothing will happen", who_waits());
		if (!any_needs_tick())
			fail("%s waits, and nothing but a tick will happen", who_waits());
		for (int s = 0; s < nservers; s++)
			server_tick(&servers[s]);
		check_invariants();
	}
}

static void
run_drain(void)
{
	for (int round = 0; round < 4; round++)
	{
		for (int i = 0; one_step(); i++)
		{
			if (i == CALM_STEPS)
				fail("it never ends");
		}
		for (int s = 0; s < nservers; s++)
			server_tick(&servers[s]);
		check_invariants();
	}
	if (zk.nalive > 0)
		fail("%s is left", zk.node[zk.alive[0]].name);
	for (int s = 0; s < nservers; s++)
	{
		for (int p = 0; p < NPLACES; p++)
		{
			if (servers[s].place[p].in_use)
				fail("server %d: place %d is not empty", s, p);
		}
	}
}

static void
play(uint64_t seed)
{
	int factor[lengthof(kinds)];
	int nsteps;

	random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
	heading[0] = '\0';
	zk_reset();
	nservers = 1 + random_below(MAX_SERVERS - 1);
	usual = 1 + random_below(4);
	agreed = !once_in(3);
	for (int s = 0; s < nservers; s++)
	{
		static const int rates[] = {0, 1000, 1000, 1000, 4};
		Server *server = &servers[s];

		memset(server, 0, sizeof(*server));
		server->next_uuid = random_bits() & UINT64_C(0xffff000000000000);
		server->all_next = -1;
		server->keep_rate = rates[random_below(lengthof(rates))];
		server->alone_rate = rates[random_below(lengthof(rates))];
		server->crowded = once_in(16);
		conn_open(&server->conn);
		for (int p = 0; p < NPLACES; p++)
			zklock_queue_init(&server->place[p].queue, false);
	}
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		static const int factors[] = {0, 0, 1, 1, 1, 3};

		factor[i] = seed % 8 == 0 ? 0 : factors[random_below(lengthof(factors))];
	}
	if (seed % 8 != 0 && once_in(5))
		zk.error_rate = 30 + random_below(100);
	deposed_rate = once_in(4) ? 2 : 8;

	set_phase(PHASE_CHAOS, factor);
	nsteps = once_in(2) ? 30 + random_below(120) : 100 + random_below(700);
	for (int i = 0; i < nsteps; i++)
		one_step();
	zk.error_rate = 0;
	calm_wishes = once_in(2) ? 0 : random_below(6);
	set_phase(PHASE_CALM, factor);
	run_calm();
	set_phase(PHASE_DRAIN, factor);
	run_drain();
}

const Simulator simulator = {
	.schedules = "schedules",
	.play = play,
	.coverage_name = coverage_name,
	.ncoverage = 0,
	.report = report,
};
