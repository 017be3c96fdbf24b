/*-------------------------------------------------------------------------
 *
 * monitor.h
 *	  SQL functions for administrators, as far as they differ where a lock is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MONITOR_H
#define ZKLOCK_MONITOR_H

#include "fmgr.h"

/* It only looks at holds; see statement.h. */
extern PGDLLEXPORT Datum zk_locks(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_MONITOR_H */
