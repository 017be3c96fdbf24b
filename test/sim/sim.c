/*-------------------------------------------------------------------------
 *
 * sim.c
 *	  Plays seeded schedules of the lock protocol against a model of ZooKeeper.
 *
 * A schedule has three phases.  In the first, everything happens at random:
 * backends want, hold and give up, connections break, sessions expire,
 * workers die, directories are reaped, foreign contenders come and go.  In the
 * second, faults have stopped and nobody gives up: everybody who waits must
 * get the lock in turn, or be told of a deadlock.  In the third there is no
 * need any more, and nothing may be left.  The invariants are checked after
 * every step (server.c).
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server.h"

#define CALM_STEPS		 20000 /* everybody must have had his turn by then */
#define RECURRING_STARTS 60	   /* wishes until another server is the one that recurs */

typedef enum Phase
{
	PHASE_CHAOS,
	PHASE_CALM,
	PHASE_DRAIN
} Phase;

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
 * What can happen
 * ------------------------------------------------------------------------
 */

static Phase phase;
static int deposed_rate;  /* one reconnect in so many meets a deposed leader */
static int calm_wishes;	  /* that may still be made after the chaos */
static Server *recurring; /* mostly this one wants, to write, and no foreigner comes;
						   * NULL: no such */

static bool with_sets; /* backends want several locks in one step, too */

static int scanned_backend = -1;

/* A backend by chance, or the one whose turn it is in a scan of them all. */
static int
some_backend(void)
{
	return scanned_backend >= 0 ? scanned_backend : random_below(NBACKENDS);
}

/* Each of these returns whether it did anything. */

static bool
do_receive(Server *server, int dir)
{
	(void) dir;
	return server_receive(server);
}

static bool
do_apply(Server *server, int dir)
{
	(void) dir;
	return conn_apply(&server->conn);
}

static bool
do_catch_up(Server *server, int dir)
{
	(void) dir;
	return conn_catch_up(&server->conn, 1 + random_below(8));
}

static bool
do_zombie(Server *server, int dir)
{
	(void) dir;
	return conn_apply_zombie(&server->conn);
}

static bool
do_feed(Server *server, int dir)
{
	(void) dir;
	return server_feed(server);
}

static bool
do_need(Server *server, int dir)
{
	return server_need(server, dir);
}

static bool
do_take(Server *server, int dir)
{
	return table_take(&server->table[dir], some_backend());
}

/* Where a call takes two random numbers, compilers disagree which is first. */

static bool
do_start(Server *server, int dir)
{
	int backend = some_backend();
	ZkLockMode mode = once_in(2) ? ZKLOCK_SHARED : ZKLOCK_EXCLUSIVE;
	bool no_wait = once_in(4);

	if (recurring != NULL && phase == PHASE_CHAOS)
	{
		if (once_in(RECURRING_STARTS))
			recurring = &servers[random_below(nservers)];
		if (server != recurring)
			return false;
		mode = ZKLOCK_EXCLUSIVE;
	}
	if ((phase == PHASE_CALM && calm_wishes == 0) ||
		!table_start(&server->table[dir], backend, mode, no_wait))
		return false;
	if (phase == PHASE_CALM)
		calm_wishes--;
	return true;
}

static bool
do_admit(Server *server, int dir)
{
	return table_admit(&server->table[dir], some_backend());
}

static bool
do_evict(Server *server, int dir)
{
	if (!table_evict(&server->table[dir]))
		return false;
	COVER(KEPT_EVICTED);
	return true;
}

static bool
do_upgrade(Server *server, int dir)
{
	/* who holds a lock and waits is in a circle with sets, perhaps, and deadlock.h's */
	if (with_sets || (phase == PHASE_CALM && calm_wishes == 0) ||
		!table_upgrade(&server->table[dir], some_backend()))
		return false;
	if (phase == PHASE_CALM)
		calm_wishes--;
	return true;
}

