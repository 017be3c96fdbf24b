/*-------------------------------------------------------------------------
 *
 * loss.c
 *	  What a holder does when its lock may be, or is, somebody else's.
 *
 * Each holder looks for itself.  No process tells another, since the one that
 * would may be the one that is stopped: a timer of this backend reads the lease
 * and the backend's loss flag in shared memory, and cancels its own statement.
 * The hook around the outermost statement turns that cancel into an error that
 * says what happened.  A handler in PL/pgSQL can swallow one shot; the timer
 * fires again.
 *
 * The timer runs on for as long as there are holds, and every ERROR drops all
 * timers, so each statement arms it again.  From PRE_COMMIT on it does nothing:
 * a cancel would end the wait for a synchronous standby.
 *
 * With a loss, a statement is refused before it does anything, at each level of
 * nesting, and each time that a portal is to give more rows.  What PostgreSQL
 * does between statements is not ours to refuse: drivers parse, describe, close
 * and commit nothing in round trips of their own.  So nothing is raised but by a
 * statement that runs, and by the commit of a transaction that has run one.
 *
 * What is admitted with a loss: the ends of transactions and savepoints and their
 * beginnings, what DISCARD ALL consists of, and what acknowledges a loss in
 * session scope (a loss in transaction scope ends with the transaction).  An
 * acknowledgement must not cover up what was done in good faith: in a transaction
 * that has run any other statement it is refused.  That transaction rolls back first.
 *
 * What no commit undoes, since a failed one would leave half of it, or since it is
 * durable by now, is followed by a warning instead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timeout.h"

#include "names.h"
#include "funcs.h"
#include "loss.h"
#include "settings.h"

/* Seen by the timer's handler. */
static volatile sig_atomic_t armed = false;		 /* there are holds */
static volatile sig_atomic_t committing = false; /* PRE_COMMIT has come */
static volatile sig_atomic_t shot = false;		 /* the handler has cancelled */
static volatile sig_atomic_t excused = false;	 /* the statement is one of those that are
												  * admitted with a loss */

static volatile sig_atomic_t nesting = 0; /* in the executor or a utility statement */

/* This transaction has run a statement that was not excused.  Kept only while there are
 * holds. */
static bool worked = false;

static TimestampTz warned = 0; /* of the statement that was warned last */

static TimeoutId timer = MAX_TIMEOUTS;
static uint32 wait_event_verdict = 0;

static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static emit_log_hook_type prev_emit_log = NULL;

/* ------------------------------------------------------------------------
 * The timer
 * ------------------------------------------------------------------------
 */

/*
 * Whoever looks at both lets the lease come first.  It may be that of a new session,
 * and then it is the flag that tells of the loss: the worker sets it before there is
 * a lease again.  The other way round a process that is paused in between finds no flag
 * and a good lease.
 *
 * ZKLOCK_LOSS_MUTANT, if defined, breaks this on purpose (1), or forgets a loss that was
 * found (2), for test/interrupts, which must find both out.
 */
#ifndef ZKLOCK_LOSS_MUTANT
#define ZKLOCK_LOSS_MUTANT 0
#endif

/* Is anything lost?  For a signal handler. */
static bool
anything_lost(void)
{
	if (zklock_lease_lost())
		return true;
	pg_read_barrier();
	return *zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) != 0;
}

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

static int
timer_interval(void)
{
	return Max(20, Min(500, zklock_shared->session.timeout_ms / 10));
}

/*
 * In a signal handler.  A backend that is idle cannot be cancelled.  One that has a
 * statement, and does not execute it yet, may be about to acknowledge the loss or to
 * roll back; if it waits, and still does so at the next look, it is for a lock in
 * parse analysis.
 */
static void
on_timer(void)
{
	static int looks = 0; /* in a row that found it waiting */

	if (!armed || MyProc == NULL)
		return; /* and so it runs out */
	looks = debug_query_string != NULL && nesting == 0 && MyProc->wait_event_info != 0
		? looks + 1
		: 0;
	if (!committing && !excused && (nesting > 0 || looks > 1) &&
		zklock_on_loss == ZKLOCK_ON_LOSS_ABORT && anything_lost())
	{
		shot = true;
		QueryCancelPending = true;
		InterruptPending = true;
		/* handle_sig_alrm has set the latch */
	}
	enable_timeout_after(timer, timer_interval());
}

void
zklock_loss_prepare(void)
{
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, on_timer);
}

static void
start_timer(void)
{
	if (!get_timeout_active(timer))
		enable_timeout_after(timer, timer_interval());
}

