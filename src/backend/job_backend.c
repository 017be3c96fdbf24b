/*-------------------------------------------------------------------------
 *
 * job_backend.c
 *	  Runs jobs, in the backend that has called them.
 *
 * The steps are those of job_rules.h.  A write to ZooKeeper and the transaction that it
 * reports are separate, so there are three transactions:
 *
 *	 the first	waits for the job, decides, and has it written that the run goes on
 *	 the second	is the command's.  All that may fail has been done when it is written that
 *				the run is committing: the command, its deferred triggers, its row in
 *				zk_runs.  Then it commits, if nothing is lost (loss.c)
 *	 the third	has it written what became of it
 *
 * The command runs in a subtransaction.  If the command fails, everything that it
 * leaves goes with the subtransaction, SPI and zklock's locks included, and the
 * procedure goes on.
 *
 * The backend holds the job in session scope all the time, and in transaction scope,
 * too, during the command's transaction.  So the command cannot give the job back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "alarm.h"
#include "changes.h"
#include "command.h"
#include "drain.h"
#include "holder.h"
#include "job_after.h"
#include "job_backend.h"
#include "job_pause.h"
#include "job_record.h"
#include "job_runs.h"
#include "loss.h"
#include "names.h"
#include "proclock.h"
#include "query.h"
#include "queue_backend.h"
#include "settings.h"
#include "waiting.h"

/* A run, or the reason why there is none. */
typedef struct Run
{
	const ZkJobOrder *order;
	int64 token;
	ZkJobDecision decision;
	ZkJobRun run;	   /* the run itself, or the one that the decision is about */
	bool drained;	   /* no decision: the server is taken out of service */
	bool busy;		   /* ... somebody else has the job, and the caller would not wait */
	ZkJob *after;	   /* the records of the jobs after which this one is to be run */
	bool tried;		   /* "run" has been written, perhaps */
	TimestampTz began; /* by this server's clock */
	int32 proclock;	   /* of the job, when the run may be committing */
	/* of what is to be written next */
	uint64 xid;
	ZkJobCommit commit;
	ZkJobState end;
	const char *error;
	bool told;			   /* what became of it */
	MemoryContext context; /* lives as long as the procedure runs */
} Run;

/* ------------------------------------------------------------------------
 * Decisions
 * ------------------------------------------------------------------------
 */

ZkJobServer
zklock_job_self(uint64 database)
{
	static char name[256];

	zklock_effective_server_name(name, sizeof(name));
	return (ZkJobServer){.system = GetSystemIdentifier(),
						 .database = database,
						 .timeline = (int) GetWALInsertionTimeLine(),
						 .name = name};
}

/*
 * Is there another server that cannot be told from this one?  The node of this server's
 * previous session may look like one, unless that session is kept for runs that are to
 * be settled: it goes before long.
 */
static bool
has_namesake(const char *name)
{
	ZkQuery query = {.ask = ZKLOCK_ASK_SERVERS};
	ZkSessionShared s;
	ZkNode *nodes;
	int n;
	size_t len;

	zklock_encode_name(name, query.prefix);
	len = strlen(query.prefix);
	n = zklock_query(&query, &nodes);
	zklock_session_read(&s);
	for (int i = 0; i < n; i++)
		if (strlen(nodes[i].name) == len + 1 + ZKLOCK_MARK_LEN &&
			nodes[i].name[len] == '-' &&
			(zklock_node_unread(&nodes[i]) ||
			 (nodes[i].ephemeral_owner != 0 && nodes[i].ephemeral_owner != s.id.id &&
			  nodes[i].ephemeral_owner != s.before)))
			return true;
	return false;
}

/* Is the transaction over, so that it will never commit here if it has not committed?
 * It belongs to this server, or to the server that this one was copied from. */
static bool
is_over(uint64 xid)
{
	FullTransactionId next = ReadNextFullTransactionId();

	/* one that has not begun here, or before what PostgreSQL can tell apart */
	if (xid == 0 || xid >= U64FromFullTransactionId(next) ||
		U64FromFullTransactionId(next) - xid > PG_INT32_MAX)
		return true;
	return !TransactionIdIsInProgress((TransactionId) xid);
}

static void
tell_settled(const char *name, ZkJobId run, const char *what)
{
	ereport(LOG,
			(errmsg("job \"%s\": run %lld is no longer in doubt: it %s",
					zklock_display_name(name), (long long) run.number, what)));
}

/*
 * Settle runs of this database whose end the record does not know.  The session of a
 * run that commits by itself has level 1; if this backend has it now, that session is
 * over.
 */
static void
settle(ZkJob *job, Oid function, const char *name, bool level1, int64_t now)
{
	ZkJobServer self = zklock_job_self(MyDatabaseId);

	for (int i = 0; (i = zklock_job_open(job, &self, i)) >= 0; i++)
	{
		ZkJobRun run = job->run[i];
		bool own = zklock_job_is_own(&run, &self);
		bool committed;

		if (own && (run.begun ? !level1 : !is_over(run.xid)))
			continue;
		committed = zklock_job_runs_committed(function, name, &run);
		if (!committed && !own)
			continue;
		if (!committed && has_namesake(self.name))
		{
			zklock_job_want_settler(MyDatabaseId, false); /* when it is alone */
			continue;
		}
		zklock_job_settle(job, run.id, &self, committed, now);
		tell_settled(name, run.id,
					 committed		 ? "is done"
						 : run.begun ? "did not reach zk_run_end"
									 : "has not committed");
	}
}

typedef struct Settling
{
	Oid function;
	const char *name;
	bool level1;
	List *left; /* ZkLeftRun */
} Settling;

