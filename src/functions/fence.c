/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  zk_fence: lets the data refuse a late holder.  zk_fence_table: also refuses a
 *	  session that is no holder.
 *
 * The last check of a lock is at PRE_COMMIT.  Between that check and the commit record,
 * the lock can be lost, as with any lock service.  An ordinary row in the written
 * database closes this gap.  It remembers the largest token seen for a resource, and
 * stays locked until the transaction ends.  The row lock orders the transactions, and
 * the token orders the holders.
 *
 * Nothing here needs shared memory or the ensemble: the written database may belong to
 * a server without them.  But zk_fence looks at the holds of this session, since the
 * token of a hold may be no fence.
 *
 * The table is written without SQL; see owntable.h.
 *
 * Logical replication writes the table, too, if a publication contains it (FOR ALL
 * TABLES).  A row of the publisher may have a smaller token than this database has
 * seen, and then a late holder would pass here.  So a trigger treats a replicated row
 * as a call of zk_fence: it raises tokens, and neither lowers nor deletes one.
 *
 * A user may switch that trigger off without meaning to.  ALTER TABLE ... ENABLE
 * TRIGGER ALL, with which pg_restore --disable-triggers ends, leaves the trigger
 * enabled for all writes except those of replication.  Then a check constraint refuses
 * replicated rows: what disables triggers disables no check.  (From 19 on its owner can
 * say NOT ENFORCED, but must mean it.)  But PostgreSQL checks no row that it deletes.
 *
 * zk_fence_table puts a trigger on a user's table.  The trigger asks whether this
 * transaction has shown a token of the resource.  The row of the resource remembers
 * that.  zk_fence writes the row each time, so its newest version is this transaction's
 * own, and goes when the subtransaction that has shown the token is rolled back.  A
 * holder of the lock shows its token by its first write.  Only the owner of zk_fences
 * can forge that.
 *
 * ../../sql/zklock_fence.sql does the same in PL/pgSQL, for databases without zklock: a
 * change here needs the same change there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "arguments.h"
#include "hold.h"
#include "loss.h"
#include "names.h"
#include "owntable.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(zk_fence);
PG_FUNCTION_INFO_V1(zk_fence_required);
PG_FUNCTION_INFO_V1(zk_fence_replicated);
PG_FUNCTION_INFO_V1(zk_fence_guarded);

/* bytes in the server encoding; with the namespace they must fit into an index */
#define RESOURCE_MAX 1000

/* The table zk_fences, opened, and the key of a row: namespace and resource. */
typedef struct Fences
{
	ZkOwnTable own;
	Relation index;
	AttrNumber token; /* columns */
	AttrNumber key[2];
	Datum value[2]; /* of the row that is looked for */
} Fences;

/* ------------------------------------------------------------------------
 * The table
 * ------------------------------------------------------------------------
 */

/* Open the table of the function's extension, for writing until the transaction ends. */
static void
open_fences(Oid function, Fences *fences)
{
	ZkOwnTable own = {.name = "zk_fences", .has = "tokens"};
	AttrNumber known[3];
	List *indexes;

	zklock_own_open(&own, function);
	fences->token = zklock_own_column(&own, "token", INT8OID);
	fences->key[0] = zklock_own_column(&own, "namespace", TEXTOID);
	fences->key[1] = zklock_own_column(&own, "resource", TEXTOID);
	known[0] = fences->token;
	known[1] = fences->key[0];
	known[2] = fences->key[1];
	zklock_own_check_columns(&own, known, lengthof(known));

	/* one index has no expression and no condition: that of a primary key */
	indexes = RelationGetIndexList(own.rel);
	if (list_length(indexes) != 1 || linitial_oid(indexes) != own.rel->rd_pkindex)
		zklock_own_refuse(&own,
						  "It has an index besides its primary key, or no primary key.");
	fences->index = index_open(own.rel->rd_pkindex, AccessShareLock);
	if (!zklock_own_index_matches(fences->index, fences->key, 2))
		zklock_own_refuse(&own, "It has another primary key.");
	fences->own = own;
}

static void
close_fences(Fences *fences)
{
	index_close(fences->index, NoLock);
	zklock_own_close(&fences->own);
}

