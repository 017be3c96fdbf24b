/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  Arguments of SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ARGUMENTS_H
#define ZKLOCK_ARGUMENTS_H

#include "fmgr.h"
#include "utils/timestamp.h"

#include "contender.h"

/* Text in UTF-8, palloc'd.  Raises what PostgreSQL does for what has no character there. */
extern char *zklock_to_utf8(text *arg);

/* Those that acknowledge a loss, up to a NULL; and one that only looks (statement.h). */
extern const PGFunction zklock_acknowledging[];
extern PGDLLEXPORT Datum zk_locks(PG_FUNCTION_ARGS);

/* A name in UTF-8; "buf" has room for ZKLOCK_NAME_MAX bytes and a NUL.  Raises
 * 22023 for one that is empty or too long. */
extern void zklock_get_name(ZkLockKind kind, text *arg, char *buf);

/* Is a lock's name, as zklock_get_name makes it, in zklock.namespace? */
extern bool zklock_in_namespace(const char *name);

/* A timeout in ms, rounded up; an infinite one is ZKLOCK_WAIT_FOREVER.  Raises 22023
 * for one that is negative; "what" is the argument's name. */
extern int64 zklock_get_timeout(const Interval *arg, const char *what);

/* A result of so many microseconds, palloc'd. */
extern Interval *zklock_make_interval(int64 us);

#endif /* ZKLOCK_ARGUMENTS_H */
