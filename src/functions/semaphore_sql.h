/*-------------------------------------------------------------------------
 *
 * semaphore_sql.h
 *	  SQL functions of permits, as far as they differ where a permit is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_SQL_H
#define ZKLOCK_SEMAPHORE_SQL_H

#include "fmgr.h"

/* They acknowledge a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_acquire(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_acquire(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_release(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_SEMAPHORE_SQL_H */
