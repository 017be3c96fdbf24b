/*-------------------------------------------------------------------------
 *
 * set_shared.h
 *	  Backends that want several locks in one step, as the worker sees them.
 *
 * A backend waits for one set at a time, so each has room for one call.  It posts there
 * the set that it has stated the wishes of, by the first of its proclocks, and withdraws
 * it before any of these ends; the worker says there when all are granted.  That one of
 * them cannot be had, its proclock says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_SHARED_H
#define ZKLOCK_SET_SHARED_H

#include "table.h"

typedef struct ZkSetCall
{
	uint64 number;		  /* of the set; 0: none */
	int32 first;		  /* of its proclocks, chained by set_next */
	uint8 mode;			  /* ZkLockMode */
	int64 token;		  /* of all its grants, once there are all of them; else 0 */
	ConditionVariable cv; /* there is something to be seen */
} ZkSetCall;

extern const ZkSharedPart zklock_set_part;

/* --- for backends: the own call ---------------------------------------------- */

/* A number that no set has had. */
extern uint64 zklock_set_number(void);

extern void zklock_set_post(uint64 number, int32 first, ZkLockMode mode);

/* Does nothing if no set is posted.  Does not throw. */
extern void zklock_set_withdraw(void);

/* The token of all grants, or 0.  "again": the grants of the last token could not be
 * taken, so the worker is to look again. */
extern int64 zklock_set_token(bool again);

extern ConditionVariable *zklock_set_cv(void);

/* --- for the worker ----------------------------------------------------------- */

/* Has any set come or gone since the last call? */
extern bool zklock_sets_changed(void);

/* The calls of all backends, locked: to be looked at, and unlocked. */
extern ZkSetCall *zklock_sets_lock(int *n);
extern void zklock_sets_unlock(void);

/* The set of this call, if it is still there, has these grants. */
extern void zklock_set_grant(int call, uint64 number, int64 token);

/* There is something to be seen in its proclocks. */
extern void zklock_set_wake(int call);

#endif /* ZKLOCK_SET_SHARED_H */
