/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  The locks that this backend holds, and how they end.
 *
 * Level 2 ends first, then level 1: the next backend that gets level 1 must find the
 * grant free or gone, never in the hands of a backend that believes to have released
 * it.  So transaction-scope holds end in the transaction callbacks (callbacks.c), which
 * run before PostgreSQL drops its heavyweight locks.  They end at COMMIT after the
 * commit is durable and visible, at ABORT, and at the abort of the subtransaction that
 * took them.
 *
 * A session-scope hold lives as long as its lock at level 1.  Functions such as
 * pg_advisory_unlock_all, and DISCARD ALL, can take that away without zklock.  A
 * backend that had lost level 1 and kept level 2 would be waited for, unseen, by a
 * backend that has level 1.  So every call checks this, and every end of a statement or
 * transaction.
 *
 * Nothing that ends a hold throws, allocates, reads a catalog or waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "alarm.h"
#include "hold.h"
#include "names.h"
#include "proclock.h"
#include "set_shared.h"

/* There is one hold for each lock, mode and scope, and in transaction scope for each
 * nest level, however often the lock is taken. */
struct ZkHold
{
	slist_node lock_node;		 /* in the lock's list of its scope */
	dlist_node transaction_node; /* scope transaction: in the list of all */
	ZkHeldLock *held;
	ZkLockMode mode;
	ZkLockScope scope;
	int level; /* transaction nest level that took it */
	uint64 count;
	uint64 within; /* exclusive ones in session scope: so many were asked for in shared mode */
};

/* The key of a search: a name's hash, as level 1 has it, and the name itself. */
typedef struct HeldKey
{
	uint32 hash;
	uint8 kind;
	const char *name;
} HeldKey;

typedef struct HeldElement
{
	HeldKey key; /* its name is that of "held" */
	ZkHeldLock *held;
	char status; /* simplehash.h's */
} HeldElement;

#define SH_PREFIX			 held
#define SH_ELEMENT_TYPE		 HeldElement
#define SH_KEY_TYPE			 HeldKey
#define SH_KEY				 key
#define SH_HASH_KEY(tb, key) ((key).hash)
#define SH_EQUAL(tb, a, b)                                                               \
	((a).hash == (b).hash && (a).kind == (b).kind &&                                     \
	 ((a).name == (b).name || strcmp((a).name, (b).name) == 0))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static held_hash *held_locks = NULL; /* NULL until the first */
/* The hold for the next name.  It still has the name, kind, hash and tag of what was
 * held last. */
static ZkHeldLock *spare = NULL;
static MemoryContext hold_context = NULL;
static ZkHold **reserved = NULL; /* that may be added */
static int nreserved = 0;
static int reserved_room = 0;

/* The newest hold comes first.  So nest levels only fall along the list, and the end of
 * a subtransaction concerns the head of the list only. */
ZkHolds zklock_holds = {.transaction = DLIST_STATIC_INIT(zklock_holds.transaction),
						.pending = -1,
						.pending_set = -1};
static bool look_at_all = false; /* for zklock_hold_end_void */

/* ------------------------------------------------------------------------
 * Level 1
 * ------------------------------------------------------------------------
 */

void
zklock_level1_tag(LOCKTAG *tag, ZkLockKind kind, const char *name, int pid)
{
	uint64 whose = zklock_kinds[kind].by_session ? (uint64) pid << 8 : 0;
	uint64 hash = hash_bytes_extended((const unsigned char *) name, (int) strlen(name),
									  whose | (uint64) kind);

	/* database 0: the name space is the ensemble's, not a database's */
	SET_LOCKTAG_ADVISORY(*tag, 0, (uint32) (hash >> 32), (uint32) hash,
						 ZKLOCK_LEVEL1_CLASS);
}

LOCKMODE
zklock_level1_mode(ZkLockMode mode)
{
	return mode == ZKLOCK_EXCLUSIVE ? ExclusiveLock : ShareLock;
}

/* ------------------------------------------------------------------------
 * Holds
 * ------------------------------------------------------------------------
 */

