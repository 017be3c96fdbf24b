/*-------------------------------------------------------------------------
 *
 * semaphore_siblings.h
 *	  Places of one name on one server: what each has to know of the others.
 *
 * Pure, as protocol.h.  Of a server's contenders for permits of one name those that wait
 * wait for each other, too, and that needs no word of the ensemble.  The first one of
 * them, by the numbers, watches what is to be watched; the others are led by it, and ask
 * for nothing.  So whoever feeds the queues (dispatch.c; the simulator)
 *
 *	 - tells each with every event which number the first of the others that wait has, and
 *	   how many of them are before one that would be made now
 *	   (zklock_semaphore_siblings_add),
 *	 - after each step tells the first one that waits how many of ours have ended that
 *	   were before it (zklock_semaphore_siblings_ended); or, where that was another one,
 *	   that it is the first one now (ZKLOCK_EV_BESIDE),
 *	 - shows a listing that one has asked for to the first one that waits, and if that is
 *	   granted a permit to the next one, and so on (ZKLOCK_EV_SEEN).  Only then comes what
 *	   there is to tell.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SIBLINGS_H
#define ZKLOCK_SEMAPHORE_SIBLINGS_H

#include "protocol.h"

/* The number of a place's contender that waits, or is to find out; INT64_MAX: none does. */
extern int64_t zklock_semaphore_siblings_waiting(const ZkLockQueue *place);

/* What "other" is to a place.  "event" begins with INT64_MAX and 0. */
extern void zklock_semaphore_siblings_add(ZkLockEvent *event, const ZkLockQueue *other);

/*
 * How many contenders of a place, with numbers below "first", has a step ended?  Their
 * deletes are among what it asks for, or they have gone.  If the place was the first one
 * to wait until then, ZKLOCK_ENDED_UNKNOWN: "first" may have counted before, when a
 * create of the place was still in doubt, and has not been told since.
 */
extern int zklock_semaphore_siblings_ended(const ZkLockQueue *before,
										   const ZkLockQueue *after,
										   const ZkLockActions *actions, int64_t first);

/* Has a place to be told that it is the first one that waits? */
extern bool zklock_semaphore_siblings_is_led(const ZkLockQueue *place);

/* Is the contender's delete on its way?  A listing may show it, a later one will not. */
extern bool zklock_semaphore_siblings_leaves(const ZkContender *c);

#endif /* ZKLOCK_SEMAPHORE_SIBLINGS_H */
