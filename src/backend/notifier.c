/*-------------------------------------------------------------------------
 *
 * notifier.c
 *	  The process that sends notifications of changes of leadership, and of ends of
 *	  runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"

#include "background.h"
#include "changes.h"
#include "job_text.h"
#include "names.h"
#include "notifier.h"
#include "settings.h"

/* Do the first n changes contain one of the same election or job? */
static bool
is_among(const ZkChange *change, const ZkChange *changes, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (changes[i].kind == change->kind && strcmp(changes[i].name, change->name) == 0)
			return true;
	}
	return false;
}

static void
send_change(const ZkChange *change, const char *server)
{
	bool job = change->kind == ZKLOCK_KIND_JOB;
	const char *now = job ? zklock_job_state_name(change->end)
		: change->leader  ? zklock_display_bytes(server, (int) strlen(server), false)
						  : "";

	Async_Notify(job ? "zklock_jobs" : "zklock",
				 psprintf("%s:%s", zklock_display_name(change->name), now));
}

/*
 * Send some changes; false if there are none.  One transaction gets only one change of
 * an election or job.  PostgreSQL delivers a duplicate notification of a transaction
 * once, at its first place, so the newest change might not come last.
 */
static bool
send_changes(const char *server)
{
	ZkChange changes[32];
	uint64 first;
	int room = zklock_changes_read(changes, lengthof(changes), &first);
	int n = 0;

	while (n < room && !is_among(&changes[n], changes, n))
		n++;
	if (n == 0)
		return false;

	StartTransactionCommand();
	for (int i = 0; i < n; i++)
		send_change(&changes[i], server);
	CommitTransactionCommand();

	zklock_changes_set_sent(first + n);
	return true;
}

void
zklock_notify_main(Datum arg)
{
	char server[256];

	zklock_background_begin();
	BackgroundWorkerInitializeConnection(zklock_notify_database, NULL, 0);
	zklock_effective_server_name(server, sizeof(server));
	while (send_changes(server))
		CHECK_FOR_INTERRUPTS();
}
