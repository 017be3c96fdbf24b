/*-------------------------------------------------------------------------
 *
 * job_runs.c
 *	  zk_runs: the runs of jobs and of zk_run_as_leader in this database.
 *
 * The table is written without SQL; see owntable.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "job_runs.h"
#include "names.h"
#include "owntable.h"
#include "settings.h"
#include "zktime.h"

#define TABLE_NAME "zk_runs"

/* Number of old rows that one run deletes at most: more than it adds. */
#define DELETED_AT_A_TIME 100

typedef enum Column
{
	/* the first index's key */
	KIND,
	NAMESPACE,
	NAME,
	SLOT,
	/* the second's */
	ENDED,
	NUMBER,
	TOKEN,
	ATTEMPT,
	SERVER,
	STARTED,
	OUTCOME,
	ERROR_TEXT
} Column;

#define NCOLUMNS (ERROR_TEXT + 1)
#define NKEYS	 (SLOT + 1)

static const struct
{
	const char *name;
	Oid type;
} columns[NCOLUMNS] = {
	[KIND] = {"kind", TEXTOID},			 [NAMESPACE] = {"namespace", TEXTOID},
	[NAME] = {"name", TEXTOID},			 [SLOT] = {"slot", TIMESTAMPTZOID},
	[ENDED] = {"ended", TIMESTAMPTZOID}, [NUMBER] = {"number", INT8OID},
	[TOKEN] = {"token", INT8OID},		 [ATTEMPT] = {"attempt", INT4OID},
	[SERVER] = {"server", TEXTOID},		 [STARTED] = {"started", TIMESTAMPTZOID},
	[OUTCOME] = {"outcome", TEXTOID},	 [ERROR_TEXT] = {"error", TEXTOID},
};

/* The table zk_runs, opened. */
typedef struct Runs
{
	ZkOwnTable own;
	Relation by_slot;
	Relation by_end;
	AttrNumber column[NCOLUMNS];
} Runs;

StaticAssertDecl((ZKLOCK_JOB_TIME_MIN - ZKLOCK_MS_TO_2000) * 1000 == MIN_TIMESTAMP &&
					 (ZKLOCK_JOB_TIME_MAX + 1 - ZKLOCK_MS_TO_2000) * 1000 == END_TIMESTAMP,
				 "a time of a job's record is a timestamp");

/* ------------------------------------------------------------------------
 * The table
 * ------------------------------------------------------------------------
 */

static void
open_indexes(Runs *runs)
{
	List *indexes = RelationGetIndexList(runs->own.rel);
	ListCell *cell;

	foreach (cell, indexes)
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);

		if (RelationGetIndexExpressions(index) != NIL ||
			RelationGetIndexPredicate(index) != NIL || index->rd_index->indisexclusion)
			zklock_own_refuse(&runs->own,
							  "It has an index with an expression or a condition.");
		if (runs->by_slot == NULL &&
			zklock_own_index_matches(index, &runs->column[KIND], NKEYS))
			runs->by_slot = index;
		else if (runs->by_end == NULL &&
				 zklock_own_index_matches(index, &runs->column[ENDED], 1))
			runs->by_end = index;
		else
			index_close(index, NoLock);
	}
	if (runs->by_slot == NULL || runs->by_end == NULL)
		zklock_own_refuse(&runs->own, "It lacks an index.");
}

static void
open_runs(Oid function, Runs *runs)
{
	memset(runs, 0, sizeof(*runs));
	runs->own.name = TABLE_NAME;
	runs->own.has = "runs";
	zklock_own_open(&runs->own, function);
	for (int i = 0; i < NCOLUMNS; i++)
		runs->column[i] = zklock_own_column(&runs->own, columns[i].name, columns[i].type);
	zklock_own_check_columns(&runs->own, runs->column, NCOLUMNS);
	open_indexes(runs);
}

static void
close_runs(Runs *runs)
{
	index_close(runs->by_slot, NoLock);
	index_close(runs->by_end, NoLock);
	zklock_own_close(&runs->own);
}

/* ------------------------------------------------------------------------
 * Writing
 * ------------------------------------------------------------------------
 */

static Datum
text_datum(const char *text)
{
	return CStringGetTextDatum(text);
}

/* A name's namespace, or "". */
static Datum
namespace_datum(const char *name)
{
	size_t len = (size_t) (zklock_local_name(name) - name);

	return text_datum(pnstrdup(name, len > 0 ? len - 1 : 0));
}

static void
insert_row(const Runs *runs, const ZkRunRow *row)
{
	TupleDesc desc = RelationGetDescr(runs->own.rel);
	const AttrNumber *column = runs->column;
	Datum *values = palloc0(sizeof(Datum) * (Size) desc->natts);
	bool *nulls = palloc((Size) desc->natts);
	const ZkJobRun *run = row->run;
	char server[256];

	memset(nulls, true, (Size) desc->natts);
	zklock_effective_server_name(server, sizeof(server));
	zklock_own_set(values, nulls, column[KIND], text_datum(zklock_kinds[row->kind].name));
	zklock_own_set(values, nulls, column[NAMESPACE], namespace_datum(row->name));
	zklock_own_set(values, nulls, column[NAME], text_datum(zklock_display_name(row->name)));
	zklock_own_set(values, nulls, column[TOKEN], Int64GetDatum(row->token));
	zklock_own_set(values, nulls, column[SERVER], text_datum(zklock_display_text(server)));
	zklock_own_set(values, nulls, column[STARTED], TimestampTzGetDatum(row->started));
	zklock_own_set(values, nulls, column[ENDED],
				   TimestampTzGetDatum(GetCurrentTimestamp()));
	zklock_own_set(values, nulls, column[OUTCOME],
				   text_datum(row->done ? "done" : "failed"));
	if (run != NULL)
	{
		zklock_own_set(values, nulls, column[SLOT],
					   TimestampTzGetDatum(zklock_time_of_ms(run->slot)));
		zklock_own_set(values, nulls, column[NUMBER], Int64GetDatum(run->id.number));
		zklock_own_set(values, nulls, column[ATTEMPT], Int32GetDatum(run->attempt));
	}
	if (row->error != NULL)
		zklock_own_set(values, nulls, column[ERROR_TEXT],
					   text_datum(zklock_display_text(row->error)));
	CatalogTupleInsert(runs->own.rel, heap_form_tuple(desc, values, nulls));
}

