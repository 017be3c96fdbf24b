/*-------------------------------------------------------------------------
 *
 * barrier_backend.c
 *	  Waits at a barrier.
 *
 * A session whose time is up asks the worker to leave, and waits for the answer.  The
 * answer may be that the round was opened in this moment: then the session has met the
 * others, and goes on as they do.  A session that is cancelled leaves at once.  If the
 * round was opened in this moment the others have met it, just as they have met a
 * session that is cancelled a moment later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "barrier_backend.h"
#include "barrier_shared.h"
#include "check.h"
#include "names.h"
#include "query.h"
#include "waiter.h"
#include "zk.h"

/* ms: a backstop for lost wake-ups, and the interval of checks of the connection */
#define LONGEST_SLEEP 1000

/* ms: how long a session whose time is up asks who is there */
#define LONGEST_QUESTION 1000

static ZkWaitEvent wait_event_barrier = {.name = "ZkLockBarrier"};

typedef struct Wait
{
	const char *name;
	int32 parties;
	int64 timeout;	   /* ms */
	volatile int call; /* -1: none yet */
	TimestampTz began;
	volatile ZkPartyStat outcome; /* if it ends by an error */
	ZkWaiter waiter;
	int64 until;	 /* leave, ns */
	bool by_setting; /* which is lock_timeout's */
	bool leaving;
	ZkPartyEnd end;
} Wait;

/* End the wait, also when the backend ends. */
static void
end_wait(int code, Datum arg)
{
	const Wait *wait = (const Wait *) DatumGetPointer(arg);

	if (wait->call < 0)
		return;
	zklock_barrier_done(wait->call,
						wait->waiter.checking ? ZKLOCK_PARTY_STAT_FAILURES : wait->outcome,
						Max(GetCurrentTimestamp() - wait->began, 0));
}

static void
on_error(void *arg)
{
	const Wait *wait = arg;

	errcontext("while waiting at barrier \"%s\" for %d parties",
			   zklock_plain_name(wait->name), wait->parties);
}

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------
 */

/* Count the sessions there that use the same number.  -1: the answer has not come in
 * time. */
static int
count_present(const Wait *wait)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_BARRIER};
	ZkNode *nodes;
	int n;
	int present = 0;

	strlcpy(query.name, wait->name, sizeof(query.name));
	n = zklock_query_until(&query, zklock_clock() + LONGEST_QUESTION * NS_PER_MS, &nodes);
	for (int i = 0; i < n; i++)
	{
		ZkPartyNode node;

		present += zklock_barrier_parse_party(nodes[i].name, &node) &&
			node.parties == wait->parties;
	}
	return n < 0 ? -1 : present;
}

pg_noreturn static void
raise_timeout(const Wait *wait)
{
	/* who gave up is not among them */
	int present = count_present(wait);

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 wait->by_setting
				 ? errmsg(ZKLOCK_LOCK_TIMEOUT_MESSAGE)
				 : errmsg("barrier \"%s\" was not opened within %lld ms",
						  zklock_display_name(wait->name), (long long) wait->timeout),
			 present < 0 ? 0
						 : errdetail("With this session, %d of %d parties were there.",
									 Min(present + 1, wait->parties), wait->parties)));
}

pg_noreturn static void
raise_end(const Wait *wait)
{
	const ZkBarrierCall *call = zklock_barrier_call(wait->call);
	char *name = zklock_display_name(wait->name);

	if (wait->end == ZKLOCK_PARTY_NUMBERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("barrier \"%s\" is for %d parties, not %d", name, call->other,
						wait->parties),
				 errdetail("The number that the first session there has named counts."),
				 errhint("The view zk_barriers shows who is there.")));
	if (wait->end == ZKLOCK_PARTY_NEWER)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("record of barrier \"%s\" in ZooKeeper is of a newer version of zklock",
						name),
				 errdetail("This server cannot read which rounds were opened."),
				 errhint("Update zklock on this server.")));
	if (wait->end == ZKLOCK_PARTY_DOUBT)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not find out whether barrier \"%s\" was opened", name),
				 errdetail(
					 "The znode of this call is gone, and the record of the barrier's rounds no longer has this round, or is of a newer version of zklock."),
				 errhint("Find out from the other parties whether the barrier was opened.")));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("ZooKeeper refused the request for barrier \"%s\": %s", name,
					call->rc != 0 ? zklock_rc_text(call->rc) : "reason unknown"),
			 zklock_refusal_hint(call->rc)));
}

/* ------------------------------------------------------------------------
 * The wait
 * ------------------------------------------------------------------------
 */

static bool
look(ZkWaiter *waiter, int64 now)
{
	Wait *wait = waiter->arg;

	wait->end = zklock_barrier_look(wait->call);
	if (wait->end != ZKLOCK_PARTY_NONE)
		return true;
	/* lock_timeout is seen to here: the answer to who leaves is to come */
	if (!wait->leaving && now >= wait->until)
	{
		zklock_barrier_leave(wait->call);
		wait->leaving = true;
	}
	if (!wait->leaving)
		waiter->wake = Min(waiter->wake, wait->until);
	return false;
}

/* Wait until it is over. */
static void
await(Wait *wait)
{
	ZkWait limits;

	zklock_wait_begin(&limits, wait->timeout);
	wait->by_setting = limits.lock_timeout < limits.until;
	wait->until = Min(limits.lock_timeout, limits.until);
	limits.until = PG_INT64_MAX;
	wait->waiter = (ZkWaiter){
		.look = look,
		.context = on_error,
		.arg = wait,
		.limits = &limits,
		.cv = &zklock_barrier_call(wait->call)->cv,
		.event = &wait_event_barrier,
		.longest = LONGEST_SLEEP,
		.connected = true,
		.end = ZKLOCK_WAIT_GOES_ON,
	};
	(void) zklock_wait_for(&wait->waiter);
}

void
zklock_barrier_wait(const char *name, int32 parties, int64 timeout)
{
	Wait wait = {
		.name = name,
		.parties = parties,
		.timeout = timeout,
		.call = -1,
		.outcome = ZKLOCK_PARTY_STAT_CANCELS,
	};
	Datum arg = PointerGetDatum(&wait);

	if (parties == 1)
		return;
	wait.began = GetCurrentTimestamp();
	/* which may itself raise: so it comes inside */
	PG_ENSURE_ERROR_CLEANUP(end_wait, arg);
	{
		wait.call = zklock_barrier_come(name, parties);
		if (wait.call < 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many sessions of this server wait at barriers"),
					 errdetail("No more than %d can, those included that were canceled while ZooKeeper is out of reach.",
							   zklock_barrier_max())));
		await(&wait);
		if (wait.end == ZKLOCK_PARTY_LEFT)
		{
			wait.outcome = ZKLOCK_PARTY_STAT_TIMEOUTS;
			raise_timeout(&wait);
		}
		wait.outcome = ZKLOCK_PARTY_STAT_FAILURES;
		if (wait.end != ZKLOCK_PARTY_OPENED)
			raise_end(&wait);
		wait.outcome = ZKLOCK_PARTY_STAT_PASSED;
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_wait, arg);
	end_wait(0, arg);
}
