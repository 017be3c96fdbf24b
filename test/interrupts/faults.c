/*-------------------------------------------------------------------------
 *
 * faults.c
 *	  Which point fails; see faults.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <signal.h>

#include "utils/guc.h"

#include "table.h"

#undef zklock_lease_end /* the true one */

PG_FUNCTION_INFO_V1(zk_fault);
PG_FUNCTION_INFO_V1(zk_pause);
PG_FUNCTION_INFO_V1(zk_lapse);

static int fail_at = 0;	 /* 0: nothing fails */
static int pause_at = 0; /* 0: nor is anything stopped */
static int passed = 0;
static TimestampTz armed_by = 0; /* this statement is spared */
static char failed[128] = "";
const char *zklock_fault_event = "";

static const char *
kind_name(int kind)
{
	return kind == ZKLOCK_FAULT_ERROR ? "error"
		: kind == ZKLOCK_FAULT_CANCEL ? "cancel"
									  : "terminate";
}

void
zklock_fault(int kinds, const char *function, const char *callee)
{
	for (int kind = ZKLOCK_FAULT_ERROR; kind <= ZKLOCK_FAULT_TERMINATE; kind *= 2)
	{
		if (fail_at == 0 || armed_by == GetCurrentStatementStartTimestamp())
			return;
		if (!(kinds & kind) || ++passed != fail_at)
			continue;
		fail_at = 0;
		snprintf(failed, sizeof(failed), "%s %s %s", function, callee, kind_name(kind));
		if (kind == ZKLOCK_FAULT_ERROR)
			ereport(ERROR,
					(errcode(MAKE_SQLSTATE('Z', 'K', '0', '0', '0')),
					 errmsg("fault: %s", failed)));
		elog(LOG, "fault: %s", failed);
		if (kind == ZKLOCK_FAULT_CANCEL)
			QueryCancelPending = true;
		else
			ProcDiePending = true;
		InterruptPending = true;
		SetLatch(MyLatch);
	}
}

void
zklock_pause(const char *function)
{
	/* one that has a lock would stop others with it; a commit is done by then */
	if (pause_at == 0 || armed_by == GetCurrentStatementStartTimestamp() ||
		InterruptHoldoffCount > 0 || ++passed != pause_at)
		return;
	pause_at = 0;
	snprintf(failed, sizeof(failed), "%s pause", function);
	kill(MyProcPid, SIGSTOP);
}

/* Begin anew.  Returns which one has failed since the last time. */
static text *
begin(void)
{
	text *last;

	passed = fail_at = pause_at = 0;
	last = cstring_to_text(failed);
	failed[0] = '\0';
	armed_by = GetCurrentStatementStartTimestamp();
	return last;
}

/* SHOW zklock.fault tells those whose SELECT is refused.  None fails from then on. */
static const char *
show_failed(void)
{
	fail_at = pause_at = 0;
	return failed;
}

static void
define_setting(void)
{
	static char *value;

	if (value == NULL)
		DefineCustomStringVariable("zklock.fault", "Which point has failed.", NULL, &value,
								   "none", PGC_INTERNAL, 0, NULL, NULL, show_failed);
}

/*
 * zk_fault(n integer) returns text
 *
 * Have the n-th point fail that is passed from the next statement on; 0: none.
 * Returns which one has failed since the call before, or nothing.
 */
Datum
zk_fault(PG_FUNCTION_ARGS)
{
	text *last = begin();

	define_setting();
	fail_at = PG_GETARG_INT32(0);
	PG_RETURN_TEXT_P(last);
}

/* zk_pause(n integer) returns text: the same, for a look at the lease */
Datum
zk_pause(PG_FUNCTION_ARGS)
{
	text *last = begin();

	define_setting();
	pause_at = PG_GETARG_INT32(0);
	PG_RETURN_TEXT_P(last);
}

/* zk_lapse() returns void: the lease has run out; the session's time has not */
Datum
zk_lapse(PG_FUNCTION_ARGS)
{
	pg_atomic_write_u64(&zklock_shared->lease_end, (uint64) zklock_clock());
	PG_RETURN_VOID();
}

/*
 * What the worker publishes as the end of the lease.  It does not know of zk_lapse, and
 * an answer that it had not read by then would have it publish the lease from before.
 */
int64
zklock_lapsed_end(const ZkLease *lease)
{
	int64 published = (int64) pg_atomic_read_u64(&zklock_shared->lease_end);

	if (lease->proven != 0 && published <= zklock_clock() && lease->last_write <= published)
		return published;
	return zklock_lease_end(lease);
}
