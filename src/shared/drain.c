/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  zklock.drain: this server is taken out of service.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "drain.h"
#include "parties.h"
#include "work.h"

/* Nobody here holds or waits, and the ensemble has no contender and no party of ours. */
static bool
nothing_left(void)
{
	for (int i = 0; i < zklock_shared->nentries; i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		bool empty;

		if (lock == NULL)
			continue;
		empty = entry->proclocks < 0 && zklock_queue_empty(&entry->queue);
		zklock_entry_unlock(lock);
		if (!empty)
			return false;
	}
	return zklock_parties_used() == 0 && !zklock_work_busy();
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
