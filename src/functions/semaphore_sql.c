/*-------------------------------------------------------------------------
 *
 * semaphore_sql.c
 *	  SQL functions of permits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "arguments.h"
#include "check.h"
#include "hold.h"
#include "lock_sql.h"
#include "loss.h"
#include "names.h"
#include "room.h"
#include "semaphore_backend.h"
#include "semaphore_sql.h"

PG_FUNCTION_INFO_V1(zk_acquire);
PG_FUNCTION_INFO_V1(zk_try_acquire);
PG_FUNCTION_INFO_V1(zk_release);
PG_FUNCTION_INFO_V1(zk_permit);
PG_FUNCTION_INFO_V1(zk_assert_permit);

/* zk_acquire(name text, permits integer, scope text) returns bigint */
Datum
zk_acquire(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int permits;
	ZkLockScope scope;
	int64 token = 0;

	ZKLOCK_REFUSE_NULLS("semaphore name", "number of permits", "lock scope");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_SEMAPHORE, PG_GETARG_TEXT_PP(0), name);
	permits = zklock_get_permits(PG_GETARG_INT32(1));
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), false);
	zklock_loss_acknowledge();
	(void) zklock_semaphore_acquire(name, permits, scope, ZKLOCK_WAIT_FOREVER, &token);
	PG_RETURN_INT64(token);
}

/* zk_try_acquire(name text, permits integer, scope text, timeout interval) returns
 * boolean */
Datum
zk_try_acquire(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int permits;
	ZkLockScope scope;
	int64 timeout;
	int64 token;

	ZKLOCK_REFUSE_NULLS("semaphore name", "number of permits", "lock scope", NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_SEMAPHORE, PG_GETARG_TEXT_PP(0), name);
	permits = zklock_get_permits(PG_GETARG_INT32(1));
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), false);
	timeout = zklock_get_timeout(fcinfo, 3);
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_semaphore_acquire(name, permits, scope, timeout, &token));
}

/* zk_release(name text) returns boolean */
Datum
zk_release(PG_FUNCTION_ARGS)
{
	return zklock_release(fcinfo, ZKLOCK_KIND_SEMAPHORE);
}

/* zk_permit(name text) returns integer */
Datum
zk_permit(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held = zklock_get_held(fcinfo, ZKLOCK_KIND_SEMAPHORE, name);

	if (held == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("you do not hold a permit of semaphore \"%s\"",
						zklock_display_name(name))));
	PG_RETURN_INT32(zklock_semaphore_number(held));
}

/* zk_assert_permit(name text) returns bigint */
Datum
zk_assert_permit(PG_FUNCTION_ARGS)
{
	return zklock_assert(fcinfo, ZKLOCK_KIND_SEMAPHORE);
}
