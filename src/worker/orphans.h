/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Looks for contenders of our session that nobody here knows of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ORPHANS_H
#define ZKLOCK_ORPHANS_H

#include "client.h"

/* A new connection. */
extern void zklock_orphans_start(void);

/* A heartbeat was acknowledged. */
extern void zklock_orphans_work(void);

/* A reply that is tagged ZKLOCK_TAG_ORPHANS. */
extern void zklock_orphans_message(const ZkMessage *message);

#endif /* ZKLOCK_ORPHANS_H */