ZkHeldLock *
zklock_held_find(ZkLockKind kind, const char *name)
{
	HeldKey key = {.kind = (uint8) kind, .name = name};
	LOCKTAG tag;
	HeldElement *element;

	if (zklock_held_names() == 0)
		return NULL;
	zklock_level1_tag(&tag, kind, name, MyProcPid);
	key.hash = tag.locktag_field3;
	element = held_lookup(held_locks, key);
	return element != NULL ? element->held : NULL;
}

/* The next name of which something is held, or NULL.  The caller may forget the one
 * that was returned last. */
static ZkHeldLock *
next_held(held_iterator *iterator)
{
	HeldElement *element = held_iterate(held_locks, iterator);

	return element != NULL ? element->held : NULL;
}

static void
prepare(void)
{
	if (hold_context == NULL)
		hold_context =
			AllocSetContextCreate(TopMemoryContext, "zklock holds", ALLOCSET_SMALL_SIZES);
	if (held_locks == NULL)
		held_locks = held_create(hold_context, 16, NULL);
	if (spare == NULL)
		spare = MemoryContextAllocZero(hold_context, sizeof(ZkHeldLock));
	if (nreserved == 0)
		zklock_hold_reserve_room(1);
	zklock_alarm_prepare();
}

const LOCKTAG *
zklock_hold_tag(ZkLockKind kind, const char *name)
{
	prepare();
	if (spare->kind != kind || strcmp(spare->name, name) != 0)
	{
		strlcpy(spare->name, name, sizeof(spare->name));
		spare->kind = (uint8) kind;
		spare->hash = zklock_name_hash(kind, name);
		zklock_level1_tag(&spare->tag, kind, name, MyProcPid);
	}
	return &spare->tag;
}

static HeldKey
key_of(const ZkHeldLock *held)
{
	return (
		HeldKey){.hash = held->tag.locktag_field3, .kind = held->kind, .name = held->name};
}

ZkHeldLock *
zklock_hold_reserve(ZkLockKind kind, const char *name)
{
	(void) zklock_hold_tag(kind, name);
	return zklock_hold_reserve_tagged();
}

ZkHeldLock *
zklock_hold_reserve_tagged(void)
{
	ZkHeldLock *held = spare;
	bool found;
	HeldElement *element;

	Assert(!zklock_in_worker());
	element = held_insert(held_locks, key_of(held), &found);
	if (found)
		return element->held;
	element->held = held;
	spare = NULL;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		held->proclock[mode] = -1;
		held->token[mode] = 0;
		held->count[mode] = 0;
	}
	held->transaction_count = 0;
	held->told = false;
	held->unproven_since = 0;
	held->begun = false;
	held->permits = held->number = 0;
	for (int scope = 0; scope < ZKLOCK_NSCOPES; scope++)
		slist_init(&held->holds[scope]);
	return held;
}

void
zklock_hold_reserve_room(int n)
{
	while (nreserved > n)
		pfree(reserved[--nreserved]);
	if (reserved_room < n)
	{
		Size size = sizeof(ZkHold *) * (Size) n;

		reserved = reserved == NULL ? MemoryContextAlloc(hold_context, size)
									: repalloc(reserved, size);
		reserved_room = n;
	}
	for (; nreserved < n; nreserved++)
		reserved[nreserved] = MemoryContextAlloc(hold_context, sizeof(ZkHold));
}

void
zklock_held_forget(ZkHeldLock *held)
{
	if (held->proclock[ZKLOCK_SHARED] >= 0 || held->proclock[ZKLOCK_EXCLUSIVE] >= 0)
		return;
	(void) held_delete(held_locks, key_of(held));
	if (spare != NULL)
		pfree(spare);
	spare = held;
}

void
zklock_hold_set_pending(int32 proclock)
{
	Assert(proclock < 0 || !zklock_hold_pending());
	zklock_holds.pending = proclock;
	zklock_hold_set_waiting(proclock);
}

void
zklock_hold_set_pending_set(int32 first)
{
	Assert(zklock_holds.pending < 0);
	zklock_holds.pending_set = first;
	if (first < 0)
		zklock_hold_set_waiting(-1);
}

