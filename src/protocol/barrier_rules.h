/*-------------------------------------------------------------------------
 *
 * barrier_rules.h
 *	  Meeting: one server's part in the rounds of one barrier, as a state machine.
 *
 * Everything here is pure: no postgres.h, no zookeeper.h, no allocation, no clock.  The
 * worker and the simulator (test/sim/barrier_sim.c) link the same object.
 *
 * A barrier is the directory <root>/barriers/<encoded name>.  Each party that has
 * arrived has an ephemeral sequential child there,
 *
 *	 party-<id>-<session>-<parties>-<sequence>
 *
 * The id is the call's: 128 random bits.  The session's mark is its server's.
 * "parties" is the number for which the party waits.  The directory's data are the
 * record of the rounds that were opened, the newest first: the number of each round,
 * and the ids of its members (barrier_text.h).  Nothing else writes these data.
 *
 * One multi() opens a round.  It sets the data, if they still have the version that was
 * read, and deletes the nodes of all members.  So
 *
 *	 - either all members are let go or none, even if some leave at that moment: a
 *	   party that has left has no node to delete;
 *	 - nobody is in two rounds, because a party has one node.  It is made again only
 *	   when a listing proves that there is none: neither one that is still to come,
 *	   nor one of an earlier session;
 *	 - a party that was let go learns it from the record, even if its session or its
 *	   server's connection has ended since;
 *	 - nobody needs to clean up.
 *
 * Any server that sees a full round opens it.  It has to see it in a listing that was
 * made after its own create, while the watch on the data, which it had set before, was
 * silent.  So the listing and the record show the same moment.  Take the parties that
 * are there and have not left: the one that filled the round lists after it has
 * arrived, and sees the round full.  If its multi fails, somebody has left or was
 * quicker, and it lists again.  So no full round stays closed for longer than that
 * party's session is silent and has not yet ended.
 *
 * Nobody watches the others arrive: the watch on the data fires once a round.
 *
 * The record keeps the newest rounds only.  A party that was away for so long that a
 * round may be missing is told so (ZKLOCK_PARTY_DOUBT), if it has no node any more.
 * This takes more than ZKLOCK_ROUNDS_KEPT rounds without it in that time.
 *
 * The first party's number of parties is the barrier's.  A party that names another
 * number leaves (ZKLOCK_PARTY_NUMBERS).
 *
 * A server that finds a record of a newer version opens no round, since that would
 * overwrite the record, and cannot read which of its parties were let go.  So its
 * parties leave (ZKLOCK_PARTY_NEWER).  A party whose node is gone by then may have been
 * let go: it is in doubt.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_RULES_H
#define ZKLOCK_BARRIER_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "barrier_text.h"
#include "protocol.h"

/*
 *	 state      its node                                leaves this state by
 *	 WANTED     it has none                             create
 *	 CREATING   a create is out                         its reply
 *	 UNSETTLED  perhaps, also of an earlier session     READ, LISTED
 *	 THERE      it has one                              READ; LISTED; delete
 *	 DELETING   a delete is out                         its reply; READ
 *	 OVER       none that it knows of                   -
 */
typedef enum ZkPartyState
{
	ZKLOCK_PARTY_WANTED,
	ZKLOCK_PARTY_CREATING,
	ZKLOCK_PARTY_UNSETTLED,
	ZKLOCK_PARTY_THERE,
	ZKLOCK_PARTY_DELETING,
	ZKLOCK_PARTY_OVER
} ZkPartyState;

typedef enum ZkPartyEnd
{
	ZKLOCK_PARTY_NONE,
	ZKLOCK_PARTY_OPENED,  /* let go with all others */
	ZKLOCK_PARTY_LEFT,	  /* as it was told to; it is in no round, for certain */
	ZKLOCK_PARTY_NUMBERS, /* the same: others wait for another number, "other" */
	ZKLOCK_PARTY_NEWER,	  /* the same: the record is of a newer version */
	ZKLOCK_PARTY_REFUSED, /* the ensemble did: "rc" */
	ZKLOCK_PARTY_DOUBT	  /* it may have been let go */
} ZkPartyEnd;

/* One call.  It is in shared memory, so that a new worker can go on with it. */
typedef struct ZkParty
{
	/* by who makes it */
	uint64_t id[2];
	int32_t parties;
	bool leave; /* set by him at any time: it is to leave, if it is not in a round */
	/* the protocol's, which begins with zeros */
	bool judged;	/* its number is good */
	bool gap;		/* rounds may be missing from the record since "round" */
	uint8_t reason; /* ZkPartyEnd, if it is to leave for that */
	ZkPartyState state;
	ZkPartyEnd end;	  /* OVER: what became of it */
	bool tried;		  /* a create was sent */
	int64_t sequence; /* THERE */
	uint32_t list;	  /* the first listing that shows its node */
	int64_t life;	  /* of the directory, and ... */
	int64_t round;	  /* ... it is in no round of this number or below */
	int32_t other;
	int rc;
} ZkParty;

