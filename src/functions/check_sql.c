/*-------------------------------------------------------------------------
 *
 * check_sql.c
 *	  The rows of zk_check about this server and the ensemble.
 *
 * This is the part of zk_check that SQL cannot do.  Each problem is a row, and not an
 * error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "check.h"
#include "check_sql.h"
#include "hosts_backend.h"
#include "query.h"
#include "row.h"
#include "settings.h"
#include "table.h"
#include "zktime.h"

/* ZooKeeper 3.6.0, in the form of hosts_backend.h */
#define OLDEST_VERSION 30600

/* ms by which a clock may differ from ZooKeeper's */
#define CLOCK_MAX 1000

/* The verdict about something: it is right, it is wrong, or nobody can tell. */
typedef enum Verdict
{
	BAD,
	GOOD,
	UNKNOWN
} Verdict;

static void
tell(const ReturnSetInfo *rsinfo, const char *what, Verdict verdict, const char *detail,
	 const char *hint)
{
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_row_text(&row, "what", what);
	if (verdict != UNKNOWN)
		zklock_row_bool(&row, "ok", verdict == GOOD);
	zklock_row_bytes(&row, "detail", detail);
	zklock_row_text(&row, "hint", verdict == GOOD ? NULL : hint);
	zklock_row_store(rsinfo, &row);
}

/* Is there a worker?  Without shared memory this is unknown. */
static bool
tell_worker(const ReturnSetInfo *rsinfo)
{
	ZkSessionShared s;

	if (zklock_shared == NULL)
	{
		tell(rsinfo, "worker", BAD, "zklock is not preloaded",
			 "Add zklock to \"shared_preload_libraries\" and restart the server.");
		return false;
	}
	zklock_session_read(&s);
	if (s.worker_pid == 0)
		tell(rsinfo, "worker", BAD, "the zklock worker is not running",
			 "See server log for the reason. You might need to increase \"max_worker_processes\".");
	else
		tell(rsinfo, "worker", GOOD, psprintf("runs with PID %d", s.worker_pid), NULL);
	return true;
}

/* What each state of a host means, and what to do. */
static const struct
{
	Verdict verdict;
	const char *hint;
} host_states[] = {
	[ZKLOCK_HOST_ANSWERS] = {GOOD, NULL},
	[ZKLOCK_HOST_FAILS] =
		{BAD,
		 "Start this ZooKeeper server, or take it out of \"zklock.hosts\" if it is no member of the ensemble."},
	[ZKLOCK_HOST_SILENT] =
		{BAD,
		 "Check that this machine can reach this ZooKeeper server, and that it is not stopped or overloaded."},
	[ZKLOCK_HOST_ALONE] =
		{BAD,
		 "Wait until it has started. If this lasts, start the other ZooKeeper servers of its ensemble."},
	[ZKLOCK_HOST_STRANGE] =
		{BAD,
		 "Check that the port is right. If it is, see the log of this ZooKeeper server: it may want TLS, or allow too few connections by \"maxClientCnxns\"."},
	[ZKLOCK_HOST_NAMELESS] =
		{BAD, "Check the name in \"zklock.hosts\", and the name service of this machine."},
	[ZKLOCK_HOST_UNKNOWN] =
		{UNKNOWN, "The worker looks names up when it connects. Try again when it has."},
};

static void
tell_hosts(const ReturnSetInfo *rsinfo)
{
	ZkHostAnswer *answers;
	int n = zklock_hosts_probe(&answers);
	const ZkHostAnswer *oldest = NULL;
	bool silent = false;
	bool answered = false;

	for (int i = 0; i < n; i++)
	{
		const ZkHostAnswer *a = &answers[i];
		bool shown = a->address == NULL || strcmp(a->address, a->host) == 0;

		tell(rsinfo, "host", host_states[a->state].verdict,
			 psprintf("%s%s%s%s: %s", a->host, shown ? "" : " (", shown ? "" : a->address,
					  shown ? "" : ")", a->text),
			 host_states[a->state].hint);
		answered |= a->state == ZKLOCK_HOST_ANSWERS;
		if (a->version == 0)
			silent = true;
		else if (oldest == NULL || a->version < oldest->version)
			oldest = a;
	}
	if (oldest == NULL)
		tell(rsinfo, "version", UNKNOWN, "no ZooKeeper server says which version it is",
			 !answered ? "Do first what \"host\" says."
				 : zklock_tls_ca_file[0] != '\0'
				 ? "Check the versions of the ZooKeeper servers, which must be 3.6 or newer."
				 : "Let \"4lw.commands.whitelist\" of the ZooKeeper servers have \"srvr\".");
	else if (oldest->version < OLDEST_VERSION)
		tell(rsinfo, "version", BAD, psprintf("%s: %s", oldest->host, oldest->text),
			 "Update the ZooKeeper servers to 3.6 or newer.");
	else
		tell(rsinfo, "version", silent ? UNKNOWN : GOOD,
			 psprintf("the oldest that is known is %s: %s", oldest->host, oldest->text),
			 "Check the versions of the other ZooKeeper servers, which must be 3.6 or newer.");
}

