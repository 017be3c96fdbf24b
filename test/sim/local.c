/*-------------------------------------------------------------------------
 *
 * local.c
 *	  One server's lock table and backends, for the simulator.
 *
 *-------------------------------------------------------------------------
 */
#include "local.h"

#include "model.h"

static bool
wants(const Backend *b, ZkLockMode mode)
{
	return (b->state == BACKEND_WANTS && b->mode == mode) ||
		(b->state == BACKEND_UPGRADES && mode == ZKLOCK_EXCLUSIVE);
}

static bool
holds(const Backend *b, ZkLockMode mode)
{
	return (b->state == BACKEND_HOLDS && b->mode == mode) ||
		((b->state == BACKEND_UPGRADE_QUEUES || b->state == BACKEND_UPGRADES) &&
		 mode == ZKLOCK_SHARED) ||
		b->state == BACKEND_HOLDS_BOTH;
}

int
table_want(const Table *table, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NPARTS; i++)
		n += wants(&table->backend[i], mode);
	return n;
}

int
table_held(const Table *table, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NPARTS; i++)
		n += holds(&table->backend[i], mode);
	return n;
}

bool
table_quiet(const Table *table)
{
	for (int i = 0; i < NPARTS; i++)
	{
		if (table->backend[i].state != BACKEND_IDLE)
			return false;
	}
	return true;
}

bool
table_joins(const Table *table)
{
	return table_want(table, ZKLOCK_SHARED) > 0 && table_held(table, ZKLOCK_SHARED) > 0 &&
		!table->usable[ZKLOCK_SHARED];
}

/* Does a reader queue at level 1 to write?  Nobody comes past it there. */
static bool
upgrade_queues(const Table *table)
{
	for (int i = 0; i < NPARTS; i++)
	{
		if (table->backend[i].state == BACKEND_UPGRADE_QUEUES)
			return true;
	}
	return false;
}

/*
 * May holds be taken on the grant?  A reader's also where it is spent, if one of its
 * holders waits at level 1 for this reader: who demands the grant waits for that one.
 */
static bool
usable(const Table *table, ZkLockMode mode)
{
	return table->usable[mode] || (mode == ZKLOCK_SHARED && upgrade_queues(table));
}

/* Level 1: may this backend ask for the mode, beside the others? */
static bool
admitted(const Table *table, int backend, ZkLockMode mode)
{
	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &table->backend[i];

		if (i == backend || b->state == BACKEND_IDLE || b->state == BACKEND_QUEUES)
			continue;
		if (mode == ZKLOCK_EXCLUSIVE || b->alone || b->state == BACKEND_UPGRADE_QUEUES ||
			b->state == BACKEND_UPGRADES || b->state == BACKEND_HOLDS_BOTH ||
			b->mode == ZKLOCK_EXCLUSIVE)
			return false;
	}
	return true;
}

/*
 * Does a backend wait for this mode at level 1, for nothing but that?  A set's, and who
 * stands behind it, may wait for another lock.
 */
static bool
queued(const Table *table, ZkLockMode mode)
{
	bool found = mode == ZKLOCK_EXCLUSIVE && upgrade_queues(table);

	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &table->backend[i];

		if (b->set != 0 && (b->state == BACKEND_QUEUES || b->state == BACKEND_ADMITTED))
			return false;
		found |= b->set == 0 && b->state == BACKEND_QUEUES && b->mode == mode;
	}
	return found;
}

/*
 * When nobody holds a grant any more it is kept, for the next one here, unless
 * somebody else wants it; then it is kept for those who wait already, as long as
 * they may have it and nothing keeps them at level 1.
 */
static void
settle(Table *table)
{
	for (int i = 0; i < ZKLOCK_NMODES; i++)
	{
		ZkLockMode mode = (ZkLockMode) i;
		ZkLockMode other = mode == ZKLOCK_SHARED ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;

		bool waited_for = table_want(table, mode) > 0 ||
			(queued(table, mode) && table_want(table, other) == 0 &&
			 table_held(table, other) == 0);

		if (table->usable[mode] && table_held(table, mode) == 0 && !waited_for &&
			(table->demanded[mode] || !table->keep[mode]))
			table->usable[mode] = false;
	}
	table->dirty = true;
}

/* The backend takes what it wants on the grant. */
static void
take_hold(Table *table, Backend *b, ZkLockMode mode)
{
	b->state = b->mode == mode ? BACKEND_HOLDS : BACKEND_HOLDS_BOTH;
	if (!table->usable[mode])
		COVER(JOINED_SPENT);
	else if (table->demanded[mode])
	{
		if (--table->handoffs[mode] == 0)
			table->usable[mode] = false;
		else
			COVER(HANDED_ON);
	}
}

static void
want(Table *table, Backend *b)
{
	if (usable(table, b->mode))
	{
		if (table_held(table, b->mode) == 0 && !table->demanded[b->mode])
			COVER(KEPT_HIT);
		take_hold(table, b, b->mode);
	}
	else
	{
		b->state = BACKEND_WANTS;
		b->asked_at = zk.zxid;
		b->heard = b->blocked = false;
	}
	settle(table);
}

