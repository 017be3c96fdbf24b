/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Acquires a lock at both levels.
 *
 * Level 1 is a heavyweight lock on the name.  For it, PostgreSQL's lock manager gives
 * order, deadlock detection, timeouts and pg_locks among the backends of this server.
 * A backend that has level 1 looks at the name's entry in the lock table.  If there is
 * a usable grant, it joins that at once.  Otherwise it states a wish, wakes the worker,
 * and sleeps until the worker says granted or failed.  Level 1 lets through one
 * exclusive waiter or a group of shared waiters, so no others ever wait at level 2 for
 * a name.
 *
 * A grant and a cancellation can meet.  Both change the entry under its lock, and the
 * second one sees the result of the first.  A backend that leaves withdraws its wish,
 * whatever has happened to it (zklock_proclock_end).
 *
 * Each wait can end by an error, and then the backend gives back everything that it has
 * by then.  The wait for room in the table begins with nothing.  The waits at both
 * levels are in the PG_TRY of zklock_acquire.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "acquire.h"
#include "callbacks.h"
#include "check.h"
#include "hold.h"
#include "level1.h"
#include "level2.h"
#include "limit.h"
#include "loss.h"
#include "names.h"
#include "proclock.h"
#include "room.h"
#include "settings.h"
#include "waiting.h"

/* ms until a backend asks again that was told of a deadlock which does not concern it */
#define ASK_AGAIN_MS 50

/* ------------------------------------------------------------------------
 * Level 2
 * ------------------------------------------------------------------------
 */

void
zklock_acquire_raise(const ZkHeldLock *held, int32 index)
{
	const ZkProcLock *proclock = zklock_proclock(index);
	int rc = proclock->failure_rc;
	const char *what = zklock_kinds[held->kind].name;
	const char *display = zklock_display_name(held->name);

	switch ((ZkLockFailure) proclock->failure)
	{
		case ZKLOCK_FAIL_RING:
			zklock_deadlock_raise(index);
		case ZKLOCK_FAIL_DEADLOCK:
			ereport(ERROR,
					(errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
					 errdetail("This transaction holds lock \"%s\" in shared mode and asks for it in exclusive mode; another server's exclusive contender stands before it in the queue and waits for this transaction.",
							   display),
					 errhint(
						 "Acquire a lock in exclusive mode to begin with if it may be needed.")));
			break;
		case ZKLOCK_FAIL_SEQUENCE:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("sequence numbers of %s \"%s\" are used up", what, display),
					 errdetail(
						 "ZooKeeper numbers the contenders in a directory with 31 bits."),
					 zklock_kinds[held->kind].record
						 ? errhint("Delete the directory while nobody uses the job, and create it again with the same data; ZooKeeper then starts again at 0.")
						 : errhint("Delete the directory while nobody uses the %s; ZooKeeper then starts again at 0.",
								   what)));
			break;
		case ZKLOCK_FAIL_NUMBER:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("queue of %s \"%s\" has a contender whose sequence number was never given",
							what, display),
					 errdetail(
						 "It was created without the sequence flag, so its number does not say whether it was there before ours."),
					 zklock_kinds[held->kind].record
						 ? errhint("Delete it from the job's directory in ZooKeeper, or let the program that made it use sequential znodes.")
						 : errhint("Find it with zk_contenders(%s) and remove it with zk_break(%s, token), or let the program that made it use sequential znodes.",
								   quote_literal_cstr(display),
								   quote_literal_cstr(display))));
			break;
		case ZKLOCK_FAIL_NO_DIRECTORY:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("could not create the directory of %s \"%s\" in ZooKeeper",
							what, display),
					 errhint(
						 "Check the permissions of \"zklock.root\". If \"zklock.hosts\" ends in a chroot path, that path must exist.")));
			break;
		case ZKLOCK_FAIL_REFUSED:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("ZooKeeper refused the request for %s \"%s\": %s", what,
							display, rc != 0 ? zklock_rc_text(rc) : "reason unknown"),
					 zklock_refusal_hint(rc)));
			break;
	}
	pg_unreachable();
}

