/*-------------------------------------------------------------------------
 *
 * semaphore_shared.h
 *	  Manages places: the entries of the lock table that are for permits.
 *
 * A lock has one entry on a server, with one contender for each mode.  For permits each
 * session that holds or wants one has an entry of its own, a place, with its own
 * contender.  The places of a name are in one partition and one bucket, so that the
 * lock of one place locks all of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SHARED_H
#define ZKLOCK_SEMAPHORE_SHARED_H

#include "semaphore_siblings.h"
#include "table.h"

/*
 * Finds a place for a session that wants one of "permits" permits of "name": a place
 * that is kept for the next session here, or a new one.  NULL, and no lock: there is no
 * room.
 */
extern ZkLockEntry *zklock_semaphore_place_make(const char *name, int permits,
												LWLock **lock);

/* --- with the place locked exclusively ------------------------------------- */

/* Does a session wait in another place of the name?  Then nothing is kept.  A shared lock
 * will do. */
extern bool zklock_semaphore_place_waits_beside(const ZkLockEntry *place);

/* For the worker.  Tells this place what it has to know about the other places of the
 * name (semaphore_siblings.h).  Tells nothing if its session would not wait. */
extern void zklock_semaphore_place_tell(const ZkLockEntry *place, ZkLockEvent *event);

/* Finds the first place of the name that waits, or NULL.  A shared lock will do. */
extern ZkLockEntry *zklock_semaphore_place_first(const ZkLockEntry *place);

/* --- without ---------------------------------------------------------------- */

/*
 * For the worker.  Returns the number of places of a name, and in *places their
 * indexes, which are good until the next call.  A place may be freed as soon as its
 * queue is empty.
 */
extern int zklock_semaphore_places(const char *name, const int32 **places);

#endif /* ZKLOCK_SEMAPHORE_SHARED_H */
