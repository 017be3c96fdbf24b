/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  Mailboxes: what backends and the worker leave for each other in shared memory,
 *	  beside the lock table.
 *
 * One LWLock protects all that is in a mailbox.  A backend that has left something posts
 * it: the worker wakes, and sees without the lock that there is something.  What belongs
 * to a backend, which may go at any time, has a serial number; whoever comes late
 * compares it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MAILBOX_H
#define ZKLOCK_MAILBOX_H

#include "port/atomics.h"
#include "storage/lwlock.h"

typedef struct ZkMailbox
{
	LWLock *lock;
	pg_atomic_uint32 posted; /* the worker resets it */
	uint32 last_serial;
} ZkMailbox;

/* A part of shared memory.  zklock.c has the list of all. */
typedef struct ZkSharedPart
{
	const char *name; /* of the memory, and of its LWLocks */
	int nlocks;		  /* 1: the memory begins with a ZkMailbox */
	Size (*size)(void);
	void **memory;		  /* set in each process */
	void (*attach)(void); /* so are further pointers into it; or NULL */
	void (*init)(void);	  /* what is not zero in new memory; or NULL */
} ZkSharedPart;

/* For shmem_request_hook and shmem_startup_hook, of each part. */
extern void zklock_part_request(const ZkSharedPart *part);
extern void zklock_part_startup(const ZkSharedPart *part);

/* Something is in the mailbox for the worker.  Without the lock. */
extern void zklock_mailbox_post(ZkMailbox *box);

/* Has anything been posted since this was called last?  For the worker. */
extern bool zklock_mailbox_posted(ZkMailbox *box);

/* A serial number, never 0.  With the lock. */
extern uint32 zklock_mailbox_serial(ZkMailbox *box);

#endif /* ZKLOCK_MAILBOX_H */