bool
table_start(Table *table, int backend, ZkLockMode mode, bool no_wait)
{
	Backend *b = &table->backend[backend];

	if (b->state != BACKEND_IDLE)
		return false;
	b->mode = mode;
	b->must_release = false;
	b->no_wait = no_wait;
	if (admitted(table, backend, mode))
		want(table, b);
	else if (no_wait)
		return false;
	else
		b->state = BACKEND_QUEUES;
	return true;
}

/* A reader has level 1 to write. */
static void
want_upgrade(Table *table, Backend *b)
{
	if (table->usable[ZKLOCK_EXCLUSIVE])
		take_hold(table, b, ZKLOCK_EXCLUSIVE);
	else
	{
		b->state = BACKEND_UPGRADES;
		b->no_wait = false;
	}
	settle(table);
}

bool
table_admit(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_QUEUES && admitted(table, backend, b->mode))
		want(table, b);
	else if (b->state == BACKEND_UPGRADE_QUEUES &&
			 admitted(table, backend, ZKLOCK_EXCLUSIVE))
	{
		COVER(UPGRADE_QUEUED);
		want_upgrade(table, b);
	}
	else
		return false;
	return true;
}

bool
table_upgrade(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state != BACKEND_HOLDS || b->mode != ZKLOCK_SHARED || b->must_release)
		return false;
	if (admitted(table, backend, ZKLOCK_EXCLUSIVE))
		want_upgrade(table, b);
	else if (upgrade_queues(table))
	{
		COVER(UPGRADE_CIRCLE);
		b->must_release = true; /* PostgreSQL sees that they wait for each other */
	}
	else
		b->state = BACKEND_UPGRADE_QUEUES;
	return true;
}

/* A waiter wakes up and finds the grant. */
bool
table_take(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_WANTS && usable(table, b->mode))
		take_hold(table, b, b->mode);
	else if (b->state == BACKEND_UPGRADES && table->usable[ZKLOCK_EXCLUSIVE])
	{
		COVER(GRANT_UPGRADE);
		take_hold(table, b, ZKLOCK_EXCLUSIVE);
	}
	else
		return false;
	settle(table);
	return true;
}

bool
table_withdraw(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_WANTS || b->state == BACKEND_QUEUES)
		b->state = BACKEND_IDLE;
	else if (b->state == BACKEND_UPGRADES || b->state == BACKEND_UPGRADE_QUEUES)
		b->state = BACKEND_HOLDS;
	else
		return false;
	settle(table);
	return true;
}

/* "all": end of the transaction; else a savepoint drops the upgrade only. */
bool
table_release(Table *table, int backend, bool all)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_HOLDS)
		b->state = BACKEND_IDLE;
	else if (b->state == BACKEND_HOLDS_BOTH)
	{
		b->state = all ? BACKEND_IDLE : BACKEND_HOLDS;
		b->mode = ZKLOCK_SHARED;
	}
	else
		return false;
	settle(table);
	return true;
}

void
table_set_begin(Table *table, int backend, ZkLockMode mode, uint64_t set, bool no_wait,
				bool alone)
{
	table->backend[backend] = (Backend){
		.state = BACKEND_QUEUES,
		.mode = mode,
		.set = set,
		.no_wait = no_wait,
		.alone = alone || mode == ZKLOCK_EXCLUSIVE,
	};
	settle(table);
}

bool
table_set_admit(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (!admitted(table, backend, b->alone ? ZKLOCK_EXCLUSIVE : b->mode))
		return false;
	b->state = BACKEND_ADMITTED;
	return true;
}

bool
table_set_take(Table *table, int backend, int64_t token)
{
	Backend *b = &table->backend[backend];

	if (!table->usable[b->mode] ||
		(token == 0 ? table->demanded[b->mode] : table->token[b->mode] != token))
		return false;
	take_hold(table, b, b->mode);
	settle(table);
	return true;
}

void
table_set_want(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	b->state = BACKEND_WANTS;
	b->asked_at = zk.zxid;
	b->heard = b->blocked = false;
	settle(table);
}

void
table_set_leave(Table *table, int backend)
{
	table->backend[backend].state = BACKEND_IDLE;
	settle(table);
}

/*
 * A set wants what it is to be made for.  A grant from before is of no use to it, and in
 * the way; nobody else here can take it, as the set has level 1.
 */
static void
spend_for_set(Table *table, const ZkLockQueue *queue, ZkLockEvent *event)
{
	for (int i = 0; i < NPARTS; i++)
	{
		const Backend *b = &table->backend[i];

		if (b->set == 0 || b->state != BACKEND_WANTS)
			continue;
		event->set[b->mode] = b->set;
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			const ZkContender *grant = zklock_lock_queue_grant(queue, (ZkLockMode) mode);

			if (table->usable[mode] && table_held(table, (ZkLockMode) mode) == 0 &&
				(grant == NULL || grant->set != b->set))
			{
				COVER(KEPT_SPENT);
				table->usable[mode] = false;
			}
		}
	}
}

