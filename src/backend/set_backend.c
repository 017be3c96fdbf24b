/*-------------------------------------------------------------------------
 *
 * set_backend.c
 *	  Acquires several locks in one step.
 *
 * The backend takes level 1 of one name after the other, in the same order for all
 * sets: by lock tag, since that is what waits, then by name.  When it has level 1 of
 * all names, it takes the grants of this server, if there is one for each name.  It has
 * waited for nobody on other servers by then.  Otherwise it states all wishes, posts
 * the set, and sleeps until the worker says that all are granted, or that one cannot be
 * acquired.
 *
 * A backend that asks the ensemble has level 1 in exclusive mode, even if it asks for
 * shared mode.  An older grant must go before the set, so nobody may hold it or come to
 * hold it.  When a shared set is granted, or all its grants were there, the backend has
 * level 1 in shared mode.
 *
 * Until everything is done nothing is a hold (hold.h).  The proclocks have what was
 * acquired so far.  If the wait is cut short, the backend first withdraws the set, and
 * then ends all proclocks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"

#include "acquire.h"
#include "callbacks.h"
#include "check.h"
#include "level2.h"
#include "limit.h"
#include "loss.h"
#include "names.h"
#include "proclock.h"
#include "room.h"
#include "set_backend.h"
#include "set_shared.h"
#include "settings.h"
#include "waiting.h"

/*
 * The ensemble closes the connection on a request of more than jute.maxbuffer, 1 MB by
 * default.  The same request writes this server's own node (ZKLOCK_MEMBER_MAX), and the
 * leader's form of the request is a little larger.
 */
#define LARGEST_REQUEST 900000

typedef struct Member
{
	const char *name;
	LOCKTAG tag;
	ZkHeldLock *held; /* what this backend has of the name, or is about to */
	bool again;		  /* it has it already */
	int32 proclock;	  /* else, or -1 */
	bool session;	  /* it, or level 1, has been taken in session scope */
} Member;

typedef struct Set
{
	ZkLockMode mode;
	ZkLockScope scope;
	LOCKMODE lockmode; /* of level 1 */
	ZkWait wait;
	uint64 number;
	int n;			/* names, each once */
	int fresh;		/* of which so many are not held yet */
	int nlevel1;	/* have level 1, of the fresh ones from the first on */
	int32 first;	/* proclock */
	bool cold;		/* the ensemble was asked */
	bool no_wait;	/* for others */
	Member *member; /* in the order of level 1 */
	ZkWaiting *waiting;
} Set;

/* ------------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------------
 */

static int
compare_members(const void *a, const void *b)
{
	const Member *x = a;
	const Member *y = b;
	int order = memcmp(&x->tag, &y->tag, sizeof(LOCKTAG));

	return order != 0 ? order : strcmp(x->name, y->name);
}

/* Sort the names, each once. */
static void
sort_names(Set *set, char *const *names, int n)
{
	set->member = palloc0(sizeof(Member) * (Size) Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		set->member[i].name = names[i];
		set->member[i].proclock = -1;
		zklock_level1_tag(&set->member[i].tag, ZKLOCK_KIND_LOCK, names[i], 0);
	}
	qsort(set->member, (size_t) n, sizeof(Member), compare_members);
	for (int i = 0; i < n; i++)
	{
		if (set->n == 0 || strcmp(set->member[set->n - 1].name, set->member[i].name) != 0)
			set->member[set->n++] = set->member[i];
	}
}

/* Find what this backend already holds of the names. */
static void
find_held(Set *set)
{
	for (int i = 0; i < set->n; i++)
	{
		Member *m = &set->member[i];

		m->held = zklock_find_sound(ZKLOCK_KIND_LOCK, m->name);
		if (m->held == NULL)
		{
			set->fresh++;
			continue;
		}
		m->again = true;
		if (set->mode == ZKLOCK_EXCLUSIVE && zklock_held_mode(m->held) == ZKLOCK_SHARED)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot acquire lock \"%s\" in exclusive mode together with others",
							zklock_display_name(m->name)),
					 errdetail("This session holds it in shared mode."),
					 errhint(
						 "Acquire it in exclusive mode on its own, or release it before.")));
		if (zklock_loss_settle(m->held))
			zklock_loss_raise(m->held);
	}
}

/* The size in bytes of the request that asks for all names and deletes the kept grants
 * of them. */
