/*-------------------------------------------------------------------------
 *
 * client.c
 *	  Runs one ZooKeeper session, and passes on its replies and events as messages.
 *
 * The library does nothing by itself. zookeeper_interest begins an attempt to connect,
 * pings, notices a silent server, and says what to wait for. zookeeper_process sends,
 * reads one packet, and calls us back.  Only zklock_client_receive and zklock_client_fd
 * call these two.  So all callbacks come from there, and from opening and closing.  A
 * request (zoo_a...) causes callbacks only if it cannot be sent (check_silent_loss).
 * The library may call back replies and events on a thread of its own (library.h).
 * Such a callback looks at nothing of the client except which library it has, and makes
 * news.  "hear" takes the news in: it appends a ZkMessage to the client's queue, and
 * calls nothing.
 *
 * The caller waits for an epoll descriptor.  It covers the socket, which comes and goes
 * (watch_socket), a timer for everything that has a time (wake_at), and the news.
 *
 * Damage.  The library believes any bytes, and some end the process.  So once a socket
 * is connected, the library has one end of a pair of sockets in its place, and gets
 * only bytes that were checked (wire.h, frame.h).  This does not work with TLS, which
 * the library reads by itself.  The checksums of TLS find changes on the way, but not
 * what a faulty server sends.
 *
 * Order.  Replies, watch events and session events come in the order of the wire.  When
 * a connection breaks, the library reports the session event first and then each open
 * request (cleanup() in zookeeper.c).  While any of these is in the queue, the library
 * is not asked to connect again.  So the order in our queue is
 *
 *		DISCONNECTED, lost replies, CONNECTED, replies on the new connection.
 *
 * The code of a lost reply says why the connection was broken: mostly ZCONNECTIONLOSS,
 * but ZRUNTIMEINCONSISTENCY if an answer had the wrong number, ZAUTHFAILED if the
 * credentials were refused, and others.  To a caller these would look like refusals by
 * the ensemble.  But the requests may have reached the ensemble, and been done.
 * Answers that the ensemble did give on the old connection stand before DISCONNECTED.
 * So zklock_client_receive turns each reply that it returns while the connection is not
 * up into a ZCONNECTIONLOSS.
 *
 * The library may have lost the connection before the caller has read that.  It would
 * keep a request made then, and send it on the next connection.  The client answers
 * such a request as lost instead, and does not pass it to the library.
 *
 * Memory.  A request and its reply are allocated when the request is made, so that no
 * reply can be lost for want of memory.
 *
 * Attempts.  The library pauses between attempts to connect only where it sees the end
 * of its list of hosts.  By ZOOKEEPER-2466 it never does if their number is even, and
 * otherwise its pause is a sixtieth of the session timeout.  So the client makes the
 * pauses (note_failure), and skips the library's.
 *
 * Hosts. tries.h says which host is tried next, and for how long. ring.c makes the
 * library try that host.  An attempt whose time is over is ended (abandon).
 *
 * Names.  The library resolves the names in its connect string before each attempt,
 * which may take long.  So it gets addresses (resolve.c).  A caller that wants the
 * names resolved again opens another client; one that does not want to wait for that
 * opens it with addresses (lookup.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "client.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "liblog.h"
#include "library.h"
#include "resolve.h"
#include "ring.h"
#include "wire.h"

/* A sequence number is at most 11 characters, "-2147483648". */
#define ZKLOCK_SEQUENCE_ROOM 16

#define ZKLOCK_SERVER_LEN	 128
#define ZKLOCK_ERROR_LEN	 512

/* ms to wait when all hosts have failed once; twice as long each time after. */
#define ZKLOCK_FIRST_PAUSE	 50
#define ZKLOCK_LONGEST_PAUSE 1000

/* ms: how long a client that is being closed waits for the server to hang up. */
#define ZKLOCK_HANG_UP_MS 3000

/* ms: a connection that lived for less was none. */
#define ZKLOCK_SHORT_LIFE 1000

/* ns */
#define AT_ONCE 1
#define NEVER	INT64_MAX

_Static_assert(ZKLOCK_ZOK == ZOK, "ZOK");
_Static_assert(ZKLOCK_ZCONNECTIONLOSS == ZCONNECTIONLOSS, "ZCONNECTIONLOSS");
_Static_assert(ZKLOCK_ZMARSHALLINGERROR == ZMARSHALLINGERROR, "ZMARSHALLINGERROR");
_Static_assert(ZKLOCK_ZOPERATIONTIMEOUT == ZOPERATIONTIMEOUT, "ZOPERATIONTIMEOUT");
_Static_assert(ZKLOCK_ZNONODE == ZNONODE, "ZNONODE");
_Static_assert(ZKLOCK_ZNOAUTH == ZNOAUTH, "ZNOAUTH");
_Static_assert(ZKLOCK_ZNOWATCHER == ZNOWATCHER, "ZNOWATCHER");
_Static_assert(ZKLOCK_ZBADVERSION == ZBADVERSION, "ZBADVERSION");
_Static_assert(ZKLOCK_ZNODEEXISTS == ZNODEEXISTS, "ZNODEEXISTS");
_Static_assert(ZKLOCK_ZNOTEMPTY == ZNOTEMPTY, "ZNOTEMPTY");
_Static_assert(ZKLOCK_ZSESSIONEXPIRED == ZSESSIONEXPIRED, "ZSESSIONEXPIRED");
_Static_assert(ZKLOCK_PASSWORD_LEN == sizeof(((clientid_t *) 0)->passwd), "passwd");

/* What a callback was told about replies and events. */
typedef struct Told
{
	ZkNews news;
	ZkClient *client;
	struct ZkRequest *request; /* which this answers, and whose first member it is */
	ZkMessage *message;		   /* of a watch */
	int state;				   /* else: the session's */
} Told;

/*
 * A request that the library has and will complete.  It is the completion's data, and
 * is freed when we have heard of the completion.
 */
typedef struct ZkRequest
{
	Told told;
	ZkMessage *reply;		/* NULL: it is pending no more */
	int pathroom;			/* size of reply->path, 0 if none */
	struct ZkRequest *prev; /* pending list */
	struct ZkRequest *next;
	/* of a multi, in the block behind the request */
	int nops;
	zoo_op_result_t *results;
	struct Stat stat; /* of its SETs, which say the same of the transaction */
} ZkRequest;

struct ZkClient
{
	ZkLibrary *library; /* NULL: closed */
	int epoll;
	int timer;
	int64_t wake_at; /* ns: when the timer fires; NEVER */
	int socket;		 /* the library's, of the connection or the attempt; -1: none */
	ZkWire wire;	 /* what stands between that and the server's, if it is open */
	bool writing;	 /* epoll waits until that takes more, or is connected */
	bool more;		 /* more of it may have been read than was heard of */
	zhandle_t *zh;	 /* the library's */
	bool creator;	 /* nodes that we create are ours alone */
	bool tls;
	int naddresses;	 /* to try */
	bool up;		 /* CONNECTED was the last session message that
					  * zklock_client_receive returned */
	bool asked;		 /* requests were made since the library was last looked after */
	ZkMessage *head; /* messages, oldest first */
	ZkMessage *tail;
	ZkRequest *pending_head; /* requests, oldest first */
	ZkRequest *pending_tail;
	int npending;
	bool connected;		 /* by the last session event */
	bool dead;			 /* the handle connects no more */
	bool spoilt;		 /* ... is of no use, since it has believed nonsense */
	int auth_open;		 /* credentials that were neither accepted nor refused */
	bool held_back;		 /* CONNECTED waits for them */
	ZkSessionId session; /* as of the last connection; id 0: none yet */
	int timeout_ms;
	char server[ZKLOCK_SERVER_LEN]; /* connected to or tried last */

	/* attempts */
	int64_t began_at;		/* ns: the latest attempt */
	int64_t asked_at;		/* ns: the latest attempt had not asked for its session */
	int64_t established_at; /* ns; 0: no session on this connection */
	int failures;			/* in a row, that came to nothing */
	int64_t pause_until;	/* ns: no attempt before */
	ZkRing ring;
	ZkTries own_tries;
	ZkTries *tries;					/* what is known of the hosts */
	char trying[ZKLOCK_TRIES_NAME]; /* in the attempt or the connection; "": none */
	bool reached;					/* ... which has answered */
	int64_t attempt_until;			/* ns: when the attempt has had its time; NEVER */
	int64_t session_ends;			/* ns; 0: there is none */
	int64_t patience;				/* ns: how long this client may try; 0: who knows */
	int spread_ms;					/* that pause is no shorter, about */

