/*-------------------------------------------------------------------------
 *
 * lock_sql.c
 *	  SQL functions of locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "arguments.h"
#include "check.h"
#include "command.h"
#include "hold.h"
#include "lock_sql.h"
#include "loss.h"
#include "names.h"
#include "query.h"
#include "room.h"
#include "set_backend.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_lock_all);
PG_FUNCTION_INFO_V1(zk_try_lock_all);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_token);
PG_FUNCTION_INFO_V1(zk_assert);
PG_FUNCTION_INFO_V1(zk_lock_session);

/* zk_lock(name text, mode text, scope text) returns bigint */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	ZkLockScope scope;
	int64 token = 0;

	ZKLOCK_REFUSE_NULLS("lock name", "lock mode", "lock scope");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	mode = zklock_get_mode(PG_GETARG_TEXT_PP(1), true);
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), true);
	zklock_loss_acknowledge();
	(void) zklock_acquire(ZKLOCK_KIND_LOCK, name, mode, scope, ZKLOCK_WAIT_FOREVER, &token);
	PG_RETURN_INT64(token);
}

/* zk_try_lock(name text, mode text, scope text, timeout interval) returns boolean */
Datum
zk_try_lock(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	ZkLockScope scope;
	int64 timeout;
	int64 token;

	ZKLOCK_REFUSE_NULLS("lock name", "lock mode", "lock scope", NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	mode = zklock_get_mode(PG_GETARG_TEXT_PP(1), true);
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), true);
	timeout = zklock_get_timeout(fcinfo, 3);
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_acquire(ZKLOCK_KIND_LOCK, name, mode, scope, timeout, &token));
}

/*
 * PostgreSQL takes two text literals without a type for two names, even if the first
 * was meant to be an array: zk_lock_all('{a,b}', 'shared') would lock "{a,b}" and
 * "shared".
 */
static void
refuse_array_literal(char **names, int n)
{
	if (n < 2 || n > 3 || names[0][0] != '{' || names[0][strlen(names[0]) - 1] != '}' ||
		(strcmp(names[1], zklock_modes[ZKLOCK_EXCLUSIVE]) != 0 &&
		 strcmp(names[1], zklock_modes[ZKLOCK_SHARED]) != 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_AMBIGUOUS_FUNCTION),
			 errmsg("lock names must be an array where a lock mode is given"),
			 errhint("Write the names as an array, such as ARRAY['a', 'b'].")));
}

/* zk_lock_all(VARIADIC names text[]), and zk_lock_all(names text[], mode text, scope
 * text): return bigint[] */
Datum
zk_lock_all(PG_FUNCTION_ARGS)
{
	int n;
	char **names;
	ZkLockMode mode = ZKLOCK_EXCLUSIVE;
	ZkLockScope scope = ZKLOCK_SCOPE_TRANSACTION;
	int64 *tokens;
	Datum *values;

	if (PG_NARGS() == 1)
		ZKLOCK_REFUSE_NULLS("lock names");
	else
		ZKLOCK_REFUSE_NULLS("lock names", "lock mode", "lock scope");
	zklock_check_callable();
	names = zklock_get_names(ZKLOCK_KIND_LOCK, PG_GETARG_ARRAYTYPE_P(0), &n);
	if (PG_NARGS() > 1)
	{
		mode = zklock_get_mode(PG_GETARG_TEXT_PP(1), true);
		scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), true);
	}
	else
		refuse_array_literal(names, n);
	zklock_loss_acknowledge();
	tokens = palloc(sizeof(int64) * (Size) Max(n, 1));
	(void) zklock_set_acquire(names, n, mode, scope, ZKLOCK_WAIT_FOREVER, tokens);
	values = palloc(sizeof(Datum) * (Size) Max(n, 1));
	for (int i = 0; i < n; i++)
		values[i] = Int64GetDatum(tokens[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(values, n, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* zk_try_lock_all(names text[], mode text, scope text, timeout interval) returns boolean */
Datum
zk_try_lock_all(PG_FUNCTION_ARGS)
{
	int n;
	char **names;
	ZkLockMode mode;
	ZkLockScope scope;
	int64 timeout;

	ZKLOCK_REFUSE_NULLS("lock names", "lock mode", "lock scope", NULL);
	zklock_check_callable();
	names = zklock_get_names(ZKLOCK_KIND_LOCK, PG_GETARG_ARRAYTYPE_P(0), &n);
	mode = zklock_get_mode(PG_GETARG_TEXT_PP(1), true);
	scope = zklock_get_scope(PG_GETARG_TEXT_PP(2), true);
	timeout = zklock_get_timeout(fcinfo, 3);
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_set_acquire(names, n, mode, scope, timeout,
									  palloc(sizeof(int64) * (Size) Max(n, 1))));
}

ZkHeldLock *
zklock_get_held(FunctionCallInfo fcinfo, ZkLockKind kind, char *name)
{
	if (PG_ARGISNULL(0))
		zklock_raise_null(psprintf("%s name", zklock_kinds[kind].name));
	zklock_check_callable();
	zklock_get_name(kind, PG_GETARG_TEXT_PP(0), name);
	zklock_hold_end_void();
	return zklock_held_find(kind, name);
}

Datum
zklock_release(FunctionCallInfo fcinfo, ZkLockKind kind)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held = zklock_get_held(fcinfo, kind, name);

	zklock_loss_acknowledge();
	if (held != NULL && !slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
	{
		zklock_loss_tell(held);
		(void) zklock_hold_end_session_scope(held, false);
		PG_RETURN_BOOL(true);
	}

	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("you do not hold %s \"%s\" in session scope", zklock_kinds[kind].held,
					zklock_display_name(name)),
			 held != NULL ? errhint("A hold in transaction scope ends with its transaction.")
						  : 0));
	PG_RETURN_BOOL(false);
}

