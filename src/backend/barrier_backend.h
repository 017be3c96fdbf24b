/*-------------------------------------------------------------------------
 *
 * barrier_backend.h
 *	  Waiting at a barrier.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_BACKEND_H
#define ZKLOCK_BARRIER_BACKEND_H

#include "barrier_rules.h"
#include "table.h"

/*
 * Wait until so many have come to the barrier, this session among them.  "timeout" in ms,
 * or ZKLOCK_WAIT_FOREVER.  Raises 55P03 when that or lock_timeout is over, and nobody
 * counts on this session any more; 22023 when others wait for another number; 53400 when
 * too many of this server wait; 58000 and 55000 as zklock_check_connection does, and when
 * it cannot be found out whether the round was opened.
 */
extern void zklock_barrier_wait(const char *name, int32 parties, int64 timeout);

#endif /* ZKLOCK_BARRIER_BACKEND_H */