	/* opening */
	bool opening;
	int error_level;			  /* of "error", 0 if none */
	char error[ZKLOCK_ERROR_LEN]; /* worst log line while opening */

	/* closing: see zklock_client_close_begin */
	bool closing;
	char *farewell; /* what is to be sent yet */
	size_t farewell_room;
	size_t farewell_len;
	size_t farewell_sent;
	int64_t hung_up_by; /* ns: when the server must have hung up */
};

/* The client for which this thread calls the library: the library's log callback has
 * no context argument. */
static __thread ZkClient *calling = NULL;

static ZooLogLevel log_level = ZOO_LOG_LEVEL_INFO; /* we read what these say */

static uint64_t requests_made = 0;

/*-------------------------------------------------------------------------
 * The queue
 *-------------------------------------------------------------------------
 */

static void
queue_append(ZkClient *client, ZkMessage *message)
{
	message->next = NULL;
	if (client->tail != NULL)
		client->tail->next = message;
	else
		client->head = message;
	client->tail = message;
}

void
zklock_client_free_message(ZkMessage *message)
{
	if (message == NULL)
		return;
	free(message->path);
	free(message->data);
	free(message->children); /* one block, with the strings */
	free(message);
}

/* Take a request out of the pending list. */
static void
pending_remove(ZkClient *client, ZkRequest *request)
{
	if (request->prev != NULL)
		request->prev->next = request->next;
	else
		client->pending_head = request->next;
	if (request->next != NULL)
		request->next->prev = request->prev;
	else
		client->pending_tail = request->prev;
	client->npending--;
	assert(client->npending >= 0);
	assert((client->npending == 0) == (client->pending_head == NULL));
}

/*-------------------------------------------------------------------------
 * Events
 *-------------------------------------------------------------------------
 */

/*
 * Allocates an event.  Unlike a reply, nobody has allocated it in advance.  If an event
 * were dropped, somebody would wait for ever.  So without memory the process waits here
 * until there is some.  It reads no acknowledgement meanwhile, and the lease runs out,
 * which is safe.
 */
static void *
event_alloc(size_t size)
{
	void *block;

	while ((block = calloc(1, size)) == NULL)
	{
		struct timespec pause = {0, 10 * 1000 * 1000};

		nanosleep(&pause, NULL);
	}
	return block;
}

static ZkMessage *
event_make(ZkMessageType type)
{
	ZkMessage *message = event_alloc(sizeof(ZkMessage));

	message->type = type;
	message->received_at = zklock_clock();
	return message;
}

static void
event_append(ZkClient *client, ZkMessageType type)
{
	ZkMessage *message = event_make(type);

	if (type == ZKLOCK_MSG_CONNECTED)
		message->sent_at = client->asked_at;
	queue_append(client, message);
}

/* Makes the descriptor readable from this time on, ns; NEVER: not because of the time. */
static void
set_timer(ZkClient *client, int64_t at)
{
	struct itimerspec spec = {{0, 0}, {0, 0}};

	if (at != NEVER)
	{
		spec.it_value.tv_sec = at / 1000000000;
		spec.it_value.tv_nsec = at % 1000000000;
	}
	/* cannot fail; what has expired before counts no more */
	timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &spec, NULL);
	client->wake_at = at;
}

/* For the caller, there is no connection. */
static void
set_disconnected(ZkClient *client)
{
	bool was = client->connected && !client->held_back;

	client->connected = client->held_back = false;
	if (was)
		event_append(client, ZKLOCK_MSG_DISCONNECTED);
}

static void
set_dead(ZkClient *client, ZkMessageType type)
{
	client->connected = client->held_back = false;
	client->dead = true;
	event_append(client, type);
}

/* The host has answered. */
static void
note_reached(ZkClient *client)
{
	int host = zklock_tries_find(client->tries, client->trying);

	client->reached = true;
	if (host >= 0)
		zklock_tries_reached(client->tries, host);
}

/* A server that makes a session gives it a number and a timeout.  The library
 * believes both: with a timeout of 0 each later attempt of its handle is over at
 * once. */
static bool
makes_sense(int64_t id, int timeout)
{
	return id != 0 && timeout > 0;
}