/* ------------------------------------------------------------------------
 * A row
 * ------------------------------------------------------------------------
 */

/* Find the row as committed now: its place, and the transaction that has written it.
 * False if there is none. */
static bool
find_row(const Fences *fences, ItemPointer where, TransactionId *made_by)
{
	ScanKeyData key[2];
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan;
	HeapTuple tuple;

	for (int i = 0; i < 2; i++)
		ScanKeyEntryInitialize(&key[i], 0, fences->key[i], BTEqualStrategyNumber,
							   InvalidOid, fences->index->rd_indcollation[i], F_TEXTEQ,
							   fences->value[i]);
	scan = systable_beginscan_ordered(fences->own.rel, fences->index, snapshot, 2, key);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (tuple != NULL)
	{
		ItemPointerCopy(&tuple->t_self, where);
		*made_by = HeapTupleHeaderGetXmin(tuple->t_data);
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	return tuple != NULL;
}

pg_noreturn static void
raise_concurrent_update(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update")));
}

/*
 * Lock the row until the transaction ends, after a wait for any transaction that has
 * locked it.  False if the row has changed meanwhile.  In REPEATABLE READ and
 * SERIALIZABLE a changed row is an error, as with an UPDATE, and so is a row that the
 * transaction's snapshot does not show.
 */
static bool
lock_row(const Fences *fences, ItemPointer where, TupleTableSlot *row)
{
	TM_FailureData failure;
	TransactionId made_by;
	bool isnull;
	TM_Result result = table_tuple_lock(fences->own.rel, where, SnapshotSelf, row,
										GetCurrentCommandId(false), LockTupleNoKeyExclusive,
										LockWaitBlock, 0, &failure);

	if (result != TM_Ok && result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected result %d of locking a fence", (int) result);
	if (!IsolationUsesXactSnapshot())
		return result == TM_Ok;
	if (result != TM_Ok)
		raise_concurrent_update();
	made_by = DatumGetTransactionId(
		slot_getsysattr(row, MinTransactionIdAttributeNumber, &isnull));
	if (!TransactionIdIsCurrentTransactionId(made_by) &&
		!table_tuple_satisfies_snapshot(fences->own.rel, row, GetTransactionSnapshot()))
		raise_concurrent_update();
	return true;
}

/* Insert the row.  False if another transaction has inserted it meanwhile; that shows
 * as a unique violation, after a wait for the end of that transaction. */
static bool
insert_row(const Fences *fences, int64 token)
{
	TupleDesc desc = RelationGetDescr(fences->own.rel);
	Datum *values = palloc0(sizeof(Datum) * (Size) desc->natts);
	bool *nulls = palloc((Size) desc->natts);
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool made = true;

	memset(nulls, true, (Size) desc->natts);
	zklock_own_set(values, nulls, fences->token, Int64GetDatum(token));
	for (int i = 0; i < 2; i++)
		zklock_own_set(values, nulls, fences->key[i], fences->value[i]);

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		CatalogTupleInsert(fences->own.rel, heap_form_tuple(desc, values, nulls));
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION)
			ReThrowError(error);
		FreeErrorData(error);
		made = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return made;
}

/*
 * Put the token into a locked row.  The write orders the transactions that come later.
 */
static void
update_row(const Fences *fences, TupleTableSlot *row, int64 token)
{
	TupleDesc desc = RelationGetDescr(fences->own.rel);
	Datum *values = palloc0(sizeof(Datum) * (Size) desc->natts);
	bool *nulls = palloc0((Size) desc->natts);
	bool *replace = palloc0((Size) desc->natts);
	HeapTuple old = ExecFetchSlotHeapTuple(row, true, NULL);
	HeapTuple tuple;

	values[fences->token - 1] = Int64GetDatum(token);
	replace[fences->token - 1] = true;
	tuple = heap_modify_tuple(old, desc, values, nulls, replace);
	CatalogTupleUpdate(fences->own.rel, &tuple->t_self, tuple);
}

/* Remember the token, unless there is a larger one.  Returns the largest. */
static int64
remember(const Fences *fences, int64 token)
{
	TupleTableSlot *row = table_slot_create(fences->own.rel, NULL);
	ItemPointerData where;
	TransactionId made_by;
	int64 largest = token;

	for (;;)
	{
		bool isnull;

		CHECK_FOR_INTERRUPTS();
		if (!find_row(fences, &where, &made_by))
		{
			if (insert_row(fences, token))
				break;
		}
		else if (lock_row(fences, &where, row))
		{
			largest = DatumGetInt64(slot_getattr(row, fences->token, &isnull));
			if (isnull)
				zklock_own_refuse(&fences->own, "It has a row without a token.");
			if (largest <= token)
			{
				update_row(fences, row, token);
				largest = token;
			}
			break;
		}
	}
	ExecDropSingleTupleTableSlot(row);
	/* for whoever reads it next, in this statement, too */
	CommandCounterIncrement();
	return largest;
}

/*
 * A fence orders holders that come one after the other.  Holders at the same time may
 * write in any order: the token of one would lock out another, which has lost nothing
 * and will not get a larger token.  This can be checked for the holds of this session;
 * elsewhere a token is only a number.
 */
static void
refuse_shared(int64 token)
{
	const ZkHeldLock *held;

	zklock_hold_end_void();
	held = zklock_held_find_shared(token);
	if (held == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot fence with token %lld", (long long) token),
			 held->permits > 1
				 ? errdetail("This session has one of %d permits of semaphore \"%s\", and other sessions may have the others at the same time.",
							 held->permits, zklock_display_name(held->name))
				 : errdetail("This session holds lock \"%s\" in shared mode, and other sessions may do so at the same time.",
							 zklock_display_name(held->name)),
			 errhint("Acquire a lock in exclusive mode and use its token.")));
}

