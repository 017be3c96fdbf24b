/*-------------------------------------------------------------------------
 *
 * run_session.c
 *	  Holds the lock for the command in a PostgreSQL session.
 *
 * zklock refuses any statement of a session that has lost its lock.  It learns of the
 * loss from the server's worker or the server's clock, and asks nobody.  So any
 * statement will do as a heartbeat.  A server that does not answer may be paused, and
 * its ZooKeeper session may be about to end.  It counts as gone after half a session
 * timeout: that is before another server gets the lock.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_session.h"
#include "run_signals.h"

/* ms between heartbeats */
#define HEARTBEAT 1000

/* The timeout is over, and others have the lock. */
#define LOCK_NOT_AVAILABLE "55P03"

static const char heartbeat[] = "SELECT pg_backend_pid()";
static const char begin[] = "BEGIN ISOLATION LEVEL READ COMMITTED";

/*
 * The heartbeat in a transaction that stays open: a statement that takes no snapshot.
 * The command may be REINDEX CONCURRENTLY, which at a certain moment waits for the end
 * of each transaction that has one.
 */
static const char heartbeat_inside[] = "SET CONSTRAINTS ALL IMMEDIATE";
static const char session_timeout[] =
	"SELECT setting FROM pg_settings WHERE name = 'zklock.session_timeout'";

/*
 * No limit of a role or a database ends the wait or the session.  The server notices
 * within half a minute that this machine is gone, and within a second that a waiting
 * client is.  We notice within half a minute, too, that the server's machine is gone
 * (run_session_open): while we wait for the lock, nothing else would tell.
 *
 * With zklock.on_loss = warn the heartbeat would not fail when the lock is lost.  A role
 * that may not change that setting is refused.
 */
static const char settings[] =
	"SET statement_timeout = 0; SET lock_timeout = 0;"
	"SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0;"
	"SET client_connection_check_interval = '1s';"
	"SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
	"SELECT set_config('zklock.on_loss', 'abort', false)"
	" WHERE current_setting('zklock.on_loss', true) = 'warn';";

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

/* The hint of a loss tells what to do in SQL. */
static void
complain(const PGresult *result, bool hint)
{
	static const struct
	{
		int field;
		const char *title;
	} more[] = {{PG_DIAG_MESSAGE_DETAIL, "DETAIL"}, {PG_DIAG_MESSAGE_HINT, "HINT"}};
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	run_say("%s", text != NULL ? text : PQresultErrorMessage(result));
	for (int i = 0; i < (hint ? 2 : 1); i++)
	{
		if ((text = PQresultErrorField(result, more[i].field)) != NULL)
			fprintf(stderr, "%s:  %s\n", more[i].title, text);
	}
}

static void
complain_of_connection(const RunSession *session)
{
	char *text = strdup(PQerrorMessage(session->conn));

	if (text != NULL)
		text[strcspn(text, "\n")] = '\0';
	run_say("%s", text != NULL && *text ? text : "the connection to the server is gone");
	free(text);
}

static bool
is_answer(const PGresult *result)
{
	return PQresultStatus(result) == PGRES_TUPLES_OK ||
		PQresultStatus(result) == PGRES_COMMAND_OK;
}

/* Returns the answer if it has come, or NULL. */
static PGresult *
collect(RunSession *session)
{
	PGresult *first = NULL;
	PGresult *result;

	while ((result = PQgetResult(session->conn)) != NULL)
	{
		if (first == NULL)
			first = result;
		else
			PQclear(result);
	}
	return first;
}

static void
cancel(RunSession *session)
{
	char text[256];
	PGcancel *cancel = PQgetCancel(session->conn);

	if (cancel != NULL)
		(void) PQcancel(cancel, text, sizeof(text));
	PQfreeCancel(cancel);
}

/* Waits for the answer.  With "signal" there is no time limit, and a signal ends the
 * wait. */