/* Does another contender have the lock, according to the newest listing? */
static bool
is_blocked(const ZkLockQueue *queue, const ZkProcLock *proclock)
{
	/* one that would not wait is told by the worker, who looks anew for it */
	if (proclock->blocked || proclock->no_wait)
		return proclock->blocked;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state == ZKLOCK_WAITING &&
			queue->contender[i].mode == proclock->mode)
			return true;
	}
	return false;
}

typedef struct Level2
{
	ZkLevel2Wait wait;
	ZkHeldLock *held;
	int32 index; /* proclock */
	int64 *token;
	bool acquired;
} Level2;

/* Take the grant if there is one; else tell what was seen, and with "wish" state the
 * wish. */
static bool
try_level2(Level2 *l, bool wish, bool *failed, ZkLevel2Sight *sight)
{
	const ZkProcLock *proclock = zklock_proclock(l->index);
	ZkLockEntry *entry = zklock_entry(proclock->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_EXCLUSIVE); /* our proclock pins it */

	*failed = proclock->failed;
	l->acquired = zklock_proclock_take(l->index, wish);
	*l->token = entry->grant[proclock->mode].token;
	if (!l->acquired) /* a look at all who wait here */
	{
		sight->blocked = is_blocked(&entry->queue, proclock);
		sight->conflict = zklock_proclock_conflicts(l->index);
		sight->granted = zklock_proclock_finds_grant(l->index) && !sight->conflict;
	}
	zklock_entry_unlock(lock);
	return l->acquired;
}

/* The shared hold in the way is not this backend's: its backend has lost level 1 and
 * not noticed it yet.  Ask again in a moment. */
static void
ask_again(Level2 *l, int64 now)
{
	ZkProcLock *proclock = zklock_proclock(l->index);
	LWLock *lock = zklock_entry_lock(zklock_entry(proclock->entry), LW_EXCLUSIVE);

	proclock->failed = false;
	proclock->state = ZKLOCK_PROCLOCK_LOCAL;
	zklock_entry_unlock(lock);
	l->wait.waiter.granted = false;
	l->wait.waiter.end = ZKLOCK_WAIT_GOES_ON;
	l->wait.waiter.wake = now + ASK_AGAIN_MS * NS_PER_MS;
}

static bool
look_at_level2(ZkWaiter *waiter, int64 now)
{
	Level2 *l = waiter->arg;
	ZkLevel2Sight sight = {.proclock = l->index, .first = l->index};
	bool failed;

	if (try_level2(l, true, &failed, &sight))
		return true;
	if (failed && zklock_proclock(l->index)->failure == ZKLOCK_FAIL_DEADLOCK)
	{
		if (now >= waiter->limits->until)
			return true; /* we were not to wait */
		if (l->held->proclock[ZKLOCK_SHARED] < 0)
		{
			ask_again(l, now);
			return false;
		}
	}
	if (failed)
		zklock_acquire_raise(l->held, l->index);
	zklock_level2_sees(&l->wait, now, &sight);
	return false;
}

static bool
acquire_level2(ZkHeldLock *held, int32 index, const ZkWait *wait, int64 *token)
{
	Level2 l = {.held = held, .index = index, .token = token};
	ZkLockEntry *entry = zklock_entry(zklock_proclock(index)->entry);
	ZkLevel2Sight sight;
	bool failed;

	Assert(zklock_lock_held_by_me(&held->tag,
								  zklock_level1_mode(
									  (ZkLockMode) zklock_proclock(index)->mode)));
	if (!try_level2(&l, false, &failed, &sight))
	{
		zklock_level2_begin(&l.wait, wait, &entry->cv, look_at_level2, &l);
		(void) zklock_wait_for(&l.wait.waiter);
		if (l.acquired)
			zklock_level2_end(&l.wait, index);
	}
	Assert(!l.acquired || *token > 0);
	return l.acquired;
}

/* ------------------------------------------------------------------------
 * Both
 * ------------------------------------------------------------------------
 */

