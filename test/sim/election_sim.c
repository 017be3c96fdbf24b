/*-------------------------------------------------------------------------
 *
 * election_sim.c
 *	  Plays seeded schedules of candidates and leaders against
 *	  src/protocol/election_rules.c and election_text.c.
 *
 * A schedule is one election: a queue of nodes, in the order in which they were made, and
 * servers of different priorities that stand in it.  Servers come, die (their node goes
 * when their session ends), leave, are drained and come back; are given another priority,
 * for which those that wait queue anew, and those that lead do not; transactions require
 * the leadership for a while.  Who leads looks at the others when it has come to lead,
 * and then once in a session timeout, as election_priorities.c does: what it decides by
 * may be out of date when it resigns.  In some schedules a few servers write a newer
 * version of their priority, which the others cannot read.
 *
 * Then a calm begins: nobody comes or goes any more.
 *
 * Invariants:
 *
 *	 - Nobody resigns but for a candidate of higher priority that has stood for two
 *	   timeouts; and who looks, and there is one, does, whoever else has come.
 *	 - While a transaction requires the leadership, nobody else leads.
 *	 - In a calm the highest priority comes to lead, if all can read it, and whoever leads
 *	   then goes on leading.
 *	 - Until then each candidate resigns once at most for one that lives, and once more
 *	   after somebody has resigned for one that has died.
 *	 - A candidate that has died holds others up no longer than its session lasts.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <string.h>

#include "election_rules.h"
#include "election_text.h"
#include "harness.h"

#define SERVERS 5
#define NODES	(4 * SERVERS)
#define EVENTS	60
#define LATENCY 20

/* a line of the trace */
#define TRACE(...) TRACE_LINE(__VA_ARGS__)

