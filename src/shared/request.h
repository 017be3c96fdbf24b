/*-------------------------------------------------------------------------
 *
 * request.h
 *	  Requests: what backends want of an entry of the lock table, and have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include "table.h"

/*
 * Make a request for "name" in "mode" by this backend, in state LOCAL, and the
 * entry if there is none.  Returns the request's index, ZKLOCK_NO_ENTRY when
 * there is no room for another name, or ZKLOCK_NO_REQUEST.  Does not throw.
 */
#define ZKLOCK_NO_ENTRY	  (-1)
#define ZKLOCK_NO_REQUEST (-2)

extern int32 zklock_request_make(ZkLockKind kind, const char *name, ZkLockMode mode,
								 ZkLockScope scope, bool no_wait);

/*
 * Take a hold on the entry's grant, if there is one to be had and the lease is
 * good; else, if "wish" is set, state the wish.  Returns whether the request is
 * HELD.  With the entry locked.
 */
extern bool zklock_request_take(int32 request, bool wish);

/*
 * Is a backend of this server in the way, all the same?  Level 1 excludes that,
 * unless its holder has lost level 1 and not noticed yet (zklock_hold_refresh).
 */
extern bool zklock_request_conflicts(int32 request);

/*
 * Take the request out, whatever its state, and tell the worker what that
 * changes.  Does not throw, wait for the network or allocate.
 */
extern void zklock_request_end(int32 request);

/*
 * The exclusive grant of a request that is HELD goes with its last hold, whoever
 * waits, and so does one for readers that is kept beside it: the client is gone and may
 * still use the token elsewhere, so that the next holder must have another.
 */
extern void zklock_request_abandon(int32 request);

/* --- for the worker ------------------------------------------------------ */

/* Level-triggered demand of the entry, for ZKLOCK_EV_DEMAND.  Locked. */
extern void zklock_request_demand(ZkLockEntry *entry, ZkLockEvent *event);

#endif /* ZKLOCK_REQUEST_H */
