/*-------------------------------------------------------------------------
 *
 * stat.h
 *	  Counts the statistics of locks: of the server, and of the names used most recently.
 *
 * Counters are plain numbers under the partition lock, which a process that counts
 * holds anyway.  The exception is one more hold on a lock that a backend has (stat.c).
 * The counters live in shared memory until it is new.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STAT_H
#define ZKLOCK_STAT_H

#include "table.h"

typedef enum ZkStatCounter
{
	ZKLOCK_STAT_LOCAL, /* acquired by one that had it already */
	ZKLOCK_STAT_KEPT,  /* ... on a grant of this server */
	ZKLOCK_STAT_COLD,  /* ... by asking the ensemble */
	ZKLOCK_STAT_WAITS, /* had to wait for somebody, with whatever success */
	ZKLOCK_STAT_WAIT_US,
	ZKLOCK_STAT_LONGEST_WAIT_US, /* a maximum */
	ZKLOCK_STAT_HOLD_US,		 /* of proclocks that have ended */
	ZKLOCK_STAT_LONGEST_HOLD_US, /* a maximum */
	ZKLOCK_STAT_TIMEOUTS,		 /* gave up: time was up */
	ZKLOCK_STAT_CANCELS,		 /* ... canceled or terminated */
	ZKLOCK_STAT_DEADLOCKS,		 /* ... a deadlock, at either level */
	ZKLOCK_STAT_FAILURES,		 /* ... any other error */
	ZKLOCK_STAT_LOSSES,			 /* holds whose grant was lost */
	ZKLOCK_STAT_DEMANDS,		 /* somebody else wanted a grant of this server */
	ZKLOCK_STAT_HANDOVERS		 /* this server got a grant that somebody else had had */
} ZkStatCounter;

#define ZKLOCK_NSTATS (ZKLOCK_STAT_HANDOVERS + 1)

/* Is it a maximum?  The others are sums. */
static inline bool
zklock_stat_is_maximum(int counter)
{
	return counter == ZKLOCK_STAT_LONGEST_WAIT_US || counter == ZKLOCK_STAT_LONGEST_HOLD_US;
}

/* The most names that are remembered.  The name unused for longest makes room, among
 * those of its partition. */
#define ZKLOCK_STAT_NAMES 1024

typedef struct ZkStatRow
{
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1]; /* "": none */
	TimestampTz used;
	int64 n[ZKLOCK_NSTATS];
} ZkStatRow;

extern const ZkSharedPart zklock_stat_part;

/* --- with the entry locked exclusively; nothing is counted of elections, and of jobs
 * --- but the deadlocks, for the server --------------------------------------- */

extern void zklock_stat_add(ZkLockEntry *entry, ZkStatCounter counter, int64 n);

/* A proclock takes its first hold.  "cold": the ensemble was asked. */
extern void zklock_stat_acquired(ZkLockEntry *entry, const ZkProcLock *proclock, bool cold);

/* A proclock ends, with any outcome.  "now": ns of CLOCK_BOOTTIME. */
extern void zklock_stat_ended(ZkLockEntry *entry, ZkProcLock *proclock, int64 now);

/* --- without a lock -------------------------------------------------------- */

/* All counters of the server, and since when it has counted. */
extern void zklock_stat_server(int64 *n, TimestampTz *since);

/* ZKLOCK_STAT_KEPT of the server, read without the partitions' locks.  If the number
 * has changed, there were such takes, or a reset. */
extern int64 zklock_stat_kept_unlocked(void);

/* "rows" has room for ZKLOCK_STAT_NAMES. */
extern int zklock_stat_names(ZkStatRow *rows);

extern void zklock_stat_reset(void);

#endif /* ZKLOCK_STAT_H */
