/*-------------------------------------------------------------------------
 *
 * hold.h
 *	  The locks that this backend holds, and how they end.
 *
 * They are local to the backend.  A hold has a mode and a scope, and is counted.  All
 * holds of one name in one mode share one proclock in the lock table.
 *
 * A transaction that requires leadership in an election (election_backend.c) holds the
 * leadership like an exclusive lock in transaction scope.  But it shares the leadership
 * with every other backend of the server, so there is no level 1.
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

/* All holds; for the functions here that every statement and transaction calls. */
typedef struct ZkHolds
{
	dlist_head transaction; /* ZkHold, in that scope; the newest first */
	int session_scope;		/* how many */
	int32 pending;			/* zklock_hold_set_pending */
	int32 pending_set;		/* zklock_hold_set_pending_set */
} ZkHolds;

extern ZkHolds zklock_holds;

/* User advisory locks have classes 1 and 2, and Citus uses 4 to 15. */
#define ZKLOCK_LEVEL1_CLASS 31339

/*
 * The lock tag of level 1 for "name".  The tag of a permit belongs to the backend
 * alone, so nobody waits for it: it makes the hold end with everything that takes
 * advisory locks away, as a lock's tag does.  A query in ../../doc/locks.md leads users
 * from the tag back to the name.
 */
extern void zklock_level1_tag(LOCKTAG *tag, ZkLockKind kind, const char *name, int pid);

/* The mode of level 1 for "mode". */
extern LOCKMODE zklock_level1_mode(ZkLockMode mode);

/* This backend's holds of "name", or NULL. */
extern ZkHeldLock *zklock_held_find(ZkLockKind kind, const char *name);

/*
 * Reserve all memory that a new hold of "name" needs; zklock_callbacks_begin was called
 * before.  May throw out-of-memory.  zklock_hold_add uses the reserved hold, and does
 * not throw.
 */
extern ZkHeldLock *zklock_hold_reserve(ZkLockKind kind, const char *name);

/*
 * The lock tag of level 1 for the name that is reserved next by
 * zklock_hold_reserve_tagged, which does not look at the name again.  The tag is valid
 * until then.  The tag of the name that this backend held last is remembered.  May
 * throw out-of-memory, and then reserves nothing.
 */
extern const LOCKTAG *zklock_hold_tag(ZkLockKind kind, const char *name);
extern ZkHeldLock *zklock_hold_reserve_tagged(void);
extern void zklock_hold_reserve_room(int n); /* for so many holds, no more */
extern void zklock_hold_add(ZkHeldLock *held, ZkLockMode mode, ZkLockScope scope);

/* Forget a name that was reserved but not held.  Does not throw. */
extern void zklock_held_forget(ZkHeldLock *held);

/* Set the proclock with which this backend waits, or -1.  If the wait is cut short, the
 * proclock is ended, whatever the cause. */
extern void zklock_hold_set_pending(int32 proclock);

/* The same for a set's proclocks, linked by set_next; -1: none.  The backend waits with
 * one of them at a time. */
extern void zklock_hold_set_pending_set(int32 first);
extern void zklock_hold_set_waiting(int32 proclock);

/* Call "what" for all holds in session scope that zk_unlock ends.  It may throw.  It
 * must not end or make any hold. */
extern void zklock_hold_each_session_scope(void (*what)(ZkHeldLock *held));

/*
 * End the newest session-scope hold of "held", or all holds of it, or all holds of all
 * names (or of those that zk_unlock ends), at both levels.  Return the number of ended
 * holds.
 */
extern uint64 zklock_hold_end_session_scope(ZkHeldLock *held, bool all);
extern uint64 zklock_hold_end_all_session_scope(bool unlocked);

/* The session-scope hold that was added last is exclusive because an older one is; it
 * was asked for in shared mode. */
extern void zklock_hold_note_within(ZkHeldLock *held);

/* End a session-scope hold that was asked for in this mode, at both levels.  False if
 * there is none.  PostgreSQL's advisory locks also count the modes separately. */
extern bool zklock_hold_end_asked(ZkHeldLock *held, ZkLockMode mode);

/*
 * End the session-scope holds from which pg_advisory_unlock_all() or DISCARD ALL has
 * taken level 1 away.  Every SQL function that looks at holds calls this first.  So
 * does every end of an outermost statement and of a transaction.  Does not throw.
 */
extern void zklock_hold_end_void_ones(void);

static inline void
zklock_hold_end_void(void)
{
	if (zklock_holds.session_scope > 0)
		zklock_hold_end_void_ones();
}

/* The same for holds that a hold in transaction scope in the same mode hides.  To be
 * called before a hold in session scope is added.  Does not throw. */
extern void zklock_hold_end_hidden_void(ZkHeldLock *held, ZkLockMode mode);

/*
 * A lost hold of this backend, or NULL; a job's hold or a hold in transaction scope
 * comes first.  "all": all holds count as lost.  "but": NULL, or a hold to leave out.
 */
extern ZkHeldLock *zklock_held_find_lost(bool all, const ZkHeldLock *but);

/* The strongest mode of the holds. */
static inline ZkLockMode
zklock_held_mode(const ZkHeldLock *held)
{
	return held->proclock[ZKLOCK_EXCLUSIVE] >= 0 ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;
}

/*
 * The hold of this backend that has this token and that others may share: a lock in
 * shared mode, or one of several permits.  NULL if there is none, or if this backend
 * also holds something with this token that no other may hold.
 */
extern ZkHeldLock *zklock_held_find_shared(int64 token);

/* The number of names that this backend holds. */
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

/* Has the ensemble taken the grant away under a hold of this name, or is the hold
 * forfeited? */
extern bool zklock_held_lost(const ZkHeldLock *held);

/* Make all holds of the name lost, whatever the ensemble says.  Does not throw. */
extern void zklock_held_forfeit(ZkHeldLock *held);

/* --- for callbacks; none throws but the first ------------------------------ */

/* Raise if the transaction cannot be prepared because there is a hold in transaction
 * scope. */
extern void zklock_hold_refuse_prepare(void);

/* Give up the proclock with which this backend waits, if there is one. */
extern void zklock_hold_end_pending(void);

/* End all transaction-scope holds of this nest level and deeper. */
extern void zklock_hold_end_transaction(int level);

/* Pass the holds of this nest level to the parent, counted with the parent's holds. */
extern void zklock_hold_pass_to_parent(int level);

/* The client is gone, and has not been told that its holds end. */
extern void zklock_hold_abandon(void);

#endif /* ZKLOCK_HOLD_H */