typedef enum Coverage
{
	COVER_CAME,
	COVER_DIED,
	COVER_DIED_LEADING,
	COVER_LEFT,
	COVER_CHANGED,
	COVER_ANEW,
	COVER_REQUIRED,
	COVER_YIELDED,
	COVER_YIELDED_AGAIN,
	COVER_OUTDATED,
	COVER_HELD,
	COVER_STAYED,
	COVER_EQUALS,
	COVER_UNKNOWN,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {"candidates that came",
											  "... died",
											  "... while they led",
											  "... left",
											  "... got another priority",
											  "... and queued anew for it",
											  "transactions that require a leadership",
											  "leaders that resigned for a higher one",
											  "... one after the other",
											  "... for one that has gone meanwhile",
											  "... while a transaction required it",
											  "leaders that looked, and stayed",
											  "calms with several of the highest priority",
											  "priorities that a leader cannot read"};

long coverage[NCOVERAGE];

typedef struct Node
{
	int server;
	int priority; /* that it says */
	int64_t since;
	int64_t ends; /* its session does, as nobody lives in it; INT64_MAX: somebody does */
} Node;

typedef struct Server
{
	bool stands; /* it has a node, and lives */
	int priority;
	bool newer; /* it writes the newer version */
	bool leads;
	bool resigned;		/* the node goes when no transaction is left */
	int64_t look_at;	/* the next look */
	int64_t decides_at; /* it has looked; INT64_MAX: it has not */
	int looked;			/* its priority was, when it looked */
	ZkRival best;		/* ... and found this one */
	int best_server;
	int best_priority; /* whether it can be read or not */
	int64_t required_until;
	int yields; /* in the calm */
} Server;

static Node nodes[NODES];
static int nnodes;
static Server servers[SERVERS];
static int64_t now;
static int64_t timeout;
static bool calm;
static int yields_in_a_row;
static bool two_versions;

static int
node_of(int server)
{
	for (int i = 0; i < nnodes; i++)
		if (nodes[i].server == server && nodes[i].ends == INT64_MAX)
			return i;
	return -1;
}

static void
remove_node(int i)
{
	memmove(&nodes[i], &nodes[i + 1], sizeof(Node) * (size_t) (nnodes - i - 1));
	nnodes--;
}

static void
forget(Server *s)
{
	s->leads = s->resigned = false;
	s->required_until = 0;
	s->decides_at = INT64_MAX;
}

/* Queue, as the last. */
static void
enter(int server)
{
	Server *s = &servers[server];

	if (nnodes == NODES)
		fail("there is no room for a node");
	nodes[nnodes++] = (Node){
		.server = server,
		.priority = s->priority,
		.since = now,
		.ends = INT64_MAX,
	};
	forget(s);
	s->stands = true;
	TRACE("%" PRId64 ": server %d stands, priority %d", now, server, s->priority);
}

static void
leave(int server)
{
	TRACE("%" PRId64 ": server %d leaves", now, server);
	remove_node(node_of(server));
	forget(&servers[server]);
	servers[server].stands = false;
}

static void
die(int server)
{
	TRACE("%" PRId64 ": server %d dies", now, server);
	COVER(DIED);
	if (servers[server].leads)
		COVER(DIED_LEADING);
	/* it was heard some time ago */
	nodes[node_of(server)].ends = now + 1 + random_below(timeout);
	forget(&servers[server]);
	servers[server].stands = false;
}

/* Who is first leads, if it lives. */
static void
find_leader(void)
{
	Server *s;

	for (int i = nnodes - 1; i >= 0; i--)
		if (nodes[i].ends <= now)
			remove_node(i);
	if (nnodes == 0 || nodes[0].ends != INT64_MAX)
		return;
	s = &servers[nodes[0].server];
	if (s->leads || s->resigned)
		return;
	for (int i = 0; i < SERVERS; i++)
		if (servers[i].leads || servers[i].required_until > now)
			fail("server %d leads beside server %d", nodes[0].server, i);
	TRACE("%" PRId64 ": server %d leads", now, nodes[0].server);
	s->leads = true;
	s->look_at = now;
}

/* The priority of a node, as this server reads it. */
static int
read_priority(const Server *s, const Node *node)
{
	char data[64 + ZKLOCK_CANDIDATE_MAX];
	char *version;
	int priority;

	zklock_candidate_write(data, "server", node->priority);
	version = strstr(data, "\"version\": 1");
	if (version != NULL && servers[node->server].newer && !s->newer)
		version[strlen("\"version\": ")] = '2';
	priority = zklock_candidate_priority(data, strlen(data));
	if (priority == ZKLOCK_PRIORITY_UNKNOWN)
		COVER(UNKNOWN);
	return priority;
}

/* It has looked a moment ago, and does not resign. */
static void
stay(int server)
{
	const Server *s = &servers[server];

	COVER(STAYED);
	yields_in_a_row = 0;
	if (s->priority != s->looked)
		return; /* by the next look, then */
	for (int i = 0; i < nnodes; i++)
		if (nodes[i].server != server && nodes[i].ends == INT64_MAX &&
			read_priority(s, &nodes[i]) > s->priority &&
			now - nodes[i].since >= 2 * timeout + LATENCY)
			fail("server %d does not resign for server %d", server, nodes[i].server);
}

static void
look(int server)
{
	Server *s = &servers[server];

	s->best = (ZkRival){0};
	s->best_server = -1;
	s->looked = s->priority;
	for (int i = 0; i < nnodes; i++)
	{
		ZkRival rival = {.since = nodes[i].since};

		if (nodes[i].server == server)
			continue;
		rival.priority = read_priority(s, &nodes[i]);
		if (!zklock_election_is_better(s->priority, &rival, &s->best))
			continue;
		s->best = rival;
		s->best_server = nodes[i].server;
		s->best_priority = nodes[i].priority;
	}
	s->look_at = now + timeout;
	s->decides_at = s->best_server >= 0 ? now + random_below(LATENCY) : INT64_MAX;
	if (s->best_server < 0)
		stay(server);
}

static void
decide(int server)
{
	Server *s = &servers[server];

	s->decides_at = INT64_MAX;
	if (!zklock_election_yields(s->priority, &s->best, now, timeout))
	{
		stay(server);
		return;
	}
	if (s->best_priority <= s->priority || now - s->best.since < 2 * timeout)
		fail("server %d resigns for nobody", server);
	TRACE("%" PRId64 ": server %d resigns for server %d", now, server, s->best_server);
	COVER(YIELDED);
	if (yields_in_a_row++ > 0)
		COVER(YIELDED_AGAIN);
	if (node_of(s->best_server) < 0)
		COVER(OUTDATED);
	if (s->required_until > now)
		COVER(HELD);
	/* for one that has gone, the lead goes round once more */
	if (calm && node_of(s->best_server) < 0)
		for (int i = 0; i < SERVERS; i++)
			servers[i].yields = 0;
	else if (calm && ++s->yields > 1)
		fail("server %d resigns again", server);
	s->leads = false;
	s->resigned = true;
}

/* All that comes to pass by itself, until then. */
static void
go_on(int64_t until)
{
	for (; now < until; now++)
	{
		find_leader();
		for (int i = 0; i < SERVERS; i++)
		{
			Server *s = &servers[i];

			if (s->leads && now >= s->look_at && s->decides_at == INT64_MAX)
				look(i);
			if (s->leads && now >= s->decides_at)
				decide(i);
			if (s->resigned && s->required_until <= now)
			{
				leave(i);
				enter(i);
			}
		}
	}
}

static void
change_priority(int server)
{
	Server *s = &servers[server];

	s->priority = 100 * random_below(4);
	TRACE("%" PRId64 ": server %d has priority %d", now, server, s->priority);
	COVER(CHANGED);
	if (!s->stands || s->leads || s->resigned)
		return;
	COVER(ANEW);
	leave(server);
	enter(server);
}

static void
happen(void)
{
	int server = random_below(SERVERS);
	Server *s = &servers[server];

	switch (random_below(8))
	{
		case 0:
		case 1:
		case 2:
			if (s->stands)
				break;
			COVER(CAME);
			enter(server);
			break;
		case 3:
			if (s->stands)
				die(server);
			break;
		case 4:
			if (!s->stands || s->required_until > now)
				break;
			COVER(LEFT);
			leave(server);
			break;
		case 5:
			change_priority(server);
			break;
		default:
			for (int i = 0; i < SERVERS; i++)
			{
				if (!servers[i].leads)
					continue;
				COVER(REQUIRED);
				servers[i].required_until = now + random_below(3 * timeout);
			}
	}
}

static void
check_calm(void)
{
	int highest = -1;
	int equals = 0;
	int leader = -1;

	for (int i = 0; i < SERVERS; i++)
	{
		if (!servers[i].stands)
			continue;
		equals =
			servers[i].priority > highest ? 1 : equals + (servers[i].priority == highest);
		highest = servers[i].priority > highest ? servers[i].priority : highest;
		if (servers[i].leads)
			leader = i;
	}
	if (highest >= 0 && !two_versions && (leader < 0 || servers[leader].priority != highest))
		fail("server %d leads, and the highest priority is %d", leader, highest);
	if (equals > 1)
		COVER(EQUALS);
	go_on(now + 5 * timeout);
	if (leader >= 0 && !servers[leader].leads)
		fail("server %d leads no more", leader);
}

void
play(uint64_t seed)
{
	random_state = seed;
	memset(servers, 0, sizeof(servers));
	nnodes = 0;
	now = 1000;
	calm = false;
	yields_in_a_row = 0;
	timeout = 50 + random_below(200);
	two_versions = once_in(4);
	for (int i = 0; i < SERVERS; i++)
	{
		servers[i].priority = once_in(2) ? ZKLOCK_PRIORITY_DEFAULT : 100 * random_below(4);
		servers[i].newer = two_versions && once_in(2);
		forget(&servers[i]);
	}
	for (int i = 0; i < EVENTS; i++)
	{
		step_count++;
		happen();
		go_on(now + 1 + random_below(once_in(4) ? 3 * timeout : timeout / 4));
	}
	calm = true;
	/* what has died and is required ends; two timeouts, and one until the next look; and
	 * each candidate leads for a moment */
	go_on(now + (3 + 2 + 1) * timeout + SERVERS * (LATENCY + 2));
	check_calm();
}

const Simulator simulator = {
	.schedules = "schedules of an election",
	.enough = 1000,
	.ncoverage = NCOVERAGE,
};
