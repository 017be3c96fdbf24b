/*-------------------------------------------------------------------------
 *
 * gate_sql.c
 *	  SQL functions of gates.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "arguments.h"
#include "check.h"
#include "gate_backend.h"
#include "lock_sql.h"

PG_FUNCTION_INFO_V1(zk_gate_close);
PG_FUNCTION_INFO_V1(zk_gate_open);
PG_FUNCTION_INFO_V1(zk_gate_assert);
PG_FUNCTION_INFO_V1(zk_gate_is_open);

/* zk_gate_close(name text) returns bigint */
Datum
zk_gate_close(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("gate name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_GATE, PG_GETARG_TEXT_PP(0), name);
	PG_RETURN_INT64(zklock_gate_close(name));
}

/* zk_gate_open(name text) returns boolean */
Datum
zk_gate_open(PG_FUNCTION_ARGS)
{
	return zklock_release(fcinfo, ZKLOCK_KIND_GATE);
}

/* zk_gate_assert(name text) returns bigint */
Datum
zk_gate_assert(PG_FUNCTION_ARGS)
{
	return zklock_assert(fcinfo, ZKLOCK_KIND_GATE);
}

/* zk_gate_is_open(name text) returns boolean */
Datum
zk_gate_is_open(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("gate name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_GATE, PG_GETARG_TEXT_PP(0), name);
	PG_RETURN_BOOL(zklock_gate_look(name));
}
