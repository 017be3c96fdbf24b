/*-------------------------------------------------------------------------
 *
 * semaphore_backend.h
 *	  Which of the permits it is that this backend has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_BACKEND_H
#define ZKLOCK_SEMAPHORE_BACKEND_H

#include "hold.h"

/*
 * The number of a permit that this backend holds; no other holder has that number at the
 * same time.  The first call asks the ensemble.  Raises what zklock_query does, and the
 * error of a loss.
 */
extern int zklock_semaphore_number(ZkHeldLock *held);

#endif /* ZKLOCK_SEMAPHORE_BACKEND_H */
