/*-------------------------------------------------------------------------
 *
 * room.c
 *	  Room in the lock table: waiting for it, and the error of having none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "check.h"
#include "room.h"
#include "settings.h"
#include "table.h"

/* How often a waiter looks whether there is some. */
#define ROOM_SLEEP_MS 2

static uint32 wait_event_room = 0;

void
zklock_raise_table_full(bool waited)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("zklock lock table is full"),
			 waited
				 ? errdetail("It has room for %d names, and none of those that are kept for nobody was given up in time.",
							 zklock_shared->nentries)
				 : errdetail("It has room for %d names, and for a limited number of sessions that hold or wait for them.",
							 zklock_shared->nentries),
			 errhint("You might need to increase \"zklock.max_locks\".")));
}

void
zklock_await_room(int64 start, int64 wait_ms)
{
	int64 limit =
		wait_ms > 0 ? Min(wait_ms, zklock_connect_timeout) : zklock_connect_timeout;

	if (zklock_clock() - start >= limit * NS_PER_MS)
	{
		/* without the ensemble no name can be given up: that is the reason, then */
		(void) zklock_check_connection(start, start);
		zklock_raise_table_full(true);
	}
	pg_atomic_write_u32(&zklock_shared->room_wanted, 1);
	zklock_worker_wake();
	Assert(zklock_unlocked());
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 ROOM_SLEEP_MS, zklock_wait_event(&wait_event_room, "ZkLockAcquire"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
