/*-------------------------------------------------------------------------
 *
 * semaphore_sim.c
 *	  Plays seeded schedules of permits (semaphore_rules.h, and protocol.h for each place)
 *	  against the model of ZooKeeper.
 *
 * The world of permits: each server has a few places, of one session each, in one
 * directory.  A place is a queue, and a table in which one backend wants the lock to
 * write.  It is in use while its queue says of how many permits.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>

#include "semaphore_rules.h"
#include "world.h"

static int usual;	/* number of permits */
static bool agreed; /* everybody names that */

/* ------------------------------------------------------------------------
 * What has happened
 * ------------------------------------------------------------------------
 */

typedef enum Happened
{
	SEEN_GRANTED,
	SEEN_GRANTED_BESIDE,
	SEEN_GRANTED_AFTER_WAIT,
	SEEN_GRANTED_BY_OTHER,
	SEEN_WAITS_COUNTING,
	SEEN_WAITS_FIRST,
	SEEN_WAITS_FAR,
	SEEN_LED,
	SEEN_LEADS_ON,
	SEEN_LEAVING,
	SEEN_ENDED,
	SEEN_UNLISTED,
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
	SEEN_AGREED,
	NSEEN
} Happened;

static long seen[NSEEN];
static const char *const seen_name[NSEEN] = {
	[SEEN_GRANTED] = "permits granted",
	[SEEN_GRANTED_BESIDE] = "permits granted beside others",
	[SEEN_GRANTED_AFTER_WAIT] = "permits granted after a wait",
	[SEEN_GRANTED_BY_OTHER] = "permits granted by a listing of another place",
	[SEEN_WAITS_COUNTING] = "waits that count who goes",
	[SEEN_WAITS_FIRST] = "waits for the directory to change",
	[SEEN_WAITS_FAR] = "waits far behind one who waits",
	[SEEN_LED] = "waits behind one of the same server",
	[SEEN_LEADS_ON] = "places that were the first one to wait then",
	[SEEN_LEAVING] = "listings that showed who was leaving, and were followed by one",
	[SEEN_ENDED] = "looks as one of the same server has gone",
	[SEEN_UNLISTED] = "contenders made without a listing",
	[SEEN_MARK] = "nodes written for who waits behind",
	[SEEN_MARK_LOST] = "such writes lost",
	[SEEN_MARKED_BEFORE] = "nodes that were written before they were watched",
	[SEEN_KEPT] = "permits kept for nobody",
	[SEEN_KEPT_TAKEN] = "kept permits taken",
	[SEEN_KEPT_DEMANDED] = "kept permits given up on demand",
	[SEEN_OTHER_NUMBER] = "permits granted beside another number of permits",
	[SEEN_SIBLINGS] = "permits granted beside one of the same server",
	[SEEN_PROBE_BLOCKED] = "probes that found no permit",
	[SEEN_PROBE_FREE] = "probes that found one",
	[SEEN_FOREIGNER] = "foreigners who count",
	[SEEN_REVOKED] = "permits lost",
	[SEEN_ADOPTED] = "contenders adopted",
	[SEEN_ORPHAN] = "orphans deleted",
	[SEEN_LULL] = "lulls in which nobody waits for a free permit",
	[SEEN_AGREED] = "queues in which one would say that it is granted a permit",
};

static int
report(void)
{
	return report_counts("", seen, seen_name, NSEEN);
}

/* ------------------------------------------------------------------------
 * Invariants
 * ------------------------------------------------------------------------
 */

/* Who is in the queue, in its order; without those that were made without the sequence
 * flag since then. */
static int
true_queue(ZkLockChild *queue, const Node **nodes, int64_t since)
{
	int n = 0;

	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];
		int at = n;

		if (node->forged && node->czxid > since)
			continue;
		n++;
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

/* Is the node entitled to a permit?  Who makes himself a place before it that he had not
 * when it came takes nothing from it. */
static bool
entitled(const Node *node, int64_t since)
{
	ZkLockChild queue[MAX_ALIVE] = {{0}};
	const Node *nodes[MAX_ALIVE];
	bool holds[MAX_ALIVE];
	int n = true_queue(queue, nodes, since);

	zklock_semaphore_find_holders(queue, n, holds);
	for (int i = 0; i < n; i++)
	{
		if (nodes[i] == node)
			return holds[i];
	}
	return false;
}

