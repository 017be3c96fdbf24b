/*-------------------------------------------------------------------------
 *
 * grant.h
 *	  The life of a grant in the lock table (see grant.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRANT_H
#define ZKLOCK_GRANT_H

#include "table.h"

/* --- with the entry locked exclusively ------------------------------------ */

/*
 * The entry's holds, wishes or grants have changed: what is to become of grants
 * that nobody holds?  True if one is to be given up, which the worker has to do.
 */
extern bool zklock_grant_settle(ZkLockEntry *entry);

/* The entry's first proclock came, or its last one went: is a grant kept for nobody?
 * Counts the entry accordingly. */
extern void zklock_grant_update_kept(ZkLockEntry *entry);

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

/* Do what an action of the protocol that is no request says; "keep" is what was
 * fed to it.  True if the need must be fed again. */
extern bool zklock_grant_apply(ZkLockEntry *entry, const ZkLockAction *action, bool keep);

/* --- without ---------------------------------------------------------------- */

/*
 * For the worker.  Give up grants that are kept for nobody, when they have been for
 * zklock.keep_time or are more than zklock_max_kept, or at all by zklock.drain or where
 * the server rests and its lease has lapsed.  ms until this should be called again, -1:
 * no hurry.
 */
extern long zklock_grant_sweep(void);

#endif /* ZKLOCK_GRANT_H */