/*
 * Settle the runs whose jobs sessions have left to this server.  Their transactions are
 * over, and certainly this server's own.  PostgreSQL knows their outcome, whatever has
 * happened to zk_runs.
 */
static void
settle_left(ZkJob *job, const Settling *what, int64_t now)
{
	ListCell *cell;

	foreach (cell, what->left)
	{
		const ZkLeftRun *left = lfirst(cell);
		const ZkJobRun *run = zklock_job_find(job, left->run);
		bool committed;

		if (run == NULL || (run->end != ZKLOCK_JOB_NEVER && !run->doubt))
			continue;
		committed = run->xid != 0 && TransactionIdDidCommit((TransactionId) run->xid);
		zklock_job_finish(job, left->run, committed ? ZKLOCK_JOB_DONE : ZKLOCK_JOB_LOST,
						  NULL, now);
		tell_settled(what->name, left->run, committed ? "is done" : "has not committed");
	}
}

static void
settle_alone(ZkJob *job, int64_t now, void *arg)
{
	const Settling *what = arg;

	settle_left(job, what, now);
	if (OidIsValid(what->function))
		settle(job, what->function, what->name, what->level1, now);
}

/* Find the runs of now: later ones are for the next settler. */
static List *
find_left(const char *name)
{
	List *all = NIL;
	ZkLeftRun left = {.proclock = -1};

	while (zklock_proclock_next_left(left.proclock + 1, &left))
	{
		if (left.database == MyDatabaseId && strcmp(left.name, name) == 0)
			all = lappend(all, memcpy(palloc(sizeof(left)), &left, sizeof(left)));
	}
	return all;
}

void
zklock_job_settle_runs(Oid function, const char *name)
{
	Settling what = {.function = function, .name = name, .left = find_left(name)};
	ListCell *cell;
	LOCKTAG tag;

	/* until the transaction ends; whoever has it will settle what is left */
	zklock_level1_tag(&tag, ZKLOCK_KIND_JOB, name, 0);
	what.level1 = LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
	(void) zklock_job_record_change(name, false, settle_alone, &what);
	foreach (cell, what.left)
	{
		const ZkLeftRun *left = lfirst(cell);

		zklock_proclock_settled(left->proclock, left->run);
	}
}

/* A backend decides, or forgets, in the session in which it has the job.  If it has
 * read the record in another session, the loss was marked before. */
static void
check_holder(const char *name)
{
	ZkHeldLock *held = zklock_held_find(ZKLOCK_KIND_JOB, name);

	if (held != NULL && zklock_held_lost(held))
		zklock_loss_raise(held);
}

static ZkJobCall
make_call(const Run *run)
{
	const ZkJobOrder *order = run->order;

	return (ZkJobCall){
		.every = order->every,
		.origin = order->origin,
		.slot = order->slot,
		.attempts = order->attempts,
		.skip = order->skip,
		.begun = order->command == NULL,
		.token = run->token,
		.server = zklock_job_self(MyDatabaseId),
		.own_done = ZKLOCK_JOB_NEVER,
		.nafter = order->nafter,
		.after = run->after,
	};
}

static void
decide(ZkJob *job, int64_t now, void *arg)
{
	Run *run = arg;
	const ZkJobOrder *order = run->order;
	const ZkJobRun *mine = run->tried ? zklock_job_find(job, run->run.id) : NULL;
	ZkJobCall call = make_call(run);

	if (mine != NULL && mine->state == ZKLOCK_JOB_RUNNING)
		return; /* it was written, though we did not hear of it */
	check_holder(order->name);
	settle(job, order->function, order->name, true, now);
	call.own_done = zklock_job_runs_last_done(order->function, order->name, job);
	run->decision = zklock_job_decide(job, &call, now);
	memset(&run->run, 0, sizeof(run->run));
	if (run->decision.run >= 0)
		run->run = job->run[run->decision.run];
	run->tried = run->decision.verdict == ZKLOCK_JOB_RUN;
}

/* Decide as if the caller had the job.  Changes nothing. */
static void
look_ahead(ZkJob *job, int64_t now, void *arg)
{
	Run *run = arg;
	ZkJob *copy = palloc(sizeof(ZkJob));
	ZkJobCall call = make_call(run);

	memcpy(copy, job, sizeof(ZkJob));
	call.token = PG_INT64_MAX;
	run->decision = zklock_job_decide(copy, &call, now);
}

static const char *
show_server(const ZkJobRun *run)
{
	return zklock_display_text(run->server_name);
}

/* An error of a command may be meant for its caller alone, who may have been another
 * user. */
static bool
may_see_errors(void)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* The call that resets this slot and no other, for the user to copy.  With "attempt"
 * not 0 it resets only if the slot was not run since that attempt. */
static const char *
show_reset(const char *name, int64_t slot, int attempt)
{
	return psprintf("SELECT zk_job_reset(%s, %s%s)",
					quote_literal_cstr(zklock_display_name(name)),
					quote_literal_cstr(zklock_job_time_text(slot)),
					attempt > 0 ? psprintf(", attempt => %d", attempt) : "");
}

/*
 * Another session has the job, and the caller does not wait for it.  The record says
 * who runs the job.  A skipped job is no error, so it is no error if the record cannot
 * be read.
 */