/* While somebody has a permit of N, no more than N have one. */
static void
check_number(void)
{
	int least = INT32_MAX;
	int n = 0;

	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			if (!server_counts(&servers[s], q, ZKLOCK_EXCLUSIVE))
				continue;
			n++;
			if (servers[s].queue[q].permits < least)
				least = servers[s].queue[q].permits;
		}
	}
	if (n > least)
		fail("%d have a permit, and one of them said %d", n, least);
}

static void
check_turn(Server *server, int queue, const Node *own)
{
	if (!entitled(own, own->czxid))
		fail("granted out of turn");
	seen[SEEN_GRANTED]++;
	for (int s = 0; s < nservers; s++)
	{
		for (int q = 0; q < nqueues; q++)
		{
			if (!server_counts(&servers[s], q, ZKLOCK_EXCLUSIVE))
				continue;
			seen[SEEN_GRANTED_BESIDE]++;
			if (&servers[s] == server)
				seen[SEEN_SIBLINGS]++;
			if (servers[s].queue[q].permits != server->queue[queue].permits)
				seen[SEEN_OTHER_NUMBER]++;
		}
	}
}

/* Who is told that there is no permit must have had a reason to wait since he asked. */
static bool
was_blocked(const Server *server, int queue, ZkLockMode mode, int64_t since)
{
	int n = 0;
	int least = server->queue[queue].permits;

	(void) mode;
	for (int i = 0; i < zk.nnodes; i++)
	{
		const ZkLockChild *child = &zk.node[i].child;

		if (zk.node[i].dzxid <= since)
			continue;
		n++;
		if (child->permits > 0 && child->permits < least)
			least = child->permits;
	}
	return n >= least;
}

#define MAX_TRIED 8

/*
 * Who waits to hear from another one, and that one, agree on it by listings of different
 * times: whoever has gone meanwhile.  That they do not matters only where much else has
 * gone wrong, so it is tried without.
 */
static void
check_agreement(void)
{
	ZkLockChild queue[MAX_TRIED] = {{0}};
	ZkLockChild later[MAX_TRIED];
	const ZkLockChild *waiter = &queue[random_below(MAX_TRIED)];
	int64_t sequence = 0;
	int n = 0;
	ZkSemaphorePlace place;
	ZkSemaphorePlace far;

	for (int i = 0; i < MAX_TRIED; i++)
	{
		sequence += 1 + random_below(2);
		queue[i].sequence = sequence;
		queue[i].uuid_hi = 1 + (uint64_t) random_below(3);
		queue[i].permits = 1 + random_below(2);
	}
	place = zklock_semaphore_find_place(queue, MAX_TRIED, waiter->sequence,
										waiter->permits, waiter->uuid_hi);
	if (place.granted || place.far == NULL)
		return;
	for (int i = 0; i < MAX_TRIED; i++)
	{
		if (&queue[i] == waiter || &queue[i] == place.far ||
			(queue[i].sequence > place.far->sequence && once_in(2)))
			later[n++] = queue[i];
	}
	far = zklock_semaphore_find_place(later, n, place.far->sequence, place.far->permits,
									  place.far->uuid_hi);
	if (!far.granted || !far.followed)
		fail("it waits for one that does not know");
	seen[SEEN_AGREED]++;
}

/* ------------------------------------------------------------------------
 * What can happen
 * ------------------------------------------------------------------------
 */

static bool
kept(const Table *table)
{
	return table->usable[ZKLOCK_EXCLUSIVE] && table_quiet(table);
}

static bool
anybody_waits(const Server *server)
{
	for (int q = 0; q < nqueues; q++)
	{
		if (table_want(&server->table[q], ZKLOCK_EXCLUSIVE) > 0)
			return true;
	}
	return false;
}

/* What is kept for nobody and no use to whoever waits goes; a place that is no use to
 * anybody is free. */
