/*-------------------------------------------------------------------------
 *
 * sets.c
 *	  Backends that want several locks in one step, for the simulator.
 *
 * This stands for set_backend.c and sets.c: a set has a part in each table, gets level 1
 * of one after the other, takes the grants that are there if all of them are, or has the
 * worker ask for all of them.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server.h"

static int
part_of(const Server *server, const Set *set)
{
	return NBACKENDS + (int) (set - server->set);
}

static Backend *
backend_of(Server *server, const Set *set, int dir)
{
	return &server->table[dir].backend[part_of(server, set)];
}

/* One of those in this state does it, if any can. */
static bool
some_set(Server *server, SetState state, bool (*does)(Server *server, Set *set))
{
	int first = random_below(NSETS);

	for (int i = 0; i < NSETS; i++)
	{
		Set *set = &server->set[(first + i) % NSETS];

		if (set->state == state && does(server, set))
			return true;
	}
	return false;
}

/* All of them, or what is left of them; which is always something. */
static bool
leave(Server *server, Set *set)
{
	set->state = SET_IDLE;
	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir])
			table_set_leave(&server->table[dir], part_of(server, set));
	}
	return true;
}

static void
queue_at_level1(Server *server, Set *set)
{
	set->state = SET_QUEUES;
	set->next = 0;
	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir])
			table_set_begin(&server->table[dir], part_of(server, set), set->mode,
							set->number, set->no_wait, set->slow);
	}
}

static bool
begin(Server *server, Set *set)
{
	bool any = false;

	memset(set, 0, sizeof(*set));
	set->number = ++server->next_set;
	set->mode = once_in(3) ? ZKLOCK_SHARED : ZKLOCK_EXCLUSIVE;
	set->no_wait = once_in(4);
	for (int dir = 0; dir < ndirs; dir++)
		any |= set->dirs[dir] = !once_in(4);
	if (any)
		queue_at_level1(server, set);
	return any;
}

bool
set_start(Server *server)
{
	return some_set(server, SET_IDLE, begin);
}

/* It has taken the grants of some of the others, and may not have this one. */
static void
give_back(Server *server, Set *set, int end)
{
	for (int dir = 0; dir < end; dir++)
	{
		if (set->dirs[dir])
			table_set_want(&server->table[dir], part_of(server, set));
	}
}

static bool
take_all(Server *server, Set *set, int64_t token)
{
	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir] &&
			!table_set_take(&server->table[dir], part_of(server, set), token))
		{
			give_back(server, set, dir);
			return false;
		}
	}
	set->state = SET_HOLDS;
	return true;
}

/* Level 1 of the next one. */
static bool
admit(Server *server, Set *set)
{
	while (set->next < ndirs && !set->dirs[set->next])
		set->next++;
	if (set->next < ndirs)
	{
		if (!table_set_admit(&server->table[set->next], part_of(server, set)))
		{
			if (!set->no_wait)
				return false;
			(void) leave(server, set);
		}
		set->next++;
		return true;
	}
	if (!set->slow && take_all(server, set, 0))
	{
		COVER(SET_FAST);
		return true;
	}
	if (!set->slow && set->mode == ZKLOCK_SHARED)
	{
		set->slow = true;
		(void) leave(server, set);
		queue_at_level1(server, set);
		return true;
	}
	set->state = SET_WANTS;
	for (int i = 0; i < ndirs; i++)
	{
		if (set->dirs[i])
			table_set_want(&server->table[i], part_of(server, set));
	}
	return true;
}

bool
set_admit(Server *server)
{
	return some_set(server, SET_QUEUES, admit);
}

static ZkSetVerdict
judge(const Server *server, const Set *set)
{
	ZkSetCount count = {0};

	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir])
			zklock_set_count(&count, &server->queue[dir], set->mode, set->number);
	}
	return zklock_set_judge(&count);
}

static bool
work(Server *server, Set *set)
{
	ZkSetVerdict verdict = judge(server, set);

	if (server->all_next >= 0 || !server->connected)
		return false;
	if (verdict == ZKLOCK_SET_SEND)
	{
		if (set->sent)
			COVER(SET_ANEW);
		set->sent = true;
		set->granted = false;
		server_send_set(server, (int) (set - server->set));
		return true;
	}
	if (verdict != ZKLOCK_SET_GRANTED || set->granted)
		return false;
	set->granted = true;
	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir])
			set->token = zklock_lock_queue_grant(&server->queue[dir], set->mode)->token;
	}
	return true;
}

/* The worker looks at the sets. */
bool
set_work(Server *server)
{
	return some_set(server, SET_WANTS, work);
}

/* It wakes up and finds the grants. */
static bool
take(Server *server, Set *set)
{
	if (!set->granted)
		return false;
	if (!take_all(server, set, set->token))
	{
		COVER(SET_TAKE_FAILED);
		set->granted = false;
		return true;
	}
	COVER(SET_GRANTED);
	if (set->mode == ZKLOCK_SHARED)
		COVER(SET_SHARED);
	/* readers come beside it from now on */
	for (int dir = 0; dir < ndirs; dir++)
	{
		if (set->dirs[dir])
			backend_of(server, set, dir)->alone = false;
	}
	return true;
}

bool
set_take(Server *server)
{
	return some_set(server, SET_WANTS, take);
}

bool
set_release(Server *server)
{
	return some_set(server, SET_HOLDS, leave);
}

static bool
withdraw(Server *server, Set *set)
{
	COVER(SET_WITHDRAWN);
	return leave(server, set);
}

