/*-------------------------------------------------------------------------
 *
 * locks.h
 *	  SQL functions of locks, as far as they differ where a lock is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCKS_H
#define ZKLOCK_LOCKS_H

#include "fmgr.h"

/* Those that acknowledge a loss, up to a NULL; see statement.h. */
extern const PGFunction zklock_acknowledging[];

#endif /* ZKLOCK_LOCKS_H */
