/*-------------------------------------------------------------------------
 *
 * limit.h
 *	  Limits how much one session may use of what all sessions share.
 *
 * zklock.max_locks_per_backend limits each of these kinds separately.  Of a small kind,
 * one transaction may use half at most, so it never keeps all others out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIMIT_H
#define ZKLOCK_LIMIT_H

typedef enum ZkLimit
{
	ZKLOCK_LIMIT_LOCKS,		/* names that the session holds or waits for */
	ZKLOCK_LIMIT_ITEMS,		/* of queues, that the transaction has */
	ZKLOCK_LIMIT_QUEUES,	/* into which the transaction puts */
	ZKLOCK_LIMIT_ELECTIONS, /* in which this server is a candidate for the role.  A candidacy
							 * outlives its session; so it counts for all of the role's */
} ZkLimit;

/* A session that has "has" of a kind asks for "more".  Raises 53400 if that is too
 * many. */
extern void zklock_limit_check(ZkLimit limit, int has, int more);

/* How many more the session may have. */
extern int zklock_limit_room(ZkLimit limit, int has);

#endif /* ZKLOCK_LIMIT_H */
