/*-------------------------------------------------------------------------
 *
 * sim.c
 *	  Plays seeded schedules of the lock protocol against a model of ZooKeeper.
 *
 * The world of locks: what holds of who has them, and what can happen only to them.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RECURRING_STARTS 60 /* wishes until another server is the one that recurs */

static bool with_sets; /* backends want several locks in one step, too */

/* ------------------------------------------------------------------------
 * Invariants
 * ------------------------------------------------------------------------
 */

/* Newest token granted, by session. */
static int64_t granted_token[MAX_SESSIONS][MAX_DIRS][ZKLOCK_NMODES];

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
			if (holds[i] && holds[j] &&
				zklock_modes_conflict(queue[i].mode, queue[j].mode) &&
				(queue[i].uuid_hi == 0 || queue[i].uuid_hi != queue[j].uuid_hi))
				fail("%s and %s hold at a time", queue[i].name, queue[j].name);
		}
	}
}

static void
check_turn(Server *server, int queue, const Node *own)
{
	int dir = queue_dir(queue);

	(void) server;
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *other = &zk.node[zk.alive[i]];

		/* what somebody else has made with our mark is nobody's place, and goes */
		if (other->dir == dir && other->owner != own->owner && comes_before(other, own) &&
			other->child.uuid_hi != own->child.uuid_hi &&
			zklock_modes_conflict(own->child.mode, other->child.mode))
			fail("granted though %s is before us", other->name);
	}
	for (int i = 0; i < zk.nsessions; i++)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			if (i != own->owner &&
				zklock_modes_conflict(own->child.mode, (ZkLockMode) mode) &&
				granted_token[i][dir][mode] > own->czxid)
				fail("token %" PRId64 " after token %" PRId64, own->czxid,
					 granted_token[i][dir][mode]);
		}
	}
	granted_token[own->owner][dir][own->child.mode] = own->czxid;
	check_holders(dir, own);
}

static bool
was_blocked(const Server *server, int queue, ZkLockMode mode, int64_t since)
{
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *other = &zk.node[i];

		if (other->dir == queue_dir(queue) && other->owner != server->conn.session &&
			zklock_modes_conflict(other->child.mode, mode) && other->dzxid > since)
			return true;
	}
	return false;
}

/* No two servers hold conflicting grants of one name. */
static void
check_exclusion(int dir)
{
	for (int a = 0; a < nservers; a++)
	{
		if (!server_counts(&servers[a], dir, ZKLOCK_EXCLUSIVE))
			continue;
		for (int b = 0; b < nservers; b++)
		{
			if (b != a &&
				(server_counts(&servers[b], dir, ZKLOCK_EXCLUSIVE) ||
				 server_counts(&servers[b], dir, ZKLOCK_SHARED)))
				fail("servers %d and %d hold lock %d", a, b, dir);
		}
	}
}

static void
check(void)
{
	for (int dir = 0; dir < ndirs; dir++)
		check_exclusion(dir);
	check_sets();
}

/* By comparing before and after. */
static void
observe(const Server *server, int queue, const ZkLockEvent *event,
		const ZkLockQueue *before, const ZkLockActions *actions)
{
	const ZkLockQueue *after = &server->queue[queue];

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
		if (event->type == ZKLOCK_EV_WATCHED_OWN && event->rc == ZKLOCK_RC_OK &&
			old->uuid == event->uuid && old->state == ZKLOCK_GRANTED &&
			new->state == ZKLOCK_FREE)
			COVER(REMADE_NOTICED);
		if (event->type == ZKLOCK_EV_MARKED && event->rc == ZKLOCK_RC_OK &&
			old->uuid == event->uuid && old->state == ZKLOCK_QUEUED &&
			new->state == ZKLOCK_FREE)
			COVER(MIMIC_REFUSED);
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

/* ------------------------------------------------------------------------
 * What can happen
 * ------------------------------------------------------------------------
 */

/* Where a call takes two random numbers, compilers disagree which is first. */
static bool
do_start(Server *server, int queue)
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
	return table_start(&server->table[queue], backend, mode, no_wait);
}

static bool
do_admit(Server *server, int queue)
{
	return table_admit(&server->table[queue], some_backend());
}

static bool
do_upgrade(Server *server, int queue)
{
	/* who holds a lock and waits is in a circle with sets, perhaps, and
	 * deadlock_rules.h's */
	return !with_sets && table_upgrade(&server->table[queue], some_backend());
}

