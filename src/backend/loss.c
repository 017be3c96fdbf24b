/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  What a holder does when its lock may be, or is, somebody else's.
 *
 * With a loss, a statement is refused before it does anything, at each level of
 * nesting, and each time that a portal is to give more rows.  What PostgreSQL
 * does between statements is not ours to refuse: drivers parse, describe, close
 * and commit nothing in round trips of their own.  So nothing is raised but by a
 * statement that runs, and by the commit of a transaction that has run one.
 *
 * Some statements are admitted with a loss (statement.c), among them those that
 * acknowledge one.  An acknowledgement must not cover up what was done in good faith:
 * in a transaction that has run any other statement it is refused.  That transaction
 * rolls back first.
 *
 * What no commit undoes, since a failed one would leave half of it, or since it is
 * durable by now, is followed by a warning instead.
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
#include "loss.h"
#include "names.h"
#include "settings.h"
#include "statement.h"

uint64 zklock_loss_raised = 0;

static TimestampTz warned = 0; /* of the statement that was warned last */

static uint32 wait_event_verdict = 0;

/* ------------------------------------------------------------------------
 * The verdict
 * ------------------------------------------------------------------------
 */

/*
 * ZKLOCK_LOSS_MUTANT, if defined, lets the lease come last on purpose (1), or forgets a
 * loss that was found (2), for test/interrupts, which must find both out.
 */
#ifndef ZKLOCK_LOSS_MUTANT
#define ZKLOCK_LOSS_MUTANT 0
#endif

/* Is nothing lost, for sure?  Nearly always. */
static bool
nothing_lost(void)
{
	if (ZKLOCK_LOSS_MUTANT == 1 && *zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) == 0)
		return zklock_lease_valid();
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
	if (held != NULL && ZKLOCK_LOSS_MUTANT != 2)
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

/* From now on it is lost, which the clock alone may say: there was no write since this
 * one.  Does not throw. */
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

/* What happened while "what", and who may have it by now. */
static const char *
describe_cause(const ZkHeldLock *held, const char *what, const char *consequence)
{
	if (held->unproven_since == 0)
		return psprintf("The ZooKeeper session ended, or the contender was deleted, %s; %s.",
						what, consequence);
	return zklock_loss_describe_unproven(held->unproven_since, consequence);
}

/*
 * The calls that acknowledge the loss of what is held in session scope, to be
 * pasted.  Each zk_unlock speaks for one hold, since whoever has another one is to
 * hear of it, too.
 */
static const char *
show_ways(const ZkHeldLock *held, const char *name)
{
	const char *literal = quote_literal_cstr(name);
	uint64 holds = held->count[ZKLOCK_SHARED] + held->count[ZKLOCK_EXCLUSIVE];
	const char *times = holds > 1
		? psprintf(" once for each of the %llu holds", (unsigned long long) holds)
		: "";
	const char *once = holds > 1 ? ", as one hold" : "";

	if (held->kind == ZKLOCK_KIND_JOB)
		return psprintf("Use SELECT zk_run_end(%s) to acknowledge the loss. It records that the run was lost, and whoever calls next runs the job.",
						literal);
	if (held->kind == ZKLOCK_KIND_SEMAPHORE)
		return psprintf("Use SELECT zk_unlock(%s, 'semaphore')%s to acknowledge the loss, or SELECT zk_acquire(%s, %d, 'session') to acquire a permit anew%s.",
						literal, times, literal, held->permits, once);
	return psprintf("Use SELECT zk_unlock(%s)%s to acknowledge the loss, or SELECT zk_lock(%s, '%s', 'session') to acquire the lock anew%s.",
					literal, times, literal,
					held->count[ZKLOCK_EXCLUSIVE] > 0 ? "exclusive" : "shared", once);
}