void
zklock_loss_arm(void)
{
	armed = true;
	start_timer();
	if (!excused)
		worked = true;
}

/* A cancel of ours that has not struck is not called for any more. */
static void
withdraw_shot(void)
{
	if (shot)
	{
		shot = false;
		QueryCancelPending = false;
	}
}

void
zklock_loss_disarm(void)
{
	armed = false;
	withdraw_shot();
	*zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) = 0;
}

/* ------------------------------------------------------------------------
 * The verdict
 * ------------------------------------------------------------------------
 */

ZkHeldLock *
zklock_loss_find(void)
{
	volatile sig_atomic_t *flag = zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER);
	ZkHeldLock *held;

	if (!armed || !anything_lost())
		return NULL;

	/*
	 * What the flag was set for may have ended by now.  It is reset before we
	 * look, since the worker sets it after it has marked a request.
	 */
	*flag = 0;
	pg_memory_barrier();
	held = zklock_held_find_lost(zklock_lease_lost());
	if (held != NULL && ZKLOCK_LOSS_MUTANT != 2)
		*flag = 1;
	return held;
}

/* A client whose encoding lacks the name gets an error for it, but once. */
static void
warn_of_loss(ZkHeldLock *held)
{
	char *name = zklock_display_name(held->name);

	held->told = true;
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 held->kind == ZKLOCK_KIND_ELECTION
				 ? errmsg("leadership of election \"%s\" was lost", name)
				 : errmsg("lock \"%s\" was lost", name),
			 errdetail("Another server may hold it by now.")));
}

static void
report_loss(ZkHeldLock *held)
{
	if (zklock_on_loss != ZKLOCK_ON_LOSS_WARN)
		zklock_held_raise_lost(held);

	/* once a statement */
	if (warned == GetCurrentStatementStartTimestamp())
		return;
	warned = GetCurrentStatementStartTimestamp();
	warn_of_loss(held);
}

/* Until a write is acknowledged or the session is lost, or for a moment. */
static void
sleep_for_write(void)
{
	(void) ConditionVariableTimedSleep(&zklock_shared->write_cv, 50,
									   zklock_wait_event(&wait_event_verdict,
														 "ZkLockLease"));
}

void
zklock_loss_await_verdict(void)
{
	int64 start = zklock_clock();
	int64 limit = (int64) zklock_shared->session.timeout_ms + zklock_connect_timeout;
	ZkHeldLock *held;

	if (nothing_lost())
		return;
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
				 ? errhint("The transaction may be retried when ZooKeeper answers again.")
				 : errhint(
					   "Find out why the ensemble is slow, or raise \"zklock.session_timeout\".")));
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
			zklock_held_raise_lost(held);
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

	if ((worked || has_written()) && (held = zklock_loss_find()) != NULL)
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
	committing = true;
	withdraw_shot();
	if ((holding || worked || has_written()) && !cannot_be_undone())
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

	if (nothing_lost() || !(has_written() || (worked && cannot_be_undone())) ||
		warned == GetCurrentStatementStartTimestamp() ||
		(held = zklock_held_find_lost(!zklock_lease_valid())) == NULL)
		return;
	for (const char *p = zklock_local_name(held->name); *p; p++)
		out += sprintf(out, IS_HIGHBIT_SET(*p) ? "%%%02X" : "%c", (unsigned char) *p);
	warned = GetCurrentStatementStartTimestamp();
	held->told = true;
	PG_TRY();
	{
		error_context_stack = NULL;
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 held->kind == ZKLOCK_KIND_ELECTION
					 ? errmsg("leadership of election \"%s\" was lost before the commit was visible",
							  name)
					 : errmsg("lock \"%s\" was lost before the commit was visible", name),
				 errdetail(
					 "The transaction is committed. Another server may have held it since before that."),
				 errhint("A late writer is kept out by zk_fence.")));
		error_context_stack = context;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(memory);
		FlushErrorState();
	}
	PG_END_TRY();
}

void
zklock_loss_after_transaction(void)
{
	committing = false;
	worked = false;
	withdraw_shot();
}

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

/* In a PG_CATCH block: if the error is our own cancel, raise the loss instead. */
static void
convert_cancel(void)
{
	ZkHeldLock *held;

	if (!shot || nesting > 0 || geterrcode() != ERRCODE_QUERY_CANCELED ||
		(held = zklock_loss_find()) == NULL)
		return;
	shot = false;
	FlushErrorState();
	zklock_held_raise_lost(held);
}

