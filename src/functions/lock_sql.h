/*-------------------------------------------------------------------------
 *
 * lock_sql.h
 *	  SQL functions of locks that other files need.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_SQL_H
#define ZKLOCK_LOCK_SQL_H

#include "fmgr.h"

#include "hold.h"

/* These functions acknowledge a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_lock_all(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_lock_all(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_unlock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_unlock_all(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_lock_session(PG_FUNCTION_ARGS);

/* ----------
 * For functions of each kind.  The first argument is the name.
 * ----------
 */

/* This backend's hold of that name, or NULL; "name" gets the name in UTF-8.  Raises
 * 22004 for a null, and the errors of zklock_get_name. */
extern ZkHeldLock *zklock_get_held(FunctionCallInfo fcinfo, ZkLockKind kind, char *name);

/* End the newest hold in session scope.  False, with a warning (55000), if there is
 * none. */
extern Datum zklock_release(FunctionCallInfo fcinfo, ZkLockKind kind);

/* Prove by a round trip that this backend holds the name; returns its token.  Raises
 * 55000 if it does not, and the errors of loss.h for a loss. */
extern Datum zklock_assert(FunctionCallInfo fcinfo, ZkLockKind kind);

#endif /* ZKLOCK_LOCK_SQL_H */
