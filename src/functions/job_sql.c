/*-------------------------------------------------------------------------
 *
 * job_sql.c
 *	  SQL functions of jobs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "check.h"
#include "command.h"
#include "hold.h"
#include "job_backend.h"
#include "job_pause.h"
#include "job_record.h"
#include "job_runs.h"
#include "job_sql.h"
#include "loss.h"
#include "names.h"
#include "query.h"
#include "room.h"
#include "row.h"

PG_FUNCTION_INFO_V1(zk_run_once);
PG_FUNCTION_INFO_V1(zk_run_begin);
PG_FUNCTION_INFO_V1(zk_run_begin_session);
PG_FUNCTION_INFO_V1(zk_run_end);
PG_FUNCTION_INFO_V1(zk_job_reset);
PG_FUNCTION_INFO_V1(zk_job_forget);
PG_FUNCTION_INFO_V1(zk_job_pause);
PG_FUNCTION_INFO_V1(zk_job_resume);

const PGFunction zklock_asking[] = {zk_run_begin, zk_job_forget, NULL};

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/* Months have no length. */
static int64
get_every(const Interval *arg)
{
	bool endless = ZKLOCK_INTERVAL_IS_ENDLESS(arg) || ZKLOCK_INTERVAL_IS_MINUS_ENDLESS(arg);
	int64 every;

	if (arg->month != 0 && !endless)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("every must not have months or years"),
				 errhint("Use slot, such as slot => date_trunc('month', now(), 'UTC').")));
	every = zklock_get_interval(arg, "every");
	if (every == 0 || every == ZKLOCK_WAIT_FOREVER)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("every must be more than 0 and less than a century")));
	return every;
}

static int64
get_time(TimestampTz arg, const char *what)
{
	if (TIMESTAMP_NOT_FINITE(arg))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", what)));
	return zklock_ms_of_time(arg);
}

static bool
get_in_doubt(text *arg)
{
	char *word = text_to_cstring(arg);

	if (strcmp(word, "run") != 0 && strcmp(word, "skip") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized value \"%s\" for in_doubt", word),
				 errhint("Allowed values are \"run\" and \"skip\".")));
	return word[0] == 's';
}

/* A call reads the records of so many jobs, one after the other, and keeps them in
 * memory. */
#define MOST_AFTER 1000

/* The jobs after which this job is to be run.  A circle through several calls cannot be
 * seen: each call knows its own job alone. */
static void
get_after(ArrayType *arg, ZkJobOrder *order)
{
	order->after = zklock_get_names(ZKLOCK_KIND_JOB, arg, &order->nafter);
	if (order->nafter > MOST_AFTER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("job \"%s\" cannot be run after %d jobs",
						zklock_display_name(order->name), order->nafter),
				 errdetail("The call would read the record of each of them. A job can be run after %d jobs at most.",
						   MOST_AFTER)));
	for (int i = 0; i < order->nafter; i++)
	{
		if (strcmp(order->after[i], order->name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("job \"%s\" cannot be run after itself",
							zklock_display_name(order->name))));
	}
}

/*
 * The order of a call.  "i" is the number of the first argument that all calls have:
 * every, slot, timeout, attempts, in_doubt, origin, after.  "name": room for the job's
 * name.
 */