static void
tell_busy(const char *name)
{
	int64 until = zklock_clock() + zklock_connect_timeout * NS_PER_MS;
	const char *display = zklock_display_name(name);
	ZkJob *job = palloc(sizeof(ZkJob));
	ZkRecord record;

	if (zklock_query_record(ZKLOCK_KIND_JOB, name, until, &record) && record.exists &&
		zklock_job_record_parse(&record.node, job) == ZKLOCK_RECORD_GOOD &&
		job->nruns > 0 && job->run[0].end == ZKLOCK_JOB_NEVER)
		ereport(NOTICE,
				(errmsg("job \"%s\" is being run by server \"%s\", skipping", display,
						show_server(&job->run[0]))));
	else
		ereport(NOTICE,
				(errmsg("job \"%s\" is held by another session, skipping", display)));
}

/* Say that the slot is done. */
static void
tell_done(const Run *run, const char *name, const char *slot)
{
	const ZkJobDecision *decision = &run->decision;
	const ZkJobRun *other = &run->run;

	ereport(NOTICE,
			(errmsg("job \"%s\" is done for slot %s, skipping", name, slot),
			 decision->run < 0 ? 0
				 : other->state == ZKLOCK_JOB_SKIPPED
				 ? errdetail("Server \"%s\" was lost while it committed at %s, and that counts as done.",
							 show_server(other), zklock_job_time_text(other->end))
				 : errdetail("Server \"%s\" ended the run at %s.", show_server(other),
							 zklock_job_time_text(other->end)),
			 decision->ahead
				 ? errhint("The slot lies ahead of ZooKeeper's clock. If that was wrong then, and is right now, use %s.",
						   show_reset(run->order->name, decision->slot, 0))
				 : 0));
}

/* Raise that no attempt is left. */
static void
raise_given_up(const Run *run, const char *name, const char *slot)
{
	const ZkJobDecision *decision = &run->decision;
	const ZkJobRun *other = &run->run;
	bool known = decision->run >= 0;

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job \"%s\" has failed for slot %s", name, slot),
			 !known ? 0
				 : may_see_errors() && other->error[0] != '\0'
				 ? errdetail("Attempt %d on server \"%s\" failed at %s: %s", other->attempt,
							 show_server(other), zklock_job_time_text(other->end),
							 zklock_display_text(other->error))
				 : errdetail("Attempt %d on server \"%s\" failed at %s.", other->attempt,
							 show_server(other), zklock_job_time_text(other->end)),
			 errhint("Use %s to have it run again.",
					 show_reset(run->order->name, decision->slot,
								known ? other->attempt : 0))));
}

/* Say why the job is not run. */
static void
tell(const Run *run)
{
	const ZkJobDecision *decision = &run->decision;
	const char *name = zklock_display_name(run->order->name);
	const char *slot;

	if (run->busy)
	{
		tell_busy(run->order->name);
		return;
	}
	if (run->drained)
	{
		ereport(NOTICE,
				(errmsg("job \"%s\" is not run by this server, skipping", name),
				 errdetail("The server is taken out of service by \"zklock.drain\".")));
		return;
	}
	slot = zklock_job_time_text(decision->slot);
	if (decision->verdict == ZKLOCK_JOB_PAUSED)
		ereport(NOTICE,
				(errmsg("job \"%s\" is paused until %s, skipping", name,
						zklock_job_pause_text(decision->slot))));
	else if (decision->verdict == ZKLOCK_JOB_TOO_SOON)
		ereport(NOTICE,
				(errmsg("job \"%s\" is run after job \"%s\", which is not done for slot %s, skipping",
						name, zklock_display_name(run->order->after[decision->after]),
						slot)));
	else if (decision->verdict == ZKLOCK_JOB_NOT_DUE)
		tell_done(run, name, slot);
	else
		raise_given_up(run, name, slot);
}

/* ------------------------------------------------------------------------
 * The job as a lock
 * ------------------------------------------------------------------------
 */

static void
release(const Run *run)
{
	ZkHeldLock *held = zklock_held_find(ZKLOCK_KIND_JOB, run->order->name);

	if (held != NULL)
		(void) zklock_hold_end_session_scope(held, true);
}

pg_noreturn static void
raise_taken_over(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("job \"%s\" was lost", zklock_display_name(name)),
			 errdetail("Another server has come to run it meanwhile."),
			 errhint("The next call runs the job, if it is still due.")));
}

/* This session's hold of the job in session scope, or NULL. */
static ZkHeldLock *
find_held(const char *name)
{
	ZkHeldLock *held;

	zklock_hold_end_void();
	held = zklock_held_find(ZKLOCK_KIND_JOB, name);
	return held != NULL && !slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]) ? held
																			   : NULL;
}

static int
hint_ends(const char *name)
{
	const char *literal = quote_literal_cstr(zklock_display_name(name));

	return errhint("If what it runs has come to its end, use SELECT zk_run_end(%s); if not, use SELECT zk_run_end(%s, ok => false).",
				   literal, literal);
}

/* The latest transaction that has ended runs as done. */
static FullTransactionId ends_in = {InvalidTransactionId};

/* Has this transaction only ended runs so far, and is it no transaction block? */
static bool
only_ends(void)
{
	FullTransactionId xid = GetTopFullTransactionIdIfAny();

	return !IsInTransactionBlock(true) && !zklock_queue_any() &&
		(!FullTransactionIdIsValid(xid) || FullTransactionIdEquals(xid, ends_in));
}

/*
 * A session must end the run that it has begun before it asks again: otherwise it would
 * wait for nobody.  A call that fails here is no work, unless the transaction has done
 * anything else, which is rolled back.
 */
static void
check_not_held(const char *name)
{
	const ZkHeldLock *held = find_held(name);

	if (held == NULL)
		return;
	if (only_ends() && !zklock_alarm.acted)
		zklock_alarm.refused = GetCurrentTransactionStartTimestamp();
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("this session runs job \"%s\" already", zklock_display_name(name)),
			 held->begun ? hint_ends(name) : 0));
}

