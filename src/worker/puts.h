/*-------------------------------------------------------------------------
 *
 * puts.h
 *	  The worker writes what transactions put, and puts it into the queues or away.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PUTS_H
#define ZKLOCK_PUTS_H

#include "client.h"
#include "protocol.h"

/* To be called each time round.  "wanted": backends have something for us. */
extern void zklock_puts_work(bool wanted);

/* Is a look for strays under way, or to be repeated at the next TICK? */
extern bool zklock_puts_looking(void);

/* As a ZkSessionListener has it: a reply with ZKLOCK_TAG_PUTS. */
extern void zklock_puts_event(ZkLockEventType type);
extern void zklock_puts_message(const ZkMessage *message);

#endif /* ZKLOCK_PUTS_H */