/* Copy a text of the database in UTF-8, cut off at a character. */
static void
put_name(char *buf, const char *text)
{
	text = text != NULL ? zklock_bytes_to_utf8(text) : "";
	if (strlcpy(buf, text, NAMEDATALEN) >= NAMEDATALEN)
		buf[zklock_clip_utf8(buf, NAMEDATALEN - 1)] = '\0';
}

/* Say who this backend is, before its first proclock.  This is for processes that want
 * to know whose a lock is and cannot read catalogs, above all for the worker. */
void
zklock_introduce(void)
{
	static bool introduced = false;
	ZkProc *proc;
	const char *database;
	const char *user;

	if (introduced)
		return;
	proc = zklock_proc(ZKLOCK_MY_PROC_NUMBER);
	database = get_database_name(MyDatabaseId);
	user = GetUserNameFromId(MyProc->roleId, true);
	proc->pid = 0;
	put_name(proc->database, database);
	put_name(proc->user, user);
	proc->pid = MyProcPid;
	introduced = true;
}

/* The arguments for making a proclock where there is room. */
typedef struct Making
{
	ZkLockKind kind;
	const char *name;
	int permits;
	ZkLockMode mode;
	ZkLockScope scope;
	bool no_wait;
	ZkHeldLock *held;
	int32 proclock;
} Making;

static ZkRoom
try_to_make(void *arg)
{
	Making *m = arg;

	zklock_callbacks_begin();
	m->held = zklock_hold_reserve(m->kind, m->name);
	m->proclock =
		zklock_proclock_make(m->kind, m->name, m->permits, m->mode, m->scope, m->no_wait);
	if (m->proclock >= 0)
		return ZKLOCK_ROOM_FOUND;
	/* the wait may end by an error: a name that stays reserved looks held */
	zklock_held_forget(m->held);
	return m->proclock == ZKLOCK_NO_ENTRY ? ZKLOCK_ROOM_AWAITED : ZKLOCK_ROOM_NONE;
}

/* Reserve a hold and make a proclock.  If the table is full of names that are kept for
 * nobody, wait until the worker has given some up. */
static void
make_proclock(Making *m, int64 wait_ms, const ZkWait *wait)
{
	zklock_introduce();
	m->no_wait = wait_ms == 0;
	zklock_room_wait(m->kind, m->name, wait, wait_ms, try_to_make, m);
}

/* A hold of this backend covers the call: count the call in the mode that is held. */
void
zklock_acquire_again(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope)
{
	LOCKMODE lockmode = zklock_level1_mode(mode);

	Assert(held->proclock[mode] >= 0 && held->count[mode] > 0);
	zklock_callbacks_begin();
	(void) zklock_hold_reserve((ZkLockKind) held->kind, held->name);
	if (scope == ZKLOCK_SCOPE_SESSION)
	{
		zklock_hold_end_hidden_void(held, mode);
		(void) LockAcquire(&held->tag, lockmode, true, false);
	}
	else
		zklock_level1_again(&held->tag, lockmode);
	zklock_hold_add(held, mode, scope);
	zklock_proclock(held->proclock[mode])->again++;
}

