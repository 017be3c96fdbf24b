/*-------------------------------------------------------------------------
 *
 * hold.h
 *	  The locks that this backend holds, and how they end.
 *
 * Local to the backend.  A hold has a mode and a scope and is counted; all
 * holds of one name in one mode share one proclock in the lock table.
 *
 * A transaction that requires leadership in an election (election_backend.c) holds that
 * like an exclusive lock in transaction scope, but shares it with every other
 * backend of the server, so that there is no level 1.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLD_H
#define ZKLOCK_HOLD_H

#include "lib/ilist.h"
#include "storage/lock.h"

#include "table.h"

typedef struct ZkHeldLock
{
	char name[ZKLOCK_NAME_MAX + 1]; /* UTF-8 */
	uint8 kind;						/* ZkLockKind */
	uint32 hash;					/* the name's, in the lock table */
	LOCKTAG tag;					/* level 1; not of an election */
	int32 proclock[ZKLOCK_NMODES];	/* -1: not held in this mode */
	int64 token[ZKLOCK_NMODES];
	uint64 count[ZKLOCK_NMODES];	  /* of holds, both scopes */
	uint64 transaction_count;		  /* of holds in transaction scope, both modes */
	bool told;						  /* an error or a warning has named its loss */
	TimestampTz unproven_since;		  /* told of by the clock alone; else 0 */
	bool begun;						  /* a job: zk_run_end is to come */
	int permits;					  /* of a permit: how many there are */
	int number;						  /* ... and which it is; 0: nobody has asked */
	slist_head holds[ZKLOCK_NSCOPES]; /* ZkHold, newest first */
} ZkHeldLock;

typedef struct ZkHold ZkHold;

/* What there is; for the functions here, which every statement and transaction calls. */
typedef struct ZkHolds
{
	dlist_head transaction; /* ZkHold, in that scope; the newest first */
	int session_scope;		/* how many */
	int32 pending;			/* zklock_hold_set_pending */
	int32 pending_set;		/* zklock_hold_set_pending_set */
} ZkHolds;

extern ZkHolds zklock_holds;

/* User advisory locks are class 1 and 2, Citus uses 4 to 15. */
#define ZKLOCK_LEVEL1_CLASS 31339

/*
 * Level 1's name for "name".  A permit's is the backend's own, for which nobody waits: it
 * makes the hold end with what takes advisory locks away, as a lock's does.  People come
 * back from it to the name by a query in ../../doc/locks.md.
 */
extern void zklock_level1_tag(LOCKTAG *tag, ZkLockKind kind, const char *name, int pid);

/* Level 1's mode for "mode". */
extern LOCKMODE zklock_level1_mode(ZkLockMode mode);

/* What this backend holds of "name", or NULL. */
extern ZkHeldLock *zklock_held_find(ZkLockKind kind, const char *name);

/*
 * Reserve all memory that a new hold of "name" needs; zklock_callbacks_begin was called
 * before.  May throw out-of-memory.  zklock_hold_add uses the reserved hold up; it does
 * not throw.
 */
extern ZkHeldLock *zklock_hold_reserve(ZkLockKind kind, const char *name);

/*
 * Level 1's lock tag for a name that is to be reserved next (zklock_hold_reserve_tagged,
 * which does not look at the name again).  It is good until then.  The tag of the name
 * that this backend held last is remembered.  May throw out-of-memory, and then reserves
 * nothing.
 */
extern const LOCKTAG *zklock_hold_tag(ZkLockKind kind, const char *name);
extern ZkHeldLock *zklock_hold_reserve_tagged(void);
extern void zklock_hold_reserve_room(int n); /* for so many holds, no more */
extern void zklock_hold_add(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope);

/* Forget a name that was reserved in vain.  Does not throw. */
extern void zklock_held_forget(ZkHeldLock *held);

/* The proclock that this backend waits with, or -1; ended when the wait is cut
 * short by whatever means. */
extern void zklock_hold_set_pending(int32 proclock);

/*
 * The same for a set's proclocks, chained by set_next; -1: none.  The backend waits with
 * one of them at a time.
 */
