/*-------------------------------------------------------------------------
 *
 * deadlock_backend.c
 *	  Handles waits at level 2 that last longer than deadlock_timeout.
 *
 * For level 2 it does what PostgreSQL's lock manager does for level 1 in this case.
 * With log_lock_waits the log says that the wait goes on, and later that it is over.
 * And the worker looks for a deadlock (deadlock_worker.c).  PostgreSQL looks once,
 * because the process that closes a ring later finds it.  Here, another session of this
 * server may begin to wait for a session that already waits at level 2, and nobody
 * tells the latter.  So the backend asks again when its wait has lasted for two, four
 * and eight times deadlock_timeout, and from then on every eight times
 * deadlock_timeout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_authid.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/backend_status.h"

#include "deadlock_backend.h"
#include "deadlock_shared.h"
#include "names.h"

#define LONGEST_PAUSE 8 /* times deadlock_timeout */

void
zklock_deadlock_wait_begin(ZkDeadlockWait *wait)
{
	wait->start = zklock_clock();
	wait->look = wait->start + DeadlockTimeout * NS_PER_MS;
	wait->logged = false;
}

/* A text such as "exclusive lock "a"", and how long the wait has lasted. */
static char *
describe(int32 index)
{
	const ZkProcLock *proclock = zklock_proclock(index);
	const ZkLockEntry *entry = zklock_entry(proclock->entry);

	return psprintf("%s%s \"%s\"",
					!zklock_kinds[entry->kind].modes		 ? ""
						: proclock->mode == ZKLOCK_EXCLUSIVE ? "exclusive "
															 : "shared ",
					zklock_kinds[entry->kind].name, zklock_display_name(entry->name));
}

static void
split_time(int64 ns, long *ms, int *us)
{
	*ms = (long) (ns / NS_PER_MS);
	*us = (int) (ns % NS_PER_MS / 1000);
}

/* Ask for a look, for all proclocks of the set if there is one: "first" is its first. */
static void
ask(int32 first)
{
	for (int32 i = first; i >= 0; i = zklock_proclock(i)->set_next)
	{
		ZkProcLock *proclock = zklock_proclock(i);
		LWLock *lock = zklock_entry_lock(zklock_entry(proclock->entry), LW_EXCLUSIVE);

		proclock->asked = proclock->asks = true;
		zklock_entry_unlock(lock);
	}
	pg_atomic_write_u32(&zklock_shared->look_wanted, 1);
	zklock_worker_wake();
}

void
zklock_deadlock_wait_look(ZkDeadlockWait *wait, int32 index, int32 first, int64 now)
{
	int64 pause = LONGEST_PAUSE * NS_PER_MS * DeadlockTimeout;

	if (now < wait->look)
		return;
	wait->look = now + Max(Min(now - wait->start, pause), NS_PER_MS);
	ask(first);
	if (log_lock_waits && !wait->logged)
	{
		long ms;
		int us;

		split_time(now - wait->start, &ms, &us);
		ereport(LOG,
				(errmsg("process %d still waiting for %s after %ld.%03d ms", MyProcPid,
						describe(index), ms, us)));
		wait->logged = true;
	}
}

void
zklock_deadlock_wait_end(const ZkDeadlockWait *wait, int32 index)
{
	long ms;
	int us;

	if (!wait->logged)
		return;
	split_time(zklock_clock() - wait->start, &ms, &us);
	ereport(LOG,
			(errmsg("process %d acquired %s after %ld.%03d ms", MyProcPid,
					describe(index), ms, us)));
}

void
zklock_deadlock_raise(int32 index)
{
	ZkDeadlockVerdict *verdict = palloc(sizeof(ZkDeadlockVerdict));
	StringInfoData log;
	const char *detail;

	if (!zklock_deadlock_verdict_get(zklock_proclock(index)->wait_start, verdict))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
				 errdetail("It goes through lock \"%s\" on several servers.",
						   zklock_display_name(
							   zklock_entry(zklock_proclock(index)->entry)->name))));
	initStringInfo(&log);
	appendStringInfoString(&log,
						   zklock_display_bytes(verdict->text,
												(int) strlen(verdict->text), false));
	/* as PostgreSQL has it: the log may show what clients may not see of each other */
	for (int i = 0; i < verdict->npids; i++)
		appendStringInfo(&log, "\nProcess %d: %s", verdict->pids[i],
						 pgstat_get_backend_current_activity(verdict->pids[i], false));
	/* names of others, as zk_locks shows them */
	detail = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ? verdict->text
																	: verdict->own;
	detail = zklock_display_bytes(detail, (int) strlen(detail), false);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
			 errdetail_internal("%s", zklock_client_text(detail, true)),
			 errdetail_log("%s", log.data), errhint("See server log for query details.")));
}
