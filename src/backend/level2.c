/*-------------------------------------------------------------------------
 *
 * level2.c
 *	  Level 2: the wait for the grant of a lock, or those of a set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "check.h"
#include "level2.h"
#include "loss.h"
#include "settings.h"
#include "table.h"
#include "waiting.h"

/* A backstop for a lost wake-up; also how often the connection is looked at. */
#define LONGEST_SLEEP_MS 1000

/* How often a waiter looks whether what is about to change has changed. */
#define LEASE_SLEEP_MS 50

static uint32 wait_event_acquire = 0;

void
zklock_level2_begin(ZkLevel2Wait *w, const ZkWait *wait, ConditionVariable *cv)
{
	w->wait = wait;
	w->cv = cv;
	w->unproven = 0;
	ConditionVariablePrepareToSleep(cv);
	zklock_deadlock_wait_begin(&w->long_wait);
}

/* A grant is of no use without a lease. */
static void
check_lease(ZkLevel2Wait *w, int64 now, bool granted, bool current)
{
	/* with a connection it should come back; without, see zklock_check_connection */
	if (!granted || !current)
		w->unproven = 0;
	else if (w->unproven == 0)
		w->unproven = now;
	else if (now - w->unproven >= zklock_connect_timeout * NS_PER_MS)
		zklock_loss_raise_unproven(zklock_connect_timeout);
}

bool
zklock_level2_sleep(ZkLevel2Wait *w, int64 now, const ZkLevel2Sight *sight)
{
	const ZkWait *wait = w->wait;
	int64 connect_until = wait->start + zklock_connect_timeout * NS_PER_MS;
	int64 wake = now + (sight->granted ? LEASE_SLEEP_MS : LONGEST_SLEEP_MS) * NS_PER_MS;
	bool current = zklock_check_connection(wait->start, wait->until);

	if ((sight->conflict || (sight->blocked && current)) && now >= wait->until)
		return false;
	if (now >= wait->lock_timeout)
		zklock_waiting_raise_timeout(sight->proclock,
									 (wait->lock_timeout - wait->start) / NS_PER_MS);
	check_lease(w, now, sight->granted, current);
	wake = Min(wake, wait->lock_timeout);
	/* who would not wait, or not any more, waits for an answer, and for nobody */
	if (wait->until > now)
	{
		zklock_deadlock_wait_look(&w->long_wait, sight->proclock, sight->first, now);
		wake = Min(wake, w->long_wait.look);
		wake = Min(wake, wait->until);
	}
	if (connect_until > now)
		wake = Min(wake, connect_until);
	Assert(zklock_unlocked());
	Assert(wake > now); /* else it would sleep for ever */
	(void) ConditionVariableTimedSleep(w->cv,
									   (long) ((wake - now + NS_PER_MS - 1) / NS_PER_MS),
									   zklock_wait_event(&wait_event_acquire,
														 "ZkLockAcquire"));
	return true;
}

void
zklock_level2_pause(const ZkLevel2Wait *w)
{
	(void) ConditionVariableTimedSleep(w->cv, LEASE_SLEEP_MS,
									   zklock_wait_event(&wait_event_acquire,
														 "ZkLockAcquire"));
}

void
zklock_level2_end(const ZkLevel2Wait *w, int32 proclock)
{
	ConditionVariableCancelSleep();
	if (proclock >= 0)
		zklock_deadlock_wait_end(&w->long_wait, proclock);
}
