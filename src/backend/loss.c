/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  Decides what a holder does when its lock may be, or is, another session's.
 *
 * After a loss, a statement is refused before it does anything, at each level of
 * nesting, and each time that a portal is to return more rows.  But zklock must not
 * refuse what PostgreSQL does between statements: drivers parse, describe, close, and
 * commit empty transactions in separate round trips.  So only a statement that runs
 * raises the loss, and the commit of a transaction that has run a statement.
 *
 * Some statements are admitted with a loss (statement.c), among them those that
 * acknowledge one.  An acknowledgement must not hide work that relied on the lost lock.
 * So it is refused in a transaction that has run any other statement, and that
 * transaction rolls back first.
 *
 * A commit is followed by a warning instead of an error if an error cannot undo the
 * work: if a failed commit would leave half of it, or if it is durable by now.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "alarm.h"
#include "check.h"
#include "loss.h"
#include "names.h"
#include "settings.h"
#include "statement.h"
#include "waiter.h"

uint64 zklock_loss_raised = 0;

static TimestampTz warned = 0; /* of the statement that was warned last */

/* ms: the interval of checks of something that is about to change */
#define SHORT_SLEEP 50

static ZkWaitEvent wait_event_verdict = {.name = "ZkLockLease"};

/* ------------------------------------------------------------------------
 * The verdict
 * ------------------------------------------------------------------------
 */

/* Is certainly nothing lost?  Nearly always yes. */
static bool
nothing_lost(void)
{
	if (!zklock_lease_valid())
		return false;
	pg_read_barrier();
	return *zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) == 0;
}

ZkHeldLock *
zklock_loss_find(void)
{
	volatile sig_atomic_t *flag = zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER);
	ZkHeldLock *held;

	if (!zklock_alarm.armed || !zklock_alarm_sees_loss())
		return NULL;

	/*
	 * What the flag was set for may have ended by now.  It is reset before we
	 * look, since the worker sets it after it has marked a proclock.
	 */
	*flag = 0;
	pg_memory_barrier();
	held = zklock_held_find_lost(zklock_lease_lost(), NULL);
	if (held != NULL)
		*flag = 1;
	return held;
}

TimestampTz
zklock_loss_unproven_since(int64 last_write)
{
	TimestampTz since = GetCurrentTimestamp() - (zklock_clock() - last_write) / 1000;

	return since - since % USECS_PER_SEC;
}

const char *
zklock_loss_describe_unproven(TimestampTz since, const char *consequence)
{
	return psprintf("ZooKeeper has not confirmed this server's session since %s; %s.",
					timestamptz_to_str(since), consequence);
}

/* Make the hold lost from now on.  The clock alone may say so: no write after this one
 * was acknowledged.  Does not throw. */
static void
forfeit(ZkHeldLock *held, int64 last_write)
{
	if (!zklock_held_lost(held))
	{
		held->unproven_since = zklock_loss_unproven_since(last_write);
		zklock_held_forfeit(held);
	}
}

/* The client is being told that this hold is lost.  Does not throw. */
static void
is_told(ZkHeldLock *held)
{
	forfeit(held, (int64) pg_atomic_read_u64(&zklock_shared->last_write));
	held->told = true;
}

ZkHeldLock *
zklock_loss_cancelled(void)
{
	ZkHeldLock *held = zklock_loss_find();
	int64 lapsed = zklock_alarm.lapsed;

	zklock_alarm.lapsed = 0; /* it has a mark from now on */
	if (held == NULL && lapsed != 0)
		held = zklock_held_find_lost(true, NULL);
	if (held != NULL)
		forfeit(held,
				lapsed != 0 ? lapsed
							: (int64) pg_atomic_read_u64(&zklock_shared->last_write));
	return held;
}

/* The client may have been sent PostgreSQL's text, which names no lock. */
void
zklock_loss_on_abort(void)
{
	if (zklock_alarm_struck() && zklock_loss_cancelled() != NULL)
		zklock_loss_raised++;
}

/* Say what happened in the time of "what", and who may have the lock by now. */
static const char *
describe_cause(const ZkHeldLock *held, const char *what, const char *consequence)
{
	if (held->unproven_since == 0)
		return psprintf("The ZooKeeper session ended, or the contender was deleted, %s; %s.",
						what, consequence);
	return zklock_loss_describe_unproven(held->unproven_since, consequence);
}

