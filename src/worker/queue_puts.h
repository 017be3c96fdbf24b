/*-------------------------------------------------------------------------
 *
 * queue_puts.h
 *	  The worker writes what transactions put, and puts it into the queues or away.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_PUTS_H
#define ZKLOCK_QUEUE_PUTS_H

#include "client.h"
#include "protocol.h"

/* To be called each time round.  "wanted": backends have something for us. */
extern void zklock_queue_puts_work(bool wanted);

/* Is a look for strays under way, or to be repeated at the next TICK? */
extern bool zklock_queue_puts_looking(void);

/* As a ZkSessionListener has it: a reply with ZKLOCK_TAG_QUEUE_PUTS. */
extern void zklock_queue_puts_event(ZkLockEventType type);
extern void zklock_queue_puts_message(const ZkMessage *message);

#endif /* ZKLOCK_QUEUE_PUTS_H */
