/*-------------------------------------------------------------------------
 *
 * proclock.h
 *	  Proclocks: what backends want of an entry of the lock table, and have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCLOCK_H
#define ZKLOCK_PROCLOCK_H

#include "table.h"

/*
 * Make a proclock for "name" in "mode" by this backend, in state LOCAL, and the
 * entry if there is none; "permits": of a semaphore, how many there are, else 0.  Returns
 * its index, ZKLOCK_NO_ENTRY when there is no room for another name, or
 * ZKLOCK_NO_PROCLOCK.  Does not throw.
 */
#define ZKLOCK_NO_ENTRY	   (-1)
#define ZKLOCK_NO_PROCLOCK (-2)

extern int32 zklock_proclock_make(ZkLockKind kind, const char *name, int permits,
								  ZkLockMode mode, ZkLockScope scope, bool no_wait);

/*
 * The same for who has level 1 of a lock already, and knows its name's hash: a hold is
 * taken on its grant if there is one to be had (zklock_proclock_take).  *token: its token
 * then, else 0.
 */
extern int32 zklock_proclock_make_held(const char *name, uint32 hash, ZkLockMode mode,
									   ZkLockScope scope, bool no_wait, int64 *token);

/*
 * The same for a lock that is one of a set.  "set": its number, see set_shared.h.
 */
extern int32 zklock_proclock_make_part(const char *name, ZkLockMode mode,
									   ZkLockScope scope, bool no_wait, uint64 set);

/*
 * Of a set: state the wish; or take a hold on the grant if its token is this one, or with
 * 0 if nobody else wants it.  Returns whether it is HELD.  To be taken back, all of them,
 * if another of the set cannot be had; else to be counted.
 */
extern void zklock_proclock_wish(int32 proclock);
extern bool zklock_proclock_join(int32 proclock, int64 token);
extern void zklock_proclock_leave(int32 proclock, bool wish);
extern void zklock_proclock_count(int32 proclock, bool cold);

/*
 * Take a hold on the entry's grant, if there is one to be had and the lease is
 * good; else, if "wish" is set, state the wish.  Returns whether the proclock is
 * HELD.  With the entry locked.
 */
extern bool zklock_proclock_take(int32 proclock, bool wish);

/*
 * Is there a grant to take a hold on?  It is usable; or spent, with a holder who waits at
 * level 1, to write, for the proclock's backend, which has level 1 to read.  Who demands
 * the grant waits for that holder: were the reader to wait for whoever demands it, all
 * three would for ever.
 */
extern bool zklock_proclock_finds_grant(int32 proclock);

/*
 * Is a backend of this server in the way, all the same?  Level 1 excludes that,
 * unless its holder has lost level 1 and not noticed yet (zklock_hold_end_void).  Of a
 * set's whoever holds it is, in whatever mode.
 */
extern bool zklock_proclock_conflicts(int32 proclock);

/*
 * Take the proclock out, whatever its state, and tell the worker what that
 * changes.  Does not throw, wait for the network or allocate.
 */
extern void zklock_proclock_end(int32 proclock);

/*
 * Of a job that is HELD, before others may come to know that its run is about to commit:
 * they could not tell what becomes of that.  So if the proclock is to end, and the run is
 * not settled, it is left to the server instead, which has the job until its settler has
 * recorded the end (job_settler.c): unless it is lost.
 */
extern void zklock_proclock_set_run(int32 proclock, ZkJobId run);

/* The end of that run is recorded: what was left ends.  By whoever has recorded it. */
extern void zklock_proclock_settled(int32 proclock, ZkJobId run);

/* What was left to the server: the next one from this proclock on.  False: no more. */
typedef struct ZkLeftRun
{
	int32 proclock;
	ZkJobId run;
	Oid database;
	char name[ZKLOCK_NAME_MAX + 1];
} ZkLeftRun;

extern bool zklock_proclock_next_left(int32 from, ZkLeftRun *left);

/*
 * Give up the exclusive grant of a proclock that is HELD with its last hold, whoever
 * waits, and a grant for readers that is kept beside it.  The client is gone and may
 * still use the token elsewhere, so the next holder must have a larger one.
 */
extern void zklock_proclock_abandon(int32 proclock);

/*
 * The backend has told its client that what it holds is lost: so it is, whatever becomes
 * of the lease.  The grant goes as soon as nobody else holds it, so that whoever is
 * granted the lock next has a larger token.
 */
extern void zklock_proclock_forfeit(int32 proclock);

/* --- for the worker ------------------------------------------------------ */

/* What this server needs of the entry, level-triggered, for ZKLOCK_EV_NEED.  Locked. */
extern void zklock_proclock_need(ZkLockEntry *entry, ZkLockEvent *event);

#endif /* ZKLOCK_PROCLOCK_H */
