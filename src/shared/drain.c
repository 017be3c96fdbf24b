/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  Drains this server for zklock.drain: it takes the server out of service.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "barrier_shared.h"
#include "drain.h"
#include "queue_shared.h"

static bool
is_left(const ZkLockEntry *entry)
{
	return entry->proclocks >= 0 || !zklock_lock_queue_empty(&entry->queue);
}

/* Nobody here holds or waits, and the ensemble has no contender and no party of ours:
 * none either of a session that is kept for runs that are to be settled. */
static bool
nothing_left(void)
{
	return !zklock_shared->session.keeps && !zklock_table_any(is_left) &&
		zklock_barrier_used() == 0 && !zklock_queue_busy();
}

ZkDrain
zklock_drain_state(void)
{
	if (!zklock_draining())
		return ZKLOCK_DRAIN_OFF;
	return nothing_left() ? ZKLOCK_DRAIN_DONE : ZKLOCK_DRAIN_ON;
}

const char *
zklock_drain_name(ZkDrain state)
{
	switch (state)
	{
		case ZKLOCK_DRAIN_OFF:
			return "off";
		case ZKLOCK_DRAIN_ON:
			return "draining";
		case ZKLOCK_DRAIN_DONE:
			return "drained";
	}
	pg_unreachable();
}
