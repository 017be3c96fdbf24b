/*-------------------------------------------------------------------------
 *
 * queue_puts.h
 *	  The worker writes what transactions put, and puts it into the queues or away.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_PUTS_H
#define ZKLOCK_QUEUE_PUTS_H

#include "agent.h"

extern const ZkAgent zklock_queue_puts_agent;

#endif /* ZKLOCK_QUEUE_PUTS_H */
