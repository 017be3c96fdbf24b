/*-------------------------------------------------------------------------
 *
 * semaphore_backend.h
 *	  Which of the slots it is that this backend has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_BACKEND_H
#define ZKLOCK_SEMAPHORE_BACKEND_H

#include "hold.h"

/*
 * The number of a slot that is held, which no other holder has meanwhile.  The first call
 * asks the ensemble.  Raises what zklock_query does, and the error of a loss.
 */
extern int zklock_semaphore_number(ZkHeldLock *held);

#endif /* ZKLOCK_SEMAPHORE_BACKEND_H */
