/*-------------------------------------------------------------------------
 *
 * client.h
 *	  Runs one ZooKeeper session for a single-threaded program.
 *
 * The library works only inside the functions here, even the library with threads
 * (library_mt.c).  Its reports become messages.  None of the functions blocks, except
 * zklock_client_open and zklock_client_close (see there), and with TLS
 * zklock_client_receive, which waits for a handshake.  Strings passed in are copied.
 * client.c includes zookeeper.h and not postgres.h; this header includes neither.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_H
#define ZKLOCK_CLIENT_H

#include "tries.h"
#include "zk.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ZkClient ZkClient;

typedef enum ZkMessageType
{
	/* the session's life */
	ZKLOCK_MSG_CONNECTED,
	ZKLOCK_MSG_DISCONNECTED,
	ZKLOCK_MSG_EXPIRED,		/* the handle is dead: close it */
	ZKLOCK_MSG_AUTH_FAILED, /* the handle is dead: close it */
	/* replies */
	ZKLOCK_MSG_CREATED, /* path (with the sequence number, if any), czxid, zxid */
	ZKLOCK_MSG_DELETED,
	ZKLOCK_MSG_LISTED, /* children, nchildren, ncreated, zxid, czxid, ctime */
	ZKLOCK_MSG_GOT,	   /* czxid, zxid, ctime, mtime, ephemeral_owner, nchildren (its
						* number alone), ncreated, version, data, datalen */
	ZKLOCK_MSG_SET,	   /* zxid, version, mtime, datalen */
	ZKLOCK_MSG_ACL,	   /* path, open */
	ZKLOCK_MSG_MULTI,  /* children: for each op the name of the node that a CREATE made,
						* or ""; zxid, if there was a SET; refused: failed_op */
	ZKLOCK_MSG_SYNCED,
	ZKLOCK_MSG_UNWATCHED,
	/* watches: path */
	ZKLOCK_MSG_NODE_DELETED,	 /* uses up all watches on the path */
	ZKLOCK_MSG_CHILDREN_CHANGED, /* uses up that of a listing */
	ZKLOCK_MSG_NODE_CHANGED,	 /* uses up that of a get */
	/* the server has sent what it cannot mean (frame.h), and the connection is broken:
	 * DISCONNECTED follows.  Of an attempt a line of the log says so. */
	ZKLOCK_MSG_DAMAGED, /* data = what is wrong */
	/* a line of the library's log */
	ZKLOCK_MSG_LOG /* level, data = text */
} ZkMessageType;

/* Data that the caller gives with a request, and gets back with its reply. */
typedef struct ZkRequestTag
{
	uint32_t kind; /* the caller's */
	uint32_t entry;
	uint32_t generation;
	uint64_t uuid;
	uint64_t hash;
	uint64_t path;
} ZkRequestTag;

typedef struct ZkMessage
{
	ZkMessageType type;
	int rc;				 /* replies: ZooKeeper's code */
	ZkRequestTag tag;	 /* replies */
	int64_t sent_at;	 /* replies: ns of CLOCK_BOOTTIME at the call.  CONNECTED: not
						  * after the connection asked for its session */
	int64_t received_at; /* all: ns of CLOCK_BOOTTIME in the callback */
	char *path;
	int64_t czxid;
	int64_t zxid;  /* CREATED: czxid.  SET, MULTI: this transaction's.  GOT: of the newest
					* that wrote the node.  LISTED: that made or deleted a child */
	int64_t ctime; /* ms since 1970 */
	int64_t mtime; /* the same, of the newest write; by the leader's clock */
	int64_t ephemeral_owner;
	int32_t version; /* times that the data were written */
	char *data;		 /* NUL-terminated besides */
	int datalen;
	char **children;
	int nchildren;
	uint32_t ncreated;		/* children that were ever made there: the next one's
							 * sequence number */
	int failed_op;			/* the op for whose sake all were refused; -1: none */
	bool open;				/* anybody may do more than read */
	int level;				/* LOG: 1 error, 2 warning, 3 info, 4 debug */
	struct ZkMessage *next; /* client.c's */
} ZkMessage;