static int64
request_size(const Set *set)
{
	StringInfoData data;
	ZkSessionShared session;
	int64 size = 0;

	zklock_describe_server(&data, MyProcPid);
	zklock_session_read(&session);
	for (int i = 0; i < set->n; i++)
	{
		char encoded[ZKLOCK_ENCODED_MAX + 1];
		int64 path;

		if (set->member[i].again)
			continue;
		path = (int64) strlen(session.root) + (int64) strlen("/locks/") +
			(int64) zklock_encode_name(set->member[i].name, encoded) + 1 +
			ZKLOCK_CONTENDER_LEN + 16;
		/* headers, lengths, flags and an ACL; a delete in either mode */
		size += 64 + path + data.len + 2 * (24 + path);
	}
	pfree(data.data);
	return size;
}

static void
check_limits(const Set *set)
{
	int64 size;

	zklock_limit_check(ZKLOCK_LIMIT_LOCKS, zklock_held_names(), set->fresh);
	if (set->fresh > zklock_shared->nentries)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot acquire %d locks in one step", set->fresh),
				 errdetail("The lock table has room for %d names.", zklock_shared->nentries),
				 errhint("Acquire fewer of them, or increase \"zklock.max_locks\".")));
	size = request_size(set);
	if (size > LARGEST_REQUEST)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot acquire %d locks in one step", set->fresh),
				 errdetail("The request would have %lld bytes, and ZooKeeper accepts %d.",
						   (long long) size, LARGEST_REQUEST),
				 errhint("Acquire fewer of them.")));
}

/* ------------------------------------------------------------------------
 * Proclocks
 * ------------------------------------------------------------------------
 */

/* End all proclocks, with the set withdrawn. */
static void
end_proclocks(Set *set, ZkProcLockEnd end)
{
	zklock_hold_set_pending_set(-1);
	zklock_set_withdraw();
	for (int i = 0; i < set->n; i++)
	{
		Member *m = &set->member[i];

		if (m->again || m->held == NULL)
			continue;
		if (m->proclock >= 0)
		{
			zklock_proclock(m->proclock)->end = (uint8) end;
			zklock_proclock_end(m->proclock);
			m->proclock = -1;
		}
		zklock_held_forget(m->held);
		m->held = NULL;
	}
	set->first = -1;
}

/* Make all proclocks.  False: there is no room for all of them. */
static bool
make_proclocks(Set *set, bool no_wait, int32 *why)
{
	for (int i = set->n - 1; i >= 0; i--)
	{
		Member *m = &set->member[i];

		if (m->again)
			continue;
		m->held = zklock_hold_reserve(ZKLOCK_KIND_LOCK, m->name);
		*why = zklock_proclock_make_part(m->name, set->mode, set->scope, no_wait,
										 set->number);
		if (*why < 0)
			return false;
		m->proclock = *why;
		zklock_proclock(m->proclock)->set_next = set->first;
		set->first = m->proclock;
		zklock_hold_set_pending_set(set->first);
	}
	return true;
}

static ZkRoom
try_proclocks(void *arg)
{
	Set *set = arg;
	int32 why;

	zklock_callbacks_begin();
	if (make_proclocks(set, set->no_wait, &why))
		return ZKLOCK_ROOM_FOUND;
	end_proclocks(set, ZKLOCK_PROCLOCK_END_FAILED);
	return why == ZKLOCK_NO_PROCLOCK ? ZKLOCK_ROOM_NONE : ZKLOCK_ROOM_AWAITED;
}

/* Make the proclocks.  If the table is full of names that are kept for nobody, wait
 * until the worker has given some up, with nothing in hand. */
static void
get_proclocks(Set *set, int64 wait_ms)
{
	int i = 0;

	while (set->member[i].again)
		i++;
	set->no_wait = wait_ms == 0;
	zklock_room_wait(ZKLOCK_KIND_LOCK, set->member[i].name, &set->wait, wait_ms,
					 try_proclocks, set);
}

/* Set the proclock with which the backend waits, for processes that want to know. */
static void
set_waiting(Set *set, int32 proclock)
{
	zklock_hold_set_waiting(proclock);
	set->waiting->proclock = proclock;
}

/* ------------------------------------------------------------------------
 * Level 1
 * ------------------------------------------------------------------------
 */

static void
release_level1(Set *set)
{
	for (int i = 0, n = set->nlevel1; n > 0; i++)
	{
		if (set->member[i].again)
			continue;
		zklock_level1_release(&set->member[i].tag, set->lockmode);
		n--;
	}
	set->nlevel1 = 0;
}

