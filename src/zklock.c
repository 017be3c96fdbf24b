/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  Loading: hooks, settings, worker.
 *
 * Loaded without shared_preload_libraries (CREATE EXTENSION, pg_dump,
 * pg_upgrade do that), the library defines its settings and nothing else; the
 * SQL functions then say what is missing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "callbacks.h"
#include "changes.h"
#include "jobs.h"
#include "locks.h"
#include "monitor.h"
#include "parties.h"
#include "question.h"
#include "removal.h"
#include "setslot.h"
#include "settings.h"
#include "stat.h"
#include "statement.h"
#include "table.h"
#include "verdict.h"
#include "work.h"
#include "worker.h"

ZKLOCK_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
on_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	zklock_table_shmem_request();
	zklock_stat_shmem_request();
	zklock_question_shmem_request();
	zklock_changes_shmem_request();
	zklock_verdict_shmem_request();
	zklock_set_shmem_request();
	zklock_parties_shmem_request();
	zklock_work_shmem_request();
}

static void
on_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	zklock_table_shmem_startup();
	zklock_stat_shmem_startup();
	zklock_question_shmem_startup();
	zklock_changes_shmem_startup();
	zklock_verdict_shmem_startup();
	zklock_set_shmem_startup();
	zklock_parties_shmem_startup();
	zklock_work_shmem_startup();
}

void
_PG_init(void)
{
	zklock_define_settings(process_shared_preload_libraries_in_progress);
	if (!process_shared_preload_libraries_in_progress)
		return;

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = on_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = on_shmem_startup;

	zklock_callbacks_install();
	zklock_removal_install();
	zklock_statement_functions(zklock_acknowledging, zk_locks, zklock_asking);

	/* pg_upgrade's servers have no business in the ensemble */
	if (!IsBinaryUpgrade)
		zklock_worker_register();
}
