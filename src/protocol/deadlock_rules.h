/*-------------------------------------------------------------------------
 *
 * deadlock_rules.h
 *	  Finds the deadlocks across servers that this server's waits are in, and decides
 *	  whose wait has to end.
 *
 * Pure: no postgres.h, no zookeeper.h, no allocation, no clock.  The worker
 * (deadlock_worker.c) and the simulator (test/sim/deadlock_sim.c) drive it.
 *
 * Dependencies.  A waiting contender depends on each contender before it that is in its
 * way, or in the way of another that is in its way.  Any listing of the queue shows
 * these.  Two contenders for a permit are in each other's way if either asks for one of
 * one.  A grant depends on those waits of its own server for which the backend that has
 * it waits, or which are that backend's own.  Only the server knows these: each is an
 * edge, see deadlock_text.h.  A ring of such steps is a deadlock, because each step
 * needs everything that it depends on.
 *
 * Publish, then read.  A server writes all its edges into an ephemeral znode of its
 * own, <root>/waits/<high half of its UUIDs>.  When the ensemble has acknowledged that,
 * the server searches: from the wait's queue to the owners of the contenders in the
 * way, to their texts, to the queues that these name, and so on.  The server of a ring
 * that wrote last finds the edges of all others there.  So the last one's wait ends.
 * An edge's stamp is the zxid of the write that published it, and all readers agree on
 * that; of the edges of one write, the one with the larger number is later.  If several
 * edges lead from one step to the next, the oldest counts.
 *
 * Read twice.  The search reads one text after the other, and each may have changed
 * since.  So it reads a ring again after a pause, in which each server that has to
 * withdraw an edge has done so.  The ring must then consist of the same edges: an edge
 * has a number, and no other edge gets that number, even between the same two.  One
 * error remains: an edge that ended so recently that nobody could read its withdrawal.
 *
 * One ring hides another.  So after a ring that broke between the two readings the
 * search starts again.  After a ring in which another wait has to end the search runs
 * once more, only among the edges that are earlier than its own wait's.
 *
 * The search does not see these, and a path ends there: contenders of other programs
 * and of servers that publish nothing; edges beyond ZKLOCK_MAX_EDGES; steps beyond
 * ZKLOCK_MAX_FOLLOWED; and a wait for one of several permits where each of the holders
 * may make room, even if all of them wait for it.
 *
 * The caller performs what zklock_deadlock_next says until there is nothing to do, and
 * passes on each result.  One write and one read are open at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_RULES_H
#define ZKLOCK_DEADLOCK_RULES_H

#include "deadlock_text.h"
#include "protocol.h"

/* The most edges that a search follows, and the most contenders, of servers that
 * publish, in the way of one waiter. */
#ifndef ZKLOCK_MAX_FOLLOWED
#define ZKLOCK_MAX_FOLLOWED 256
#endif
#define ZKLOCK_MAX_IN_WAY  512
#define ZKLOCK_MAX_SERVERS 512

/* Steps of the longest ring that the search finds. */
#define ZKLOCK_MAX_RING 64

/* An edge of this server, as a look at its waits shows it. */
typedef struct ZkOwnEdge
{
	ZkWaitEdge edge; /* number and stamp are given by zklock_deadlock_look */
	uint64_t key;	 /* what was the same all the time has the same key in two looks */
	bool again;		 /* search again */
	bool sent;		 /* it is in the text that was written last */
} ZkOwnEdge;

/* An edge that a search has reached. */
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

/* Begins: not connected, and not knowing whether the znode is there.  "pause": see
 * above. */
extern void zklock_deadlock_init(ZkDeadlock *d, uint64_t session, int64_t pause);

/* Says whether requests may be sent from now on.  Open requests are lost. */
extern void zklock_deadlock_connected(ZkDeadlock *d, bool connected);

/*
 * Takes all present edges of this server; no two have the same key.  This session has
 * never given the numbers from "numbers" on; n of them are enough.  Returns how many it
 * gives.
 */
extern int zklock_deadlock_look(ZkDeadlock *d, const ZkOwnEdge *seen, int n,
								uint64_t numbers);

/* An edge of own[] has ended.  This changes the order of the others. */
extern void zklock_deadlock_drop(ZkDeadlock *d, int i);

/* Returns what the caller has to do. */
extern ZkDeadlockAct zklock_deadlock_next(ZkDeadlock *d, int64_t now);

/* Returns how long until there may be something to do; -1: not before an event. */
extern int64_t zklock_deadlock_due(const ZkDeadlock *d, int64_t now);

/* Returns the name to list, and its kind. */
extern const char *zklock_deadlock_name(const ZkDeadlock *d, ZkLockKind *kind);

/* --- replies; serial: as of when it was asked ------------------------------- */

/* Reply to CREATE, SET and DELETE. */
extern void zklock_deadlock_wrote(ZkDeadlock *d, ZkLockRc rc, int64_t zxid);

/* Reply to SERVERS: the names of the children. */
extern void zklock_deadlock_servers(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
									char *const *children, int n);

/* Reply to LIST: contenders only, in any order.  The function reorders them. */
extern void zklock_deadlock_listed(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
								   ZkLockChild *children, int n);

/* Reply to READ: "zxid" is that of the newest write. */
extern void zklock_deadlock_read(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
								 int64_t zxid, const char *text, size_t len);

#endif /* ZKLOCK_DEADLOCK_RULES_H */
