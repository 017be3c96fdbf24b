/*-------------------------------------------------------------------------
 *
 * barrier_shared.h
 *	  Keeps this server's sessions that wait at barriers in shared memory.
 *
 * The backend makes a call and sleeps on it.  The worker lets the call take part in the
 * rounds of its barrier (barrier_rules.h), and tells the backend the outcome.  Its
 * place is free again when both have done with it: a backend that is cancelled goes at
 * once, and the worker makes sure that nothing stays in the ensemble.
 *
 * The mailbox's lock protects who uses a place and the messages to the backend.  From
 * then on only the worker reads and writes the protocol's data about a party (ZkParty),
 * without the lock; "leave" is the exception.
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

/* Returns how many calls there is room for; returns one of them. */
extern int zklock_barrier_max(void);
extern ZkBarrierCall *zklock_barrier_call(int call);

/* Returns how many there are. */
extern int zklock_barrier_used(void);

/* --- for backends ----------------------------------------------------------- */

/* This backend comes to a barrier.  Returns the call; -1: there is no room. */
extern int zklock_barrier_come(const char *name, int32 parties);

/* Returns the outcome so far.  If the call is over, "call" has the rest. */
extern ZkPartyEnd zklock_barrier_look(int call);

/* The party has to leave: "end" comes in time. */
extern void zklock_barrier_leave(int call);

/* The backend has done with the call, with any outcome, after this many us. */
extern void zklock_barrier_done(int call, ZkPartyStat outcome, int64 us);

/* --- for the worker ---------------------------------------------------------- */

/* Has any call come, or does one have to leave, since the last call of this function? */
extern bool zklock_barrier_changed(void);

/* Is there such a call, and is it not over? */
extern bool zklock_barrier_waits(int call);

/* The protocol has done with it. */
extern void zklock_barrier_over(int call);

/* --- statistics --------------------------------------------------------------- */

extern void zklock_barrier_count_opened(void);
extern void zklock_barrier_stats(int64 *n, TimestampTz *since);
extern void zklock_barrier_stats_reset(void);

#endif /* ZKLOCK_BARRIER_SHARED_H */
