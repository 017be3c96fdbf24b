/*-------------------------------------------------------------------------
 *
 * lock_sql.h
 *	  SQL functions of locks, as far as they differ where a lock is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_SQL_H
#define ZKLOCK_LOCK_SQL_H

#include "fmgr.h"

/* Those that acknowledge a loss, up to a NULL; see statement.h. */
extern const PGFunction zklock_acknowledging[];

#endif /* ZKLOCK_LOCK_SQL_H */
