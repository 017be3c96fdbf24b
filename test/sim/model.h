/*-------------------------------------------------------------------------
 *
 * model.h
 *	  A model of a ZooKeeper ensemble and of libzookeeper, for the simulator.
 *
 * The leader's state is a history: every node ever made stays in "nodes" with
 * the zxids of its creation and its end, so that a follower which lags behind
 * is no more than a zxid at which to look.  A connection is one server's (or
 * rather its worker's) session as the wire sees it:
 *
 *	 requests --> c2s --(conn_apply)--> leader/follower --> s2c --> conn_receive
 *
 * Sending, applying and receiving are separate steps that the schedule picks
 * at will; on each wire the order is kept.  When a connection breaks, what is
 * in c2s may still be applied for a while ("zombies"), and all replies not
 * received are replaced by ZKLOCK_RC_LOST.  Requests made while there is no
 * connection wait in "limbo", as libzookeeper keeps them, until the next
 * connection takes them or another failed attempt loses them.
 *
 * A ZooKeeper server may have kept a create that it was the only one to have, as it was
 * about to lead.  The leader never hears of that node, a phantom; a client of this
 * ZooKeeper server sees it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "protocol.h"

#include "harness.h"

#define MAX_SERVERS		 4
#define MAX_DIRS		 3
#define MAX_NODES		 4096
#define MAX_ALIVE		 64
#define MAX_SESSIONS	 256
#define MAX_INCARNATIONS 256
#define MAX_WATCHES		 64
#define MAX_WIRE		 256
#define MAX_MULTIS		 1024
#define MAX_PARTS		 (MAX_DIRS * (1 + ZKLOCK_NCONTENDERS))
#define NAME_LEN		 96

#define NEVER			 INT64_MAX
#define FOREIGN			 (-1) /* owner of a node that is nobody's of ours */

typedef struct Node
{
	char name[NAME_LEN];
	ZkLockChild child; /* parsed name */
	int dir;
	int owner; /* session, or FOREIGN */
	int64_t czxid;
	int64_t mzxid; /* newest setData, 0 if none */
	int64_t dzxid; /* NEVER while it exists */
	int64_t next;  /* number that the directory was to give after it */
	int64_t known; /* ... when its owner last read a listing with it */
	bool orphan;   /* landed after a deposed leader's listing, or is hidden behind a
					* foreigner's node that has its mark */
	bool forged;   /* made without the sequence flag */
	bool phantom;  /* in the tree of one ZooKeeper server, and not in the leader's */
} Node;

typedef struct Dir
{
	bool exists;
	bool container; /* reaped when empty */
	int nincarnations;
	int64_t made[MAX_INCARNATIONS];
	int64_t gone[MAX_INCARNATIONS];
	int64_t mzxid; /* newest setData, 0 if none */
	int64_t next_sequence;
} Dir;

typedef struct Session
{
	bool alive;
	uint64_t id; /* high half of its contenders' UUIDs */
	int64_t czxid;
} Session;

typedef struct Ensemble
{
	int64_t zxid;
	bool ancestors; /* <root>/locks exists */
	Dir dir[MAX_DIRS];
	int nnodes;
	int nalive;
	int nsessions;
	int alive[MAX_ALIVE];
	Session session[MAX_SESSIONS];
	Node node[MAX_NODES];
	int error_rate; /* one request in so many is refused; 0: none */
} Ensemble;

/* Several creates and deletes in one transaction. */
typedef struct Part
{
	ZkLockActionType type;
	int dir;
	int generation;
	uint64_t uuid;
	ZkLockMode mode;
	char name[NAME_LEN];
	int node; /* created or deleted */
} Part;

typedef struct Multi
{
	int set; /* whose */
	int n;
	Part part[MAX_PARTS];
	int failed; /* the part for whose sake it was refused */
} Multi;

typedef struct Request
{
	ZkLockActionType type;
	int multi; /* number of a transaction, which is all there is of the request, or -1 */
	int dir;
	int queue; /* that asks ... */
	int generation;
	uint64_t uuid;
	ZkLockMode mode;
	int permits;	/* CREATE: of so many; 0: a lock */
	bool ancestors; /* MAKE_DIR: it goes behind creates of what is above it */
	bool sync;
	bool watch;	 /* LIST: on the children, too */
	bool silent; /* from an earlier connection: no reply */
	bool orphan; /* a deposed leader has answered since */
	uint64_t list;
	uint64_t hash;
	char name[NAME_LEN]; /* of the child, where one is meant */
} Request;

