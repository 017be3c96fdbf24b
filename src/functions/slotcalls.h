/*-------------------------------------------------------------------------
 *
 * slotcalls.h
 *	  SQL functions of slots, as far as they differ where a slot is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTCALLS_H
#define ZKLOCK_SLOTCALLS_H

#include "fmgr.h"

/* They acknowledge a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_acquire(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum zk_try_acquire(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_SLOTCALLS_H */
