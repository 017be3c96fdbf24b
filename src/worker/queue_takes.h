/*-------------------------------------------------------------------------
 *
 * queue_takes.h
 *	  The worker's part in takes: gets items of queues for backends, and ends their
 *	  takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_TAKES_H
#define ZKLOCK_QUEUE_TAKES_H

#include "agent.h"

extern const ZkAgent zklock_queue_takes_agent;

/* Create the directories of a queue. */
extern void zklock_queue_takes_make_queue(const char *queue);

/* The work of each time round, called by the agent of puts.  "wanted": backends have
 * something for the worker. */
extern void zklock_queue_takes_work(bool wanted);

/* Items were moved into a queue, or are not moved for now: takes that have found no item
 * look again. */
extern void zklock_queue_takes_look_again(void);

/* This server has put items into this queue; the message has their names. */
extern void zklock_queue_takes_put(const char *queue, const ZkMessage *message);

#endif /* ZKLOCK_QUEUE_TAKES_H */
