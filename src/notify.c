/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  Leadership changes reach SQL: NOTIFY zklock, 'election:leader'.
 *
 * The worker puts changes into a ring in shared memory and starts a dynamic
 * background worker, which sends what it finds there, commits, and counts it as
 * sent.  If that process fails, what was not sent goes with the next change: one
 * attempt a change, so that a wrong database name costs no more than that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "contender.h"
#include "names.h"
#include "notify.h"
#include "settings.h"

#define NCHANGES 1024

typedef struct Change
{
	char election[ZKLOCK_NAME_MAX + 1];
	bool leader;
} Change;

typedef struct NotifyShared
{
	LWLock *lock; /* of all that follows */
	uint64 added; /* changes so far */
	uint64 sent;  /* of those */
	Change ring[NCHANGES];
} NotifyShared;

static NotifyShared *shared = NULL;

void
zklock_notify_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(NotifyShared)));
	RequestNamedLWLockTranche("zklock_notify", 1);
}

void
zklock_notify_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock notifications", sizeof(NotifyShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche("zklock_notify")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

void
zklock_notify_add(const char *election, bool leader)
{
	Change *change;
	bool full;

	if (zklock_notify_database[0] == '\0')
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	full = shared->added - shared->sent == NCHANGES;
	if (full)
		shared->sent++;
	change = &shared->ring[shared->added++ % NCHANGES];
	strlcpy(change->election, election, sizeof(change->election));
	change->leader = leader;
	LWLockRelease(shared->lock);
	if (full)
		ereport(LOG,
				(errmsg("dropping the oldest notification of a leadership change, %d are pending",
						NCHANGES)));
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

	LWLockAcquire(shared->lock, LW_SHARED);
	added = shared->added;
	sent = shared->sent;
	LWLockRelease(shared->lock);
	if (added == sent || added == attempted)
		return;
	attempted = added;

	if (RecoveryInProgress())
	{
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		shared->sent = shared->added;
		LWLockRelease(shared->lock);
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

/* ------------------------------------------------------------------------
 * The notifier
 * ------------------------------------------------------------------------
 */

/* Is there a change of this election among the first n? */
static bool
is_among(const char *election, const Change *changes, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(changes[i].election, election) == 0)
			return true;
	}
	return false;
}

/*
 * Send some; false if there are none.  No two of one election in one transaction:
 * PostgreSQL delivers what is notified twice in it once, where it came first, and so
 * the newest might not be the last.
 */
static bool
send_changes(const char *server)
{
	Change changes[32];
	uint64 first;
	int n = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	first = shared->sent;
	while (n < (int) lengthof(changes) && first + n < shared->added)
	{
		changes[n] = shared->ring[(first + n) % NCHANGES];
		if (is_among(changes[n].election, changes, n))
			break;
		n++;
	}
	LWLockRelease(shared->lock);
	if (n == 0)
		return false;

	StartTransactionCommand();
	for (int i = 0; i < n; i++)
	{
		const char *leader = changes[i].leader
			? zklock_display_bytes(server, (int) strlen(server), false)
			: "";

		Async_Notify("zklock",
					 psprintf("%s:%s", zklock_display_name(changes[i].election), leader));
	}
	CommitTransactionCommand();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->sent = Max(shared->sent, first + n);
	LWLockRelease(shared->lock);
	return true;
}

void
zklock_notify_main(Datum arg)
{
	char server[256];

	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(zklock_notify_database, NULL, 0);
	zklock_effective_server_name(server, sizeof(server));
	while (send_changes(server))
		CHECK_FOR_INTERRUPTS();
}
