/*-------------------------------------------------------------------------
 *
 * lease_model.h
 *	  A model of time, of ZooKeeper's session tracking and of the zklock worker,
 *	  for the simulator of the lease.
 *
 * True time is ns since the start of the schedule.  Every machine has a clock
 * of its own, which starts anywhere and runs up to so many millionths fast or
 * slow.  Whatever happens, happens because a timer fires; a timer belongs to a
 * thread, and while that is paused the timer's event waits.  When the thread
 * resumes, all that has waited happens in any order, within "race" ns.
 *
 * Streams are TCP connections, one direction each: in order, delayed, held
 * while the link is cut or the reader is paused.
 *
 *	 backends   reads the lease and the clock, claims
 *	 worker     the main loop: heartbeats, lease.c
 *	 library    libzookeeper: sends, receives, pings, reconnects
 *	   |  ^
 *	 server     a follower, the leader, or an observer: 3 that vote, and 1
 *	   |  ^
 *	 follower   as an observer's master: a ping every half tick
 *	   |  ^
 *	 leader     expiry buckets, proposals, a ping every half tick
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_LEASE_MODEL_H
#define SIM_LEASE_MODEL_H

#include "lease.h"

#include "harness.h"

typedef int64_t Time;

#define MS			 INT64_C(1000000)
#define NEVER		 INT64_MAX

#define NVOTERS		 3
#define OBSERVER	 NVOTERS /* the server that does not vote, if there is one */
#define NSERVERS	 (NVOTERS + 1)
#define QUORUM		 2
#define NCLIENTS	 2 /* zklock servers */
#define NNODES		 (NSERVERS + NCLIENTS)
#define MAX_SESSIONS 32
#define NFAULTS		 3 /* at a time */

/* Threads that are paused on their own.  A server is one thread: SIGSTOP. */
#define UNIT_SERVER	 0
#define UNIT_LIBRARY (UNIT_SERVER + NSERVERS)
#define UNIT_WORKER	 (UNIT_LIBRARY + NCLIENTS)
#define UNIT_BACKEND (UNIT_WORKER + NCLIENTS)
#define NUNITS		 (UNIT_BACKEND + NCLIENTS)

/* Between servers, then client to server, then server to client. */
#define STREAM_PEER(from, to) ((from) *NSERVERS + (to))
#define STREAM_C2S			  (NSERVERS * NSERVERS)
#define STREAM_S2C			  (STREAM_C2S + NCLIENTS)
#define NSTREAMS			  (STREAM_S2C + NCLIENTS)
#define STREAM_MAX			  1024

#define TIMER_STREAM		  0
#define TIMER_PING			  (TIMER_STREAM + NSTREAMS) /* the leader's loop */
#define TIMER_EXPIRY		  (TIMER_PING + NSERVERS)	/* its session tracker */
#define TIMER_CLOSING		  (TIMER_EXPIRY + NSERVERS) /* ... in the midst of a bucket */
#define TIMER_PEER			  (TIMER_CLOSING + NSERVERS) /* follower's read, election */
#define TIMER_LIBRARY		  (TIMER_PEER + NSERVERS)
#define TIMER_WORKER		  (TIMER_LIBRARY + NCLIENTS)
#define TIMER_BACKEND		  (TIMER_WORKER + NCLIENTS)
#define TIMER_FAULT			  (TIMER_BACKEND + NCLIENTS)
#define TIMER_PHASE			  (TIMER_FAULT + NFAULTS)
#define NTIMERS				  (TIMER_PHASE + 1)

typedef enum MessageType
{
	/* client to server, and back */
	M_CONNECT,
	M_CONNECTED,
	M_EXPIRED,
	M_REQUEST,
	M_REPLY,
	/* server to server */
	M_FORWARD, /* follower's REQUEST */
	M_REVALIDATE,
	M_REVALIDATED,
	M_PROPOSAL,
	M_ACK,
	M_COMMIT,
	M_PING,
	M_TOUCHES, /* the answer to it */
	M_EOF
} MessageType;

typedef enum RequestKind
{
	REQUEST_READ,
	REQUEST_PING,
	REQUEST_WRITE,
	REQUEST_HEARTBEAT, /* a write too */
	REQUEST_CREATE,	   /* of a session */
	REQUEST_CLOSE	   /* of a session that has expired */
} RequestKind;