static void
session_event(ZkClient *client, int state)
{
	if (state == ZOO_CONNECTED_STATE &&
		!makes_sense(zoo_client_id(client->zh)->client_id, zoo_recv_timeout(client->zh)))
	{
		set_disconnected(client);
		client->spoilt = true;
	}
	else if (state == ZOO_CONNECTED_STATE)
	{
		/* id, password and timeout are set before the event is told of, and nothing is
		 * done with the handle before that is heard */
		const clientid_t *id = zoo_client_id(client->zh);

		set_disconnected(client);
		client->session.id = id->client_id;
		memcpy(client->session.password, id->passwd, ZKLOCK_PASSWORD_LEN);
		client->timeout_ms = zoo_recv_timeout(client->zh);
		client->connected = true;
		set_timer(client, AT_ONCE); /* the library waits for something else from now on */
		note_reached(client);
		client->held_back = client->auth_open > 0;
		if (!client->held_back)
			event_append(client, ZKLOCK_MSG_CONNECTED);
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
		set_dead(client, ZKLOCK_MSG_EXPIRED);
	else if (state == ZOO_AUTH_FAILED_STATE)
		set_dead(client, ZKLOCK_MSG_AUTH_FAILED);
	else
		set_disconnected(client); /* CONNECTING, ASSOCIATING, NOTCONNECTED */
}

/*
 * A credential was accepted, refused (the session event says so, too), or lost with its
 * connection.  The library presents it again on the next connection, but does not call
 * this again.  So from then on nothing is held back any more.
 */
static void
auth_completion(int rc, const void *data)
{
	ZkClient *client = (ZkClient *) data;

	if (client->auth_open > 0)
		client->auth_open--;
	if (client->held_back && client->auth_open == 0 && rc == ZOK && !client->closing)
	{
		client->held_back = false;
		event_append(client, ZKLOCK_MSG_CONNECTED);
	}
}

/*
 * The one watcher.  There is also but one context: the library tells session
 * events to every distinct pair of watcher and context once.
 */
static void
watcher(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZkClient *client = context;
	Told *told = event_alloc(sizeof(Told));

	(void) zh;
	told->client = client;
	told->state = state;
	if (type != ZOO_SESSION_EVENT)
	{
		told->message =
			event_make(type == ZOO_DELETED_EVENT	 ? ZKLOCK_MSG_NODE_DELETED
						   : type == ZOO_CHILD_EVENT ? ZKLOCK_MSG_CHILDREN_CHANGED
													 : ZKLOCK_MSG_NODE_CHANGED);
		told->message->path = event_alloc(strlen(path) + 1);
		strcpy(told->message->path, path);
	}
	zklock_library_tell(client->library, &told->news);
}

/*-------------------------------------------------------------------------
 * Replies
 *
 * Each completion fills the reply with reply_begin, a few fields and
 * reply_end.
 *-------------------------------------------------------------------------
 */

/* Returns the reply to fill; NULL: nobody waits for it any more. */
static ZkMessage *
reply_begin(ZkRequest *request, int rc)
{
	ZkMessage *reply = request->reply;

	if (reply != NULL)
	{
		reply->rc = rc;
		reply->received_at = zklock_clock();
	}
	return reply;
}

static void
reply_end(ZkRequest *request)
{
	zklock_library_tell(request->told.client->library, &request->told.news);
}

static void
create_completion(int rc, const char *path, const struct Stat *stat, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	int room = request->pathroom;
	ZkMessage *reply = reply_begin(request, rc);

	/* refused: it keeps the path that was asked for */
	if (reply != NULL && rc == ZOK)
	{
		size_t len = path != NULL ? strlen(path) + 1 : 0;

		/* the path we sent, plus a sequence number */
		if (stat == NULL || len == 0 || len > (size_t) room)
			reply->rc = ZSYSTEMERROR;
		else
		{
			memcpy(reply->path, path, len);
			reply->czxid = reply->zxid = stat->czxid;
			reply->ephemeral_owner = stat->ephemeralOwner;
		}
	}
	reply_end(request);
}

/* delete */
static void
void_completion(int rc, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;

	(void) reply_begin(request, rc);
	reply_end(request);
}

/* the end of a watch */
static void
unwatch_completion(int rc, const void *data)
{
	void_completion(rc == ZNOWATCHER ? ZOK : rc, data);
}

/* set */
static void
stat_completion(int rc, const struct Stat *stat, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	if (reply != NULL && rc == ZOK && stat != NULL)
	{
		reply->czxid = stat->czxid;
		reply->zxid = stat->mzxid;
		reply->mtime = stat->mtime;
		reply->version = stat->version;
		reply->ephemeral_owner = stat->ephemeralOwner;
		reply->datalen = stat->dataLength;
	}
	reply_end(request);
}

/* sync */
static void
sync_completion(int rc, const char *path, const void *data)
{
	(void) path;
	void_completion(rc, data);
}

/* Copy a listing into one block: the pointers, then the strings. */
static bool
copy_children(ZkMessage *reply, const struct String_vector *children)
{
	int n = children->count;
	size_t size;
	char *next;

	if (n <= 0)
		return true;
	size = (size_t) n * sizeof(char *);
	for (int i = 0; i < n; i++)
		size += strlen(children->data[i]) + 1;
	reply->children = malloc(size);
	if (reply->children == NULL)
		return false;

	next = (char *) (reply->children + n);
	for (int i = 0; i < n; i++)
	{
		size_t len = strlen(children->data[i]) + 1;

		memcpy(next, children->data[i], len);
		reply->children[i] = next;
		next += len;
	}
	reply->nchildren = n;
	return true;
}

/* The stat has twice the creations minus the children that are left
 * (src/README.locks). */
static uint32_t
created_children(const struct Stat *stat)
{
	return ((uint32_t) stat->cversion + (uint32_t) stat->numChildren) / 2;
}

static void
list_completion(int rc, const struct String_vector *children, const struct Stat *stat,
				const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	if (reply != NULL && rc == ZOK)
	{
		if (children == NULL || stat == NULL || !copy_children(reply, children))
			reply->rc = ZSYSTEMERROR;
		else
		{
			reply->ncreated = created_children(stat);
			reply->zxid = stat->pzxid;
			reply->czxid = stat->czxid;
			reply->ctime = stat->ctime;
		}
	}
	reply_end(request);
}

/*
 * Copies the names of what the ops of a multi have created.  The library takes the
 * chroot off a path that a create returns, but older libraries do not in a multi.
 */
static bool
copy_created(ZkMessage *reply, const ZkRequest *request)
{
	size_t size = (size_t) request->nops * sizeof(char *);
	char *next;

	for (int i = 0; i < request->nops; i++)
		size += 1 +
			(request->results[i].value != NULL ? strlen(request->results[i].value) : 0);
	reply->children = malloc(size);
	if (reply->children == NULL)
		return false;

	next = (char *) (reply->children + request->nops);
	for (int i = 0; i < request->nops; i++)
	{
		const char *path = request->results[i].value;
		const char *slash = path != NULL ? strrchr(path, '/') : NULL;

		reply->children[i] = next;
		strcpy(next, slash != NULL ? slash + 1 : "");
		next += strlen(next) + 1;
	}
	reply->nchildren = request->nops;
	return true;
}

/* multi: the library has filled the results.  Ops behind the one that failed, and those
 * before it, have ZOK or ZRUNTIMEINCONSISTENCY. */
static void
multi_completion(int rc, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	if (reply != NULL && rc != ZOK)
	{
		for (int i = request->nops - 1; i >= 0; i--)
			if (request->results[i].err == rc)
				reply->failed_op = i;
	}
	else if (reply != NULL)
	{
		reply->zxid = request->stat.mzxid;
		reply->mtime = request->stat.mtime;
		if (!copy_created(reply, request))
			reply->rc = ZSYSTEMERROR;
	}
	reply_end(request);
}

static void
acl_completion(int rc, struct ACL_vector *acl, struct Stat *stat, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	(void) stat;
	if (reply != NULL && rc == ZOK)
	{
		for (int i = 0; acl != NULL && i < acl->count; i++)
		{
			if (strcmp(acl->data[i].id.scheme, "world") == 0 &&
				(acl->data[i].perms & ~ZOO_PERM_READ) != 0)
				reply->open = true;
		}
	}
	reply_end(request);
}

static void
get_completion(int rc, const char *value, int value_len, const struct Stat *stat,
			   const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	if (reply != NULL && rc == ZOK)
	{
		/* a node without data has length -1 */
		int len = (value != NULL && value_len > 0) ? value_len : 0;

		reply->data = malloc((size_t) len + 1);
		if (reply->data == NULL || stat == NULL)
			reply->rc = ZSYSTEMERROR;
		else
		{
			if (len > 0)
				memcpy(reply->data, value, len);
			reply->data[len] = '\0';
			reply->datalen = len;
			reply->czxid = stat->czxid;
			reply->zxid = stat->mzxid;
			reply->version = stat->version;
			reply->ctime = stat->ctime;
			reply->mtime = stat->mtime;
			reply->nchildren = stat->numChildren;
			reply->ncreated = created_children(stat);
			reply->ephemeral_owner = stat->ephemeralOwner;
		}
	}
	reply_end(request);
}

/*-------------------------------------------------------------------------
 * News from the callbacks
 *-------------------------------------------------------------------------
 */

static void
hear(ZkNews *news)
{
	Told *told = (Told *) news;
	ZkClient *client = told->client;
	ZkMessage *message = told->message;

	if (told->request != NULL)
	{
		message = told->request->reply;
		if (message != NULL)
			pending_remove(client, told->request);
	}
	/* without a handle: it was not to be had */
	if (client->closing || client->zh == NULL)
		zklock_client_free_message(message);
	else if (message != NULL)
		queue_append(client, message);
	else if (told->request == NULL)
		session_event(client, told->state);
	free(told);
}

static bool
library_connected(const ZkClient *client)
{
	int state = zoo_state(client->zh);

	return state == ZOO_CONNECTED_STATE || state == ZOO_READONLY_STATE;
}

/* Have we heard everything about the connection's beginning or end, and about the
 * requests that ended with it? */
static bool
settled(void *context)
{
	const ZkClient *client = context;

	if (is_unrecoverable(client->zh))
		return client->dead;
	if (client->spoilt)
		return true;
	/* to a server that would let us read alone it is connected, and we are not */
	if (zoo_state(client->zh) == ZOO_CONNECTED_STATE)
		return client->connected;
	return !client->connected && client->npending == 0;
}

/*-------------------------------------------------------------------------
 * The library's log: the only report of how an attempt ends
 *-------------------------------------------------------------------------
 */

/* The server's address, as the library last named it. */
static void
note_server(ZkClient *client, const char *text)
{
	size_t len;
	const char *server = zklock_liblog_server(text, &len);

	if (server != NULL && len < sizeof(client->server))
	{
		memcpy(client->server, server, len);
		client->server[len] = '\0';
	}
}

/* Notes how an attempt or a connection has ended, for the choice of the next host. */
static void
note_end(ZkClient *client, int failure, int64_t now)
{
	int host = zklock_tries_find(client->tries, client->trying);
	ZkTryEnd end = failure == ZOPERATIONTIMEOUT ? ZKLOCK_TRY_SILENT
		: failure == ZMARSHALLINGERROR			? ZKLOCK_TRY_RUBBISH
												: ZKLOCK_TRY_REFUSED;
	bool reached = client->reached;

	client->trying[0] = '\0';
	client->reached = false;
	/* a session's end is no fault of the host's */
	if (host < 0 || failure == ZSESSIONEXPIRED)
		return;
	if (reached)
		zklock_tries_lost(client->tries, host, end, now);
	else
		zklock_tries_ended(client->tries, host, end, now);
}

/*
 * A connection or an attempt at one has failed, and the library has closed its socket.
 * When all hosts have failed, wait: longer after each time, and not all servers equally
 * long.  The wait is at most a sixth of the session timeout, so that no session ends
 * because of it, unless the caller of zklock_client_spread takes care of that.
 */
static void
note_failure(ZkClient *client, int failure)
{
	int64_t now = zklock_clock();
	int64_t lived = client->established_at != 0 ? now - client->established_at : 0;
	int longest = client->timeout_ms / 6;
	int ms = ZKLOCK_FIRST_PAUSE;

	note_end(client, failure, now);
	client->established_at = 0;
	if (lived >= INT64_C(1000000) * ZKLOCK_SHORT_LIFE)
	{
		client->failures = 0;
		return;
	}
	/* silence has taken its time already, as a rule, and expiry cannot wait */
	if (failure == ZSESSIONEXPIRED ||
		(failure == ZOPERATIONTIMEOUT &&
		 now - client->asked_at > INT64_C(1000000) * ZKLOCK_FIRST_PAUSE))
		return;
	if (++client->failures % client->naddresses != 0)
		return;

	if (longest > ZKLOCK_LONGEST_PAUSE)
		longest = ZKLOCK_LONGEST_PAUSE;
	for (int i = client->failures / client->naddresses; i > 1 && ms < longest; i--)
		ms *= 2;
	if (ms > longest)
		ms = longest;
	if (ms < client->spread_ms)
		ms = client->spread_ms;
	ms = ms / 2 + (int) (now / 1000 % (ms / 2 + 1));
	client->pause_until = now + INT64_C(1000000) * ms;
}

static void
append_line(ZkClient *client, int level, const char *text, size_t len)
{
	ZkMessage *message = calloc(1, sizeof(ZkMessage));

	/* without memory there is no log */
	if (message == NULL || (message->data = malloc(len + 1)) == NULL)
	{
		free(message);
		return;
	}
	message->type = ZKLOCK_MSG_LOG;
	message->level = level;
	memcpy(message->data, text, len);
	message->data[len] = '\0';
	message->datalen = (int) len;
	message->received_at = zklock_clock();
	queue_append(client, message);
}

static void
log_line(const char *line)
{
	ZkClient *client = calling;
	const char *text;
	size_t len;
	int level;
	int failure;

	if (client == NULL || client->closing)
		return;
	text = zklock_liblog_text(line, &level, &len);
	if (level > (int) log_level)
		return;
	append_line(client, level, text, len);
	note_server(client, text);
	if (client->opening && level <= ZOO_LOG_LEVEL_WARN &&
		(client->error_level == 0 || level <= client->error_level))
	{
		client->error_level = level;
		snprintf(client->error, sizeof(client->error), "%.*s", (int) len, text);
	}
	failure = zklock_liblog_failure(text);
	/* a host that was slow to accept counts, too: zklock_heartbeat_pause goes by it */
	if (zklock_liblog_initiated(text))
		client->asked_at = client->began_at;
	else if (zklock_liblog_established(text))
		client->established_at = zklock_clock();
	else if (failure != 0)
		note_failure(client, failure);
}

/*-------------------------------------------------------------------------
 * The library's work
 *-------------------------------------------------------------------------
 */

/*
 * The library sends each request in two pieces, at once.  Keeps the pieces together,
 * with those of other requests, until the caller has made them all: one segment, one
 * wake-up of the server.  A wire does so by itself.
 */
static void
set_corked(ZkClient *client, bool corked)
{
	int value = corked;

	client->asked = corked;
	if (client->socket >= 0 && !zklock_wire_is_open(&client->wire))
		setsockopt(client->socket, IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
}

/* The same, or sooner: then the timer is set again when it fires. */
static void
wake_by(ZkClient *client, int64_t at)
{
	if (at < client->wake_at || client->wake_at <= zklock_clock())
		set_timer(client, at);
}

/* There is no socket any more: the library has closed it. */
static void
drop_socket(ZkClient *client)
{
	client->socket = -1;
	zklock_wire_close(&client->wire);
}

/*
 * Waits for the library's socket; -1: for none.  The library closes a socket without a
 * word, and the next one may have its number.  So nothing is taken for known unless
 * there is a connection.
 */
static void
watch_socket(ZkClient *client, int socket, bool writing)
{
	struct epoll_event event = {.events = EPOLLIN | (writing ? (uint32_t) EPOLLOUT : 0)};

	if (zklock_wire_is_open(&client->wire))
	{
		if (writing != client->writing)
			epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->wire.socket, &event);
	}
	else if (socket >= 0 &&
			 (!client->connected || socket != client->socket || writing != client->writing) &&
			 epoll_ctl(client->epoll, EPOLL_CTL_MOD, socket, &event) != 0)
		epoll_ctl(client->epoll, EPOLL_CTL_ADD, socket, &event);
	client->socket = socket;
	client->writing = writing;
}

/*
 * With TLS the library waits in zookeeper_process until the handshake is done, however
 * long that takes.  But it gives up when select() is interrupted.  So a signal of our
 * own interrupts it after a third of the session timeout, or when the attempt's time is
 * over; no other signal does.
 */
typedef struct Guard
{
	timer_t timer;
	sigset_t mask;
	struct sigaction action;
} Guard;

#define GUARD_SIGNAL SIGRTMIN

static void
on_guard(int signal)
{
	(void) signal;
}

static bool
guard_begin(const ZkClient *client, Guard *guard)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = GUARD_SIGNAL};
	struct sigaction action = {.sa_handler = on_guard};
	struct itimerspec spec = {.it_interval = {.tv_nsec = 50 * 1000 * 1000}};
	int64_t left = (client->attempt_until - zklock_clock()) / 1000000;
	int ms = client->timeout_ms / 3 + 1;
	sigset_t others;

	if (timer_create(CLOCK_MONOTONIC, &event, &guard->timer) != 0)
		return false;
	if (left < ms)
		ms = left > 0 ? (int) left + 1 : 1;
	spec.it_value.tv_sec = ms / 1000;
	spec.it_value.tv_nsec = (long) (ms % 1000) * 1000000;
	sigaction(GUARD_SIGNAL, &action, &guard->action);
	sigfillset(&others);
	sigdelset(&others, GUARD_SIGNAL);
	sigdelset(&others, SIGQUIT);
	sigprocmask(SIG_SETMASK, &others, &guard->mask);
	timer_settime(guard->timer, 0, &spec, NULL);
	return true;
}

