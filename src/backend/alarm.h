/*-------------------------------------------------------------------------
 *
 * alarm.h
 *	  A timer that looks, while this backend holds something, whether it is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ALARM_H
#define ZKLOCK_ALARM_H

#include <signal.h>

#include "datatype/timestamp.h"

/* What this backend is at, for the timer's handler and for who asks what a loss means. */
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

/* Is anything lost, or may it be?  For a signal handler, too. */
extern bool zklock_alarm_sees_loss(void);

/* A hold is about to be taken: what zklock_alarm_arm needs.  May throw. */
extern void zklock_alarm_prepare(void);

/* There is a hold, and there is none any more.  Neither throws. */
extern void zklock_alarm_arm(void);
extern void zklock_alarm_disarm(void);

/* Start the timer again, which an error has stopped. */
extern void zklock_alarm_start(void);

/* Has a cancel of ours struck, since the latest one was withdrawn? */
extern bool zklock_alarm_struck(void);

/* A cancel of ours that has not struck is not called for any more. */
extern void zklock_alarm_withdraw(void);

#endif /* ZKLOCK_ALARM_H */
