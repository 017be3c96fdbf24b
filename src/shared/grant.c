/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  Decides who may take a grant, and when it is kept, handed on and given up.
 *
 * A grant that nobody holds any more is kept, for the next session on this server, as
 * long as nobody else wants it: then a hold costs no request to the ensemble.  Once
 * another server wants it, it is given up when its last hold ends; or, if local
 * backends wait for it, when a few more of them have had it.  A grant that may not be
 * kept goes when nobody here waits for it.
 *
 * Backends settle a grant when they take or end a hold.  The worker applies the
 * protocol's actions to it, and sweeps.  All of this happens with the entry locked,
 * except the sweep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "election_shared.h"
#include "grant.h"
#include "semaphore_shared.h"
#include "settings.h"
#include "stat.h"

/*
 * Does a backend of this server wait for the mode at level 1, and for nothing else?  A
 * backend that wants a set may have level 1 and wait for another lock, and so may all
 * backends behind it.
 */
static bool
queued_locally(const ZkLockEntry *entry, int mode)
{
	bool found = false;

	zklock_foreach_proclock (r, entry)
	{
		if (r->state != ZKLOCK_PROCLOCK_LOCAL)
			continue;
		if (r->set != 0)
			return false;
		found |= r->mode == mode;
	}
	return found;
}

/* With more the worker does not wait for the time of its next sweep. */
static uint32
most_kept(void)
{
	return zklock_max_kept() + zklock_max_kept() / 16;
}

void
zklock_grant_stays(ZkLockEntry *entry)
{
	if (!entry->leaving)
		return;
	entry->leaving = false;
	pg_atomic_sub_fetch_u32(&zklock_shared->nleaving, 1);
}

void
zklock_grant_update_kept(ZkLockEntry *entry)
{
	bool kept = zklock_kinds[entry->kind].kept && entry->proclocks < 0 &&
		(entry->grant[ZKLOCK_SHARED].usable || entry->grant[ZKLOCK_EXCLUSIVE].usable);

	Assert(zklock_entry_is_locked(entry));
	if (kept && entry->kept_since == 0)
	{
		uint32 n = ++zklock_partition(entry)->nkept;

		/* the protocol may take back what it has given up (UNDEMANDED) */
		zklock_grant_stays(entry);
		entry->kept_since = zklock_clock();
		/* to sum up all partitions costs more than to look at ours */
		if (n > most_kept() / ZKLOCK_NPARTITIONS && zklock_table_kept() > most_kept())
			zklock_worker_wake();
	}
	else if (!kept && entry->kept_since != 0)
	{
		if (entry->proclocks < 0)
		{
			/* at any time one of the two counts it (make_proclock) */
			entry->leaving = true;
			pg_atomic_add_fetch_u32(&zklock_shared->nleaving, 1);
		}
		Assert(zklock_partition(entry)->nkept > 0);
		zklock_partition(entry)->nkept--;
		entry->kept_since = 0;
	}
}

bool
zklock_grant_settle(ZkLockEntry *entry)
{
	bool spent = false;

	Assert(zklock_entry_is_locked(entry));
	if (zklock_election_stands(entry))
		return false;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		ZkLockGrant *grant = &entry->grant[mode];
		int other = ZKLOCK_NMODES - 1 - mode;

		if (!grant->usable || entry->held[mode] > 0)
			continue;
		if (grant->keep && !grant->demanded &&
			(!zklock_kinds[entry->kind].by_session || entry->want[mode] > 0 ||
			 !zklock_semaphore_place_waits_beside(entry)))
			continue;
		/*
		 * Backends that wait at level 1 behind another that asks for the other mode
		 * would wait for the demander of this grant.
		 */
		if (grant->handoffs > 0 &&
			(entry->want[mode] > 0 ||
			 (entry->want[other] == 0 && entry->held[other] == 0 &&
			  queued_locally(entry, mode))))
			continue;
		grant->usable = false;
		spent = true;
	}
	zklock_grant_update_kept(entry);
	return spent;
}

/* ------------------------------------------------------------------------
 * The protocol's actions
 * ------------------------------------------------------------------------
 */

/* ms for which the worker keeps a grant that nobody holds */
static int
keep_time(void)
{
	return zklock_drain ? 0 : zklock_keep_time;
}

void
zklock_grant_foresee(const ZkLockEntry *entry, ZkLockEvent *event)
{
	const ZkLockHint *hint = zklock_entry_hint(entry);
	const ZkKind *kind = &zklock_kinds[entry->kind];
	bool lock = kind->kept && !kind->by_session;
	bool keeps = keep_time() > 0;

	event->keep = lock && keeps && (!hint->bounced || hint->streak >= 2);
	event->alone = lock && (hint->sequence < 0 || hint->streak > 0);
	/* a permit is no use to others while it is kept: only where others do not come */
	if (kind->by_session)
		event->keep = event->alone = keeps && hint->streak >= 2;
	event->recurring = lock && !keeps && hint->streak > 0;
	event->asked = hint->asked;
}

