/*-------------------------------------------------------------------------
 *
 * zklock.c
 *	  Loads the library: hooks, settings and the worker.
 *
 * Without shared_preload_libraries (as in CREATE EXTENSION, pg_dump and pg_upgrade) the
 * library only defines its settings.  The SQL functions then say what is missing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "advisory_sql.h"
#include "barrier_shared.h"
#include "callbacks.h"
#include "changes.h"
#include "deadlock_shared.h"
#include "job_sql.h"
#include "lock_sql.h"
#include "question.h"
#include "queue_shared.h"
#include "removal.h"
#include "semaphore_sql.h"
#include "set_shared.h"
#include "settings.h"
#include "stat.h"
#include "statement.h"
#include "table.h"
#include "views.h"
#include "worker.h"

ZKLOCK_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/* The parts of shared memory. */
static const ZkSharedPart *const parts[] = {
	&zklock_table_part,	   &zklock_stat_part, &zklock_question_part, &zklock_changes_part,
	&zklock_deadlock_part, &zklock_set_part,  &zklock_barrier_part,	 &zklock_queue_part,
};

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
on_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	for (size_t i = 0; i < lengthof(parts); i++)
		zklock_part_request(parts[i]);
}

static void
on_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	for (size_t i = 0; i < lengthof(parts); i++)
		zklock_part_startup(parts[i]);
}

/* The functions that acknowledge a loss, up to a NULL; see statement.h. */
static const PGFunction acknowledging[] = {
	zk_lock,
	zk_try_lock,
	zk_lock_all,
	zk_try_lock_all,
	zk_unlock,
	zk_unlock_all,
	zk_lock_session,
	zk_acquire,
	zk_try_acquire,
	zk_release,
	zk_run_end,
	zk_advisory_lock,
	zk_advisory_lock_shared,
	zk_advisory_xact_lock,
	zk_advisory_xact_lock_shared,
	zk_try_advisory_lock,
	zk_try_advisory_lock_shared,
	zk_try_advisory_xact_lock,
	zk_try_advisory_xact_lock_shared,
	zk_advisory_unlock,
	zk_advisory_unlock_shared,
	zk_advisory_unlock_all,
	NULL,
};

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
	zklock_statement_functions(acknowledging, zk_rows, zklock_asking);

	/* pg_upgrade's servers have no business in the ensemble */
	if (!IsBinaryUpgrade)
		zklock_worker_register();
}
