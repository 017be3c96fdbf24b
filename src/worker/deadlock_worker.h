/*-------------------------------------------------------------------------
 *
 * deadlock_worker.h
 *	  Looks for deadlocks across servers, and ends the wait that a verdict selects.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_WORKER_H
#define ZKLOCK_DEADLOCK_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_deadlock_agent;

/* Another contender has come to want a grant of this server. */
extern void zklock_deadlock_demanded(void);

#endif /* ZKLOCK_DEADLOCK_WORKER_H */
