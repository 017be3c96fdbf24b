/*-------------------------------------------------------------------------
 *
 * stat.c
 *	  Counts the statistics of locks.
 *
 * Each partition of the lock table has its own counters, and a number of rows for
 * names.  An entry remembers its name's row, and the row's serial number tells whether
 * it still is that: so nothing is looked up when a kept lock is taken.  For a new
 * entry, the name's row is looked up by its hash.  That costs little beside the round
 * trip to the ensemble that follows.
 *
 * If a backend takes one more hold on a lock that it already has, the hold is counted
 * without any lock, in the proclock, and added when the proclock ends; a reader adds
 * the holds so far.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "stat.h"

#define NROWS (ZKLOCK_STAT_NAMES / ZKLOCK_NPARTITIONS)

typedef struct StatPartition
{
	/* a partition has cache lines of its own */
	int64 total[ZKLOCK_NSTATS] pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	uint32 last_serial;
	/* by row; apart from the rest, since all of them are looked at */
	uint32 hash[NROWS];
	uint32 serial[NROWS]; /* 0: free */
	int64 used[NROWS];	  /* ns of CLOCK_BOOTTIME */
	uint8 kind[NROWS];
	char name[NROWS][ZKLOCK_NAME_MAX + 1];
	int64 n[NROWS][ZKLOCK_NSTATS];
} StatPartition;

typedef struct StatShared
{
	pg_atomic_uint64 since; /* TimestampTz */
	StatPartition partition[ZKLOCK_NPARTITIONS];
} StatShared;

static StatShared *shared = NULL;

static Size
size(void)
{
	return sizeof(StatShared);
}

static void
init(void)
{
	pg_atomic_init_u64(&shared->since, (uint64) GetCurrentTimestamp());
}

const ZkSharedPart zklock_stat_part = {
	.name = "zklock statistics",
	.size = size,
	.memory = (void **) &shared,
	.init = init,
};

/* Finds the row of the entry's name. */
static int
find_row(StatPartition *p, ZkLockEntry *entry)
{
	int row = -1;
	int oldest = 0;

	if (entry->stat_serial != 0 && p->serial[entry->stat_row] == entry->stat_serial)
		return entry->stat_row;

	for (int i = 0; i < NROWS && row < 0; i++)
	{
		if (p->serial[i] != 0 && p->hash[i] == entry->hash && p->kind[i] == entry->kind &&
			strcmp(p->name[i], entry->name) == 0)
			row = i;
		else if (p->used[i] < p->used[oldest])
			oldest = i;
	}
	if (row < 0)
	{
		row = oldest;
		if (++p->last_serial == 0)
			p->last_serial = 1;
		p->serial[row] = p->last_serial;
		p->hash[row] = entry->hash;
		p->kind[row] = entry->kind;
		p->used[row] = zklock_clock();
		strlcpy(p->name[row], entry->name, sizeof(p->name[row]));
		memset(p->n[row], 0, sizeof(p->n[row]));
	}
	entry->stat_row = row;
	entry->stat_serial = p->serial[row];
	return row;
}

void
zklock_stat_add(ZkLockEntry *entry, ZkStatCounter counter, int64 n)
{
	StatPartition *p = &shared->partition[entry->partition];

	Assert(zklock_entry_is_locked(entry) && n >= 0);
	if (!zklock_kinds[entry->kind].shown)
		return;
	p->total[counter] += n;
	p->n[find_row(p, entry)][counter] += n;
}

/* The proclock's wait is over. */
static void
add_wait(ZkLockEntry *entry, const ZkProcLock *proclock)
{
	StatPartition *p = &shared->partition[entry->partition];
	int64 us = proclock->wait_start == 0
		? 0 /* somebody was there, but not in the way */
		: Max(GetCurrentTimestamp() - proclock->wait_start, 0);
	int64 *n;

	zklock_stat_add(entry, ZKLOCK_STAT_WAITS, 1);
	zklock_stat_add(entry, ZKLOCK_STAT_WAIT_US, us);
	n = p->n[find_row(p, entry)];
	n[ZKLOCK_STAT_LONGEST_WAIT_US] = Max(n[ZKLOCK_STAT_LONGEST_WAIT_US], us);
	p->total[ZKLOCK_STAT_LONGEST_WAIT_US] = Max(p->total[ZKLOCK_STAT_LONGEST_WAIT_US], us);
}

/* A hold of this many us is over.  If the row is not the name's any more, no other is
 * looked for: that would push out another name. */
static void
add_hold(const ZkLockEntry *entry, int64 us)
{
	StatPartition *p = &shared->partition[entry->partition];
	int row = entry->stat_row;
	int64 *counters[] = {p->total, p->n[row]};
	bool has_row = entry->stat_serial != 0 && p->serial[row] == entry->stat_serial;

	for (int i = 0; i <= (has_row ? 1 : 0); i++)
	{
		int64 *n = counters[i];

		n[ZKLOCK_STAT_HOLD_US] += us;
		n[ZKLOCK_STAT_LONGEST_HOLD_US] = Max(n[ZKLOCK_STAT_LONGEST_HOLD_US], us);
	}
}

/* Count one use of the entry's name, in its row and in its partition. */
static void
touch(ZkLockEntry *entry, ZkStatCounter counter, int64 now)
{
	StatPartition *p = &shared->partition[entry->partition];
	int row = find_row(p, entry);

	p->used[row] = now;
	p->n[row][counter]++;
	p->total[counter]++;
}

