/*-------------------------------------------------------------------------
 *
 * alarm.c
 *	  A timer that looks, while this backend holds something, whether it is lost.
 *
 * Each holder looks for itself.  No process tells another, since the one that
 * would may be the one that is stopped: a timer of this backend reads the lease
 * and the backend's loss flag in shared memory, and cancels its own statement.
 * A handler in PL/pgSQL can swallow one shot; the timer fires again.
 *
 * The timer runs on for as long as there are holds, and every ERROR drops all
 * timers, so each statement starts it again.  From PRE_COMMIT on it does nothing:
 * a cancel would end the wait for a synchronous standby.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"

#include "alarm.h"
#include "settings.h"
#include "table.h"

ZkAlarm zklock_alarm = {0};

static TimeoutId timer = MAX_TIMEOUTS;

/*
 * Whoever looks at both lets the lease come first.  It may be that of a new session,
 * and then it is the flag that tells of the loss: the worker sets it before there is
 * a lease again.  The other way round a process that is paused in between finds no flag
 * and a good lease.
 */
bool
zklock_alarm_sees_loss(void)
{
	if (zklock_lease_lost())
		return true;
	pg_read_barrier();
	return *zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) != 0;
}

static int
timer_interval(void)
{
	return Max(20, Min(500, zklock_shared->session.timeout_ms / 10));
}

/*
 * In a signal handler.  A backend that is idle cannot be cancelled.  One that has a
 * statement, and does not execute it yet, may be about to acknowledge the loss or to
 * roll back; if it waits, and still does so at the next look, it is for a lock in
 * parse analysis.
 */
static void
on_timer(void)
{
	static int looks = 0; /* in a row that found it waiting */

	if (!zklock_alarm.armed || MyProc == NULL)
		return; /* and so it runs out */
	looks = debug_query_string != NULL && zklock_alarm.nesting == 0 &&
			MyProc->wait_event_info != 0
		? looks + 1
		: 0;
	if (!zklock_alarm.committing && !zklock_alarm.excused &&
		(zklock_alarm.nesting > 0 || looks > 1) &&
		zklock_on_loss == ZKLOCK_ON_LOSS_ABORT && zklock_alarm_sees_loss())
	{
		if (zklock_lease_lost())
			zklock_alarm.lapsed = (int64) pg_atomic_read_u64(&zklock_shared->last_write);
		zklock_alarm.shot = true;
		QueryCancelPending = true;
		InterruptPending = true;
		/* handle_sig_alrm has set the latch */
	}
	enable_timeout_after(timer, timer_interval());
}

void
zklock_alarm_prepare(void)
{
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, on_timer);
}

void
zklock_alarm_start(void)
{
	if (!get_timeout_active(timer))
		enable_timeout_after(timer, timer_interval());
}

void
zklock_alarm_arm(void)
{
	zklock_alarm.armed = true;
	zklock_alarm_start();
	if (!zklock_alarm.excused)
		zklock_alarm.worked = zklock_alarm.beside = zklock_alarm.acted = true;
}

bool
zklock_alarm_struck(void)
{
	return zklock_alarm.shot && !QueryCancelPending;
}

void
zklock_alarm_withdraw(void)
{
	if (zklock_alarm.shot)
	{
		zklock_alarm.shot = false;
		zklock_alarm.lapsed = 0;
		QueryCancelPending = false;
	}
}

void
zklock_alarm_disarm(void)
{
	zklock_alarm.armed = false;
	zklock_alarm_withdraw();
	*zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER) = 0;
}
