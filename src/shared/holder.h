/*-------------------------------------------------------------------------
 *
 * holder.h
 *	  Finds the backends that have this server's contenders, or wait with them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDER_H
#define ZKLOCK_HOLDER_H

#include "report.h"
#include "table.h"

/* --- with the entry locked ------------------------------------------------------ */

/*
 * Does somebody wait for the end of a grant, as far as we know?  Another server demands
 * it; or, if it is a permit, a session of this server waits with a contender of its
 * own, and the grant's queue does not know of that.
 */
extern bool zklock_holder_blocks(const ZkLockEntry *entry, const ZkContender *grant);

/* Has the entry a contender, as far as we know, about which others should know whose
 * it is?  Not in an election: there it is the server's. */
extern bool zklock_holder_concerns(const ZkLockEntry *entry);

/* Should others know that about this contender? */
extern bool zklock_holder_concerned(const ZkLockEntry *entry, const ZkContender *contender);

/*
 * Finds the session that has the contender.  Of several readers it is the one that has
 * held for longest, of several waiters the one that has waited for longest.
 */
extern void zklock_holder_find(const ZkLockEntry *entry, const ZkContender *contender,
							   ZkReportItem *item);

/* --- without -------------------------------------------------------------------- */

/* The same for a contender in the queue of a name, by its uuid.  False: it is not
 * known here. */
extern bool zklock_holder_lookup(ZkLockKind kind, const char *name, uint64 uuid,
								 ZkReportItem *item);

/* Finds out what the first sessions of these items do, and wait for; and adds the
 * sessions of this server that block them, as far as there is room. */
extern void zklock_holder_complete(ZkReportItem *items, int n);

/* The same for a session of this server, whatever it has. */
extern void zklock_holder_session(int pid, ZkReportItem *item);

/* us: zk_waits and other servers see no shorter waits */
#define ZKLOCK_LONG_WAIT INT64CONST(1000000)

/* A backend that waits for a zklock lock, at either level. */
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

/* Makes an item of it, without a contender. */
extern void zklock_holder_report_wait(int proc_number, const ZkLocalWait *wait,
									  ZkReportItem *item);

/*
 * The same for a backend that waits without a proclock: in its COMMIT for room to put
 * into queues, of which it names the first; or until another job is done.
 */
extern bool zklock_holder_other_waiter(int proc_number, ZkLocalWait *wait);

/* This backend waits so; NULL: its wait is over. */
extern void zklock_holder_set_wait(ZkLockKind kind, const char *name);

#endif /* ZKLOCK_HOLDER_H */