static void
guard_end(Guard *guard)
{
	timer_delete(guard->timer);
	sigprocmask(SIG_SETMASK, &guard->mask, NULL);
	sigaction(GUARD_SIGNAL, &guard->action, NULL);
}

/* The library has met an error.  It has closed the socket, unless the connection
 * still stands; then it hears of the error when it reads. */
static void
note_socket(ZkClient *client)
{
	if (!library_connected(client))
		drop_socket(client);
}

/* Makes the library close the socket of an attempt: it finds no socket in its place. */
static void
break_attempt(ZkClient *client, int socket)
{
	if (dup3(client->timer, socket, O_CLOEXEC) < 0)
		return;
	(void) zookeeper_process(client->zh, ZOOKEEPER_READ | ZOOKEEPER_WRITE);
	zklock_library_settle(client->library, settled, client);
}

/*
 * Gives up an attempt to connect.  The library gives it up after two thirds of the
 * session timeout at the earliest.  Before it has come to TLS or to the wire, it waits
 * for the kernel, which gives up after two minutes.  It never gives up if it cannot use
 * the certificates.
 */
static void
abandon(ZkClient *client, int failure, int error, const char *why)
{
	char text[ZKLOCK_ERROR_LEN];

	snprintf(text, sizeof(text), "Socket %s zk retcode=%d, errno=%d(%s): %s",
			 zoo_get_current_server(client->zh), failure, error, strerror(error), why);
	break_attempt(client, client->socket);
	drop_socket(client);
	append_line(client, ZOO_LOG_LEVEL_ERROR, text, strlen(text));
	note_server(client, text);
	note_failure(client, failure);
}

static int
call_process(ZkClient *client, int events)
{
	int rc;

	calling = client;
	rc = zookeeper_process(client->zh, events);
	calling = NULL;
	zklock_library_settle(client->library, settled, client);
	return rc;
}

/* The library has met an error, or none. */
static void
note_result(ZkClient *client, int rc)
{
	if (rc == ZOK || rc == ZNOTHING)
		return;
	if (client->tls && !library_connected(client) && zoo_state(client->zh) != 0 &&
		!is_unrecoverable(client->zh))
		abandon(client, rc, 0, "no TLS");
	else
		note_socket(client);
	set_timer(client, AT_ONCE); /* whoever looks next, there is something to do */
}

/*
 * Takes the library's place at its socket.  "asked": the library has asked for its
 * session there.  False: the attempt is given up.
 */
