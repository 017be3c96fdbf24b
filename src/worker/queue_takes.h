/*-------------------------------------------------------------------------
 *
 * queue_takes.h
 *	  The worker gets items of queues for those who take, and ends their takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_TAKES_H
#define ZKLOCK_QUEUE_TAKES_H

#include "agent.h"

extern const ZkAgent zklock_queue_takes_agent;

/* Make the directories of a queue. */
extern void zklock_queue_takes_make_queue(const char *queue);

/* For the agent of puts, each time round.  "wanted": backends have something for us. */
extern void zklock_queue_takes_work(bool wanted);

/* What was put is in a queue: who found none looks again. */
extern void zklock_queue_takes_look_again(void);

#endif /* ZKLOCK_QUEUE_TAKES_H */
