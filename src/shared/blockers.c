/*-------------------------------------------------------------------------
 *
 * blockers.c
 *	  Finds the backends of this server that block each other in PostgreSQL's lock
 *	  manager.
 *
 * Does what pg_blocking_pids does, by the same functions.  Each look takes all locks of
 * the lock table, shared, for a moment, and no two looks show the same moment.  A
 * caller that follows the blockers from one process to the next looks twice
 * (zklock_blocked_since): a wait that is the same at both times was there all the time
 * between.
 *
 * Waits for anything but a heavyweight lock, such as buffer pins or a standby, have no
 * blockers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/procarray.h"

#include "blockers.h"
#include "table.h"

/* Finds the process's own entry among those of the lock that it waits for. */
static const LockInstanceData *
find_own(const LockInstanceData *locks, const BlockedProcData *proc)
{
	for (int i = 0; i < proc->num_locks; i++)
		if (locks[proc->first_lock + i].pid == proc->pid)
			return &locks[proc->first_lock + i];
	return NULL;
}

static bool
is_ahead(const BlockedProcsData *data, const BlockedProcData *proc, int pid)
{
	for (int i = 0; i < proc->num_waiters; i++)
		if (data->waiter_pids[proc->first_waiter + i] == pid)
			return true;
	return false;
}

/* Returns since when it waits in the lock manager; 0: it does not, or has just begun. */
static TimestampTz
waits_since(int pid)
{
	PGPROC *proc = BackendPidGetProc(pid);

	return proc == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
}

int
zklock_blockers(int pid, ZkBlocker **blockers)
{
	BlockedProcsData *before;
	BlockedProcsData *data;
	TimestampTz *since;
	int n = 0;

	Assert(zklock_unlocked());
	*blockers = NULL;
	before = GetBlockerStatusData(pid);
	if (before->nprocs == 0)
		return 0;
	/* a wait that began before the second look and goes on after it is what that saw */
	since = palloc(sizeof(TimestampTz) * (Size) before->nprocs);
	for (int i = 0; i < before->nprocs; i++)
		since[i] = waits_since(before->procs[i].pid);
	data = GetBlockerStatusData(pid);
	*blockers = palloc(sizeof(ZkBlocker) * Max((Size) data->nlocks, 1));
	for (int i = 0; i < data->nprocs; i++)
	{
		const BlockedProcData *proc = &data->procs[i];
		const LockInstanceData *own = find_own(data->locks, proc);
		TimestampTz begun = 0;
		int conflicts;

		for (int j = 0; j < before->nprocs; j++)
			if (before->procs[j].pid == proc->pid)
				begun = since[j];
		if (own == NULL || begun == 0 || !zklock_blocked_since(proc->pid, begun))
			continue;
		conflicts = GetLockTagsMethodTable(&own->locktag)->conflictTab[own->waitLockMode];
		for (int j = 0; j < proc->num_locks; j++)
		{
			const LockInstanceData *other = &data->locks[proc->first_lock + j];

			if (other == own || other->leaderPid == own->leaderPid)
				continue;
			/* it holds the lock, or wants it and is ahead */
			if ((conflicts & other->holdMask) == 0 &&
				(other->waitLockMode == NoLock ||
				 (conflicts & LOCKBIT_ON(other->waitLockMode)) == 0 ||
				 !is_ahead(data, proc, other->pid)))
				continue;
			(*blockers)[n++] = (ZkBlocker){
				.pid = other->leaderPid,
				.waiting = own->pid,
				.since = begun,
				.tag = own->locktag,
				.mode = own->waitLockMode,
			};
		}
	}
	return n;
}

bool
zklock_blocked_since(int pid, TimestampTz since)
{
	return waits_since(pid) == since;
}
