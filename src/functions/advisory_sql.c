/*-------------------------------------------------------------------------
 *
 * advisory_sql.c
 *	  SQL functions of the extension zklock_advisory: PostgreSQL's advisory lock
 *	  functions, with the same names and results, for locks of the ensemble.
 *
 * A program finds these functions by its search_path.  Each has one key or two, as in
 * PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "acquire.h"
#include "advisory_sql.h"
#include "arguments.h"
#include "check.h"
#include "hold.h"
#include "lock_sql.h"
#include "loss.h"
#include "settings.h"
#include "waiter.h"

PG_FUNCTION_INFO_V1(zk_advisory_lock);
PG_FUNCTION_INFO_V1(zk_advisory_lock_shared);
PG_FUNCTION_INFO_V1(zk_advisory_xact_lock);
PG_FUNCTION_INFO_V1(zk_advisory_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_try_advisory_lock);
PG_FUNCTION_INFO_V1(zk_try_advisory_lock_shared);
PG_FUNCTION_INFO_V1(zk_try_advisory_xact_lock);
PG_FUNCTION_INFO_V1(zk_try_advisory_xact_lock_shared);
PG_FUNCTION_INFO_V1(zk_advisory_unlock);
PG_FUNCTION_INFO_V1(zk_advisory_unlock_shared);
PG_FUNCTION_INFO_V1(zk_advisory_unlock_all);

/* Make the name of the lock.  One key and two keys are different locks, as in
 * PostgreSQL. */
static void
get_name(FunctionCallInfo fcinfo, char *name)
{
	const char *database = zklock_advisory_database;
	char *text;

	zklock_check_callable();
	if (database[0] == '\0')
		database = get_database_name(MyDatabaseId);
	if (PG_NARGS() == 1)
		text = psprintf("advisory/%s/%lld", database, (long long) PG_GETARG_INT64(0));
	else
		text = psprintf("advisory/%s/%d,%d", database, PG_GETARG_INT32(0),
						PG_GETARG_INT32(1));
	zklock_get_name(ZKLOCK_KIND_LOCK, cstring_to_text(text), name);
}

static bool
lock(FunctionCallInfo fcinfo, ZkLockMode mode, ZkLockScope scope, int64 wait_ms)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;

	get_name(fcinfo, name);
	zklock_loss_acknowledge();
	return zklock_acquire(ZKLOCK_KIND_LOCK, name, mode, scope, wait_ms, &token);
}

/* pg_advisory_lock(key bigint), (key1 integer, key2 integer) returns void */
Datum
zk_advisory_lock(PG_FUNCTION_ARGS)
{
	(void) lock(fcinfo, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION, ZKLOCK_WAIT_FOREVER);
	PG_RETURN_VOID();
}

/* pg_advisory_lock_shared */
Datum
zk_advisory_lock_shared(PG_FUNCTION_ARGS)
{
	(void) lock(fcinfo, ZKLOCK_SHARED, ZKLOCK_SCOPE_SESSION, ZKLOCK_WAIT_FOREVER);
	PG_RETURN_VOID();
}

/* pg_advisory_xact_lock */
Datum
zk_advisory_xact_lock(PG_FUNCTION_ARGS)
{
	(void) lock(fcinfo, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_TRANSACTION, ZKLOCK_WAIT_FOREVER);
	PG_RETURN_VOID();
}

/* pg_advisory_xact_lock_shared */
Datum
zk_advisory_xact_lock_shared(PG_FUNCTION_ARGS)
{
	(void) lock(fcinfo, ZKLOCK_SHARED, ZKLOCK_SCOPE_TRANSACTION, ZKLOCK_WAIT_FOREVER);
	PG_RETURN_VOID();
}

/* pg_try_advisory_lock(key bigint), (key1 integer, key2 integer) returns boolean */
Datum
zk_try_advisory_lock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lock(fcinfo, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION, 0));
}

/* pg_try_advisory_lock_shared */
Datum
zk_try_advisory_lock_shared(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lock(fcinfo, ZKLOCK_SHARED, ZKLOCK_SCOPE_SESSION, 0));
}

/* pg_try_advisory_xact_lock */
Datum
zk_try_advisory_xact_lock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lock(fcinfo, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_TRANSACTION, 0));
}

/* pg_try_advisory_xact_lock_shared */
Datum
zk_try_advisory_xact_lock_shared(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lock(fcinfo, ZKLOCK_SHARED, ZKLOCK_SCOPE_TRANSACTION, 0));
}

/* End a hold of this session.  False, with PostgreSQL's own warning, if there is none. */
static bool
unlock(FunctionCallInfo fcinfo, ZkLockMode mode)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	get_name(fcinfo, name);
	zklock_hold_end_void();
	held = zklock_held_find(ZKLOCK_KIND_LOCK, name);
	zklock_loss_acknowledge();
	if (held != NULL && !slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
	{
		zklock_loss_tell(held);
		if (zklock_hold_end_asked(held, mode))
			return true;
	}
	ereport(WARNING,
			(errmsg("you don't own a lock of type %s",
					mode == ZKLOCK_EXCLUSIVE ? "ExclusiveLock" : "ShareLock")));
	return false;
}

/* pg_advisory_unlock(key bigint), (key1 integer, key2 integer) returns boolean */
Datum
zk_advisory_unlock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(unlock(fcinfo, ZKLOCK_EXCLUSIVE));
}

/* pg_advisory_unlock_shared */
Datum
zk_advisory_unlock_shared(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(unlock(fcinfo, ZKLOCK_SHARED));
}

/*
 * pg_advisory_unlock_all() returns void
 *
 * Ends everything that PostgreSQL's function of that name ends, which are PostgreSQL's
 * own locks and zklock's.  It ends zklock's locks first, since PostgreSQL's function
 * alone would leave those that the transaction has, too.
 */
Datum
zk_advisory_unlock_all(PG_FUNCTION_ARGS)
{
	(void) zk_unlock_all(fcinfo);
	LockReleaseSession(USER_LOCKMETHOD);
	PG_RETURN_VOID();
}