/* No write was acknowledged. */
static void
tell_no_write(const ReturnSetInfo *rsinfo, int rc)
{
	const char *hint;
	const char *trouble = zklock_check_trouble(&hint);

	if (zklock_reply(rc) == ZKLOCK_REPLY_REFUSED)
	{
		trouble = psprintf("ZooKeeper refused it: %s", zklock_rc_text(rc));
		hint = zklock_refusal_advice(rc);
	}
	else if (trouble == NULL)
	{
		trouble = psprintf("was not acknowledged within %d ms", zklock_connect_timeout);
		hint =
			"Check that a majority of the ZooKeeper servers run, that this machine can reach them, and that the worker is not stopped.";
	}
	tell(rsinfo, "write", BAD, trouble,
		 hint != NULL ? hint : "See last_error in zk_session.");
	tell(rsinfo, "clock", UNKNOWN, "ZooKeeper's clock is not known",
		 "Do first what \"write\" says.");
}

/* Test a write, and compare this server's clock with the one by which ZooKeeper dates
 * it. */
static void
tell_write(const ReturnSetInfo *rsinfo)
{
	int64 start;
	int64 until = (int64) zklock_clock() + zklock_connect_timeout * NS_PER_MS;
	TimestampTz before;
	ZkRecord record;
	bool written;
	int64 leader;
	int64 ahead;
	int64 off;
	TimestampTz after;

	do
	{
		zklock_query_await_move(until);
		start = zklock_clock();
		before = GetCurrentTimestamp();
		/* of no job: its data are none, and our own node is written before */
		written =
			zklock_query_record(ZKLOCK_KIND_JOB, "", until, &record) && record.now != 0;
	} while (!written && zklock_query_moves() && (int64) zklock_clock() < until);
	if (!written)
	{
		tell_no_write(rsinfo, record.rc);
		return;
	}
	after = GetCurrentTimestamp();
	tell(rsinfo, "write", GOOD,
		 psprintf("acknowledged by a majority after %lld ms",
				  (long long) (((int64) zklock_clock() - start) / NS_PER_MS)),
		 NULL);

	/* ZooKeeper's moment lies between ours, if the clocks agree */
	leader = record.now;
	ahead = zklock_ms_of_time(before) > leader ? zklock_ms_of_time(before) - leader
		: zklock_ms_of_time(after) < leader	   ? zklock_ms_of_time(after) - leader
											   : 0;
	off = ahead < 0 ? -ahead : ahead;
	tell(rsinfo, "clock", off <= CLOCK_MAX ? GOOD : BAD,
		 ahead == 0 ? "agrees with that of ZooKeeper's leader"
					: psprintf("is %lld ms %s that of ZooKeeper's leader",
							   (long long) off, ahead > 0 ? "ahead of" : "behind"),
		 "Have a time service set the clocks of this machine and of the ZooKeeper servers.");
}

/* Servers that share an ensemble but not the root do not exclude each other. */
static void
tell_root(const ReturnSetInfo *rsinfo)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	if (s.id.id == 0)
		tell(rsinfo, "root", UNKNOWN, "there is no ZooKeeper session",
			 "Do first what \"write\" says.");
	else if (strcmp(s.root, zklock_root) != 0)
		tell(rsinfo, "root", BAD,
			 psprintf("\"%s\" is in use, and \"%s\" is set", s.root, zklock_root),
			 "Set \"zklock.root\" back and reload. To use another root, stop all servers that share it, change the setting on each, and start them.");
	else
		tell(rsinfo, "root", GOOD, psprintf("\"%s\" is in use", s.root), NULL);
}

static void
tell_access(const ReturnSetInfo *rsinfo)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	if (s.open_node[0] != '\0')
		tell(rsinfo, "access", BAD,
			 psprintf("znode \"%s\" is open to every client", s.open_node),
			 "Set its ACL by ZooKeeper's setAcl -R, with the credentials in \"zklock.auth_file\", and restart the server.");
	else if (s.id.id == 0)
		tell(rsinfo, "access", UNKNOWN, "there is no ZooKeeper session",
			 "Do first what \"write\" says.");
	else if (s.open_told)
		tell(rsinfo, "access", UNKNOWN,
			 "what zklock makes in ZooKeeper is open to every client",
			 "Set \"zklock.auth_file\", unless no stranger can connect to the ensemble.");
	else if (!s.looked_open)
		tell(rsinfo, "access", UNKNOWN,
			 "znodes that were made without credentials may be open to every client",
			 "Restart the server: it looks at them when its ZooKeeper session begins. If this stays so, it may not read them: see last_error in zk_session.");
	else
		tell(rsinfo, "access", GOOD,
			 "only these credentials can change what zklock makes", NULL);
}

void
zklock_show_check(ReturnSetInfo *rsinfo)
{
	if (zklock_shared != NULL)
		zklock_query_await_move((int64) zklock_clock() + zklock_connect_timeout * NS_PER_MS);
	if (!tell_worker(rsinfo))
		return;
	zklock_check_callable();
	tell_hosts(rsinfo);
	tell_write(rsinfo);
	tell_root(rsinfo);
	tell_access(rsinfo);
}