typedef struct Message
{
	MessageType type;
	RequestKind kind;
	int client;
	int serial; /* of the client's connection */
	int origin; /* server that the client talks to */
	int session;
	bool good;
	bool longer; /* goes by longer_timeout */
	uint32_t touches;
	uint32_t longer_touches;
	int64_t proposal;
	Time arrival;
} Message;

typedef struct Stream
{
	bool open;
	int from; /* nodes: servers, then clients */
	int to;
	int head;
	int count;
	Time last; /* arrival of the newest */
	Message ring[STREAM_MAX];
} Stream;

typedef struct Session
{
	int client;
	bool made;	 /* its creation has been committed */
	bool longer; /* ... with longer_timeout */
	Time made_at;
	Time expired;	/* at the true leader; NEVER: lives */
	Time claim_end; /* latest end of a lease published, client's clock; 0: none */
} Session;

/* The client's connection as its server sees it. */
#define CONN_QUEUE 1024
typedef struct Conn
{
	int server; /* -1: none */
	int serial;
	bool attached; /* session is valid there */
	bool longer;   /* negotiated: longer_timeout */
	int session;
	int head;
	int count; /* requests not answered, in order */
	RequestKind queue[CONN_QUEUE];
} Conn;

/* Moments that a fault can wait for. */
typedef enum Point
{
	POINT_TIME,
	POINT_HEARTBEAT,	 /* worker sent one */
	POINT_WRITE_ACKED,	 /* library got an acknowledgement */
	POINT_PUBLISHED,	 /* worker published a later end */
	POINT_FORWARDED,	 /* follower forwarded a write */
	POINT_PROPOSED,		 /* leader proposed our write */
	POINT_COMMIT,		 /* leader committed our write */
	POINT_PING_DUE,		 /* leader is about to ping */
	POINT_PING_SENT,	 /* leader has pinged */
	POINT_PING_ANSWERED, /* follower has answered */
	POINT_TOUCHED,		 /* leader has renewed our session */
	POINT_DOOMED,		 /* ... whose bucket it has taken */
	POINT_RESUMED,		 /* another fault ended */
	NPOINTS
} Point;

typedef enum FaultKind
{
	FAULT_PAUSE_LEADER,
	FAULT_PAUSE_FOLLOWER,
	FAULT_PAUSE_PROCESS, /* library and worker */
	FAULT_PAUSE_LIBRARY,
	FAULT_PAUSE_WORKER,
	FAULT_PAUSE_BACKEND,
	FAULT_CUT_FOLLOWER, /* from the other servers */
	FAULT_CUT_LEADER,	/* from the other servers */
	FAULT_CUT_CLIENT,	/* from all servers */
	FAULT_ONE_WAY,		/* one direction of some link */
	FAULT_SLOW,			/* some node's links */
	FAULT_KILL_LEADER,
	FAULT_KILL_FOLLOWER,
	FAULT_DISCONNECT,
	FAULT_NO_HEARTBEATS,
	FAULT_WORKER_DIES,
	FAULT_OLD_STATE, /* the ensemble comes back with less than it had */
	NFAULT_KINDS
} FaultKind;

/* What must have happened at least once in a run; see coverage_name. */
typedef enum Coverage
{
	COVER_LEASE_PROVEN,
	COVER_LEASE_LAPSED,
	COVER_LEASE_BACK,
	COVER_LEASE_LATE,
	COVER_CLAIM,
	COVER_CLAIM_REFUSED,
	COVER_CLAIM_OLD_READ,
	COVER_EXPIRED,
	COVER_EXPIRED_LEASE_ENDING,
	COVER_EXPIRED_RACE,
	COVER_EXPIRED_UNHEARD,
	COVER_EXPIRED_BY_DEPOSED,
	COVER_HANDOVER,
	COVER_TOUCH_SWALLOWED,
	COVER_TOUCH_DOOMED,
	COVER_REVALIDATED_DOOMED,
	COVER_WRITE_DOOMED,
	COVER_WRITE_REFUSED,
	COVER_READ_CUT_OFF,
	COVER_READ_DEPOSED,
	COVER_READ_EXPIRED,
	COVER_RECONNECTED,
	COVER_RECONNECTED_DEPOSED,
	COVER_NEW_SESSION,
	COVER_LEADER_CHANGED,
	COVER_LEADER_DEPOSED,
	COVER_LEADER_STEPPED_DOWN,
	COVER_FOLLOWER_LEFT,
	COVER_LEARNER_DROPPED,
	COVER_DIRECT, /* client connected to the leader */
	COVER_OBSERVED,
	COVER_OBSERVED_BY_MASTER,
	COVER_TOUCH_RELAYED,
	COVER_LONGER_CREATED,
	COVER_LONGER_NEGOTIATED,
	COVER_CREATED_AGAIN,
	COVER_FORGOTTEN,
	COVER_HURRIED,
	COVER_RESTED,
	COVER_RENEWED,
	COVER_PAUSED,
	COVER_RECOVERED,
	COVER_CALM,
	NCOVERAGE
} Coverage;