static bool
acquire_level1(Set *set, LOCKMODE lockmode)
{
	set->lockmode = lockmode;
	for (int i = 0; i < set->n; i++)
	{
		const Member *m = &set->member[i];

		if (m->again)
			continue;
		set_waiting(set, m->proclock);
		if (!zklock_level1_acquire(&m->tag, lockmode, &set->wait))
		{
			release_level1(set);
			return false;
		}
		set->nlevel1++;
	}
	return true;
}

/* Change level 1 to shared mode.  This waits for nobody: the backend's own lock keeps
 * all others out. */
static void
weaken_level1(Set *set)
{
	LOCKMODE lockmode = zklock_level1_mode(set->mode);

	if (set->lockmode == lockmode)
		return;
	for (int i = 0; i < set->n; i++)
	{
		if (set->member[i].again)
			continue;
		zklock_level1_again(&set->member[i].tag, lockmode);
		zklock_level1_release(&set->member[i].tag, set->lockmode);
	}
	set->lockmode = lockmode;
}

/* Take level 1 in the scope that was asked for. */
static void
fix_level1(Set *set)
{
	for (int i = 0; i < set->n && set->scope == ZKLOCK_SCOPE_SESSION; i++)
	{
		Member *m = &set->member[i];

		if (m->again)
			continue;
		(void) LockAcquire(&m->tag, set->lockmode, true, false);
		m->session = true;
	}
	if (set->scope == ZKLOCK_SCOPE_SESSION)
		release_level1(set);
}

/* Give back level 1 in session scope: an error takes back only what is the
 * transaction's. */
static void
give_back_session_scope(Set *set)
{
	for (int i = 0; i < set->n; i++)
	{
		Member *m = &set->member[i];

		if (m->session && m->again)
			(void) zklock_hold_end_session_scope(m->held, false);
		else if (m->session)
			(void) LockRelease(&m->tag, set->lockmode, true);
		m->session = false;
	}
}

/* ------------------------------------------------------------------------
 * Level 2
 * ------------------------------------------------------------------------
 */

/* Take a hold on all grants, or on none.  "token": the token that they must have; 0:
 * any. */
static bool
join_all(const Set *set, int64 token)
{
	for (int i = set->first; i >= 0; i = zklock_proclock(i)->set_next)
	{
		if (zklock_proclock_join(i, token))
			continue;
		for (int k = set->first; k != i; k = zklock_proclock(k)->set_next)
			zklock_proclock_leave(k, token != 0);
		return false;
	}
	return true;
}

/* Does another contender have the lock, according to the newest listing? */
static bool
is_blocked(const ZkLockQueue *queue, const ZkProcLock *proclock)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS && !proclock->no_wait; i++)
	{
		if (queue->contender[i].state == ZKLOCK_WAITING &&
			queue->contender[i].set == proclock->set)
			return true;
	}
	return proclock->blocked;
}

/* Read the states of the proclocks, one after the other.  Returns one that has failed,
 * or -1. */
static int32
look(const Set *set, ZkLevel2Sight *sight)
{
	int32 failed = -1;

	sight->proclock = -1;
	for (int i = set->first; i >= 0; i = zklock_proclock(i)->set_next)
	{
		const ZkProcLock *proclock = zklock_proclock(i);
		ZkLockEntry *entry = zklock_entry(proclock->entry);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED); /* our proclock pins it */

		if (proclock->failed && failed < 0)
			failed = i;
		if (!entry->grant[proclock->mode].usable && sight->proclock < 0)
			sight->proclock = i;
		sight->blocked |= is_blocked(&entry->queue, proclock);
		sight->conflict |= zklock_proclock_conflicts(i);
		zklock_entry_unlock(lock);
	}
	return failed;
}

typedef struct Level2
{
	ZkLevel2Wait wait;
	Set *set;
	bool acquired;
} Level2;

static bool
look_at_level2(ZkWaiter *waiter, int64 now)
{
	Level2 *l = waiter->arg;
	Set *set = l->set;
	int64 token = zklock_set_token(false);
	ZkLevel2Sight sight = {.granted = token != 0, .first = set->first};
	int32 failed;

	l->acquired = token != 0 && join_all(set, token);
	if (l->acquired)
		return true;
	if (token != 0 && zklock_lease_valid())
		(void) zklock_set_token(true);
	failed = look(set, &sight);
	if (sight.proclock >= 0)
		set_waiting(set, sight.proclock);
	else
		sight.proclock = set->first;
	if (failed >= 0)
		zklock_acquire_raise(zklock_held_find(ZKLOCK_KIND_LOCK,
											  zklock_entry(zklock_proclock(failed)->entry)
												  ->name),
							 failed);
	zklock_level2_sees(&l->wait, now, &sight);
	return false;
}

