/*-------------------------------------------------------------------------
 *
 * deadlock_rules.h
 *	  Deadlocks that go through several servers: how one server finds those that its own
 *	  waits are in, and whose wait is to end.
 *
 * Pure: no postgres.h, no zookeeper.h, no allocation, no clock.  The worker
 * (deadlock_worker.c) and the simulator (test/sim/deadlock_sim.c) drive it.
 *
 * What depends on what.  A contender that waits depends on each before it that is in
 * its way, or in the way of one that is in its way: any listing of the queue says so.
 * Two that ask for a permit are in each other's way if either asks for one of one.
 * A grant depends on those waits of its own server for which the backend that has it
 * waits, or which are its own.  Only the server knows that: an edge, see deadlock_text.h.
 * A ring of such steps is a deadlock, since each needs all that it depends on.
 *
 * Publish, then read.  A server writes all its edges into an ephemeral znode of its
 * own, <root>/waits/<high half of its UUIDs>, and searches when that is acknowledged:
 * from the wait's queue to the owners of the contenders in the way, their texts, the
 * queues that these name, and so on.  Who of a ring wrote last finds all of the
 * others' there.  So it is the last one's wait that is ended: an edge's stamp is the
 * zxid of the write that made it known, which all who read it agree upon; of edges
 * that one write has brought, the one with the larger number.  Where several edges
 * lead from one step to the next the oldest counts.
 *
 * Twice.  Texts are read one after the other, and each may have changed since.  So a ring
 * is read again after a pause in which whoever has to withdraw an edge has done so, and
 * must consist of the same edges: an edge has a number, which is given to no other,
 * though it be between the same two.  What remains is an edge that ended so short a time
 * ago that its withdrawal was not to be read.
 *
 * One ring hides another.  So after one that was broken between the readings the search
 * begins anew; and after one in which it is another's turn once more, among those edges
 * alone that are earlier than its own wait's.
 *
 * What is not seen, and ends a path: contenders of other programs and of servers that
 * publish nothing, edges beyond ZKLOCK_MAX_EDGES, steps beyond ZKLOCK_MAX_FOLLOWED; and
 * a wait for one of several permits where each of the holders may make room, also if all
 * of them wait for it.
 *
 * The caller performs what zklock_deadlock_next says, again and again until there is
 * nothing to do, and hands over what comes of it.  One write and one read is out at a
 * time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_RULES_H
#define ZKLOCK_DEADLOCK_RULES_H

#include "deadlock_text.h"
#include "protocol.h"

/* Edges that a search follows, and contenders of servers that publish, in the way of one
 * that waits. */
#ifndef ZKLOCK_MAX_FOLLOWED
#define ZKLOCK_MAX_FOLLOWED 256
#endif
#define ZKLOCK_MAX_IN_WAY  512
#define ZKLOCK_MAX_SERVERS 512

/* Steps of the longest ring that is found. */
#define ZKLOCK_MAX_RING 64

/* An edge of this server, as a look at its waits finds it. */
typedef struct ZkOwnEdge
{
	ZkWaitEdge edge; /* number and stamp are given by zklock_deadlock_look */
	uint64_t key;	 /* what was the same all the time has the same key in two looks */
	bool again;		 /* search again */
	bool sent;		 /* it is in the text that was written last */
} ZkOwnEdge;

/* An edge that was come to in a search. */
typedef struct ZkFollowed
{
	uint64_t session; /* whose: high half of its UUIDs */
	char server[ZKLOCK_NAME_MAX + 1];
	ZkWaitEdge edge; /* with its stamp */
	int before;		 /* by which it was come to, -1: from the start */
} ZkFollowed;

typedef struct ZkContenderId
{
	uint64_t session;
	uint64_t uuid;
} ZkContenderId;