static bool
await(RunSession *session, int *signal)
{
	int64_t until = signal != NULL ? RUN_NEVER : run_clock() + session->silence;

	for (;;)
	{
		if (!PQconsumeInput(session->conn))
			break;
		if (!PQisBusy(session->conn))
			return true;
		if (signal != NULL && (*signal = run_signals_next()) != 0)
		{
			/* a server that is paused would not answer that either */
			run_signals_die_soon(*signal);
			cancel(session);
			return false;
		}
		if (run_clock() >= until)
		{
			run_say("the server has not answered for %lld ms",
					(long long) session->silence);
			return false;
		}
		run_wait(PQsocket(session->conn), until);
	}
	complain_of_connection(session);
	return false;
}

/*
 * Returns the answer to a statement, which may be an error; or NULL.  With parameters
 * the server keeps a portal with a snapshot until the next statement, or the end of the
 * transaction.
 */
static PGresult *
ask(RunSession *session, int *signal, const char *sql, int n, const char *const *values)
{
	if (!(n == 0 ? PQsendQuery(session->conn, sql)
				 : PQsendQueryParams(session->conn, sql, n, NULL, values, NULL, NULL, 0)))
	{
		complain_of_connection(session);
		return NULL;
	}
	return await(session, signal) ? collect(session) : NULL;
}

/* The same, with the name alone; NULL for an error, too. */
static PGresult *
ask_of_name(RunSession *session, int *signal, const char *sql)
{
	int n = strchr(sql, '$') != NULL ? 1 : 0;
	PGresult *result = ask(session, signal, sql, n, &session->options->name);

	if (result == NULL || is_answer(result))
		return result;
	complain(result, true);
	PQclear(result);
	return NULL;
}

static const char *
value_of(const PGresult *result)
{
	return PQntuples(result) == 1 && !PQgetisnull(result, 0, 0) ? PQgetvalue(result, 0, 0)
																: "";
}

/* Asks, and copies the value to a place of this size. */
static bool
fetch(RunSession *session, int *signal, const char *sql, char *place, size_t size)
{
	PGresult *result = ask_of_name(session, signal, sql);

	if (result == NULL)
		return false;
	snprintf(place, size, "%s", value_of(result));
	PQclear(result);
	return true;
}

static const char *
beat(const RunSession *session)
{
	return session->options->kind == RUN_LEADER ? heartbeat_inside : heartbeat;
}

/* ------------------------------------------------------------------------
 * The beginning
 * ------------------------------------------------------------------------
 */

bool
run_session_open(RunSession *session, const RunOptions *options)
{
	const char *command = strrchr(options->command[0], '/');
	char application[64];
	/* what stands before "dbname" gives way to what the user says there */
	const char *keywords[] = {"fallback_application_name",
							  "keepalives_idle",
							  "keepalives_interval",
							  "keepalives_count",
							  "dbname",
							  "client_encoding",
							  NULL};
	const char *values[] = {application,
							"10",
							"5",
							"3",
							options->conninfo,
							getenv("PGCLIENTENCODING") ? NULL : "auto",
							NULL};
	PGresult *result;
	bool good;
	char sql[512];

	memset(session, 0, sizeof(*session));
	session->options = options;
	snprintf(application, sizeof(application), "zklock-run %s",
			 command != NULL ? command + 1 : options->command[0]);
	session->conn = PQconnectdbParams(keywords, values, 1);
	if (PQstatus(session->conn) != CONNECTION_OK)
	{
		complain_of_connection(session);
		return false;
	}
	snprintf(sql, sizeof(sql), "%s%s%s", settings,
			 PQserverVersion(session->conn) >= 170000 ? " SET transaction_timeout = 0;" : "",
			 options->verbose ? "" : " SET client_min_messages = warning;");
	result = PQexec(session->conn, sql);
	if (is_answer(result))
	{
		PQclear(result);
		result = PQexec(session->conn, session_timeout);
		session->silence = atoll(value_of(result)) / 2;
		if (session->silence < HEARTBEAT)
			session->silence = HEARTBEAT;
	}
	good = is_answer(result);
	if (!good)
		complain(result, true);
	PQclear(result);
	return good;
}

