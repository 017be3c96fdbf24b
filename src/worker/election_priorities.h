/*-------------------------------------------------------------------------
 *
 * election_priorities.h
 *	  Leaders look for candidates of higher priority, and give way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_PRIORITIES_H
#define ZKLOCK_ELECTION_PRIORITIES_H

#include "agent.h"

extern const ZkAgent zklock_election_priorities_agent;

#endif /* ZKLOCK_ELECTION_PRIORITIES_H */