typedef enum ZkCreateMode
{
	ZKLOCK_CREATE_PERSISTENT,
	ZKLOCK_CREATE_PERSISTENT_SEQUENTIAL,
	ZKLOCK_CREATE_CONTAINER,
	ZKLOCK_CREATE_EPHEMERAL,
	ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL
} ZkCreateMode;

typedef enum ZkOpType
{
	ZKLOCK_OP_CREATE, /* path, data, mode, but no container */
	ZKLOCK_OP_DELETE, /* path, version */
	ZKLOCK_OP_SET	  /* path, data, version */
} ZkOpType;

/* One of several changes that the ensemble makes all at once, or not at all. */
typedef struct ZkOp
{
	ZkOpType type;
	const char *path;
	const char *data;
	int datalen;
	ZkCreateMode mode;
	int32_t version; /* of the node's data; -1: any */
} ZkOp;

/* Proves who we are: a scheme that the ensemble knows, and its data. */
typedef struct ZkCredential
{
	const char *scheme;
	const char *data;
	int len;
} ZkCredential;

#define ZKLOCK_MAX_CREDENTIALS 16

/*
 * Credentials are presented on each connection before anything else is asked;
 * if there are any, the first attempt's CONNECTED comes when the ensemble has accepted
 * them.  When they are refused later, AUTH_FAILED may come after CONNECTED.
 */
typedef struct ZkSecurity
{
	const ZkCredential *credentials;
	int ncredentials;
	bool creator;	 /* nodes that we create are ours alone */
	const char *tls; /* "ca,certificate,key" files; NULL: no TLS */
} ZkSecurity;

/* Returns the name and version of the library that we run with, "libzookeeper_st
 * 3.8.0"; without the version if the library does not say it. */
extern const char *zklock_client_library(void);

/* Does the library that we run with support TLS? */
extern bool zklock_client_has_tls(void);

/* Shall the library's debugging output become LOG messages, too?  For all clients. */
extern void zklock_client_log_debug(bool debug);

/*
 * Starts connecting.  "security" may be NULL: no credentials, no TLS, and nodes that
 * everybody may change.  "resume" is a session to resume, or NULL for a new one.
 * "timeout_ms" is the session timeout to ask for.  Names are resolved here, so with
 * names this can block on the resolver (see lookup.h); for other addresses, open
 * another client.  A client has ZKLOCK_CLIENT_FDS descriptors.  Returns NULL with errno
 * set if the connect string is unusable, no name in it resolves, or a resource is
 * missing; log lines up to then are lost, "error" (room errlen) says what happened.
 */
#define ZKLOCK_CLIENT_FDS 11

extern ZkClient *zklock_client_open(const char *hosts, int timeout_ms,
									const ZkSessionId *resume, const ZkSecurity *security,
									char *error, int errlen);

/*
 * Tells the client how to choose among several hosts, and when to give up an attempt.
 * "tries" is what is known about the hosts; it goes on from one client to the next.
 * "session_ends", ns, is when the session is over, 0 if there is none.  "patience", ns,
 * is how long the caller lets this client try to connect.  Call it before the first
 * attempt, and when the connection was lost.  Without it a client knows only what it
 * has met itself, and gives up no attempt before the library does, after two thirds of
 * the session timeout.
 */
extern void zklock_client_hosts(ZkClient *client, ZkTries *tries, int64_t session_ends,
								int64_t patience);

/* Sets the wait after all hosts have failed once more: about "ms", and at least half
 * of that.  Many servers may wait for the hosts to come back.  It holds until the
 * next call. 0, as at first: a wait that suits one server. */
extern void zklock_client_spread(ZkClient *client, int ms);

/* Readable when there is something to receive, or to do.  Call it before each wait:
 * it sends the requests that are not sent yet, now or when that can be done. */
extern int zklock_client_fd(ZkClient *client);

/*
 * Does the session's work, and returns the next message in order of arrival; NULL:
 * there is none.  The caller frees it.  Nothing is sent, not even a ping, and nothing
 * received, unless the caller calls it when the descriptor is readable.  Until the next
 * call of zklock_client_fd it may pass over what comes meanwhile.
 */
extern ZkMessage *zklock_client_receive(ZkClient *client);
extern void zklock_client_free_message(ZkMessage *message);