static void
notice(Server *server)
{
	bool waits = anybody_waits(server);

	for (int q = 0; q < nqueues; q++)
	{
		Table *table = &server->table[q];

		if (waits)
			table_evict(table);
		if (server->queue[q].permits > 0 && zklock_lock_queue_empty(&server->queue[q]) &&
			table_quiet(table) && !table->usable[ZKLOCK_EXCLUSIVE] && !table->dirty)
		{
			server_forget(server, q);
			server->queue[q].permits = 0;
		}
	}
}

static bool
start(Server *server, int permits, bool no_wait)
{
	int vacant = -1;

	for (int q = 0; q < nqueues; q++)
	{
		if (kept(&server->table[q]) && server->queue[q].permits == permits)
		{
			seen[SEEN_KEPT_TAKEN]++;
			return table_start(&server->table[q], 0, ZKLOCK_EXCLUSIVE, no_wait);
		}
		if (server->queue[q].permits == 0)
			vacant = q;
	}
	for (int q = 0; q < nqueues; q++)
		table_evict(&server->table[q]);
	if (vacant < 0)
		return false;
	server->queue[vacant].permits = permits;
	server->told[vacant] = 0;
	server->refused[vacant] = server->polled[vacant] = false;
	return table_start(&server->table[vacant], 0, ZKLOCK_EXCLUSIVE, no_wait);
}

static bool
do_start(Server *server)
{
	int permits = agreed || !once_in(4) ? usual : 1 + random_below(4);

	return start(server, permits, once_in(4));
}

static bool
do_foreign_come(int dir)
{
	char prefix[NAME_LEN];

	if (!foreigner_may_come(dir))
		return false;
	snprintf(prefix, sizeof(prefix),
			 once_in(2) ? "x-%016" PRIx64 "-"
						: "_c_%08" PRIx64 "-1111-4222-8333-444455556666-lease-",
			 random_bits() & 0xffffffff);
	zk_create(dir, prefix, FOREIGN);
	seen[SEEN_FOREIGNER]++;
	return true;
}

static const Kind kinds[] = {
	{"backend wants", {60, 20, 0}, KIND_WISH, .server = do_start},
	{"foreigner comes", {8, 0, 0}, KIND_FAULT, .dir = do_foreign_come},
};

/* Is there a contender whose worker is gone?  It does not say that it is granted a
 * permit, and goes when its session expires. */
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

/* Has somebody made a contender anew, under its name?  Then numbers do not say who came
 * first, and who was granted a permit before says nothing to who sees the new one. */
static bool
any_remade(void)
{
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].owner == FOREIGN && zk.node[i].child.permits > 0)
			return true;
	}
	return false;
}

/* Does the server not know yet that one of its contenders was deleted?  It hears of that
 * at the next tick, or when it looks, and lets nobody in meanwhile, nor says so. */
static bool
missed_loss(const Server *server)
{
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *node = &zk.node[i];
		int queue = server_owns(server, i) && node->dzxid != NEVER
			? server_find(server, node)
			: -1;

		if (queue >= 0 &&
			server_contender(server, queue, node->child.uuid_lo)->state != ZKLOCK_DELETING)
			return true;
	}
	return false;
}

/* Nobody takes or releases anything for a while: no free permit stays unused by anybody
 * who waits for one. */
static void
lull(void)
{
	spread_news();
	for (int s = 0; s < nservers; s++)
	{
		if (!server_knows_all(&servers[s]) || missed_loss(&servers[s]))
			return;
	}
	if (any_abandoned() || any_remade())
		return;
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		for (int s = 0; s < nservers; s++)
		{
			int queue = server_owns(&servers[s], zk.alive[i])
				? server_find(&servers[s], node)
				: -1;

			if (queue >= 0 && table_want(&servers[s].table[queue], ZKLOCK_EXCLUSIVE) > 0 &&
				entitled(node, NEVER) && !servers_need_tick())
				fail("%s waits for a permit that is free", node->name);
		}
	}
	seen[SEEN_LULL]++;
}

/* ------------------------------------------------------------------------
 * The world
 * ------------------------------------------------------------------------
 */