/* Fill words into a text of zklock_kinds.  Each zk_unlock acknowledges one hold, since
 * the owner of another hold is to hear of the loss, too. */
static const char *
fill_in(const char *text, const ZkHeldLock *held, const char *name)
{
	uint64 holds = held->count[ZKLOCK_SHARED] + held->count[ZKLOCK_EXCLUSIVE];
	const char *const words[][2] = {
		{"name", quote_literal_cstr(name)},
		{"mode", held->count[ZKLOCK_EXCLUSIVE] > 0 ? "exclusive" : "shared"},
		{"permits", psprintf("%d", held->permits)},
		{"holder", held->transaction_count > 0 ? "the transaction" : "this session"},
		{"times",
		 holds > 1 ? psprintf(" once for each of the %llu holds", (unsigned long long) holds)
				   : ""},
		{"once", holds > 1 ? ", as one hold" : ""},
	};
	StringInfoData out;
	const char *brace;

	initStringInfo(&out);
	for (; (brace = strchr(text, '{')) != NULL; text = strchr(brace, '}') + 1)
	{
		size_t len = strcspn(brace + 1, "}");
		size_t i = 0;

		appendBinaryStringInfo(&out, text, (int) (brace - text));
		while (i < lengthof(words) && strncmp(brace + 1, words[i][0], len) != 0)
			i++;
		Assert(i < lengthof(words));
		if (i < lengthof(words))
			appendStringInfoString(&out, words[i][1]);
	}
	appendStringInfoString(&out, text);
	return out.data;
}

/* Does the session have to acknowledge the loss by a call of its own? */
static bool
is_acknowledged(const ZkHeldLock *held)
{
	return held->begun ||
		(zklock_kinds[held->kind].unlocked && held->transaction_count == 0);
}

void
zklock_loss_describe(ZkHeldLock *held, const char *name, ZkLossText *text)
{
	const ZkKind *kind = &zklock_kinds[held->kind];
	bool ways = is_acknowledged(held);

	is_told(held);
	zklock_loss_raised++;
	text->what = kind->held;
	text->sqlstate = ways ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
						  : ERRCODE_T_R_SERIALIZATION_FAILURE;
	text->detail =
		describe_cause(held, fill_in(kind->loss.when, held, name), kind->loss.by_now);
	text->hint = fill_in(ways ? kind->loss.ways : kind->loss.retry, held, name);
}

void
zklock_loss_raise(ZkHeldLock *held)
{
	ZkLossText text;
	char *name = zklock_display_name(held->name);

	Assert(held->count[ZKLOCK_SHARED] + held->count[ZKLOCK_EXCLUSIVE] > 0);
	zklock_loss_describe(held, name, &text);
	ereport(ERROR,
			(errcode(text.sqlstate), errmsg("%s \"%s\" was lost", text.what, name),
			 errdetail("%s", text.detail), errhint("%s", text.hint)));
}

/* Warn of the loss.  A client whose encoding lacks a character of the name gets an
 * error for it, but only once. */
static void
warn_of_loss(ZkHeldLock *held)
{
	char *name = zklock_display_name(held->name);

	is_told(held);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("%s \"%s\" was lost", zklock_kinds[held->kind].held, name),
			 errdetail("Another server may hold it by now.")));
}

static void
report_loss(ZkHeldLock *held)
{
	if (zklock_on_loss != ZKLOCK_ON_LOSS_WARN || zklock_kinds[held->kind].loss.never_warns)
		zklock_loss_raise(held);

	/* once a statement */
	if (warned == GetCurrentStatementStartTimestamp())
		return;
	warned = GetCurrentStatementStartTimestamp();
	warn_of_loss(held);
}

/* The context of an error names one of the holds, as if all were lost. */
static void
on_proof_error(void *arg)
{
	const ZkHeldLock *held = zklock_held_find_lost(true, NULL);

	if (held != NULL)
		errcontext("while waiting for the proof of %s \"%s\"",
				   zklock_kinds[held->kind].held, zklock_plain_name(held->name));
}

