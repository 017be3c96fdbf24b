/*-------------------------------------------------------------------------
 *
 * barrier_backend.h
 *	  Waits at a barrier.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_BACKEND_H
#define ZKLOCK_BARRIER_BACKEND_H

#include "barrier_rules.h"
#include "table.h"

/*
 * Wait until "parties" sessions have come to the barrier, this one included.  "timeout"
 * is in ms, or ZKLOCK_WAIT_FOREVER.  Raises 55P03 when the timeout or lock_timeout is
 * over; nobody counts on this session any more then.  Raises 22023 when other sessions
 * wait for another number, and 53400 when too many sessions of this server wait.
 * Raises 58000, 57P01 and 55000 as zklock_check_connection does, and when it cannot be
 * found out whether the round was opened.
 */
extern void zklock_barrier_wait(const char *name, int32 parties, int64 timeout);

#endif /* ZKLOCK_BARRIER_BACKEND_H */
