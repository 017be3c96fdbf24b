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
#include "utils/array.h"
#include "utils/timestamp.h"

#include "table.h"

/*
 * The first thing in each function of SQL: raise 22004 if an argument is NULL, as by
 * 'job/' || id, since what NULL returns, or does not do, would look like an answer.  A
 * word for each argument, for people; NULL for one that may be NULL, as it is by default.
 */
#define ZKLOCK_REFUSE_NULLS(...)                                                         \
	zklock_refuse_nulls(fcinfo, (const char *const[]){__VA_ARGS__},                      \
						(int) lengthof(((const char *const[]){__VA_ARGS__})))

pg_noreturn extern void zklock_raise_null(const char *what);

static inline void
zklock_refuse_nulls(FunctionCallInfo fcinfo, const char *const *what, int n)
{
	Assert(n == PG_NARGS());
	for (int i = 0; i < n; i++)
	{
		if (PG_ARGISNULL(i) && what[i] != NULL)
			zklock_raise_null(what[i]);
	}
}

/* Text in UTF-8, palloc'd.  Raises what PostgreSQL does for what has no character there. */
extern char *zklock_to_utf8(text *arg);

/* A name in UTF-8; "buf" has room for ZKLOCK_NAME_MAX bytes and a NUL.  Raises
 * 22023 for one that is empty or too long. */
extern void zklock_get_name(ZkLockKind kind, text *arg, char *buf);

/*
 * The names in an array of one dimension, "n" of them, palloc'd.  Raises besides 22004
 * for a null among them and 2202E for an array of more dimensions.
 */
extern char **zklock_get_names(ZkLockKind kind, ArrayType *arg, int *n);

/* A number of permits.  Raises 22023 for one that is out of range. */
extern int zklock_get_permits(int32 arg);

/* "exclusive" and "shared"; "transaction" and "session". */
extern const char *const zklock_modes[ZKLOCK_NMODES];
extern const char *const zklock_scopes[ZKLOCK_NSCOPES];

/*
 * One of these.  Raise 22023 for another word; mode and scope may stand side by side
 * ("takes_scope", "takes_mode"), and who names one by its place may have taken it for the
 * other.
 */
extern ZkLockMode zklock_get_mode(text *arg, bool takes_scope);
extern ZkLockScope zklock_get_scope(text *arg, bool takes_mode);

/* An interval in ms, rounded up; an infinite one is ZKLOCK_WAIT_FOREVER.  Raises 22023
 * for one that is negative; "what" is the argument's name. */
extern int64 zklock_get_interval(const Interval *arg, const char *what);

/* The same for argument "i", called timeout.  NULL, too, waits for ever. */
extern int64 zklock_get_timeout(FunctionCallInfo fcinfo, int i);

/* A result of so many microseconds, palloc'd. */
extern Interval *zklock_make_interval(int64 us);

#endif /* ZKLOCK_ARGUMENTS_H */