/* Wait for heartbeats to be acknowledged, for the time in "limits" at most.  If the
 * connection is lost, the clock says when everything is lost. */
static bool
await_write(bool (*look)(ZkWaiter *, int64), const ZkWait *limits, ZkHeldLock **lost)
{
	ZkWaiter waiter = {
		.look = look,
		.context = on_proof_error,
		.arg = lost,
		.limits = limits,
		.cv = &zklock_shared->write_cv,
		.event = &wait_event_verdict,
		.longest = SHORT_SLEEP,
	};

	return zklock_wait_for(&waiter);
}

static bool
look_for_verdict(ZkWaiter *waiter, int64 now)
{
	ZkHeldLock **lost = waiter->arg;

	return (*lost = zklock_loss_find()) != NULL || !zklock_hold_any() ||
		zklock_lease_valid();
}

void
zklock_loss_await_verdict(void)
{
	int64 ms = (int64) zklock_shared->session.timeout_ms + zklock_connect_timeout;
	ZkHeldLock *held = NULL;
	ZkWait limits;

	Assert(!zklock_in_worker());
	if (nothing_lost())
		return;
	zklock_wait_begin(&limits, ms);
	if (!await_write(look_for_verdict, &limits, &held))
		zklock_check_raise_unproven(ms);
	/* good, but perhaps for a new session */
	if (held != NULL || (held = zklock_loss_find()) != NULL)
		report_loss(held);
}

bool
zklock_loss_settle(const ZkHeldLock *held)
{
	if (zklock_lease_lost() || zklock_held_lost(held))
		return true;
	if (!zklock_lease_valid())
		zklock_loss_await_verdict();
	pg_read_barrier(); /* the lease first, see nothing_lost */
	return zklock_lease_lost() || zklock_held_lost(held);
}

void
zklock_loss_check_others(const ZkHeldLock *but)
{
	ZkHeldLock *held;

	if (!zklock_lease_lost() && !zklock_lease_valid())
		zklock_loss_await_verdict();
	pg_read_barrier(); /* the lease first, see nothing_lost */
	held = zklock_held_find_lost(zklock_lease_lost(), but);
	if (held != NULL)
		report_loss(held);
}

int64
zklock_loss_claim(ZkHeldLock *held)
{
	if (zklock_loss_settle(held))
		zklock_loss_raise(held);
	return held->proclock[ZKLOCK_EXCLUSIVE] >= 0 ? held->token[ZKLOCK_EXCLUSIVE]
												 : held->token[ZKLOCK_SHARED];
}

/* Was a write acknowledged that was sent since the wait began? */
static bool
look_for_write(ZkWaiter *waiter, int64 now)
{
	ZkHeldLock **lost = waiter->arg;

	return pg_atomic_read_u64(&zklock_shared->last_write) >=
		(uint64) waiter->limits->start ||
		(*lost = zklock_loss_find()) != NULL;
}

void
zklock_loss_prove(void)
{
	ZkHeldLock *lost = NULL;
	ZkWait limits;

	zklock_wait_begin(&limits, zklock_connect_timeout);
	pg_atomic_write_u32(&zklock_shared->write_wanted, 1);
	zklock_worker_wake();
	if (!await_write(look_for_write, &limits, &lost))
		zklock_check_raise_unproven(zklock_connect_timeout);
	if (lost != NULL)
		zklock_loss_raise(lost);
	zklock_loss_await_verdict();
}

void
zklock_loss_tell(ZkHeldLock *held)
{
	if (!held->told && (zklock_lease_lost() || zklock_held_lost(held)))
		warn_of_loss(held);
}

/* Does the transaction consist of one statement that a failed commit does not undo,
 * such as CREATE DATABASE? */
static bool
cannot_be_undone(void)
{
	return (MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) != 0;
}

/* Has the transaction written?  Not every write comes by a statement: there is the fast
 * path. */
static bool
has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

void
zklock_loss_acknowledge(void)
{
	ZkHeldLock *held;

	if ((zklock_alarm.worked || has_written()) && (held = zklock_loss_find()) != NULL)
		report_loss(held);
}

