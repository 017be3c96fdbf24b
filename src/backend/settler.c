/*-------------------------------------------------------------------------
 *
 * settler.c
 *	  The process that settles runs of jobs.
 *
 * It looks through the records of all jobs for runs of this server that nobody else can
 * tell the end of.  The tables that tell are in other databases: for each it starts
 * another process of the same kind, with the database's OID for its argument, and waits
 * for that.
 *
 * Whichever ends before it is done has another attempt made (settle.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "contender.h"
#include "jobrecord.h"
#include "jobrun.h"
#include "settler.h"
#include "table.h"

static bool done = false;

static void
on_exit_early(int code, Datum arg)
{
	if (!done)
		zklock_settle_want();
}

/* ------------------------------------------------------------------------
 * Which databases
 * ------------------------------------------------------------------------
 */

static void
start_in(Oid database)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_main_arg = ObjectIdGetDatum(database),
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;

	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "zklock_settle_main",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "zklock settler", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "zklock settler", sizeof(worker.bgw_type));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a process to settle runs of jobs"),
				 errhint("You might need to increase \"max_worker_processes\".")));
	(void) WaitForBackgroundWorkerShutdown(handle);
}

/* The databases of this server with runs that are to be settled. */
static List *
find_databases(void)
{
	ZkJob *job = palloc(sizeof(ZkJob));
	List *databases = NIL;
	ZkNode *nodes;
	int64_t now;
	int n = zklock_query_records(&nodes, &now);

	for (int i = 0; i < n; i++)
	{
		if (zklock_job_record_parse(&nodes[i], job) != ZKLOCK_JOB_GOOD)
			continue;
		for (int j = 0; j < job->nruns; j++)
		{
			ZkJobServer self = zklock_job_self(job->run[j].database);

			if (zklock_job_open(job, &self, j) == j && self.database <= PG_UINT32_MAX)
				databases = list_append_unique_oid(databases, (Oid) self.database);
		}
	}
	return databases;
}

/* ------------------------------------------------------------------------
 * One database
 * ------------------------------------------------------------------------
 */

/* A function of the extension, whose tables are meant, or InvalidOid. */
static Oid
find_function(void)
{
	Relation extensions = table_open(ExtensionRelationId, AccessShareLock);
	Oid function = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("zklock"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		function =
			GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("zk_jobs"),
							PointerGetDatum(buildoidvector(NULL, 0)),
							ObjectIdGetDatum(
								((Form_pg_extension) GETSTRUCT(tuple))->extnamespace));
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return function;
}

/* All runs of this database. */
static void
settle_all(void)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "zklock settler", ALLOCSET_DEFAULT_SIZES);
	ZkJobServer self = zklock_job_self(MyDatabaseId);
	ZkJob *job = MemoryContextAlloc(context, sizeof(ZkJob));
	ZkNode *nodes;
	int64_t now;
	int n;

	MemoryContextSwitchTo(context);
	n = zklock_query_records(&nodes, &now);
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		Oid function;

		if (!zklock_decode_name(nodes[i].name, name) ||
			zklock_job_record_parse(&nodes[i], job) != ZKLOCK_JOB_GOOD ||
			zklock_job_open(job, &self, 0) < 0)
			continue;
		StartTransactionCommand();
		function = find_function();
		if (OidIsValid(function))
			zklock_job_settle_runs(function, name);
		CommitTransactionCommand();
		MemoryContextSwitchTo(context);
		CHECK_FOR_INTERRUPTS();
	}
}

void
zklock_settle_main(Datum arg)
{
	Oid database = DatumGetObjectId(arg);
	ListCell *cell;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (OidIsValid(database))
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	else
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(on_exit_early, 0);

	if (OidIsValid(database))
		settle_all();
	else
	{
		List *databases = find_databases();

		foreach (cell, databases)
			start_in(lfirst_oid(cell));
	}
	done = true;
}
