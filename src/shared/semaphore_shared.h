/*-------------------------------------------------------------------------
 *
 * semaphore_shared.h
 *	  Places: the entries of the lock table that are for permits.
 *
 * A lock has one entry on a server, with one contender a mode.  Of permits each session
 * that holds or wants one has an entry of its own, a place, with a contender of its own.
 * The places of a name are in one partition and one bucket, so that the lock of one of
 * them is that of all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SHARED_H
#define ZKLOCK_SEMAPHORE_SHARED_H

#include "semaphore_siblings.h"
#include "table.h"

/*
 * A place for a session that wants one of so many permits of "name": one that is kept for
 * whoever comes next here, or a new one.  NULL, and no lock, if there is no room.
 */
extern ZkLockEntry *zklock_semaphore_place_make(const char *name, int permits,
												LWLock **lock);

/* --- with the place locked exclusively ------------------------------------- */

/* Does a session wait in another place of the name?  Then nothing is kept.  A shared lock
 * will do. */
extern bool zklock_semaphore_place_waits_beside(const ZkLockEntry *place);

/* For the worker.  What the other places of the name are to this one
 * (semaphore_siblings.h); nothing, if its session would not wait. */
extern void zklock_semaphore_place_tell(const ZkLockEntry *place, ZkLockEvent *event);

/* The place that is the first of the name to wait, or NULL.  A shared lock will do. */
extern ZkLockEntry *zklock_semaphore_place_first(const ZkLockEntry *place);

/* --- without ---------------------------------------------------------------- */

/*
 * For the worker.  The places of a name: their number, and to *places their indexes,
 * which are good until the next call.  One may be freed as soon as its queue is empty.
 */
extern int zklock_semaphore_places(const char *name, const int32 **places);

#endif /* ZKLOCK_SEMAPHORE_SHARED_H */
