/*-------------------------------------------------------------------------
 *
 * barrier_worker.h
 *	  The worker's part in barriers: events in, requests out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_WORKER_H
#define ZKLOCK_BARRIER_WORKER_H

#include "client.h"
#include "contender.h"
#include "protocol.h"

/* A session event. */
extern void zklock_barrier_worker_event(ZkLockEventType type);

/* Is something watched that nobody waits for?  Not for long, if there are ticks. */
extern bool zklock_barrier_worker_wants_tick(void);

/* A reply with the tag ZKLOCK_TAG_BARRIER. */
extern void zklock_barrier_worker_message(const ZkMessage *message);

/* The watch on a barrier's directory has fired. */
extern void zklock_barrier_worker_changed(const char *name);

/* Look at what backends want. */
extern void zklock_barrier_worker_work(void);

#endif /* ZKLOCK_BARRIER_WORKER_H */
