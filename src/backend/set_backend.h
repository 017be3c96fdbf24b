/*-------------------------------------------------------------------------
 *
 * set_backend.h
 *	  Acquiring several locks in one step.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_BACKEND_H
#define ZKLOCK_SET_BACKEND_H

#include "table.h"

/*
 * Acquire all of "n" locks, or none, for this backend.  Names are UTF-8, checked, in any
 * order; one that comes twice is acquired once.  What this backend has of them already
 * is counted, as zk_lock would, when the rest is there.
 *
 * wait_ms, the result and the errors are zklock_acquire's, for all of the set together;
 * "token" gets the tokens in the order of the names.  Besides, 54000 if there are too
 * many names for one step, and 55000 where one is held in shared mode and all are asked
 * for in exclusive mode.  Nothing stays behind in any of them.
 */
extern bool zklock_set_acquire(char *const *names, int n, ZkLockMode mode,
							   ZkLockScope scope, int64 wait_ms, int64 *token);

#endif /* ZKLOCK_SET_BACKEND_H */
