/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  Computes until when this server may believe in its grants.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  The worker feeds it
 * with what the ensemble acknowledged; the simulator (test/sim) links the same object.
 * All times are ns of CLOCK_BOOTTIME.
 *
 * The ensemble gives our locks to other servers when it has not heard from our session
 * for the session timeout.  We do not learn of that while we are paused or cut off.  So
 * a claim is good until
 *
 *		send time of acknowledged write m + 7/8 of the session timeout.
 *
 * m is the newest write with three later writes, its witnesses, that were acknowledged
 * on the same connection: n, sent at least 1/8 of the timeout after m's acknowledgement
 * arrived; o, sent at least 1/8 after n's; and p, sent at least 1/16 after o's.  If the
 * lease has lapsed by p's acknowledgement, m needs a fourth: q, sent at least 1/16 after
 * that.
 *
 * Why m alone is not enough: a write that is forwarded to the leader does not renew the
 * session there.  Only our server's answer to the leader's next ping does
 * (LearnerHandler.run, PING).  There is a ping every half tick, a tenth of the timeout,
 * so before the leader acknowledges n.  Our server gets the ping before that
 * acknowledgement, and answers with m's touch before it forwards o.  So when the leader
 * acknowledges o it has m's touch, however slow the network is.
 *
 * Why p: a leader that was paused has missed that ping.  It acknowledges n as it resumes,
 * before it pings again or even looks at the sessions that have expired meanwhile.  Ours
 * may be one of these if we were silent before m.  A pause takes away one witness; so the
 * rule bears one pause.
 *
 * Why q: if the lease has lapsed, m's touch may come too late.  The leader's session
 * tracker takes all sessions of a tick that are due to expire, and then marks one after
 * the other as closing (SessionTrackerImpl.run).  With thousands of sessions this takes a
 * while.  A session that is not marked yet is renewed by any request, and may write, and
 * is closed all the same.  If the leader is paused just there, it acknowledges p as it
 * resumes, before it marks our session.  In the 1/16 before q it runs, and reaches our
 * session: then it refuses q.  While the lease is good, our session is not due, and no
 * touch comes too late.
 *
 * Our server may be an observer whose master is a follower (observerMasterPort), and
 * then it takes two rounds of pings.  The follower's ping reaches our server within half
 * a tick of m; or, if one of the two was paused, when it resumes, and acknowledges n.
 * The leader's ping, which takes the touch along, is up to half a tick later: before o,
 * or if the leader was paused, before p.  If the network is slow at the same time, it
 * may be later still.
 *
 * So a session has to last 5 ticks, and 8 behind an observer's master.  No client can
 * see the ensemble's tick, or its server's master: doc/failures.md says so.
 * test/spec/lease.pml has the rule, and Spin has searched all of it but for the master;
 * test/sim/lease_sim.c plays both.
 *
 * A new connection of the session is as good as m, and better: our server asks the
 * leader before it answers us, and the leader renews the session (LearnerHandler,
 * REVALIDATE; through an observer's master, too).  It counts from the moment before we
 * asked.  A write on that connection proves that the server that answered still led: a
 * server that loses its leader breaks its connections.
 *
 *	 - If the lease was good when the answer came, the first acknowledged write on
 *	   that connection is enough.
 *	 - If the lease had lapsed, that is not enough, for the reason why q is needed.  So
 *	   there are two witnesses: one sent 1/16 of the timeout after the answer, and one
 *	   sent 1/16 after the acknowledgement of the first.
 *
 * The creation of a session needs no witness.
 *
 * The timeout is the shortest that was negotiated in the session.  A server that is
 * asked to go on with a session may set a longer one, by its own minSessionTimeout
 * (ZooKeeperServer.processConnectRequest).  No server writes this down: the next leader
 * goes by the timeout with which the session was created (CreateSessionTxn,
 * SessionTrackerImpl), and that was the first.
 *
 * The last eighth is for clocks that run up to 5 % too fast or too slow.
 *
 * From the newest acknowledged write's send time plus a full timeout on, another server
 * may have our locks, whatever else we know.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_H
#define ZKLOCK_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* Writes that may yet be proven.  They are at least 1/64 of the timeout apart. */
#define ZKLOCK_LEASE_WRITES 32

typedef struct ZkLeaseWrite
{
	int64_t sent;
	int64_t next; /* the next witness is a write sent no earlier than this */
	int witnesses;
} ZkLeaseWrite;

typedef struct ZkLease
{
	int64_t timeout;	/* session timeout, ns; 0: no session */
	int64_t proven;		/* send time of m; 0: none */
	int64_t last_write; /* send time of the newest acknowledged write; 0: none */
	int nwrites;		/* of this connection, oldest first */
	ZkLeaseWrite write[ZKLOCK_LEASE_WRITES];
} ZkLease;

/* No session, no lease. */
extern void zklock_lease_init(ZkLease *lease);

/*
 * A new session.  Its creation is a quorum write that sets the full timeout at the
 * leader.  So it is a lease by itself, counted from "opened", the moment when we asked
 * for it.
 */
extern void zklock_lease_new_session(ZkLease *lease, int64_t timeout, int64_t opened);

/*
 * A new connection of the same session, in this process or a successor, with this
 * negotiated timeout.  Proven writes stay proven.  We asked for the connection at
 * "asked" or later; "answered" is not before its answer came.
 */
extern void zklock_lease_new_connection(ZkLease *lease, int64_t timeout, int64_t asked,
										int64_t answered);

/* The ensemble acknowledged (ZOK) a create, delete or setData. */
extern void zklock_lease_write(ZkLease *lease, int64_t sent, int64_t acknowledged);

/* The same, but the ensemble may have gone back (history.h).  The write counts for
 * zklock_lease_lost_at alone.  Call zklock_lease_write when the connection is admitted. */
extern void zklock_lease_heard(ZkLease *lease, int64_t sent);

/* Claims are good before this time; 0: not at all. */
extern int64_t zklock_lease_end(const ZkLease *lease);

/* From this time on all grants count as lost, unless a write is acknowledged before;
 * 0: they do now. */
extern int64_t zklock_lease_lost_at(const ZkLease *lease);

#endif /* ZKLOCK_LEASE_H */