void
zklock_stat_acquired(ZkLockEntry *entry, const ZkProcLock *proclock, bool cold)
{
	if (!zklock_kinds[entry->kind].shown)
		return;
	touch(entry, cold ? ZKLOCK_STAT_COLD : ZKLOCK_STAT_KEPT, proclock->held_since);
	if (proclock->waited || proclock->blocked)
		add_wait(entry, proclock);
}

void
zklock_stat_ended(ZkLockEntry *entry, ZkProcLock *proclock, int64 now)
{
	if (!zklock_kinds[entry->kind].shown)
	{
		/* a wait for a job can close a ring of locks, and is counted with these */
		if (proclock->state != ZKLOCK_PROCLOCK_HELD &&
			proclock->end == ZKLOCK_PROCLOCK_END_DEADLOCK)
			shared->partition[entry->partition].total[ZKLOCK_STAT_DEADLOCKS]++;
		return;
	}
	if (proclock->state == ZKLOCK_PROCLOCK_HELD)
	{
		if (proclock->again != proclock->again_counted)
			zklock_stat_add(entry, ZKLOCK_STAT_LOCAL,
							(uint32) (proclock->again - proclock->again_counted));
		/* by the clock alone; what the worker marks lost it counts itself */
		if (!proclock->lost && zklock_lost_by(now))
			zklock_stat_add(entry, ZKLOCK_STAT_LOSSES, 1);
		add_hold(entry, Max(now - proclock->held_since, 0) / 1000);
		return;
	}
	touch(entry,
		  proclock->end == ZKLOCK_PROCLOCK_END_TIMEOUT		  ? ZKLOCK_STAT_TIMEOUTS
			  : proclock->end == ZKLOCK_PROCLOCK_END_DEADLOCK ? ZKLOCK_STAT_DEADLOCKS
			  : proclock->end == ZKLOCK_PROCLOCK_END_FAILED	  ? ZKLOCK_STAT_FAILURES
															  : ZKLOCK_STAT_CANCELS,
		  now);
	if ((proclock->waited || proclock->blocked) && !proclock->no_wait)
		add_wait(entry, proclock);
}

/* ------------------------------------------------------------------------
 * For readers
 * ------------------------------------------------------------------------
 */

/* Holds on locks that backends already had, as far as they are not counted yet. */
static int64
uncounted(const ZkLockEntry *entry)
{
	int64 n = 0;

	zklock_foreach_proclock (proclock, entry)
		n += (uint32) (proclock->again - proclock->again_counted);
	return n;
}

void
zklock_stat_server(int64 *n, TimestampTz *since)
{
	memset(n, 0, sizeof(int64) * ZKLOCK_NSTATS);
	*since = (TimestampTz) pg_atomic_read_u64(&shared->since);
	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
	{
		const StatPartition *p = &shared->partition[i];
		LWLock *lock = zklock_partition_lock(i, LW_SHARED);

		for (int counter = 0; counter < ZKLOCK_NSTATS; counter++)
		{
			if (zklock_stat_is_maximum(counter))
				n[counter] = Max(n[counter], p->total[counter]);
			else
				n[counter] += p->total[counter];
		}
		for (ZkLockEntry *e = zklock_partition_next(i, NULL); e != NULL;
			 e = zklock_partition_next(i, e))
		{
			if (zklock_kinds[e->kind].shown)
				n[ZKLOCK_STAT_LOCAL] += uncounted(e);
		}
		zklock_entry_unlock(lock);
	}
}

int64
zklock_stat_kept_unlocked(void)
{
	int64 n = 0;

	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
		n += shared->partition[i].total[ZKLOCK_STAT_KEPT];
	return n;
}

int
zklock_stat_names(ZkStatRow *rows)
{
	int nrows = 0;
	TimestampTz time = GetCurrentTimestamp();
	int64 now = zklock_clock();

	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
	{
		const StatPartition *p = &shared->partition[i];
		LWLock *lock = zklock_partition_lock(i, LW_SHARED);
		int row_of[NROWS];

		for (int k = 0; k < NROWS; k++)
		{
			ZkStatRow *row = &rows[nrows];

			if (p->serial[k] == 0)
				continue;
			row_of[k] = nrows++;
			row->kind = (ZkLockKind) p->kind[k];
			strlcpy(row->name, p->name[k], sizeof(row->name));
			row->used = time - (now - p->used[k]) / 1000;
			memcpy(row->n, p->n[k], sizeof(row->n));
		}
		for (ZkLockEntry *e = zklock_partition_next(i, NULL); e != NULL;
			 e = zklock_partition_next(i, e))
		{
			if (zklock_kinds[e->kind].shown && e->stat_serial != 0 &&
				p->serial[e->stat_row] == e->stat_serial)
				rows[row_of[e->stat_row]].n[ZKLOCK_STAT_LOCAL] += uncounted(e);
		}
		zklock_entry_unlock(lock);
	}
	return nrows;
}

void
zklock_stat_reset(void)
{
	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
	{
		StatPartition *p = &shared->partition[i];
		LWLock *lock = zklock_partition_lock(i, LW_EXCLUSIVE);

		memset(p->total, 0, sizeof(p->total));
		/* last_serial goes on: no entry shall take a row for its own */
		memset(p->serial, 0, sizeof(p->serial));
		memset(p->used, 0, sizeof(p->used));
		for (ZkLockEntry *e = zklock_partition_next(i, NULL); e != NULL;
			 e = zklock_partition_next(i, e))
		{
			zklock_foreach_proclock (proclock, e)
				proclock->again_counted = proclock->again;
		}
		zklock_entry_unlock(lock);
	}
	pg_atomic_write_u64(&shared->since, (uint64) GetCurrentTimestamp());
}