/* Builds the statement that takes the lock, with its parameters; returns how many. */
static int
taking(const RunOptions *options, const char **sql, const char *values[6])
{
	values[0] = options->name;
	values[1] = options->timeout;
	switch (options->kind)
	{
		case RUN_PERMIT:
			/* The second call only counts, and knows the token. */
			*sql =
				"SELECT CASE WHEN zk_try_acquire($1, $3::integer, 'session', $2::interval)"
				" THEN zk_acquire($1, $3::integer, 'session') END";
			values[2] = options->permits;
			return 3;
		case RUN_LEADER:
			*sql = "SELECT zk_is_leader($1, coalesce($2::interval, '2 s'))";
			return 2;
		case RUN_JOB:
			*sql = "CALL zk_run_begin_session(job => $1, timeout => $2::interval,"
				   " every => $3::interval, slot => $6::timestamptz,"
				   " origin => coalesce($4::timestamptz, '2000-01-03 00:00:00+00'),"
				   " attempts => coalesce($5::integer, 1))";
			values[2] = options->every;
			values[3] = options->origin;
			values[4] = options->attempts;
			values[5] = options->slot;
			return 6;
		default:
			*sql = "CALL zk_lock_session($1, $3, $2::interval)";
			values[2] = options->shared ? "shared" : "exclusive";
			return 3;
	}
}

/* Reads the answer to that statement. */
static RunTaken
judge(RunSession *session, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (!is_answer(result))
	{
		if (sqlstate != NULL && strcmp(sqlstate, LOCK_NOT_AVAILABLE) == 0)
			return RUN_LATE;
		complain(result, true);
		return RUN_REFUSED;
	}
	switch (session->options->kind)
	{
		case RUN_LOCK:
			return RUN_TAKEN;
		case RUN_PERMIT:
			snprintf(session->token, sizeof(session->token), "%s", value_of(result));
			return session->token[0] != '\0' ? RUN_TAKEN : RUN_LATE;
		default:
			return strcmp(value_of(result), "t") == 0 ? RUN_TAKEN : RUN_NEEDLESS;
	}
}

/*
 * Completes the beginning. zk_is_leader only looks, so zk_require_leader may raise an
 * error if the leadership has moved since.  The server stays the leader as long as a
 * transaction requires it.  That transaction holds no snapshot, and no other lock.
 */
static bool
complete(RunSession *session, int *signal)
{
	RunKind kind = session->options->kind;
	char nothing[8];

	if (kind == RUN_LEADER && !fetch(session, signal, begin, nothing, sizeof(nothing)))
		return false;
	if ((kind == RUN_LEADER || kind == RUN_LOCK) &&
		!fetch(session, signal,
			   kind == RUN_LOCK ? "SELECT zk_token($1)" : "SELECT zk_require_leader($1)",
			   session->token, sizeof(session->token)))
		return false;
	/* ends the portal, too */
	if (!fetch(session, signal, beat(session), session->backend, sizeof(session->backend)))
		return false;
	session->next = run_clock() + HEARTBEAT;
	return true;
}

/* Says why the command is not run.  If nobody knows who leads, that is an error. */
static bool
explain(RunSession *session, int *signal, RunTaken why)
{
	const RunOptions *options = session->options;
	char leader[256] = "";

	if (options->kind == RUN_LEADER &&
		!fetch(session, signal,
			   "SELECT (SELECT server FROM zk_candidates($1) WHERE is_leader)", leader,
			   sizeof(leader)))
		return false;
	if (!options->verbose)
		return true;
	if (why == RUN_LATE)
		run_say("not run: others have \"%s\"", options->name);
	else if (options->kind == RUN_LEADER && leader[0] == '\0')
		run_say("not run: no server leads election \"%s\"", options->name);
	else if (options->kind == RUN_LEADER)
		run_say("not run: server \"%s\" leads election \"%s\"", leader, options->name);
	else
		run_say("not run: job \"%s\" is not to be run here now", options->name);
	return true;
}

