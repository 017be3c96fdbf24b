/*-------------------------------------------------------------------------
 *
 * election_priorities.h
 *	  Lets a leader look for candidates of higher priority, and give way to them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_PRIORITIES_H
#define ZKLOCK_ELECTION_PRIORITIES_H

#include "agent.h"

extern const ZkAgent zklock_election_priorities_agent;

#endif /* ZKLOCK_ELECTION_PRIORITIES_H */