void
zklock_hold_set_waiting(int32 proclock)
{
	zklock_proc(ZKLOCK_MY_PROC_NUMBER)->pending = proclock;
}

/*
 * The hold of "held" in this mode and scope, in transaction scope that of this nest
 * level, or NULL.  This takes a few steps only, since newer levels come first and a
 * level has two modes at most.
 */
static ZkHold *
find_hold(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope, int level)
{
	slist_iter iter;

	slist_foreach (iter, &held->holds[scope])
	{
		ZkHold *hold = slist_container(ZkHold, lock_node, iter.cur);

		if (scope == ZKLOCK_SCOPE_TRANSACTION && hold->level < level)
			break;
		if (hold->mode == mode && (scope == ZKLOCK_SCOPE_SESSION || hold->level == level))
			return hold;
	}
	return NULL;
}

/* For tests: check that all facts about a name's holds agree, and that there is level 1
 * if there is a hold. */
#ifdef USE_ASSERT_CHECKING
static void
check_held(const ZkHeldLock *held)
{
	uint64 count[ZKLOCK_NMODES] = {0};
	uint64 in_scope[ZKLOCK_NSCOPES] = {0};
	slist_iter iter;

	for (int scope = 0; scope < ZKLOCK_NSCOPES; scope++)
	{
		slist_foreach (iter, unconstify(slist_head *, &held->holds[scope]))
		{
			const ZkHold *hold = slist_container(ZkHold, lock_node, iter.cur);

			Assert(hold->held == held && hold->scope == (ZkLockScope) scope &&
				   hold->count > 0);
			count[hold->mode] += hold->count;
			in_scope[scope] += hold->count;
		}
	}
	Assert(held->transaction_count == in_scope[ZKLOCK_SCOPE_TRANSACTION]);
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		const ZkProcLock *proclock;

		Assert(held->count[mode] == count[mode]);
		Assert((held->proclock[mode] >= 0) == (count[mode] > 0));
		if (count[mode] == 0)
			continue;
		proclock = zklock_proclock(held->proclock[mode]);
		Assert(proclock->pid == MyProcPid && proclock->mode == mode);
		Assert(proclock->state == ZKLOCK_PROCLOCK_HELD && held->token[mode] > 0);
		Assert(proclock->count[ZKLOCK_SCOPE_TRANSACTION] +
				   proclock->count[ZKLOCK_SCOPE_SESSION] ==
			   (uint32) count[mode]);
	}
}
#endif

void
zklock_hold_add(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope)
{
	int level = GetCurrentTransactionNestLevel();
	ZkHold *hold = find_hold(held, mode, scope, level);

	Assert(hold != NULL || nreserved > 0);
	Assert(held->proclock[mode] >= 0);
	Assert(!zklock_kinds[held->kind].unlocked ||
		   zklock_lock_held_by_me(&held->tag, zklock_level1_mode(mode)));
	if (hold != NULL)
		hold->count++;
	else
	{
		hold = reserved[--nreserved];
		hold->held = held;
		hold->mode = mode;
		hold->scope = scope;
		hold->level = level;
		hold->count = 1;
		hold->within = 0;
		slist_push_head(&held->holds[scope], &hold->lock_node);
		if (scope == ZKLOCK_SCOPE_SESSION)
			zklock_holds.session_scope++;
		else
			dlist_push_head(&zklock_holds.transaction, &hold->transaction_node);
	}
	zklock_alarm_arm();
	held->count[mode]++;
	if (scope == ZKLOCK_SCOPE_TRANSACTION)
		held->transaction_count++;
	/* for zk_locks only, which may see it a moment early or late */
	zklock_proclock(held->proclock[mode])->count[scope]++;
#ifdef USE_ASSERT_CHECKING
	check_held(held);
#endif
}

static void
free_hold(ZkHold *hold)
{
	slist_delete(&hold->held->holds[hold->scope], &hold->lock_node);
	if (hold->scope == ZKLOCK_SCOPE_SESSION)
		zklock_holds.session_scope--;
	else
		dlist_delete(&hold->transaction_node);
	if (nreserved < Min(reserved_room, 1))
		reserved[nreserved++] = hold; /* for the next one */
	else
		pfree(hold);
}