/*
 * A signal has come before the command was started.  The session may have a job, whose
 * run has not failed for that.  If we ended the session zklock would say so; if the
 * server ends it, the run is lost, and the slot runs again.
 */
static void
give_up_job(RunSession *session, int signal)
{
	run_signals_die_soon(signal);
	PQclear(PQexec(session->conn, "SELECT pg_terminate_backend(pg_backend_pid(), 1000)"));
}

RunTaken
run_session_take(RunSession *session, int *signal)
{
	const char *sql;
	const char *values[6];
	int n = taking(session->options, &sql, values);
	PGresult *result;
	RunTaken taken = RUN_REFUSED;

	*signal = 0;
	result = ask(session, signal, sql, n, values);
	if (result != NULL)
		taken = judge(session, result);
	PQclear(result);
	if ((taken == RUN_TAKEN && !complete(session, signal)) ||
		((taken == RUN_LATE || taken == RUN_NEEDLESS) && !explain(session, signal, taken)))
		taken = RUN_REFUSED;
	if (*signal == 0)
	{
		run_wait(-1, run_clock()); /* here a signal strikes that has come meanwhile */
		*signal = run_signals_next();
	}
	if (*signal == 0)
		return taken;
	if (session->options->kind == RUN_JOB)
		give_up_job(session, *signal);
	return RUN_SIGNALLED;
}

/* ------------------------------------------------------------------------
 * While the command runs, and when it has ended
 * ------------------------------------------------------------------------
 */

/* Is it the answer to a heartbeat of a session that has its lock? */
static bool
is_beat(const RunSession *session, PGresult *result)
{
	bool good = result != NULL && is_answer(result) &&
		strcmp(value_of(result), session->backend) == 0;

	if (result == NULL)
		complain_of_connection(session);
	else if (!is_answer(result))
		complain(result, false);
	else if (!good)
		run_say(
			"the session was changed on the way: is there a pooler in transaction mode?");
	PQclear(result);
	return good;
}

bool
run_session_watch(RunSession *session, int64_t *again)
{
	/* an answer may have come while we were stopped: read it before the clock */
	if (!PQconsumeInput(session->conn) ||
		(!PQisBusy(session->conn) && PQstatus(session->conn) != CONNECTION_OK))
	{
		complain_of_connection(session);
		return false;
	}
	if (session->asked != 0 && !PQisBusy(session->conn))
	{
		session->next = session->asked + HEARTBEAT;
		session->asked = 0;
		if (!is_beat(session, collect(session)))
			return false;
	}
	if (session->asked == 0 && run_clock() >= session->next)
	{
		if (!PQsendQuery(session->conn, beat(session)))
		{
			complain_of_connection(session);
			return false;
		}
		session->asked = run_clock();
	}
	*again = session->asked != 0 ? session->asked + session->silence : session->next;
	if (session->asked == 0 || run_clock() < *again)
		return true;
	run_say("the server has not answered for %lld ms", (long long) session->silence);
	return false;
}

/* Releases the lock; false if it turns out to be lost. */
static bool
give_back(RunSession *session, bool ok)
{
	char answer[16];

	switch (session->options->kind)
	{
		case RUN_LEADER:
			return fetch(session, NULL, "COMMIT", answer, sizeof(answer));
		case RUN_JOB:
			return fetch(session, NULL,
						 ok ? "SELECT zk_run_end($1)" : "SELECT zk_run_end($1, ok => false)",
						 answer, sizeof(answer)) &&
				strcmp(answer, "t") == 0;
		default:
			return fetch(session, NULL, "SELECT zk_unlock_all()", answer, sizeof(answer));
	}
}

bool
run_session_end(RunSession *session, bool ok)
{
	if (session->asked != 0 &&
		(!await(session, NULL) || !is_beat(session, collect(session))))
		return false;
	session->asked = 0;
	return is_beat(session, ask(session, NULL, beat(session), 0, NULL)) &&
		give_back(session, ok);
}

int
run_session_file(const RunSession *session)
{
	return PQsocket(session->conn);
}
