/*-------------------------------------------------------------------------
 *
 * run_signals.h
 *	  The one place where zklock-run waits, and what wakes it up.
 *
 * From run_signals_begin on signals strike only while run_wait waits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_SIGNALS_H
#define ZKLOCK_RUN_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_NEVER INT64_MAX

/* ms, of a clock that goes on while the machine sleeps. */
extern int64_t run_clock(void);

/* TERM, INT, HUP, QUIT, CHLD and CONT are noticed from now on, unless they were ignored. */
extern void run_signals_begin(void);

/* In a process that was forked: as they were before. */
extern void run_signals_restore(void);

/* End as the signal would have done. */
extern void run_signals_die(int signal);

/* A signal that has come and is for the command, once; or 0. */
extern int run_signals_next(void);

/* Has SIGCONT come, since it was asked for? */
extern bool run_signals_continued(void);

/* Wait until the file can be read, a signal has come, or the clock shows "until". */
extern void run_wait(int fd, int64_t until);

#endif /* ZKLOCK_RUN_SIGNALS_H */
