/*-------------------------------------------------------------------------
 *
 * semaphore_siblings.h
 *	  Tells the places of one name on one server what they have to know about each other.
 *
 * Pure, as protocol.h.  A server's contenders that wait for permits of one name also
 * wait for each other, and that needs no word from the ensemble.  The first one of
 * them, by the numbers, sets the watches; it leads the others, and they ask for
 * nothing.  So the caller that feeds the queues (dispatch.c; the simulator)
 *
 *	 - tells each place with every event which number the first of the other waiters
 *	   has, and how many of them are before one that would be made now
 *	   (zklock_semaphore_siblings_add),
 *	 - after each step tells the first waiter how many of our contenders before it
 *	   have ended (zklock_semaphore_siblings_ended); or, if another one was the
 *	   first until then, that it is the first one now (ZKLOCK_EV_BESIDE),
 *	 - shows a listing that one place has asked for to the first waiter, and if that
 *	   gets a permit, to the next one, and so on (ZKLOCK_EV_SEEN).  Only then it
 *	   tells the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SIBLINGS_H
#define ZKLOCK_SEMAPHORE_SIBLINGS_H

#include "protocol.h"

/* Returns the number of a place's contender that waits, or has to find out;
 * INT64_MAX: none does. */
extern int64_t zklock_semaphore_siblings_waiting(const ZkLockQueue *place);

/* Adds what a place has to know about "other".  "event" begins with INT64_MAX and 0. */
extern void zklock_semaphore_siblings_add(ZkLockEvent *event, const ZkLockQueue *other);

/*
 * Returns how many contenders of a place, with numbers below "first", a step has ended.
 * The step asks for their deletes, or they have gone.  If the place was the first
 * waiter until then, ZKLOCK_ENDED_UNKNOWN: "first" may have counted before, when a
 * create of the place was still in doubt, and has not been told since.
 */
extern int zklock_semaphore_siblings_ended(const ZkLockQueue *before,
										   const ZkLockQueue *after,
										   const ZkLockActions *actions, int64_t first);

/* Does somebody have to tell a place that it is the first waiter? */
extern bool zklock_semaphore_siblings_is_led(const ZkLockQueue *place);

/* Is the contender's delete on its way?  A listing may show the contender; a later
 * one will not. */
extern bool zklock_semaphore_siblings_leaves(const ZkContender *c);

#endif /* ZKLOCK_SEMAPHORE_SIBLINGS_H */