static bool
do_set_start(Server *server)
{
	return with_sets && set_start(server);
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

static bool
do_foreign_come(int dir)
{
	char prefix[NAME_LEN];

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
do_forge(int dir)
{
	char name[NAME_LEN];
	int ours = some_node(dir, false);
	int64_t next;
	int64_t number;
	size_t len;
	int node;

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

/*
 * A foreigner makes a node with the mark of one of ours, of which its server does not
 * know that it was made: beside it, or in its place.
 */
static bool
do_mimic(int dir)
{
	int ours = some_node(dir, false);
	const ZkContender *c = NULL;

	for (int s = 0; s < nservers && ours >= 0; s++)
	{
		if (server_owns(&servers[s], ours))
			c = server_contender(&servers[s], dir, zk.node[ours].child.uuid_lo);
	}
	if (c == NULL || (c->state != ZKLOCK_CREATING && c->state != ZKLOCK_UNSETTLED) ||
		!foreigner_may_come(dir))
		return false;
	if (once_in(2))
		zk_remake(ours);
	else if (zk_mimic(ours, zk.node[ours].child.sequence + random_below(4) - 2) < 0)
		return false;
	COVER(MIMICKED);
	return true;
}

static bool
do_change_dir(int dir)
{
	if (!zk.dir[dir].exists)
		return false;
	zk_change_dir(dir);
	return true;
}

static bool
do_remove_ancestors(int dir)
{
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
do_jump(int dir)
{
	int64_t to = once_in(2) ? INT32_MAX - random_below(4)
							: ZKLOCK_SEQUENCE_LIMIT - random_below(8);

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
do_repeat(int dir)
{
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

static const Kind kinds[] = {
	{"backend wants", {60, 20, 0}, KIND_WISH, .queue = do_start},
	{"backend is admitted", {60, 60, 60}, 0, .queue = do_admit},
	{"backend upgrades", {20, 20, 0}, KIND_WISH, .queue = do_upgrade},
	{"set begins", {40, 20, 0}, KIND_WISH, .server = do_set_start},
	{"set is admitted", {100, 100, 100}, 0, .server = set_admit},
	{"worker looks at sets", {120, 120, 120}, 0, .server = set_work},
	{"set wakes up", {100, 100, 100}, 0, .server = set_take},
	{"set releases", {30, 30, 60}, 0, .server = set_release},
	{"set gives up", {10, 0, 60}, KIND_FAULT, .server = set_withdraw},
	{"foreigner comes", {10, 0, 0}, KIND_FAULT, .dir = do_foreign_come},
	{"foreigner numbers itself", {5, 0, 0}, KIND_FAULT, .dir = do_forge},
	{"foreigner makes itself ours", {5, 0, 0}, KIND_FAULT, .dir = do_mimic},
	{"directory is written", {3, 0, 0}, KIND_FAULT, .dir = do_change_dir},
	{"ancestors vanish", {10, 0, 0}, KIND_FAULT, .dir = do_remove_ancestors},
	{"counter jumps", {1, 0, 0}, KIND_FAULT | KIND_RARE, .dir = do_jump},
	{"counter steps back", {3, 0, 0}, KIND_FAULT | KIND_RARE, .dir = do_repeat},
};

static void
begin(void)
{
	memset(granted_token, 0, sizeof(granted_token));
	memset(counter_jumped, 0, sizeof(counter_jumped));
	memset(numbers_repeated, 0, sizeof(numbers_repeated));
	with_sets = once_in(2);
	nservers = 2 + random_below(MAX_SERVERS - 1);
	recurring = once_in(8) ? servers : NULL;
	ndirs = nqueues = recurring != NULL ? 1 : 1 + random_below(MAX_DIRS);
	for (int s = 0; s < nservers; s++)
	{
		server_init(&servers[s]);
		if (recurring != NULL)
		{
			servers[s].keep_rate = 0;
			servers[s].recurring_rate = 1000;
		}
	}
}

const World world = {
	.begin = begin,
	.kinds = kinds,
	.nkinds = lengthof(kinds),
	.nbackends = NBACKENDS,
	.quiet = sets_quiet,
	.check_turn = check_turn,
	.was_blocked = was_blocked,
	.check = check,
	.observe = observe,
	.notice = sets_notice,
};

const Simulator simulator = {
	.schedules = "schedules of locks",
	.enough = 50000,
	.ncoverage = NCOVERAGE,
};