/* Raise that another job was to be done before, and is not. */
pg_noreturn static void
raise_too_soon(const Run *run)
{
	const ZkJobOrder *order = run->order;

	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("job \"%s\" was not done for slot %s within %lld ms",
					zklock_display_name(order->after[run->decision.after]),
					zklock_job_time_text(run->decision.slot), (long long) order->wait),
			 errdetail("Job \"%s\" is run after it.", zklock_display_name(order->name))));
}

/* Wait for the job for "wait" ms, and decide.  False: that is not possible, and "run"
 * says why. */
static bool
take_once(Run *run, int64 wait)
{
	const ZkJobOrder *order = run->order;

	if ((run->drained = zklock_draining()))
		return false;
	if (!zklock_acquire(ZKLOCK_KIND_JOB, order->name, ZKLOCK_EXCLUSIVE,
						ZKLOCK_SCOPE_SESSION, wait, &run->token))
	{
		if ((run->busy = order->wait == 0))
			return false;
		zklock_waiting_raise_over(ZKLOCK_KIND_JOB, order->name, order->wait);
	}
	if ((run->drained = zklock_draining()))
		return false;
	zklock_job_after_read(order->after, order->nafter, run->after);
	(void) zklock_job_record_change(order->name, false, decide, run);
	if (run->decision.verdict == ZKLOCK_JOB_NO_HOLDER)
		raise_taken_over(order->name);
	return true;
}

static void
on_error_after(void *arg)
{
	const Run *run = arg;

	errcontext("while waiting for job \"%s\", after which job \"%s\" is to be run",
			   zklock_plain_name(run->order->after[run->decision.after]),
			   zklock_plain_name(run->order->name));
}

static void
end_wait(int code, Datum arg)
{
	zklock_holder_set_wait(ZKLOCK_KIND_JOB, NULL);
}

/*
 * Another job is to be done before: wait until it is, or until there is another reason
 * to decide.  The backend does not hold its own job meanwhile, and does not take it to
 * look: that would refuse callers that do not wait.
 */
static void
await_others(Run *run, const ZkWait *limits)
{
	const ZkJobOrder *order = run->order;
	ErrorContextCallback callback = {
		.callback = on_error_after,
		.arg = run,
		.previous = error_context_stack,
	};

	error_context_stack = &callback;
	PG_ENSURE_ERROR_CLEANUP(end_wait, 0);
	while (run->decision.verdict == ZKLOCK_JOB_TOO_SOON && !zklock_draining())
	{
		zklock_holder_set_wait(ZKLOCK_KIND_JOB, order->after[run->decision.after]);
		if (!zklock_job_after_sleep(limits))
		{
			error_context_stack = callback.previous;
			raise_too_soon(run);
		}
		zklock_job_after_read(order->after, order->nafter, run->after);
		(void) zklock_job_record_change(order->name, false, look_ahead, run);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_wait, 0);
	end_wait(0, 0);
	error_context_stack = callback.previous;
}

/*
 * Wait for the job and for those after which it is to be run, and decide.  Returns true
 * if it is to be run.  The backend holds the job afterwards, even if an error is
 * raised.
 */
static bool
take(Run *run)
{
	const ZkJobOrder *order = run->order;
	int64 wait = order->wait;
	ZkWait limits;

	run->after = palloc(sizeof(ZkJob) * (Size) order->nafter);
	zklock_wait_begin(&limits, order->wait);
	for (;;)
	{
		if (!take_once(run, wait))
			return false;
		if (run->decision.verdict != ZKLOCK_JOB_TOO_SOON || order->wait == 0)
			break;
		release(run);
		await_others(run, &limits);
		if (order->wait != ZKLOCK_WAIT_FOREVER)
			wait = Max((limits.until - zklock_clock()) / NS_PER_MS, 1);
	}
	if (run->decision.verdict != ZKLOCK_JOB_RUN)
		return false;
	run->began = GetCurrentTimestamp();
	ereport(LOG,
			(errmsg("job \"%s\": run %lld begins for slot %s, attempt %d, token %lld",
					zklock_display_name(order->name), (long long) run->run.id.number,
					zklock_job_time_text(run->run.slot), run->run.attempt,
					(long long) run->token)));
	return true;
}

/* ------------------------------------------------------------------------
 * The end of a run
 * ------------------------------------------------------------------------
 */

static void
finish(ZkJob *job, int64_t now, void *arg)
{
	Run *run = arg;

	zklock_job_finish(job, run->run.id, run->end, run->error, now);
}

static void
insert_row(const Run *run)
{
	ZkRunRow row = {
		.kind = ZKLOCK_KIND_JOB,
		.name = run->order->name,
		.token = run->token,
		.run = &run->run,
		.started = run->began,
		.done = run->end == ZKLOCK_JOB_DONE,
		.error = run->error,
	};

	zklock_job_runs_insert(run->order->function, &row);
}

static void
tell_end(const Run *run)
{
	ereport(LOG,
			(errmsg("job \"%s\": run %lld %s after %lld ms",
					zklock_display_name(run->order->name), (long long) run->run.id.number,
					run->end == ZKLOCK_JOB_DONE			? "is done"
						: run->end == ZKLOCK_JOB_FAILED ? "failed"
														: "was lost",
					(long long) ((GetCurrentTimestamp() - run->began) / 1000)),
			 run->error != NULL ? errdetail("%s", zklock_display_text(run->error)) : 0));
	zklock_changes_add_end(run->order->name, run->end);
}