bool
set_withdraw(Server *server)
{
	return some_set(server, once_in(2) ? SET_WANTS : SET_QUEUES, withdraw);
}

bool
sets_quiet(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int i = 0; i < NSETS; i++)
		{
			if (servers[s].set[i].state != SET_IDLE)
				return false;
		}
	}
	return true;
}

void
sets_notice(Server *server)
{
	for (int i = 0; i < NSETS; i++)
	{
		Set *set = &server->set[i];

		for (int dir = 0; dir < ndirs && set->state == SET_WANTS; dir++)
		{
			if (!set->dirs[dir] || backend_of(server, set, dir)->state == BACKEND_WANTS)
				continue;
			COVER(SET_BLOCKED);
			(void) leave(server, set);
		}
	}
}

/* ------------------------------------------------------------------------
 * Invariants
 * ------------------------------------------------------------------------
 */

/* What stands in a queue for a set that waits, or NULL. */
static const ZkContender *
place_of(const Server *server, const Set *set, int dir)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS && set->dirs[dir]; i++)
	{
		const ZkContender *c = &server->queue[dir].contender[i];

		if (c->set == set->number && c->mode == set->mode &&
			(c->state == ZKLOCK_QUEUED || c->state == ZKLOCK_WAITING ||
			 c->state == ZKLOCK_GRANTED))
			return c;
	}
	return NULL;
}

/* Whatever of a set is in a queue was made by one transaction. */
static void
check_one_transaction(const Server *server, const Set *set)
{
	int64_t token = 0;

	for (int dir = 0; dir < ndirs; dir++)
	{
		const ZkContender *c = place_of(server, set, dir);

		if (c == NULL || c->token == 0)
			continue;
		if (token != 0 && c->token != token)
			fail("a set has contenders of transactions %" PRId64 " and %" PRId64, token,
				 c->token);
		token = c->token;
	}
}

/* The set of another server that a node stands for, while that waits: what it was made
 * for does not matter, so that whoever uses another's is found out. */
static int
find_owner(int number)
{
	const Node *node = &zk.node[number];

	for (int s = 0; s < nservers; s++)
	{
		const ZkContender *c;

		if (!server_owns(&servers[s], number))
			continue;
		c = server_contender(&servers[s], node->dir, node->child.uuid_lo);
		for (int i = 0; i < NSETS && c != NULL && c->state != ZKLOCK_DELETING; i++)
		{
			if (servers[s].set[i].state == SET_WANTS && servers[s].set[i].dirs[node->dir] &&
				servers[s].set[i].mode == (ZkLockMode) c->mode)
				return s * NSETS + i;
		}
	}
	return -1;
}

/* Bits of the sets that a set waits for. */
static unsigned
find_waits(const Server *server, const Set *set)
{
	unsigned waits = 0;

	for (int dir = 0; dir < ndirs; dir++)
	{
		const ZkContender *c = place_of(server, set, dir);

		for (int i = 0; c != NULL && c->token != 0 && i < zk.nalive; i++)
		{
			const Node *other = &zk.node[zk.alive[i]];
			int owner;

			if (other->dir != dir || other->owner == server->conn.session ||
				other->czxid >= c->token ||
				!zklock_modes_conflict(other->child.mode, (ZkLockMode) c->mode))
				continue;
			owner = find_owner(zk.alive[i]);
			if (owner >= 0)
				waits |= 1U << owner;
		}
	}
	return waits;
}

/* Sets that wait for sets only are no circle. */
static void
check_no_circle(void)
{
	unsigned waits[MAX_SERVERS * NSETS] = {0};
	int n = nservers * NSETS;

	for (int i = 0; i < n; i++)
	{
		const Server *server = &servers[i / NSETS];
		const Set *set = &server->set[i % NSETS];

		if (set->state == SET_WANTS && !server->lost)
			waits[i] = find_waits(server, set);
		if (waits[i] != 0)
			COVER(SET_WAITS_FOR_SET);
	}
	for (int k = 0; k < n; k++)
	{
		for (int i = 0; i < n; i++)
		{
			if (waits[i] & 1U << k)
				waits[i] |= waits[k];
		}
	}
	for (int i = 0; i < n; i++)
	{
		if (waits[i] & 1U << i)
			fail("set %d of server %d waits for itself", i % NSETS, i / NSETS);
	}
}

/* A server that has heard all there is to hear, and has nothing more to do, owes a set
 * that would not wait no answer. */
static void
check_set_answered(const Server *server, const Set *set)
{
	bool refused = false;

	for (int dir = 0; dir < ndirs; dir++)
		refused |= set->dirs[dir] && (server->table[dir].dirty || server->refused[dir]);
	if (set->no_wait && !refused && judge(server, set) == ZKLOCK_SET_WAIT)
	{
		ZkSetCount count = {0};

		for (int dir = 0; dir < ndirs; dir++)
		{
			if (set->dirs[dir])
				zklock_set_count(&count, &server->queue[dir], set->mode, set->number);
		}
		if (count.part[ZKLOCK_PART_QUEUED] > 0)
			fail("a set that would not wait is not told");
	}
}

void
check_sets(void)
{
	for (int s = 0; s < nservers; s++)
	{
		for (int i = 0; i < NSETS; i++)
		{
			Set *set = &servers[s].set[i];

			if (set->state != SET_WANTS)
				continue;
			check_one_transaction(&servers[s], set);
			if (server_knows_all(&servers[s]))
				check_set_answered(&servers[s], set);
		}
	}
	check_no_circle();
}
