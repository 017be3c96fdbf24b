/*-------------------------------------------------------------------------
 *
 * barrier_unused.h
 *	  Deletes the directories of barriers that nobody uses any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_UNUSED_H
#define ZKLOCK_BARRIER_UNUSED_H

#include "agent.h"

extern const ZkAgent zklock_barrier_unused_agent;

#endif /* ZKLOCK_BARRIER_UNUSED_H */
