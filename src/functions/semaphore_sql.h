/*-------------------------------------------------------------------------
 *
 * semaphore_sql.h
 *	  SQL functions of permits that are special after a loss.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SQL_H
#define ZKLOCK_SEMAPHORE_SQL_H

#include "fmgr.h"

/* These functions acknowledge a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_acquire(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_acquire(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_release(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_SEMAPHORE_SQL_H */
