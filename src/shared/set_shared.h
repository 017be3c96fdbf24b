/*-------------------------------------------------------------------------
 *
 * set_shared.h
 *	  Passes backends' wishes for several locks in one step to the worker.
 *
 * A backend waits for one set at a time, so each backend has room for one call.  It
 * states the set's wishes first.  Then it posts the set there, by the first of its
 * proclocks, and withdraws it before any of these ends.  The worker says there when all
 * are granted.  If one of them cannot be granted, its proclock says so.
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

/* Returns a number that no set has had. */
extern uint64 zklock_set_number(void);

extern void zklock_set_post(uint64 number, int32 first, ZkLockMode mode);

/* Does nothing if no set is posted.  Does not throw. */
extern void zklock_set_withdraw(void);

/* Returns the token of all grants, or 0.  "again": the backend could not take the
 * grants of the last token, so the worker has to look again. */
extern int64 zklock_set_token(bool again);

extern ConditionVariable *zklock_set_cv(void);

/* --- for the worker ----------------------------------------------------------- */

/* Has any set come or gone since the last call? */
extern bool zklock_sets_changed(void);

/* Returns the calls of all backends, locked: the caller looks at them, and unlocks
 * them. */
extern ZkSetCall *zklock_sets_lock(int *n);
extern void zklock_sets_unlock(void);

/* The set of this call has these grants, if it is still there. */
extern void zklock_set_grant(int call, uint64 number, int64 token);

/* The set's proclocks have news. */
extern void zklock_set_wake(int call);

#endif /* ZKLOCK_SET_SHARED_H */
