/*-------------------------------------------------------------------------
 *
 * deadlock_worker.h
 *	  Looks for deadlocks across servers, and ends the waits that are to end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_WORKER_H
#define ZKLOCK_DEADLOCK_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_deadlock_agent;

/* Somebody else wants a grant of this server, and did not before. */
extern void zklock_deadlock_demanded(void);

#endif /* ZKLOCK_DEADLOCK_WORKER_H */