extern void zklock_hold_set_pending_set(int32 first);
extern void zklock_hold_set_waiting(int32 proclock);

/* Call "what" for all that is held in session scope and zk_unlock ends.  It may throw; it
 * must not end or make any. */
extern void zklock_hold_each_session_scope(void (*what)(ZkHeldLock *held));

/*
 * End the newest session-scope hold of "held", or all of them, or all of all names (or of
 * those that zk_unlock ends), at both levels.  Return how many ended.
 */
extern uint64 zklock_hold_end_session_scope(ZkHeldLock *held, bool all);
extern uint64 zklock_hold_end_all_session_scope(bool unlocked);

/* The one in session scope that was added last is exclusive because an older one is, and
 * was asked for in shared mode. */
extern void zklock_hold_note_within(ZkHeldLock *held);

/*
 * End a session-scope hold that was asked for in this mode, at both levels.  False if
 * there is none: PostgreSQL's advisory locks count the modes apart.
 */
extern bool zklock_hold_end_asked(ZkHeldLock *held, ZkLockMode mode);

/*
 * pg_advisory_unlock_all() and DISCARD ALL take level 1 away from session-scope
 * holds: end those holds.  Called by every SQL function that looks at holds, before
 * it does, and at every end of an outermost statement and of a transaction.  Does not
 * throw.
 */
extern void zklock_hold_end_void_ones(void);

static inline void
zklock_hold_end_void(void)
{
	if (zklock_holds.session_scope > 0)
		zklock_hold_end_void_ones();
}

/*
 * Beside a hold in transaction scope in the same mode that does not see them.  To be
 * called before one in session scope is added.  Does not throw.
 */
extern void zklock_hold_end_hidden_void(ZkHeldLock *held, ZkLockMode mode);

/* A lost hold of this backend, or NULL; one of a job or in transaction scope comes first.
 * "all": all of them count as lost.  "but": NULL, or one that is left out. */
extern ZkHeldLock *zklock_held_find_lost(bool all, const ZkHeldLock *but);

/* The strongest mode in which it is held. */
static inline ZkLockMode
zklock_held_mode(const ZkHeldLock *held)
{
	return held->proclock[ZKLOCK_EXCLUSIVE] >= 0 ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;
}

/*
 * What this backend holds with this token and others may hold at the same time: a lock in
 * shared mode, or one of several permits.  NULL if there is none, or if it holds
 * something by the token alone, too.
 */
extern ZkHeldLock *zklock_held_find_shared(int64 token);

/* Of how many names does this backend hold something? */
extern int zklock_held_names(void);

/* Does this backend hold anything, in transaction scope, or wait with a proclock? */
static inline bool
zklock_hold_any_in_transaction(void)
{
	return !dlist_is_empty(&zklock_holds.transaction);
}

static inline bool
zklock_hold_any(void)
{
	return zklock_holds.session_scope > 0 || zklock_hold_any_in_transaction();
}

static inline bool
zklock_hold_pending(void)
{
	return zklock_holds.pending >= 0 || zklock_holds.pending_set >= 0;
}

/* Has the ensemble taken the grant away under a hold of this name, or is it forfeited? */
extern bool zklock_held_lost(const ZkHeldLock *held);

/* All holds of it are lost, whatever the ensemble says.  Does not throw. */
extern void zklock_held_forfeit(ZkHeldLock *held);

/* --- for callbacks; none throws but the first ------------------------------ */

/* There is a hold in transaction scope, so the transaction cannot be prepared. */
extern void zklock_hold_refuse_prepare(void);

/* Give up the proclock that this backend waits with, if there is one. */
extern void zklock_hold_end_pending(void);

/* End all transaction-scope holds of this nest level and deeper. */
extern void zklock_hold_end_transaction(int level);

/* They are the parent's from now on, counted with what it has. */
extern void zklock_hold_pass_to_parent(int level);

/* The client is gone, and has not been told that its holds end. */
extern void zklock_hold_abandon(void);

#endif /* ZKLOCK_HOLD_H */