void
zklock_grant_note_contender(const ZkLockEntry *entry, int64 sequence)
{
	ZkLockHint *hint = zklock_entry_hint(entry);

	/* the directory counts the contenders, from 0 when it is new */
	if (sequence != hint->sequence + 1 && sequence != 0)
		hint->streak = 0;
	else if (hint->streak < UINT8_MAX)
		hint->streak++;
	hint->sequence = (int32) sequence;
}

/* Another server wants a grant on which this many holds have been taken. */
static void
note_demand(const ZkLockEntry *entry, uint32 holds)
{
	ZkLockHint *hint = zklock_entry_hint(entry);

	hint->bounced = holds < 3;
	hint->streak = 0;
}

/* The worker has obtained a grant.  True: it has to be given back, or the need has to
 * be fed again for another reason. */
static bool
apply_granted(ZkLockEntry *entry, const ZkLockAction *action, bool keep)
{
	ZkLockMode mode = action->mode;
	ZkLockGrant *grant = &entry->grant[mode];
	bool again = false;

	Assert(!grant->usable && entry->held[mode] == 0);
	/* tokens grow: a reader may have had our writer's, which comes later */
	Assert(action->token > grant->token || mode == ZKLOCK_SHARED);
	grant->token = action->token;

	/*
	 * Tokens of this server's holders must not go back either: a fence may
	 * have seen the larger one.  A reader that comes after our writer is
	 * given the writer's; that is no lie, since the next holder after the writer
	 * has a larger one.  The other way round it would be,
	 * for readers elsewhere may stand between the two: an older grant for
	 * writers goes.  (Mostly it has gone, because our new contender made it
	 * look demanded.)
	 */
	if (mode == ZKLOCK_SHARED && entry->grant[ZKLOCK_EXCLUSIVE].usable &&
		entry->grant[ZKLOCK_EXCLUSIVE].token < grant->token)
	{
		entry->grant[ZKLOCK_EXCLUSIVE].usable = false;
		again = true;
	}
	entry->grant[ZKLOCK_SHARED].token =
		Max(entry->grant[ZKLOCK_SHARED].token, entry->grant[ZKLOCK_EXCLUSIVE].token);
	grant->keep = keep;
	/* one for writers that may not be kept is handed over as if it were wanted */
	grant->demanded = action->demanded || (!keep && mode == ZKLOCK_EXCLUSIVE);
	grant->holds = 0;
	/* all who wait now, or as many as if they had come one by one */
	grant->handoffs = Max(zklock_handoff_limit + 1, entry->want[mode]);
	grant->usable = entry->want[mode] > 0 || zklock_election_stands(entry) ||
		(keep && !grant->demanded);
	if (keep && grant->demanded)
		note_demand(entry, 0);
	if (zklock_entry_hint(entry)->blocked)
		zklock_stat_add(entry, ZKLOCK_STAT_HANDOVERS, 1);
	zklock_entry_hint(entry)->blocked = false;
	/* if everybody has gone and it is not to be kept, give it back */
	return zklock_grant_settle(entry) || !grant->usable || again;
}

static bool
apply_demanded(ZkLockEntry *entry, ZkLockMode mode, bool keep)
{
	ZkLockGrant *grant = &entry->grant[mode];

	zklock_stat_add(entry, ZKLOCK_STAT_DEMANDS, 1);
	/* those who wait have been granted it, and have not woken up yet */
	if (!grant->demanded)
		grant->handoffs = Max(zklock_handoff_limit, entry->want[mode]);
	grant->demanded = true;
	if (grant->handoffs == 0)
		grant->usable = false;
	if (keep)
		note_demand(entry, grant->holds);
	return zklock_grant_settle(entry) || !grant->usable;
}

static void
mark_blocked(ZkLockEntry *entry, ZkLockMode mode)
{
	zklock_foreach_proclock (r, entry)
	{
		if (r->mode == mode && r->state == ZKLOCK_PROCLOCK_WANTED && r->heard)
			r->blocked = true;
	}
}

static void
mark_lost(ZkLockEntry *entry, ZkLockMode mode)
{
	zklock_foreach_proclock (r, entry)
	{
		if (r->mode != mode || r->state != ZKLOCK_PROCLOCK_HELD)
			continue;
		r->lost = true;
		if (r->pid != 0)
			*zklock_loss_flag(r->proc_number) = 1;
	}
}

static void
mark_failed(ZkLockEntry *entry, ZkLockMode mode, ZkLockFailure failure)
{
	zklock_foreach_proclock (r, entry)
	{
		if (r->mode != mode || r->state != ZKLOCK_PROCLOCK_WANTED || r->failed)
			continue;
		r->failed = true;
		r->failure = (uint8) failure;
		r->failure_rc = entry->last_rc;
	}
}