typedef enum ZkBarrierEventType
{
	ZKLOCK_BARRIER_NEED, /* a party has come, or is to leave */
	/* the session's */
	ZKLOCK_BARRIER_CONNECTED, /* again, by the same handle */
	ZKLOCK_BARRIER_RESUMED,	  /* by a handle that has seen nothing; also a new session */
	ZKLOCK_BARRIER_DISCONNECTED,
	ZKLOCK_BARRIER_SESSION_LOST,
	ZKLOCK_BARRIER_TICK, /* a heartbeat was acknowledged */
	/* replies: rc */
	ZKLOCK_BARRIER_MADE_DIR,
	ZKLOCK_BARRIER_READ,	/* life, version, data, datalen */
	ZKLOCK_BARRIER_LISTED,	/* nodes, nnodes */
	ZKLOCK_BARRIER_CREATED, /* id, sequence */
	ZKLOCK_BARRIER_DELETED, /* id */
	ZKLOCK_BARRIER_OPENED,	/* NO_NODE: nothing was done, somebody was quicker */
	/* the watch on the data */
	ZKLOCK_BARRIER_CHANGED
} ZkBarrierEventType;

typedef struct ZkBarrierEvent
{
	ZkBarrierEventType type;
	ZkLockRc rc;
	int code; /* the ensemble's own, for people */
	uint64_t session;
	uint64_t id[2];
	int64_t sequence;
	int64_t life; /* czxid of the directory */
	int32_t version;
	const char *data;
	int datalen;
	const ZkPartyNode *nodes;
	int nnodes;
} ZkBarrierEvent;

typedef enum ZkBarrierActionType
{
	ZKLOCK_BARRIER_MAKE_DIR,
	ZKLOCK_BARRIER_READ_IT, /* with a watch; sync: after one */
	ZKLOCK_BARRIER_LIST,
	ZKLOCK_BARRIER_CREATE, /* party */
	ZKLOCK_BARRIER_DELETE, /* node; party, if somebody waits for the reply */
	ZKLOCK_BARRIER_OPEN	   /* version, data, datalen: set them; and delete nodes */
} ZkBarrierActionType;

typedef struct ZkBarrierAction
{
	ZkBarrierActionType type;
	bool sync;
	const ZkParty *party;
	const ZkPartyNode *nodes; /* DELETE: one */
	int nnodes;
	int32_t version;
	const char *data;
	int datalen;
} ZkBarrierAction;

/* One server's part in one barrier, while the server has parties there. */
typedef struct ZkBarrier
{
	bool connected;
	bool proven;  /* a heartbeat was acknowledged on this connection */
	bool fresh;	  /* nothing is read by this handle before a sync */
	bool known;	  /* what follows is the record, watched, and the watch is silent */
	bool reading; /* requests that are out */
	bool making;
	bool listing;
	bool opening;
	bool list_wanted;
	bool list_proven; /* the listing that is out was asked for after a heartbeat */
	bool read_proven; /* ... so was the record, or it will be told what is newer */
	bool await_tick;  /* after the next heartbeat there will be another look */
	bool newer;		  /* the record is of a newer version */
	int attempts;	  /* to make the directory */
	int ticks;
	uint32_t lists; /* listings so far */
	uint64_t session;
	int64_t life;
	int32_t version;
	int64_t newest; /* round; 0: none yet */
	int64_t oldest; /* ... in the record */
	int len;
	char text[ZKLOCK_ROUNDS_MAX];
	/* of a round that is being opened */
	int nmembers;
	ZkPartyNode member[ZKLOCK_BARRIER_PARTIES_MAX];
	char next[ZKLOCK_ROUNDS_MAX];
} ZkBarrier;

/* The requests to send, in this order. */
typedef void (*ZkBarrierSend)(void *arg, const ZkBarrierAction *action);

/*
 * Takes all parties of this server in this barrier; those that are OVER may be left
 * out.  Session events go to every barrier that has a party.
 */
extern void zklock_barrier_step(ZkBarrier *barrier, ZkParty **party, int n,
								const ZkBarrierEvent *event, ZkBarrierSend send, void *arg);

/* Begins.  "connected": whether the session is connected now. */
extern void zklock_barrier_init(ZkBarrier *barrier, uint64_t session, bool connected);

#endif /* ZKLOCK_BARRIER_RULES_H */
