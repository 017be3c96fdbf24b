/*-------------------------------------------------------------------------
 *
 * run_child.c
 *	  Starts the command in a process group of its own, and ends it.
 *
 * If zklock-run is killed, the command ends first and the lock is released after it.  A
 * second process, the watcher, takes care of that.  It has the other end of a pipe, and
 * a copy of the connection to the server.  When the pipe ends, the watcher kills the
 * group, and then it ends itself.  The server sees the end of the connection only then.
 * If the watcher is killed, too, the kernel still kills the command (PR_SET_PDEATHSIG),
 * but not the processes that the command has started.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run_child.h"
#include "run_signals.h"

/* ms: a process that the kernel has not ended by then is stuck in the kernel */
#define LONGEST_DEATH 2000

static void __attribute__((noreturn))
execute(const RunChild *child, const RunOptions *options, const char *token, pid_t parent,
		bool foreground)
{
	int rc;

	(void) setpgid(0, 0);
	if (foreground)
		(void) tcsetpgrp(child->terminal, getpid());
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(RUN_BROKEN);
	if (setenv("ZKLOCK_NAME", options->name, 1) != 0 ||
		(*token ? setenv("ZKLOCK_TOKEN", token, 1) : unsetenv("ZKLOCK_TOKEN")) != 0)
		_exit(RUN_BROKEN);
	run_signals_restore();
	execvp(options->command[0], options->command);
	rc = errno == ENOENT ? RUN_NOT_FOUND : RUN_NOT_RUNNABLE;
	run_say("could not run \"%s\": %s", options->command[0], strerror(errno));
	_exit(rc);
}

static void __attribute__((noreturn)) watch(const RunChild *child, int lifeline)
{
	int64_t until;
	ssize_t n;
	char byte;

	(void) setpgid(0, 0);
	do
		n = read(lifeline, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 0)
	{
		(void) kill(-child->pid, SIGKILL);
		until = run_clock() + LONGEST_DEATH;
		while (run_child_remains(child) && run_clock() < until)
			(void) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	_exit(0);
}

/* Has the shell put us into the foreground of our terminal? */
static bool
in_foreground(const RunChild *child)
{
	return child->terminal >= 0 && tcgetpgrp(child->terminal) == getpgrp();
}

bool
run_child_start(RunChild *child, const RunOptions *options, const char *token)
{
	pid_t parent = getpid();
	int lifeline[2];
	bool foreground;

	child->terminal =
		isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) > 0 ? STDIN_FILENO : -1;
	foreground = in_foreground(child);
	if (pipe2(lifeline, O_CLOEXEC) != 0 || (child->pid = fork()) < 0)
	{
		run_say("could not start the command: %s", strerror(errno));
		return false;
	}
	if (child->pid == 0)
		execute(child, options, token, parent, foreground);
	(void) setpgid(child->pid, child->pid); /* both do it, since either may be the first */

	child->watcher = fork();
	if (child->watcher == 0)
	{
		(void) close(lifeline[1]);
		watch(child, lifeline[0]);
	}
	if (child->watcher < 0)
		run_say("could not start a process to watch this one: %s", strerror(errno));
	(void) close(lifeline[0]);
	child->lifeline = lifeline[1];
	return true;
}

void
run_child_signal(const RunChild *child, int signal)
{
	(void) kill(-child->pid, signal);
	(void) kill(-child->pid, SIGCONT);
}

void
run_child_continue(const RunChild *child)
{
	if (in_foreground(child))
		(void) tcsetpgrp(child->terminal, child->pid);
	(void) kill(-child->pid, SIGCONT);
}

/* Takes the terminal back, if the command has it. */
static void
take_terminal(const RunChild *child)
{
	if (child->terminal >= 0 && tcgetpgrp(child->terminal) == child->pid)
		(void) tcsetpgrp(child->terminal, getpgrp());
}

bool
run_child_ended(RunChild *child)
{
	int status;

	while (waitpid(child->pid, &status, WNOHANG | WUNTRACED) == child->pid)
	{
		if (!WIFSTOPPED(status))
		{
			child->status =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			return true;
		}
		/*
		 * The shell that has started us sees that our group stops, and takes the
		 * terminal. If there is no such shell, nobody could continue us.  The kernel then
		 * ignores the signal, as it does without us, and the command goes on.
		 */
		if (child->terminal >= 0)
		{
			take_terminal(child);
			(void) kill(0, SIGTSTP);
			if (WSTOPSIG(status) == SIGTSTP && in_foreground(child))
				run_child_continue(child);
		}
	}
	return false;
}

bool
run_child_remains(const RunChild *child)
{
	return kill(-child->pid, 0) == 0;
}

void
run_child_finish(RunChild *child)
{
	take_terminal(child);
	/* even if it is stopped */
	if (child->watcher > 0 && kill(child->watcher, SIGKILL) == 0)
		(void) waitpid(child->watcher, NULL, 0);
}
