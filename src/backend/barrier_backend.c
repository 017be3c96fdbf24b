/*-------------------------------------------------------------------------
 *
 * barrier_backend.c
 *	  Waiting at a barrier.
 *
 * One whose time is up asks the worker to leave and waits for the answer, which may be
 * that the round was opened in this moment: then he has met the others, and goes on as
 * they do.  One who is cancelled goes at once; if the round was opened in this moment the
 * others have met him, as they have one who is cancelled a moment later.
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
#include "level1.h"
#include "names.h"
#include "query.h"
#include "room.h"
#include "waiting.h"
#include "zk.h"

/* ms: a backstop for lost wake-ups, and how often the connection is looked at */
#define LONGEST_SLEEP 1000

/* ms: how long one whose time is up asks who is there */
#define LONGEST_QUESTION 1000

static uint32 wait_event_barrier = 0;

typedef struct Wait
{
	const char *name;
	int32 parties;
	int64 timeout;	   /* ms */
	volatile int call; /* -1: none yet */
	TimestampTz began;
	volatile ZkPartyStat outcome; /* if it ends by an error */
} Wait;

/* Also when the backend ends. */
static void
end_wait(int code, Datum arg)
{
	const Wait *wait = (const Wait *) DatumGetPointer(arg);

	if (wait->call < 0)
		return;
	zklock_barrier_done(wait->call, wait->outcome,
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

/* How many are there of this number?  -1: that is not found out in time. */
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
raise_timeout(const Wait *wait, bool by_setting)
{
	/* who gave up is not among them */
	int present = count_present(wait);

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 by_setting ? errmsg(ZKLOCK_LOCK_TIMEOUT_MESSAGE)
						: errmsg("barrier \"%s\" was not opened within %lld ms",
								 zklock_display_name(wait->name), (long long) wait->timeout),
			 present < 0 ? 0
						 : errdetail("With this session, %d of %d parties were there.",
									 Min(present + 1, wait->parties), wait->parties)));
}

pg_noreturn static void
raise_end(const Wait *wait, ZkPartyEnd end)
{
	const ZkBarrierCall *call = zklock_barrier_call(wait->call);
	char *name = zklock_display_name(wait->name);

	if (end == ZKLOCK_PARTY_NUMBERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("barrier \"%s\" is for %d parties, not %d", name, call->other,
						wait->parties),
				 errdetail("The number that the first session there has named counts."),
				 errhint("zk_barriers() shows who is there.")));
	if (end == ZKLOCK_PARTY_DOUBT)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not find out whether barrier \"%s\" was opened", name),
				 errdetail(
					 "Its znode has gone, with the ZooKeeper session or without, and the record of the barrier's rounds has been overwritten or removed since.")));
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

/* Until it is over.  "by_setting": it is lock_timeout that limits it. */
static ZkPartyEnd
await(Wait *wait, bool *by_setting)
{
	ZkBarrierCall *call = zklock_barrier_call(wait->call);
	ZkWait limits;
	int64 until;
	bool leaving = false;
	ZkPartyEnd end;

	zklock_wait_begin(&limits, wait->timeout);
	*by_setting = limits.lock_timeout < limits.until;
	until = Min(limits.lock_timeout, limits.until);
	ConditionVariablePrepareToSleep(&call->cv);
	while ((end = zklock_barrier_look(wait->call)) == ZKLOCK_PARTY_NONE)
	{
		int64 now = zklock_clock();
		int64 wake = now + LONGEST_SLEEP * NS_PER_MS;

		wait->outcome = ZKLOCK_PARTY_STAT_FAILURES;
		(void) zklock_check_connection(limits.start, PG_INT64_MAX);
		wait->outcome = ZKLOCK_PARTY_STAT_CANCELS;
		if (!leaving && now >= until)
		{
			zklock_barrier_leave(wait->call);
			leaving = true;
		}
		if (!leaving)
			wake = Min(wake, until);
		Assert(zklock_unlocked() && wake > now);
		(void) ConditionVariableTimedSleep(&call->cv,
										   (long) ((wake - now + NS_PER_MS - 1) / NS_PER_MS),
										   zklock_wait_event(&wait_event_barrier,
															 "ZkLockBarrier"));
	}
	ConditionVariableCancelSleep();
	return end;
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
	ErrorContextCallback callback;

	if (parties == 1)
		return;
	wait.began = GetCurrentTimestamp();
	/* which may itself raise: so it comes inside */
	PG_ENSURE_ERROR_CLEANUP(end_wait, arg);
	{
		bool by_setting;
		ZkPartyEnd end;

		wait.call = zklock_barrier_come(name, parties);
		if (wait.call < 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many sessions of this server wait at barriers"),
					 errdetail("No more than %d can, those included that were canceled while ZooKeeper is out of reach.",
							   zklock_barrier_max())));
		callback.callback = on_error;
		callback.arg = &wait;
		callback.previous = error_context_stack;
		error_context_stack = &callback;
		end = await(&wait, &by_setting);
		error_context_stack = callback.previous;
		if (end == ZKLOCK_PARTY_LEFT)
		{
			wait.outcome = ZKLOCK_PARTY_STAT_TIMEOUTS;
			raise_timeout(&wait, by_setting);
		}
		wait.outcome = ZKLOCK_PARTY_STAT_FAILURES;
		if (end != ZKLOCK_PARTY_OPENED)
			raise_end(&wait, end);
		wait.outcome = ZKLOCK_PARTY_STAT_PASSED;
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_wait, arg);
	end_wait(0, arg);
}
