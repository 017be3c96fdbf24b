/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquiring a lock at both levels.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_H
#define ZKLOCK_ACQUIRE_H

#include "hold.h"

/*
 * Acquire "name" (UTF-8, checked), of a lock or a job, for this backend.
 *
 * wait_ms: ZKLOCK_WAIT_FOREVER, or how long to wait while somebody else has
 * it, or for room in the lock table, in ms; 0 does not wait for anybody, but for
 * what an answer of the ensemble takes.
 *
 * Returns true and the fencing token, or false when somebody else has the lock
 * and the time is up.  Raises 40P01 (deadlock), 55P03 (lock_timeout), 57014
 * (cancel, statement_timeout), 58000 (no answer from ZooKeeper within
 * zklock.connect_timeout, or refused by it), 53200 (lock table full), 53400
 * (zklock.max_locks_per_backend), 54000 (sequence numbers used up), 40001 and 55000
 * (a hold of the same name was lost, see zklock_loss_raise), and 55000 for a
 * contender with a number that was never given, without a worker, and where
 * zklock_check_callable and zklock_check_connection do.  Nothing stays behind in any
 * of them.
 */
extern bool zklock_acquire(ZkLockKind kind, const char *name, ZkLockMode mode,
						   ZkLockScope scope, int64 wait_ms, int64 *token);

/*
 * Acquire one of so many permits of "name", as zklock_acquire does a lock.  Who has one
 * already has it once more.  Warns if somebody names another number.
 */
extern bool zklock_semaphore_acquire(const char *name, int permits, ZkLockScope scope,
									 int64 wait_ms, int64 *token);

/* --- parts of it ----------------------------------------------------------- */

/*
 * What this backend holds of a name, or NULL.  A loss of it is raised, or told of, and is
 * over then.
 */
extern ZkHeldLock *zklock_find_sound(ZkLockKind kind, const char *name);

/* Before the first proclock of this backend, and the first wait to put: say in shared memory who it is. */
extern void zklock_introduce(void);

/* A hold of this backend covers the call: count it in the mode held. */
extern void zklock_acquire_again(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope);

/* The worker says that the proclock's lock cannot be had, and why. */
pg_noreturn extern void zklock_acquire_raise(const ZkHeldLock *held, int32 proclock);

/* For statistics: what ended the wait? */
extern ZkProcLockEnd zklock_error_end(int sqlstate);

#endif /* ZKLOCK_ACQUIRE_H */
