/*-------------------------------------------------------------------------
 *
 * room.c
 *	  Waits for room in the lock table, and raises the error if there is none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "names.h"
#include "room.h"
#include "settings.h"
#include "table.h"

/* ms: how often a waiter looks for room. */
#define ROOM_SLEEP_MS 2

static ZkWaitEvent wait_event_room = {.name = "ZkLockAcquire"};

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

typedef struct Wait
{
	ZkLockKind kind;
	const char *name;
	ZkRoom (*try)(void *);
	void *arg;
} Wait;

static bool
look(const Wait *w)
{
	bool hope = zklock_table_hope();
	ZkRoom room = w->try(w->arg);

	if (room == ZKLOCK_ROOM_FOUND)
		return true;
	if (room == ZKLOCK_ROOM_NONE || !hope)
		zklock_raise_table_full(false);
	pg_atomic_write_u32(&zklock_shared->room_wanted, 1);
	zklock_worker_wake();
	return false;
}

static bool
look_again(ZkWaiter *waiter, int64 now)
{
	return look(waiter->arg);
}

static void
on_error(void *arg)
{
	const Wait *w = arg;

	errcontext("while waiting for room in the lock table for %s \"%s\"",
			   zklock_kinds[w->kind].name, zklock_plain_name(w->name));
}

void
zklock_room_wait(ZkLockKind kind, const char *name, const ZkWait *wait, int64 wait_ms,
				 ZkRoom (*try)(void *), void *arg)
{
	Wait w = {kind, name, try, arg};
	int64 ms = wait_ms > 0 ? Min(wait_ms, zklock_connect_timeout) : zklock_connect_timeout;
	ZkWait limits = *wait;
	ZkWaiter waiter = {
		.look = look_again,
		.context = on_error,
		.arg = &w,
		.limits = &limits,
		.event = &wait_event_room,
		.longest = ROOM_SLEEP_MS,
		.for_lock = true,  /* which others have, or had */
		.connected = true, /* without the ensemble no name can be given up */
	};

	limits.until = wait->start + ms * NS_PER_MS;
	if (!look(&w) && !zklock_wait_for(&waiter))
		zklock_raise_table_full(true);
}
