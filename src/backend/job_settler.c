/*-------------------------------------------------------------------------
 *
 * job_settler.c
 *	  The settlers: processes that settle runs of jobs; see job_worker.c.
 *
 * The settler without a database reads the records of all jobs for runs of this server
 * whose end nobody else can tell, and looks at the jobs that sessions have left to the
 * server.  The tables with the outcomes are in databases.  So it names these databases
 * to the worker, which starts a settler in each.
 *
 * If a settler ends before it is done, the worker makes another attempt.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timeout.h"

#include "background.h"
#include "contender.h"
#include "job_backend.h"
#include "job_record.h"
#include "job_settler.h"
#include "names.h"
#include "proclock.h"
#include "table.h"

/* ms: how long a settler may take, so that other processes have their turn */
#define LIMIT 30000

static bool connected = false;
static bool done = false;

/* The settler had no connection to its database: it may be gone. */
static void
on_exit_early(int code, Datum arg)
{
	if (!done)
		zklock_job_want_settler(connected ? DatumGetObjectId(arg) : InvalidOid, false);
}

/* ------------------------------------------------------------------------
 * Which databases
 * ------------------------------------------------------------------------
 */

/* Does the database exist?  The settler that asks is without a database, so it has no
 * system caches. */
static bool
database_exists(Oid database)
{
	Relation databases;
	TableScanDesc scan;
	ScanKeyData key;
	bool found;

	StartTransactionCommand();
	databases = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	scan = table_beginscan_catalog(databases, 1, &key);
	found = heap_getnext(scan, ForwardScanDirection) != NULL;
	table_endscan(scan);
	table_close(databases, AccessShareLock);
	CommitTransactionCommand();
	return found;
}

/* Nobody can settle the run any more: it stays in doubt for all. */
static void
give_up(const ZkLeftRun *left, const char *why)
{
	zklock_proclock_settled(left->proclock, left->run);
	ereport(LOG,
			(errmsg("job \"%s\": run %lld stays in doubt",
					zklock_display_name(left->name), (long long) left->run.number),
			 errdetail("%s", why)));
}

static void
want_in(uint64 database)
{
	if (database <= PG_UINT32_MAX && database_exists((Oid) database))
		zklock_job_want_settler((Oid) database, true);
}

/* Find the databases of this server with runs that are to be settled. */
static void
find_databases(void)
{
	ZkJob *job = palloc(sizeof(ZkJob));
	ZkLeftRun left = {.proclock = -1};
	ZkNode *nodes;
	int64_t now;
	int n;

	while (zklock_proclock_next_left(left.proclock + 1, &left))
	{
		if (database_exists(left.database))
			zklock_job_want_settler(left.database, true);
		else
			give_up(&left, "Its database is gone.");
	}
	n = zklock_query_records(&nodes, &now);
	for (int i = 0; i < n; i++)
	{
		if (zklock_job_record_parse(&nodes[i], job) != ZKLOCK_RECORD_GOOD)
			continue;
		for (int j = 0; j < job->nruns; j++)
		{
			ZkJobServer self = zklock_job_self(job->run[j].database);

			if (zklock_job_open(job, &self, j) == j)
				want_in(self.database);
		}
	}
}

/* ------------------------------------------------------------------------
 * One database
 * ------------------------------------------------------------------------
 */

/* A function of the extension whose tables are meant, or InvalidOid. */
static Oid
find_function(void)
{
	Relation extensions = table_open(ExtensionRelationId, AccessShareLock);
	Oid function = InvalidOid;
	Oid arguments[] = {TEXTOID};
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("zklock"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		function =
			GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("zk_rows"),
							PointerGetDatum(buildoidvector(arguments, lengthof(arguments))),
							ObjectIdGetDatum(
								((Form_pg_extension) GETSTRUCT(tuple))->extnamespace));
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return function;
}

/* Settle the runs of one job, in a transaction.  An error concerns that job alone.
 * False: no time is left. */
static bool
settle_job(const char *name, bool *failed)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool goes_on = true;

	PG_TRY();
	{
		StartTransactionCommand();
		zklock_job_settle_runs(find_function(), name);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		*failed = true;
		goes_on = error->sqlerrcode != ERRCODE_QUERY_CANCELED;
		ereport(LOG,
				(errmsg("could not settle the runs of job \"%s\"",
						zklock_display_name(name)),
				 errdetail("%s", error->message),
				 error->hint != NULL ? errhint("%s", error->hint) : 0));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return goes_on;
}

/* Find the node of a job's record, or NULL. */
static const ZkNode *
find_node(const ZkNode *nodes, int n, const char *name)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];

	zklock_encode_name(name, encoded);
	for (int i = 0; i < n; i++)
	{
		if (strcmp(nodes[i].name, encoded) == 0)
			return &nodes[i];
	}
	return NULL;
}

/*
 * Settle all runs of this database.  False: some could not be settled.  If a newer
 * server has changed the record, a run that is left keeps its job until this server is
 * updated: otherwise others would find the run in doubt, and run the slot again.
 */
static bool
settle_all(void)
{
	ZkJobServer self = zklock_job_self(MyDatabaseId);
	ZkJob *job = palloc(sizeof(ZkJob));
	ZkLeftRun left = {.proclock = -1};
	bool failed = false;
	List *all_left = NIL;
	ListCell *cell;
	ZkNode *nodes;
	int64_t now;
	int n;

	/* before the records are read, which say all of these then */
	while (zklock_proclock_next_left(left.proclock + 1, &left))
	{
		if (left.database == MyDatabaseId)
			all_left = lappend(all_left, memcpy(palloc(sizeof(left)), &left, sizeof(left)));
	}
	n = zklock_query_records(&nodes, &now);
	foreach (cell, all_left)
	{
		const ZkLeftRun *run = lfirst(cell);
		const ZkNode *node = find_node(nodes, n, run->name);

		if (node == NULL || zklock_job_record_parse(node, job) == ZKLOCK_RECORD_DAMAGED)
			give_up(run, "The record of the job cannot be read.");
		else if (!settle_job(run->name, &failed))
			return false;
	}
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];

		if (zklock_decode_name(nodes[i].name, name) &&
			zklock_job_record_parse(&nodes[i], job) == ZKLOCK_RECORD_GOOD &&
			zklock_job_open(job, &self, 0) >= 0 && !settle_job(name, &failed))
			return false;
	}
	return !failed;
}

void
zklock_job_settler_main(Datum arg)
{
	Oid database = DatumGetObjectId(arg);

	zklock_background_begin();
	before_shmem_exit(on_exit_early, arg);
	if (OidIsValid(database))
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
												  BGWORKER_BYPASS_ALLOWCONN);
	else
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	connected = true;
	enable_timeout_after(STATEMENT_TIMEOUT, LIMIT);
	MemoryContextSwitchTo(TopMemoryContext); /* until the process ends */
	if (OidIsValid(database))
		done = settle_all();
	else
	{
		find_databases();
		done = true;
	}
}
