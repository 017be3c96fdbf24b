/*-------------------------------------------------------------------------
 *
 * run_child.h
 *	  Starts the command in a process group of its own, and ends it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_CHILD_H
#define ZKLOCK_RUN_CHILD_H

#include <sys/types.h>

#include "run_options.h"

typedef struct RunChild
{
	pid_t pid;	   /* its process group, too */
	pid_t watcher; /* kills it when we are gone */
	int lifeline;  /* the watcher reads the end of this */
	int terminal;  /* our controlling terminal, if that is standard input; else -1 */
	int status;	   /* exit status, when it has ended */
} RunChild;

/* Starts the command; false: this machine refuses. */
extern bool run_child_start(RunChild *child, const RunOptions *options, const char *token);

/* Signals the whole group, and wakes it if it is stopped. */
extern void run_child_signal(const RunChild *child, int signal);

/* We were continued: continues the command, in the foreground if we are there. */
extern void run_child_continue(const RunChild *child);

/* Has the command ended?  If it was stopped at our terminal, our process
 * group stops, too. */
extern bool run_child_ended(RunChild *child);

/* Is any process of the group left? */
extern bool run_child_remains(const RunChild *child);

/* The command has ended, and so has our part. */
extern void run_child_finish(RunChild *child);

#endif /* ZKLOCK_RUN_CHILD_H */