typedef enum MessageType
{
	MESSAGE_REPLY,
	MESSAGE_WATCH,
	MESSAGE_CONNECTED,
	MESSAGE_DISCONNECTED
} MessageType;

typedef struct Message
{
	MessageType type;
	Request request; /* REPLY */
	ZkLockRc rc;
	int node;		 /* WATCH; REPLY to create and get; see children_watch */
	bool deleted;	 /* WATCH: else changed */
	bool marked;	 /* REPLY to get: it was written since it was made */
	int64_t zxid;	 /* state that the message tells of */
	int64_t next;	 /* REPLY to list: number that the directory will give next ... */
	int64_t changed; /* ... and when a child was made or deleted last */
	int nchildren;	 /* ... */
	int children[MAX_ALIVE];
} Message;

/* Watches on nodes are numbered by node; these are on a directory: on its children, and
 * on itself and its data. */
#define children_watch(dir)		 (-1 - (dir))
#define data_watch(dir)			 (-1 - MAX_DIRS - (dir))
#define is_dir_watch(watch)		 ((watch) < 0)
#define is_children_watch(watch) ((watch) < 0 && (watch) >= -MAX_DIRS)
#define dir_of_watch(watch)                                                              \
	(is_children_watch(watch) ? children_watch(watch) : data_watch(watch))

typedef struct Conn
{
	int session;
	bool up;
	bool deposed; /* talks to a leader that has been deposed */
	int64_t view; /* follower's state */
	int64_t seen; /* newest zxid in a reply, as the library keeps */
	bool strayed; /* its ZooKeeper server shows the phantoms of its session */
	int nwatches; /* at the server */
	int watch[MAX_WATCHES];
	int nregistered; /* in the library */
	int registered[MAX_WATCHES];
	int nc2s;
	int ns2c;
	int nzombies;
	int nlimbo;
	Request c2s[MAX_WIRE];
	Request zombie[MAX_WIRE];
	Request limbo[MAX_WIRE];
	Message s2c[MAX_WIRE];
} Conn;

typedef enum ReconnectKind
{
	RECONNECT_FENCED,  /* another server: old requests are refused */
	RECONNECT_STRAYED, /* the same, and it has kept creates that nobody else has */
	RECONNECT_SAME,	   /* the same server: old requests come first */
	RECONNECT_DEPOSED  /* a deposed leader: old requests may follow */
} ReconnectKind;

