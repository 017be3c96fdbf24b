/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Changes of leadership, and ends of runs, that are to be notified: a ring in shared
 *	  memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "changes.h"
#include "settings.h"
#include "table.h"

typedef struct ChangesShared
{
	LWLock *lock; /* of all that follows */
	uint64 added; /* changes so far */
	uint64 sent;  /* of those */
	ZkChange ring[ZKLOCK_NCHANGES];
} ChangesShared;

static ChangesShared *shared = NULL;

void
zklock_changes_shmem_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(ChangesShared)));
	RequestNamedLWLockTranche("zklock_notify", 1);
}

void
zklock_changes_shmem_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock notifications", sizeof(ChangesShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche("zklock_notify")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

static void
add(const ZkChange *change)
{
	bool full;

	if (zklock_notify_database[0] == '\0')
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	Assert(shared->added - shared->sent <= ZKLOCK_NCHANGES);
	full = shared->added - shared->sent == ZKLOCK_NCHANGES;
	if (full)
		shared->sent++;
	shared->ring[shared->added++ % ZKLOCK_NCHANGES] = *change;
	LWLockRelease(shared->lock);
	zklock_worker_wake();
	if (full)
		ereport(LOG,
				(errmsg("dropping the oldest notification of a change, %d are pending",
						ZKLOCK_NCHANGES)));
}

void
zklock_changes_add_leader(const char *election, bool leader)
{
	ZkChange change = {.kind = ZKLOCK_KIND_ELECTION, .leader = leader};

	strlcpy(change.name, election, sizeof(change.name));
	add(&change);
}

void
zklock_changes_add_end(const char *job, ZkJobState end)
{
	ZkChange change = {.kind = ZKLOCK_KIND_JOB, .end = end};

	strlcpy(change.name, job, sizeof(change.name));
	add(&change);
}

void
zklock_changes_count(uint64 *added, uint64 *sent)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*added = shared->added;
	*sent = shared->sent;
	LWLockRelease(shared->lock);
}

int
zklock_changes_read(ZkChange *changes, int room, uint64 *first)
{
	int n = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	*first = shared->sent;
	for (; n < room && *first + n < shared->added; n++)
		changes[n] = shared->ring[(*first + n) % ZKLOCK_NCHANGES];
	LWLockRelease(shared->lock);
	return n;
}

void
zklock_changes_set_sent(uint64 sent)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	Assert(sent <= shared->added);
	shared->sent = Max(shared->sent, sent);
	LWLockRelease(shared->lock);
}
