/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  Leadership changes reach SQL: NOTIFY zklock, 'election:leader'.
 *
 * The worker puts changes into a ring in shared memory (changes.h) and starts a dynamic
 * background worker (notifier.c), which sends what it finds there, commits, and counts
 * it as sent.  If that process fails, what was not sent goes with the next change: one
 * attempt a change, so that a wrong database name costs no more than that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "changes.h"
#include "notify.h"
#include "settings.h"

void
zklock_notify_add(const char *election, bool leader)
{
	if (zklock_notify_database[0] == '\0')
		return;
	if (!zklock_changes_add(election, leader))
		ereport(LOG,
				(errmsg("dropping the oldest notification of a leadership change, %d are pending",
						ZKLOCK_NCHANGES)));
}

void
zklock_notify_work(void)
{
	static BackgroundWorkerHandle *running = NULL;
	static uint64 attempted = 0; /* "added" at the latest attempt */
	static bool told = false;
	BackgroundWorker worker;
	MemoryContext save;
	uint64 added;
	uint64 sent;
	pid_t pid;

	if (running != NULL)
	{
		BgwHandleStatus status = GetBackgroundWorkerPid(running, &pid);

		if (status != BGWH_STOPPED && status != BGWH_POSTMASTER_DIED)
			return;
		pfree(running);
		running = NULL;
	}

	zklock_changes_count(&added, &sent);
	if (added == sent || added == attempted)
		return;
	attempted = added;

	if (RecoveryInProgress())
	{
		zklock_changes_set_sent(added);
		if (!told)
			ereport(LOG,
					(errmsg(
						"no notifications of leadership changes are sent during recovery")));
		told = true;
		return;
	}

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "zklock_notify_main",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "zklock notifier", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "zklock notifier", sizeof(worker.bgw_type));

	save = MemoryContextSwitchTo(TopMemoryContext); /* of the handle */
	if (!RegisterDynamicBackgroundWorker(&worker, &running))
	{
		running = NULL;
		ereport(LOG,
				(errmsg("could not start a process to send notifications of leadership changes"),
				 errhint("You might need to increase \"max_worker_processes\".")));
	}
	MemoryContextSwitchTo(save);
}
