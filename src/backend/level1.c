/*-------------------------------------------------------------------------
 *
 * level1.c
 *	  Level 1: heavyweight locks on names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "storage/proc.h"

#include "level1.h"
#include "table.h"

/* The longest time that the lock manager can wait, since lock_timeout is an int;
 * test/interrupts has a shorter one. */
#ifndef ZKLOCK_LONGEST_LOCK_TIMEOUT
#define ZKLOCK_LONGEST_LOCK_TIMEOUT PG_INT32_MAX
#endif

/*
 * LockAcquire for the transaction and not for the running portal, which would lose the
 * lock when a cursor fails.  An error ends the transaction or a subtransaction, and the
 * code that ends it sets the resource owner.
 */
static bool
acquire_for_transaction(const LOCKTAG *tag, LOCKMODE mode, bool dont_wait)
{
	ResourceOwner save = CurrentResourceOwner;
	LockAcquireResult result;

	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, mode, false, dont_wait);
	CurrentResourceOwner = save;
	return result != LOCKACQUIRE_NOT_AVAIL;
}

/* The same with a lock_timeout of its own, in ms; 0: none. */
static bool
lock_for_transaction(const LOCKTAG *tag, LOCKMODE mode, bool dont_wait, int lock_timeout)
{
	int save_timeout = LockTimeout;
	bool acquired;

	if (lock_timeout == save_timeout)
		return acquire_for_transaction(tag, mode, dont_wait);
	LockTimeout = lock_timeout;
	PG_TRY();
	{
		acquired = acquire_for_transaction(tag, mode, dont_wait);
	}
	PG_FINALLY();
	{
		LockTimeout = save_timeout;
	}
	PG_END_TRY();
	return acquired;
}

void
zklock_level1_release(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner save = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(tag, mode, false);
	CurrentResourceOwner = save;
}

/*
 * Wait for level 1 for "ms", and raise nothing if that is not enough.  Only
 * lock_timeout can end the sleep in the lock manager, and it does so by an error.  A
 * subtransaction catches that error, and is over before anything else happens.
 */
static bool
lock_within(const LOCKTAG *tag, LOCKMODE mode, int ms)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool acquired = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		acquired = lock_for_transaction(tag, mode, false, ms);
		ReleaseCurrentSubTransaction(); /* the lock passes to the parent */
	}
	PG_CATCH();
	{
		int sqlstate = geterrcode();

		RollbackAndReleaseCurrentSubTransaction();
		if (sqlstate != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return acquired;
}

/* The rest of lock_timeout in ms, at least 1; 0: there is no lock_timeout. */
static int
lock_timeout_left(const ZkWait *wait)
{
	if (wait->lock_timeout == PG_INT64_MAX)
		return 0;
	return (int) Max((wait->lock_timeout - zklock_clock() + NS_PER_MS - 1) / NS_PER_MS, 1);
}

bool
zklock_level1_try(const LOCKTAG *tag, LOCKMODE mode)
{
	return acquire_for_transaction(tag, mode, true);
}

bool
zklock_level1_acquire(const LOCKTAG *tag, LOCKMODE mode, const ZkWait *wait)
{
	int64 ms;

	if (wait->until == PG_INT64_MAX)
		return lock_for_transaction(tag, mode, false, lock_timeout_left(wait));
	if (zklock_level1_try(tag, mode))
		return true;
	/* once in 24 days it goes to the end of the line */
	while ((ms = (wait->until - zklock_clock() + NS_PER_MS - 1) / NS_PER_MS) > 0)
	{
		int left = lock_timeout_left(wait);

		if (left > 0 && left <= ms)
			return lock_for_transaction(tag, mode, false,
										left); /* the user's limit comes first */
		if (lock_within(tag, mode, (int) Min(ms, ZKLOCK_LONGEST_LOCK_TIMEOUT)))
			return true;
	}
	return false;
}

void
zklock_level1_again(const LOCKTAG *tag, LOCKMODE mode)
{
	(void) lock_for_transaction(tag, mode, false, LockTimeout);
}
