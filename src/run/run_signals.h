/*-------------------------------------------------------------------------
 *
 * run_signals.h
 *	  Waits for a file, a signal or the clock. zklock-run waits nowhere else.
 *
 * From run_signals_begin on, signals strike only while run_wait waits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_SIGNALS_H
#define ZKLOCK_RUN_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_NEVER INT64_MAX

/* ms, by a clock that runs on while the machine sleeps. */
extern int64_t run_clock(void);

/* From now on TERM, INT, HUP, QUIT, CHLD and CONT are noticed, unless they were
 * ignored. */
extern void run_signals_begin(void);

/* For a process that was forked: restores the signals. */
extern void run_signals_restore(void);

/* Ends the process as the signal would have done. */
extern void run_signals_die(int signal);

/* The same, within a second if the process still runs then. */
extern void run_signals_die_soon(int signal);

/* Returns a signal that has come and is for the command, once; or 0. */
extern int run_signals_next(void);

/* Has SIGCONT come since the last call? */
extern bool run_signals_continued(void);

/* Wait until the file can be read, a signal has come, or the clock shows "until". */
extern void run_wait(int fd, int64_t until);

#endif /* ZKLOCK_RUN_SIGNALS_H */
