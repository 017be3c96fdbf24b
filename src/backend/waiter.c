/*-------------------------------------------------------------------------
 *
 * waiter.c
 *	  The wait loop of a backend: it waits for the worker, the ensemble, or other
 *	  sessions.
 *
 * As in PostgreSQL, lock_timeout ends waits for something that other sessions have: a
 * lock at either level, a permit, room in the lock table or for puts, an item, the
 * others at a barrier, or another job.  Where only ZooKeeper can answer, nobody has a
 * lock, so lock_timeout does not end the wait: for an answer, a verdict on the lease or
 * on an election, or the acknowledgement of a put.  (The proof of an item at the commit
 * is such a verdict, too, but its wait has been promised to end by lock_timeout.)
 *
 * The sleep is prepared before the first look in the loop, so that no wake-up is lost
 * between a look and the sleep.  statement_timeout, a cancel and all other interrupts
 * take effect in the sleep, with no lock held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"

#include "check.h"
#include "settings.h"
#include "table.h"
#include "waiter.h"

/* ms: how often a backend that waits for a lease checks whether it has come */
#define LEASE_SLEEP 50

void
zklock_wait_begin(ZkWait *wait, int64 wait_ms)
{
	wait->start = zklock_clock();
	wait->until =
		wait_ms == ZKLOCK_WAIT_FOREVER ? PG_INT64_MAX : wait->start + wait_ms * NS_PER_MS;
	wait->lock_timeout =
		LockTimeout > 0 ? wait->start + LockTimeout * NS_PER_MS : PG_INT64_MAX;
}

static bool
check_connection(ZkWaiter *w)
{
	bool current;

	if (!w->connected)
		return true;
	w->checking = true;
	current = zklock_check_connection(w->limits->start, w->limits->until);
	w->checking = false;
	return current;
}

/* A grant is of no use without a lease. */
static void
check_lease(ZkWaiter *w, int64 now, bool current)
{
	/* with a connection it should come back; without, see zklock_check_connection */
	if (!w->granted || !current)
		w->unproven = 0;
	else if (w->unproven == 0)
		w->unproven = now;
	else if (now - w->unproven >= zklock_connect_timeout * NS_PER_MS)
		zklock_check_raise_unproven(zklock_connect_timeout);
	if (w->granted)
		w->wake = Min(w->wake, now + LEASE_SLEEP * NS_PER_MS);
}

/* Is the time up?  May raise instead. */
static bool
is_late(const ZkWaiter *w, int64 now, bool current)
{
	if (now >= w->limits->until &&
		(w->end == ZKLOCK_WAIT_ENDS || (w->end == ZKLOCK_WAIT_ENDS_CURRENT && current)))
		return true;
	if (w->for_lock && now >= w->limits->lock_timeout)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg(ZKLOCK_LOCK_TIMEOUT_MESSAGE)));
	return false;
}

/* The time of the next look, in ns. */
static int64
next_look(const ZkWaiter *w, int64 now)
{
	int64 connect_until = w->limits->start + zklock_connect_timeout * NS_PER_MS;
	int64 wake = w->wake;

	if (w->limits->until > now)
		wake = Min(wake, w->limits->until);
	if (w->for_lock)
		wake = Min(wake, w->limits->lock_timeout);
	if (w->connected && connect_until > now)
		wake = Min(wake, connect_until);
	return wake;
}

static void
sleep_until(const ZkWaiter *w, int64 now, int64 wake)
{
	long ms = (long) ((wake - now + NS_PER_MS - 1) / NS_PER_MS);
	uint32 event = zklock_wait_event(&w->event->number, w->event->name);

	Assert(zklock_unlocked());
	Assert(ms > 0); /* else it would sleep for ever */
	if (w->cv != NULL)
	{
		(void) ConditionVariableTimedSleep(w->cv, ms, event);
		return;
	}
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static bool
wait_for(ZkWaiter *w)
{
	if (w->cv != NULL)
		ConditionVariablePrepareToSleep(w->cv);
	for (;;)
	{
		int64 now = zklock_clock();
		bool current;

		w->wake = now + w->longest * NS_PER_MS;
		if (w->look(w, now))
			return true;
		current = check_connection(w);
		if (is_late(w, now, current))
			return false;
		check_lease(w, now, current);
		sleep_until(w, now, next_look(w, now));
	}
}

bool
zklock_wait_for(ZkWaiter *w)
{
	ErrorContextCallback callback;
	volatile bool over = false;

	callback.previous = error_context_stack;
	callback.callback = w->context;
	callback.arg = w->arg;
	PG_TRY();
	{
		if (w->context != NULL)
			error_context_stack = &callback;
		over = wait_for(w);
	}
	PG_CATCH();
	{
		ConditionVariableCancelSleep();
		PG_RE_THROW();
	}
	PG_END_TRY();
	ConditionVariableCancelSleep();
	return over;
}