/* Remember the token, or refuse it because a later holder has shown a larger one. */
static void
show(const Fences *fences, int64 token)
{
	int64 largest = remember(fences, token);

	if (largest > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("fencing token %lld for resource \"%s\" is too old",
						(long long) token, TextDatumGetCString(fences->value[1])),
				 errdetail("The resource has seen token %lld: another holder has had the lock since.",
						   (long long) largest),
				 errhint(
					 "Acquire the lock again, in exclusive mode, and retry the transaction. If the ensemble was wiped or restored and this is refused again and again, a superuser can use SELECT zk_raise_tokens(max(token)) FROM zk_fences.")));
}

/* zk_fence(resource text, token bigint) returns void */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	text *resource;
	int64 token;
	Size resource_len;
	Fences fences;

	ZKLOCK_REFUSE_NULLS("resource name", "fencing token");
	resource = PG_GETARG_TEXT_PP(0);
	token = PG_GETARG_INT64(1);
	resource_len = VARSIZE_ANY_EXHDR(resource);
	if (resource_len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resource name must not be empty")));
	if (resource_len > RESOURCE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resource name is too long"),
				 errdetail("The name has %zu bytes; a resource name has 1 to %d.",
						   resource_len, RESOURCE_MAX)));
	PreventCommandIfReadOnly("zk_fence()");
	PreventCommandIfParallelMode("zk_fence()");
	refuse_shared(token);

	open_fences(fcinfo->flinfo->fn_oid, &fences);
	fences.value[0] = CStringGetTextDatum(zklock_namespace);
	fences.value[1] = PointerGetDatum(resource);
	show(&fences, token);
	close_fences(&fences);
	PG_RETURN_VOID();
}

/* The session's lock of that name if no other session may hold it at the same time, or
 * NULL. */
static ZkHeldLock *
find_lock(const char *resource)
{
	text *name = cstring_to_text(resource);
	size_t len = strlen(zklock_namespace);
	char full[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	/* a resource may have a name that is too long for a lock */
	len = strlen(zklock_to_utf8(name)) + (len > 0 ? len + 1 : 0);
	if (len > ZKLOCK_NAME_MAX)
		return NULL;
	zklock_get_name(ZKLOCK_KIND_LOCK, name, full);
	zklock_hold_end_void();
	held = zklock_held_find(ZKLOCK_KIND_LOCK, full);
	return held != NULL && zklock_held_mode(held) == ZKLOCK_EXCLUSIVE ? held : NULL;
}

pg_noreturn static void
refuse_write(Relation rel, const char *resource, const char *namespace)
{
	char *literal = quote_literal_cstr(resource);

	if (strcmp(namespace, zklock_namespace) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write table \"%s\" in namespace \"%s\"",
						RelationGetRelationName(rel), zklock_namespace),
				 errdetail("Its fence belongs to namespace \"%s\".", namespace)));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot write table \"%s\" without lock \"%s\"",
					RelationGetRelationName(rel), resource),
			 errdetail(
				 "This session does not hold the lock in exclusive mode, and this transaction has not shown a fencing token of the lock."),
			 errhint("In the same transaction, first use SELECT zk_lock(%s), or SELECT zk_fence(%s, token) if another session holds the lock.",
					 literal, literal)));
}

