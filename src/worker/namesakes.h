/*-------------------------------------------------------------------------
 *
 * namesakes.h
 *	  Looks for other servers that bear this server's name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMESAKES_H
#define ZKLOCK_NAMESAKES_H

#include "client.h"

/* A new connection, on which our own node is made. */
extern void zklock_namesakes_start(void);

/* A heartbeat was acknowledged. */
extern void zklock_namesakes_work(void);

/* A reply that is tagged ZKLOCK_TAG_NAMESAKES. */
extern void zklock_namesakes_message(const ZkMessage *message);

#endif /* ZKLOCK_NAMESAKES_H */
