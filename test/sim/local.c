/*-------------------------------------------------------------------------
 *
 * local.c
 *	  One server's lock table and backends, for the simulator.
 *
 *-------------------------------------------------------------------------
 */
#include "local.h"

#include "model.h"

int
table_want(const Table *table, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NBACKENDS; i++)
	{
		const Backend *b = &table->backend[i];

		if ((b->state == BACKEND_WANTS && b->mode == mode) ||
			(b->state == BACKEND_UPGRADES && mode == ZKLOCK_EXCLUSIVE))
			n++;
	}
	return n;
}

int
table_held(const Table *table, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NBACKENDS; i++)
	{
		const Backend *b = &table->backend[i];

		if ((b->state == BACKEND_HOLDS && b->mode == mode) ||
			(b->state == BACKEND_UPGRADES && mode == ZKLOCK_SHARED) ||
			b->state == BACKEND_HOLDS_BOTH)
			n++;
	}
	return n;
}

bool
table_quiet(const Table *table)
{
	for (int i = 0; i < NBACKENDS; i++)
	{
		if (table->backend[i].state != BACKEND_IDLE)
			return false;
	}
	return true;
}

/* Level 1: may this backend ask for the mode, beside the others? */
static bool
admitted(const Table *table, int backend, ZkLockMode mode)
{
	for (int i = 0; i < NBACKENDS; i++)
	{
		const Backend *b = &table->backend[i];

		if (i == backend || b->state == BACKEND_IDLE)
			continue;
		if (mode == ZKLOCK_EXCLUSIVE || b->state == BACKEND_UPGRADES ||
			b->state == BACKEND_HOLDS_BOTH || b->mode == ZKLOCK_EXCLUSIVE)
			return false;
	}
	return true;
}

bool
table_start(Table *table, int backend, ZkLockMode mode)
{
	Backend *b = &table->backend[backend];

	if (b->state != BACKEND_IDLE || !admitted(table, backend, mode))
		return false;
	b->mode = mode;
	b->must_release = false;
	if (table->usable[mode])
		b->state = BACKEND_HOLDS;
	else
	{
		b->state = BACKEND_WANTS;
		table->dirty = true;
	}
	return true;
}

bool
table_upgrade(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state != BACKEND_HOLDS || b->mode != ZKLOCK_SHARED || b->must_release ||
		!admitted(table, backend, ZKLOCK_EXCLUSIVE))
		return false;
	if (table->usable[ZKLOCK_EXCLUSIVE])
		fail("an exclusive grant is usable though nobody holds it");
	b->state = BACKEND_UPGRADES;
	table->dirty = true;
	return true;
}

/* A waiter wakes up and finds the grant. */
bool
table_take(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_WANTS && table->usable[b->mode])
		b->state = BACKEND_HOLDS;
	else if (b->state == BACKEND_UPGRADES && table->usable[ZKLOCK_EXCLUSIVE])
	{
		COVER(GRANT_UPGRADE);
		b->state = BACKEND_HOLDS_BOTH;
	}
	else
		return false;
	return true;
}

/*
 * After the last one out, or a waiter that is cancelled while the grant
 * arrives and leaves nobody behind, the grant has served.
 */
static void
settle(Table *table, ZkLockMode mode, bool released)
{
	if (table_held(table, mode) == 0 && (released || table_want(table, mode) == 0))
		table->usable[mode] = false;
	table->dirty = true;
}

bool
table_withdraw(Table *table, int backend)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_WANTS)
	{
		b->state = BACKEND_IDLE;
		settle(table, b->mode, false);
	}
	else if (b->state == BACKEND_UPGRADES)
	{
		b->state = BACKEND_HOLDS;
		settle(table, ZKLOCK_EXCLUSIVE, false);
	}
	else
		return false;
	return true;
}

/* "all": end of the transaction; else a savepoint drops the upgrade only. */
bool
table_release(Table *table, int backend, bool all)
{
	Backend *b = &table->backend[backend];

	if (b->state == BACKEND_HOLDS)
	{
		b->state = BACKEND_IDLE;
		settle(table, b->mode, true);
	}
	else if (b->state == BACKEND_HOLDS_BOTH)
	{
		b->state = all ? BACKEND_IDLE : BACKEND_HOLDS;
		b->mode = ZKLOCK_SHARED;
		settle(table, ZKLOCK_EXCLUSIVE, true);
		if (all)
			settle(table, ZKLOCK_SHARED, true);
	}
	else
		return false;
	return true;
}

void
table_demand(const Table *table, ZkLockEvent *event)
{
	event->type = ZKLOCK_EV_DEMAND;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		event->needed[mode] = table_want(table, (ZkLockMode) mode) > 0 ||
			table_held(table, (ZkLockMode) mode) > 0;
		event->spent[mode] = !table->usable[mode];
	}
}

void
table_granted(Table *table, ZkLockMode mode, int64_t token, int node)
{
	if (table->usable[mode] || table_held(table, mode) > 0)
		fail("granted what is granted already");
	table->token[mode] = token;
	table->node[mode] = node;
	table->usable[mode] = table_want(table, mode) > 0;
	if (!table->usable[mode])
	{
		COVER(GRANT_UNWANTED);
		table->dirty = true;
	}
}

void
table_revoked(Table *table, ZkLockMode mode)
{
	for (int i = 0; i < NBACKENDS; i++)
	{
		Backend *b = &table->backend[i];

		if (b->state == BACKEND_HOLDS && b->mode == mode)
			b->state = BACKEND_IDLE;
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
	for (int i = 0; i < NBACKENDS; i++)
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
