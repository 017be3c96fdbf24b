/*-------------------------------------------------------------------------
 *
 * advisory_sql.h
 *	  SQL functions of the extension zklock_advisory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ADVISORY_SQL_H
#define ZKLOCK_ADVISORY_SQL_H

#include "fmgr.h"

/* These functions acknowledge a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_advisory_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_lock_shared(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_xact_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_xact_lock_shared(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_advisory_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_advisory_lock_shared(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_advisory_xact_lock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_advisory_xact_lock_shared(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_unlock(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_unlock_shared(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_advisory_unlock_all(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_ADVISORY_SQL_H */
