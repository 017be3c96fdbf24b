/*-------------------------------------------------------------------------
 *
 * rounds.h
 *	  The worker's part in barriers: events in, requests out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROUNDS_H
#define ZKLOCK_ROUNDS_H

#include "client.h"
#include "contender.h"
#include "protocol.h"

/* A session event. */
extern void zklock_rounds_event(ZkLockEventType type);

/* Is something watched that nobody waits for?  Not for long, if there are ticks. */
extern bool zklock_rounds_wants_tick(void);

/* A reply with the tag ZKLOCK_TAG_ROUNDS. */
extern void zklock_rounds_message(const ZkMessage *message);

/* The watch on a barrier's directory has fired. */
extern void zklock_rounds_changed(const char *name);

/* Look at what backends want. */
extern void zklock_rounds_work(void);

#endif /* ZKLOCK_ROUNDS_H */
