/*-------------------------------------------------------------------------
 *
 * slotcalls.c
 *	  SQL functions of slots.
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
#include "loss.h"
#include "names.h"
#include "room.h"
#include "slotcalls.h"
#include "slotnumber.h"

PG_FUNCTION_INFO_V1(zk_acquire);
PG_FUNCTION_INFO_V1(zk_try_acquire);
PG_FUNCTION_INFO_V1(zk_slot);

/* zk_acquire(name text, slots integer, scope text) returns bigint */
Datum
zk_acquire(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int slots;
	ZkLockScope scope;
	int64 token = 0;

	ZKLOCK_REFUSE_NULLS("slot name", "number of slots", "lock scope");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_SLOT, PG_GETARG_TEXT_PP(0), name);
	slots = zklock_get_slots(PG_GETARG_INT32(1));
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), false);
	zklock_loss_acknowledge();
	(void) zklock_acquire_slot(name, slots, scope, ZKLOCK_WAIT_FOREVER, &token);
	PG_RETURN_INT64(token);
}

/* zk_try_acquire(name text, slots integer, scope text, timeout interval) returns boolean */
Datum
zk_try_acquire(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int slots;
	ZkLockScope scope;
	int64 timeout;
	int64 token;

	ZKLOCK_REFUSE_NULLS("slot name", "number of slots", "lock scope", "timeout");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_SLOT, PG_GETARG_TEXT_PP(0), name);
	slots = zklock_get_slots(PG_GETARG_INT32(1));
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), false);
	timeout = zklock_get_timeout(PG_GETARG_INTERVAL_P(3), "timeout");
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_acquire_slot(name, slots, scope, timeout, &token));
}

/* zk_slot(name text) returns integer */
Datum
zk_slot(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	ZKLOCK_REFUSE_NULLS("slot name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_SLOT, PG_GETARG_TEXT_PP(0), name);
	zklock_hold_end_void();
	held = zklock_held_find(ZKLOCK_KIND_SLOT, name);
	if (held == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("you do not hold slot \"%s\"", zklock_display_name(name))));
	PG_RETURN_INT32(zklock_slot_number(held));
}
