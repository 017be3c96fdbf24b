/*-------------------------------------------------------------------------
 *
 * changes.h
 *	  Keeps the changes of leadership, and ends of runs, that still have to be notified:
 *	  a ring in shared memory.
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

/* The most changes that wait at a time. */
#define ZKLOCK_NCHANGES 1024

extern const ZkSharedPart zklock_changes_part;

/* Adds a change: this server has begun or ceased to lead an election, or has ended a
 * run of a job.  Does nothing without zklock.notify_database. */
extern void zklock_changes_add_leader(const char *election, bool leader);
extern void zklock_changes_add_end(const char *job, ZkJobState end);

/* Returns how many changes there have been so far, and how many of them were sent. */
extern void zklock_changes_count(uint64 *added, uint64 *sent);

/* Copies the oldest changes that are not sent, "room" at most; "first" is the number
 * of the first one.  Returns how many. */
extern int zklock_changes_read(ZkChange *changes, int room, uint64 *first);

/* Counts the changes up to this number as sent. */
extern void zklock_changes_set_sent(uint64 sent);

#endif /* ZKLOCK_CHANGES_H */
