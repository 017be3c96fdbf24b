/*-------------------------------------------------------------------------
 *
 * process.c
 *	  Starts processes with a database, since the worker has none itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "process.h"

bool
zklock_process_runs(ZkProcess *process)
{
	BgwHandleStatus status;
	pid_t pid;

	if (*process == NULL)
		return false;
	status = GetBackgroundWorkerPid(*process, &pid);
	if (status != BGWH_STOPPED && status != BGWH_POSTMASTER_DIED)
		return true;
	pfree(*process);
	*process = NULL;
	return false;
}

bool
zklock_process_start(ZkProcess *process, const char *function, const char *name, Datum arg)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_main_arg = arg,
	};
	MemoryContext save = MemoryContextSwitchTo(TopMemoryContext); /* of the handle */
	bool started;

	Assert(*process == NULL); /* it would run on, and nobody know it */
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, name, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, name, sizeof(worker.bgw_type));
	started = RegisterDynamicBackgroundWorker(&worker, process);
	if (!started)
		*process = NULL;
	MemoryContextSwitchTo(save);
	return started;
}
