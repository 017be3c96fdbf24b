/*-------------------------------------------------------------------------
 *
 * election_backend.h
 *	  Elections: the backend's part.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_BACKEND_H
#define ZKLOCK_ELECTION_BACKEND_H

#include "election_shared.h"

/*
 * The token if this server leads the election, else 0.  Makes the server a candidate.
 * Waits for room in the lock table if necessary (zklock_room_wait), and while nobody
 * is known to lead.  The latter wait lasts for "wait_ms", counted from now if "anew",
 * else from the time since which nobody is known to lead.  So a backend that asks again
 * and again does not wait each time while the ensemble is out of reach.  Raises 53200
 * when the lock table is full, and 53400 (zklock.max_locks_per_backend).
 */
extern int64 zklock_election_lead(const char *name, int64 wait_ms, bool anew,
								  ZkElectionRef *ref);

/* For an election that this server does not lead: a sentence that says why nobody is
 * known to lead.  NULL if another server leads, or if this server may not. */
extern const char *zklock_election_doubt(const char *name);

/* Make this transaction depend on the leadership: it cannot commit without it.  False
 * if this server does not lead. */
extern bool zklock_election_guard(const char *name, int64 *token);

/*
 * End this server's candidacy.  The leadership ends for all backends at once, but
 * passes on only when the transactions that depend on it have ended.  False if this
 * server was no candidate.
 */
extern bool zklock_election_resign(const char *name);

#endif /* ZKLOCK_ELECTION_BACKEND_H */
