/*-------------------------------------------------------------------------
 *
 * election_shared.c
 *	  Keeps this server's candidacy in an election, in the lock table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "election_shared.h"

void
zklock_election_candidacy_begin(ZkLockEntry *entry)
{
	Assert(entry->kind == ZKLOCK_KIND_ELECTION && zklock_entry_is_locked(entry));
	Assert(pg_atomic_read_u64(&entry->election.leader) == 0);
	entry->election.candidate = true;
	entry->election.verdict = entry->election.failed = false;
	entry->election.undecided = entry->election.idle_since = zklock_clock();
	entry->election.since = GetCurrentTimestamp();
	entry->last_rc = 0;
	pg_atomic_write_u32(&zklock_shared->stands, 1);
	zklock_entry_set_dirty(entry);
}

void
zklock_election_candidacy_give_up(ZkLockEntry *entry, ZkLeaderEnd end)
{
	Assert(entry->kind == ZKLOCK_KIND_ELECTION && zklock_entry_is_locked(entry));
	pg_atomic_write_u64(&entry->election.leader, 0);
	entry->election.given_up = (uint8) end;
	entry->grant[ZKLOCK_EXCLUSIVE].usable = false;
	zklock_entry_set_dirty(entry);
}

void
zklock_election_candidacy_end(ZkLockEntry *entry, ZkLeaderEnd end)
{
	entry->election.candidate = false;
	zklock_election_candidacy_give_up(entry, end);
	/* one that waits for the verdict */
	zklock_entry_broadcast(entry);
}

void
zklock_election_note_asked(ZkLockEntry *entry)
{
	entry->election.last_asked = GetCurrentTimestamp();
	entry->election.asked = true;
}

/* Is it noted that somebody in this database wants the election? */
static bool
is_noted(const ZkElection *election, Oid database)
{
	for (int i = 0; i < ZKLOCK_ELECTION_DATABASES; i++)
	{
		if (election->databases[i] == database)
			return true;
	}
	return !OidIsValid(database) || election->crowded;
}

static void
note_database(ZkElection *election, Oid database)
{
	election->abandoned = false;
	for (int i = 0; i < ZKLOCK_ELECTION_DATABASES && !is_noted(election, database); i++)
	{
		if (!OidIsValid(election->databases[i]))
			election->databases[i] = database;
	}
	if (!is_noted(election, database))
		election->crowded = true;
}

bool
zklock_election_candidacy_enter(const char *name, Oid database, Oid role, ZkElectionRef *ref)
{
	LWLock *lock;
	ZkLockEntry *entry;

	entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	if (entry == NULL || !entry->election.candidate ||
		!is_noted(&entry->election, database))
	{
		if (entry != NULL)
			zklock_entry_unlock(lock);
		entry = zklock_entry_find(ZKLOCK_KIND_ELECTION, name, true, LW_EXCLUSIVE, &lock);
		if (entry == NULL)
			return false;
		if (!entry->election.candidate)
		{
			memset(entry->election.databases, 0, sizeof(entry->election.databases));
			entry->election.crowded = false;
			entry->election.role = role;
			zklock_election_candidacy_begin(entry);
		}
		note_database(&entry->election, database);
	}
	ref->entry = entry;
	ref->generation = entry->generation;
	zklock_entry_unlock(lock);
	return true;
}

bool
zklock_election_candidacy_stands(const char *name)
{
	LWLock *lock;
	ZkLockEntry *entry =
		zklock_entry_find(ZKLOCK_KIND_ELECTION, name, false, LW_SHARED, &lock);
	bool stands = entry != NULL && entry->election.candidate;

	if (entry != NULL)
		zklock_entry_unlock(lock);
	return stands;
}

int
zklock_election_candidacy_count(Oid role)
{
	int n = 0;

	for (int i = 0; i < zklock_entries_end(); i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock;

		if (entry->kind != ZKLOCK_KIND_ELECTION ||
			(lock = zklock_entry_lock(entry, LW_SHARED)) == NULL)
			continue;
		n += entry->kind == ZKLOCK_KIND_ELECTION && entry->election.candidate &&
			entry->election.role == role;
		zklock_entry_unlock(lock);
	}
	return n;
}

void
zklock_election_candidacy_leave_database(Oid database)
{
	bool abandoned = false;

	for (int i = 0; i < zklock_entries_end(); i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		ZkElection *election = &entry->election;
		LWLock *lock;
		bool left = false;
		bool others = false;

		if (entry->kind != ZKLOCK_KIND_ELECTION ||
			(lock = zklock_entry_lock(entry, LW_EXCLUSIVE)) == NULL)
			continue;
		for (int j = 0; j < ZKLOCK_ELECTION_DATABASES; j++)
		{
			if (election->databases[j] == database)
			{
				election->databases[j] = InvalidOid;
				left = true;
			}
			else
				others |= OidIsValid(election->databases[j]);
		}
		if (entry->kind == ZKLOCK_KIND_ELECTION && election->candidate && left &&
			!others && !election->crowded)
			abandoned = election->abandoned = true;
		zklock_entry_unlock(lock);
	}
	if (abandoned)
	{
		pg_atomic_write_u32(&zklock_shared->abandoned, 1);
		zklock_worker_wake();
	}
}
