/*-------------------------------------------------------------------------
 *
 * barrier_worker.h
 *	  The worker's part in barriers: turns events into requests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_WORKER_H
#define ZKLOCK_BARRIER_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_barrier_agent;

#endif /* ZKLOCK_BARRIER_WORKER_H */