/* Is the connection up, as far as the library knows by now? */
extern bool zklock_client_connected(ZkClient *client);

/* A server told the client nonsense, and the client could not get rid of it in time.
 * It connects no more; call zklock_client_leave. */
extern bool zklock_client_spoilt(ZkClient *client);

/* The session, once connected; false before. */
extern bool zklock_client_session(ZkClient *client, ZkSessionId *session, int *timeout_ms);

/* "host:port" connected to, or being tried; "" if none. */
extern void zklock_client_server(ZkClient *client, char *buf, int buflen);

/*
 * Requests.  Each returns ZKLOCK_ZOK and will get exactly one reply message with the
 * tag; or it returns an error and will get none.  Requests made one after the other go
 * out, and are answered, in that order.
 *
 * They are accepted from the moment zklock_client_receive has returned CONNECTED until
 * it returns DISCONNECTED, EXPIRED or AUTH_FAILED; otherwise the result is
 * ZKLOCK_ZCONNECTIONLOSS.  Requests that are open at DISCONNECTED are answered before
 * the next CONNECTED; those that are open at EXPIRED or AUTH_FAILED may stay
 * unanswered.  The ensemble has not given such answers: whatever broke the connection,
 * their code is ZKLOCK_ZCONNECTIONLOSS, and they carry nothing else but the request and
 * the times.  No more than ZKLOCK_MAX_PENDING can be open at a time.
 */
#define ZKLOCK_MAX_PENDING 32768

extern uint64_t zklock_client_requests(void);		/* made so far by this process */
extern int zklock_client_pending(ZkClient *client); /* open requests */
extern int zklock_client_create(ZkClient *client, const char *path, const char *data,
								int datalen, ZkCreateMode mode, const ZkRequestTag *tag);
extern int zklock_client_delete(ZkClient *client, const char *path,
								const ZkRequestTag *tag);
extern int zklock_client_list(ZkClient *client, const char *path, bool watch,
							  const ZkRequestTag *tag);
extern int zklock_client_get(ZkClient *client, const char *path, bool watch,
							 const ZkRequestTag *tag);
/* "version": only if the data have this one, else ZKLOCK_ZBADVERSION; -1: in any case */
extern int zklock_client_set(ZkClient *client, const char *path, const char *data,
							 int datalen, int32_t version, const ZkRequestTag *tag);
extern int zklock_client_get_acl(ZkClient *client, const char *path,
								 const ZkRequestTag *tag);
extern int zklock_client_sync(ZkClient *client, const char *path, const ZkRequestTag *tag);
/*
 * Takes back the watch that a listing ("children") or a get has set on the path.  The
 * watch may fire meanwhile; that is no error.  ZKLOCK_ZNOWATCHER: nothing is watched
 * there, unless the request that sets the watch has no reply yet.
 */
extern int zklock_client_unwatch(ZkClient *client, const char *path, bool children,
								 const ZkRequestTag *tag);
/*
 * Does all of the ops, or none.  A create among several ops returns no Stat.  But the
 * czxid is the transaction's, which a SET beside it tells.  The ensemble hangs up on a
 * request of more bytes than its jute.maxbuffer, 1 MB unless it was set: the caller
 * takes care of that.
 */
extern int zklock_client_multi(ZkClient *client, const ZkOp *ops, int nops,
							   const ZkRequestTag *tag);

/*
 * Closes the session and frees the client: the ensemble deletes our ephemeral nodes at
 * once.  Waits until the server hangs up, for at most 3 s.  If the data do not go out,
 * that can take as long before.  When not connected, the session is left to time out.
 */
extern void zklock_client_close(ZkClient *client);

/*
 * The same without waiting.  After "begin" the caller may only ask whether the close
 * has come to its "end", which frees the client.  The descriptor becomes readable then,
 * or when there is work to do for the client.
 */
extern void zklock_client_close_begin(ZkClient *client);
extern bool zklock_client_close_end(ZkClient *client);

/*
 * Frees the client, and leaves the session to another one, which may be opened at once.
 * False: the client is connected, or has messages.
 */
extern bool zklock_client_leave(ZkClient *client);

#endif /* ZKLOCK_CLIENT_H */