/*
 * A cancel of ours may strike where no hook of ours is around: in parse analysis,
 * which waits for table locks, in the planner, or in a deferred trigger between
 * its statements.  Then the error cannot be replaced, only its report: this is
 * called before it goes to the log and to the client.  (Not while ERRORs are kept
 * out of the log; then the client hears of a cancel.)
 */
static void
on_emit_log(ErrorData *edata)
{
	ZkHeldLock *held;

	if (shot && edata->elevel == ERROR && edata->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		(held = zklock_loss_find()) != NULL)
	{
		ZkLossText text;

		shot = false;
		held->told = true;
		zklock_held_describe_loss(held, &text);
		edata->sqlerrcode = text.sqlstate;
		edata->message =
			psprintf("%s \"%s\" was lost", text.what, zklock_plain_name(held->name));
		edata->detail = pstrdup(text.detail);
		edata->hint = pstrdup(text.hint);
	}
	if (prev_emit_log)
		prev_emit_log(edata);
}

/* Does a function acknowledge losses?  It is known by its address. */
static bool
acknowledges(Oid function, void *context)
{
	FmgrInfo info;

	if (function == F_PG_ADVISORY_UNLOCK_ALL)
		return true;
	if (function < FirstNormalObjectId)
		return false;
	fmgr_info(function, &info);
	return info.fn_addr == zk_unlock || info.fn_addr == zk_unlock_all ||
		info.fn_addr == zk_lock || info.fn_addr == zk_try_lock ||
		info.fn_addr == zk_lock_session;
}

static bool
expression_acknowledges(Node *node, void *context)
{
	return node != NULL &&
		(check_functions_in_node(node, acknowledges, context) ||
		 expression_tree_walker(node, expression_acknowledges, context));
}

/*
 * May a function do more than compute?  Such a one would do it before the loss is
 * acknowledged, or without.
 */
static bool
works(Oid function, void *context)
{
	FmgrInfo info;

	if (acknowledges(function, NULL))
		return false;
	if (function < FirstNormalObjectId)
		return func_volatile(function) == PROVOLATILE_VOLATILE;
	fmgr_info(function, &info);
	return info.fn_addr != zk_locks;
}

static bool
expression_works(Node *node, void *context)
{
	return node != NULL &&
		(check_functions_in_node(node, works, context) ||
		 expression_tree_walker(node, expression_works, context));
}

/* Walk the expressions of a plan's node, those that the nodes which are admitted have. */
static bool
plan_walker(PlanState *state, bool (*walker)(Node *node, void *context))
{
	Plan *plan = state->plan;

	return walker((Node *) plan->targetlist, NULL) || walker((Node *) plan->qual, NULL) ||
		(IsA(plan, Result) && walker(((Result *) plan)->resconstantqual, NULL)) ||
		(IsA(plan, FunctionScan) &&
		 walker((Node *) ((FunctionScan *) plan)->functions, NULL)) ||
		(IsA(plan, ValuesScan) &&
		 walker((Node *) ((ValuesScan *) plan)->values_lists, NULL));
}

static bool
plan_acknowledges(PlanState *state, void *context)
{
	return plan_walker(state, expression_acknowledges) ||
		planstate_tree_walker(state, plan_acknowledges, context);
}

static bool
plan_works(PlanState *state, void *context)
{
	switch (nodeTag(state->plan))
	{
		case T_Result:
		case T_ProjectSet:
		case T_FunctionScan:
		case T_SubqueryScan:
		case T_ValuesScan:
		case T_CteScan:
		case T_Agg:
		case T_Sort:
			return plan_walker(state, expression_works) ||
				planstate_tree_walker(state, plan_works, context);
		default:
			return true;
	}
}

/* Is it a SELECT that calls such a function itself, and does nothing else? */
static bool
query_acknowledges(QueryDesc *query)
{
	return query->operation == CMD_SELECT && !query->plannedstmt->hasModifyingCTE &&
		plan_acknowledges(query->planstate, NULL) && !plan_works(query->planstate, NULL);
}

/* Are the parameters of EXECUTE constants?  They are not analyzed yet. */
static bool
are_constants(List *parameters)
{
	ListCell *cell;

	foreach (cell, parameters)
	{
		Node *node = lfirst(cell);

		if (IsA(node, TypeCast))
			node = ((TypeCast *) node)->arg;
		if (!IsA(node, A_Const))
			return false;
	}
	return true;
}