/* The first line of an error that is not blank, in UTF-8.  It is never "", since that
 * means in the record that there is no error. */
static char *
first_line(const ErrorData *error)
{
	const char *text = error->message != NULL ? error->message : "";

	text += strspn(text, " \t\r\n\v\f");
	if (text[0] == '\0')
		text = "missing error text"; /* as PostgreSQL says */
	return zklock_bytes_to_utf8(pnstrdup(text, strcspn(text, "\r\n")));
}

/*
 * Take the error of a PG_CATCH block, and leave that block.  If the error is the cancel
 * of our timer, return the loss instead (at the end of a statement callbacks.c does
 * that).
 */
static ErrorData *
take_error(MemoryContext context)
{
	ErrorData *volatile error;
	ZkHeldLock *held;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	if (!zklock_alarm.shot || error->sqlerrcode != ERRCODE_QUERY_CANCELED ||
		(held = zklock_loss_cancelled()) == NULL)
		return error;
	zklock_alarm.shot = false;
	PG_TRY();
	{
		zklock_loss_raise(held);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	return error;
}

/* The latest run that may be committing and whose end this session has not recorded. */
static Run unsettled;
static char unsettled_name[ZKLOCK_NAME_MAX + 1] = ""; /* its job's; "": there is none */

/* The third transaction.  The outcome of the run is fixed by now.  If it cannot be
 * written now, this server finds it out when it looks at the record again. */
static void
record_end(Run *run)
{
	PG_TRY();
	{
		(void) zklock_job_record_change(run->order->name, false, finish, run);
		if (run->end == ZKLOCK_JOB_FAILED)
			insert_row(run);
		SPI_commit();
		zklock_proclock_settled(run->proclock, run->run.id);
		unsettled_name[0] = '\0';
	}
	PG_CATCH();
	{
		ErrorData *error = take_error(run->context);

		SPI_rollback();
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("the end of a run of job \"%s\" could not be recorded",
						zklock_display_name(run->order->name)),
				 errdetail("The run %s. The error was: %s.",
						   run->end == ZKLOCK_JOB_DONE		   ? "is done"
							   : run->end == ZKLOCK_JOB_FAILED ? "failed"
															   : "was lost",
						   error->message)));
	}
	PG_END_TRY();
}

static void end_unsettled(void);
static const char *any_begun(void);
static void fail_begun(void);

/* The backend ends. */
static void
on_backend_exit(int code, Datum arg)
{
	if (unsettled_name[0] != '\0')
		end_unsettled();
	if (code == 0)
		fail_begun();
}

/* A prepared transaction may still be rolled back, by anybody, and this session would
 * not hear of it.  So the session could never say that a run is done. */
static void
on_prepare(XactEvent event, void *arg)
{
	const char *name;

	if (event != XACT_EVENT_PRE_PREPARE || zklock_alarm.runs == 0)
		return;
	name = zklock_display_name(any_begun());
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot PREPARE a transaction during a run of job \"%s\"", name),
			 errdetail(
				 "What is prepared could be rolled back when the run is recorded as done."),
			 errhint("Use COMMIT, or prepare it in another session. If the run is over and has failed, use SELECT zk_run_end(%s, ok => false) first.",
					 quote_literal_cstr(name))));
}

/* Register the callbacks after the job is held, so that they are called before the
 * callback that gives the job back. */
static void
watch(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(on_prepare, NULL);
	before_shmem_exit(on_backend_exit, 0);
	registered = true;
}

/* ------------------------------------------------------------------------
 * Commands in a transaction
 * ------------------------------------------------------------------------
 */

/* Fire all deferred triggers now: their errors must come before it is written that the
 * run commits. */
static void
fire_deferred(void)
{
	ConstraintsSetStmt all = {.type = T_ConstraintsSetStmt, .deferred = false};

	AfterTriggerSetState(&all);
}

/* Run the command, and insert its row, in a subtransaction. */
static void
run_command(Run *run)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		zklock_command_run("zk_run_once", run->order->command);
		fire_deferred();
		run->end = ZKLOCK_JOB_DONE;
		insert_row(run);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData *error = take_error(run->context);

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

static void
commit(ZkJob *job, int64_t now, void *arg)
{
	Run *run = arg;

	run->commit = zklock_job_commit(job, run->run.id, run->xid);
}

/* The second transaction.  Its commit is flushed to disk, since the record then says
 * that the run is done. */
static void
run_transaction(Run *run)
{
	const ZkJobOrder *order = run->order;
	int64 token;

	if (!zklock_acquire(ZKLOCK_KIND_JOB, order->name, ZKLOCK_EXCLUSIVE,
						ZKLOCK_SCOPE_TRANSACTION, 0, &token) ||
		token != run->token)
		raise_taken_over(order->name);
	run_command(run);
	run->xid = U64FromFullTransactionId(GetTopFullTransactionId());
	run->proclock =
		zklock_held_find(ZKLOCK_KIND_JOB, order->name)->proclock[ZKLOCK_EXCLUSIVE];
	watch();
	zklock_proclock_set_run(run->proclock, run->run.id);
	unsettled = *run;
	strlcpy(unsettled_name, order->name, sizeof(unsettled_name));
	(void) zklock_job_record_change(order->name, false, commit, run);
	if (run->commit == ZKLOCK_JOB_ABORT)
		raise_taken_over(order->name);
	if (run->commit == ZKLOCK_JOB_DONE_BY_OTHERS)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("job \"%s\" turned out to be done for slot %s",
						zklock_display_name(order->name),
						zklock_job_time_text(run->run.slot)),
				 errdetail("An earlier run, which was in doubt, has committed.")));
	ForceSyncCommit();
	SPI_commit();
}

