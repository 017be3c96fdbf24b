/*-------------------------------------------------------------------------
 *
 * barrier_shared.h
 *	  Sessions of this server that wait at barriers, in shared memory.
 *
 * The backend makes a call and sleeps on it.  The worker has it take part in the rounds
 * of its barrier (barrier_rules.h), and says what became of it.  Its place is free again
 * when both have done with it: a backend that is cancelled goes at once, and the worker
 * sees to it that nothing stays in the ensemble.
 *
 * The mailbox's lock protects who uses a place and what is said to the backend.  What the
 * protocol keeps of a party (ZkParty) the worker alone reads and writes from then on,
 * without the lock, but for "leave".
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_SHARED_H
#define ZKLOCK_BARRIER_SHARED_H

#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "barrier_rules.h"
#include "mailbox.h"

typedef struct ZkBarrierCall
{
	bool used;
	bool awaited; /* by its backend */
	int pid;
	char name[ZKLOCK_NAME_MAX + 1];
	ConditionVariable cv; /* broadcast when "end" is set */
	ZkParty party;
	/* for the backend */
	ZkPartyEnd end;
	int32 other; /* NUMBERS */
	int rc;		 /* REFUSED */
} ZkBarrierCall;

/* Statistics of this server: zk_stat_barriers. */
typedef enum ZkPartyStat
{
	ZKLOCK_PARTY_STAT_PASSED, /* calls that were let go */
	ZKLOCK_PARTY_STAT_TIMEOUTS,
	ZKLOCK_PARTY_STAT_CANCELS,	  /* or terminated */
	ZKLOCK_PARTY_STAT_FAILURES,	  /* ended by another error */
	ZKLOCK_PARTY_STAT_OPENED,	  /* rounds that this server has opened */
	ZKLOCK_PARTY_STAT_WAIT_US,	  /* of all calls */
	ZKLOCK_PARTY_STAT_LONGEST_US, /* the only one that is a maximum */
} ZkPartyStat;

#define ZKLOCK_NPARTY_STATS (ZKLOCK_PARTY_STAT_LONGEST_US + 1)

extern const ZkSharedPart zklock_barrier_part;

/* There is room for so many calls; one of them. */
extern int zklock_barrier_max(void);
extern ZkBarrierCall *zklock_barrier_call(int call);

/* How many are there? */
extern int zklock_barrier_used(void);

/* --- for backends ----------------------------------------------------------- */

/* This backend comes to a barrier.  Returns the call; -1: there is no room. */
extern int zklock_barrier_come(const char *name, int32 parties);

/* What became of it?  If it is over, "call" has the rest. */
extern ZkPartyEnd zklock_barrier_look(int call);

/* It is to leave: "end" comes in time. */
extern void zklock_barrier_leave(int call);

/* The backend has done with it, whatever became of it, after so many us. */
extern void zklock_barrier_done(int call, ZkPartyStat outcome, int64 us);

/* --- for the worker ---------------------------------------------------------- */

/* Has any call come, or is one to leave, since this was called last? */
extern bool zklock_barrier_changed(void);

/* Is there such a call, which is not over? */
extern bool zklock_barrier_waits(int call);

/* The protocol has done with it. */
extern void zklock_barrier_over(int call);

/* --- statistics --------------------------------------------------------------- */

extern void zklock_barrier_count_opened(void);
extern void zklock_barrier_stats(int64 *n, TimestampTz *since);
extern void zklock_barrier_stats_reset(void);

#endif /* ZKLOCK_BARRIER_SHARED_H */