static bool
open_wire(ZkClient *client, bool asked)
{
	struct epoll_event event = {.events = EPOLLIN};

	epoll_ctl(client->epoll, EPOLL_CTL_DEL, client->socket, NULL);
	if (zklock_wire_open(&client->wire, client->socket, asked) &&
		epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->wire.socket, &event) == 0)
	{
		client->writing = false;
		return true;
	}
	abandon(client, ZSYSTEMERROR, errno, "could not look at what comes");
	wake_by(client, AT_ONCE);
	return false;
}

/* Passes on what the library has sent through the wire, and what did not fit into the
 * wire. */
static void
send_on(ZkClient *client)
{
	int rc = ZOK;

	while (zklock_wire_send(&client->wire) && rc == ZOK && client->connected)
		rc = call_process(client, ZOOKEEPER_WRITE);
	watch_socket(client, client->socket, zklock_wire_is_sending(&client->wire));
	note_result(client, rc);
	if (client->wire.ended)
		set_timer(client, AT_ONCE);
}

/* Sends the requests that were made. */
static void
send_requests(ZkClient *client)
{
	if (zklock_library_sends_late && client->connected)
		note_result(client, call_process(client, ZOOKEEPER_WRITE));
	if (zklock_wire_is_open(&client->wire))
		send_on(client);
	set_corked(client, false);
}

/* "why": the error, if it is known. */
static void
abandon_nonsense(ZkClient *client, const char *why)
{
	char text[ZKLOCK_FRAME_WHY + 64];

	snprintf(text, sizeof(text), "what it answers is not ZooKeeper's%s%s%s",
			 why != NULL ? " (" : "", why != NULL ? why : "", why != NULL ? ")" : "");
	abandon(client, ZMARSHALLINGERROR, 0, text);
	set_timer(client, AT_ONCE);
}

static void
append_damage(ZkClient *client, const char *why)
{
	ZkMessage *message = event_make(ZKLOCK_MSG_DAMAGED);

	message->data = event_alloc(strlen(why) + 1);
	strcpy(message->data, why);
	message->datalen = (int) strlen(why);
	queue_append(client, message);
}

/* Reads one frame from the wire. */
static void
process_wire(ZkClient *client)
{
	char why[ZKLOCK_FRAME_WHY];
	bool was = client->connected;
	ZkWireNews news = zklock_wire_receive(&client->wire, why);
	int rc;

	if (news == ZKLOCK_WIRE_NOTHING)
		return;
	if (news == ZKLOCK_WIRE_FRAME)
	{
		bool more;

		do
		{
			more = zklock_wire_pass(&client->wire);
			rc = call_process(client, ZOOKEEPER_READ);
		} while (more && rc == ZNOTHING);
	}
	else
	{
		if (news == ZKLOCK_WIRE_DAMAGED && !was)
		{
			abandon_nonsense(client, why);
			return;
		}
		if (news == ZKLOCK_WIRE_DAMAGED)
			append_damage(client, why);
		zklock_wire_end(&client->wire, client->socket);
		rc = call_process(client, ZOOKEEPER_READ);
	}
	note_result(client, rc);
	if (!zklock_wire_is_open(&client->wire))
		return;
	/* what it has to say first on a connection */
	if (!was)
		send_on(client);
	client->more = zklock_wire_holds(&client->wire);
}

/* Is there a connection on which nothing was sent yet? */
static bool
has_peer(int socket)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);

	return getpeername(socket, (struct sockaddr *) &address, &len) == 0;
}

/* Sends what the socket takes, and reads one packet. */
static void
process(ZkClient *client)
{
	int events = ZOOKEEPER_READ | (client->writing ? ZOOKEEPER_WRITE : 0);
	Guard guard;
	bool guarded = false;
	int rc;

	client->more = false;
	if (zklock_wire_is_open(&client->wire))
	{
		if (client->writing)
			send_on(client);
		if (zklock_wire_is_open(&client->wire))
			process_wire(client);
		return;
	}
	if (!client->connected)
	{
		/* a socket that is not connected yet must not be read */
		struct pollfd fd = {.fd = client->socket,
							.events = POLLIN | (client->writing ? POLLOUT : 0)};

		if (poll(&fd, 1, 0) <= 0)
			return;
		events = (fd.revents & (POLLOUT | POLLERR | POLLHUP) ? ZOOKEEPER_WRITE : 0) |
			(fd.revents & (POLLIN | POLLERR | POLLHUP) ? ZOOKEEPER_READ : 0);
		if (!client->tls && has_peer(client->socket))
		{
			if (!open_wire(client, false))
				return;
			note_result(client, call_process(client, ZOOKEEPER_WRITE));
			if (zklock_wire_is_open(&client->wire))
				send_on(client);
			return;
		}
		guarded = client->tls && client->writing && guard_begin(client, &guard);
	}
	rc = call_process(client, events);
	if (guarded)
		guard_end(&guard);
	if (client->spoilt && client->socket >= 0)
	{
		abandon_nonsense(client, NULL);
		return;
	}
	/* a packet was read, and behind it there may be others that TLS has read already */
	client->more = client->tls && client->connected && rc == ZOK;
	note_result(client, rc);
}

/* The library waits for this socket, which may be new, or to write. */
static void
keep_socket(ZkClient *client, int socket, bool writing)
{
	int state = zoo_state(client->zh);

	/* the wire is another socket's, which it has closed without a word */
	if (state == ZOO_CONNECTING_STATE)
		zklock_wire_close(&client->wire);
	if (!zklock_wire_is_open(&client->wire))
	{
		watch_socket(client, socket, writing);
		/* connected at once */
		if (client->tls || socket < 0 || state != ZOO_ASSOCIATING_STATE ||
			!open_wire(client, true))
			return;
	}
	if (writing)
		note_result(client, call_process(client, ZOOKEEPER_WRITE));
	if (zklock_wire_is_open(&client->wire))
		send_on(client);
}

/* Begins an attempt, at the next host. */
static void
begin_attempt(ZkClient *client, int64_t now)
{
	const char *name = zklock_ring_turn(&client->ring, client->zh, client->naddresses,
										client->tries, (uint32_t) (now ^ (now >> 20)));

	snprintf(client->trying, sizeof(client->trying), "%s", name);
	client->began_at = now;
	client->attempt_until = NEVER;
	/* one host is tried until there is another handle */
	if (client->ring.n > 1 && client->patience > 0)
		client->attempt_until = now +
			zklock_tries_time(client->tries,
							  client->session_ends != 0 ? client->session_ends - now : 0,
							  client->patience);
}

/* Is an attempt's time over? */
static bool
out_of_time(const ZkClient *client, int64_t now)
{
	if (client->socket < 0 || client->connected)
		return false;
	return now >= client->attempt_until ||
		(client->tls && client->writing &&
		 now - client->began_at >= INT64_C(1000000) * client->timeout_ms / 3);
}

/* Lets the library connect, ping and lose patience, and finds out what it waits for. */
static void
look_after(ZkClient *client)
{
	struct timeval wait = {0, 0};
	int64_t now = zklock_clock();
	int socket = -1;
	int interest = 0;
	int rc = ZOK;
	int64_t next;

	if (client->dead || client->spoilt)
	{
		set_timer(client, NEVER);
		return;
	}
	if (client->socket < 0 && now < client->pause_until)
	{
		wake_by(client, client->pause_until);
		return;
	}
	if (out_of_time(client, now))
	{
		abandon(client, ZOPERATIONTIMEOUT, ETIMEDOUT, "no connection");
		wake_by(client, AT_ONCE);
		return;
	}
	if (client->socket < 0)
		begin_attempt(client, now);
	calling = client;
	/* the second time where it would pause */
	for (int i = 0; i < 2 && rc == ZOK && socket < 0; i++)
		rc = zookeeper_interest(client->zh, &socket, &interest, &wait);
	calling = NULL;
	zklock_library_settle(client->library, settled, client);
	if (rc != ZOK)
	{
		note_socket(client);
		wake_by(client, AT_ONCE);
		return;
	}
	next = now + INT64_C(1000000000) * wait.tv_sec + INT64_C(1000) * wait.tv_usec;
	if (!client->connected && client->attempt_until < next)
		next = client->attempt_until;
	wake_by(client, next);
	/* last: it may find that there is something to do at once */
	keep_socket(client, socket, (interest & ZOOKEEPER_WRITE) != 0);
}

