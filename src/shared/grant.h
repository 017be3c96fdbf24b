/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  Declares the life of a grant in the lock table (see grant.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRANT_H
#define ZKLOCK_GRANT_H

#include "table.h"

/* --- with the entry locked exclusively ------------------------------------ */

/*
 * The entry's holds, wishes or grants have changed: decides about grants that nobody
 * holds.  True: the worker has to give one up.
 */
extern bool zklock_grant_settle(ZkLockEntry *entry);

/* The entry's first proclock came, or its last one went: is a grant kept for nobody?
 * Counts the entry accordingly. */
extern void zklock_grant_update_kept(ZkLockEntry *entry);

/* An entry that was about to go is wanted, or kept, after all: it counts no more as one
 * of ZkLockShared.nleaving. */
extern void zklock_grant_stays(ZkLockEntry *entry);

/*
 * For the worker.  What is to be expected of a name, for an event that is to be fed to
 * its queue:
 *	 keep       a grant may be kept when nobody uses it.  Not if that was of no use the
 *	            last time, because another server wanted the lock first, until this
 *	            server has had it three times in a row since
 *	 alone      nobody else was in the queue when we last were
 *	            (permits: both if this server has had it three times in a row)
 *	 recurring  it was our own before, too, and grants are never kept
 */
extern void zklock_grant_foresee(const ZkLockEntry *entry, ZkLockEvent *event);

/* Give up the grants of an entry that are kept for nobody, if they still are. */
extern void zklock_grant_give_up(ZkLockEntry *entry);

/* The worker's contender got this sequence number. */
extern void zklock_grant_note_contender(const ZkLockEntry *entry, int64 sequence);

/* Performs an action of the protocol that is no request; "keep" is the value that was
 * fed to it.  True: the need must be fed again. */
extern bool zklock_grant_apply(ZkLockEntry *entry, const ZkLockAction *action, bool keep);

/* --- without ---------------------------------------------------------------- */

/*
 * For the worker.  Gives up grants that are kept for nobody: after zklock.keep_time, if
 * there are more than zklock_max_kept, and all of them under zklock.drain or if the
 * server rests and its lease has lapsed.  Returns the ms until the next call; -1: no
 * hurry.
 */
extern long zklock_grant_sweep(void);

#endif /* ZKLOCK_GRANT_H */
