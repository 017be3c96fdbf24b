/*-------------------------------------------------------------------------
 *
 * holder.h
 *	  Whose this server's contenders are: which backends have them, or wait with them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDER_H
#define ZKLOCK_HOLDER_H

#include "report.h"
#include "table.h"

/* --- with the entry locked ------------------------------------------------------ */

/*
 * Does somebody wait for the end of a grant, as far as we know?  Somebody else demands
 * it; or, if it is a permit, a session of this server waits with a contender of its own,
 * of which the grant's queue knows nothing.
 */
extern bool zklock_holder_blocks(const ZkLockEntry *entry, const ZkContender *grant);

/* Has the entry a contender of which others should know whose it is, as far as we know?
 * Not in an election: there it is the server's. */
extern bool zklock_holder_concerns(const ZkLockEntry *entry);

/* Is it this contender? */
extern bool zklock_holder_concerned(const ZkLockEntry *entry, const ZkContender *contender);

/*
 * Whose is the contender?  Of several readers it is the one who has it for longest, of
 * several waiters the one who waits for longest.
 */
extern void zklock_holder_find(const ZkLockEntry *entry, const ZkContender *contender,
							   ZkReportItem *item);

/* --- without -------------------------------------------------------------------- */

/* The same of a contender in the queue of a name, by its uuid.  False if it is not known
 * here. */
extern bool zklock_holder_lookup(ZkLockKind kind, const char *name, uint64 uuid,
								 ZkReportItem *item);

/* Find out what the first sessions of these do, and wait for; and add those that are in
 * their way on this server, as far as there is room. */
extern void zklock_holder_complete(ZkReportItem *items, int n);

/* The same of a session of this server, whatever it has. */
extern void zklock_holder_session(int pid, ZkReportItem *item);

/* us: shorter waits are none, for zk_waits and other servers */
#define ZKLOCK_LONG_WAIT INT64CONST(1000000)

/* A backend that waits for a lock of ours, at whichever level. */
typedef struct ZkLocalWait
{
	int pid;
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	TimestampTz since;
} ZkLocalWait;

/* By proc number.  False if it does not wait. */
extern bool zklock_holder_waiter(int proc_number, ZkLocalWait *wait);

/* Make an item of it, without a contender. */
extern void zklock_holder_report_wait(int proc_number, const ZkLocalWait *wait,
									  ZkReportItem *item);

/* ... that waits in its COMMIT for room to put into queues, of which the first is named. */
extern bool zklock_holder_putter(int proc_number, ZkLocalWait *wait);

#endif /* ZKLOCK_HOLDER_H */
