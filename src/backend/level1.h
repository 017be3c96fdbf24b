/*-------------------------------------------------------------------------
 *
 * level1.h
 *	  Level 1: heavyweight locks on names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEVEL1_H
#define ZKLOCK_LEVEL1_H

#include "storage/lock.h"

typedef struct ZkWait
{
	int64 start;		/* ns of CLOCK_BOOTTIME */
	int64 until;		/* be content with "somebody else has it" from
						 * then on; PG_INT64_MAX: never */
	int64 lock_timeout; /* raise 55P03; PG_INT64_MAX: never.  One for the waits for
						 * room and at both levels: to the user it is one lock */
} ZkWait;

/* A wait begins, for so long, or ZKLOCK_WAIT_FOREVER. */
extern void zklock_wait_begin(ZkWait *wait, int64 wait_ms);

/* Take level 1 in transaction scope, within wait->until: false if that does not suffice. */
extern bool zklock_level1_acquire(const LOCKTAG *tag, LOCKMODE mode, const ZkWait *wait);

/* Take it if it is free. */
extern bool zklock_level1_try(const LOCKTAG *tag, LOCKMODE mode);

/* Take it once more, in a mode for which there is nobody to wait. */
extern void zklock_level1_again(const LOCKTAG *tag, LOCKMODE mode);

extern void zklock_level1_release(const LOCKTAG *tag, LOCKMODE mode);

#endif /* ZKLOCK_LEVEL1_H */
