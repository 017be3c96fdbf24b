/*-------------------------------------------------------------------------
 *
 * leadership.h
 *	  Elections: what the worker makes of candidacies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEADERSHIP_H
#define ZKLOCK_LEADERSHIP_H

#include "candidacy.h"

/* What is to be said when the entry is unlocked. */
typedef struct ZkElectionNews
{
	int64 gained; /* token of the leadership, or 0 */
	int64 lost;	  /* the same */
	const char *reason;
	bool failed; /* the ensemble refuses */
	ZkLockFailure failure;
} ZkElectionNews;

/* A step of the entry, which is locked, has had these actions. */
extern void zklock_leadership_step(ZkLockEntry *entry, const ZkLockEvent *event,
								   const ZkLockActions *actions, ZkElectionNews *news);
extern void zklock_leadership_announce(const char *name, const ZkElectionNews *news);

/* Enter the elections of "zklock.elections"; those that find no room, when there is
 * some (zklock_leadership_work). */
extern void zklock_leadership_enter_listed(void);

/* Each time round: who may lead, and is the lease good?  Returns ms until it
 * should be called again. */
extern long zklock_leadership_work(void);

/* Is a leadership ours, or would it be with a lease? */
extern bool zklock_leadership_leads(void);

/* The server stops: no leadership is true any more. */
extern void zklock_leadership_set_stopping(void);

#endif /* ZKLOCK_LEADERSHIP_H */
