/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Checks whether this backend can be served: preloaded, callable, connected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "replication/walsender.h"

#include "check.h"
#include "names.h"
#include "settings.h"
#include "table.h"
#include "zk.h"

void
zklock_check_preloaded(void)
{
	if (zklock_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock must be loaded via shared_preload_libraries"),
				 errhint(
					 "Add zklock to \"shared_preload_libraries\" and restart the server.")));
}

void
zklock_check_callable(void)
{
	zklock_check_preloaded();
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use zklock in a parallel worker"),
				 errdetail("A parallel worker shares the heavyweight locks of its leader."),
				 errhint("Functions that call zklock must be marked PARALLEL UNSAFE.")));
	if (am_walsender)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use zklock in a replication connection"),
				 errhint("Use an ordinary connection.")));
}

const char *
zklock_refusal_advice(int rc)
{
	const char *hint = rc == ZKLOCK_ZQUOTAEXCEEDED
		? "Find the quota of \"zklock.root\", or of a znode above or below it, with ZooKeeper's listquota, and raise it with setquota or remove it with delquota."
		: "Check the permissions of the znodes under \"zklock.root\".";

	return hint;
}

int
zklock_refusal_hint(int rc)
{
	return errhint("%s", zklock_refusal_advice(rc));
}

/* The newest acknowledged write: a heartbeat, or a write that replaces one. */
static int64
last_write(const ZkSessionShared *s)
{
	return Max(s->last_write, (int64) pg_atomic_read_u64(&zklock_shared->last_write));
}

/* Does the worker count as connected, but has not been active for long? */
static bool
is_silent(const ZkSessionShared *s, int64 now)
{
	return s->state == ZKLOCK_SESSION_CONNECTED &&
		now - last_write(s) > 4 * zklock_heartbeat_period(s->timeout_ms * NS_PER_MS);
}

static const char *
describe_trouble(const ZkSessionShared *s, int64 now)
{
	if (s->worker_pid == 0)
		return "The zklock worker, which owns the ZooKeeper session, is not running.";
	if (is_silent(s, now))
		return psprintf("The zklock worker (PID %d) has had no write acknowledged for %lld ms.",
						s->worker_pid, (long long) ((now - last_write(s)) / NS_PER_MS));
	if (s->state == ZKLOCK_SESSION_CONNECTED && !s->attempts[0])
		return psprintf("ZooKeeper server %s has not acknowledged a write yet.",
						zklock_display_text(s->server));
	return psprintf("Connect string \"%s\": %s.", zklock_display_text(s->hosts),
					s->attempts[0] ? zklock_display_text(s->attempts) : "no answer");
}

/* What to do about it; NULL: the description says that. */
static const char *
advise(const ZkSessionShared *s, bool silent)
{
	const char *hint = NULL;

	if (s->worker_pid == 0)
		hint =
			"See server log for the reason. You might need to increase \"max_worker_processes\".";
	else if (silent)
		hint =
			"Check whether that process is stopped or stuck. If it is not, see last_error in zk_session.";
	else if (s->state == ZKLOCK_SESSION_AUTH_FAILED)
		hint = "Check the credentials in \"zklock.auth_file\".";
	else if (s->state == ZKLOCK_SESSION_WENT_BACK)
		hint =
			"Try again when a session timeout has passed. See server log for the reason.";
	else if (s->state == ZKLOCK_SESSION_CONNECTED && !s->attempts[0])
		hint = "If this lasts, see last_error in zk_session.";
	else if (!s->attempts[0] || !s->other_trouble)
		hint =
			"Check that the ZooKeeper servers run, that this machine can reach them, and that \"zklock.hosts\" is right.";
	return hint;
}

const char *
zklock_check_trouble(const char **hint)
{
	ZkSessionShared s;
	int64 now = zklock_clock();

	*hint = NULL;
	zklock_session_read(&s);
	if (s.state == ZKLOCK_SESSION_CLOSING)
		return "The server is shutting down.";
	if (s.worker_pid != 0 && s.state == ZKLOCK_SESSION_CONNECTED && s.proven &&
		!is_silent(&s, now))
		return NULL;
	*hint = advise(&s, is_silent(&s, now));
	return describe_trouble(&s, now);
}

bool
zklock_check_connection(int64 start, int64 until)
{
	ZkSessionShared s;
	int64 now = zklock_clock();
	int64 limit = zklock_connect_timeout * NS_PER_MS;
	const char *hint;
	int64 lost;
	bool silent;

	zklock_session_read(&s);
	if (s.state == ZKLOCK_SESSION_CLOSING)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("cannot wait for ZooKeeper while the server is shutting down")));

	silent = is_silent(&s, now);
	if (s.state == ZKLOCK_SESSION_CONNECTED && s.proven && !silent)
		return true;
	lost = silent ? last_write(&s) : s.not_connected_since;
	if (start < lost && now < until)
		limit = Max(limit, s.timeout_ms * NS_PER_MS);
	if (now - Max(start, lost) < limit)
		return false;

	hint = advise(&s, silent);
	if (s.worker_pid == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock worker is not running"),
				 errdetail(
					 "It owns the ZooKeeper session; without it no lock can be acquired."),
				 errhint("%s", hint)));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("could not reach ZooKeeper within %lld ms",
					(long long) (limit / NS_PER_MS)),
			 errdetail("%s", describe_trouble(&s, now)),
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* The ensemble may acknowledge each write, but so late that the writes that a lease needs
 * (lease.h) are not done before the lease would end. */
void
zklock_check_raise_unproven(int64 ms)
{
	int64 last = (zklock_clock() - (int64) pg_atomic_read_u64(&zklock_shared->last_write)) /
		NS_PER_MS;
	int64 latency =
		(int64) pg_atomic_read_u64(&zklock_shared->write_latency) / (int64) NS_PER_MS;

	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("could not prove the lock within %lld ms", (long long) ms),
			 last > ms
				 ? errdetail("ZooKeeper has not acknowledged a write in this time.")
				 : errdetail("ZooKeeper took %lld ms to acknowledge the latest write; with a session timeout of %d ms it may take %d ms.",
							 (long long) latency, zklock_shared->session.timeout_ms,
							 ZKLOCK_SLOWEST_WRITE(zklock_shared->session.timeout_ms)),
			 last > ms
				 ? errhint("The transaction might succeed if retried when ZooKeeper answers again.")
				 : errhint(
					   "Find out why the ensemble is slow, or increase \"zklock.session_timeout\" and restart the server.")));
}