/* What must have happened at least once in a run; see coverage_name. */
typedef enum Coverage
{
	COVER_GRANT_SHARED,
	COVER_GRANT_EXCLUSIVE,
	COVER_GRANT_UPGRADE,
	COVER_GRANT_UNWANTED,
	COVER_DIRECT_HANDOVER,
	COVER_FORESEEN,
	COVER_BLOCKED,
	COVER_WITHDRAWN_CREATING,
	COVER_WITHDRAWN_WAITING,
	COVER_REVOKED,
	COVER_CREATE_LOST_DONE,
	COVER_CREATE_LOST_NOT_DONE,
	COVER_CREATE_LATE,
	COVER_ADOPTED,
	COVER_PHANTOM,
	COVER_PHANTOM_REFUSED,
	COVER_STRAYED,
	COVER_DELETE_LOST,
	COVER_DELETE_REFUSED,
	COVER_ORPHAN_MADE,
	COVER_ORPHAN_DELETED,
	COVER_ORPHANS_LEFT,
	COVER_DEADLOCK,
	COVER_SEQUENCE_LIMIT,
	COVER_REFUSED,
	COVER_NO_DIRECTORY_MET,
	COVER_NO_ANCESTORS_MET,
	COVER_DIR_EXISTED,
	COVER_REAPED,
	COVER_ADMIN_DELETED,
	COVER_REMADE,
	COVER_REMADE_GRANTED,
	COVER_REMADE_NOTICED,
	COVER_MIMICKED,
	COVER_MIMIC_REFUSED,
	COVER_REMOVED,
	COVER_FOREIGN_EXCLUSIVE,
	COVER_FOREIGN_SHARED,
	COVER_FORGED_PAST,
	COVER_FORGED_EQUAL,
	COVER_FORGED_FUTURE,
	COVER_FORGED_NEGATIVE,
	COVER_NUMBER_REFUSED,
	COVER_NUMBER_SHARED,
	COVER_NUMBER_REPEATED,
	COVER_NODE_CHANGED,
	COVER_WATCH_NO_NODE,
	COVER_WATCH_MISSED,
	COVER_STALE_LISTING,
	COVER_RECONNECT_GRANTED,
	COVER_RECONNECT_DEPOSED,
	COVER_LIMBO_CARRIED,
	COVER_LIMBO_LOST,
	COVER_EXPIRED_GRANTED,
	COVER_EXPIRED_CREATING,
	COVER_SESSION_ABANDONED,
	COVER_RESUMED_GRANTED,
	COVER_RESUMED_CREATING,
	COVER_FORGOTTEN,
	COVER_KEPT_HIT,
	COVER_KEPT_EVICTED,
	COVER_DEMANDED_KEPT,
	COVER_DEMANDED_BUSY,
	COVER_DEMAND_MISSED,
	COVER_HANDED_ON,
	COVER_UNDEMANDED,
	COVER_JOIN_BLOCKED,
	COVER_JOINED_SPENT,
	COVER_UPGRADE_QUEUED,
	COVER_UPGRADE_CIRCLE,
	COVER_PROBE_BLOCKED,
	COVER_PROBE_FREE,
	COVER_POLLED,
	COVER_SUCCEEDED,
	COVER_NOT_SUCCEEDED,
	COVER_DIR_GONE,
	COVER_DIR_DATA_CHANGED,
	COVER_SET_FAST,
	COVER_SET_GRANTED,
	COVER_SET_SHARED,
	COVER_SET_REPLACED,
	COVER_SET_ANEW,
	COVER_SET_REFUSED,
	COVER_SET_NO_DIRECTORY,
	COVER_SET_DELETE_GONE,
	COVER_SET_LOST_DONE,
	COVER_SET_LATE,
	COVER_SET_ADOPTED,
	COVER_SET_WITHDRAWN,
	COVER_SET_BLOCKED,
	COVER_SET_WAITS_FOR_SET,
	COVER_SET_TAKE_FAILED,
	COVER_KEPT_SPENT,
	NCOVERAGE
} Coverage;

extern Ensemble zk;
extern int nmultis;
extern Multi multis[MAX_MULTIS];

/* schedule.c's: a line of the trace, below the one that says what is tried */
extern void show_heading(void);
#define TRACE(...)                                                                       \
	do                                                                                   \
	{                                                                                    \
		if (tracing)                                                                     \
		{                                                                                \
			show_heading();                                                              \
			trace(__VA_ARGS__);                                                          \
		}                                                                                \
	} while (0)

/* the leader */
extern void zk_reset(void);
extern int zk_new_session(void);
extern void zk_expire(int session);
extern int zk_create(int dir, const char *prefix, int owner);
extern int zk_create_named(int dir, const char *name, int owner);
extern bool zk_step_back(int dir);
extern void zk_delete(int node);
extern void zk_change(int node);
extern int zk_remake(int node);
extern int zk_mimic(int node, int64_t sequence);
extern bool zk_is_remade(const Node *node, int64_t zxid);
extern int zk_find(int dir, const char *name);
extern int zk_find_token(int dir, int64_t czxid);
extern void zk_make_dir(int dir);
extern void zk_change_dir(int dir);
extern bool zk_dir_empty(int dir);
extern void zk_remove_dir(int dir);

/* one connection */
extern void conn_open(Conn *conn);
extern void conn_send(Conn *conn, const Request *request);
extern bool conn_apply(Conn *conn);
extern bool conn_apply_zombie(Conn *conn);
extern bool conn_catch_up(Conn *conn, int64_t steps);
extern void conn_break(Conn *conn);
extern void conn_reconnect(Conn *conn, ReconnectKind kind);
extern void conn_resume(Conn *conn, ReconnectKind kind);
extern bool conn_receive(Conn *conn, Message *message);
extern const char *request_name(ZkLockActionType type);

#endif /* SIM_MODEL_H */