/* Execute a run that has been decided on and recorded. */
static void
execute(Run *run)
{
	ErrorData *volatile error = NULL;

	PG_TRY();
	{
		SPI_commit();
		run_transaction(run);
		run->end = ZKLOCK_JOB_DONE;
	}
	PG_CATCH();
	{
		const ZkHeldLock *held = zklock_held_find(ZKLOCK_KIND_JOB, run->order->name);

		error = take_error(run->context);
		run->end = run->commit != ZKLOCK_JOB_COMMIT || held == NULL ||
				zklock_held_lost(held) || zklock_lease_lost()
			? ZKLOCK_JOB_LOST
			: ZKLOCK_JOB_FAILED;
		SPI_rollback();
		MemoryContextSwitchTo(run->context);
		run->error = first_line(error);
		/* with a lost one our own timer would not let us go on */
		if (run->end == ZKLOCK_JOB_LOST)
			release(run);
	}
	PG_END_TRY();
	record_end(run);
	tell_end(run);
	unsettled.told = true;
	if (error != NULL)
		ReThrowError(error);
}

void
zklock_job_run_once(const ZkJobOrder *order)
{
	MemoryContext context =
		AllocSetContextCreate(PortalContext, "zklock job", ALLOCSET_DEFAULT_SIZES);
	Run *run = MemoryContextAllocZero(context, sizeof(Run));
	volatile bool due = false;

	run->order = order;
	run->context = context;
	check_not_held(order->name);
	PG_TRY();
	{
		due = take(run);
		if (due)
			execute(run);
	}
	PG_CATCH();
	{
		ErrorData *error = take_error(context);

		release(run);
		ReThrowError(error);
	}
	PG_END_TRY();
	release(run);
	if (!due)
		tell(run);
	MemoryContextDelete(context);
}

/* ------------------------------------------------------------------------
 * Commands that commit by themselves
 * ------------------------------------------------------------------------
 */

/* A run that this session has begun. */
typedef struct Begun
{
	slist_node node;
	Oid function; /* that began it */
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;
	ZkJobRun run;
	TimestampTz began;
	uint64 raised; /* zklock_loss_raised when it began */
	uint64 works;  /* zklock_alarm.works then */
} Begun;

static slist_head begun_runs = SLIST_STATIC_INIT(begun_runs);

static Begun *
find_begun(const char *name)
{
	slist_iter iter;

	slist_foreach (iter, &begun_runs)
	{
		Begun *begun = slist_container(Begun, node, iter.cur);

		if (strcmp(begun->name, name) == 0)
			return begun;
	}
	return NULL;
}

/* The name of one of the begun runs. */
static const char *
any_begun(void)
{
	return slist_head_element(Begun, node, &begun_runs)->name;
}

static void
forget_begun(Begun *begun)
{
	slist_delete(&begun_runs, &begun->node);
	zklock_alarm.runs--;
	pfree(begun);
}

/* The end of such a run. */
static Run
run_of(const Begun *begun, const ZkJobOrder *order, ZkJobState end)
{
	return (Run){
		.order = order,
		.token = begun->token,
		.run = begun->run,
		.began = begun->began,
		.end = end,
	};
}

bool
zklock_job_begin(const ZkJobOrder *order)
{
	MemoryContext context = CurrentMemoryContext;
	Run run = {.order = order};
	volatile bool due = false;
	ZkHeldLock *held;
	Begun *begun;

	check_not_held(order->name);
	if ((begun = find_begun(order->name)) != NULL)
		forget_begun(begun); /* it has lost level 1, as by DISCARD ALL */
	begun = MemoryContextAllocZero(TopMemoryContext, sizeof(Begun));
	PG_TRY();
	{
		due = take(&run);
		watch();
		held = zklock_held_find(ZKLOCK_KIND_JOB, order->name);
		if (due && zklock_loss_settle(held))
			zklock_loss_raise(held);
	}
	PG_CATCH();
	{
		ErrorData *error = take_error(context);

		release(&run);
		pfree(begun);
		ReThrowError(error);
	}
	PG_END_TRY();
	if (!due)
	{
		release(&run);
		pfree(begun);
		tell(&run);
		return false;
	}
	begun->function = order->function;
	strlcpy(begun->name, order->name, sizeof(begun->name));
	begun->token = run.token;
	begun->run = run.run;
	begun->began = run.began;
	begun->raised = zklock_loss_raised;
	begun->works = zklock_alarm.works;
	slist_push_head(&begun_runs, &begun->node);
	zklock_alarm.runs++;
	held->begun = true;
	return true;
}

/* Did the latest transaction of the session do a part of the run's work, and was it
 * rolled back? */
static bool
was_rolled_back(const Begun *begun)
{
	return zklock_alarm.works != begun->works && zklock_alarm.rolled_back;
}

/*
 * Was a statement of the session refused or cancelled since the run was lost?  Then a
 * part of the run's work is not done, and the call of zk_run_end only says that the
 * session has heard of the loss.  If the session has given the job up, too, nobody can
 * tell whether the statement was refused for this job's loss: then the run counts as
 * lost.
 */
static bool
was_interrupted(const Begun *begun)
{
	const ZkHeldLock *held = find_held(begun->name);

	if (held == NULL)
		return zklock_loss_raised != begun->raised;
	return (zklock_loss_raised != begun->raised || was_rolled_back(begun)) &&
		(zklock_lease_lost() || zklock_held_lost(held));
}

