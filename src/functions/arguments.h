/*-------------------------------------------------------------------------
 *
 * arguments.h
 *	  Checks and converts arguments of SQL functions.
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
 * The first statement in each SQL function: raise 22004 if an argument is NULL, for
 * example from 'job/' || id.  Otherwise a NULL result, or a call that does nothing,
 * would look like an answer.  The macro takes a word for each argument, for the
 * message, or NULL for an argument that may be NULL, as it is by default.
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

/* Convert a text to UTF-8, palloc'd.  Raises PostgreSQL's error for a character that
 * UTF-8 lacks. */
extern char *zklock_to_utf8(text *arg);

/* Convert a name to UTF-8; "buf" has room for ZKLOCK_NAME_MAX bytes and a NUL.  Raises
 * 22023 for a name that is empty or too long. */
extern void zklock_get_name(ZkLockKind kind, text *arg, char *buf);

/* The names in an array of one dimension, "n" of them, palloc'd.  Also raises 22004 for
 * a null among them, and 2202E for an array of more dimensions. */
extern char **zklock_get_names(ZkLockKind kind, ArrayType *arg, int *n);

/* A number of permits.  Raises 22023 if it is out of range. */
extern int zklock_get_permits(int32 arg);

/* "exclusive" and "shared"; "transaction" and "session". */
extern const char *const zklock_modes[ZKLOCK_NMODES];
extern const char *const zklock_scopes[ZKLOCK_NSCOPES];

/*
 * Parse a mode or a scope.  Raise 22023 for another word.  In some functions mode and
 * scope are neighbours ("takes_scope", "takes_mode"), and a caller who passes one by
 * position may have meant the other.
 */
extern ZkLockMode zklock_get_mode(text *arg, bool takes_scope);
extern ZkLockScope zklock_get_scope(text *arg, bool takes_mode);

/* An interval in ms, rounded up; an infinite interval is ZKLOCK_WAIT_FOREVER.  Raises
 * 22023 for a negative interval; "what" is the argument's name. */
extern int64 zklock_get_interval(const Interval *arg, const char *what);

/* The same for argument "i", named timeout.  NULL also waits for ever. */
extern int64 zklock_get_timeout(FunctionCallInfo fcinfo, int i);

/* Make an interval of "us" microseconds, palloc'd. */
extern Interval *zklock_make_interval(int64 us);

#endif /* ZKLOCK_ARGUMENTS_H */