void
zklock_loss_describe(ZkHeldLock *held, const char *name, ZkLossText *text)
{
	is_told(held);
	zklock_loss_raised++;
	text->what = zklock_kinds[held->kind].held;
	if (held->kind == ZKLOCK_KIND_ELECTION)
	{
		text->sqlstate = ERRCODE_T_R_SERIALIZATION_FAILURE;
		text->detail = describe_cause(held, "while the transaction required the leadership",
									  "another server may lead by now");
		text->hint =
			psprintf("Retry the transaction on the server that zk_leader(%s) names.",
					 quote_literal_cstr(name));
	}
	else if (held->kind == ZKLOCK_KIND_JOB)
	{
		text->sqlstate = held->begun ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
									 : ERRCODE_T_R_SERIALIZATION_FAILURE;
		text->detail = describe_cause(held, "during the run",
									  "another server may run the job by now");
		text->hint = held->begun ? show_ways(held, name)
								 : "Whoever calls next runs the job, if it is still due.";
	}
	else if (held->kind == ZKLOCK_KIND_SEMAPHORE)
	{
		bool transaction = held->transaction_count > 0;

		text->sqlstate = transaction ? ERRCODE_T_R_SERIALIZATION_FAILURE
									 : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		text->detail = describe_cause(held, "while the permit was held",
									  "somebody else may have it by now");
		text->hint = transaction ? "The transaction might succeed if retried."
								 : show_ways(held, name);
	}
	else if (held->transaction_count > 0)
	{
		text->sqlstate = ERRCODE_T_R_SERIALIZATION_FAILURE;
		text->detail = describe_cause(held, "while the transaction held the lock",
									  "another server may hold it by now");
		text->hint = "The transaction might succeed if retried.";
	}
	else
	{
		text->sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		text->detail = describe_cause(held, "while this session held the lock",
									  "another server may hold it by now");
		text->hint = show_ways(held, name);
	}
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

/* A client whose encoding lacks the name gets an error for it, but once. */
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
	if (zklock_on_loss != ZKLOCK_ON_LOSS_WARN || held->kind == ZKLOCK_KIND_JOB)
		zklock_loss_raise(held);

	/* once a statement */
	if (warned == GetCurrentStatementStartTimestamp())
		return;
	warned = GetCurrentStatementStartTimestamp();
	warn_of_loss(held);
}

/* Until a heartbeat is acknowledged, or for a moment. */
static void
sleep_for_write(void)
{
	Assert(zklock_unlocked());
	(void) ConditionVariableTimedSleep(&zklock_shared->write_cv, 50,
									   zklock_wait_event(&wait_event_verdict,
														 "ZkLockLease"));
}

void
zklock_loss_await_verdict(void)
{
	int64 start;
	int64 limit = (int64) zklock_shared->session.timeout_ms + zklock_connect_timeout;
	ZkHeldLock *held;

	Assert(!zklock_in_worker());
	if (nothing_lost())
		return;
	start = zklock_clock();
	ConditionVariablePrepareToSleep(&zklock_shared->write_cv);
	while ((held = zklock_loss_find()) == NULL && zklock_hold_any() && !zklock_lease_valid())
	{
		if (zklock_clock() - start > limit * NS_PER_MS)
			zklock_loss_raise_unproven(limit);
		sleep_for_write();
	}
	ConditionVariableCancelSleep();
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

/*
 * The ensemble may acknowledge each write and take so long for it that the four which
 * a lease needs (lease.h) are not done before it would end.
 */
void
zklock_loss_raise_unproven(int64 ms)
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
							 zklock_shared->session.timeout_ms * 9 / 64),
			 last > ms
				 ? errhint("The transaction might succeed if retried when ZooKeeper answers again.")
				 : errhint(
					   "Find out why the ensemble is slow, or increase \"zklock.session_timeout\" and restart the server.")));
}

void
zklock_loss_prove(void)
{
	int64 start = zklock_clock();

	pg_atomic_write_u32(&zklock_shared->write_wanted, 1);
	zklock_worker_wake();
	ConditionVariablePrepareToSleep(&zklock_shared->write_cv);
	while (pg_atomic_read_u64(&zklock_shared->last_write) < (uint64) start)
	{
		ZkHeldLock *held = zklock_loss_find();

		if (held != NULL)
			zklock_loss_raise(held);
		if (zklock_clock() - start > zklock_connect_timeout * NS_PER_MS)
			zklock_loss_raise_unproven(zklock_connect_timeout);
		sleep_for_write();
	}
	ConditionVariableCancelSleep();
	zklock_loss_await_verdict();
}

void
zklock_loss_tell(ZkHeldLock *held)
{
	if (!held->told && (zklock_lease_lost() || zklock_held_lost(held)))
		warn_of_loss(held);
}

/* Does the transaction consist of one statement that a failed commit does not undo, such
 * as CREATE DATABASE? */
static bool
cannot_be_undone(void)
{
	return (MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) != 0;
}

/* Has the transaction written?  Not every write comes by a statement: there is the
 * fast path. */
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
 * A commit may wait for a standby, and is visible only then.  In PostgreSQL an error
 * would be a PANIC now.  So the message is in ASCII, which each client encoding has,
 * and without context, which would be whatever the names of procedures are.  The word
 * for WARNING is PostgreSQL's, though, and may be one that the client cannot be sent:
 * then he is sent nothing, and the log has it.
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

/* What only begins or ends a run, or acknowledges a loss, is no work (job_backend.c). */
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

/* What the transaction does besides. */
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
