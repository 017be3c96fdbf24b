/*-------------------------------------------------------------------------
 *
 * parties.h
 *	  Sessions of this server that wait at barriers, in shared memory.
 *
 * A slot is a call.  Its backend makes it and sleeps on it; the worker has it take
 * part in the rounds of its barrier (barrier.h), and says what became of it.  The
 * slot is free again when both have done with it: a backend that is cancelled goes at
 * once, and the worker sees to it that nothing stays in the ensemble.
 *
 * A lock protects who uses a slot and what is said to the backend.  What the protocol
 * keeps of a party (ZkParty) the worker alone reads and writes from then on, without
 * it, but for "leave".
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PARTIES_H
#define ZKLOCK_PARTIES_H

#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "barrier.h"

typedef struct ZkPartySlot
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
} ZkPartySlot;

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

/* For shmem_request_hook and shmem_startup_hook. */
extern void zklock_parties_shmem_request(void);
extern void zklock_parties_shmem_startup(void);

/* So many slots there are; one of them. */
extern int zklock_parties_max(void);
extern ZkPartySlot *zklock_party_slot(int slot);

/* How many are in use? */
extern int zklock_parties_used(void);

/* --- for backends ----------------------------------------------------------- */

/* This backend comes to a barrier.  Returns the slot; -1: all are in use. */
extern int zklock_party_come(const char *name, int32 parties);

/* What became of it?  If it is over, "slot" has the rest. */
extern ZkPartyEnd zklock_party_look(int slot);

/* It is to leave: "end" comes in time. */
extern void zklock_party_leave(int slot);

/* The backend has done with it, whatever became of it, after so many us. */
extern void zklock_party_done(int slot, ZkPartyStat outcome, int64 us);

/* --- for the worker ---------------------------------------------------------- */

/* Has any slot been taken, or is one to leave, since this was called last? */
extern bool zklock_parties_changed(void);

/* Is the slot in use, and not over? */
extern bool zklock_party_waits(int slot);

/* The protocol has done with it. */
extern void zklock_party_over(int slot);

/* --- statistics --------------------------------------------------------------- */

extern void zklock_party_count_opened(void);
extern void zklock_party_stats(int64 *n, TimestampTz *since);
extern void zklock_party_stats_reset(void);

#endif /* ZKLOCK_PARTIES_H */