bool
zklock_grant_apply(ZkLockEntry *entry, const ZkLockAction *action, bool keep)
{
	ZkLockMode mode = action->mode;
	ZkLockGrant *grant = &entry->grant[mode];

	Assert(zklock_in_worker() && zklock_entry_is_locked(entry));
	Assert(!zklock_action_is_request(action->type));
	switch (action->type)
	{
		case ZKLOCK_ACT_GRANTED:
			return apply_granted(entry, action, keep);

		case ZKLOCK_ACT_DEMANDED:
			return apply_demanded(entry, mode, keep);

		case ZKLOCK_ACT_UNDEMANDED:
			grant->demanded = false;
			grant->usable = true;
			return zklock_grant_settle(entry);

		case ZKLOCK_ACT_BLOCKED:
			/* zk_try_lock looks at the queue, too */
			zklock_entry_hint(entry)->blocked = true;
			if (action->hash != 0)
				zklock_entry_hint(entry)->asked = (uint32) action->hash;
			mark_blocked(entry, mode);
			return false;

		case ZKLOCK_ACT_REVOKED:
			grant->usable = false;
			(void) zklock_grant_settle(entry);
			zklock_stat_add(entry, ZKLOCK_STAT_LOSSES, entry->held[mode]);
			if (entry->kind == ZKLOCK_KIND_JOB)
				pg_atomic_sub_fetch_u32(&zklock_shared->njobs, entry->held[mode]);
			entry->held[mode] = 0;
			mark_lost(entry, mode);
			return true;

		case ZKLOCK_ACT_FAILED:
			entry->want[mode] = 0;
			mark_failed(entry, mode, action->failure);
			return false;

		case ZKLOCK_ACT_ABSENT: /* for dispatch.c */
			return false;

		default:
			pg_unreachable();
	}
}

/* ------------------------------------------------------------------------
 * Grants that are kept
 * ------------------------------------------------------------------------
 */

void
zklock_grant_give_up(ZkLockEntry *entry)
{
	if (entry->kept_since == 0)
		return;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		entry->grant[mode].usable = false;
	zklock_grant_update_kept(entry);
	zklock_entry_set_dirty(entry);
}

/* An entry with a grant that is kept for nobody. */
typedef struct KeptEntry
{
	int64 since;
	int32 index;
} KeptEntry;

static int
older_first(const void *a, const void *b)
{
	int64 x = ((const KeptEntry *) a)->since;
	int64 y = ((const KeptEntry *) b)->since;

	return x < y ? -1 : x > y;
}

/* Gives the grant up, unless it was used meanwhile. */
static void
evict(const KeptEntry *kept)
{
	ZkLockEntry *entry = zklock_entry(kept->index);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE);

	if (lock == NULL)
		return;
	if (entry->kept_since == kept->since)
		zklock_grant_give_up(entry);
	zklock_entry_unlock(lock);
}

/* Has the lease lapsed because nobody needs it?  Then nobody can take a hold on a
 * grant: the next wish gets a new session (session.c). */
static bool
lapsed(void)
{
	return zklock_shared->session.heartbeat.resting && !zklock_lease_valid();
}

long
zklock_grant_sweep(void)
{
	static int64 sweep_at = 0;
	static int64 sweep_age = 0; /* as of then */
	int64 now;
	int64 age;
	int64 interval;
	uint32 nkept = zklock_table_kept();
	uint32 excess = nkept - Min(nkept, zklock_max_kept());
	uint32 n = 0;
	bool room = pg_atomic_exchange_u32(&zklock_shared->room_wanted, 0) != 0;
	KeptEntry *kept;

	Assert(zklock_in_worker() && zklock_unlocked());
	if (room)
	{
		/* besides what is on its way out */
		uint32 leaving = pg_atomic_read_u32(&zklock_shared->nleaving);
		uint32 wanted = nkept / 16 + 1;

		room = leaving < wanted;
		if (room)
			excess = Max(excess, wanted - leaving);
	}
	if (nkept == 0)
		return -1;
	now = zklock_clock();
	age = lapsed() ? 0 : keep_time() * NS_PER_MS;
	interval = Min(Max(age / 8, 100 * NS_PER_MS), 10000 * NS_PER_MS);
	if (!room && excess <= zklock_max_kept() / 16 && now < sweep_at && age == sweep_age)
		return (long) ((Min(sweep_at - now, interval)) / NS_PER_MS + 1);
	sweep_at = now + interval;
	sweep_age = age;

	kept = palloc_extended(sizeof(KeptEntry) * (nkept + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < zklock_entries_end(); i++)
	{
		KeptEntry e = {.since = zklock_entry(i)->kept_since, .index = i};

		if (e.since == 0)
			continue;
		if (now - e.since >= age)
		{
			evict(&e);
			excess -= Min(excess, 1);
		}
		else if (n <= nkept)
			kept[n++] = e;
	}
	if (excess > 0)
		qsort(kept, n, sizeof(KeptEntry), older_first);
	for (uint32 i = 0; i < Min(excess, n); i++)
		evict(&kept[i]);
	pfree(kept);
	return (long) (interval / NS_PER_MS);
}
