/*-------------------------------------------------------------------------
 *
 * election_worker.h
 *	  Elections: what the worker makes of candidacies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_WORKER_H
#define ZKLOCK_ELECTION_WORKER_H

#include "agent.h"
#include "election_shared.h"

extern const ZkAgent zklock_election_agent;

/* What is to be said when the entry is unlocked. */
typedef struct ZkElectionNews
{
	int64 gained; /* token of the leadership, or 0 */
	int64 lost;	  /* the same */
	const char *reason;
	bool failed; /* the ensemble refuses */
	ZkLockFailure failure;
} ZkElectionNews;

/* The index of the next entry that is an election, or was a moment ago; -1: there is
 * none. Begin with -1. */
extern int zklock_election_next(int i);

/* A step of the entry, which is locked, has had these actions. */
extern void zklock_election_step(ZkLockEntry *entry, const ZkLockEvent *event,
								 const ZkLockActions *actions, ZkElectionNews *news);
extern void zklock_election_announce(const char *name, const ZkElectionNews *news);

#endif /* ZKLOCK_ELECTION_WORKER_H */
