/*-------------------------------------------------------------------------
 *
 * job_pause.c
 *	  Pauses jobs, and resumes them.
 *
 * A pause is in the record, which each server reads before it begins a run.  It is
 * written without the lock.  So this does not wait for the end of a run, and the run
 * goes on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "job_pause.h"
#include "job_record.h"
#include "names.h"

TimestampTz
zklock_job_pause_end(int64_t until)
{
	return until == ZKLOCK_JOB_FOREVER ? DT_NOEND : zklock_time_of_ms(until);
}

const char *
zklock_job_pause_text(int64_t until)
{
	return pstrdup(timestamptz_to_str(zklock_job_pause_end(until)));
}

typedef struct Pausing
{
	int64 until; /* or NEVER: the pause is over */
	int64 now;	 /* by the ensemble's clock */
	ZkJobPause verdict;
	bool changed; /* by one of our writes, perhaps */
} Pausing;

static void
change(ZkJob *job, int64_t now, void *arg)
{
	Pausing *what = arg;

	what->now = now;
	what->verdict = zklock_job_pause(job, what->until, now);
	what->changed |= what->verdict == ZKLOCK_JOB_CHANGED;
}

/* Create the znode with the record, as a backend does that takes the job.  If another
 * session has the job, the znode exists. */
static void
make_znode(const char *name)
{
	int64 token;

	if (zklock_acquire(ZKLOCK_KIND_JOB, name, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION, 0,
					   &token))
		(void) zklock_hold_end_session_scope(zklock_held_find(ZKLOCK_KIND_JOB, name), true);
}

bool
zklock_job_pause_until(const char *name, int64 until)
{
	Pausing what = {.until = until};

	while (!zklock_job_record_change(name, false, change, &what) &&
		   what.verdict == ZKLOCK_JOB_CHANGED)
	{
		CHECK_FOR_INTERRUPTS();
		make_znode(name);
		what.changed = false;
	}
	if (what.verdict == ZKLOCK_JOB_PAST)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("until must lie in the future"),
				 errdetail("ZooKeeper's clock says %s.", zklock_job_time_text(what.now))));
	if (!what.changed)
	{
		ereport(NOTICE,
				(errmsg("job \"%s\" is paused until %s already, skipping",
						zklock_display_name(name), zklock_job_pause_text(until))));
		return false;
	}
	ereport(LOG,
			(errmsg("zk_job_pause paused job \"%s\" until %s", zklock_display_name(name),
					zklock_job_pause_text(until))));
	return true;
}

bool
zklock_job_resume(const char *name)
{
	Pausing what = {.until = ZKLOCK_JOB_NEVER};

	(void) zklock_job_record_change(name, false, change, &what);
	if (!what.changed)
	{
		ereport(NOTICE,
				(errmsg("job \"%s\" is not paused, skipping", zklock_display_name(name))));
		return false;
	}
	ereport(LOG, (errmsg("zk_job_resume resumed job \"%s\"", zklock_display_name(name))));
	return true;
}
