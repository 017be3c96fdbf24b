/*-------------------------------------------------------------------------
 *
 * namesakes.h
 *	  Looks for other servers that have this server's name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMESAKES_H
#define ZKLOCK_NAMESAKES_H

#include "agent.h"

extern const ZkAgent zklock_namesakes_agent;

#endif /* ZKLOCK_NAMESAKES_H */
