/*-------------------------------------------------------------------------
 *
 * ring.h
 *	  The library's list of hosts, and which of them it tries next.
 *
 * The library shuffles its list once, and tries one host after the other; when an
 * attempt has failed it steps over one (ZOOKEEPER-2466).  zoo_cycle_next_server turns
 * the list, so whoever knows it can have the library try the host that he wants.
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
 * While the handle has no socket: have it try the host that is best by "tries", of the
 * "naddresses" that it has.  Returns its name.  Of more than ZKLOCK_TRIES_MAX hosts those
 * are taken that come first.
 */
extern const char *zklock_ring_turn(ZkRing *ring, zhandle_t *zh, int naddresses,
									ZkTries *tries, uint32_t random);

#endif /* ZKLOCK_RING_H */
