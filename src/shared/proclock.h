/*-------------------------------------------------------------------------
 *
 * proclock.h
 *	  Manages proclocks: a backend's wishes and holds on an entry of the lock table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCLOCK_H
#define ZKLOCK_PROCLOCK_H

#include "table.h"

/*
 * Makes a proclock for "name" in "mode" by this backend, in state LOCAL, and the entry
 * if there is none; "permits": how many a semaphore has, else 0.  Returns its index,
 * ZKLOCK_NO_ENTRY if there is no room for another name, or ZKLOCK_NO_PROCLOCK.  Does
 * not throw.
 */
#define ZKLOCK_NO_ENTRY	   (-1)
#define ZKLOCK_NO_PROCLOCK (-2)

extern int32 zklock_proclock_make(ZkLockKind kind, const char *name, int permits,
								  ZkLockMode mode, ZkLockScope scope, bool no_wait);

/*
 * The same for a caller that has level 1 of a lock already, and knows its name's hash.
 * Takes a hold on the lock's grant if there is one (zklock_proclock_take). *token: the
 * grant's token then, else 0.
 */
extern int32 zklock_proclock_make_held(const char *name, uint32 hash, ZkLockMode mode,
									   ZkLockScope scope, bool no_wait, int64 *token);

/* The same for a lock of a set.  "set": its number, see set_shared.h. */
extern int32 zklock_proclock_make_part(const char *name, ZkLockMode mode,
									   ZkLockScope scope, bool no_wait, uint64 set);

/*
 * For a set: states the wish; or takes a hold on the grant if it has this token, or
 * with 0 if nobody else wants the grant.  Returns whether the proclock is HELD.  The
 * caller takes all of them back if it cannot get another lock of the set; otherwise it
 * counts them.
 */
extern void zklock_proclock_wish(int32 proclock);
extern bool zklock_proclock_join(int32 proclock, int64 token);
extern void zklock_proclock_leave(int32 proclock, bool wish);
extern void zklock_proclock_count(int32 proclock, bool cold);

/*
 * Takes a hold on the entry's grant, if there is one and the lease is good; else, if
 * "wish" is set, states the wish.  Returns whether the proclock is HELD.  With the
 * entry locked.
 */
extern bool zklock_proclock_take(int32 proclock, bool wish);

/*
 * Is there a grant to take a hold on?  The grant is usable; or it is spent, and a
 * holder waits at level 1, to write, for the proclock's backend, which has level 1 to
 * read.  The demander of the grant waits for that holder.  If the reader waited for the
 * demander, all three would wait for ever.
 */
extern bool zklock_proclock_finds_grant(int32 proclock);

/*
 * Is a backend of this server in the way all the same?  Level 1 excludes that, unless
 * its holder has lost level 1 and not noticed yet (zklock_hold_end_void).  Any holder,
 * in any mode, is in a set's way.
 */
extern bool zklock_proclock_conflicts(int32 proclock);

/*
 * Takes the proclock out, in any state, and tells the worker of the change.  Does not
 * throw, wait for the network or allocate.
 */
extern void zklock_proclock_end(int32 proclock);

/*
 * For a job that is HELD.  Call it before others may learn that its run is about to
 * commit: they could not tell how that ends.  If the proclock then has to end while the
 * run is not settled, it is left to the server, unless it is lost.  The server has the
 * job until its settler has recorded the end (job_settler.c).
 */
extern void zklock_proclock_set_run(int32 proclock, ZkJobId run);

/* The end of that run is recorded: ends the proclock that was left.  The recorder
 * calls it. */
extern void zklock_proclock_settled(int32 proclock, ZkJobId run);

/* Returns the next proclock, from this one on, that was left to the server.  False:
 * no more. */
typedef struct ZkLeftRun
{
	int32 proclock;
	ZkJobId run;
	Oid database;
	char name[ZKLOCK_NAME_MAX + 1];
} ZkLeftRun;

extern bool zklock_proclock_next_left(int32 from, ZkLeftRun *left);

/*
 * Gives up the exclusive grant of a proclock that is HELD with its last hold, no matter
 * who waits, and a grant for readers that is kept beside it.  The client is gone and
 * may still use the token elsewhere, so the next holder must have a larger one.
 */
extern void zklock_proclock_abandon(int32 proclock);

/*
 * The backend has told its client that its hold is lost.  So it is, whatever becomes of
 * the lease.  The grant goes as soon as nobody else holds it, so that the next holder
 * has a larger token.
 */
extern void zklock_proclock_forfeit(int32 proclock);

/* --- for the worker ------------------------------------------------------ */

/* What this server needs of the entry, level-triggered, for ZKLOCK_EV_NEED.  Locked. */
extern void zklock_proclock_need(ZkLockEntry *entry, ZkLockEvent *event);

#endif /* ZKLOCK_PROCLOCK_H */
