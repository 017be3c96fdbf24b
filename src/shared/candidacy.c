/*-------------------------------------------------------------------------
 *
 * candidacy.c
 *	  This server's candidacy in an election, in the lock table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "candidacy.h"

void
zklock_candidacy_begin(ZkLockEntry *entry)
{
	Assert(entry->kind == ZKLOCK_KIND_ELECTION && zklock_entry_is_locked(entry));
	Assert(pg_atomic_read_u64(&entry->election.leader) == 0);
	entry->election.candidate = true;
	entry->election.verdict = entry->election.failed = false;
	entry->election.entered = zklock_clock();
	entry->election.since = GetCurrentTimestamp();
	entry->last_rc = 0;
	zklock_entry_set_dirty(entry);
}

void
zklock_candidacy_give_up(ZkLockEntry *entry, ZkLeaderEnd end)
{
	Assert(entry->kind == ZKLOCK_KIND_ELECTION && zklock_entry_is_locked(entry));
	pg_atomic_write_u64(&entry->election.leader, 0);
	entry->election.given_up = (uint8) end;
	entry->grant[ZKLOCK_EXCLUSIVE].usable = false;
	zklock_entry_set_dirty(entry);
}

bool
zklock_candidacy_enter(const char *name, ZkElectionRef *ref)
{
	LWLock *lock;
	ZkLockEntry *entry;

	entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	if (entry == NULL || !entry->election.candidate)
	{
		if (entry != NULL)
			zklock_entry_unlock(lock);
		entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, true, LW_EXCLUSIVE, &lock);
		if (entry == NULL)
			return false;
		if (!entry->election.candidate)
			zklock_candidacy_begin(entry);
	}
	ref->entry = entry;
	ref->generation = entry->generation;
	zklock_entry_unlock(lock);
	return true;
}