static bool
do_set_start(Server *server, int dir)
{
	bool no_wait = once_in(4);

	(void) dir;
	if (!with_sets || (phase == PHASE_CALM && calm_wishes == 0) ||
		!set_start(server, no_wait))
		return false;
	if (phase == PHASE_CALM)
		calm_wishes--;
	return true;
}

static bool
do_set_admit(Server *server, int dir)
{
	(void) dir;
	return set_admit(server);
}

static bool
do_set_work(Server *server, int dir)
{
	(void) dir;
	return set_work(server);
}

static bool
do_set_take(Server *server, int dir)
{
	(void) dir;
	return set_take(server);
}

static bool
do_set_release(Server *server, int dir)
{
	(void) dir;
	return set_release(server);
}

static bool
do_set_withdraw(Server *server, int dir)
{
	(void) dir;
	return set_withdraw(server);
}

static bool
do_release(Server *server, int dir)
{
	int backend = some_backend();

	return table_release(&server->table[dir], backend, !once_in(3));
}

static bool
do_withdraw(Server *server, int dir)
{
	return table_withdraw(&server->table[dir], some_backend());
}

static bool
do_break(Server *server, int dir)
{
	(void) dir;
	if (!server->conn.up)
		return false;
	conn_break(&server->conn);
	return true;
}

/* What must happen even when no more faults do. */
static bool
do_break_useless(Server *server, int dir)
{
	if (!server->conn.up ||
		(!server->conn.deposed && zk.session[server->conn.session].alive))
		return false;
	return do_break(server, dir);
}

static bool
do_reconnect(Server *server, int dir)
{
	Conn *conn = &server->conn;

	(void) dir;
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
	else
		conn_reconnect(conn, once_in(2) ? RECONNECT_FENCED : RECONNECT_SAME);
	return true;
}

static bool
do_open(Server *server, int dir)
{
	(void) dir;
	if (!server->lost)
		return false;
	conn_open(&server->conn);
	server->lost = false;
	return true;
}

static bool
do_expire(Server *server, int dir)
{
	(void) dir;
	if (server->lost || !zk.session[server->conn.session].alive)
		return false;
	zk_expire(server->conn.session);
	return true;
}