/* Write the record alone: zk_runs has the runs that are done, and those that have
 * failed. */
static void
end_lost(Begun *begun, const ZkJobOrder *order)
{
	Run run = run_of(begun, order, ZKLOCK_JOB_LOST);

	(void) zklock_job_record_change(order->name, false, finish, &run);
	tell_end(&run);
	release(&run);
	forget_begun(begun);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("the run of job \"%s\" is recorded as lost, not as done",
					zklock_display_name(order->name)),
			 errdetail(
				 "The job was lost during the run, and a statement of this session failed."),
			 errhint("The next call runs the job, if it is still due.")));
}

/*
 * May the record say that the run is done?  It may not while anything that the session
 * has done can be rolled back, nor if the latest transaction was rolled back.
 *
 * If no procedure goes on after this statement, the statement is the transaction.  So
 * that transaction must commit whatever is lost meanwhile, and it must commit at once
 * if it is part of a pipeline.  A background process may run statements without a
 * portal, and go on after this one as a procedure does.
 */
static void
check_done(const Begun *begun)
{
	const char *name = zklock_display_name(begun->name);
	const char *literal = quote_literal_cstr(name);

	if (!only_ends() || zklock_alarm.beside)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("a run of job \"%s\" cannot end in a transaction that does anything else",
						name),
				 errdetail("What the transaction does could still be rolled back."),
				 errhint("The transaction is rolled back. Repeat it without zk_run_end, commit, and then use SELECT zk_run_end(%s) on its own.",
						 literal)));
	if (was_rolled_back(begun))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the run of job \"%s\" is not done", name),
				 errdetail("The latest transaction of this session was rolled back."),
				 errhint("Repeat it, or use SELECT zk_run_end(%s, ok => false).", literal)));
	if (zklock_alarm.nesting == 1 && ActivePortal != NULL && ActivePortal->queryDesc != NULL)
		MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
}

bool
zklock_job_end(Oid function, const char *name, bool done)
{
	Begun *begun = find_begun(name);
	ZkJobOrder order = {.function = function, .name = name};
	ZkHeldLock *held;
	Run run;

	if (begun == NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this session has not begun a run of job \"%s\"",
						zklock_display_name(name))));
		return false;
	}
	if (done && was_interrupted(begun))
	{
		end_lost(begun, &order);
		return false;
	}
	held = find_held(name);
	if (done)
		check_done(begun);
	zklock_loss_check_others(held);
	run = run_of(begun, &order, done ? ZKLOCK_JOB_DONE : ZKLOCK_JOB_FAILED);
	insert_row(&run);
	if (done)
		ends_in = GetTopFullTransactionId();
	/* what has committed is on the disk before it is said to be done */
	XLogFlush(XactLastCommitEnd);
	(void) zklock_job_record_change(name, false, finish, &run);
	tell_end(&run);
	if (held != NULL)
	{
		zklock_loss_tell(held);
		release(&run);
	}
	else
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("job \"%s\" was given up before its run ended",
						zklock_display_name(name)),
				 errdetail("Another session may have run it meanwhile."),
				 errhint(
					 "Between zk_run_begin and zk_run_end, use neither DISCARD ALL nor pg_advisory_unlock_all().")));
	forget_begun(begun);
	return true;
}

/* ns: how long a backend that exits waits for ZooKeeper.  Nothing can interrupt this
 * wait, and a shutdown waits for it. */
#define EXIT_PATIENCE (5000 * NS_PER_MS)

/* Does the worker get answers?  While the worker waits for the last hold to end, the
 * backend has to try. */
static bool
is_connected(void)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	return (s.state == ZKLOCK_SESSION_CONNECTED && s.proven) ||
		s.state == ZKLOCK_SESSION_CLOSING;
}

/* Can this backend record at once that the run has failed? */
static bool
is_in_good_order(const Begun *begun)
{
	const ZkHeldLock *held = find_held(begun->name);

	if (held == NULL || !zklock_lease_valid())
		return false;
	pg_read_barrier(); /* the lease first, see zklock_alarm_sees_loss */
	return !zklock_held_lost(held) && is_connected();
}

/* Begin a transaction in which a backend that exits can report.  It waits for no
 * client, no standby, and no safe snapshot. */
