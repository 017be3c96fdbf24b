/*-------------------------------------------------------------------------
 *
 * tries.h
 *	  Chooses the host to try next, and the time for the attempt.
 *
 * Pure: no clock, no allocation.  The client (client.c) asks it before each attempt to
 * connect, and tells it how attempts and connections ended; the simulator links the
 * same object.  All times are ns.
 *
 * One host that does not answer must cost no session while others answer.  The client
 * tries hosts in rounds, each host once in a round.  First come the hosts whose latest
 * attempt or connection did not fail; then those that refused, or hung up, which costs
 * no time; then those that were silent, which does; last those that answered rubbish.
 * Among equals the host that failed longest ago is first; otherwise chance decides, so
 * that the servers of a fleet do not all go to one host.
 *
 * An attempt gets its share of the session's remaining time: as much as each host that
 * was not tried in this round.  It never gets more than half, because the host that
 * would have answered may have refused a moment ago.  It gets no more than the patience
 * for all of them together, either: a session may be long.  If no time is left, or
 * there is no session, all hosts share the patience.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TRIES_H
#define ZKLOCK_TRIES_H

#include <stdbool.h>
#include <stdint.h>

/* Further hosts are not tried. */
#define ZKLOCK_TRIES_MAX  64
#define ZKLOCK_TRIES_NAME 80

/* How a host's latest attempt or connection ended; better ends come first. */
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

/* From now on these are the hosts.  What is known about them stays known. */
extern void zklock_tries_set(ZkTries *tries, const char *const *names, int n);

/* Finds the number of a host; -1: there is none of that name. */
extern int zklock_tries_find(const ZkTries *tries, const char *name);

/* Returns the host to try now, as a number from 0 on; there is one.  "random" is any
 * number. */
extern int zklock_tries_next(ZkTries *tries, uint32_t random);

/*
 * Returns how long the attempt may take.  "left" is the session's remaining time; 0 or
 * less: none.  "patience" is how long one handle may try (zklock_heartbeat_patience).
 */
extern int64_t zklock_tries_time(const ZkTries *tries, int64_t left, int64_t patience);

/* The host has answered: there is a connection, and the next attempt begins a round. */
extern void zklock_tries_reached(ZkTries *tries, int host);

/* The attempt at it has ended so. */
extern void zklock_tries_ended(ZkTries *tries, int host, ZkTryEnd end, int64_t now);

/* The connection to it has ended so; it may be there again at once. */
extern void zklock_tries_lost(ZkTries *tries, int host, ZkTryEnd end, int64_t now);

/* The attempt at the host goes no further, because another handle has to try.  It has
 * taken "took" of the time "given". */
extern void zklock_tries_left(ZkTries *tries, int host, int64_t took, int64_t given,
							  int64_t now);

#endif /* ZKLOCK_TRIES_H */
