/*-------------------------------------------------------------------------
 *
 * callbacks.c
 *	  The places where PostgreSQL calls zklock: at the ends of transactions and of the
 *	  backend, and around statements.
 *
 * The hook around the outermost statement replaces the cancel of our timer (alarm.c) by
 * an error that says what happened.
 *
 * At the end of a transaction nothing throws, allocates, reads a catalog or waits,
 * except that PRE_COMMIT and PRE_PREPARE may throw, and COMMIT may warn (loss.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "tcop/utility.h"

#include "alarm.h"
#include "callbacks.h"
#include "loss.h"
#include "names.h"
#include "queue_backend.h"

/* The innermost of these hooks is ExecutorRun's: its ExecutorEnd comes before any
 * commit, since nothing in a query can commit. */
static bool in_query = false;

static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static emit_log_hook_type prev_emit_log = NULL;

/* ------------------------------------------------------------------------
 * Transactions and the backend
 * ------------------------------------------------------------------------
 */

static void
on_transaction_end(XactEvent event, void *arg)
{
	bool queues = zklock_queue_any();
	bool commit = event == XACT_EVENT_COMMIT;

	if (!zklock_hold_any() && !queues && !zklock_hold_pending() && zklock_alarm.runs == 0)
		return;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* a backend that ends drops its temporary tables, whatever is lost */
			if (proc_exit_inprogress)
				break;
			/* this may take a while, so the look at what is lost comes after it */
			if (queues)
				zklock_queue_before_commit();
			/* DISCARD ALL has released session-scope holds by now */
			zklock_hold_end_void();
			zklock_loss_before_commit(zklock_hold_any_in_transaction());
			if (!queues)
				break;
			zklock_queue_claim();
			/* either may have waited */
			zklock_loss_before_commit(zklock_hold_any_in_transaction());
			zklock_queue_claim();
			break;

		case XACT_EVENT_PRE_PREPARE:
			if (zklock_hold_any_in_transaction())
				zklock_hold_refuse_prepare();
			if (queues)
				zklock_queue_refuse_prepare();
			zklock_loss_before_commit(false);
			break;

		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			/* others of PostgreSQL's exit callbacks abort before ours comes to it */
			if (proc_exit_inprogress)
				zklock_hold_abandon();
			else if (commit)
				zklock_loss_after_commit();
			else
				zklock_loss_on_abort();
			if (queues)
				zklock_queue_end(commit);
			zklock_hold_end_pending();
			zklock_hold_end_transaction(1);
			zklock_hold_end_void();
			zklock_loss_after_transaction(commit);
			break;

		case XACT_EVENT_PREPARE:
			zklock_loss_after_transaction(true);
			break;

		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

static void
on_subtransaction_end(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	int level;

	if (event == SUBXACT_EVENT_ABORT_SUB)
		zklock_loss_on_abort();
	if (!zklock_hold_any_in_transaction() && !zklock_queue_any())
		return;
	level = GetCurrentTransactionNestLevel();

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			zklock_queue_end_sub(level, true);
			zklock_hold_pass_to_parent(level);
			break;

		case SUBXACT_EVENT_ABORT_SUB:
			zklock_queue_end_sub(level, false);
			zklock_hold_end_transaction(level);
			break;

		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/* PostgreSQL's own callback aborts the transaction.  This one is registered after it,
 * and so is called before it.  Holds must not end before the transaction does. */
static void
on_backend_exit(int code, Datum arg)
{
	zklock_hold_abandon();
	AbortOutOfAnyTransaction();
	zklock_hold_end_pending();
	zklock_hold_end_transaction(1);
	zklock_hold_end_all_session_scope(false);
}

/*
 * PostgreSQL first calls the callback that was registered last.  Ours has to be called
 * once, before a callback that commits on another server: a refusal after that one would
 * leave half of the work.  The new registration comes before the old one goes, so an
 * error on the way leaves one.
 */
static void
callbacks_first(void)
{
	static char registrations[2];
	static int current = 0;

	RegisterXactCallback(on_transaction_end, &registrations[1 - current]);
	UnregisterXactCallback(on_transaction_end, &registrations[current]);
	current = 1 - current;
}

void
zklock_callbacks_begin(void)
{
	static bool registered = false;

	/* taken by an expression in PL/pgSQL, no statement may end before the commit */
	if (!registered || !in_query)
		callbacks_first();
	if (!registered)
	{
		RegisterSubXactCallback(on_subtransaction_end, NULL);
		before_shmem_exit(on_backend_exit, 0);
		registered = true; /* should anything here fail, it is done again */
	}
}

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

/*
 * In a PG_CATCH block: if the error is the cancel of our timer, raise the loss instead.
 */
static void
convert_cancel(void)
{
	ZkHeldLock *held;

	if (!zklock_alarm.shot || zklock_alarm.nesting > 0 ||
		geterrcode() != ERRCODE_QUERY_CANCELED || (held = zklock_loss_cancelled()) == NULL)
		return;
	zklock_alarm.shot = false;
	FlushErrorState();
	zklock_loss_raise(held);
}

/*
 * A cancel of our timer may strike outside of our hooks: in parse analysis, which waits
 * for table locks, in the planner, or in a deferred trigger between its statements.
 * Then the error cannot be replaced, but its report can: PostgreSQL calls this before
 * the report goes to the log and to the client.  (It does not while ERRORs are kept out
 * of the log; then the client gets the report of a cancel.)  This only improves the
 * text: the abort decides what the cancel means for the hold (zklock_loss_on_abort).
 *
 * No interrupt can end this function, and clients send texts of any size.  So it reads
 * no text, and replaces the text of our cancel as a whole.
 */
static void
on_emit_log(ErrorData *edata)
{
	ZkHeldLock *held;

	if (zklock_alarm.shot && edata->elevel == ERROR &&
		edata->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		(held = zklock_loss_cancelled()) != NULL)
	{
		ZkLossText text;
		const char *name = zklock_plain_name(held->name);

		zklock_loss_describe(held, name, &text);
		edata->sqlerrcode = text.sqlstate;
		edata->message = psprintf("%s \"%s\" was lost", text.what, name);
		edata->detail = pstrdup(text.detail);
		edata->hint = pstrdup(text.hint);
	}
	if (prev_emit_log)
		prev_emit_log(edata);
}

/* Tidy up at the end of each statement.  This raises nothing: the next statement may
 * end this one by dropping its portal, and it may be a ROLLBACK. */
static void
tidy(void)
{
	if (!zklock_alarm.armed && !zklock_queue_any())
		return;

	/*
	 * Our PRE_COMMIT has to come before that of postgres_fdw, which commits remotely.
	 * After an inner statement, too: a procedure may COMMIT next.
	 */
	if (!zklock_alarm.committing)
		callbacks_first();
	if (zklock_alarm.nesting == 0)
		zklock_hold_end_void();
}

/* The state around a statement. */
typedef struct Outer
{
	bool excused;
	bool in_query;
} Outer;

/* Enter a statement; leave it. */
static Outer
enter(bool excused, bool query)
{
	Outer outer = {.excused = zklock_alarm.excused, .in_query = in_query};

	zklock_alarm.excused = excused;
	in_query = query;
	zklock_alarm.nesting++;
	return outer;
}

static void
leave(Outer outer)
{
	Assert(zklock_alarm.nesting > 0);
	zklock_alarm.nesting--;
	zklock_alarm.excused = outer.excused;
	in_query = outer.in_query;
}

static void
on_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
			   uint64 count ZKLOCK_EXECUTE_ONCE_ARG)
{
	bool own = zklock_loss_before_statement(queryDesc, NULL);
	Outer outer = enter(own, true);

	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(queryDesc, direction, count ZKLOCK_EXECUTE_ONCE);
		else
			standard_ExecutorRun(queryDesc, direction, count ZKLOCK_EXECUTE_ONCE);
	}
	PG_CATCH();
	{
		leave(outer);
		convert_cancel();
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave(outer);
	if (zklock_alarm.nesting == 0 && !own)
		zklock_loss_after_statement(queryDesc, NULL);
}

/* Does ExecutorFinish run anything, such as triggers, or the rest of a WITH that
 * writes? */
static bool
finish_runs(const QueryDesc *queryDesc)
{
	const EState *estate = queryDesc->estate;

	return (estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0 ||
		estate->es_auxmodifytables != NIL;
}

static void
on_ExecutorFinish(QueryDesc *queryDesc)
{
	if (!finish_runs(queryDesc))
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
		return;
	}
	zklock_alarm.nesting++;
	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
		zklock_alarm.nesting--;
	}
	PG_CATCH();
	{
		zklock_alarm.nesting--;
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
	bool own = zklock_loss_before_statement(NULL, pstmt->utilityStmt);
	Outer outer = enter(own, false);

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
		leave(outer);
		convert_cancel();
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave(outer);
	tidy();
	if (zklock_alarm.nesting == 0 && !own)
		zklock_loss_after_statement(NULL, pstmt->utilityStmt);
}

void
zklock_callbacks_install(void)
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