/* The kind of end of a wait, for statistics. */
ZkProcLockEnd
zklock_error_end(int sqlstate)
{
	if (sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
		return ZKLOCK_PROCLOCK_END_TIMEOUT;
	if (sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
		return ZKLOCK_PROCLOCK_END_DEADLOCK;
	return sqlstate == ERRCODE_QUERY_CANCELED ? ZKLOCK_PROCLOCK_END_CANCELED
											  : ZKLOCK_PROCLOCK_END_FAILED;
}

ZkHeldLock *
zklock_find_sound(ZkLockKind kind, const char *name)
{
	ZkHeldLock *held = zklock_held_find(kind, name);

	if (held == NULL || !(zklock_held_lost(held) || zklock_lease_lost()))
		return held;
	if (held->transaction_count > 0)
		zklock_loss_raise(held);
	zklock_loss_tell(held);
	(void) zklock_hold_end_session_scope(held, true); /* acknowledged */
	return NULL;
}

/*
 * The common case: level 1 is free, and there is a grant to join.  A backend that waits
 * has a proclock first, so that others can see it; here nobody waits.  Returns a
 * proclock, with level 1 held.  *token is the grant's token, or 0 if level 2 is still
 * to be acquired.  ZKLOCK_NO_PROCLOCK: nothing was acquired.
 *
 * After an error, level 1 is released at the end of the transaction, which the error
 * causes.
 */
static int32
acquire_at_once(const char *name, ZkLockMode mode, ZkLockScope scope, bool no_wait,
				ZkHeldLock **held, int64 *token)
{
	int32 proclock;

	zklock_introduce();
	zklock_callbacks_begin();
	if (!zklock_level1_try(zklock_hold_tag(ZKLOCK_KIND_LOCK, name),
						   zklock_level1_mode(mode)))
		return ZKLOCK_NO_PROCLOCK;
	*held = zklock_hold_reserve_tagged();
	proclock = zklock_proclock_make_held(name, (*held)->hash, mode, scope, no_wait, token);
	if (proclock >= 0)
		return proclock;
	/* the wait for room begins with nothing in hand */
	zklock_level1_release(&(*held)->tag, zklock_level1_mode(mode));
	zklock_held_forget(*held);
	return ZKLOCK_NO_PROCLOCK;
}

/* Acquire the missing levels, with a proclock in hand.  After a failure, everything is
 * given back. */
static bool
acquire_patiently(ZkHeldLock *held, int32 proclock, bool level1, const ZkWait *wait,
				  int64 *token)
{
	LOCKMODE lockmode = zklock_level1_mode((ZkLockMode) zklock_proclock(proclock)->mode);
	bool session = zklock_proclock(proclock)->scope == ZKLOCK_SCOPE_SESSION;
	bool had_level1 = level1;
	volatile bool level1_acquired = level1;
	volatile bool acquired = *token != 0;
	ZkWaiting waiting;

	zklock_hold_set_pending(proclock);
	PG_TRY();
	{
		zklock_waiting_begin(&waiting, proclock);
		if (!had_level1)
			level1_acquired = zklock_level1_acquire(&held->tag, lockmode, wait);
		if (level1_acquired && !acquired)
			acquired = acquire_level2(held, proclock, wait, token);
		zklock_waiting_end(&waiting);

		/*
		 * Session scope was transaction scope so far, so that an error on the
		 * way leaves nothing.  Session scope of level 1 is a local count now.
		 */
		if (acquired && session)
		{
			(void) LockAcquire(&held->tag, lockmode, true, false);
			zklock_level1_release(&held->tag, lockmode);
		}
	}
	PG_CATCH();
	{
		zklock_hold_set_pending(-1);
		zklock_proclock(proclock)->end = zklock_error_end(geterrcode());
		zklock_proclock_end(proclock);
		zklock_held_forget(held);
		PG_RE_THROW();
	}
	PG_END_TRY();

	zklock_hold_set_pending(-1);
	if (!acquired)
	{
		if (wait->until > wait->start)
			zklock_waiting_note(proclock);
		zklock_proclock(proclock)->end = ZKLOCK_PROCLOCK_END_TIMEOUT;
		zklock_proclock_end(proclock);
		if (level1_acquired)
			zklock_level1_release(&held->tag, lockmode);
		zklock_held_forget(held);
	}
	return acquired;
}

/* Acquire a name of which this backend has nothing in this mode.  "permits": as in
 * acquire. */
static bool
acquire_anew(ZkHeldLock *reader, ZkLockKind kind, const char *name, int permits,
			 ZkLockMode mode, ZkLockScope scope, int64 wait_ms, int64 *token)
{
	/* a name that is in use is so again, as a rule: whoever had to wait does not try */
	static bool waited = false;
	ZkHeldLock *held = NULL;
	int32 proclock = ZKLOCK_NO_PROCLOCK;
	bool level1;
	ZkWait wait;

	*token = 0;
	if (kind == ZKLOCK_KIND_LOCK && reader == NULL && !waited)
		proclock = acquire_at_once(name, mode, scope, wait_ms == 0, &held, token);
	level1 = proclock >= 0;
	waited = false;
	if (*token == 0 || scope == ZKLOCK_SCOPE_SESSION)
	{
		zklock_wait_begin(&wait, wait_ms);
		if (!level1)
		{
			Making making = {
				.kind = kind,
				.name = name,
				.permits = permits,
				.mode = mode,
				.scope = scope,
			};

			make_proclock(&making, wait_ms, &wait);
			held = making.held;
			proclock = making.proclock;
		}
		if (!acquire_patiently(held, proclock, level1, &wait, token))
			return false;
		waited = zklock_proclock(proclock)->waited;
	}
	held->proclock[mode] = proclock;
	held->token[mode] = *token;
	held->permits = permits;
	held->number = 0;
	zklock_hold_add(held, mode, scope);
	return true;
}

/* Acquire a name.  "permits": the number of permits of a semaphore, else 0. */
static bool
acquire(ZkLockKind kind, const char *name, int permits, ZkLockMode mode,
		ZkLockScope scope, int64 wait_ms, int64 *token)
{
	ZkHeldLock *held;

	Assert(!zklock_hold_pending());
	zklock_check_callable();
	zklock_hold_end_void();

	held = zklock_held_names() > 0 ? zklock_find_sound(kind, name) : NULL;
	if (held != NULL && (held->proclock[ZKLOCK_EXCLUSIVE] >= 0 || mode == ZKLOCK_SHARED))
	{
		ZkLockMode covering = zklock_held_mode(held);

		if (zklock_loss_settle(held))
			zklock_loss_raise(held);
		if (permits < held->permits)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot acquire one of %d permits of semaphore \"%s\"",
							permits, zklock_display_name(name)),
					 errdetail("This session has one of %d, and so may others.",
							   held->permits),
					 errhint("Release it before, or ask for one of %d.", held->permits)));
		zklock_acquire_again(held, covering, scope);
		if (covering != mode && scope == ZKLOCK_SCOPE_SESSION)
			zklock_hold_note_within(held);
		*token = held->token[covering];
		return true;
	}
	/* each limit has room for one */
	if (held == NULL && zklock_held_names() > 0)
		zklock_limit_check(ZKLOCK_LIMIT_LOCKS, zklock_held_names(), 1);
	return acquire_anew(held, kind, name, permits, mode, scope, wait_ms, token);
}

