/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  Starts the process that sends notifications: NOTIFY zklock, 'election:leader', and
 *	  NOTIFY zklock_jobs, 'job:done'.
 *
 * The worker puts changes of leadership into a ring in shared memory (changes.h), and
 * backends put ends of runs there.  The worker then starts a dynamic background worker
 * (notifier.c), which sends the changes in the ring, commits, and counts them as sent.
 * If that process fails, unsent changes go with the next change.  There is one attempt
 * for each change, so a wrong database name costs no more than that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"

#include "changes.h"
#include "notify.h"
#include "process.h"

void
zklock_notify_work(void)
{
	static ZkProcess process = NULL;
	static uint64 attempted = 0; /* "added" at the latest attempt */
	static bool told = false;
	uint64 added;
	uint64 sent;

	if (zklock_process_runs(&process))
		return;
	zklock_changes_count(&added, &sent);
	Assert(sent <= added && attempted <= added);
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

	if (!zklock_process_start(&process, "zklock_notify_main", "zklock notifier", (Datum) 0))
		ereport(LOG,
				(errmsg("could not start a process to send notifications"),
				 errhint("You might need to increase \"max_worker_processes\".")));
}