/* EXECUTE is as good as what it executes, which is looked at then. */
static bool
utility_acknowledges(Node *statement)
{
	if (IsA(statement, ExecuteStmt))
		return are_constants(((ExecuteStmt *) statement)->params);
	if (IsA(statement, CallStmt))
	{
		FuncExpr *call = ((CallStmt *) statement)->funcexpr;

		return acknowledges(call->funcid, NULL) &&
			!expression_works((Node *) call->args, NULL);
	}
	return false;
}

static bool
may_acknowledge(QueryDesc *query, Node *utility)
{
	return query != NULL ? query_acknowledges(query) : utility_acknowledges(utility);
}

/* Utility statements that are admitted with a loss, of whatever scope. */
static bool
is_exempt(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_TransactionStmt:
			/* but for those that end another transaction than our own */
			return ((TransactionStmt *) statement)->kind != TRANS_STMT_COMMIT_PREPARED &&
				((TransactionStmt *) statement)->kind != TRANS_STMT_ROLLBACK_PREPARED;

		case T_ClosePortalStmt:
		case T_DeallocateStmt:
		case T_DiscardStmt:
		case T_UnlistenStmt:
		case T_VariableSetStmt:
		case T_VariableShowStmt:
			return true;

		default:
			return false;
	}
}

/*
 * Before a statement, which is one of the executor's or a utility statement: no work
 * for somebody whose lock is lost.  Returns whether it is excused.
 */
static bool
before_statement(QueryDesc *query, Node *utility)
{
	ZkHeldLock *held;

	if (utility != NULL && is_exempt(utility))
		return true;
	if (!armed)
		return false;
	start_timer(); /* an error stops it */
	held = zklock_loss_find();
	if (held != NULL)
	{
		if (held->transaction_count == 0 && !worked && !has_written() &&
			may_acknowledge(query, utility))
			return true;
		report_loss(held);
	}
	worked = true;
	return false;
}

/*
 * After the outermost one, unless excused: it may have run where no cancel strikes, or
 * waited there, as COPY does for its client.  Raise what can still be undone.
 */
static void
after_statement(QueryDesc *query, Node *utility)
{
	ZkHeldLock *held;

	if (!worked || cannot_be_undone())
		return;
	zklock_hold_refresh();
	held = zklock_loss_find();
	if (held != NULL && !may_acknowledge(query, utility))
		report_loss(held);
}

/*
 * At the end of each, be it that its portal is dropped by whatever comes next, such as
 * a ROLLBACK: nothing is raised.
 */
static void
tidy(void)
{
	if (!armed)
		return;

	/*
	 * So that our PRE_COMMIT comes before that of postgres_fdw, which commits.
	 * After an inner statement, too: a procedure may COMMIT next.
	 */
	if (!committing)
		zklock_hold_callbacks_first();
	if (nesting == 0)
		zklock_hold_refresh();
}

static void
on_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
			   uint64 count ZKLOCK_EXECUTE_ONCE_ARG)
{
	bool outer = excused;
	bool own = before_statement(queryDesc, NULL);

	excused = own;
	nesting++;
	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(queryDesc, direction, count ZKLOCK_EXECUTE_ONCE);
		else
			standard_ExecutorRun(queryDesc, direction, count ZKLOCK_EXECUTE_ONCE);
	}
	PG_CATCH();
	{
		nesting--;
		excused = outer;
		convert_cancel();
		PG_RE_THROW();
	}
	PG_END_TRY();
	nesting--;
	excused = outer;
	if (nesting == 0 && !own)
		after_statement(queryDesc, NULL);
}

static void
on_ExecutorFinish(QueryDesc *queryDesc)
{
	nesting++;
	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
		nesting--;
	}
	PG_CATCH();
	{
		nesting--;
		convert_cancel();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static void
on_ExecutorEnd(QueryDesc *queryDesc)
{
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
	tidy();
}

static void
on_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				  ProcessUtilityContext context, ParamListInfo params,
				  QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	bool outer = excused;
	bool own = before_statement(NULL, pstmt->utilityStmt);

	excused = own;
	nesting++;
	PG_TRY();
	{
		if (prev_ProcessUtility)
			prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
								queryEnv, dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
									queryEnv, dest, qc);
	}
	PG_CATCH();
	{
		nesting--;
		excused = outer;
		convert_cancel();
		PG_RE_THROW();
	}
	PG_END_TRY();
	nesting--;
	excused = outer;
	tidy();
	if (nesting == 0 && !own)
		after_statement(NULL, pstmt->utilityStmt);
}

void
zklock_loss_install_hooks(void)
{
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = on_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = on_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = on_ExecutorEnd;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = on_ProcessUtility;
	prev_emit_log = emit_log_hook;
	emit_log_hook = on_emit_log;
}
