/*-------------------------------------------------------------------------
 *
 * queue_puts.h
 *	  The worker's part in puts: writes the items that transactions put, and moves them
 *	  into the queues or deletes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_PUTS_H
#define ZKLOCK_QUEUE_PUTS_H

#include "agent.h"

extern const ZkAgent zklock_queue_puts_agent;

#endif /* ZKLOCK_QUEUE_PUTS_H */
