/*-------------------------------------------------------------------------
 *
 * election_worker.h
 *	  Elections: the worker's part.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_WORKER_H
#define ZKLOCK_ELECTION_WORKER_H

#include "agent.h"
#include "election_shared.h"

extern const ZkAgent zklock_election_agent;

/* The news to announce when the entry is unlocked. */
typedef struct ZkElectionNews
{
	int64 gained; /* token of the leadership, or 0 */
	int64 lost;	  /* the same */
	const char *reason;
	bool failed; /* the ensemble refuses */
	ZkLockFailure failure;
} ZkElectionNews;

/* The index of the next entry that is an election, or was one a moment ago; -1: there
 * is none.  Begin with -1. */
extern int zklock_election_next(int i);

/* A step of the entry has had these actions.  The entry is locked. */
extern void zklock_election_step(ZkLockEntry *entry, const ZkLockEvent *event,
								 const ZkLockActions *actions, ZkElectionNews *news);
extern void zklock_election_announce(const char *name, const ZkElectionNews *news);

#endif /* ZKLOCK_ELECTION_WORKER_H */
