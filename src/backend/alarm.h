/*-------------------------------------------------------------------------
 *
 * alarm.h
 *	  A timer that checks, while this backend holds something, whether it is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ALARM_H
#define ZKLOCK_ALARM_H

#include <signal.h>

#include "datatype/timestamp.h"

/* The activity of this backend, for the timer's handler and for code that asks what a
 * loss means. */
typedef struct ZkAlarm
{
	volatile sig_atomic_t armed;	  /* there are holds */
	volatile sig_atomic_t committing; /* PRE_COMMIT has come, or PRE_PREPARE */
	volatile sig_atomic_t shot;		  /* the handler has cancelled */
	volatile sig_atomic_t excused;	  /* the statement is one of those that are
									   * admitted with a loss */
	volatile sig_atomic_t nesting;	  /* in the executor or a utility statement */
	/* Runs of jobs that zk_run_end is to end; the session may have given their jobs up. */
	int runs;
	/* This transaction has run a statement; kept only while there are holds, and those
	 * below while there are runs, too. */
	bool worked; /* ... that was not excused */
	bool beside; /* ... that does more than acknowledge losses */
	bool acted;	 /* ... and more than ask for a run, too */
	/* The start of the latest one that has run a statement which does nothing else. */
	TimestampTz acknowledging;
	/* ... of the latest one that has done nothing but end runs, and ask for one in vain */
	TimestampTz refused;
	/* Transactions that have done more, while there were holds or runs. */
	uint64 works;		   /* so many have ended */
	bool rolled_back;	   /* the latest one was */
	volatile int64 lapsed; /* if it was shot for a loss by the clock, when the newest
							* acknowledged write had been sent; else 0 */
} ZkAlarm;

extern ZkAlarm zklock_alarm;

/* Is anything lost, or may it be?  A signal handler may call this, too. */
extern bool zklock_alarm_sees_loss(void);

/* Prepare for zklock_alarm_arm before a hold is taken.  May throw. */
extern void zklock_alarm_prepare(void);

/* Arm when there is a hold, disarm when there is none any more.  Neither throws. */
extern void zklock_alarm_arm(void);
extern void zklock_alarm_disarm(void);

/* Start the timer again after an error has stopped it. */
extern void zklock_alarm_start(void);

/* Has a cancel of the timer struck since the latest one was withdrawn? */
extern bool zklock_alarm_struck(void);

/* Withdraw a cancel that has not struck and is not needed any more. */
extern void zklock_alarm_withdraw(void);

#endif /* ZKLOCK_ALARM_H */
