/*-------------------------------------------------------------------------
 *
 * run_signals.c
 *	  Waits for a file, a signal or the clock. zklock-run waits nowhere else.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "run_signals.h"

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

#define NPASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static const int never[] = {SIGTTOU, SIGPIPE};

#define NNEVER (sizeof(never) / sizeof(never[0]))

static volatile sig_atomic_t pending[NPASSED_ON];
static volatile sig_atomic_t continued;
static volatile sig_atomic_t dies_by;
static sigset_t before;	   /* the mask of our caller */
static sigset_t unblocked; /* while we wait */

int64_t
run_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void
on_signal(int signal)
{
	if (signal == SIGCONT)
		continued = 1;
	for (size_t i = 0; i < NPASSED_ON; i++)
	{
		if (signal == passed_on[i])
			pending[i] = 1;
	}
}

/* If nohup(1) has the command ignore a signal, the command goes on to ignore it. */
static void
notice(int signal, sigset_t *blocked)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct sigaction old;

	sigemptyset(&action.sa_mask);
	if (sigaction(signal, NULL, &old) == 0 && old.sa_handler == SIG_IGN && signal != SIGCHLD)
		return;
	sigaction(signal, &action, NULL);
	sigaddset(blocked, signal);
	sigdelset(&unblocked, signal);
}

void
run_signals_begin(void)
{
	sigset_t blocked;

	sigemptyset(&blocked);
	sigprocmask(SIG_SETMASK, NULL, &before);
	unblocked = before;
	for (size_t i = 0; i < NPASSED_ON; i++)
		notice(passed_on[i], &blocked);
	notice(SIGCHLD, &blocked);
	notice(SIGCONT, &blocked);
	/* TTOU would stop us as we take the terminal back, PIPE end us if nobody reads what
	 * we say */
	for (size_t i = 0; i < NNEVER; i++)
	{
		sigaddset(&blocked, never[i]);
		sigaddset(&unblocked, never[i]);
	}
	sigprocmask(SIG_BLOCK, &blocked, NULL);
}

void
run_signals_restore(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	struct sigaction old;

	for (int signal = 1; signal < NSIG; signal++)
	{
		if (sigaction(signal, NULL, &old) == 0 && old.sa_handler == on_signal)
			sigaction(signal, &action, NULL);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}

void
run_signals_die(int signal)
{
	run_signals_restore();
	raise(signal);
	_exit(128 + signal);
}

static void
on_alarm(int signal)
{
	(void) signal;
	run_signals_die(dies_by);
}

void
run_signals_die_soon(int signal)
{
	struct sigaction action = {.sa_handler = on_alarm};
	sigset_t unblock;

	dies_by = signal;
	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&unblock);
	sigaddset(&unblock, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &unblock, NULL);
	(void) alarm(1);
}

int
run_signals_next(void)
{
	for (size_t i = 0; i < NPASSED_ON; i++)
	{
		if (pending[i])
		{
			pending[i] = 0;
			return passed_on[i];
		}
	}
	return 0;
}

bool
run_signals_continued(void)
{
	bool yes = continued != 0;

	continued = 0;
	return yes;
}

void
run_wait(int fd, int64_t until)
{
	int64_t ms = until - run_clock();
	struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	struct pollfd file = {.fd = fd, .events = POLLIN};

	if (ms <= 0)
		timeout.tv_sec = timeout.tv_nsec = 0;
	(void) ppoll(&file, 1, until == RUN_NEVER ? NULL : &timeout, &unblocked);
}
