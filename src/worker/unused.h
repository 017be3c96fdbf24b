/*-------------------------------------------------------------------------
 *
 * unused.h
 *	  Deletes the directories of barriers that nobody uses any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_UNUSED_H
#define ZKLOCK_UNUSED_H

#include "client.h"

/* A new connection. */
extern void zklock_unused_start(void);

/* A heartbeat was acknowledged. */
extern void zklock_unused_work(void);

/* A reply that is tagged ZKLOCK_TAG_UNUSED. */
extern void zklock_unused_message(const ZkMessage *message);

#endif /* ZKLOCK_UNUSED_H */