/*
 * If the library cannot send a request, it closes the socket without a word, and keeps
 * all open requests.  Those that it has sent would wait for their answers on the next
 * connection, where they do not come; the others would be sent there.  So we tell the
 * caller, and begin an attempt to connect in order to fail it: then the library gives
 * up all of them.
 */
static void
check_silent_loss(ZkClient *client)
{
	static const char no_send[] = "a request could not be sent: the connection is broken";

	if (!client->connected || library_connected(client))
		return;
	drop_socket(client);
	append_line(client, ZOO_LOG_LEVEL_ERROR, no_send, sizeof(no_send) - 1);
	note_failure(client, ZCONNECTIONLOSS);
	set_disconnected(client);
	/* and nobody is told what it logs of that */
	calling = NULL;
	for (int i = 0; i < 3 && client->npending > 0; i++)
	{
		struct timeval wait;
		int socket = -1;
		int interest;

		if (zookeeper_interest(client->zh, &socket, &interest, &wait) == ZOK && socket >= 0)
			break_attempt(client, socket);
	}
}

/*-------------------------------------------------------------------------
 * Open and close
 *-------------------------------------------------------------------------
 */

static void
client_free(ZkClient *client)
{
	ZkMessage *message;

	while ((message = client->head) != NULL)
	{
		client->head = message->next;
		zklock_client_free_message(message);
	}
	/* which the library has not completed, though it is closed */
	while (client->pending_head != NULL)
	{
		ZkRequest *request = client->pending_head;

		pending_remove(client, request);
		zklock_client_free_message(request->reply);
		free(request);
	}
	zklock_wire_close(&client->wire);
	if (client->timer >= 0)
		close(client->timer);
	if (client->epoll >= 0)
		close(client->epoll);
	free(client->farewell);
	free(client);
}

static char library_version[32];

static void
note_version(const char *line)
{
	int level;
	size_t len;
	const char *version =
		zklock_liblog_version(zklock_liblog_text(line, &level, &len), &len);

	if (version != NULL)
		snprintf(library_version, sizeof(library_version), " %.*s", (int) len, version);
}

/* The library logs its version only in one place: where it logs its environment,
 * before it looks at the connect string. */
const char *
zklock_client_library(void)
{
	static char library[64];

	if (library[0] == '\0')
	{
		zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
		(void) zookeeper_init2("", NULL, 1000, NULL, NULL, 0, note_version);
		zoo_set_debug_level(log_level);
		snprintf(library, sizeof(library), "%s%s", zklock_library_name, library_version);
	}
	return library;
}

bool
zklock_client_has_tls(void)
{
	return zklock_library_has_tls();
}

/* The library frees its handle, and closes its socket. */
static void
close_handle(ZkClient *client)
{
	client->closing = true;
	calling = client;
	zklock_library_close(client->library);
	calling = NULL;
	zoo_set_debug_level(log_level);
	client->library = NULL;
	client->zh = NULL;
	drop_socket(client);
}

/*
 * Makes the library's handle.  Credentials are given before it can be told that there
 * is a connection, and the library sends them before everything else.
 */
static bool
make_handle(ZkClient *client, const char *hosts, int timeout_ms, const clientid_t *resume,
			const ZkSecurity *security)
{
	int n = security != NULL ? security->ncredentials : 0;
	bool made;

	client->auth_open = n;
	made = zklock_library_open(&client->library, &client->zh, hosts,
							   client->tls ? security->tls : NULL, timeout_ms, resume,
							   client, watcher, log_line, hear, client->error,
							   sizeof(client->error));
	zoo_set_debug_level(log_level);
	if (!made)
		return false;
	for (int i = 0; i < n; i++)
	{
		const ZkCredential *credential = &security->credentials[i];
		int rc = zoo_add_auth(client->zh, credential->scheme, credential->data,
							  credential->len, auth_completion, client);

		if (rc != ZOK)
		{
			/* never go on without it */
			close_handle(client);
			errno = rc == ZINVALIDSTATE ? EACCES : ENOMEM;
			return false;
		}
	}
	return true;
}

void
zklock_client_log_debug(bool debug)
{
	log_level = debug ? ZOO_LOG_LEVEL_DEBUG : ZOO_LOG_LEVEL_INFO;
	zoo_set_debug_level(log_level);
}

/* Reports names that do not resolve, while others do. */
static void
on_unresolved(const char *text, void *context)
{
	append_line(context, ZOO_LOG_LEVEL_WARN, text, strlen(text));
}

/* Makes everything that a client needs; false, with errno, and perhaps "error". */
static bool
client_start(ZkClient *client, const char *hosts, int timeout_ms,
			 const ZkSessionId *resume, const ZkSecurity *security)
{
	struct epoll_event event = {.events = EPOLLIN};
	clientid_t id;
	char *addresses;
	bool made;

	client->epoll = epoll_create1(EPOLL_CLOEXEC);
	client->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (client->epoll < 0 || client->timer < 0 ||
		epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->timer, &event) != 0)
		return false;
	addresses = zklock_resolve(hosts, &client->naddresses, on_unresolved, client,
							   client->error, sizeof(client->error));
	if (addresses == NULL)
		return false;
	if (resume != NULL)
	{
		id.client_id = resume->id;
		memcpy(id.passwd, resume->password, ZKLOCK_PASSWORD_LEN);
	}
	client->opening = true;
	calling = client;
	made = make_handle(client, addresses, timeout_ms,
					   resume != NULL && resume->id != 0 ? &id : NULL, security);
	calling = NULL;
	client->opening = false;
	free(addresses);
	if (!made)
		return false;
	/* these are addresses: once is enough, but for each attempt, where it always does */
	zoo_set_servers_resolution_delay(client->zh, -1);
	event.data.fd = zklock_library_fd(client->library);
	return event.data.fd < 0 ||
		epoll_ctl(client->epoll, EPOLL_CTL_ADD, event.data.fd, &event) == 0;
}

ZkClient *
zklock_client_open(const char *hosts, int timeout_ms, const ZkSessionId *resume,
				   const ZkSecurity *security, char *error, int errlen)
{
	ZkClient *client = calloc(1, sizeof(ZkClient));
	int save_errno;

	if (client == NULL)
	{
		snprintf(error, errlen, "out of memory");
		return NULL;
	}
	client->epoll = client->timer = client->socket = -1;
	zklock_wire_init(&client->wire);
	client->creator = security != NULL && security->creator;
	client->tls = security != NULL && security->tls != NULL;
	client->timeout_ms = timeout_ms;
	client->tries = &client->own_tries;
	client->attempt_until = NEVER;
	errno = 0;
	if (client_start(client, hosts, timeout_ms, resume, security))
	{
		/* it is for us to begin */
		set_timer(client, AT_ONCE);
		return client;
	}
	save_errno = errno != 0 ? errno : EINVAL;
	snprintf(error, errlen, "%s",
			 client->error[0] != '\0' ? client->error : strerror(save_errno));
	if (client->library != NULL)
		close_handle(client);
	client_free(client);
	errno = save_errno;
	return NULL;
}

