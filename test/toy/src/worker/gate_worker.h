/*-------------------------------------------------------------------------
 *
 * gate_worker.h
 *	  Answers whether gates are open.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GATE_WORKER_H
#define ZKLOCK_GATE_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_gate_agent;

#endif /* ZKLOCK_GATE_WORKER_H */
