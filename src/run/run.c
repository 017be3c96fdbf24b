/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Runs a command while a PostgreSQL session holds a distributed lock: zklock-run.
 *
 * One process, one loop: it wakes for the server, for the command, for a signal, and
 * when the heartbeat is due.  The watcher (run_child.c) sleeps until that process is
 * gone.
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

#include "run_child.h"
#include "run_options.h"
#include "run_session.h"
#include "run_signals.h"

/* ms between checks whether the rest of the group has gone */
#define SHORT 50

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Passes on the signals that have come for the command. */
static void
pass_signals_on(const RunChild *child)
{
	int signal;

	while ((signal = run_signals_next()) != 0)
		run_child_signal(child, signal);
	if (run_signals_continued())
		run_child_continue(child);
}

/* Waits until the command has ended; returns false if the lock is lost before. */
static bool
supervise(RunSession *session, RunChild *child)
{
	int64_t again;

	while (!run_child_ended(child))
	{
		pass_signals_on(child);
		if (!run_session_watch(session, &again))
			return false;
		run_wait(run_session_file(session), again);
	}
	return true;
}

/* The lock is lost: ends the whole group, after a while with SIGKILL. */
static void
stop(RunChild *child, int64_t kill_after)
{
	int64_t until = run_clock() + kill_after;
	bool ended = false;

	run_child_signal(child, SIGTERM);
	while (run_clock() < until)
	{
		ended = ended || run_child_ended(child);
		if (ended && !run_child_remains(child))
			return;
		pass_signals_on(child);
		run_wait(-1, earlier(until, ended ? run_clock() + SHORT : RUN_NEVER));
	}
	run_child_signal(child, SIGKILL);
	while (!ended && !run_child_ended(child))
		run_wait(-1, RUN_NEVER);
}

/* Returns the exit status when the command was not run. */
static int
status_without(RunTaken taken, const RunOptions *options, int signal)
{
	if (taken == RUN_SIGNALLED)
		run_signals_die(signal);
	if (taken == RUN_REFUSED)
		return RUN_NO_SESSION;
	if (options->not_run >= 0)
		return options->not_run;
	return taken == RUN_LATE ? RUN_NOT_HAD : 0;
}

/*
 * If our caller has closed standard error, the connection to the server must not become
 * it: our messages would go to the server.  The command finds the files closed.
 */
static void
fill_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void) close(fd);
}

int
main(int argc, char **argv)
{
	RunOptions options;
	RunSession session;
	RunChild child;
	RunTaken taken;
	int signal;

	fill_standard_files();
	(void) setlocale(LC_CTYPE, ""); /* libpq takes the encoding of the name from it */
	run_options_read(&options, argc, argv);
	if (!run_session_open(&session, &options))
		return RUN_NO_SESSION;
	run_signals_begin();
	taken = run_session_take(&session, &signal);
	if (taken != RUN_TAKEN)
	{
		PQfinish(session.conn);
		return status_without(taken, &options, signal);
	}
	if (!run_child_start(&child, &options, session.token))
		return RUN_BROKEN;
	if (!supervise(&session, &child))
	{
		stop(&child, options.kill_after);
		child.status = RUN_LOST;
	}
	else if (!run_session_end(&session, child.status == 0))
		child.status = RUN_LOST;
	run_child_finish(&child);
	PQfinish(session.conn);
	return child.status;
}
