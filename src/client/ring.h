/*-------------------------------------------------------------------------
 *
 * ring.h
 *	  Makes the library try the host of our choice next, by turning its list of hosts.
 *
 * The library shuffles its list once, and tries one host after the other.  When an
 * attempt has failed, it skips one (ZOOKEEPER-2466). zoo_cycle_next_server turns the
 * list.  So a caller that knows the list can make the library try any host.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RING_H
#define ZKLOCK_RING_H

#include <zookeeper/zookeeper.h>

#include "tries.h"

typedef struct ZkRing
{
	int n;											/* 0: not known yet */
	char name[ZKLOCK_TRIES_MAX][ZKLOCK_TRIES_NAME]; /* in the library's order and words */
} ZkRing;

/*
 * While the handle has no socket: makes it try the best host by "tries", of the
 * handle's "naddresses" hosts.  Returns its name.  If there are more than
 * ZKLOCK_TRIES_MAX hosts, only the first ones are used.
 */
extern const char *zklock_ring_turn(ZkRing *ring, zhandle_t *zh, int naddresses,
									ZkTries *tries, uint32_t random);

#endif /* ZKLOCK_RING_H */
