/*-------------------------------------------------------------------------
 *
 * heartbeat.h
 *	  When a server has to write for its lease's sake.
 *
 * Pure, like lease.h, whose times it shares.  The worker asks it when the next heartbeat
 * is due, and tells it of every write that was acknowledged; the simulator of the lease
 * and the fleet's tool link the same object.
 *
 * While the lease is needed, a write comes every sixth of the session timeout, but at
 * least every 10 s: a heartbeat, if no other does.  Then each is the last witness
 * (lease.h) of the one three before it, and just before the next one 7/8 - 4/6, a fifth
 * of the timeout, is left for one that is slow.  Writes with more than a sixth between
 * them would leave less, those with less than an eighth are no witnesses of each other.
 * So a write counts, and puts the heartbeat off, if it was sent an eighth after the one
 * that counted before was acknowledged.  The sixth is up to 1/16 shorter or longer at
 * random, or all servers that came back together would write together for ever.
 *
 * Heartbeats are of use for more than the lease: they tell other servers what they say,
 * and whether the ensemble has gone back (history.h).  So every second timeout there is
 * one in any case.
 *
 * A lease that has lapsed, or is about to, comes back as soon as it can: a heartbeat goes
 * out when it is the next witness of the write that has most.
 *
 * A lease is needed while somebody holds, wants or leads something.  After two timeouts
 * without that the server rests: it lets the lease lapse, and its session lives on by the
 * library's pings.  What is wanted then would wait for a lease, which cannot be hurried:
 * the session may be one that the leader is about to expire (lease.h).  But that of a new
 * session begins with its creation.  So if nothing is left to be lost by that, the next
 * wish has a new session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HEARTBEAT_H
#define ZKLOCK_HEARTBEAT_H

#include "lease.h"

#define ZKLOCK_NO_HEARTBEAT INT64_MAX

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

/* ns between heartbeats in a session of this timeout, in ns, about. */
extern int64_t zklock_heartbeat_period(int64_t timeout);

/*
 * How long to ask for nothing on a connection that was made again, ns: asked for and
 * answered then.  Servers that come back all at once make their ensemble slow, and slower
 * if all ask at once.  So it is a random part of four times what the connection took, but
 * of no more than a period, and never so long that a lease ends by it, or one that has
 * ended counts as lost.  One with a shorter timeout, in ns, is used at once: the ensemble
 * goes by that even if the connection ends before it is used.  "random" is any number.
 */
extern int64_t zklock_heartbeat_pause(const ZkLease *lease, int64_t timeout,
									  int64_t asked, int64_t answered, uint32_t random);

/*
 * How long to wait between attempts to connect, ns, or half of it at least: "servers" of
 * them come back at once when their ensemble does.  0 while something can be lost by a
 * wait: what is held counts until zklock_lease_lost_at.
 */
extern int64_t zklock_heartbeat_spread(const ZkLease *lease, int64_t now, int servers);

/*
 * For how long one handle may try to connect before another resumes the session, ns, when
 * nobody was reached for "unreached" ns: as long as all handles before it.  "timeout",
 * ns, is the session's.
 */
extern int64_t zklock_heartbeat_patience(int64_t timeout, int64_t unreached);

/* A connection begins: a heartbeat is due. */
extern void zklock_heartbeat_connected(ZkHeartbeat *heartbeat, int64_t now);

/* A heartbeat was sent; it was answered, whatever the answer. */
extern void zklock_heartbeat_sent(ZkHeartbeat *heartbeat, int64_t now);
extern void zklock_heartbeat_answered(ZkHeartbeat *heartbeat);

/*
 * A write was acknowledged, perhaps a heartbeat: to be called after zklock_lease_write.
 * "random" is any number.  True: it counts.
 */
extern bool zklock_heartbeat_written(ZkHeartbeat *heartbeat, const ZkLease *lease,
									 int64_t sent, int64_t acknowledged, uint32_t random);

/* Heartbeats are needed at the time "now". */
extern void zklock_heartbeat_need(ZkHeartbeat *heartbeat, int64_t now);

/* Has the lease lapsed since the server rested?  A new session is the shortest way to one
 * then, if there is nothing to be lost in this one. */
extern bool zklock_heartbeat_rested(ZkHeartbeat *heartbeat, const ZkLease *lease,
									int64_t now);

/* There is no new session to be had: this one's lease has to be proven. */
extern void zklock_heartbeat_keep(ZkHeartbeat *heartbeat);

/* When the next heartbeat is due; ZKLOCK_NO_HEARTBEAT while the server rests, or one has
 * no reply. */
extern int64_t zklock_heartbeat_due(ZkHeartbeat *heartbeat, const ZkLease *lease,
									int64_t now);

#endif /* ZKLOCK_HEARTBEAT_H */
