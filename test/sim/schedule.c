/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  Seeded schedules of what can happen to servers and to the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <stdio.h>

#define MAX_KINDS 64

Phase phase;
Server *recurring;

static int deposed_rate; /* one reconnect in so many meets a deposed leader */
static int calm_wishes;	 /* that may still be made after the chaos */

static int scanned_backend = -1;

/* ------------------------------------------------------------------------
 * Trace
 * ------------------------------------------------------------------------
 */

static char heading[160];

/* The line that says what is tried stands before what comes of it, if any. */
void
show_heading(void)
{
	if (heading[0] != '\0')
		trace("%s", heading);
	heading[0] = '\0';
}

/* ------------------------------------------------------------------------
 * What can happen in any world
 * ------------------------------------------------------------------------
 */

int
some_backend(void)
{
	return scanned_backend >= 0 ? scanned_backend : random_below(world.nbackends);
}

static bool
do_apply(Server *server)
{
	return conn_apply(&server->conn);
}

static bool
do_catch_up(Server *server)
{
	return conn_catch_up(&server->conn, 1 + random_below(8));
}

static bool
do_zombie(Server *server)
{
	return conn_apply_zombie(&server->conn);
}

static bool
do_take(Server *server, int queue)
{
	return table_take(&server->table[queue], some_backend());
}

static bool
do_evict(Server *server, int queue)
{
	if (!table_evict(&server->table[queue]))
		return false;
	COVER(KEPT_EVICTED);
	return true;
}

/* Where a call takes two random numbers, compilers disagree which is first. */
static bool
do_release(Server *server, int queue)
{
	int backend = some_backend();

	return table_release(&server->table[queue], backend, !once_in(3));
}

static bool
do_withdraw(Server *server, int queue)
{
	return table_withdraw(&server->table[queue], some_backend());
}

static bool
do_break(Server *server)
{
	if (!server->conn.up)
		return false;
	conn_break(&server->conn);
	return true;
}

/* What must happen even when no more faults do. */
static bool
do_break_useless(Server *server)
{
	if (!server->conn.up ||
		(!server->conn.deposed && zk.session[server->conn.session].alive))
		return false;
	return do_break(server);
}

static bool
do_reconnect(Server *server)
{
	Conn *conn = &server->conn;

	if (server->lost || conn->up)
		return false;
	if (!zk.session[conn->session].alive)
	{
		/* The server says EXPIRED. */
		server_session_lost(server);
		return true;
	}
	if (phase == PHASE_CHAOS && once_in(deposed_rate))
		conn_reconnect(conn, RECONNECT_DEPOSED);
	else if (phase == PHASE_CHAOS && once_in(4))
		conn_reconnect(conn, RECONNECT_STRAYED);
	else
		conn_reconnect(conn, once_in(2) ? RECONNECT_FENCED : RECONNECT_SAME);
	return true;
}

static bool
do_open(Server *server)
{
	if (!server->lost)
		return false;
	conn_open(&server->conn);
	server->lost = false;
	return true;
}

static bool
do_expire(Server *server)
{
	if (server->lost || !zk.session[server->conn.session].alive)
		return false;
	zk_expire(server->conn.session);
	return true;
}

/* The worker gives a session up that it cannot resume; it lives on. */
static bool
do_abandon(Server *server)
{
	if (server->lost || !zk.session[server->conn.session].alive)
		return false;
	COVER(SESSION_ABANDONED);
	for (int i = random_below(8); i > 0; i--)
		conn_apply(&server->conn);
	server_session_lost(server);
	return true;
}

/* Sessions that nobody owns any more time out. */
static bool
do_expire_abandoned(int dir)
{
	(void) dir;
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
do_worker_dies(Server *server)
{
	if (server->lost || server->resuming || !zk.session[server->conn.session].alive)
		return false;
	server->resuming = true;
	server->connected = false;
	if (server->all_next >= 0 && server->all_event == ZKLOCK_EV_RESUMED)
		server->all_next = -1; /* the successor's will do */
	conn_resume(&server->conn,
				once_in(2 * deposed_rate) ? RECONNECT_DEPOSED
					: once_in(4)		  ? RECONNECT_STRAYED
					: once_in(2)		  ? RECONNECT_FENCED
										  : RECONNECT_SAME);
	return true;
}

static bool
do_tick(Server *server)
{
	(void) server_tick(server);
	return true;
}

/* The worker writes where a queue waits for nothing else. */
static bool
do_prove(Server *server)
{
	bool wanted = false;

	for (int q = 0; q < nqueues; q++)
		wanted |= zklock_lock_queue_wants_proof(&server->queue[q]);
	return wanted && server_tick(server);
}

int
some_node(int dir, bool foreign)
{
	int found = -1;
	int n = 0;

	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		if (node->dir == dir && (node->owner == FOREIGN) == foreign && once_in(++n))
			found = zk.alive[i];
	}
	return found;
}

