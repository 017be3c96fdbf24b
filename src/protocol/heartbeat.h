/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  Decides when a server has to write to keep its lease.
 *
 * Pure, like lease.h, whose times it shares.  The worker asks it when the next
 * heartbeat is due, and reports every acknowledged write to it.  The simulator of the
 * lease and the fleet's tool link the same object.
 *
 * While the server needs the lease, it writes every sixth of the session timeout: a
 * heartbeat, if there is no other write.  Then each write is the last witness (lease.h)
 * of the one three before it.  Just before the next write, 7/8 - 4/6 of the timeout, a
 * fifth, is left for a slow one.  Writes more than a sixth apart would leave less;
 * writes less than an eighth apart are no witnesses of each other.  So a write counts,
 * and puts the heartbeat off, if the server sent it an eighth after the acknowledgement
 * of the last one that counted.  The sixth is up to 1/16 shorter or longer at random:
 * otherwise all servers that came back together would write together for ever.
 *
 * Heartbeats do more than keep the lease: they carry data to other servers, and show
 * whether the ensemble has gone back (history.h).  So there is one in every second
 * timeout in any case.
 *
 * A lease that has lapsed, or is about to, comes back as soon as it can: the server
 * sends a heartbeat when it is the next witness of the write that has most.
 *
 * The server needs a lease while somebody holds, wants or leads something.  After two
 * timeouts without that, the server rests: it lets the lease lapse, and the library's
 * pings keep its session alive.  The next wish would then have to wait for a lease, and
 * nothing makes that faster: the session may be one that the leader is about to expire
 * (lease.h).  But the lease of a new session begins with the session's creation.  So if
 * no loss can follow from it, the next wish gets a new session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HEARTBEAT_H
#define ZKLOCK_HEARTBEAT_H

#include "lease.h"

#define ZKLOCK_NO_HEARTBEAT INT64_MAX

/* A server that sends nothing but heartbeats has a lease as long as no write takes longer,
 * in the unit of "timeout"; and one that has lapsed comes back.  Other writes bring
 * this up to 9/64 of the timeout: then four writes take as long as a lease lasts. */
#define ZKLOCK_SLOWEST_WRITE(timeout) ((timeout) / 100 * 7)

typedef struct ZkHeartbeat
{
	int64_t sent;		 /* the newest heartbeat; 0: none on this connection */
	bool open;			 /* ... and has no reply */
	int64_t counts_from; /* a write that is sent from then on counts */
	int64_t due;
	int64_t needed_at; /* there was need of them last */
	bool resting;	   /* none is sent */
	bool rested;	   /* ... and the lease was not good since */
} ZkHeartbeat;

/* The ns between heartbeats, about, in a session of this timeout, in ns. */
extern int64_t zklock_heartbeat_period(int64_t timeout);

/*
 * Returns for how many ns to send nothing on a connection that was made again: it was
 * asked for at "asked" and answered at "answered".  Servers that come back all at once
 * slow their ensemble down, and more if all send requests at once.  So the pause is a
 * random part of four times what the connection took.  It is no longer than a period
 * or 10 s, and never so long that a lease ends by it, or that an ended lease counts as
 * lost.  A connection with a shorter timeout, in ns, is used at once: the ensemble goes
 * by that timeout even if the connection ends before we use it.  "random" is any number.
 */
extern int64_t zklock_heartbeat_pause(const ZkLease *lease, int64_t timeout,
									  int64_t asked, int64_t answered, uint32_t random);

/*
 * Returns how many ns to wait between attempts to connect, or half of that at least:
 * "servers" servers come back at once when their ensemble does. 0 while a wait can cost
 * something: a grant counts until zklock_lease_lost_at.
 */
extern int64_t zklock_heartbeat_spread(const ZkLease *lease, int64_t now, int servers);

/*
 * Returns for how many ns one handle may try to connect before another handle resumes
 * the session, if no host was reached for "unreached" ns: as long as all handles before
 * it.  "timeout", ns, is the session's.
 */
extern int64_t zklock_heartbeat_patience(int64_t timeout, int64_t unreached);

/* A connection begins: a heartbeat is due. */
extern void zklock_heartbeat_connected(ZkHeartbeat *heartbeat, int64_t now);

/* A heartbeat was sent; it was answered, with any answer. */
extern void zklock_heartbeat_sent(ZkHeartbeat *heartbeat, int64_t now);
extern void zklock_heartbeat_answered(ZkHeartbeat *heartbeat);

/*
 * A write was acknowledged, perhaps a heartbeat.  Call zklock_lease_write first.
 * "random" is any number.  True: the write counts.
 */
extern bool zklock_heartbeat_written(ZkHeartbeat *heartbeat, const ZkLease *lease,
									 int64_t sent, int64_t acknowledged, uint32_t random);

/* Heartbeats are needed at the time "now". */
extern void zklock_heartbeat_need(ZkHeartbeat *heartbeat, int64_t now);

/* Has the lease lapsed since the server rested?  Then a new session is the shortest
 * way to a lease, if this session has nothing to lose. */
extern bool zklock_heartbeat_rested(ZkHeartbeat *heartbeat, const ZkLease *lease,
									int64_t now);

/* No new session is possible: the lease of this one has to be proven. */
extern void zklock_heartbeat_keep(ZkHeartbeat *heartbeat);

/* Returns when the next heartbeat is due; ZKLOCK_NO_HEARTBEAT while the server rests,
 * or while a heartbeat has no reply. */
extern int64_t zklock_heartbeat_due(ZkHeartbeat *heartbeat, const ZkLease *lease,
									int64_t now);

#endif /* ZKLOCK_HEARTBEAT_H */
