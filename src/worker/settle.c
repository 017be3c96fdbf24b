/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  Runs of jobs that only this server can tell the end of.
 *
 * A run that was about to commit when its server or its backend was lost is in doubt
 * for all others.  Its own server can tell by its table zk_runs.  So at the server's
 * start, and when a backend did not come to say it, the worker starts a process that
 * looks (settler.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"

#include "process.h"
#include "settle.h"
#include "table.h"

/* ns from one attempt to the next */
#define PAUSE (10000 * NS_PER_MS)

void
zklock_settle_work(void)
{
	static ZkProcess process = NULL;
	static int64 not_before = 0;

	if (pg_atomic_read_u32(&zklock_shared->settle_wanted) == 0 ||
		zklock_clock() < not_before || !zklock_shared->session.proven ||
		RecoveryInProgress() || zklock_process_runs(&process))
		return;
	not_before = zklock_clock() + PAUSE;
	pg_atomic_write_u32(&zklock_shared->settle_wanted, 0);
	if (zklock_process_start(&process, "zklock_settle_main", "zklock settler"))
		return;
	pg_atomic_write_u32(&zklock_shared->settle_wanted, 1);
	ereport(LOG,
			(errmsg("could not start a process to settle runs of jobs"),
			 errhint("You might need to increase \"max_worker_processes\".")));
}