static void
begin_at_exit(void)
{
	whereToSendOutput = DestNone;
	zklock_hold_abandon();
	AbortOutOfAnyTransaction();
	synchronous_commit = Min(synchronous_commit, SYNCHRONOUS_COMMIT_LOCAL_FLUSH);
	StartTransactionCommand();
	XactIsoLevel = XACT_READ_COMMITTED;
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
end_at_exit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/*
 * The backend is ended while its run commits, or before the outcome is recorded.  The
 * backend knows the outcome.  If it cannot record the outcome at once, it leaves the
 * job to the server, and the settler does it.
 */
static void
end_unsettled(void)
{
	ZkJobOrder order = {.name = unsettled_name};
	Run run = unsettled;

	run.order = &order;
	begin_at_exit();
	run.end = TransactionIdDidCommit((TransactionId) run.xid) ? ZKLOCK_JOB_DONE
															  : ZKLOCK_JOB_LOST;
	if (is_connected() &&
		zklock_job_record_change_until(unsettled_name, zklock_clock() + EXIT_PATIENCE,
									   finish, &run))
	{
		zklock_proclock_settled(run.proclock, run.run.id);
		if (!run.told)
			tell_end(&run);
	}
	end_at_exit();
}

/* Write the record first: other servers act on it. */
static void
fail_one(const Begun *begun, int64 until)
{
	ZkJobOrder order = {.function = begun->function, .name = begun->name};
	Run run = run_of(begun, &order, ZKLOCK_JOB_FAILED);

	run.error = "the session ended without zk_run_end";
	if (!is_in_good_order(begun) ||
		!zklock_job_record_change_until(begun->name, until, finish, &run))
	{
		ereport(LOG,
				(errmsg("the end of a run of job \"%s\" could not be recorded",
						zklock_display_name(begun->name)),
				 errdetail("The session ended without zk_run_end.")));
		return;
	}
	if (zklock_job_runs_ready(order.function))
		insert_row(&run);
	tell_end(&run);
}

/*
 * The client has ended the session.  No error can be caught here: PostgreSQL makes it
 * FATAL, and calls the remaining callbacks.  So this tries nothing that is likely to
 * fail.
 */
static void
fail_begun(void)
{
	int64 until = zklock_clock() + EXIT_PATIENCE;
	slist_iter iter;

	if (slist_is_empty(&begun_runs))
		return;
	begin_at_exit();
	slist_foreach (iter, &begun_runs)
		fail_one(slist_container(Begun, node, iter.cur), until);
	end_at_exit();
}

/* ------------------------------------------------------------------------
 * By hand
 * ------------------------------------------------------------------------
 */

typedef struct ByHand
{
	Oid function;
	const char *name;
	int64_t slot;
	int attempt;   /* of it has failed; 0: any */
	int64_t reset; /* the slot that is due again */
	int64_t first; /* ... or the first of those that are, if there are too many */
	ZkJobReset verdict;
	int64 token;
	bool changed;
} ByHand;

static void
reset(ZkJob *job, int64_t now, void *arg)
{
	ByHand *what = arg;

	what->reset = what->slot;
	what->verdict = zklock_job_reset(job, &what->reset, what->attempt, now);
	if (what->verdict == ZKLOCK_JOB_FULL)
		what->first = job->resets.slot[0];
}

/* Forget the job, whatever is known of its runs: the tables of other servers may know
 * more. */
static void
forget(ZkJob *job, int64_t now, void *arg)
{
	ByHand *what = arg;
	/* it was damaged; or there is something */
	bool any = job->changed || job->nruns > 0 || job->last_done != ZKLOCK_JOB_NEVER ||
		zklock_job_runs_last_done(what->function, what->name, job) != ZKLOCK_JOB_NEVER;

	check_holder(what->name);
	/* It may have been forgotten by a write of ours that we did not hear of. */
	if (zklock_job_forget(job, what->token) && any)
		what->changed = true;
}

static bool
exists(const char *name)
{
	ZkRecord record;

	(void) zklock_query_record(ZKLOCK_KIND_JOB, name, 0, &record);
	return record.exists && record.node.datalen > 0;
}

bool
zklock_job_reset_slot(const char *name, int64 slot, int attempt)
{
	ByHand what = {.slot = slot, .attempt = attempt};

	if (!exists(name) || !zklock_job_record_change(name, false, reset, &what))
		what.verdict = ZKLOCK_JOB_NOTHING;
	if (what.verdict == ZKLOCK_JOB_FULL)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many slots of job \"%s\" are due again",
						zklock_display_name(name)),
				 errdetail("No more than %d slots can be at a time, and none of them "
						   "is done since it was reset.",
						   ZKLOCK_JOB_RESETS),
				 errhint("Let the job run for these slots first; the earliest is slot %s.",
						 zklock_job_time_text(what.first))));
	if (what.verdict == ZKLOCK_JOB_SINCE)
	{
		ereport(NOTICE,
				(errmsg("slot %s of job \"%s\" has been run since, skipping",
						zklock_job_time_text(slot), zklock_display_name(name)),
				 errdetail("It is done, or being run, by a later attempt than attempt %d.",
						   attempt),
				 errhint("To have it run once more, use %s.", show_reset(name, slot, 0))));
		return false;
	}
	if (what.verdict == ZKLOCK_JOB_NOTHING)
	{
		ereport(NOTICE,
				(errmsg("nothing to reset for job \"%s\"", zklock_display_name(name)),
				 slot == ZKLOCK_JOB_NEVER
					 ? errdetail("No slot of the job has failed or is done.")
					 : errdetail("No run of the job was for slot %s.",
								 zklock_job_time_text(slot))));
		return false;
	}
	ereport(LOG,
			(errmsg("zk_job_reset made slot %s of job \"%s\" due again",
					zklock_job_time_text(what.reset), zklock_display_name(name))));
	return true;
}

/* Without a record, does this database's table have a run of the job that is done? */
static bool
has_runs(Oid function, const char *name)
{
	ZkJob none;

	zklock_job_init(&none);
	return zklock_job_runs_last_done(function, name, &none) != ZKLOCK_JOB_NEVER;
}

static void
tell_nothing_to_forget(const char *name)
{
	ereport(NOTICE,
			(errmsg("nothing to forget of job \"%s\"", zklock_display_name(name)),
			 errdetail("The job has no run, or all of them are forgotten.")));
}

bool
zklock_job_forget_runs(Oid function, const char *name)
{
	ByHand what = {.function = function, .name = name};

	if (!exists(name) && !has_runs(function, name))
	{
		tell_nothing_to_forget(name);
		return false;
	}
	check_not_held(name);
	if (!zklock_acquire(ZKLOCK_KIND_JOB, name, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_TRANSACTION,
						0, &what.token))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" is running, or a session waits for it",
						zklock_display_name(name))));
	(void) zklock_job_record_change(name, true, forget, &what);
	if (!what.changed)
		tell_nothing_to_forget(name);
	return what.changed;
}
