/*-------------------------------------------------------------------------
 *
 * client.h
 *	  One ZooKeeper session, seen from a single-threaded program.
 *
 * What the library does it does in the functions here, also the one with threads
 * (library_mt.c); what it has to say is turned into messages.  None of the functions
 * blocks, except zklock_client_open and zklock_client_close (see there), and where TLS is
 * used zklock_client_receive, which waits for a handshake.  Strings passed in are copied.
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
	ZKLOCK_MSG_SET,	   /* zxid, version, mtime */
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

/* What a request hands over to be given back with its reply. */
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

/* One of several changes that the ensemble makes all at once, or none of them. */
typedef struct ZkOp
{
	ZkOpType type;
	const char *path;
	const char *data;
	int datalen;
	ZkCreateMode mode;
	int32_t version; /* of the node's data; -1: any */
} ZkOp;

/* How to prove who we are: a scheme that the ensemble knows, and its data. */
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

/* The library that we run with and its version, "libzookeeper_st 3.8.0"; without the
 * version where it does not say that. */
extern const char *zklock_client_library(void);

/* Can the library that we run with do TLS? */
extern bool zklock_client_has_tls(void);

/* Are LOG messages to be made of the library's debugging output, too?  For all
 * clients. */
extern void zklock_client_log_debug(bool debug);

/*
 * Start connecting.  "security" may be NULL: no credentials, no TLS, and nodes
 * that everybody may change.  "resume" is a session to resume, or NULL for a new one.
 * "timeout_ms" is the session timeout to ask for.  Names are resolved here, so where
 * there are some this can block on the resolver (see lookup.h); for other addresses
 * another client is opened.  A client has ZKLOCK_CLIENT_FDS descriptors.  Returns NULL
 * with errno set when the connect string is unusable, no name in it resolves, or
 * something that it takes cannot be had; log lines up to then are lost, "error" (room
 * errlen) says what happened.
 */
#define ZKLOCK_CLIENT_FDS 11

extern ZkClient *zklock_client_open(const char *hosts, int timeout_ms,
									const ZkSessionId *resume, const ZkSecurity *security,
									char *error, int errlen);

/*
 * By what the client chooses among several hosts, and gives up an attempt: "tries" is what
 * is known of them, and goes on from one client to the next; "session_ends", ns, is when
 * the session is over, 0 if there is none; "patience", ns, is for how long the caller will
 * leave it to this client to connect.  To be called before the first attempt, and when
 * the connection was lost.  Without it a client knows what it has met itself, and gives up
 * no attempt before the library does, after two thirds of the session timeout.
 */
extern void zklock_client_hosts(ZkClient *client, ZkTries *tries, int64_t session_ends,
								int64_t patience);

/* Wait for "ms" about, and half of that at least, whenever all hosts have failed once
 * more: many may wait for them to come back.  It holds until it is called again.  0, as
 * at first: as long as seems good for one. */
extern void zklock_client_spread(ZkClient *client, int ms);

/* Readable when there is something to receive, or to do.  To be called before each wait:
 * it sends what was asked and is not sent yet, now or when that can be. */
extern int zklock_client_fd(ZkClient *client);

/*
 * Do what the session has to do, and return the next message in order of arrival; NULL:
 * there is none.  The caller frees it.  Unless it is called when the descriptor is
 * readable nothing is sent, no ping either, and nothing received.
 */
extern ZkMessage *zklock_client_receive(ZkClient *client);
extern void zklock_client_free_message(ZkMessage *message);

/* Is the connection up, as far as the library knows by now? */
extern bool zklock_client_connected(ZkClient *client);

/* It was told nonsense, which it has not seen through in time: it connects no more, and
 * is to be left, zklock_client_leave. */
extern bool zklock_client_spoilt(ZkClient *client);

/* The session, once connected; false before. */
extern bool zklock_client_session(ZkClient *client, ZkSessionId *session, int *timeout_ms);

/* "host:port" connected to, or being tried; "" if none. */
extern void zklock_client_server(ZkClient *client, char *buf, int buflen);

/*
 * Requests.  Each returns ZKLOCK_ZOK and will be answered by exactly one
 * reply message with the tag, or returns an error and will not.  Requests
 * made one after the other go out, and are answered, in that order.
 *
 * They are accepted from the moment zklock_client_receive has returned
 * CONNECTED until it returns DISCONNECTED, EXPIRED or AUTH_FAILED; otherwise
 * the result is ZKLOCK_ZCONNECTIONLOSS.  What is open at DISCONNECTED is answered
 * before the next CONNECTED; what is open at EXPIRED or AUTH_FAILED may stay
 * unanswered.  Such answers were not given by the ensemble: whatever broke the
 * connection, their code is ZKLOCK_ZCONNECTIONLOSS, and nothing else is set but what the
 * request was, and the times.  No more than ZKLOCK_MAX_PENDING can be open at a time.
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
 * Take back the watch that a listing ("children") or a get has set on the path.  That it
 * fires meanwhile is no error.  ZKLOCK_ZNOWATCHER: nothing is watched there, unless what
 * sets the watch has no reply yet.
 */
extern int zklock_client_unwatch(ZkClient *client, const char *path, bool children,
								 const ZkRequestTag *tag);
/*
 * All of the ops, or none.  A create that is one of several returns no Stat, but the czxid
 * is the transaction's, which a SET beside it tells.  The ensemble hangs up on a request
 * of more bytes than its jute.maxbuffer, 1 MB unless it was set: the caller sees to that.
 */
extern int zklock_client_multi(ZkClient *client, const ZkOp *ops, int nops,
							   const ZkRequestTag *tag);

/*
 * Close the session and free the client: the ensemble deletes our ephemeral nodes at
 * once. Waits until the server hangs up, for 3 s when it does not come to that.  Should
 * what is to be sent not go out, that can take as long before.  When not connected the
 * session is left to time out.
 */
extern void zklock_client_close(ZkClient *client);

/*
 * The same without waiting: nothing may be done with the client after "begin" but to ask
 * whether it has come to its "end", when it is freed; its descriptor becomes readable
 * then, or when there is something to be done for it.
 */
extern void zklock_client_close_begin(ZkClient *client);
extern bool zklock_client_close_end(ZkClient *client);

/*
 * Free the client, and leave the session to another one, which may be opened at once.
 * False: it is connected, or has something to say.
 */
extern bool zklock_client_leave(ZkClient *client);

#endif /* ZKLOCK_CLIENT_H */
