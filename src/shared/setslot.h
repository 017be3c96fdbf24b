/*-------------------------------------------------------------------------
 *
 * setslot.h
 *	  Backends that want several locks in one step, as the worker sees them.
 *
 * A backend waits for one set at a time, so each has a slot.  It posts there the set that
 * it has stated the wishes of, by the first of its proclocks, and withdraws it before any
 * of these ends; the worker says there when all are granted.  That one of them cannot be
 * had, its proclock says.
 *
 * One LWLock protects all of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETSLOT_H
#define ZKLOCK_SETSLOT_H

#include "table.h"

typedef struct ZkSetSlot
{
	uint64 number;		  /* of the set; 0: none */
	int32 first;		  /* of its proclocks, chained by set_next */
	uint8 mode;			  /* ZkLockMode */
	int64 token;		  /* of all its grants, once there are all of them; else 0 */
	ConditionVariable cv; /* there is something to be seen */
} ZkSetSlot;

/* For shmem_request_hook and shmem_startup_hook. */
extern void zklock_set_shmem_request(void);
extern void zklock_set_shmem_startup(void);

/* --- for backends: the own slot ---------------------------------------------- */

/* A number that no set has had. */
extern uint64 zklock_set_number(void);

extern void zklock_set_post(uint64 number, int32 first, ZkLockMode mode);

/* Does nothing if no set is posted.  Does not throw. */
extern void zklock_set_withdraw(void);

/* The token of all grants, or 0.  "again": those of the last were not to be had any more. */
extern int64 zklock_set_token(bool again);

extern ConditionVariable *zklock_set_cv(void);

/* --- for the worker ----------------------------------------------------------- */

/* Has any set come or gone since the last call? */
extern bool zklock_sets_changed(void);

/* All slots, locked: to be looked at, and unlocked. */
extern ZkSetSlot *zklock_sets_lock(int *n);
extern void zklock_sets_unlock(void);

/* The set of this slot, if it is still there, has these grants. */
extern void zklock_set_grant(int slot, uint64 number, int64 token);

/* There is something to be seen in its proclocks. */
extern void zklock_set_wake(int slot);

#endif /* ZKLOCK_SETSLOT_H */
