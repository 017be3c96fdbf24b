/*-------------------------------------------------------------------------
 *
 * ensemble.h
 *	  A model of a ZooKeeper ensemble and of connections to it, for simulators of rules
 *	  that read and write znodes.
 *
 * The leader's state is a history: each znode ever made stays, with the zxids of its
 * creation and its end, and so does each of its data.  So a server that lags is no more
 * than a zxid at which to look, and so is a reply: what it shows is what there was at its
 * view.
 *
 *	 requests --> c2s --(conn_apply)--> leader, or a server that lags --> s2c --> conn_receive
 *
 * Sending, applying and receiving are steps that the schedule picks at will; on each wire
 * the order is kept.  When a connection breaks, what is in c2s may still be done for a
 * while (zombies), and conn_receive says of each request that its outcome is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_ENSEMBLE_H
#define SIM_ENSEMBLE_H

#include "zk.h"

#include "harness.h"

#define MAX_WIRE  64
#define MAX_OPS	  9
#define MAX_JOINT 3
#define NEVER	  INT64_MAX
#define NOBODY	  0	   /* no session's: a persistent znode, or somebody's write */
#define ANY		  (-1) /* version */

/* The simulator says what its paths mean.  A kind is above 0; the root has all zeros. */
typedef struct Path
{
	int64_t kind;
	int64_t a;
	int64_t b;
} Path;

typedef struct Value
{
	int64_t mzxid;
	int32_t version;
	int len;
	const void *data;
	struct Value *older;
} Value;

typedef struct Znode
{
	Path path;
	int owner; /* session, or NOBODY */
	int64_t czxid;
	int64_t dzxid; /* NEVER while it is there */
	Value *value;  /* the newest */
	int64_t next;  /* number of a sequential child; children ever made */
	int nchildren; /* that are there */
	struct Znode *parent;
	struct Znode *child; /* the newest one ever made */
	struct Znode *older; /* child of the same parent */
	struct Znode *same;	 /* older one in the same bucket */
} Znode;

typedef enum OpType
{
	OP_CREATE,
	OP_DELETE,
	OP_SET
} OpType;

typedef struct Op
{
	OpType type;
	Path path;
	Path parent;	 /* CREATE */
	bool ephemeral;	 /* ... */
	bool sequential; /* ... the number becomes path.b */
	int32_t version; /* SET; or ANY */
	int len;
	const void *data; /* of zk_keep, or static */
} Op;

typedef enum PacketType
{
	WRITE, /* all ops, or none; without any, a heartbeat */
	READ,
	CHILDREN,
	SYNC,
	EVENT /* no request: a watch has fired */
} PacketType;

/* Who asks, for what. */
typedef struct Part
{
	int who;
	int at;
	uint64_t serial;
} Part;

/* A request, and its reply. */
typedef struct Packet
{
	PacketType type;
	bool watch;	   /* READ: the znode; CHILDREN: its children */
	bool children; /* EVENT: of these */
	bool silent;   /* from an earlier connection: no reply */
	Path path;	   /* READ, CHILDREN, EVENT */
	/* the simulator's: what it is, who asks, and more */
	int what;
	int who;
	int at;
	int detail;
	uint64_t serial;
	int nparts; /* several ask together, each with as many ops */
	Part part[MAX_JOINT];
	/* the reply */
	ZkReply rc;
	int failed; /* op that was refused, or -1 */
	int64_t view;
	int nops;
	Op op[MAX_OPS];
} Packet;

typedef struct Watch
{
	Path path;
	bool children;
	bool heard; /* its reply has come: the library sets it again on a new connection */
} Watch;

typedef struct Conn
{
	int session;
	bool up;
	bool cut;	  /* the server has hung up, as the session is over */
	bool deposed; /* it talks to a leader that has been deposed */
	int64_t view; /* the server's state */
	int64_t seen; /* newest state in a reply, as the library keeps */
	int nwatches;
	int nc2s;
	int ns2c;
	int nzombies;
	Watch watch[MAX_WIRE];
	Packet c2s[MAX_WIRE];
	Packet s2c[MAX_WIRE];
	Packet zombie[MAX_WIRE];
} Conn;

typedef struct Ensemble
{
	int64_t zxid;
	int64_t floor;	  /* no server is behind this */
	int nsessions;	  /* ever */
	int refuse_every; /* one request in so many is refused; 0: none */
	int lose_every;	  /* ... is done, and nobody knows; 0: none */
	bool lags;		  /* servers do */
	bool deposes;	  /* leaders are deposed */
	/* A write was done, by whatever connection, or refused: the simulator's checks. */
	void (*observe)(int session, const Packet *write);
} Ensemble;

extern Ensemble zk;

static inline bool
same_path(Path a, Path b)
{
	return a.a == b.a && a.b == b.b && a.kind == b.kind;
}

/* All is new, with the root. */
extern void zk_reset(void);

/* Did every fault happen?  A Simulator's "report". */
extern int zk_report(void);

/* Data that last as long as the schedule. */
extern const void *zk_keep(const void *data, int len);

/* What there was at a time; or NULL.  The children come newest first. */
extern Znode *zk_find(Path path, int64_t view);
extern Znode *zk_child(const Znode *parent, int64_t view);
extern Znode *zk_next(const Znode *child, int64_t view);
extern const Value *zk_value(const Znode *node, int64_t view);
extern int64_t zk_children_made(const Znode *node, int64_t view);

/* Who writes at the leader, by a connection or not. */
extern ZkReply zk_write(int session, Op *op, int n, int *failed);
extern void zk_make(Path path, Path parent);
extern void zk_delete(Path path); /* ... with all that is below it */
extern void zk_end_session(int session);
extern bool zk_lives(int session);

/* One connection. */
extern void conn_open(Conn *conn); /* ... of a new session */
extern void conn_reconnect(Conn *conn);
extern void conn_send(Conn *conn, const Packet *request);
extern bool conn_apply(Conn *conn);
extern bool conn_apply_zombie(Conn *conn);
extern bool conn_catch_up(Conn *conn);
extern void conn_depose(Conn *conn);
extern void conn_break(Conn *conn);
extern void conn_succeed(Conn *conn); /* when it is broken */
extern bool conn_receive(Conn *conn, Packet *reply);

#endif /* SIM_ENSEMBLE_H */
