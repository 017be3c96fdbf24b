/*-------------------------------------------------------------------------
 *
 * tries.h
 *	  Which host is tried next, and for how long.
 *
 * Pure: no clock, no allocation.  The client (client.c) asks it before each attempt to
 * connect, and tells it how attempts and connections ended; the simulator links the same
 * object.  All times are ns.
 *
 * One host that does not answer must cost no session while others do.  Hosts are tried
 * in rounds, each once in a round.  First come those whose latest attempt or connection
 * did not fail, then those that refused, or hung up, which costs no time; then those
 * that were silent, which does; last those that answered rubbish.  Among the same that
 * which failed longest ago is first, else it is left to chance: the servers of a fleet
 * shall not all go to one host.
 *
 * An attempt is given its share of what is left of the session: as much as each host
 * that was not tried in this round, and never more than half, since the host that would
 * have answered may have refused a moment ago.  No more than the patience that there is
 * for all of them together, either: a session may be long.  Where nothing is left, or
 * there is no session, the patience is divided over all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TRIES_H
#define ZKLOCK_TRIES_H

#include <stdbool.h>
#include <stdint.h>

/* Further ones are not tried. */
#define ZKLOCK_TRIES_MAX  64
#define ZKLOCK_TRIES_NAME 80

/* How a host's latest attempt or connection ended, the better ends first. */
typedef enum ZkTryEnd
{
	ZKLOCK_TRY_NOT, /* it is up, or there was none */
	ZKLOCK_TRY_REFUSED,
	ZKLOCK_TRY_SILENT,
	ZKLOCK_TRY_RUBBISH
} ZkTryEnd;

typedef struct ZkTriedHost
{
	char name[ZKLOCK_TRIES_NAME];
	ZkTryEnd end;
	int64_t ended_at;
	bool tried; /* in this round */
} ZkTriedHost;

typedef struct ZkTries
{
	int nhosts;
	ZkTriedHost host[ZKLOCK_TRIES_MAX];
} ZkTries;

/* These are the hosts from now on; what is known of them stays known. */
extern void zklock_tries_set(ZkTries *tries, const char *const *names, int n);

/* The number of a host; -1: there is none of that name. */
extern int zklock_tries_find(const ZkTries *tries, const char *name);

/* The host to be tried now, as a number from 0 on; there is one.  "random" is any number. */
extern int zklock_tries_next(ZkTries *tries, uint32_t random);

/*
 * For how long it may be tried.  "left" is what is left of the session, 0 or less:
 * nothing. "patience" is how long one handle may try (zklock_heartbeat_patience).
 */
extern int64_t zklock_tries_time(const ZkTries *tries, int64_t left, int64_t patience);

/* It has answered: there is a connection, and the next attempt begins a round. */
extern void zklock_tries_reached(ZkTries *tries, int host);

/* The attempt at it has ended so. */
extern void zklock_tries_ended(ZkTries *tries, int host, ZkTryEnd end, int64_t now);

/* The connection to it has ended so; it may be there again at once. */
extern void zklock_tries_lost(ZkTries *tries, int host, ZkTryEnd end, int64_t now);

/* The attempt at it goes no further, since another handle is to try: it has taken so much
 * of the time that it was given. */
extern void zklock_tries_left(ZkTries *tries, int host, int64_t took, int64_t given,
							  int64_t now);

#endif /* ZKLOCK_TRIES_H */
