/*-------------------------------------------------------------------------
 *
 * part.h
 *	  Requests and starts the parts of shared memory. zklock.c has the list of all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PART_H
#define ZKLOCK_PART_H

#include "port/atomics.h"
#include "storage/lwlock.h"

/* The beginning of a part with one lock: see mailbox.h. */
typedef struct ZkMailbox
{
	LWLock *lock;
	pg_atomic_uint32 posted; /* the worker resets it */
	uint32 last_serial;
} ZkMailbox;

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

#endif /* ZKLOCK_PART_H */