/*
 * Ask the ensemble for all locks.  False: another session has one, and the time is up.
 */
static bool
acquire_level2(Set *set)
{
	Level2 l = {.set = set};

	set->cold = true;
	zklock_level2_begin(&l.wait, &set->wait, zklock_set_cv(), look_at_level2, &l);
	for (int i = set->first; i >= 0; i = zklock_proclock(i)->set_next)
		zklock_proclock_wish(i);
	zklock_set_post(set->number, set->first, set->mode);
	(void) zklock_wait_for(&l.wait.waiter);
	if (l.acquired)
		zklock_level2_end(&l.wait, set->first);
	return l.acquired;
}

/* ------------------------------------------------------------------------
 * Both
 * ------------------------------------------------------------------------
 */

/* Take the grants that are there, or ask the ensemble. */
static bool
acquire_fresh(Set *set)
{
	if (!acquire_level1(set, zklock_level1_mode(set->mode)))
		return false;
	if (join_all(set, 0))
		return true;
	if (set->lockmode != ExclusiveLock)
	{
		release_level1(set);
		if (!acquire_level1(set, ExclusiveLock))
			return false;
	}
	if (!acquire_level2(set))
	{
		release_level1(set);
		return false;
	}
	weaken_level1(set);
	return true;
}

/* Acquire once more the locks that this backend had already. */
static void
acquire_again(Set *set)
{
	for (int i = 0; i < set->n; i++)
	{
		Member *m = &set->member[i];

		if (!m->again)
			continue;
		if (zklock_held_lost(m->held))
			zklock_loss_raise(m->held);
		zklock_acquire_again(m->held, zklock_held_mode(m->held), set->scope);
		m->session = set->scope == ZKLOCK_SCOPE_SESSION;
	}
}

/* Everything is acquired, but no hold exists yet.  From here on nothing fails. */
static void
add_holds(Set *set)
{
	zklock_hold_set_pending_set(-1);
	zklock_set_withdraw();
	for (int i = 0; i < set->n; i++)
	{
		Member *m = &set->member[i];
		ZkLockEntry *entry;
		LWLock *lock;

		if (m->again)
			continue;
		entry = zklock_entry(zklock_proclock(m->proclock)->entry);
		lock = zklock_entry_lock(entry, LW_SHARED);
		m->held->token[set->mode] = entry->grant[set->mode].token;
		zklock_entry_unlock(lock);
		zklock_proclock_count(m->proclock, set->cold);
		m->held->proclock[set->mode] = m->proclock;
		zklock_hold_add(m->held, set->mode, set->scope);
	}
}

static int64
find_token(const Set *set, const char *name)
{
	Member key = {.name = name};
	const Member *m;

	zklock_level1_tag(&key.tag, ZKLOCK_KIND_LOCK, name, 0);
	m = bsearch(&key, set->member, (size_t) set->n, sizeof(Member), compare_members);
	return m->held->token[zklock_held_mode(m->held)];
}

bool
zklock_set_acquire(char *const *names, int n, ZkLockMode mode, ZkLockScope scope,
				   int64 wait_ms, int64 *token)
{
	Set *set = palloc0(sizeof(Set));
	ZkWaiting waiting;
	volatile bool acquired = true;

	Assert(!zklock_hold_pending());
	zklock_check_callable();
	zklock_hold_end_void();

	set->mode = mode;
	set->scope = scope;
	set->first = -1;
	set->waiting = &waiting;
	sort_names(set, names, n);
	find_held(set);
	check_limits(set);
	zklock_wait_begin(&set->wait, wait_ms);
	zklock_introduce();
	set->number = zklock_set_number();

	PG_TRY();
	{
		if (set->fresh > 0)
		{
			get_proclocks(set, wait_ms);
			zklock_waiting_begin(&waiting, set->first);
			acquired = acquire_fresh(set);
			zklock_waiting_end(&waiting);
		}
		if (acquired)
		{
			fix_level1(set);
			acquire_again(set);
			zklock_hold_reserve_room(set->fresh);
		}
	}
	PG_CATCH();
	{
		end_proclocks(set, zklock_error_end(geterrcode()));
		give_back_session_scope(set);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (!acquired)
	{
		end_proclocks(set, ZKLOCK_PROCLOCK_END_TIMEOUT);
		return false;
	}
	add_holds(set);
	for (int i = 0; i < n; i++)
		token[i] = find_token(set, names[i]);
	return true;
}