void
zklock_loss_before_commit(bool holding)
{
	if (!zklock_hold_any())
		return;

	/*
	 * From here on we look for ourselves.  No hook is around a commit that would
	 * turn our timer's cancel into the loss.
	 */
	zklock_alarm.committing = true;
	zklock_alarm_withdraw();
	if ((holding || zklock_alarm.worked || has_written()) && !cannot_be_undone())
		zklock_loss_await_verdict();
}

/*
 * A commit may wait for a standby, and is visible only then.  PostgreSQL would turn an
 * error into a PANIC now.  So the message is in ASCII, which each client encoding has,
 * and without context, which might contain any name of a procedure.  But PostgreSQL
 * translates the word WARNING, and the client's encoding may lack a character of it.
 * Then the client is sent nothing, and the log has the message.
 */
void
zklock_loss_after_commit(void)
{
	static char name[3 * ZKLOCK_NAME_MAX + 1];
	ErrorContextCallback *context = error_context_stack;
	MemoryContext memory = CurrentMemoryContext;
	ZkHeldLock *held;
	char *out = name;

	if (!(has_written() || (zklock_alarm.worked && cannot_be_undone())) ||
		nothing_lost() || warned == GetCurrentStatementStartTimestamp() ||
		(held = zklock_held_find_lost(!zklock_lease_valid(), NULL)) == NULL)
		return;
	for (const char *p = zklock_local_name(held->name); *p; p++)
		out += sprintf(out, IS_HIGHBIT_SET(*p) ? "%%%02X" : "%c", (unsigned char) *p);
	warned = GetCurrentStatementStartTimestamp();
	is_told(held);
	PG_TRY();
	{
		error_context_stack = NULL;
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("%s \"%s\" was lost before the commit was visible",
						zklock_kinds[held->kind].held, name),
				 errdetail(
					 "The transaction is committed. Another server may have held it since before that."),
				 errhint("Use zk_fence to keep out a late writer.")));
		error_context_stack = context;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(memory);
		FlushErrorState();
	}
	PG_END_TRY();
}

/* A statement that only begins or ends a run, or acknowledges a loss, is no work
 * (job_backend.c). */
static void
count_work(bool committed)
{
	TimestampTz this = GetCurrentTransactionStartTimestamp();

	if (!zklock_alarm.beside && (committed || zklock_alarm.acknowledging == this))
		return;
	if (!committed && zklock_alarm.refused == this)
		return;
	zklock_alarm.works++;
	zklock_alarm.rolled_back = !committed;
}

void
zklock_loss_after_transaction(bool committed)
{
	count_work(committed);
	zklock_alarm.committing = false;
	zklock_alarm.worked = zklock_alarm.beside = zklock_alarm.acted = false;
	zklock_alarm_withdraw();
}

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

static bool
acknowledges(QueryDesc *query, Node *utility)
{
	if (!zklock_statement_acknowledges(query, utility))
		return false;
	zklock_alarm.acknowledging = GetCurrentTransactionStartTimestamp();
	return true;
}

/* Note a statement that does more than acknowledge a loss. */
static void
note(QueryDesc *query, Node *utility)
{
	if (acknowledges(query, utility))
		return;
	zklock_alarm.beside = true;
	zklock_alarm.acted = zklock_alarm.acted || zklock_statement_acts(query, utility);
}

bool
zklock_loss_before_statement(QueryDesc *query, Node *utility)
{
	ZkHeldLock *held;

	if (utility != NULL && zklock_statement_is_exempt(utility))
		return true;
	if (!zklock_alarm.armed)
	{
		if (zklock_alarm.runs > 0)
			note(query, utility);
		return false;
	}
	zklock_alarm_start(); /* an error stops it */
	held = zklock_loss_find();
	if (held != NULL)
	{
		if (held->transaction_count == 0 && !zklock_alarm.worked && !has_written() &&
			acknowledges(query, utility))
			return true;
		report_loss(held);
	}
	zklock_alarm.worked = true;
	note(query, utility);
	return false;
}

void
zklock_loss_after_statement(QueryDesc *query, Node *utility)
{
	ZkHeldLock *held;

	if (!zklock_alarm.worked || cannot_be_undone())
		return;
	zklock_hold_end_void();
	held = zklock_loss_find();
	if (held != NULL && !zklock_statement_acknowledges(query, utility))
		report_loss(held);
}
