/*-------------------------------------------------------------------------
 *
 * semaphore_worker.h
 *	  The places of a semaphore on this server: tells them about each other
 *	  (semaphore_siblings.h), and about events in the directory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_WORKER_H
#define ZKLOCK_SEMAPHORE_WORKER_H

#include "table.h"

/* Functions of the code that feeds events to entries (dispatch.c). */
typedef struct ZkFeeder
{
	/* Feed one to an entry, if it has this generation still; 0: whichever it has. */
	void (*step)(ZkLockEntry *entry, uint32 generation, ZkLockEvent *event);

	/* Does the entry know of the connection?  If not it will hear, and look itself. */
	bool (*has_heard)(const ZkLockEntry *entry);
} ZkFeeder;

/* News for the place that waits first, to be told when the other place is unlocked. */
typedef struct ZkPlaceNews
{
	ZkLockEntry *first; /* NULL: nothing */
	uint32 generation;
	int ended;
} ZkPlaceNews;

/* A step of a place is done; "before" is its state before the step.  The place is
 * locked. */
extern void zklock_semaphore_note(const ZkFeeder *feeder, const ZkLockEntry *entry,
								  const ZkLockQueue *before, const ZkLockActions *actions,
								  ZkPlaceNews *news);
extern void zklock_semaphore_tell(const ZkFeeder *feeder, const ZkPlaceNews *news);

/* Feed a listing to the place that has asked for it, and to other places that it
 * concerns. */
extern void zklock_semaphore_listed(const ZkFeeder *feeder, ZkLockEntry *entry,
									uint32 generation, ZkLockEvent *event,
									ZkLockChild *children);

/* Feed an event of the directory or of a child to the places that it concerns. */
extern void zklock_semaphore_changed(const ZkFeeder *feeder, const char *name,
									 const ZkLockEvent *event);

#endif /* ZKLOCK_SEMAPHORE_WORKER_H */