static void
observe_action(const Table *table, const ZkLockAction *action)
{
	if (action->type == ZKLOCK_ACT_DEMANDED && kept(table))
		seen[SEEN_KEPT_DEMANDED]++;
	else if (action->type == ZKLOCK_ACT_UNDEMANDED)
		fail("a demand of a permit is withdrawn");
	else if (action->type == ZKLOCK_ACT_REVOKED)
		seen[SEEN_REVOKED]++;
	else if (action->type == ZKLOCK_ACT_MARK)
		seen[SEEN_MARK]++;
}

static void
observe(const Server *server, int queue, const ZkLockEvent *event,
		const ZkLockQueue *before, const ZkLockActions *actions)
{
	const Table *table = &server->table[queue];
	const ZkLockQueue *after = &server->queue[queue];

	if (event->type == ZKLOCK_EV_NEED && kept(table))
		seen[SEEN_KEPT]++;
	for (int i = 0; i < actions->n; i++)
		observe_action(table, &actions->action[i]);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *old = &before->contender[i];
		const ZkContender *new = &after->contender[i];

		if (new->state == ZKLOCK_WAITING && (old->state != ZKLOCK_WAITING || old->led))
			seen[new->led			  ? SEEN_LED
					 : new->lacks > 0 ? SEEN_WAITS_COUNTING
					 : new->first	  ? SEEN_WAITS_FIRST
									  : SEEN_WAITS_FAR]++;
		if (old->led && new->state == ZKLOCK_QUEUED)
			seen[SEEN_LEADS_ON]++;
		if (event->type == ZKLOCK_EV_LISTED && old->state == ZKLOCK_QUEUED &&
			new->state == ZKLOCK_QUEUED && event->list < new->list_needed &&new->waited)
			seen[SEEN_LEAVING]++;
		if (event->type == ZKLOCK_EV_BESIDE && old->lacks > 0 && new->lacks == 0)
			seen[SEEN_ENDED]++;
		if (new->state == ZKLOCK_CREATING &&new->create_sent &&new->list_needed == 0)
			seen[SEEN_UNLISTED]++;
		if (event->type == ZKLOCK_EV_SEEN && new->state == ZKLOCK_GRANTED &&
			old->state != ZKLOCK_GRANTED)
			seen[SEEN_GRANTED_BY_OTHER]++;
		if (new->state == ZKLOCK_GRANTED && old->state != ZKLOCK_GRANTED && old->waited)
			seen[SEEN_GRANTED_AFTER_WAIT]++;
		if (new->state == ZKLOCK_BLOCKED && old->state == ZKLOCK_PROBING)
			seen[SEEN_PROBE_BLOCKED]++;
		if (new->state == ZKLOCK_CREATING && old->state == ZKLOCK_PROBING)
			seen[SEEN_PROBE_FREE]++;
		if (old->state == ZKLOCK_UNSETTLED && new->state == ZKLOCK_QUEUED)
			seen[SEEN_ADOPTED]++;
		if (old->state == ZKLOCK_FREE && new->state == ZKLOCK_DELETING)
			seen[SEEN_ORPHAN]++;
		if (old->mark_sent && event->type == ZKLOCK_EV_MARKED &&
			event->rc == ZKLOCK_RC_LOST && new->uuid == event->uuid)
			seen[SEEN_MARK_LOST]++;
		if (event->type == ZKLOCK_EV_WATCHED && event->marked &&
			old->state == ZKLOCK_WAITING && new->state == ZKLOCK_QUEUED)
			seen[SEEN_MARKED_BEFORE]++;
	}
}

static void
begin(void)
{
	check_agreement();
	nservers = 1 + random_below(MAX_SERVERS - 1);
	ndirs = 1;
	nqueues = MAX_QUEUES;
	usual = 1 + random_below(4);
	agreed = !once_in(3);
	for (int s = 0; s < nservers; s++)
	{
		server_init(&servers[s]);
		servers[s].recurring_rate = 0;
	}
}

const World world = {
	.begin = begin,
	.kinds = kinds,
	.nkinds = lengthof(kinds),
	.nbackends = 1,
	.lull = lull,
	.check_turn = check_turn,
	.was_blocked = was_blocked,
	.check = check_number,
	.observe = observe,
	.notice = notice,
};

const Simulator simulator = {
	.schedules = "schedules of permits",
	.report = report,
};
