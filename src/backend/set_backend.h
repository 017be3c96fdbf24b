/*-------------------------------------------------------------------------
 *
 * set_backend.h
 *	  Acquires several locks in one step.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_BACKEND_H
#define ZKLOCK_SET_BACKEND_H

#include "table.h"

/*
 * Acquire all of "n" locks, or none, for this backend.  Names are UTF-8, checked, in
 * any order; a name that comes twice is acquired once.  A lock that this backend holds
 * already is counted, as zk_lock would do, when the others are acquired.
 *
 * wait_ms, the result and the errors are those of zklock_acquire, for the whole set;
 * "token" gets the tokens in the order of the names.  Also raises 54000 if there are
 * too many names for one step, and 55000 if this backend holds a lock in shared mode
 * and asks for all in exclusive mode.  After each of these errors nothing stays behind.
 */
extern bool zklock_set_acquire(char *const *names, int n, ZkLockMode mode,
							   ZkLockScope scope, int64 wait_ms, int64 *token);

#endif /* ZKLOCK_SET_BACKEND_H */
