/*-------------------------------------------------------------------------
 *
 * semaphore_backend.h
 *	  Finds the number of the permit that this backend has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_BACKEND_H
#define ZKLOCK_SEMAPHORE_BACKEND_H

#include "hold.h"

/*
 * The number of a permit that this backend holds.  No other holder has the same number
 * at the same time.  The first call asks the ensemble.  Raises the errors of
 * zklock_query, and the loss.
 */
extern int zklock_semaphore_number(ZkHeldLock *held);

#endif /* ZKLOCK_SEMAPHORE_BACKEND_H */