void
table_need(Table *table, const ZkLockQueue *queue, ZkLockEvent *event)
{
	event->type = ZKLOCK_EV_NEED;
	spend_for_set(table, queue, event);
	event->joins = table_joins(table);
	for (int i = 0; i < NPARTS; i++)
	{
		Backend *b = &table->backend[i];

		if (b->state == BACKEND_WANTS && b->no_wait && !b->heard)
			event->asks[b->mode] = true;
		b->heard = true;
	}
	for (int i = 0; i < ZKLOCK_NMODES; i++)
	{
		ZkLockMode mode = (ZkLockMode) i;
		bool held = table_held(table, mode) > 0;
		bool wanted = table_want(table, mode) > 0;

		event->needed[mode] = wanted || held || table->usable[mode];
		event->spent[mode] = !table->usable[mode] && !held;
		event->probe[mode] = wanted;
		for (int k = 0; k < NPARTS; k++)
		{
			if (wants(&table->backend[k], mode) && !table->backend[k].no_wait)
				event->probe[mode] = false;
		}
	}
}

void
table_granted(Table *table, ZkLockMode mode, int64_t token, int node, bool keep,
			  bool demanded)
{
	int wanted = table_want(table, mode);

	if (table->usable[mode] || table_held(table, mode) > 0)
		fail("granted what is granted already");
	table->token[mode] = token;
	table->node[mode] = node;
	table->keep[mode] = keep;
	/* one for writers that may not be kept is handed over as if it were wanted */
	table->demanded[mode] = demanded || (!keep && mode == ZKLOCK_EXCLUSIVE);
	/* all who wait, or as many as if they had come one by one */
	table->handoffs[mode] =
		wanted > table->handoff_limit ? wanted : table->handoff_limit + 1;
	table->usable[mode] = wanted > 0 || (keep && !demanded);
	if (wanted == 0)
		COVER(GRANT_UNWANTED);
	settle(table);
}

void
table_demanded(Table *table, ZkLockMode mode)
{
	int wanted = table_want(table, mode);

	if (!table->demanded[mode])
		table->handoffs[mode] =
			wanted > table->handoff_limit ? wanted : table->handoff_limit;
	table->demanded[mode] = true;
	if (table->handoffs[mode] == 0)
		table->usable[mode] = false;
	if (table_held(table, mode) > 0)
		COVER(DEMANDED_BUSY);
	else if (table->usable[mode])
		COVER(DEMANDED_KEPT);
	settle(table);
}

/* Nobody does any more: whoever wants it here may have it again. */
void
table_undemanded(Table *table, ZkLockMode mode)
{
	table->demanded[mode] = false;
	table->usable[mode] = true;
	settle(table);
}

/* Somebody else has it: those leave who would not wait, if the answer is theirs. */
void
table_blocked(Table *table, ZkLockMode mode)
{
	for (int i = 0; i < NPARTS; i++)
	{
		Backend *b = &table->backend[i];

		if (b->state != BACKEND_WANTS || b->mode != mode || !b->heard)
			continue;
		b->blocked = true;
		if (b->no_wait)
		{
			b->state = BACKEND_IDLE;
			settle(table);
		}
	}
}

/* A grant that nobody uses has been kept for long enough. */
bool
table_evict(Table *table)
{
	bool evicted = false;

	for (int i = 0; i < ZKLOCK_NMODES; i++)
	{
		ZkLockMode mode = (ZkLockMode) i;

		if (table->usable[mode] && table_held(table, mode) == 0 &&
			table_want(table, mode) == 0 && !queued(table, mode))
		{
			table->usable[mode] = false;
			table->dirty = evicted = true;
		}
	}
	return evicted;
}

void
table_revoked(Table *table, ZkLockMode mode)
{
	for (int i = 0; i < NPARTS; i++)
	{
		Backend *b = &table->backend[i];

		if (b->state == BACKEND_HOLDS && b->mode == mode)
			b->state = BACKEND_IDLE;
		else if (b->state == BACKEND_UPGRADE_QUEUES && mode == ZKLOCK_SHARED)
		{
			b->state = BACKEND_QUEUES;
			b->mode = ZKLOCK_EXCLUSIVE;
		}
		else if (b->state == BACKEND_UPGRADES && mode == ZKLOCK_SHARED)
		{
			b->state = BACKEND_WANTS;
			b->mode = ZKLOCK_EXCLUSIVE;
		}
		else if (b->state == BACKEND_HOLDS_BOTH)
		{
			b->state = BACKEND_HOLDS;
			b->mode = mode == ZKLOCK_SHARED ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;
		}
	}
	table->usable[mode] = false;
	table->dirty = true;
}

void
table_failed(Table *table, ZkLockMode mode, ZkLockFailure failure)
{
	for (int i = 0; i < NPARTS; i++)
	{
		Backend *b = &table->backend[i];

		if (b->state == BACKEND_WANTS && b->mode == mode)
			b->state = BACKEND_IDLE;
		else if (b->state == BACKEND_UPGRADES && mode == ZKLOCK_EXCLUSIVE)
		{
			b->state = BACKEND_HOLDS;
			b->mode = ZKLOCK_SHARED;
			b->must_release = failure == ZKLOCK_FAIL_DEADLOCK;
		}
	}
	table->dirty = true;
}
