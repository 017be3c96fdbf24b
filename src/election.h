/*-------------------------------------------------------------------------
 *
 * election.h
 *	  Elections: which of the servers leads?
 *
 * A server is the candidate, not a backend.  Its candidacy is a standing wish
 * in the lock table, its leadership the grant of an exclusive contender.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_H
#define ZKLOCK_ELECTION_H

#include "table.h"

/* Why a server gives up a leadership. */
typedef enum ZkLeaderEnd
{
	ZKLOCK_END_RESIGNED,
	ZKLOCK_END_DEMOTED,
	ZKLOCK_END_SHUTDOWN
} ZkLeaderEnd;

/* --- backends ------------------------------------------------------------- */

/* An entry that was the election's when it was looked at. */
typedef struct ZkElectionRef
{
	ZkLockEntry *entry; /* NULL: not looked at */
	uint32 generation;
} ZkElectionRef;

/*
 * The token if this server leads, at some instant during the call, else 0.
 * False if that is not known yet, or not from this entry: then
 * zklock_election_lead has to answer.
 *
 * Nothing is locked.  The worker sets "leader" to 0 before it lets go of a
 * contender, and before a new session begins a lease: so what was the leader
 * before and after the look at the lease was so under that lease.  What is read
 * of an entry that has come to be another's is void; its generation, read last,
 * tells.
 */
static inline bool
zklock_election_peek(const ZkElectionRef *ref, int64 *token)
{
	volatile const ZkLockEntry *entry = ref->entry;
	pg_atomic_uint64 *leader = &ref->entry->election.leader;
	uint64 found = pg_atomic_read_u64(leader);
	bool known = found != 0 ||
		(entry->election.candidate &&
		 (entry->election.verdict || zklock_shared->eligible == ZKLOCK_ELIGIBLE_NO));

	*token = 0;
	pg_read_barrier();
	if (found != 0 && zklock_lease_valid())
	{
		pg_read_barrier();
		if (pg_atomic_read_u64(leader) == found)
			*token = (int64) found;
	}
	pg_read_barrier();
	return known && entry->generation == ref->generation;
}

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

/* --- the worker ----------------------------------------------------------- */

/* What is to be said when the entry is unlocked. */
typedef struct ZkElectionNews
{
	int64 gained; /* token of the leadership, or 0 */
	int64 lost;	  /* the same */
	const char *reason;
	bool failed; /* the ensemble refuses */
	ZkLockFailure failure;
} ZkElectionNews;

/* A step of the entry, which is locked, has had these actions. */
extern void zklock_election_step(ZkLockEntry *entry, const ZkLockEvent *event,
								 const ZkLockActions *actions, ZkElectionNews *news);
extern void zklock_election_announce(const char *name, const ZkElectionNews *news);

/* Enter the elections of "zklock.elections"; those that find no room, when there is
 * some (zklock_election_work). */
extern void zklock_election_enter_listed(void);

/* Each time round: who may lead, and is the lease good?  Returns ms until it
 * should be called again. */
extern long zklock_election_work(void);

/* The server stops: no leadership is true any more. */
extern void zklock_election_drain(void);

#endif /* ZKLOCK_ELECTION_H */
