/*-------------------------------------------------------------------------
 *
 * faults.c
 *	  Which point fails; see faults.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

PG_FUNCTION_INFO_V1(zk_fault);

static int fail_at = 0; /* 0: nothing fails */
static int passed = 0;
static TimestampTz armed_by = 0; /* this statement is spared */
static char failed[128] = "";

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

/*
 * zk_fault(n integer) returns text
 *
 * Have the n-th point fail that is passed from the next statement on; 0: none.
 * Returns which one has failed since the call before, or nothing.
 */
Datum
zk_fault(PG_FUNCTION_ARGS)
{
	char text[sizeof(failed)];

	strlcpy(text, failed, sizeof(text));
	failed[0] = '\0';
	passed = fail_at = 0;
	armed_by = GetCurrentStatementStartTimestamp();
	fail_at = PG_GETARG_INT32(0);
	PG_RETURN_TEXT_P(cstring_to_text(text));
}