/* Delete old rows.  A row that another transaction deletes is left to it. */
static void
delete_old(const Runs *runs)
{
	ScanKeyData key;
	Snapshot snapshot;
	SysScanDesc scan;
	HeapTuple tuple;
	int n = 0;

	if (zklock_run_history < 0)
		return;
	ScanKeyInit(&key, runs->column[ENDED], BTLessStrategyNumber, F_TIMESTAMPTZ_LT,
				TimestampTzGetDatum(GetCurrentTimestamp() -
									zklock_run_history * USECS_PER_MINUTE));
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan_ordered(runs->own.rel, runs->by_end, snapshot, 1, &key);
	while (n++ < DELETED_AT_A_TIME &&
		   (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		TM_FailureData failure;

		(void) ZKLOCK_HEAP_DELETE(runs->own.rel, &tuple->t_self, &failure);
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
}

void
zklock_job_runs_insert(Oid function, const ZkRunRow *row)
{
	Runs runs;

	open_runs(function, &runs);
	insert_row(&runs, row);
	delete_old(&runs);
	close_runs(&runs);
	CommandCounterIncrement();
}

bool
zklock_job_runs_ready(Oid function)
{
	Oid oid = get_relname_relid(TABLE_NAME, get_func_namespace(function));

	return OidIsValid(oid) && ConditionalLockRelationOid(oid, RowExclusiveLock);
}

/* ------------------------------------------------------------------------
 * Reading
 * ------------------------------------------------------------------------
 */

/* A column of type bigint, or 0. */
static int64_t
get_int64(const Runs *runs, HeapTuple tuple, Column column)
{
	bool isnull;
	Datum value = heap_getattr(tuple, runs->column[column],
							   RelationGetDescr(runs->own.rel), &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

/* Is the run of the row done, and is it "run", or counted by the record, whichever is
 * given? */
static bool
is_done(const Runs *runs, HeapTuple tuple, const ZkJobRun *run, const ZkJob *record)
{
	bool isnull;
	Datum outcome = heap_getattr(tuple, runs->column[OUTCOME],
								 RelationGetDescr(runs->own.rel), &isnull);
	ZkJobId id = {.token = get_int64(runs, tuple, TOKEN),
				  .number = get_int64(runs, tuple, NUMBER)};

	if (isnull || strcmp(TextDatumGetCString(outcome), "done") != 0)
		return false;
	return run != NULL ? id.token == run->id.token && id.number == run->id.number
					   : zklock_job_counts(record, id);
}

/* The latest slot of a job with a row for which is_done is true; for a run, its own
 * slot. */
static int64_t
find_done(Oid function, const char *job, const ZkJobRun *run, const ZkJob *record)
{
	Runs runs;
	ScanKeyData key[NKEYS];
	int nkeys = run != NULL ? NKEYS : SLOT;
	Datum value[NKEYS];
	Snapshot snapshot;
	SysScanDesc scan;
	HeapTuple tuple;
	int64_t found = ZKLOCK_JOB_NEVER;

	open_runs(function, &runs);
	value[KIND] = text_datum(zklock_kinds[ZKLOCK_KIND_JOB].name);
	value[NAMESPACE] = namespace_datum(job);
	value[NAME] = text_datum(zklock_display_name(job));
	if (run != NULL)
		value[SLOT] = TimestampTzGetDatum(zklock_time_of_ms(run->slot));
	for (int i = 0; i < nkeys; i++)
		ScanKeyEntryInitialize(&key[i], 0, runs.column[i], BTEqualStrategyNumber,
							   InvalidOid, runs.by_slot->rd_indcollation[i],
							   i == SLOT ? F_TIMESTAMPTZ_EQ : F_TEXTEQ, value[i]);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan_ordered(runs.own.rel, runs.by_slot, snapshot, nkeys, key);
	while ((tuple = systable_getnext_ordered(scan, BackwardScanDirection)) != NULL)
	{
		bool isnull;
		Datum of = heap_getattr(tuple, runs.column[SLOT], RelationGetDescr(runs.own.rel),
								&isnull);

		if (!isnull && is_done(&runs, tuple, run, record))
		{
			found = zklock_ms_of_time(DatumGetTimestampTz(of));
			break;
		}
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	close_runs(&runs);
	return found;
}

int64_t
zklock_job_runs_last_done(Oid function, const char *job, const ZkJob *record)
{
	return find_done(function, job, NULL, record);
}

bool
zklock_job_runs_committed(Oid function, const char *job, const ZkJobRun *run)
{
	return find_done(function, job, run, NULL) != ZKLOCK_JOB_NEVER;
}