/*
 * zk_fence_required() returns trigger
 *
 * Fires before each statement, or each row, that writes a table of zk_fence_table.
 * Arguments: the resource and the namespace.
 */
Datum
zk_fence_required(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Fences fences;
	const char *resource;
	const char *namespace;
	ItemPointerData where;
	TransactionId made_by;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		trigger->tg_trigger->tgnargs != 2)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as a trigger that zk_fence_table has made",
						"zk_fence_required")));
	resource = trigger->tg_trigger->tgargs[0];
	namespace = trigger->tg_trigger->tgargs[1];

	open_fences(fcinfo->flinfo->fn_oid, &fences);
	fences.value[0] = CStringGetTextDatum(namespace);
	fences.value[1] = CStringGetTextDatum(resource);
	if (!find_row(&fences, &where, &made_by) ||
		!TransactionIdIsCurrentTransactionId(made_by))
	{
		bool ours = strcmp(namespace, zklock_namespace) == 0;
		ZkHeldLock *held = ours ? find_lock(resource) : NULL;

		if (held == NULL)
			refuse_write(trigger->tg_relation, resource, namespace);
		show(&fences, zklock_loss_claim(held));
	}
	close_fences(&fences);
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)
							   ? trigger->tg_newtuple
							   : trigger->tg_trigtuple);
}

/*
 * zk_fence_replicated() returns trigger
 *
 * Fires before each row that is written in replica mode (session_replication_role).  If
 * a user has enabled it for another mode, the row is written as it is.
 */
Datum
zk_fence_replicated(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Fences fences;
	HeapTuple row;
	TupleDesc desc;
	Datum token;
	bool isnull;
	bool as_it_is;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as a trigger before each row",
						"zk_fence_replicated")));
	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple
													 : trigger->tg_trigtuple;

	open_fences(fcinfo->flinfo->fn_oid, &fences);
	if (RelationGetRelid(fences.own.rel) != RelationGetRelid(trigger->tg_relation))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" is for table \"%s\" only", "zk_fence_replicated",
						fences.own.name)));
	desc = RelationGetDescr(fences.own.rel);
	/* PostgreSQL refuses a row that lacks something */
	token = heap_getattr(row, fences.token, desc, &as_it_is);
	for (int i = 0; i < 2; i++)
	{
		fences.value[i] = heap_getattr(row, fences.key[i], desc, &isnull);
		as_it_is |= isnull;
	}
	as_it_is |= SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
	if (!as_it_is && !TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		(void) remember(&fences, DatumGetInt64(token));
	close_fences(&fences);
	return PointerGetDatum(as_it_is ? row : NULL);
}

/*
 * zk_fence_guarded() returns boolean
 *
 * The check of zk_fences.  In replica mode the trigger leaves no row to be written, so
 * there is none to be checked.  If the check sees a row, the trigger has not fired.
 */
Datum
zk_fence_guarded(PG_FUNCTION_ARGS)
{
	Oid schema = get_func_namespace(fcinfo->flinfo->fn_oid);

	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write table \"%s\" in replica mode", "zk_fences"),
				 errdetail(
					 "Its trigger does not fire in this mode, which is that of logical replication. Without it a fencing token could be lowered, and a late holder would pass."),
				 errhint("Use ALTER TABLE %s.%s ENABLE REPLICA TRIGGER %s.",
						 quote_identifier(get_namespace_name(schema)), "zk_fences",
						 "zk_fences_replicated")));
	PG_RETURN_BOOL(true);
}
