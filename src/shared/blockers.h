/*-------------------------------------------------------------------------
 *
 * blockers.h
 *	  Finds the backends of this server that block each other in PostgreSQL's lock
 *	  manager.
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

/* Finds the backends that block "pid".  Returns how many; palloc'd. */
extern int zklock_blockers(int pid, ZkBlocker **blockers);

/* Does that process wait in the lock manager, and has it waited since then? */
extern bool zklock_blocked_since(int pid, TimestampTz since);

#endif /* ZKLOCK_BLOCKERS_H */
