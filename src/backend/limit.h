/*-------------------------------------------------------------------------
 *
 * limit.h
 *	  Limits: what one session may have of what all share.
 *
 * zklock.max_locks_per_backend counts each of these by itself.  And of what is small one
 * transaction has half at most, so that it never keeps all others out.
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

/* Who has so many asks for "more" of them.  Raises 53400 if these are too many. */
extern void zklock_limit_check(ZkLimit limit, int has, int more);

/* So many more he can have. */
extern int zklock_limit_room(ZkLimit limit, int has);

#endif /* ZKLOCK_LIMIT_H */