/* zk_unlock(name text) returns boolean */
Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	return zklock_release(fcinfo, ZKLOCK_KIND_LOCK);
}

/* zk_unlock_all() returns integer */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	uint64 ended;

	zklock_check_callable();
	zklock_hold_end_void();
	zklock_loss_acknowledge();
	zklock_hold_each_session_scope(zklock_loss_tell);
	ended = zklock_hold_end_all_session_scope(true);
	PG_RETURN_INT32((int32) Min(ended, PG_INT32_MAX));
}

/* zk_token(name text) returns bigint */
Datum
zk_token(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held = zklock_get_held(fcinfo, ZKLOCK_KIND_LOCK, name);

	if (held == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT64(zklock_loss_claim(held));
}

/* Is the contender in the queue?  Another client may have created a node of its name,
 * with our mark. */
static bool
is_queued(const ZkQuery *query, int64 token, int64 session)
{
	ZkNode *nodes;
	int n = zklock_query(query, &nodes);

	for (int i = 0; i < n; i++)
	{
		if (nodes[i].token == token && nodes[i].ephemeral_owner == session)
			return true;
	}
	return false;
}

/*
 * Does our contender still exist?  A watch tells of its deletion, but not always at
 * once (protocol.h, watch_later), and not at all if there are too many watches
 * (watches.h).
 */
static void
prove_contender(ZkHeldLock *held)
{
	ZkLockMode mode =
		held->proclock[ZKLOCK_EXCLUSIVE] >= 0 ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;
	ZkLockEntry *entry = zklock_entry(zklock_proclock(held->proclock[mode])->entry);
	ZkLockKind kind = (ZkLockKind) held->kind;
	ZkQuery query = {.kind = kind, .contenders = true};
	ZkSessionShared session;
	int64 token = 0;
	LWLock *lock;

	zklock_session_read(&session);
	lock = zklock_entry_lock(entry, LW_SHARED); /* our proclock pins it */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];

		if (contender->state != ZKLOCK_GRANTED || contender->mode != mode)
			continue;
		if (zklock_kinds[kind].by_session)
			zklock_format_permit(query.prefix, session.uuid_hi, contender->uuid,
								 contender->permits);
		else
			zklock_format_contender(query.prefix, session.uuid_hi, contender->uuid, kind,
									mode);
		token = contender->token;
	}
	zklock_entry_unlock(lock);
	strlcpy(query.name, held->name, sizeof(query.name));
	/* without one the worker has said that it is lost */
	if (query.prefix[0] != '\0' && !is_queued(&query, token, session.id.id))
		zklock_loss_raise(held);
}

Datum
zklock_assert(FunctionCallInfo fcinfo, ZkLockKind kind)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held = zklock_get_held(fcinfo, kind, name);

	if (held != NULL)
	{
		zklock_loss_prove();
		prove_contender(held);
		PG_RETURN_INT64(zklock_loss_claim(held));
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("you do not hold %s \"%s\"", zklock_kinds[kind].held,
					zklock_display_name(name))));
}

/* zk_assert(name text) returns bigint */
Datum
zk_assert(PG_FUNCTION_ARGS)
{
	return zklock_assert(fcinfo, ZKLOCK_KIND_LOCK);
}

/*
 * CALL zk_lock_session(name text, mode text, timeout interval)
 *
 * Waits without a snapshot.  So the holder of the lock can run commands that wait for
 * old snapshots to end, such as CREATE INDEX CONCURRENTLY.  This takes a transaction of
 * its own.  CALL has begun a transaction and evaluated the arguments in it under a
 * snapshot; the procedure commits that one first.
 */
Datum
zk_lock_session(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	int64 timeout;
	int64 token;

	ZKLOCK_REFUSE_NULLS("lock name", "lock mode", NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	mode = zklock_get_mode(PG_GETARG_TEXT_PP(1), false);
	timeout = zklock_get_timeout(fcinfo, 2);

	zklock_leave_transaction(fcinfo, "zk_lock_session",
							 "Call it on its own, with autocommit on, or use zk_lock(name, mode, 'session').");

	if (!zklock_acquire(ZKLOCK_KIND_LOCK, name, mode, ZKLOCK_SCOPE_SESSION, timeout, &token))
		zklock_waiting_raise_over(ZKLOCK_KIND_LOCK, name, timeout);
	SPI_finish();
	PG_RETURN_VOID();
}
