/*-------------------------------------------------------------------------
 *
 * level2.c
 *	  Level 2: the wait for the grant of a lock, or for the grants of a set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "level2.h"
#include "table.h"

/* A backstop for a lost wake-up, and the interval of checks of the connection. */
#define LONGEST_SLEEP_MS 1000

static ZkWaitEvent wait_event_acquire = {.name = "ZkLockAcquire"};

void
zklock_level2_begin(ZkLevel2Wait *w, const ZkWait *wait, ConditionVariable *cv,
					bool (*look)(ZkWaiter *, int64), void *arg)
{
	/* the context is that of both levels, and is there already (waiting.h) */
	w->waiter = (ZkWaiter){
		.look = look,
		.arg = arg,
		.limits = wait,
		.cv = cv,
		.event = &wait_event_acquire,
		.longest = LONGEST_SLEEP_MS,
		.for_lock = true,
		.connected = true,
	};
	zklock_deadlock_wait_begin(&w->long_wait);
}

void
zklock_level2_sees(ZkLevel2Wait *w, int64 now, const ZkLevel2Sight *sight)
{
	w->waiter.granted = sight->granted;
	w->waiter.end = sight->conflict ? ZKLOCK_WAIT_ENDS
		: sight->blocked			? ZKLOCK_WAIT_ENDS_CURRENT
									: ZKLOCK_WAIT_GOES_ON;
	/* who would not wait, or not any more, waits for an answer, and for nobody */
	if (w->waiter.limits->until > now && w->waiter.limits->lock_timeout > now)
	{
		zklock_deadlock_wait_look(&w->long_wait, sight->proclock, sight->first, now);
		w->waiter.wake = Min(w->waiter.wake, w->long_wait.look);
	}
}

void
zklock_level2_end(const ZkLevel2Wait *w, int32 proclock)
{
	zklock_deadlock_wait_end(&w->long_wait, proclock);
}
