/*-------------------------------------------------------------------------
 *
 * job_after.c
 *	  Reads the records of the jobs after which a job is to be run, and waits for them.
 *
 * Nobody tells a backend that the record of a job has changed, so the backend reads it
 * again and again.  It holds nothing meanwhile.  If it held its own job, nobody could
 * run that job by hand without the wait.  If it stood in the queue of the other job, a
 * caller there that does not wait would be refused.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "job_after.h"
#include "job_record.h"
#include "table.h"
#include "zk.h"

/*
 * Limits of the sleep of a backend, in ms.  The sleep is an eighth of the time for
 * which the backend has waited.  So the wait is a little too long, and a long wait
 * costs few requests.
 */
#define SLEEP_MIN 100
#define SLEEP_MAX 10000

static ZkWaitEvent wait_event_job = {.name = "ZkLockJob"};

static void
copy(ZkJob *job, int64_t now, void *to)
{
	memcpy(to, job, sizeof(*job));
}

void
zklock_job_after_read(char *const *names, int n, ZkJob *jobs)
{
	for (int i = 0; i < n; i++)
		(void) zklock_job_record_change(names[i], false, copy, &jobs[i]);
}

static bool
look_for_end(ZkWaiter *waiter, int64 now)
{
	const int64 *until = waiter->arg;

	waiter->wake = *until;
	return now >= *until;
}

bool
zklock_job_after_sleep(const ZkWait *limits)
{
	int64 now = zklock_clock();
	int64 ms = (now - limits->start) / NS_PER_MS / 8;
	int64 until = now + Min(Max(ms, SLEEP_MIN), SLEEP_MAX) * NS_PER_MS;
	ZkWaiter waiter = {
		.look = look_for_end,
		.arg = &until,
		.limits = limits,
		.event = &wait_event_job,
		.longest = SLEEP_MAX,
		.for_lock = true,
		.connected = true,
	};

	return zklock_wait_for(&waiter);
}
