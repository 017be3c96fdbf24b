/*-------------------------------------------------------------------------
 *
 * election.h
 *	  Elections: what backends ask of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_H
#define ZKLOCK_ELECTION_H

#include "candidacy.h"

/*
 * The token if this server leads the election, else 0.  Makes the server a
 * candidate, waits for room in the lock table if need be (zklock_await_room), and in
 * the first "wait_ms" of the candidacy until it is known who leads.  Raises 53200
 * when the lock table is full.
 */
extern int64 zklock_election_lead(const char *name, int64 wait_ms, ZkElectionRef *ref);

/* The same without becoming a candidate, and without a wait. */
extern int64 zklock_election_token(const char *name);

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

#endif /* ZKLOCK_ELECTION_H */
