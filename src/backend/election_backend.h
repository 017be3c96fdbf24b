/*-------------------------------------------------------------------------
 *
 * election_backend.h
 *	  Elections: what backends ask of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_BACKEND_H
#define ZKLOCK_ELECTION_BACKEND_H

#include "election_shared.h"

/*
 * The token if this server leads the election, else 0.  Makes the server a
 * candidate, waits for room in the lock table if need be (zklock_await_room), and while
 * nobody is known to lead.  This wait lasts for "wait_ms", from now on if "anew", else
 * since nobody is: who asks again and again does not wait again and again while the
 * ensemble is out of reach.  Raises 53200 when the lock table is full, and 53400
 * (zklock.max_locks_per_backend).
 */
extern int64 zklock_election_lead(const char *name, int64 wait_ms, bool anew,
								  ZkElectionRef *ref);

/* Of an election in which this server does not lead: a sentence that says why nobody is
 * known to, or NULL if somebody else leads, or this server may not. */
extern const char *zklock_election_doubt(const char *name);

/*
 * Have this transaction depend on the leadership: it cannot commit without.
 * False if this server does not lead.
 */
extern bool zklock_election_guard(const char *name, int64 *token);

/*
 * Be a candidate no more.  The leadership ends for everybody at once, but passes
 * on only when the transactions that depend on it have ended.  False if this
 * server was none.
 */
extern bool zklock_election_resign(const char *name);

#endif /* ZKLOCK_ELECTION_BACKEND_H */