/* Count "n" holds of "hold" down.  The last hold of its mode ends level 2, and the last
 * hold of the name ends the entry.  The caller releases level 1. */
static void
end_hold(ZkHold *hold, uint64 n)
{
	ZkHeldLock *held = hold->held;
	ZkLockMode mode = hold->mode;
	ZkLockScope scope = hold->scope;

#ifdef USE_ASSERT_CHECKING
	check_held(held);
#endif
	Assert(n > 0 && n <= hold->count);
	hold->count -= n;
	hold->within = Min(hold->within, hold->count);
	held->count[mode] -= n;
	if (scope == ZKLOCK_SCOPE_TRANSACTION)
	{
		held->transaction_count -= n;
		/* what the transaction was told says nothing of the session's own holds */
		if (held->transaction_count == 0)
			held->told = false;
	}
	zklock_proclock(held->proclock[mode])->count[scope] -= (uint32) n;

	if (hold->count == 0)
		free_hold(hold);
	if (held->count[mode] == 0)
	{
		zklock_proclock_end(held->proclock[mode]);
		held->proclock[mode] = -1;
		held->token[mode] = 0;
		zklock_held_forget(held);
	}
	if (!zklock_hold_any())
		zklock_alarm_disarm();
}

/*
 * Release level 1 once in session scope, and return whether the session had it.  Beside
 * a hold in transaction scope only LockRelease can tell that; it warns if the session
 * had not.
 */
static bool
release_level1(const LOCKTAG *tag, LOCKMODE lockmode, bool mixed)
{
	int client_level = client_min_messages;
	int log_level = ZKLOCK_LOG_MIN_MESSAGES;
	bool released;

	if (mixed)
		client_min_messages = ZKLOCK_LOG_MIN_MESSAGES = ERROR;
	released = LockRelease(tag, lockmode, true);
	client_min_messages = client_level;
	ZKLOCK_LOG_MIN_MESSAGES = log_level;
	return released;
}

void
zklock_hold_each_session_scope(void (*what)(ZkHeldLock *held))
{
	held_iterator iterator;
	ZkHeldLock *held;

	if (zklock_holds.session_scope == 0)
		return;
	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		if (zklock_kinds[held->kind].unlocked &&
			!slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
			what(held);
	}
}

/* End one count of a hold in session scope, at both levels. */
static void
end_one(ZkHold *hold)
{
	LOCKTAG tag = hold->held->tag;
	LOCKMODE lockmode = zklock_level1_mode(hold->mode);
	bool mixed = hold->held->transaction_count > 0;

	end_hold(hold, 1);
	(void) release_level1(&tag, lockmode, mixed);
}

uint64
zklock_hold_end_session_scope(ZkHeldLock *held, bool all)
{
	uint64 ended = 0;

	while (!slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
	{
		/* afterwards the lock and its name may be history */
		bool last = held->count[ZKLOCK_SHARED] + held->count[ZKLOCK_EXCLUSIVE] == 1;

		end_one(slist_head_element(ZkHold, lock_node, &held->holds[ZKLOCK_SCOPE_SESSION]));
		ended++;
		if (!all || last)
			break;
	}
	return ended;
}

void
zklock_hold_note_within(ZkHeldLock *held)
{
	ZkHold *hold = find_hold(held, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION, 0);

	Assert(hold != NULL && hold->within < hold->count);
	if (hold != NULL)
		hold->within++;
}

bool
zklock_hold_end_asked(ZkHeldLock *held, ZkLockMode mode)
{
	ZkHold *hold = find_hold(held, ZKLOCK_EXCLUSIVE, ZKLOCK_SCOPE_SESSION, 0);
	uint64 within = hold != NULL ? hold->within : 0;

	if (mode == ZKLOCK_SHARED)
	{
		if (within > 0)
			hold->within--;
		else
			hold = find_hold(held, ZKLOCK_SHARED, ZKLOCK_SCOPE_SESSION, 0);
	}
	else if (hold != NULL && hold->count == within)
		hold = NULL;
	if (hold != NULL)
		end_one(hold);
	return hold != NULL;
}

uint64
zklock_hold_end_all_session_scope(bool unlocked)
{
	held_iterator iterator;
	ZkHeldLock *held;
	uint64 ended = 0;

	if (zklock_holds.session_scope == 0)
		return 0;
	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		if (!unlocked || zklock_kinds[held->kind].unlocked)
			ended += zklock_hold_end_session_scope(held, true);
	}
	return ended;
}

