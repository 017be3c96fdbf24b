/*-------------------------------------------------------------------------
 *
 * deadlock_worker.h
 *	  Looks for deadlocks across servers, and ends the waits that are to end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_WORKER_H
#define ZKLOCK_DEADLOCK_WORKER_H

#include "client.h"
#include "protocol.h"

/* A session event. */
extern void zklock_deadlock_worker_event(ZkLockEventType type);

/* A reply with the tag ZKLOCK_TAG_DEADLOCK. */
extern void zklock_deadlock_worker_message(const ZkMessage *message);

/* Somebody else wants a grant of this server, and did not before. */
extern void zklock_deadlock_worker_demanded(void);

/* Do what is to be done.  ms until this should be called again, -1: no hurry. */
extern long zklock_deadlock_worker_work(void);

#endif /* ZKLOCK_DEADLOCK_WORKER_H */
