/*-------------------------------------------------------------------------
 *
 * blockers.h
 *	  Which backends of this server stand in whose way, in PostgreSQL's lock manager.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BLOCKERS_H
#define ZKLOCK_BLOCKERS_H

#include "storage/lock.h"
#include "utils/timestamp.h"

typedef struct ZkBlocker
{
	int pid;	 /* of the leader, if it is in a group; 0: a prepared transaction */
	int waiting; /* who waits for it: the backend, or a member of its group */
	TimestampTz since;
	LOCKTAG tag; /* for what ... */
	LOCKMODE mode;
} ZkBlocker;

/* Who is in the way of "pid"?  Returns how many; palloc'd. */
extern int zklock_blockers(int pid, ZkBlocker **blockers);

/* Does that process wait in the lock manager, and has so since then? */
extern bool zklock_blocked_since(int pid, TimestampTz since);

#endif /* ZKLOCK_BLOCKERS_H */