/*
 * Whatever takes level 1 away takes it from all session-scope holds at once.  So the
 * first hold that still has level 1 shows that the others have it, too, unless a hold
 * in transaction scope keeps level 1 for it.  When such a hold has ended, it hides
 * nothing any more, and this checks each session-scope hold: those that have level 1
 * may have been taken since.
 */
void
zklock_hold_end_void_ones(void)
{
	held_iterator iterator;
	ZkHeldLock *held;

	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		ZkHold *hold;
		bool gone[ZKLOCK_NMODES];
		int modes = 0;
		bool present = false;

		if (slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
			continue;
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			gone[mode] = held->proclock[mode] >= 0 &&
				!zklock_lock_held_by_me(&held->tag, zklock_level1_mode((ZkLockMode) mode));
			present |= held->proclock[mode] >= 0 && !gone[mode];
			modes += held->proclock[mode] >= 0;
		}
		if (present && held->transaction_count == 0 && !look_at_all)
			return;
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			if (!gone[mode])
				continue;
			if ((hold = find_hold(held, (ZkLockMode) mode, ZKLOCK_SCOPE_SESSION, 0)) != NULL)
				end_hold(hold, hold->count);
			if (--modes == 0)
				break; /* "held" is freed */
		}
	}
	look_at_all = false;
}

/*
 * If void holds stayed, the new hold would be counted with them, and they would seem to
 * have level 1.  This function releases level 1 and takes it back.  That needs no
 * memory: the hold in transaction scope keeps the lock, and its owner's place is free
 * (LockAcquireExtended).
 */
void
zklock_hold_end_hidden_void(ZkHeldLock *held, ZkLockMode mode)
{
	ZkHold *hold = find_hold(held, mode, ZKLOCK_SCOPE_SESSION, 0);
	LOCKMODE lockmode = zklock_level1_mode(mode);

	if (hold == NULL || hold->count == held->count[mode])
		return; /* nothing in transaction scope hides it */
	if (release_level1(&held->tag, lockmode, true))
		(void) LockAcquire(&held->tag, lockmode, true, false);
	else
		end_hold(hold, hold->count);
}

bool
zklock_held_lost(const ZkHeldLock *held)
{
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		/* set once, by the worker or by us; read without the lock */
		if (held->proclock[mode] >= 0 &&
			((volatile ZkProcLock *) zklock_proclock(held->proclock[mode]))->lost)
			return true;
	}
	return false;
}

void
zklock_held_forfeit(ZkHeldLock *held)
{
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		if (held->proclock[mode] >= 0 && held->count[mode] > 0)
			zklock_proclock_forfeit(held->proclock[mode]);
	}
}

int
zklock_held_names(void)
{
	return held_locks == NULL ? 0 : (int) held_locks->members;
}

ZkHeldLock *
zklock_held_find_shared(int64 token)
{
	held_iterator iterator;
	ZkHeldLock *held;
	ZkHeldLock *shared = NULL;

	if (zklock_held_names() == 0)
		return NULL;
	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		ZkLockMode mode = zklock_held_mode(held);

		if (held->token[mode] != token)
			continue;
		if (mode == ZKLOCK_EXCLUSIVE && held->permits <= 1)
			return NULL;
		shared = held;
	}
	return shared;
}

/* Rank losses by which one is to be told first: a loss that is never only a warning, if
 * there is one. */
static int
loss_rank(const ZkHeldLock *held)
{
	return zklock_kinds[held->kind].loss.never_warns ? 2 : held->transaction_count > 0;
}

