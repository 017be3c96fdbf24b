/*-------------------------------------------------------------------------
 *
 * election_shared.h
 *	  Keeps this server's candidacy in an election, in the lock table.
 *
 * The candidate is a server, not a backend.  Its candidacy is a standing wish in the
 * lock table, its leadership the grant of an exclusive contender.
 *
 * An election is an entry of the lock table like a lock, and has a queue of contenders
 * in ZooKeeper, with the same protocol.  The differences:
 *
 *	  The wish is the server's (candidate), not a backend's.  It stays until somebody
 *	  resigns, counts as need while the server is eligible, and pins the entry.  So a
 *	  contender that is lost queues again.
 *
 *	  The grant serves everybody, with no level 1, until it is given up.  While it is
 *	  good, "leader" has its token.  Everybody can read that without a lock, under the
 *	  lease.
 *
 *	  Somebody may cease to want the leadership without a word: a schedule that was
 *	  dropped, a database whose extension has gone.  So the entry notes that
 *	  somebody asks for it, and in which databases.  The worker looks at that about once
 *	  a second (zklock.election_idle_time).
 *
 *	  A transaction may hold on to the grant (zk_require_leader), by a proclock like that
 *	  of a lock.  A leadership that is given up is false at once, but its contender is
 *	  deleted only when no such transaction is left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_SHARED_H
#define ZKLOCK_ELECTION_SHARED_H

#include "table.h"

/* Why a server gives up a leadership. */
typedef enum ZkLeaderEnd
{
	ZKLOCK_LEADER_END_RESIGNED,
	ZKLOCK_LEADER_END_DEMOTED,
	ZKLOCK_LEADER_END_DRAINED,
	ZKLOCK_LEADER_END_IDLE,
	ZKLOCK_LEADER_END_ABANDONED,
	ZKLOCK_LEADER_END_SHUTDOWN,
	ZKLOCK_LEADER_END_PRIORITY
} ZkLeaderEnd;

/* Does this server want to lead, and may it?  With the entry locked. */
static inline bool
zklock_election_stands(const ZkLockEntry *entry)
{
	return entry->election.candidate && zklock_shared->eligible == ZKLOCK_ELIGIBLE_YES;
}

/* An entry that was the election's when the backend looked at it. */
typedef struct ZkElectionRef
{
	ZkLockEntry *entry; /* NULL: not looked at */
	uint32 generation;
} ZkElectionRef;

/*
 * Returns the token if this server leads, at some instant during the call, else 0.
 * False: this server does not lead, and nobody else is known to lead, or this entry
 * does not tell.  Then zklock_election_lead has to answer.
 *
 * Nothing is locked.  The worker sets "leader" to 0 before it lets go of a contender,
 * and before a new session begins a lease.  So if "leader" is the same before and after
 * the look at the lease, it was the leader under that lease.  The worker sets "verdict"
 * after "leader", and clears it before.  So if "leader" is 0 before and after the look at
 * "verdict", somebody else leads.  If the entry has become another's meanwhile, the
 * values that were read are void; its generation, read last, tells.
 */
static inline bool
zklock_election_peek(const ZkElectionRef *ref, int64 *token)
{
	volatile const ZkLockEntry *entry = ref->entry;
	pg_atomic_uint64 *leader = &ref->entry->election.leader;
	uint64 found = pg_atomic_read_u64(leader);
	bool others = found == 0 && entry->election.candidate &&
		(entry->election.verdict || zklock_shared->eligible == ZKLOCK_ELIGIBLE_NO);

	*token = 0;
	pg_read_barrier();
	if (found != 0 && zklock_lease_valid())
	{
		pg_read_barrier();
		if (pg_atomic_read_u64(leader) == found)
			*token = (int64) found;
	}
	else if (others)
		others = pg_atomic_read_u64(leader) == 0;
	pg_read_barrier();
	return (others || *token != 0) && entry->generation == ref->generation;
}

extern void zklock_election_note_asked(ZkLockEntry *entry);

/* Somebody asks.  For a row of a query this is no more than a look. */
static inline void
zklock_election_asked(const ZkElectionRef *ref)
{
	if (!ref->entry->election.asked)
		zklock_election_note_asked(ref->entry);
}

/* Makes this server a candidate, if it is eligible.  Locked. */
extern void zklock_election_candidacy_begin(ZkLockEntry *entry);

/*
 * For the entry of an election in which this server is a candidate.  Ends its
 * leadership here and now.  The candidacy may go on.  Locked.
 */
extern void zklock_election_candidacy_give_up(ZkLockEntry *entry, ZkLeaderEnd end);

/* Ends the candidacy, too, in the same way.  Locked. */
extern void zklock_election_candidacy_end(ZkLockEntry *entry, ZkLeaderEnd end);

/* Makes this server a candidate, unless it is one, because somebody in this database
 * wants that, in a session of this role; InvalidOid: the server itself.  False: no
 * room. */
extern bool zklock_election_candidacy_enter(const char *name, Oid database, Oid role,
											ZkElectionRef *ref);

/* Is this server a candidate?  In how many elections for that role?  A candidacy that
 * begins or ends at this moment may be counted or not. */
extern bool zklock_election_candidacy_stands(const char *name);
extern int zklock_election_candidacy_count(Oid role);

/* Nobody in this database will ask any more.  The worker resigns in elections that no
 * other database asks for. */
extern void zklock_election_candidacy_leave_database(Oid database);

#endif /* ZKLOCK_ELECTION_SHARED_H */