/* A line of the trace, with the time. */
#define TRACE(format, ...)                                                               \
	TRACE_LINE("%8.4f " format, (double) now / (double) timeout, ##__VA_ARGS__)

/* lease_sim.c: the schedule's faults, its invariant */
extern void point(Point where);
extern void session_expired(int session);
extern void claim_published(int session);
extern void claim_made(int session);

/* lease_time.c: clocks, timers, pauses, streams */
extern Time now;
extern Time tick;	 /* ns, as configured */
extern Time timeout; /* of a session, unless a server asks for more */
extern Time longer_timeout;
extern int sync_limit;
extern Time race;
extern Time dawdle; /* of a session tracker, until it comes to a session of its bucket */
extern Stream stream[NSTREAMS];
extern int cut[NNODES][NNODES];
extern Time slow[NNODES][NNODES];
extern int paused[NUNITS];
extern Time resumed[NUNITS]; /* when last */
extern int quiet[NCLIENTS];	 /* no heartbeats */

extern void time_reset(int skew);
extern Time random_time(Time below);
extern Time clock_of(int node);
extern Time true_time(int node, Time clock); /* when that clock shows this */
extern Time true_span(int node, Time span);
extern void timer_set(int timer, Time at);
extern void timer_off(int timer);
extern int timer_next(void);
extern void unit_pause(int unit);
extern void unit_resume(int unit);
extern void link_cut(int from, int to);
extern void link_heal(int from, int to);
extern void stream_open(int id, int from, int to);
extern void stream_close(int id);
extern void stream_send(int id, const Message *message);
extern bool stream_readable(int id);
extern Message stream_receive(int id);

/* lease_zk.c: the ensemble */
extern Session session[MAX_SESSIONS];
extern int nsessions;
extern Conn conn[NCLIENTS];
extern int true_leader;
extern int observers; /* OBSERVERS_... */
extern bool growing;  /* a server may come back with a larger minSessionTimeout */

#define NO_OBSERVERS	 0
#define OBSERVERS		 1 /* of the leader */
#define OBSERVERS_MASTER 2 /* of a follower: observerMasterPort */

extern void zk_reset(void);
extern void zk_forget(Time since);
extern bool zk_quiet(void);
extern int zk_leader_of(int server); /* -1: it follows nobody */
extern Time session_timeout(bool longer);
extern void zk_kill(int server, Time down);
extern void zk_restart(int server);
extern void zk_message(int id, const Message *message);
extern void zk_ping_timer(int server);
extern void zk_expiry_timer(int server);
extern void zk_closing_timer(int server);
extern void zk_peer_timer(int server);
extern void zk_disconnect(int client);

/* lease_client.c: zklock */
extern Time lease_end[NCLIENTS]; /* in shared memory */
extern int lease_session[NCLIENTS];
extern bool settling;	  /* faults have ended, and all need a lease */
extern bool calm;		  /* faults have ended some time ago */
extern double calm_least; /* timeouts left, right before it was renewed */

extern void client_reset(void);
extern void client_message(int client, const Message *message);
extern void library_timer(int client);
extern void worker_timer(int client);
extern void backend_timer(int client);
extern void worker_dies(int client, Time down);
extern void worker_restarts(int client);
extern bool client_has_lease(int client);

#endif /* SIM_LEASE_MODEL_H */
