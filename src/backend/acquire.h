/*-------------------------------------------------------------------------
 *
 * acquire.h
 *	  Acquires a lock at both levels.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_H
#define ZKLOCK_ACQUIRE_H

#include "hold.h"

/*
 * Acquire "name" (UTF-8, checked), of a lock or a job, for this backend.
 *
 * wait_ms: how long to wait while another session has the lock, or for room in the lock
 * table, in ms, or ZKLOCK_WAIT_FOREVER.  With 0 it waits for nobody, but still for the
 * answer of the ensemble.
 *
 * Returns true and the fencing token, or false if another session has the lock and the
 * time is up.  Raises 40P01 (deadlock), 55P03 (lock_timeout), 57014 (cancel,
 * statement_timeout), 58000 (no answer from ZooKeeper within zklock.connect_timeout, or
 * refused by it), 53200 (lock table full), 53400 (zklock.max_locks_per_backend), 54000
 * (sequence numbers used up), 40001 and 55000 (a hold of the same name was lost, see
 * zklock_loss_raise).  Also raises 55000 for a contender with a number that was never
 * given, without a worker, and where zklock_check_callable and zklock_check_connection
 * do.  After each of these errors nothing stays behind.
 */
extern bool zklock_acquire(ZkLockKind kind, const char *name, ZkLockMode mode,
						   ZkLockScope scope, int64 wait_ms, int64 *token);

/*
 * Acquire one of "permits" permits of "name", as zklock_acquire does a lock.  A session
 * that has one already has it once more.  Warns if another session uses another number.
 */
extern bool zklock_semaphore_acquire(const char *name, int permits, ZkLockScope scope,
									 int64 wait_ms, int64 *token);

/* --- parts of it ----------------------------------------------------------- */

/* This backend's hold of a name, or NULL.  If the hold is lost, the loss is raised or
 * told, and the hold is over. */
extern ZkHeldLock *zklock_find_sound(ZkLockKind kind, const char *name);

/* Say in shared memory who this backend is.  To be called before its first proclock,
 * and before its first wait to put. */
extern void zklock_introduce(void);

/* A hold of this backend covers the call: count the call in the mode that is held. */
extern void zklock_acquire_again(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope);

/* Raise the worker's reason why the proclock's lock cannot be acquired. */
pg_noreturn extern void zklock_acquire_raise(const ZkHeldLock *held, int32 proclock);

/* The kind of end of a wait, for statistics. */
extern ZkProcLockEnd zklock_error_end(int sqlstate);

#endif /* ZKLOCK_ACQUIRE_H */
