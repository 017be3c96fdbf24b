/*-------------------------------------------------------------------------
 *
 * run_options.h
 *	  Reads the command line of zklock-run, and defines its exit statuses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_OPTIONS_H
#define ZKLOCK_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* zklock-run's own statuses.  Commands seldom use these; timeout(1) uses the last
 * four alike. */
#define RUN_LOST		 122 /* the lock was lost before the command had ended */
#define RUN_NO_SESSION	 123 /* no connection, or the server refused */
#define RUN_NOT_HAD		 124 /* the lock was not acquired in time */
#define RUN_BROKEN		 125 /* usage, or this machine refused something */
#define RUN_NOT_RUNNABLE 126
#define RUN_NOT_FOUND	 127

typedef enum RunKind
{
	RUN_LOCK,
	RUN_PERMIT,
	RUN_LEADER,
	RUN_JOB
} RunKind;

/* Texts for the server are NULL if they were not given. */
typedef struct RunOptions
{
	const char *conninfo;
	RunKind kind;
	const char *name;
	char **command; /* ends with a NULL */
	const char *timeout;
	const char *permits;
	const char *every;
	const char *slot;
	const char *origin;
	const char *attempts;
	bool shared;
	bool verbose;
	int not_run;		/* status where others are the reason; -1: by default */
	int64_t kill_after; /* ms */
} RunOptions;

/* Writes a message to standard error, after the name of the program. */
extern void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reads the command line, or exits. */
extern void run_options_read(RunOptions *options, int argc, char **argv);

#endif /* ZKLOCK_RUN_OPTIONS_H */
