/*-------------------------------------------------------------------------
 *
 * job_worker.c
 *	  Has runs of jobs settled whose outcome only this server can tell.
 *
 * If a server or a backend is lost while it is about to commit a run, the run is in
 * doubt for all other servers.  Its own server can tell the outcome by its table
 * zk_runs.  So the worker starts settlers (job_settler.c) at the server's start, and
 * when a backend has not reported the end of a run.  One settler finds out which
 * databases have such runs, and one in each of these databases settles them.  They run
 * at the same time as far as the server has worker processes; with only one to spare,
 * they run one after the other.
 *
 * At the start, the jobs of such runs may depend on the session of the server's
 * previous life.  session.c keeps that session until the runs are settled, or all has
 * been done that can be done (zklock_job_settled).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"

#include "job_worker.h"
#include "process.h"
#include "table.h"

/* ns from the end of a settler to the next attempt, and from a failed start */
#define PAUSE		(10000 * NS_PER_MS)
#define START_PAUSE (1000 * NS_PER_MS)

/* The worker's state for an element of ZkLockShared.settle. */
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

/* Is the settler to be started?  If not, and its database needs none, its place is free
 * for another database. */
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
