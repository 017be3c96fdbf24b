/*-------------------------------------------------------------------------
 *
 * rings.h
 *	  Looks for deadlocks across servers, and ends the waits that are to end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RINGS_H
#define ZKLOCK_RINGS_H

#include "client.h"
#include "protocol.h"

/* A session event. */
extern void zklock_rings_event(ZkLockEventType type);

/* A reply with the tag ZKLOCK_TAG_RINGS. */
extern void zklock_rings_message(const ZkMessage *message);

/* Somebody else wants a grant of this server, and did not before. */
extern void zklock_rings_demanded(void);

/* Do what is to be done.  ms until this should be called again, -1: no hurry. */
extern long zklock_rings_work(void);

#endif /* ZKLOCK_RINGS_H */
