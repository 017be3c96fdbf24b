/*-------------------------------------------------------------------------
 *
 * semaphore_shared.c
 *	  Manages places: the entries of the lock table that are for permits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "semaphore_shared.h"

/* Does the place keep a permit that nobody holds? */
static bool
is_kept(const ZkLockEntry *place)
{
	return place->proclocks < 0 && place->grant[ZKLOCK_EXCLUSIVE].usable;
}

static bool
waits(const ZkLockEntry *place)
{
	return place->want[ZKLOCK_EXCLUSIVE] > 0;
}

ZkLockEntry *
zklock_semaphore_place_make(const char *name, int permits, LWLock **lock)
{
	ZkLockEntry *first =
		zklock_entry_find(ZKLOCK_KIND_SEMAPHORE, name, false, LW_EXCLUSIVE, lock);
	ZkLockEntry *kept = NULL;
	bool anybody = false;

	for (ZkLockEntry *e = first; e != NULL; e = zklock_entry_namesake(e))
	{
		anybody |= waits(e);
		if (is_kept(e) && e->queue.permits == permits)
			kept = e;
	}
	/* who waits already comes first */
	if (kept != NULL && !anybody)
		return kept;
	if (first != NULL)
		zklock_entry_unlock(*lock);
	return zklock_entry_add(ZKLOCK_KIND_SEMAPHORE, name, permits, lock);
}

bool
zklock_semaphore_place_waits_beside(const ZkLockEntry *place)
{
	for (ZkLockEntry *e = zklock_entry_first(place); e != NULL;
		 e = zklock_entry_namesake(e))
	{
		if (e != place && waits(e))
			return true;
	}
	return false;
}

void
zklock_semaphore_place_tell(const ZkLockEntry *place, ZkLockEvent *event)
{
	Assert(zklock_in_worker() && zklock_entry_is_locked(place));
	event->leader = INT64_MAX;
	event->beside = 0;
	zklock_foreach_proclock (proclock, place)
	{
		if (proclock->state == ZKLOCK_PROCLOCK_WANTED && proclock->no_wait)
			return;
	}
	for (ZkLockEntry *e = zklock_entry_first(place); e != NULL;
		 e = zklock_entry_namesake(e))
	{
		if (e != place)
			zklock_semaphore_siblings_add(event, &e->queue);
	}
}

ZkLockEntry *
zklock_semaphore_place_first(const ZkLockEntry *place)
{
	ZkLockEntry *first = NULL;
	int64 lowest = INT64_MAX;

	for (ZkLockEntry *e = zklock_entry_first(place); e != NULL;
		 e = zklock_entry_namesake(e))
	{
		int64 number = zklock_semaphore_siblings_waiting(&e->queue);

		if (number >= lowest)
			continue;
		lowest = number;
		first = e;
	}
	return first;
}

int
zklock_semaphore_places(const char *name, const int32 **places)
{
	static int32 *found = NULL;
	static int room = 0;
	int n;

	Assert(zklock_in_worker());
	for (;;)
	{
		LWLock *lock;
		ZkLockEntry *e =
			zklock_entry_find(ZKLOCK_KIND_SEMAPHORE, name, false, LW_SHARED, &lock);

		n = 0;
		if (e == NULL)
			break;
		for (; e != NULL; e = zklock_entry_namesake(e))
		{
			if (n < room)
				found[n] = zklock_entry_index(e);
			n++; /* count on */
		}
		zklock_entry_unlock(lock);
		if (n <= room)
			break;
		/* no memory is allocated under the lock */
		if (found != NULL)
			pfree(found);
		room = 2 * n;
		found = MemoryContextAlloc(TopMemoryContext, sizeof(int32) * (Size) room);
	}
	*places = found;
	return n;
}