/* Sends the rest of the farewell; false: nobody is there to hear it. */
static bool
send_farewell(ZkClient *client)
{
	ssize_t n = 0;

	while (client->farewell_sent < client->farewell_len &&
		   (n = send(client->socket, client->farewell + client->farewell_sent,
					 client->farewell_len - client->farewell_sent,
					 MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
		client->farewell_sent += (size_t) n;
	if (client->farewell_sent == client->farewell_len)
	{
		struct epoll_event event = {.events = EPOLLIN};

		epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->socket, &event);
		return true;
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Reads what the library has sent into the pair of sockets; false: there is no more. */
static bool
read_farewell(ZkClient *client, int from)
{
	const size_t more = 65536;
	size_t before = client->farewell_len;
	ssize_t n = 1;

	while (n > 0)
	{
		/* it may be megabytes, which are not to be moved about for each piece */
		if (client->farewell_room < client->farewell_len + more)
		{
			size_t room = 2 * (client->farewell_len + more);
			char *grown = realloc(client->farewell, room);

			if (grown == NULL)
				break;
			client->farewell = grown;
			client->farewell_room = room;
		}
		n = read(from, client->farewell + client->farewell_len, more);
		if (n > 0)
			client->farewell_len += (size_t) n;
	}
	return client->farewell_len > before;
}

/*
 * zookeeper_close sends the close request, and takes whatever comes first for the
 * answer: the reply to another request, or a watch's event.  It closes the socket
 * without having read it.  That resets the connection.  Then a server may hang up
 * before it has read the close request, or the network may drop the request; and the
 * session lives on until its timeout. zookeeper_close also waits 1.5 s for the answer,
 * and we do not.
 *
 * So the wire already holds something to read.  With TLS there is no wire, and one is
 * opened for this one moment.  We pass on what the library says there, and hear the
 * server out, which hangs up when the session is closed.
 *
 * False: the library has to do it by itself.
 */
static bool
take_connection(ZkClient *client)
{
	int pair;
	int socket;
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};

	/* another handle's socket may have the number of a socket that the library closed */
	if (!client->connected || !library_connected(client) || client->socket < 0)
		return false;
	if (!zklock_wire_is_open(&client->wire))
	{
		epoll_ctl(client->epoll, EPOLL_CTL_DEL, client->socket, NULL);
		if (!zklock_wire_open(&client->wire, client->socket, true))
			return false;
	}
	zklock_wire_leave(&client->wire, &socket, &pair, &client->farewell,
					  &client->farewell_len);
	(void) !write(pair, "", 1);
	/* what the connection would not take yet is more, perhaps, than the pair takes */
	while (zookeeper_process(client->zh, ZOOKEEPER_WRITE) == ZOK &&
		   read_farewell(client, pair))
		;
	close_handle(client);
	(void) read_farewell(client, pair);
	close(pair);
	if (client->farewell_len == 0)
	{
		close(socket);
		return true;
	}
	epoll_ctl(client->epoll, EPOLL_CTL_DEL, socket, NULL);
	epoll_ctl(client->epoll, EPOLL_CTL_ADD, socket, &event);
	client->socket = socket;
	client->hung_up_by = zklock_clock() + INT64_C(1000000) * ZKLOCK_HANG_UP_MS;
	set_timer(client, client->hung_up_by);
	(void) send_farewell(client);
	return true;
}

/* Has the server hung up, or is the wait for it over? */
static bool
heard_out(ZkClient *client)
{
	char buf[4096];
	ssize_t n;

	if (client->socket < 0)
		return true;
	if (!send_farewell(client))
		return true;
	while ((n = recv(client->socket, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || (errno != EAGAIN && errno != EINTR) ||
		zklock_clock() >= client->hung_up_by;
}

void
zklock_client_close_begin(ZkClient *client)
{
	assert(!client->closing);
	client->closing = true;
	if (client->asked)
		set_corked(client, false);
	set_timer(client, AT_ONCE);
	if (!take_connection(client))
		close_handle(client);
}

bool
zklock_client_close_end(ZkClient *client)
{
	assert(client->closing);
	if (!heard_out(client))
		return false;
	if (client->socket >= 0)
		close(client->socket);
	client_free(client);
	return true;
}

void
zklock_client_close(ZkClient *client)
{
	if (client == NULL)
		return;
	zklock_client_close_begin(client);
	while (!zklock_client_close_end(client))
	{
		struct pollfd fd = {.fd = client->epoll, .events = POLLIN};

		poll(&fd, 1, ZKLOCK_HANG_UP_MS);
	}
}

static void
leave_attempt(ZkClient *client)
{
	int host = zklock_tries_find(client->tries, client->trying);
	int64_t now = zklock_clock();

	if (client->socket >= 0 && host >= 0 && client->attempt_until != NEVER)
		zklock_tries_left(client->tries, host, now - client->began_at,
						  client->attempt_until - client->began_at, now);
}

bool
zklock_client_leave(ZkClient *client)
{
	/* where there is no connection, closing is not told to anybody */
	if (client->connected || client->head != NULL)
		return false;
	leave_attempt(client);
	client->closing = true;
	close_handle(client);
	client_free(client);
	return true;
}

/*-------------------------------------------------------------------------
 * State and messages
 *-------------------------------------------------------------------------
 */

/*
 * Does nothing but the time call for the library's work?  On a wire its requests are sent
 * without zookeeper_interest, and what breaks the wire sets the timer.
 */
static bool
only_time_counts(const ZkClient *client)
{
	return client->connected && zklock_wire_is_open(&client->wire);
}

int
zklock_client_fd(ZkClient *client)
{
	if (!client->closing)
	{
		/* else the descriptor is readable when it is time, and what came is read first */
		bool due = !only_time_counts(client) &&
			(client->asked || client->wake_at <= zklock_clock());

		zklock_wire_wait(&client->wire);
		if (client->asked)
			send_requests(client);
		if (due && client->head == NULL)
			look_after(client);
		if (client->head != NULL || (client->more && client->socket >= 0))
			set_timer(client, AT_ONCE);
	}
	return client->epoll;
}

bool
zklock_client_spoilt(ZkClient *client)
{
	return client->spoilt;
}

void
zklock_client_hosts(ZkClient *client, ZkTries *tries, int64_t session_ends, int64_t patience)
{
	client->tries = tries;
	client->session_ends = session_ends;
	client->patience = patience;
}

void
zklock_client_spread(ZkClient *client, int ms)
{
	client->spread_ms = ms;
}

int
zklock_client_pending(ZkClient *client)
{
	return client->npending;
}

uint64_t
zklock_client_requests(void)
{
	return requests_made;
}

bool
zklock_client_connected(ZkClient *client)
{
	return client->connected;
}

bool
zklock_client_session(ZkClient *client, ZkSessionId *session, int *timeout_ms)
{
	if (client->session.id == 0)
		return false;
	if (session != NULL)
		*session = client->session;
	if (timeout_ms != NULL)
		*timeout_ms = client->timeout_ms;
	return true;
}

void
zklock_client_server(ZkClient *client, char *buf, int buflen)
{
	snprintf(buf, buflen, "%s", client->server);
}

/*
 * The ensemble has not given this reply.  Nobody knows whether the request was done,
 * whatever code the library made up for it.
 */
static void
annul(ZkMessage *reply)
{
	ZkMessage lost = {.type = reply->type,
					  .rc = ZCONNECTIONLOSS,
					  .tag = reply->tag,
					  .sent_at = reply->sent_at,
					  .received_at = zklock_clock(),
					  .failed_op = -1};

	free(reply->path);
	free(reply->data);
	free(reply->children);
	*reply = lost;
}

/* Does it answer a request? */
static bool
is_reply(const ZkMessage *message)
{
	return message->type >= ZKLOCK_MSG_CREATED && message->type <= ZKLOCK_MSG_UNWATCHED;
}

/* Processes until there is a message, or there is nothing.  "again": the socket is not
 * believed to have no more before it says so itself. */
static void
process_all(ZkClient *client, bool again)
{
	while (client->head == NULL && client->socket >= 0)
	{
		process(client);
		if (client->head == NULL && again && client->wire.drained)
			zklock_wire_wait(&client->wire);
		else if (!client->more)
			break;
	}
}

ZkMessage *
zklock_client_receive(ZkClient *client)
{
	ZkMessage *message;
	bool due;

	assert(!client->closing);
	zklock_library_hear(client->library);
	if (client->head == NULL)
	{
		due = !only_time_counts(client) || client->wake_at <= zklock_clock();
		/* the library breaks a connection that was silent, as far as it was told */
		if (due)
			zklock_wire_wait(&client->wire);
		process_all(client, due);
		if (client->head == NULL && due)
			look_after(client);
	}
	message = client->head;
	if (message == NULL)
		return NULL;
	client->head = message->next;
	if (client->head == NULL)
		client->tail = NULL;
	message->next = NULL;

	if (message->type == ZKLOCK_MSG_CONNECTED)
		client->up = true;
	else if (message->type == ZKLOCK_MSG_DISCONNECTED ||
			 message->type == ZKLOCK_MSG_EXPIRED || message->type == ZKLOCK_MSG_AUTH_FAILED)
		client->up = false;
	else if (is_reply(message) && !client->up)
		annul(message);
	return message;
}

/*-------------------------------------------------------------------------
 * Requests
 *-------------------------------------------------------------------------
 */

/* A request on its way to the library. */
typedef struct Sending
{
	ZkRequest *request; /* NULL: the library shall not hear of it */
	int rc;				/* of the call, or why not */
} Sending;

/*
 * Allocates a request and its reply and enters it into the pending list.  "path",
 * unless it is NULL, is copied into the reply, with room for this many bytes behind it.
 * The request has "block" bytes behind it.
 */
static Sending
request_begin(ZkClient *client, ZkMessageType type, const ZkRequestTag *tag,
			  const char *path, size_t more_room, size_t block)
{
	Sending sending = {.rc = ZSYSTEMERROR};
	size_t pathroom = path != NULL ? strlen(path) + 1 + more_room : 0;
	ZkRequest *request;
	ZkMessage *reply;

	assert(!client->closing);
	/* a request made now could only go out on a connection not yet known */
	if (!client->up)
	{
		sending.rc = ZCONNECTIONLOSS;
		return sending;
	}
	if (client->npending >= ZKLOCK_MAX_PENDING)
		return sending;

	request = calloc(1, sizeof(ZkRequest) + block);
	reply = calloc(1, sizeof(ZkMessage));
	if (request == NULL || reply == NULL ||
		(pathroom > 0 && (reply->path = calloc(1, pathroom)) == NULL))
	{
		free(request);
		zklock_client_free_message(reply);
		return sending;
	}
	if (path != NULL)
		strcpy(reply->path, path);
	reply->type = type;
	reply->tag = *tag;
	reply->sent_at = zklock_clock();
	reply->failed_op = -1;
	sending.rc = ZOK;
	if (!client->connected)
	{
		/* so could this one, and DISCONNECTED is on its way: see at the top */
		assert(client->head != NULL);
		free(request);
		queue_append(client, reply);
		return sending;
	}

	requests_made++;
	request->told.client = client;
	request->told.request = request;
	request->reply = reply;
	request->pathroom = (int) pathroom;
	request->prev = client->pending_tail;
	if (client->pending_tail != NULL)
		client->pending_tail->next = request;
	else
		client->pending_head = request;
	client->pending_tail = request;
	client->npending++;

	if (!client->asked)
		set_corked(client, true);
	calling = client;
	sending.request = request;
	return sending;
}

/*
 * The library has answered the call.  If it refused, there will be no reply, and the
 * request goes.  But after a ZMARSHALLINGERROR, which stands for any failure half way,
 * the library may still call the completion.
 */
static int
request_end(ZkClient *client, const Sending *sending)
{
	ZkRequest *request = sending->request;

	calling = NULL;
	if (request == NULL)
		return sending->rc;
	if (sending->rc != ZOK)
	{
		pending_remove(client, request);
		zklock_client_free_message(request->reply);
		request->reply = NULL;
		if (sending->rc != ZMARSHALLINGERROR)
			free(request);
	}
	check_silent_loss(client);
	return sending->rc;
}

/* ZooKeeper's flags for a node that we create. */
static int
create_flags(ZkCreateMode mode)
{
	switch (mode)
	{
		case ZKLOCK_CREATE_PERSISTENT:
			return ZOO_PERSISTENT;
		case ZKLOCK_CREATE_PERSISTENT_SEQUENTIAL:
			return ZOO_PERSISTENT_SEQUENTIAL;
		case ZKLOCK_CREATE_CONTAINER:
			return ZOO_CONTAINER;
		case ZKLOCK_CREATE_EPHEMERAL:
			return ZOO_EPHEMERAL;
		case ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL:
			break;
	}
	return ZOO_EPHEMERAL_SEQUENTIAL;
}

static const struct ACL_vector *
new_acl(const ZkClient *client)
{
	return client->creator ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

int
zklock_client_create(ZkClient *client, const char *path, const char *data, int datalen,
					 ZkCreateMode mode, const ZkRequestTag *tag)
{
	Sending sending =
		request_begin(client, ZKLOCK_MSG_CREATED, tag, path, ZKLOCK_SEQUENCE_ROOM, 0);

	if (sending.request != NULL)
		sending.rc = zoo_acreate2(client->zh, path, data, datalen, new_acl(client),
								  create_flags(mode), create_completion, sending.request);
	return request_end(client, &sending);
}

int
zklock_client_delete(ZkClient *client, const char *path, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_DELETED, tag, path, 0, 0);

	if (sending.request != NULL)
		sending.rc = zoo_adelete(client->zh, path, -1, void_completion, sending.request);
	return request_end(client, &sending);
}

int
zklock_client_list(ZkClient *client, const char *path, bool watch, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_LISTED, tag, NULL, 0, 0);

	if (sending.request != NULL)
		sending.rc = zoo_aget_children2(client->zh, path, watch ? 1 : 0, list_completion,
										sending.request);
	return request_end(client, &sending);
}

int
zklock_client_get(ZkClient *client, const char *path, bool watch, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_GOT, tag, NULL, 0, 0);

	if (sending.request != NULL)
		sending.rc =
			zoo_aget(client->zh, path, watch ? 1 : 0, get_completion, sending.request);
	return request_end(client, &sending);
}

int
zklock_client_set(ZkClient *client, const char *path, const char *data, int datalen,
				  int32_t version, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_SET, tag, NULL, 0, 0);

	if (sending.request != NULL)
		sending.rc = zoo_aset(client->zh, path, data, datalen, version, stat_completion,
							  sending.request);
	return request_end(client, &sending);
}

int
zklock_client_get_acl(ZkClient *client, const char *path, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_ACL, tag, path, 0, 0);

	if (sending.request != NULL)
		sending.rc = zoo_aget_acl(client->zh, path, acl_completion, sending.request);
	return request_end(client, &sending);
}

int
zklock_client_sync(ZkClient *client, const char *path, const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_SYNCED, tag, NULL, 0, 0);

	if (sending.request != NULL)
		sending.rc = zoo_async(client->zh, path, sync_completion, sending.request);
	return request_end(client, &sending);
}

int
zklock_client_unwatch(ZkClient *client, const char *path, bool children,
					  const ZkRequestTag *tag)
{
	Sending sending = request_begin(client, ZKLOCK_MSG_UNWATCHED, tag, NULL, 0, 0);

	/* declared as a pointer to a completion, and taken for the completion */
	if (sending.request != NULL)
		sending.rc = zoo_aremove_all_watches(client->zh, path,
											 children ? ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA,
											 0, (void_completion_t *) unwatch_completion,
											 sending.request);
	return request_end(client, &sending);
}

/*
 * The library fills the results while it reads the reply, so they live as long as the
 * request does, and so do the buffers for what was created.
 */
int
zklock_client_multi(ZkClient *client, const ZkOp *ops, int nops, const ZkRequestTag *tag)
{
	size_t block = (size_t) nops * sizeof(zoo_op_result_t);
	zoo_op_t *calls = calloc((size_t) nops, sizeof(zoo_op_t));
	Sending sending = {.rc = ZSYSTEMERROR};
	char *buffer = NULL;

	for (int i = 0; i < nops; i++)
		if (ops[i].type == ZKLOCK_OP_CREATE)
			block += strlen(ops[i].path) + ZKLOCK_SEQUENCE_ROOM;
	if (calls != NULL)
		sending = request_begin(client, ZKLOCK_MSG_MULTI, tag, NULL, 0, block);
	if (sending.request != NULL)
	{
		sending.request->nops = nops;
		sending.request->results = (zoo_op_result_t *) (sending.request + 1);
		buffer = (char *) (sending.request->results + nops);
	}
	for (int i = 0; i < nops && sending.request != NULL; i++)
	{
		const ZkOp *op = &ops[i];
		int room;

		switch (op->type)
		{
			case ZKLOCK_OP_CREATE:
				assert(op->mode != ZKLOCK_CREATE_CONTAINER);
				room = (int) strlen(op->path) + ZKLOCK_SEQUENCE_ROOM;
				zoo_create_op_init(&calls[i], op->path, op->data, op->datalen,
								   new_acl(client), create_flags(op->mode), buffer, room);
				buffer += room;
				break;
			case ZKLOCK_OP_DELETE:
				zoo_delete_op_init(&calls[i], op->path, op->version);
				break;
			case ZKLOCK_OP_SET:
				zoo_set_op_init(&calls[i], op->path, op->data, op->datalen, op->version,
								&sending.request->stat);
				break;
		}
	}
	if (sending.request != NULL)
		sending.rc = zoo_amulti(client->zh, nops, calls, sending.request->results,
								multi_completion, sending.request);
	free(calls);
	return request_end(client, &sending);
}
