/*-------------------------------------------------------------------------
 *
 * takes.h
 *	  The worker gets items of queues for those who take, and ends their takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAKES_H
#define ZKLOCK_TAKES_H

#include "client.h"
#include "protocol.h"

/* Make the directories of a queue. */
extern void zklock_takes_make_queue(const char *queue);

/* What a reply's code is to item.h. */
extern int zklock_takes_rc(int rc);

/* To be called each time round.  "wanted": backends have something for us. */
extern void zklock_takes_work(bool wanted);

/* As a ZkSessionListener has it: a reply with ZKLOCK_TAG_TAKES, or a watch of whatever. */
extern void zklock_takes_event(ZkLockEventType type);
extern void zklock_takes_message(const ZkMessage *message);
extern void zklock_takes_watch(const ZkMessage *message);

/* Is some queue watched?  One that nobody asks for is not for long, if there are ticks. */
extern bool zklock_takes_wants_tick(void);

/* What was put is in a queue: who found none looks again. */
extern void zklock_takes_look_again(void);

#endif /* ZKLOCK_TAKES_H */
