/*-------------------------------------------------------------------------
 *
 * slotnumber.h
 *	  Which of the slots it is that this backend has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTNUMBER_H
#define ZKLOCK_SLOTNUMBER_H

#include "hold.h"

/*
 * The number of a slot that is held, which no other holder has meanwhile.  The first call
 * asks the ensemble.  Raises what zklock_query does, and the error of a loss.
 */
extern int zklock_slot_number(ZkHeldLock *held);

#endif /* ZKLOCK_SLOTNUMBER_H */
