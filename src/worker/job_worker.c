/*-------------------------------------------------------------------------
 *
 * job_worker.c
 *	  Runs of jobs that only this server can tell the end of.
 *
 * A run that was about to commit when its server or its backend was lost is in doubt
 * for all others.  Its own server can tell by its table zk_runs.  So at the server's
 * start, and when a backend did not come to say it, the worker starts processes that look
 * (job_settler.c): one finds out which databases have such runs, and one in each of these
 * settles them.  They run beside each other as far as the server has worker processes;
 * where it has but one to spare, one after the other.
 *
 * At the start the jobs of such runs may hang on the session of the server's life before,
 * which session.c keeps until they are settled, or all is done that can be
 * (zklock_job_settled).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"

#include "job_worker.h"
#include "process.h"
#include "table.h"

/* ns from the end of an attempt to the next, and from one that could not be started */
#define PAUSE		(10000 * NS_PER_MS)
#define START_PAUSE (1000 * NS_PER_MS)

/* Of each of ZkLockShared.settle. */
typedef struct Settler
{
	ZkProcess process;
	bool started;
	int64 not_before;
} Settler;

static Settler settlers[ZKLOCK_NSETTLE];

static bool
any_runs(void)
{
	for (int i = 0; i < ZKLOCK_NSETTLE; i++)
	{
		if (zklock_process_runs(&settlers[i].process))
			return true;
	}
	return false;
}

/* Is it to be started?  If not, and nothing is wanted there, it is free for another
 * database. */
static bool
take_wish(int i)
{
	ZkSettle *settle = &zklock_shared->settle[i];
	bool rested = zklock_clock() >= settlers[i].not_before;
	bool due;

	/* another database must not have what this process would be told by */
	Assert(settlers[i].process == NULL);
	SpinLockAcquire(&zklock_shared->mutex);
	due = settle->soon || (settle->later && rested);
	if (due)
		settle->soon = settle->later = false;
	else if (!settle->later)
		settle->database = InvalidOid;
	SpinLockRelease(&zklock_shared->mutex);
	return due;
}

static void
start(int i)
{
	static bool told = false;
	Oid database = zklock_shared->settle[i].database; /* ours until there is no wish */

	settlers[i].started =
		zklock_process_start(&settlers[i].process, "zklock_job_settler_main",
							 "zklock settler", ObjectIdGetDatum(database));
	if (settlers[i].started)
	{
		told = false;
		return;
	}
	settlers[i].not_before = zklock_clock() + START_PAUSE;
	SpinLockAcquire(&zklock_shared->mutex);
	zklock_shared->settle[i].later = true;
	SpinLockRelease(&zklock_shared->mutex);
	/* another of ours may have what there is */
	if (told || any_runs())
		return;
	told = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a process to settle runs of jobs"),
			 errdetail("Runs that are in doubt stay so until a worker process is free."),
			 errhint("You might need to increase \"max_worker_processes\".")));
}

static long
work(void)
{
	if (!zklock_shared->session.proven || RecoveryInProgress())
		return -1;
	for (int i = 0; i < ZKLOCK_NSETTLE; i++)
	{
		/* read without the mutex: whoever wants something wakes us */
		volatile ZkSettle *settle = &zklock_shared->settle[i];

		if ((!settle->soon && !settle->later && !OidIsValid(settle->database)) ||
			zklock_process_runs(&settlers[i].process))
			continue;
		if (settlers[i].started)
			settlers[i].not_before = zklock_clock() + PAUSE;
		settlers[i].started = false;
		if (take_wish(i))
			start(i);
	}
	return -1;
}

bool
zklock_job_settled(void)
{
	bool over = !any_runs();

	SpinLockAcquire(&zklock_shared->mutex);
	for (int i = 0; i < ZKLOCK_NSETTLE; i++)
	{
		if (zklock_shared->settle[i].soon || zklock_shared->settle[i].later)
			over = false;
	}
	SpinLockRelease(&zklock_shared->mutex);
	return over;
}

const ZkAgent zklock_job_agent = {
	.work = work,
};