/* The worker gives a session up that it cannot resume; it lives on. */
static bool
do_abandon(Server *server, int dir)
{
	(void) dir;
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
do_expire_abandoned(Server *server, int dir)
{
	(void) server;
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
do_worker_dies(Server *server, int dir)
{
	(void) dir;
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
do_tick(Server *server, int dir)
{
	(void) dir;
	server_tick(server);
	return true;
}

/* Some node of the directory, foreign or ours; -1 if there is none. */
static int
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

/* The beginning of a foreign contender's name. */
static void
foreign_prefix(char *buf, size_t size)
{
	static const char *const forms[] = {
		"_c_%08" PRIx32 "-1111-4222-8333-444455556666-lock-",
		"_c_%08" PRIx32 "-1111-4222-8333-444455556666-read-lock-",
		"_c_%08" PRIx32 "-1111-4222-8333-444455556666-__READ__",
		"%08" PRIx32 "111142228333444455556666aaaabbbb__lock__",
		"%08" PRIx32 "111142228333444455556666aaaabbbb__rlock__",
		"x-%016" PRIx32 "-",
		"long-%064" PRIx32 "-",
		"n_",
	};
	int form = random_below(lengthof(forms));

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
	snprintf(buf, size, forms[form], (uint32_t) random_bits());
#pragma GCC diagnostic pop
}

/* May a foreigner come?  Makes the directory if need be. */
static bool
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
do_foreign_come(Server *server, int dir)
{
	char prefix[NAME_LEN];

	(void) server;
	if (!foreigner_may_come(dir))
		return false;
	foreign_prefix(prefix, sizeof(prefix));
	if (zk.node[zk_create(dir, prefix, FOREIGN)].child.mode == ZKLOCK_SHARED)
		COVER(FOREIGN_SHARED);
	else
		COVER(FOREIGN_EXCLUSIVE);
	return true;
}

/*
 * A foreigner that numbers itself: as one of ours, or near it, a little ahead of what
 * the directory has given, or as far ahead as can be, or below zero.
 */
static bool
do_forge(Server *server, int dir)
{
	char name[NAME_LEN];
	int ours = some_node(dir, false);
	int64_t next;
	int64_t number;
	size_t len;
	int node;

	(void) server;
	if (!foreigner_may_come(dir))
		return false;
	next = zk.dir[dir].next_sequence;
	number = next + random_below(4);
	if (ours >= 0 && once_in(2))
		number = zk.node[ours].child.sequence + random_below(4) - 2;
	else if (once_in(4))
		number = once_in(2) ? INT32_MAX - random_below(4) : -1 - random_below(4);
	foreign_prefix(name, sizeof(name));
	len = strlen(name);
	snprintf(name + len, sizeof(name) - len, "%010" PRId64, number);
	if (number > INT32_MAX || zk_find(dir, name) >= 0)
		return false;
	node = zk_create_named(dir, name, FOREIGN);
	zk.node[node].forged = true;
	if (ours >= 0 && number == zk.node[ours].child.sequence)
		COVER(FORGED_EQUAL);
	else if (number < 0)
		COVER(FORGED_NEGATIVE);
	else if (number < next)
		COVER(FORGED_PAST);
	else
		COVER(FORGED_FUTURE);
	return true;
}

static bool
do_foreign_go(Server *server, int dir)
{
	int node = some_node(dir, true);

	(void) server;
	if (node < 0)
		return false;
	zk_delete(node);
	return true;
}

static bool
do_change(Server *server, int dir)
{
	int node = some_node(dir, once_in(2));

	(void) server;
	if (node < 0)
		return false;
	zk_change(node);
	return true;
}

static bool
do_change_dir(Server *server, int dir)
{
	(void) server;
	if (!zk.dir[dir].exists)
		return false;
	zk_change_dir(dir);
	return true;
}

static bool
do_admin_delete(Server *server, int dir)
{
	int node = some_node(dir, false);

	(void) server;
	if (node < 0)
		return false;
	COVER(ADMIN_DELETED);
	zk_delete(node);
	return true;
}

static bool
do_reap(Server *server, int dir)
{
	(void) server;
	if (!zk.dir[dir].exists || !zk.dir[dir].container || !zk_dir_empty(dir))
		return false;
	COVER(REAPED);
	zk_remove_dir(dir);
	return true;
}

static bool
do_remove_ancestors(Server *server, int dir)
{
	(void) server;
	(void) dir;
	for (int i = 0; i < MAX_DIRS; i++)
	{
		if (zk.dir[i].exists)
			return false;
	}
	if (!zk.ancestors)
		return false;
	zk.ancestors = false;
	zk.zxid++;
	return true;
}

static bool
do_jump(Server *server, int dir)
{
	int64_t to = once_in(2) ? INT32_MAX - random_below(4)
							: ZKLOCK_SEQUENCE_LIMIT - random_below(8);

	(void) server;
	if (!zk.dir[dir].exists || zk.dir[dir].next_sequence > to)
		return false;
	counter_jumped[dir] = true;
	zk.dir[dir].next_sequence = to;
	return true;
}

/*
 * The newest number will be given once more.  ZooKeeper up to 3.5 may do that when its
 * leader restarts, which nobody's connection survives.
 */
static bool
do_repeat(Server *server, int dir)
{
	(void) server;
	if (!zk_step_back(dir))
		return false;
	COVER(NUMBER_REPEATED);
	numbers_repeated[dir] = true;
	for (int s = 0; s < nservers; s++)
	{
		if (servers[s].conn.up)
			conn_break(&servers[s].conn);
	}
	return true;
}

typedef struct Kind
{
	const char *name;
	bool (*function)(Server *server, int dir);
	int weight[3]; /* by phase */
	bool fault;	   /* its weight varies from seed to seed */
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
	{"backend is admitted", do_admit, {60, 60, 60}, false},
	{"kept are swept", do_evict, {10, 0, 60}, true},
	{"backend upgrades", do_upgrade, {20, 20, 0}, false},
	{"backend releases", do_release, {30, 30, 60}, false},
	{"backend gives up", do_withdraw, {15, 0, 60}, true},
	{"set begins", do_set_start, {40, 20, 0}, false},
	{"set is admitted", do_set_admit, {100, 100, 100}, false},
	{"worker looks at sets", do_set_work, {120, 120, 120}, false},
	{"set wakes up", do_set_take, {100, 100, 100}, false},
	{"set releases", do_set_release, {30, 30, 60}, false},
	{"set gives up", do_set_withdraw, {10, 0, 60}, true},
	{"connection breaks", do_break, {8, 0, 0}, true},
	{"connection was no use", do_break_useless, {10, 60, 60}, false},
	{"reconnects", do_reconnect, {60, 60, 60}, false},
	{"new session", do_open, {60, 60, 60}, false},
	{"session expires", do_expire, {2, 0, 0}, true},
	{"session given up", do_abandon, {1, 0, 0}, true},
	{"old session expires", do_expire_abandoned, {10, 60, 60}, false},
	{"new worker", do_worker_dies, {3, 0, 0}, true},
	{"tick", do_tick, {6, 0, 0}, true},
	{"foreigner comes", do_foreign_come, {10, 0, 0}, true},
	{"foreigner numbers itself", do_forge, {5, 0, 0}, true},
	{"foreigner goes", do_foreign_go, {20, 30, 30}, false},
	{"node is changed", do_change, {10, 0, 0}, true},
	{"directory is written", do_change_dir, {3, 0, 0}, true},
	{"contender is deleted", do_admin_delete, {3, 0, 0}, true},
	{"directory is reaped", do_reap, {20, 20, 20}, true},
	{"ancestors vanish", do_remove_ancestors, {10, 0, 0}, true},
	{"counter jumps", do_jump, {1, 0, 0}, true},
	{"counter steps back", do_repeat, {3, 0, 0}, true},
};

static int weight[lengthof(kinds)];
static int total_weight;

static void
set_phase(Phase new_phase, const int *factor)
{
	phase = new_phase;
	faults = phase == PHASE_CHAOS;
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
try_kind(size_t kind, Server *server, int dir)
{
	if (tracing)
		snprintf(heading, sizeof(heading), "%ld: server %d lock %d: %s", step_count,
				 (int) (server - servers), dir, kinds[kind].name);
	if (kinds[kind].function(server, dir))
	{
		step_count++;
		show_heading();
		check_invariants();
		return true;
	}
	heading[0] = '\0';
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
		size_t kind = 0;

		while (r >= weight[kind])
			r -= weight[kind++];
		server = random_below(nservers);
		if (try_kind(kind, &servers[server], random_below(ndirs)))
			return true;
	}
	for (size_t kind = 0; kind < lengthof(kinds); kind++)
	{
		for (int s = 0; weight[kind] > 0 && s < nservers; s++)
		{
			for (int dir = 0; dir < ndirs; dir++)
			{
				for (int b = 0; b < NBACKENDS; b++)
				{
					bool done;

					scanned_backend = b;
					done = try_kind(kind, &servers[s], dir);
					scanned_backend = -1;
					if (done)
						return true;
				}
			}
		}
	}
	return false;
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static bool
all_quiet(void)
{
	if (!sets_quiet())
		return false;
	for (int s = 0; s < nservers; s++)
	{
		for (int dir = 0; dir < ndirs; dir++)
		{
			if (!table_quiet(&servers[s].table[dir]))
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
		for (int dir = 0; dir < ndirs; dir++)
		{
			if (servers[s].refused[dir] || servers[s].polled[dir] || servers[s].crowded)
				return true;
		}
	}
	return false;
}

/* Until everybody has had his turn. */
static void
run_calm(void)
{
	int idle_rounds = 0;

	for (int i = 0; !all_quiet() || calm_wishes > 0; i++)
	{
		if (i == CALM_STEPS)
			fail("somebody waits for ever");
		if (one_step())
		{
			idle_rounds = 0;
			continue;
		}
		calm_wishes = 0;
		if (all_quiet())
			break;
		if (idle_rounds++ < 4)
		{
			/*
			 * Only what the ensemble refused, or what could not be watched, may have to
			 * wait for a tick: anything else is a lost wake-up.
			 */
			if (!any_needs_tick())
			{
				sets_show();
				fail("somebody waits, and nothing but a tick will happen");
			}
			for (int s = 0; s < nservers; s++)
				server_tick(&servers[s]);
			check_invariants();
		}
		else
		{
			sets_show();
			fail("somebody waits, and nothing will happen");
		}
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
			server_tick(&servers[s]);
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
		for (int dir = 0; dir < ndirs; dir++)
		{
			if (!zklock_queue_empty(&servers[s].queue[dir]))
				fail("server %d: queue %d is not empty", s, dir);
		}
	}
}

static void
play(uint64_t seed)
{
	int factor[lengthof(kinds)];
	int nsteps;

	random_state = seed * UINT64_C(0xd1342543de82ef95) + 1;
	scanned_backend = -1;
	heading[0] = '\0';

	zk_reset();
	reset_tokens();
	memset(counter_jumped, 0, sizeof(counter_jumped));
	memset(numbers_repeated, 0, sizeof(numbers_repeated));
	with_sets = once_in(2);
	nservers = 2 + random_below(MAX_SERVERS - 1);
	recurring = once_in(8) ? servers : NULL;
	ndirs = recurring != NULL ? 1 : 1 + random_below(MAX_DIRS);
	for (int s = 0; s < nservers; s++)
	{
		static const int rates[] = {0, 1000, 1000, 1000, 4};

		server_init(&servers[s]);
		for (int dir = 0; dir < ndirs; dir++)
			servers[s].table[dir].handoff_limit = random_below(3);
		servers[s].keep_rate = rates[random_below(lengthof(rates))];
		servers[s].alone_rate = rates[random_below(lengthof(rates))];
		servers[s].recurring_rate = rates[random_below(lengthof(rates))];
		servers[s].crowded = once_in(16);
		if (recurring != NULL)
		{
			servers[s].keep_rate = 0;
			servers[s].recurring_rate = 1000;
		}
	}

	/* Each seed has its own mixture; one in eight has no faults at all. */
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		static const int factors[] = {0, 0, 1, 1, 1, 3};

		factor[i] = seed % 8 == 0 ? 0 : factors[random_below(lengthof(factors))];
		if ((kinds[i].function == do_jump || kinds[i].function == do_repeat) && !once_in(10))
			factor[i] = 0;
		if (kinds[i].function == do_break && recurring != NULL && !once_in(4))
			factor[i] = 0;
	}
	if (seed % 8 != 0 && once_in(5))
		zk.error_rate = 30 + random_below(100);
	deposed_rate = once_in(4) ? 2 : 8;

	set_phase(PHASE_CHAOS, factor);
	nsteps = once_in(2) && recurring == NULL ? 30 + random_below(120)
											 : 100 + random_below(700);
	for (int i = 0; i < nsteps; i++)
		one_step();

	zk.error_rate = 0;
	calm_wishes = once_in(2) ? 0 : random_below(6);
	set_phase(PHASE_CALM, factor);
	run_calm();

	set_phase(PHASE_DRAIN, factor);
	run_drain();
	check_nothing_left();
}

const Simulator simulator = {
	.schedules = "schedules",
	.play = play,
	.coverage_name = coverage_name,
	.ncoverage = NCOVERAGE,
};
