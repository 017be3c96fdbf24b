/*-------------------------------------------------------------------------
 *
 * longwait.h
 *	  Waits at level 2 that last longer than deadlock_timeout.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LONGWAIT_H
#define ZKLOCK_LONGWAIT_H

#include "hold.h"

typedef struct ZkLongWait
{
	int64 start; /* ns of CLOCK_BOOTTIME */
	int64 look;	 /* when to look next */
	bool logged; /* that it goes on */
} ZkLongWait;

/* The wait begins; "proclock" is WANTED, or about to be. */
extern void zklock_longwait_begin(ZkLongWait *wait);

/* To be called now and then, and at wait->look: asks whether it is a deadlock, says that
 * the wait goes on.  "first": of a set, the first; else the same. */
extern void zklock_longwait_look(ZkLongWait *wait, int32 proclock, int32 first, int64 now);

/* It has ended by the lock: say so, if that was said. */
extern void zklock_longwait_end(const ZkLongWait *wait, int32 proclock);

/* The worker has ended it for a deadlock. */
pg_noreturn extern void zklock_longwait_raise_deadlock(int32 proclock);

#endif /* ZKLOCK_LONGWAIT_H */