typedef enum ZkDeadlockAct
{
	ZKLOCK_DO_NOTHING,
	ZKLOCK_DO_CREATE, /* the znode, with own[] */
	ZKLOCK_DO_SET,	  /* the same, which is there */
	ZKLOCK_DO_DELETE,
	ZKLOCK_DO_SERVERS, /* list <root>/waits, behind a sync */
	ZKLOCK_DO_LIST,	   /* "at", whose name */
	ZKLOCK_DO_READ,	   /* the znode of "session" */
	ZKLOCK_DO_END	   /* ring[] is a deadlock: end the wait of the last one in it */
} ZkDeadlockAct;

typedef enum ZkNodeState
{
	ZKLOCK_NODE_NONE,
	ZKLOCK_NODE_THERE,
	ZKLOCK_NODE_UNKNOWN
} ZkNodeState;

typedef struct ZkDeadlock
{
	uint64_t session; /* ours */
	bool connected;

	/* what is published */
	int nown;
	ZkOwnEdge own[ZKLOCK_MAX_EDGES];
	ZkNodeState node;
	bool changed; /* since it was written */
	bool writing;
	bool made;			 /* its directory was missing, and has been made */
	ZkDeadlockAct write; /* that is out */

	/* the search */
	bool active;
	bool second;		/* reading */
	bool earlier;		/* edges alone, than the latest of the wait that it starts from */
	bool asked;			/* a reply is to come ... */
	uint32_t serial;	/* ... to this request */
	int64_t pause;		/* between the two readings */
	int64_t at_time;	/* the second begins no earlier */
	uint64_t contender; /* the wait that it starts from */
	int waiter;
	enum
	{
		ZKLOCK_SEARCH_SERVERS,
		ZKLOCK_SEARCH_LIST,
		ZKLOCK_SEARCH_READ
	} phase;
	int at;			/* whose wait: an index of followed[], -1: the start */
	uint64_t reads; /* READ: the session */
	int nservers;
	uint64_t server[ZKLOCK_MAX_SERVERS];
	int nin_way;
	ZkContenderId in_way[ZKLOCK_MAX_IN_WAY]; /* of "at"; those that were read are out */
	int nfollowed;
	ZkFollowed followed[ZKLOCK_MAX_FOLLOWED];
	bool closed; /* the ring: followed[] has one edge more, the last */
	int nring;
	ZkFollowed ring[ZKLOCK_MAX_RING];
} ZkDeadlock;

/* Not connected; whether the znode is there is not known.  "pause": see above. */
extern void zklock_deadlock_init(ZkDeadlock *d, uint64_t session, int64_t pause);

/* Requests may be sent from now on, or not any more: what was out is lost. */
extern void zklock_deadlock_connected(ZkDeadlock *d, bool connected);

/*
 * All edges of this server as of now, no two with one key.  "numbers": those from there
 * on were never given in this session, and n are enough.  Returns how many are given.
 */
extern int zklock_deadlock_look(ZkDeadlock *d, const ZkOwnEdge *seen, int n,
								uint64_t numbers);

/* An edge of own[] has ended; the order of the others changes. */
extern void zklock_deadlock_drop(ZkDeadlock *d, int i);

/* What is to be done. */
extern ZkDeadlockAct zklock_deadlock_next(ZkDeadlock *d, int64_t now);

/* How long until something may be; -1: not before something happens. */
extern int64_t zklock_deadlock_due(const ZkDeadlock *d, int64_t now);

/* What is to be listed: the name and its kind. */
extern const char *zklock_deadlock_name(const ZkDeadlock *d, ZkLockKind *kind);

/* --- replies; serial: as of when it was asked ------------------------------- */

/* Of CREATE, SET and DELETE. */
extern void zklock_deadlock_wrote(ZkDeadlock *d, ZkLockRc rc, int64_t zxid);

/* Of SERVERS: the names of the children. */
extern void zklock_deadlock_servers(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
									char *const *children, int n);

/* Of LIST: contenders only, in any order, which changes. */
extern void zklock_deadlock_listed(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
								   ZkLockChild *children, int n);

/* Of READ: "zxid" is that of the newest write. */
extern void zklock_deadlock_read(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
								 int64_t zxid, const char *text, size_t len);

#endif /* ZKLOCK_DEADLOCK_RULES_H */