bool
zklock_acquire(ZkLockKind kind, const char *name, ZkLockMode mode, ZkLockScope scope,
			   int64 wait_ms, int64 *token)
{
	return acquire(kind, name, 0, mode, scope, wait_ms, token);
}

/* Another number of permits than this session's, which a contender had in the latest
 * listing of the queue; 0: there is none. */
static int
find_other_number(const ZkHeldLock *held)
{
	ZkLockEntry *entry =
		zklock_entry(zklock_proclock(held->proclock[ZKLOCK_EXCLUSIVE])->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_SHARED); /* our proclock pins it */
	int other = entry->queue.other_permits;

	zklock_entry_unlock(lock);
	return other;
}

bool
zklock_semaphore_acquire(const char *name, int permits, ZkLockScope scope, int64 wait_ms,
						 int64 *token)
{
	ZkHeldLock *held;
	int other;

	if (!acquire(ZKLOCK_KIND_SEMAPHORE, name, permits, ZKLOCK_EXCLUSIVE, scope, wait_ms,
				 token))
		return false;
	held = zklock_held_find(ZKLOCK_KIND_SEMAPHORE, name);
	if (held->permits != permits)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("this session has one of %d permits of semaphore \"%s\" already, not of %d",
						held->permits, zklock_display_name(name), permits)));
	else if (held->count[ZKLOCK_EXCLUSIVE] == 1 && (other = find_other_number(held)) != 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("another session asks for one of %d permits of semaphore \"%s\", not of %d",
						other, zklock_display_name(name), permits),
				 errdetail("The smallest number among the sessions that came before counts."),
				 errhint("zk_contenders(%s) shows the sessions.",
						 quote_literal_cstr(zklock_display_name(name)))));
	return true;
}
