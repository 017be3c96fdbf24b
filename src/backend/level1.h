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

#include "waiter.h"

/* Take level 1 in transaction scope, within wait->until.  False if the time is up. */
extern bool zklock_level1_acquire(const LOCKTAG *tag, LOCKMODE mode, const ZkWait *wait);

/* Take level 1 if it is free. */
extern bool zklock_level1_try(const LOCKTAG *tag, LOCKMODE mode);

/* Take level 1 once more, in a mode that needs no wait. */
extern void zklock_level1_again(const LOCKTAG *tag, LOCKMODE mode);

extern void zklock_level1_release(const LOCKTAG *tag, LOCKMODE mode);

#endif /* ZKLOCK_LEVEL1_H */