bool
foreigner_may_come(int dir)
{
	if (zk.nalive > MAX_ALIVE / 2 || (recurring != NULL && !once_in(8)))
		return false;
	if (!zk.dir[dir].exists)
	{
		zk.ancestors = true;
		zk_make_dir(dir);
	}
	return true;
}

static bool
delete_some(int dir, bool foreign)
{
	int node = some_node(dir, foreign);

	if (node < 0)
		return false;
	zk_delete(node);
	return true;
}

static bool
do_foreign_go(int dir)
{
	return delete_some(dir, true);
}

static bool
do_change(int dir)
{
	int node = some_node(dir, once_in(2));

	if (node < 0)
		return false;
	zk_change(node);
	return true;
}

static bool
do_admin_delete(int dir)
{
	if (!delete_some(dir, false))
		return false;
	COVER(ADMIN_DELETED);
	return true;
}

/* Somebody deletes a contender of ours and makes a node of the same name. */
static bool
do_remake(int dir)
{
	int node = some_node(dir, false);

	if (node < 0 || !foreigner_may_come(dir))
		return false;
	zk_remake(node);
	COVER(REMADE);
	return true;
}

static bool
do_reap(int dir)
{
	if (!zk.dir[dir].exists || !zk.dir[dir].container || !zk_dir_empty(dir))
		return false;
	COVER(REAPED);
	zk_remove_dir(dir);
	return true;
}

static const Kind common[] = {
	{"receives", {300, 300, 300}, KIND_NEWS, .server = server_receive},
	{"request", {300, 300, 300}, KIND_NEWS, .server = do_apply},
	{"catches up", {60, 60, 60}, KIND_NEWS, .server = do_catch_up},
	{"late request", {40, 40, 40}, 0, .server = do_zombie},
	{"event goes on", {100, 100, 100}, KIND_NEWS, .server = server_feed},
	{"worker looks", {120, 120, 120}, KIND_NEWS, .queue = server_need},
	{"backend wakes up", {100, 100, 100}, KIND_NEWS, .queue = do_take},
	{"kept are swept", {10, 0, 60}, KIND_FAULT, .queue = do_evict},
	{"backend releases", {30, 30, 60}, 0, .queue = do_release},
	{"backend gives up", {15, 0, 60}, KIND_FAULT, .queue = do_withdraw},
	{"connection breaks", {8, 0, 0}, KIND_FAULT, .server = do_break},
	{"connection was no use", {10, 60, 60}, 0, .server = do_break_useless},
	{"reconnects", {60, 60, 60}, 0, .server = do_reconnect},
	{"new session", {60, 60, 60}, 0, .server = do_open},
	{"session expires", {2, 0, 0}, KIND_FAULT, .server = do_expire},
	{"session given up", {1, 0, 0}, KIND_FAULT, .server = do_abandon},
	{"old session expires", {10, 60, 60}, 0, .dir = do_expire_abandoned},
	{"new worker", {3, 0, 0}, KIND_FAULT, .server = do_worker_dies},
	{"tick", {6, 0, 0}, KIND_FAULT, .server = do_tick},
	{"proof", {60, 60, 60}, KIND_NEWS, .server = do_prove},
	{"foreigner goes", {20, 30, 30}, 0, .dir = do_foreign_go},
	{"node is changed", {10, 0, 0}, KIND_FAULT, .dir = do_change},
	{"contender is deleted", {3, 0, 0}, KIND_FAULT, .dir = do_admin_delete},
	{"contender is remade", {3, 0, 0}, KIND_FAULT, .dir = do_remake},
	{"contender is removed", {2, 0, 0}, KIND_FAULT, .queue = server_remove},
	{"directory is reaped", {20, 20, 20}, KIND_FAULT, .dir = do_reap},
};

#define NCOMMON ((int) lengthof(common))

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */

static int nkinds;
static const Kind *kinds[MAX_KINDS];
static int weight[MAX_KINDS];
static int total_weight;

static void
collect_kinds(void)
{
	nkinds = NCOMMON + world.nkinds;
	if (nkinds > MAX_KINDS)
		fail("simulator: too many kinds");
	for (int i = 0; i < nkinds; i++)
		kinds[i] = i < NCOMMON ? &common[i] : &world.kinds[i - NCOMMON];
}

static void
set_phase(Phase new_phase, const int *factor)
{
	phase = new_phase;
	faults = phase == PHASE_CHAOS;
	total_weight = 0;
	for (int i = 0; i < nkinds; i++)
	{
		weight[i] = kinds[i]->weight[phase];
		if (kinds[i]->flags & KIND_FAULT && phase == PHASE_CHAOS)
			weight[i] *= factor[i];
		total_weight += weight[i];
	}
	TRACE("phase %d", phase);
}

static bool
happens(const Kind *kind, Server *server, int queue)
{
	if (kind->server != NULL)
		return kind->server(server);
	if (kind->dir != NULL)
		return kind->dir(queue_dir(queue));
	return kind->queue(server, queue);
}

