/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Changes of leadership, and ends of runs, that are to be notified: a ring in shared
 *	  memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHANGES_H
#define ZKLOCK_CHANGES_H

#include "job_rules.h"
#include "part.h"

typedef struct ZkChange
{
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
	bool leader;	/* of an election: this server leads */
	ZkJobState end; /* of a job: what became of a run */
} ZkChange;

/* So many wait at a time. */
#define ZKLOCK_NCHANGES 1024

extern const ZkSharedPart zklock_changes_part;

/* This server has become the leader of an election, or has ceased to be; or has ended a
 * run of a job.  Nothing, without zklock.notify_database. */
extern void zklock_changes_add_leader(const char *election, bool leader);
extern void zklock_changes_add_end(const char *job, ZkJobState end);

/* How many there have been so far, and how many of those were sent. */
extern void zklock_changes_count(uint64 *added, uint64 *sent);

/* Copy the oldest that are to be sent, "room" at most; "first" is the number of the
 * first one.  Returns how many. */
extern int zklock_changes_read(ZkChange *changes, int room, uint64 *first);

/* Count those up to this number as sent. */
extern void zklock_changes_set_sent(uint64 sent);

#endif /* ZKLOCK_CHANGES_H */
