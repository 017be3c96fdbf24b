/*-------------------------------------------------------------------------
 *
 * barrier_unused.h
 *	  Deletes the directories of barriers that nobody uses any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_UNUSED_H
#define ZKLOCK_BARRIER_UNUSED_H

#include "client.h"

/* A new connection. */
extern void zklock_barrier_unused_start(void);

/* A heartbeat was acknowledged. */
extern void zklock_barrier_unused_work(void);

/* A reply that is tagged ZKLOCK_TAG_BARRIER_UNUSED. */
extern void zklock_barrier_unused_message(const ZkMessage *message);

#endif /* ZKLOCK_BARRIER_UNUSED_H */
