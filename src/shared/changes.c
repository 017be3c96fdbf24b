/*-------------------------------------------------------------------------
 *
 * changes.c
 *	  Keeps the changes of leadership, and ends of runs, that still have to be notified:
 *	  a ring in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "changes.h"
#include "settings.h"
#include "table.h"

typedef struct ChangesShared
{
	ZkMailbox box;
	uint64 added; /* changes so far */
	uint64 sent;  /* of those */
	ZkChange ring[ZKLOCK_NCHANGES];
} ChangesShared;

static ChangesShared *shared = NULL;

static Size
size(void)
{
	return sizeof(ChangesShared);
}

const ZkSharedPart zklock_changes_part = {
	.name = "zklock_notify",
	.nlocks = 1,
	.size = size,
	.memory = (void **) &shared,
};

static void
add(const ZkChange *change)
{
	bool full;

	if (zklock_notify_database[0] == '\0')
		return;
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	Assert(shared->added - shared->sent <= ZKLOCK_NCHANGES);
	full = shared->added - shared->sent == ZKLOCK_NCHANGES;
	if (full)
		shared->sent++;
	shared->ring[shared->added++ % ZKLOCK_NCHANGES] = *change;
	LWLockRelease(shared->box.lock);
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
	LWLockAcquire(shared->box.lock, LW_SHARED);
	*added = shared->added;
	*sent = shared->sent;
	LWLockRelease(shared->box.lock);
}

int
zklock_changes_read(ZkChange *changes, int room, uint64 *first)
{
	int n = 0;

	LWLockAcquire(shared->box.lock, LW_SHARED);
	*first = shared->sent;
	for (; n < room && *first + n < shared->added; n++)
		changes[n] = shared->ring[(*first + n) % ZKLOCK_NCHANGES];
	LWLockRelease(shared->box.lock);
	return n;
}

void
zklock_changes_set_sent(uint64 sent)
{
	LWLockAcquire(shared->box.lock, LW_EXCLUSIVE);
	Assert(sent <= shared->added);
	shared->sent = Max(shared->sent, sent);
	LWLockRelease(shared->box.lock);
}