ZkHeldLock *
zklock_held_find_lost(bool all, const ZkHeldLock *but)
{
	held_iterator iterator;
	ZkHeldLock *held;
	ZkHeldLock *lost = NULL;

	if (held_locks == NULL)
		return NULL;
	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		/* one that is only being asked for is not held yet */
		if (held == but || held->count[ZKLOCK_SHARED] + held->count[ZKLOCK_EXCLUSIVE] == 0 ||
			!(all || zklock_held_lost(held)))
			continue;
		if (lost == NULL || loss_rank(held) > loss_rank(lost))
			lost = held;
	}
	return lost;
}

/* ------------------------------------------------------------------------
 * How they end
 * ------------------------------------------------------------------------
 */

void
zklock_hold_end_pending(void)
{
	if (zklock_holds.pending >= 0)
	{
		int32 proclock = zklock_holds.pending;

		zklock_hold_set_pending(-1);
		zklock_proclock_end(proclock);
	}
	if (zklock_holds.pending_set >= 0)
	{
		int32 next = zklock_holds.pending_set;

		zklock_hold_set_pending_set(-1);
		zklock_set_withdraw();
		while (next >= 0)
		{
			int32 proclock = next;

			next = zklock_proclock(proclock)->set_next;
			zklock_proclock_end(proclock);
		}
	}
}

void
zklock_hold_end_transaction(int level)
{
	while (!dlist_is_empty(&zklock_holds.transaction))
	{
		ZkHold *hold =
			dlist_head_element(ZkHold, transaction_node, &zklock_holds.transaction);
		ZkHeldLock *held = hold->held;
		uint64 count = hold->count;

		if (hold->level < level)
			break;

		/*
		 * Beside a session-scope hold we drop level 1 ourselves, for
		 * LockHeldByMe to speak of session scope's alone.  Only at the end of the
		 * transaction: then its locks all belong to one resource owner.
		 */
		if (level == 1 && !slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
		{
			ResourceOwner save = CurrentResourceOwner;

			CurrentResourceOwner = TopTransactionResourceOwner;
			for (uint64 i = 0; i < count; i++)
				LockRelease(&held->tag, zklock_level1_mode(hold->mode), false);
			CurrentResourceOwner = save;
		}
		if (!slist_is_empty(&held->holds[ZKLOCK_SCOPE_SESSION]))
			look_at_all = true;
		end_hold(hold, count);
	}
	Assert(level > 1 || dlist_is_empty(&zklock_holds.transaction));
}

void
zklock_hold_refuse_prepare(void)
{
	ZkHold *hold = dlist_head_element(ZkHold, transaction_node, &zklock_holds.transaction);
	const ZkKind *kind = &zklock_kinds[hold->held->kind];

	if (kind->by_server)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot PREPARE a transaction that requires leadership"),
				 errdetail(
					 "Once prepared it could be committed when the leadership has passed on.")));
	else
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot PREPARE a transaction that holds a zklock %s in transaction scope",
						kind->thing),
				 errdetail("The %s could not be released when the prepared transaction ends.",
						   kind->thing),
				 errhint("Use session scope for locks around prepared transactions.")));
}

void
zklock_hold_abandon(void)
{
	held_iterator iterator;
	ZkHeldLock *held;

	if (!zklock_hold_any())
		return;
	held_start_iterate(held_locks, &iterator);
	while ((held = next_held(&iterator)) != NULL)
	{
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			if (held->proclock[mode] >= 0)
				zklock_proclock_abandon(held->proclock[mode]);
		}
	}
}

void
zklock_hold_pass_to_parent(int level)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &zklock_holds.transaction)
	{
		ZkHold *hold = dlist_container(ZkHold, transaction_node, iter.cur);
		ZkHold *parent;

		if (hold->level < level)
			break;
		/* deeper ones have ended, or were passed on */
		Assert(hold->level == level);
		parent = find_hold(hold->held, hold->mode, hold->scope, level - 1);
		if (parent == NULL)
			hold->level = level - 1;
		else
		{
			parent->count += hold->count;
			free_hold(hold);
		}
	}
}