static ZkJobOrder
get_order(FunctionCallInfo fcinfo, const char *function, int i, char *name)
{
	ZkJobOrder order = {.function = fcinfo->flinfo->fn_oid, .name = name};

	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	if (PG_ARGISNULL(i) == PG_ARGISNULL(i + 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 PG_ARGISNULL(i) ? errmsg("either every or slot must be given")
								 : errmsg("every and slot must not both be given"),
				 errhint(
					 "Give every, such as '1 day', for a job that runs again and again, or slot, the time that it is to be run for.")));
	if (!PG_ARGISNULL(i))
		order.every = get_every(PG_GETARG_INTERVAL_P(i));
	else
		order.slot = get_time(PG_GETARG_TIMESTAMPTZ(i + 1), "slot");
	order.wait = zklock_get_timeout(fcinfo, i + 2);
	order.attempts = PG_GETARG_INT32(i + 3);
	if (order.attempts < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempts must be 1 or more")));
	order.skip = get_in_doubt(PG_GETARG_TEXT_PP(i + 4));
	order.origin = get_time(PG_GETARG_TIMESTAMPTZ(i + 5), "origin");
	if (!PG_ARGISNULL(i + 6))
		get_after(PG_GETARG_ARRAYTYPE_P(i + 6), &order);
	PreventCommandIfReadOnly(function);
	return order;
}

/* ------------------------------------------------------------------------
 * Runs
 * ------------------------------------------------------------------------
 */

/* CALL zk_run_once(job, command, every, slot, timeout, attempts, in_doubt, origin, after) */
Datum
zk_run_once(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkJobOrder order;

	ZKLOCK_REFUSE_NULLS("job name", "command", NULL, NULL, NULL, "attempts", "in_doubt",
						"origin", NULL);
	order = get_order(fcinfo, "zk_run_once()", 2, name);
	order.command = text_to_cstring(PG_GETARG_TEXT_PP(1));
	zklock_leave_transaction(fcinfo, "zk_run_once",
							 "Call it on its own, with autocommit on.");
	zklock_job_run_once(&order);
	SPI_finish();
	PG_RETURN_VOID();
}

/* zk_run_begin(job, every, slot, timeout, attempts, in_doubt, origin, after) returns boolean */
Datum
zk_run_begin(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkJobOrder order;

	ZKLOCK_REFUSE_NULLS("job name", NULL, NULL, NULL, "attempts", "in_doubt", "origin",
						NULL);
	order = get_order(fcinfo, "zk_run_begin()", 1, name);
	PG_RETURN_BOOL(zklock_job_begin(&order));
}

/* CALL zk_run_begin_session(job, every, slot, timeout, attempts, in_doubt, origin, after,
 * INOUT due) */
Datum
zk_run_begin_session(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkJobOrder order;
	ZkRow row;

	ZKLOCK_REFUSE_NULLS("job name", NULL, NULL, NULL, "attempts", "in_doubt", "origin",
						NULL, NULL);
	order = get_order(fcinfo, "zk_run_begin_session()", 1, name);
	/* what may fail comes before the run has begun */
	row = zklock_row_of_function(fcinfo);
	zklock_leave_transaction(fcinfo, "zk_run_begin_session",
							 "Call it on its own, with autocommit on, or use zk_run_begin.");
	zklock_row_bool(&row, "due", zklock_job_begin(&order));
	SPI_finish();
	PG_RETURN_DATUM(zklock_row_datum(&row));
}

/* zk_run_end(job text, ok boolean) returns boolean */
Datum
zk_run_end(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("job name", "ok");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	PreventCommandIfReadOnly("zk_run_end()");
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_job_end(fcinfo->flinfo->fn_oid, name, PG_GETARG_BOOL(1)));
}

/* ------------------------------------------------------------------------
 * By hand
 * ------------------------------------------------------------------------
 */

/* zk_job_reset(job text, slot timestamptz, attempt integer) returns boolean */
Datum
zk_job_reset(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 slot = ZKLOCK_JOB_NEVER;
	int attempt = 0;

	ZKLOCK_REFUSE_NULLS("job name", NULL, NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	if (!PG_ARGISNULL(1))
		slot = get_time(PG_GETARG_TIMESTAMPTZ(1), "slot");
	if (!PG_ARGISNULL(2))
	{
		attempt = PG_GETARG_INT32(2);
		if (attempt < 1)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("attempt must be at least 1")));
		if (PG_ARGISNULL(1))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("attempt must not be given without slot")));
	}
	PreventCommandIfReadOnly("zk_job_reset()");
	PG_RETURN_BOOL(zklock_job_reset_slot(name, slot, attempt));
}

/* zk_job_forget(job text) returns boolean */
Datum
zk_job_forget(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("job name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	PreventCommandIfReadOnly("zk_job_forget()");
	if (!zklock_job_forget_runs(fcinfo->flinfo->fn_oid, name))
		PG_RETURN_BOOL(false);
	ereport(LOG,
			(errmsg("zk_job_forget removed all runs of job \"%s\"",
					zklock_display_name(name))));
	PG_RETURN_BOOL(true);
}

/* The end of a pause, in ms since 1970.  For -infinity the earliest time will do. */
static int64
get_until(TimestampTz arg)
{
	if (TIMESTAMP_IS_NOEND(arg))
		return ZKLOCK_JOB_FOREVER;
	return TIMESTAMP_IS_NOBEGIN(arg) ? ZKLOCK_JOB_TIME_MIN : zklock_ms_of_time(arg);
}

/* zk_job_pause(job text, until timestamptz) returns boolean */
Datum
zk_job_pause(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("job name", "until");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	PreventCommandIfReadOnly("zk_job_pause()");
	PG_RETURN_BOOL(zklock_job_pause_until(name, get_until(PG_GETARG_TIMESTAMPTZ(1))));
}

/* zk_job_resume(job text) returns boolean */
Datum
zk_job_resume(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("job name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_JOB, PG_GETARG_TEXT_PP(0), name);
	PreventCommandIfReadOnly("zk_job_resume()");
	PG_RETURN_BOOL(zklock_job_resume(name));
}

/* ------------------------------------------------------------------------
 * Views
 * ------------------------------------------------------------------------
 */

/* The name of the run's state.  A session that is to go on with the run must be in the
 * job's queue; "anybody": there is one. */
static const char *
state_name(const ZkJobRun *run, bool anybody)
{
	if (run->doubt || (run->state == ZKLOCK_JOB_COMMITTING && !anybody))
		return "in doubt";
	if (run->state == ZKLOCK_JOB_RUNNING)
		return !anybody ? run->begun ? "in doubt" : "lost" : "running";
	if (run->state == ZKLOCK_JOB_COMMITTING)
		return "running";
	return zklock_job_state_name(run->state);
}

static void
append_time(StringInfo buf, const char *key, int64_t ms)
{
	char time[MAXDATELEN + 1];

	if (ms == ZKLOCK_JOB_NEVER)
		appendStringInfo(buf, ", \"%s\": null", key);
	else
	{
		JsonEncodeDateTime(time, TimestampTzGetDatum(zklock_time_of_ms(ms)),
						   TIMESTAMPTZOID, NULL);
		appendStringInfo(buf, ", \"%s\": \"%s\"", key, time);
	}
}

/* The runs as jsonb, newest first. */
static Datum
runs_datum(const ZkJob *job, bool anybody)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '[');
	for (int i = 0; i < job->nruns; i++)
	{
		const ZkJobRun *run = &job->run[i];

		appendStringInfo(&buf, "%s{\"state\": \"%s\"", i > 0 ? ", " : "",
						 state_name(run, i == 0 && anybody));
		append_time(&buf, "slot", run->slot);
		append_time(&buf, "started", run->start);
		append_time(&buf, "ended", run->end);
		appendStringInfo(&buf,
						 ", \"number\": %lld, \"attempt\": %d, \"token\": %lld, \"server\": ",
						 (long long) run->id.number, run->attempt,
						 (long long) run->id.token);
		escape_json(&buf, zklock_display_text(run->server_name));
		if (run->error[0] != '\0')
		{
			appendStringInfoString(&buf, ", \"error\": ");
			escape_json(&buf, zklock_display_text(run->error));
		}
		appendStringInfoChar(&buf, '}');
	}
	appendStringInfoChar(&buf, ']');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(buf.data));
}

