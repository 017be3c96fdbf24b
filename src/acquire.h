/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquiring a lock at both levels.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_H
#define ZKLOCK_ACQUIRE_H

#include "table.h"

/* Wait without limit. */
#define ZKLOCK_WAIT_FOREVER (-1)

/*
 * Raise unless this process may call zklock at all: 55000 when the library is
 * not preloaded, in a parallel worker and in a walsender.  The first alone is
 * what reading shared memory needs.
 */
extern void zklock_check_callable(void);
extern void zklock_check_preloaded(void);

/* 53200: no room for another name or request; "waited": and none was made in time. */
pg_noreturn extern void zklock_raise_table_full(bool waited);

/*
 * There was no room for another name, but hope (zklock_table_hope): have the worker
 * make some, and wait a moment, to try again.
 *
 * start: since when, ns of CLOCK_BOOTTIME.  wait_ms: the caller's own limit; 0 and
 * ZKLOCK_WAIT_FOREVER: it has none.  Raises 53200 when that is over, or
 * zklock.connect_timeout, and the errors of zklock_check_connection.  Can be
 * cancelled: the caller must not have anything that an error would leave behind.
 */
extern void zklock_await_room(int64 start, int64 wait_ms);

/*
 * For one that waits for an answer of the ensemble since "start" (ns of
 * CLOCK_BOOTTIME): true while the worker is connected.  Raises 55000 or 58000
 * when it has not been for zklock.connect_timeout.
 */
extern bool zklock_check_connection(int64 start);

/*
 * Acquire "name" (UTF-8, checked) for this backend.
 *
 * wait_ms: ZKLOCK_WAIT_FOREVER, or how long to wait while somebody else has
 * it, or for room in the lock table, in ms; 0 does not wait for anybody, but for
 * what an answer of the ensemble takes.
 *
 * Returns true and the fencing token, or false when somebody else has the lock
 * and the time is up.  Raises 40P01 (deadlock), 55P03 (lock_timeout), 57014
 * (cancel, statement_timeout), 58000 (no answer from ZooKeeper within
 * zklock.connect_timeout, or refused by it), 53200 (lock table full), 54000
 * (sequence numbers used up), 40001 and 55000 (a hold of the same name was
 * lost, see zklock_held_raise_lost).  Nothing stays behind in any of them.
 */
extern bool zklock_acquire(const char *name, ZkLockMode mode, ZkLockScope scope,
						   int64 wait_ms, int64 *token);

#endif /* ZKLOCK_ACQUIRE_H */
