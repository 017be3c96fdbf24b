/*-------------------------------------------------------------------------
 *
 * alarm.c
 *	  A timer that checks, while this backend holds something, whether it is lost.
 *
 * Each holder checks for itself.  No process tells another, since the process that has
 * to tell may be the one that is stopped.  A timer of this backend reads the lease and
 * the backend's loss flag in shared memory, and cancels the backend's own statement.  A
 * handler in PL/pgSQL can swallow one cancel; the timer fires again.
 *
 * The timer runs for as long as there are holds.  Every ERROR drops all timers, so each
 * statement starts it again.  From PRE_COMMIT on it does nothing: a cancel would end
 * the wait for a synchronous standby.
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
 * Code that reads both must read the lease first.  The lease may be that of a new
 * session; then only the flag shows the loss, and the worker sets the flag before there
 * is a lease again.  In the other order, a process that is paused between the two reads
 * would find no flag and a good lease.
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
 * Handle the timer's signal.  An idle backend cannot be cancelled.  A backend that has
 * a statement but does not execute it yet may be about to acknowledge the loss, or to
 * roll back.  If it still waits at the next check, it waits for a lock in parse
 * analysis.
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
	volatile sig_atomic_t *flag = zklock_loss_flag(ZKLOCK_MY_PROC_NUMBER);

	zklock_alarm.armed = false;
	zklock_alarm_withdraw();
	/* other backends' flags are in the same cache line */
	if (*flag != 0)
		*flag = 0;
}