static void
put_time(ZkRow *row, const char *column, int64_t ms)
{
	if (ms != ZKLOCK_JOB_NEVER)
		zklock_row_set(row, column, TIMESTAMPTZOID,
					   TimestampTzGetDatum(zklock_time_of_ms(ms)));
}

static void
put_run(ZkRow *row, const ZkJobRun *run, bool anybody, int64_t now)
{
	bool goes_on = run->end == ZKLOCK_JOB_NEVER;
	int64 ms = Max((goes_on ? now : run->end) - run->start, 0);

	put_time(row, "slot", run->slot);
	zklock_row_text(row, "state", state_name(run, anybody));
	zklock_row_text(row, "server", zklock_display_text(run->server_name));
	put_time(row, "since", run->start);
	zklock_row_interval(row, "duration", Min(ms, PG_INT64_MAX / 1000) * 1000);
	zklock_row_int(row, "attempt", run->attempt);
	zklock_row_int(row, "failures", run->failures);
	zklock_row_bytes(row, "error", run->error);
}

static void
put_job(ReturnSetInfo *rsinfo, const char *name, const ZkJob *job, bool anybody, int64_t now)
{
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_row_name(&row, "job", name);
	/* others may have forgotten all, and this server has it in its table */
	if (job->nruns > 0)
		put_run(&row, &job->run[0], anybody, now);
	put_time(&row, "last_done", job->last_done);
	put_time(&row, "next_due", zklock_job_next_due(job));
	if (zklock_job_is_paused(job, now))
		zklock_row_set(&row, "paused_until", TIMESTAMPTZOID,
					   TimestampTzGetDatum(zklock_job_pause_end(job->paused_until)));
	zklock_row_set(&row, "runs", JSONBOID, runs_datum(job, anybody));
	zklock_row_store(rsinfo, &row);
}

static void
put_unread(ReturnSetInfo *rsinfo, const char *name, ZkRecordRead text)
{
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_row_name(&row, "job", name);
	zklock_row_text(&row, "state",
					text == ZKLOCK_RECORD_NEWER ? "newer version" : "damaged");
	zklock_row_store(rsinfo, &row);
}

/* The view of the jobs in our namespace, without those that are forgotten and not
 * paused. */
void
zklock_show_jobs(ReturnSetInfo *rsinfo)
{
	ZkJob *job = palloc(sizeof(ZkJob));
	ZkNode *nodes;
	int64_t now;
	int n;

	n = zklock_query_records(&nodes, &now);
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		ZkRecordRead text;

		if (!zklock_decode_name(nodes[i].name, name) || !zklock_in_namespace(name))
			continue;
		text = zklock_job_record_parse(&nodes[i], job);
		if (text != ZKLOCK_RECORD_GOOD)
			put_unread(rsinfo, name, text);
		else if (job->nruns > 0 || job->last_done != ZKLOCK_JOB_NEVER ||
				 zklock_job_is_paused(job, now))
			put_job(rsinfo, name, job, nodes[i].nchildren > 0, now);
	}
}