static bool
try_kind(const Kind *kind, Server *server, int queue)
{
	bool last_wishes = kind->flags & KIND_WISH && phase == PHASE_CALM;

	if (last_wishes && calm_wishes == 0)
		return false;
	if (tracing)
		snprintf(heading, sizeof(heading), "%ld: server %d queue %d: %s", step_count,
				 (int) (server - servers), queue, kind->name);
	if (happens(kind, server, queue))
	{
		if (last_wishes)
			calm_wishes--;
		world.notice(server);
		step_count++;
		show_heading();
		check_invariants();
		return true;
	}
	heading[0] = '\0';
	return false;
}

/* Do the first thing that can be done, if it has all these flags.  False when nothing can. */
static bool
scan(int flags)
{
	for (int i = 0; i < nkinds; i++)
	{
		if (weight[i] == 0 || (kinds[i]->flags & flags) != flags)
			continue;
		for (int s = 0; s < nservers; s++)
		{
			for (int j = 0; j < nqueues * world.nbackends; j++)
			{
				bool done;

				scanned_backend = j % world.nbackends;
				done = try_kind(kinds[i], &servers[s], j / world.nbackends);
				scanned_backend = -1;
				if (done)
					return true;
			}
		}
	}
	return false;
}

/* Do one thing at random.  False when nothing can be done at all. */
static bool
one_step(void)
{
	for (int attempt = 0; attempt < 100; attempt++)
	{
		int server;
		int r = random_below(total_weight);
		int kind = 0;

		while (r >= weight[kind])
			r -= weight[kind++];
		server = random_below(nservers);
		if (try_kind(kinds[kind], &servers[server], random_below(nqueues)))
			return true;
	}
	return scan(0);
}

void
spread_news(void)
{
	for (int i = 0; scan(KIND_NEWS); i++)
	{
		if (i == CALM_STEPS)
			fail("there are news for ever");
	}
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static bool
all_quiet(void)
{
	if (world.quiet != NULL && !world.quiet())
		return false;
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			if (!table_quiet(&servers[s].table[q]))
				return false;
		}
	}
	return true;
}

/* Until everybody has had his turn. */
static void
run_calm(void)
{
	int idle_rounds = 0;

	for (int i = 0; !all_quiet() || calm_wishes > 0; i++)
	{
		if (i == CALM_STEPS)
		{
			servers_show();
			fail("somebody waits for ever");
		}
		if (world.lull != NULL && once_in(32))
			world.lull();
		if (one_step())
		{
			idle_rounds = 0;
			continue;
		}
		calm_wishes = 0;
		if (all_quiet())
			break;

		/*
		 * Only what the ensemble refused, or what could not be watched, may have to
		 * wait for a tick: anything else is a lost wake-up.
		 */
		if (idle_rounds++ >= 4 || !servers_need_tick())
		{
			servers_show();
			fail("somebody waits, and nothing %swill happen",
				 servers_need_tick() ? "" : "but a tick ");
		}
		for (int s = 0; s < nservers; s++)
			(void) server_tick(&servers[s]);
		check_invariants();
	}
}

/* Until nothing happens any more. */
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
			(void) server_tick(&servers[s]);
		check_invariants();
	}
}

static void
check_nothing_left(void)
{
	if (zk.nalive > 0)
		fail("%s is left", zk.node[zk.alive[0]].name);
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			if (!zklock_lock_queue_empty(&servers[s].queue[q]))
				fail("server %d: queue %d is not empty", s, q);
		}
	}
}

/* Each seed has its own mixture; one in eight has no faults at all. */
static void
mix(uint64_t seed, int *factor)
{
	for (int i = 0; i < nkinds; i++)
	{
		static const int factors[] = {0, 0, 1, 1, 1, 3};

		factor[i] = seed % 8 == 0 ? 0 : factors[random_below(lengthof(factors))];
		if (kinds[i]->flags & KIND_RARE && !once_in(10))
			factor[i] = 0;
		if (kinds[i]->server == do_break && recurring != NULL && !once_in(4))
			factor[i] = 0;
	}
	if (seed % 8 != 0 && once_in(5))
		zk.error_rate = 30 + random_below(100);
	deposed_rate = once_in(4) ? 2 : 8;
}

void
play(uint64_t seed)
{
	int factor[MAX_KINDS];
	int nsteps;

	random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
	scanned_backend = -1;
	heading[0] = '\0';
	recurring = NULL;
	collect_kinds();
	zk_reset();
	world.begin();
	mix(seed, factor);

	set_phase(PHASE_CHAOS, factor);
	nsteps = once_in(2) && recurring == NULL ? 30 + random_below(120)
											 : 100 + random_below(700);
	for (int i = 0; i < nsteps; i++)
		one_step();

	zk.error_rate = 0;
	calm_wishes = once_in(2) ? 0 : random_below(6);
	set_phase(PHASE_CALM, factor);
	run_calm();
	spread_news();
	servers_check_denied();

	set_phase(PHASE_DRAIN, factor);
	run_drain();
	check_nothing_left();
}
