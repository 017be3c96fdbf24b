/*-------------------------------------------------------------------------
 *
 * client.c
 *	  One ZooKeeper session, seen from a single-threaded program.
 *
 * Three threads meet here.  The main thread calls everything in client.h.
 * libzookeeper_mt adds two of its own for each handle: the I/O thread owns
 * the socket, the completion thread calls us back.  On those two nothing may
 * run that may fail or wait but malloc, pthread, write(2), nanosleep(2) and
 * clock_gettime(2), so the callbacks only fill a ZkMessage and append it to the
 * client's queue.
 *
 * Order.  Replies, watch events and session events all pass through one queue
 * of the library (completions_to_process), filled by the I/O thread in wire
 * order and emptied by the completion thread, which calls the watcher and the
 * completions alike.  When a connection breaks, the I/O thread queues the
 * session event first and then a reply for each open request (cleanup() in
 * zookeeper.c); both precede the next connection's event.  So the order in our
 * queue is
 *
 *		DISCONNECTED, lost replies, CONNECTED, replies on the new connection.
 *
 * The code of a lost reply says why the connection was broken: ZCONNECTIONLOSS mostly,
 * but ZRUNTIMEINCONSISTENCY if an answer had the wrong number, ZAUTHFAILED if the
 * credentials were refused, and others.  To a caller these would look like refusals by
 * the ensemble, which the requests may have reached, and been done.  What the ensemble
 * did say on the old connection stands before DISCONNECTED.  So zklock_client_receive
 * makes a ZCONNECTIONLOSS of each reply that it returns while the connection is not up.
 *
 * One hole is left, and closed here.  A request made after the library has
 * seen the loss and before the main thread has read of it is kept by the
 * library and goes out on the next connection, ahead of whatever the caller
 * sends to find out what became of its older requests.  Its reply would come
 * after CONNECTED, when a caller thinks that all its requests are answered.
 * (The same can happen without any session event, when a wake-up of the I/O
 * thread fails.)  zklock_client_receive therefore answers whatever is open
 * in the same way before it returns CONNECTED, and drops the real reply; one that the
 * completion thread has in hand just then it lets come first.  That is no lie: the
 * request reaches the server, if at all, on this connection, and before anything that
 * the caller sends from now on.
 *
 * Memory.  A request and its reply are allocated by the main thread when the
 * request is made, so that no reply can be lost for want of memory.  Until it
 * is answered, the request is in the client's pending list, since
 * zookeeper_close may leave completions uncalled; closing frees that list.
 * Our mutex is never held while the library is called.
 *
 * Attempts.  The library pauses between attempts to connect only where it sees
 * the end of its list of hosts; by ZOOKEEPER-2466 it never does if their number
 * is even, and else its pause is a sixtieth of the session timeout.  So servers
 * that accept and hang up, as those without a quorum do, would be asked some
 * hundred or many thousand times a second.  It has no setting for that.  But its
 * I/O thread logs each failure before it goes on to the next attempt, and there,
 * in the log callback, it is made to wait (pause_attempts).
 *
 * Leaving.  zookeeper_close ends the session if the handle turns out to be connected
 * when it has joined the threads, and a handle that tries to connect may be, at any
 * moment.  Others would have our locks then, while we still believe in the lease.  So a
 * handle that is to leave its session alive is made to forget it first: its id there is
 * replaced by one that no session has.  That is done on the I/O thread, in the log
 * callback, since nobody else reads and writes it then, after either of two lines (leave):
 *
 *		an attempt has failed: the next one asks for a session that there is not, and
 *		is refused;
 *		an attempt has asked for the session: the answer is about another session than
 *		the handle's, so the library takes the handle's for expired, and hangs up.
 *
 * An attempt that had asked before may succeed yet.  Then the I/O thread waits in the
 * callback for as long as silence may last, and takes the connection for broken when it
 * goes on: an attempt has failed.  It sends no ping meanwhile, and the session is not kept
 * alive by that, nor kept from whoever resumes it.
 *
 * A handle that never had a session asks for a new one instead, which nobody knows.
 * So to close a handle that has left harms nobody.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define THREADED

#include "client.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#include "liblog.h"

/* Log lines that may wait in the queue; further ones are only counted. */
#define ZKLOCK_MAX_LOG_LINES 256

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

/* No session has this id: they begin with the number of a server and the time. */
#define ZKLOCK_NO_SESSION 1

_Static_assert(ZKLOCK_ZOK == ZOK, "ZOK");
_Static_assert(ZKLOCK_ZCONNECTIONLOSS == ZCONNECTIONLOSS, "ZCONNECTIONLOSS");
_Static_assert(ZKLOCK_ZOPERATIONTIMEOUT == ZOPERATIONTIMEOUT, "ZOPERATIONTIMEOUT");
_Static_assert(ZKLOCK_ZNONODE == ZNONODE, "ZNONODE");
_Static_assert(ZKLOCK_ZNOAUTH == ZNOAUTH, "ZNOAUTH");
_Static_assert(ZKLOCK_ZBADVERSION == ZBADVERSION, "ZBADVERSION");
_Static_assert(ZKLOCK_ZNODEEXISTS == ZNODEEXISTS, "ZNODEEXISTS");
_Static_assert(ZKLOCK_ZNOTEMPTY == ZNOTEMPTY, "ZNOTEMPTY");
_Static_assert(ZKLOCK_ZSESSIONEXPIRED == ZSESSIONEXPIRED, "ZSESSIONEXPIRED");
_Static_assert(ZKLOCK_PASSWORD_LEN == sizeof(((clientid_t *) 0)->passwd), "passwd");

/*
 * A request that the library has and will complete: the completion's data.
 * Allocated by the main thread; freed by the completion thread when the
 * completion is called, or by zklock_client_close.
 */
typedef struct ZkRequest
{
	ZkClient *client;
	uint64_t serial;		/* unique within the process */
	ZkMessage *reply;		/* NULL: answered already, drop the real one */
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
	/* set by the main thread before the handle exists, then constant */
	int fd;		  /* eventfd, see fd_set_readable */
	int slot;	  /* in log_slots */
	int nhosts;	  /* in the connect string */
	bool creator; /* nodes that we create are ours alone */

	/* of the main thread alone */
	pthread_t thread; /* itself; the library's read it */
	pthread_t closer; /* see zklock_client_close_begin */
	zhandle_t *zh;
	bool up; /* CONNECTED was the last session message that
			  * zklock_client_receive returned */

	/* of the I/O thread alone */
	int failures;			/* attempts in a row that came to nothing */
	int64_t established_at; /* ns; 0: no session on this connection */

	/* set by the main thread, read by all */
	atomic_bool closing;

	/* of the thread that closes the client */
	int socket;			/* of the connection, -1: none */
	int64_t hung_up_by; /* ns: when the server must have hung up */

	/* protects the following fields only, but "changed" tells of "closing", too */
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* closing, leaving */
	bool readable;			/* fd */
	ZkMessage *head;		/* messages, oldest first */
	ZkMessage *tail;
	ZkRequest *pending_head; /* requests, oldest first */
	ZkRequest *pending_tail;
	int npending;
	bool filling;				  /* a reply is neither there nor in the queue */
	int nlogs;					  /* LOG messages in the queue */
	unsigned long log_dropped;	  /* lines dropped since the last note of it */
	bool opening;				  /* zookeeper_init2 has not returned yet */
	int error_level;			  /* of "error", 0 if none */
	char error[ZKLOCK_ERROR_LEN]; /* worst log line while opening */
	bool connected;				  /* by the last session event */
	int auth_open;				  /* credentials that were neither accepted nor refused */
	bool held_back;				  /* CONNECTED waits for them */
	bool established;			  /* the I/O thread has a session on this connection */
	bool leaving;				  /* the main thread wants to leave it */
	bool left;					  /* the handle knows of no session that is ours */
	bool closed;				  /* there is no handle any more */
	int64_t asked_at;	 /* ns: the latest attempt had not asked for its session */
	ZkSessionId session; /* as of the last connection; id 0: none yet */
	int timeout_ms;
	char server[ZKLOCK_SERVER_LEN]; /* connected to or tried last */
};

static void log_line(int slot, const char *line);

/* Of the main thread; the library numbers the requests of a process, too. */
static uint64_t last_serial = 0;

static bool
in_main_thread(const ZkClient *client)
{
	return pthread_equal(client->thread, pthread_self());
}

/*
 * The library's log callback has no context argument, so each client has one
 * of these functions to itself.  A slot is filled before the library's threads
 * start and emptied after they are joined, which is all the locking it needs.
 */
static ZkClient *log_slots[ZKLOCK_MAX_CLIENTS];

static void
log_line_0(const char *line)
{
	log_line(0, line);
}

static void
log_line_1(const char *line)
{
	log_line(1, line);
}

static void
log_line_2(const char *line)
{
	log_line(2, line);
}

static void
log_line_3(const char *line)
{
	log_line(3, line);
}

static ZooLogLevel log_level = ZOO_LOG_LEVEL_INFO; /* we read what these say */

static const log_callback_fn log_functions[ZKLOCK_MAX_CLIENTS] = {log_line_0, log_line_1,
																  log_line_2, log_line_3};

/*-------------------------------------------------------------------------
 * The queue: any thread.
 *-------------------------------------------------------------------------
 */

/*
 * The descriptor becomes readable when there is something to receive that is not
 * patient, and stays so until all is received.  It is written without the mutex, which
 * whoever wakes up takes first; "readable" is set before that, and reset when the
 * write has been read.
 */
static void
fd_set_readable(ZkClient *client)
{
	uint64_t one = 1;

	/* cannot block and cannot fail: the counter is 0 or 1 */
	while (write(client->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* With the mutex held.  The write may be yet to come: then it wakes us for nothing. */
static void
fd_reset(ZkClient *client)
{
	uint64_t count;
	ssize_t rc;

	while ((rc = read(client->fd, &count, sizeof(count))) < 0 && errno == EINTR)
		;
	client->readable = rc < 0;
}

/*
 * Does a message wait for the next one?  A deletion that has succeeded is no news to
 * anybody who waits, and the next of the open requests brings its own reply, or the end
 * of the connection.  With the mutex held.
 */
static bool
is_patient(const ZkClient *client, const ZkMessage *message)
{
	return message->rc == ZOK &&
		(message->tag.patient ||
		 (message->type == ZKLOCK_MSG_DELETED && client->npending > 0));
}

/* Append a message that the caller has made. */
static void
queue_append(ZkClient *client, ZkMessage *message)
{
	bool wake;

	pthread_mutex_lock(&client->mutex);
	message->next = NULL;
	if (client->tail != NULL)
		client->tail->next = message;
	else
		client->head = message;
	client->tail = message;
	client->nlogs += message->type == ZKLOCK_MSG_LOG;
	if (zklock_is_reply(message))
		client->filling = false;
	wake = !client->readable && !is_patient(client, message);
	client->readable |= wake;
	pthread_mutex_unlock(&client->mutex);
	if (wake)
		fd_set_readable(client);
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

/* Take a request out of the pending list, with the mutex held. */
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
 * Events: the completion thread.
 *-------------------------------------------------------------------------
 */

/*
 * Memory for an event, which unlike a reply was not asked for in advance.
 * An event that is dropped would leave somebody waiting for ever.  Without
 * memory the completion thread rather waits here until there is some: no
 * acknowledgement arrives meanwhile, and the lease runs out, which is safe.
 */
static void *
event_alloc(ZkClient *client, size_t size)
{
	void *block;

	while ((block = calloc(1, size)) == NULL && !atomic_load(&client->closing))
	{
		struct timespec pause = {0, 10 * 1000 * 1000};

		nanosleep(&pause, NULL);
	}
	return block;
}

static void
event_append(ZkClient *client, ZkMessageType type, const char *path, bool patient)
{
	ZkMessage *message = event_alloc(client, sizeof(ZkMessage));
	size_t len = path != NULL ? strlen(path) + 1 : 0;

	if (message != NULL && path != NULL)
	{
		message->path = event_alloc(client, len);
		if (message->path != NULL)
			memcpy(message->path, path, len);
	}
	/* allocation gives up only when closing, and then nobody listens */
	if (atomic_load(&client->closing))
	{
		zklock_client_free_message(message);
		return;
	}
	message->type = type;
	message->tag.patient = patient;
	if (type == ZKLOCK_MSG_CONNECTED)
	{
		pthread_mutex_lock(&client->mutex);
		message->sent_at = client->asked_at;
		pthread_mutex_unlock(&client->mutex);
	}
	message->received_at = zklock_clock();
	queue_append(client, message);
}

static bool
set_connected(ZkClient *client, bool connected)
{
	bool was;

	pthread_mutex_lock(&client->mutex);
	was = client->connected && !client->held_back;
	client->connected = connected;
	client->held_back = false;
	pthread_mutex_unlock(&client->mutex);
	return was;
}

/* The handle connects no more. */
static void
set_dead(ZkClient *client)
{
	set_connected(client, false);
	pthread_mutex_lock(&client->mutex);
	client->left = true;
	pthread_mutex_unlock(&client->mutex);
}

static void
session_event(ZkClient *client, zhandle_t *zh, int state)
{
	if (state == ZOO_CONNECTED_STATE)
	{
		/* id, password and timeout are set before the event is queued */
		const clientid_t *id = zoo_client_id(zh);
		bool held_back;

		/* a connection that broke without an event (see above) */
		if (set_connected(client, false))
			event_append(client, ZKLOCK_MSG_DISCONNECTED, NULL, false);

		pthread_mutex_lock(&client->mutex);
		client->session.id = id->client_id;
		memcpy(client->session.password, id->passwd, ZKLOCK_PASSWORD_LEN);
		client->timeout_ms = zoo_recv_timeout(zh);
		client->connected = true;
		client->held_back = held_back = client->auth_open > 0;
		pthread_mutex_unlock(&client->mutex);
		if (!held_back)
			event_append(client, ZKLOCK_MSG_CONNECTED, NULL, false);
	}
	else if (state == ZOO_EXPIRED_SESSION_STATE)
	{
		set_dead(client);
		event_append(client, ZKLOCK_MSG_EXPIRED, NULL, false);
	}
	else if (state == ZOO_AUTH_FAILED_STATE)
	{
		set_dead(client);
		event_append(client, ZKLOCK_MSG_AUTH_FAILED, NULL, false);
	}
	else
	{
		/* CONNECTING, ASSOCIATING, NOTCONNECTED */
		if (set_connected(client, false))
			event_append(client, ZKLOCK_MSG_DISCONNECTED, NULL, false);
	}
}

/*
 * A credential was accepted, refused (the session event says so, too), or lost
 * with its connection.  The library presents it again on the next one, but does
 * not call this again, so then nothing is held back any more.  Runs on the I/O
 * thread.
 */
static void
auth_completion(int rc, const void *data)
{
	ZkClient *client = (ZkClient *) data;
	bool release;

	pthread_mutex_lock(&client->mutex);
	if (client->auth_open > 0)
		client->auth_open--;
	release = client->held_back && client->auth_open == 0 && rc == ZOK;
	if (release)
		client->held_back = false;
	pthread_mutex_unlock(&client->mutex);
	if (release && !atomic_load(&client->closing))
		event_append(client, ZKLOCK_MSG_CONNECTED, NULL, false);
}

/*
 * Is the oldest request the delete of a child of "path"?  Then the watch on the
 * children has been used up by this child, or a moment before by another, and the
 * reply to the delete comes right behind.
 */
static bool
deleting_child(ZkClient *client, const char *path)
{
	size_t len = strlen(path);
	const ZkMessage *reply;
	bool deleting;

	pthread_mutex_lock(&client->mutex);
	reply = client->pending_head != NULL ? client->pending_head->reply : NULL;
	deleting = reply != NULL && reply->type == ZKLOCK_MSG_DELETED &&
		strncmp(reply->path, path, len) == 0 && reply->path[len] == '/';
	pthread_mutex_unlock(&client->mutex);
	return deleting;
}

/*
 * The one watcher.  There is also but one context: the library tells session
 * events to every distinct pair of watcher and context once.
 */
static void
watcher(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	ZkClient *client = context;

	if (atomic_load(&client->closing))
		return;
	if (type == ZOO_SESSION_EVENT)
		session_event(client, zh, state);
	else if (type == ZOO_DELETED_EVENT)
		event_append(client, ZKLOCK_MSG_NODE_DELETED, path, false);
	else if (type == ZOO_CHILD_EVENT)
		event_append(client, ZKLOCK_MSG_CHILDREN_CHANGED, path,
					 deleting_child(client, path));
	else
		event_append(client, ZKLOCK_MSG_NODE_CHANGED, path, false);
}

/*-------------------------------------------------------------------------
 * Replies: the completion thread.
 *
 * Each completion fills the reply with reply_begin, a few fields and
 * reply_end.  Between the two the message belongs to the completion thread.
 *-------------------------------------------------------------------------
 */

/*
 * The reply to fill, taken from the request; NULL if the caller was answered
 * already or is closing.  Either way the request is out of the pending list.
 */
static ZkMessage *
reply_begin(ZkRequest *request, int rc)
{
	ZkClient *client = request->client;
	ZkMessage *reply;

	/* answered once, and on the library's thread */
	assert(!in_main_thread(client) || atomic_load(&client->closing));
	pthread_mutex_lock(&client->mutex);
	pending_remove(client, request);
	reply = request->reply;
	request->reply = NULL;
	client->filling = reply != NULL;
	pthread_mutex_unlock(&client->mutex);

	if (reply != NULL)
	{
		reply->rc = rc;
		reply->received_at = zklock_clock();
	}
	return reply;
}

static void
reply_end(ZkRequest *request, ZkMessage *reply)
{
	ZkClient *client = request->client;

	free(request);
	if (reply == NULL)
		return;
	if (atomic_load(&client->closing))
	{
		zklock_client_free_message(reply);
		return;
	}
	queue_append(client, reply);
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
	reply_end(request, reply);
}

/* delete */
static void
void_completion(int rc, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	reply_end(request, reply);
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
	}
	reply_end(request, reply);
}

/* sync */
static void
sync_completion(int rc, const char *path, const void *data)
{
	ZkRequest *request = (ZkRequest *) data;
	ZkMessage *reply = reply_begin(request, rc);

	(void) path;
	reply_end(request, reply);
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

/* The stat has twice the creations less the children that are left; see src/README. */
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
			reply->ncreated = created_children(stat);
	}
	reply_end(request, reply);
}

/*
 * What the ops of a multi have made, as names: the library takes the chroot off a path
 * that a create returns, but older ones not in a multi.
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
	reply_end(request, reply);
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
	reply_end(request, reply);
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
	reply_end(request, reply);
}

/*-------------------------------------------------------------------------
 * The library's log: any thread.
 *
 * The library may hold locks of its own when it calls this; we call none of it but
 * zoo_client_id and zoo_recv_timeout, which take none.
 *-------------------------------------------------------------------------
 */

/*
 * The server's address, as the I/O thread last named it.  The library's own
 * function for it takes a lock which the I/O thread holds while it resolves
 * names, for seconds if it must.
 */
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

/*
 * Sleep so many ms, or until the client is closed; "unless_left": or is to be left.
 */
static void
pause_io(ZkClient *client, int ms, bool unless_left)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long) (ms % 1000) * 1000000;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;

	pthread_mutex_lock(&client->mutex);
	while (!atomic_load(&client->closing) && !(unless_left && client->leaving) &&
		   pthread_cond_timedwait(&client->changed, &client->mutex, &until) == 0)
		;
	pthread_mutex_unlock(&client->mutex);
}

/*
 * The I/O thread says what has become of a connection: "session establishment
 * complete on server ...", or "Socket ... zk retcode=...".  When all hosts have
 * failed, wait; the more often the longer, and not all servers equally long.
 * A sixth of the session timeout must do: a session shall not end for that.
 *
 * The end of a connection that has worked is told at once.  That of one which
 * hardly lived may be told late, which looks like a slow network.
 */
static void
pause_attempts(ZkClient *client, const char *text)
{
	int failure = zklock_liblog_failure(text);
	int64_t now = zklock_clock();
	int64_t lived;
	int longest;
	int ms = ZKLOCK_FIRST_PAUSE;

	if (zklock_liblog_established(text))
		client->established_at = now;
	if (failure == 0)
		return;

	lived = client->established_at != 0 ? now - client->established_at : 0;
	client->established_at = 0;
	if (lived >= INT64_C(1000000) * ZKLOCK_SHORT_LIFE)
	{
		client->failures = 0;
		return;
	}
	/* silence has taken its time already, and expiry cannot wait */
	if (failure != ZCONNECTIONLOSS)
		return;
	if (++client->failures % client->nhosts != 0)
		return;

	pthread_mutex_lock(&client->mutex);
	longest = client->timeout_ms / 6;
	pthread_mutex_unlock(&client->mutex);
	if (longest > ZKLOCK_LONGEST_PAUSE)
		longest = ZKLOCK_LONGEST_PAUSE;
	for (int i = client->failures / client->nhosts; i > 1 && ms < longest; i--)
		ms *= 2;
	if (ms > longest)
		ms = longest;
	pause_io(client, ms / 2 + (int) (now / 1000 % (ms / 2 + 1)), true);
}

static void
note_established(ZkClient *client, const char *text)
{
	bool established = zklock_liblog_established(text);

	if (!established && zklock_liblog_failure(text) == 0)
		return;
	pthread_mutex_lock(&client->mutex);
	client->established = established;
	pthread_mutex_unlock(&client->mutex);
}

/*
 * What the I/O thread says of a connection, once more, if the client is being left: see
 * at the top.
 */
static void
leave(ZkClient *client, const char *text)
{
	bool established = zklock_liblog_established(text);
	bool leaving;

	if (!established && zklock_liblog_failure(text) == 0 && !zklock_liblog_initiated(text))
		return;
	pthread_mutex_lock(&client->mutex);
	leaving = client->leaving;
	if (leaving && !established)
	{
		clientid_t *id = (clientid_t *) (uintptr_t) zoo_client_id(client->zh);

		id->client_id = ZKLOCK_NO_SESSION;
		memset(id->passwd, 0, sizeof(id->passwd));
		client->left = true;
	}
	pthread_mutex_unlock(&client->mutex);
	if (leaving)
		pause_io(client, zoo_recv_timeout(client->zh), false);
}

/*
 * The I/O thread has said that a connection or an attempt at one has failed: the next one
 * begins after that.  Should the library ever begin one without a word, the time is too
 * early, which does no harm.  Should that fail, too, before we have told of it, the time
 * that we tell is too late for it: but then its end stands right behind, and no request
 * that is made on it is answered.
 */
static void
note_attempt(ZkClient *client, const char *text)
{
	if (zklock_liblog_failure(text) == 0 || in_main_thread(client))
		return;
	pthread_mutex_lock(&client->mutex);
	client->asked_at = zklock_clock();
	pthread_mutex_unlock(&client->mutex);
}

typedef void (*library_fn)(void);

/* A function of the library that we run with, to be cast to its type; NULL: it has none. */
static library_fn
find_function(const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);
	library_fn function;

	/* POSIX promises that this works, and C does not */
	memcpy(&function, &symbol, sizeof(function));
	return function;
}

/*
 * The library has this, and calls it on its own thread, but zookeeper.h shows it to those
 * alone who do without threads.
 */
typedef int (*interest_fn)(zhandle_t *zh, int *fd, int *interest, struct timeval *timeout);

/*
 * zookeeper_close is about to send the close request: keep the connection, see
 * close_handle.  The library's threads have ended, so that it can be asked for the
 * socket as if it had none.
 */
static void
keep_socket(ZkClient *client)
{
	interest_fn ask = (interest_fn) find_function("zookeeper_interest");
	int fd = -1;
	int interest;
	struct timeval timeout;

	assert(client->socket < 0);
	client->hung_up_by = zklock_clock() + INT64_C(1000000) * ZKLOCK_HANG_UP_MS;
	if (ask != NULL && ask(client->zh, &fd, &interest, &timeout) == ZOK && fd >= 0)
		client->socket = fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void
log_line(int slot, const char *line)
{
	ZkClient *client = log_slots[slot];
	const char *text;
	ZkMessage *message;
	size_t len;
	int level;
	bool drop;

	if (client == NULL)
		return;
	text = zklock_liblog_text(line, &level, &len);
	if (atomic_load(&client->closing))
	{
		if (zklock_liblog_closing(text))
			keep_socket(client);
		return;
	}

	message = calloc(1, sizeof(ZkMessage));
	if (message != NULL && (message->data = malloc(len + 1)) != NULL)
	{
		message->type = ZKLOCK_MSG_LOG;
		message->level = level;
		memcpy(message->data, text, len);
		message->data[len] = '\0';
		message->datalen = (int) len;
		message->received_at = zklock_clock();
	}
	else
	{
		free(message);
		message = NULL;
	}

	pthread_mutex_lock(&client->mutex);
	note_server(client, text);
	if (client->opening && level <= ZOO_LOG_LEVEL_WARN &&
		(client->error_level == 0 || level <= client->error_level))
	{
		client->error_level = level;
		snprintf(client->error, sizeof(client->error), "%.*s", (int) len, text);
	}
	drop = message == NULL || client->nlogs >= ZKLOCK_MAX_LOG_LINES;
	client->log_dropped += drop;
	pthread_mutex_unlock(&client->mutex);
	if (drop)
		zklock_client_free_message(message);
	else
		queue_append(client, message);
	note_established(client, text);
	pause_attempts(client, text);
	leave(client, text); /* perhaps it was to be left during the pause */
	note_attempt(client, text);
}

/*-------------------------------------------------------------------------
 * Open and close: the main thread.
 *-------------------------------------------------------------------------
 */

static void *
thread_nothing(void *argument)
{
	return argument;
}

/*
 * Can two more threads be made?  The library asserts so, and an abort would
 * take the whole server down.
 */
static bool
threads_available(void)
{
	pthread_t thread[2];
	int n;

	for (n = 0; n < 2; n++)
	{
		int error = pthread_create(&thread[n], NULL, thread_nothing, NULL);

		if (error != 0)
		{
			errno = error;
			break;
		}
	}
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	return n == 2;
}

/* Free what is left when no thread of the library exists (any more). */
static void
client_free(ZkClient *client)
{
	ZkMessage *message;
	ZkRequest *request;

	log_slots[client->slot] = NULL;
	while ((message = client->head) != NULL)
	{
		client->head = message->next;
		zklock_client_free_message(message);
	}
	while ((request = client->pending_head) != NULL)
	{
		client->pending_head = request->next;
		zklock_client_free_message(request->reply);
		free(request);
	}
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->mutex);
	close(client->fd);
	free(client);
}

/*
 * zookeeper.h declares this only where the library was built with OpenSSL, and
 * what matters is the library that we run with.
 */
typedef zhandle_t *(*init_ssl_fn)(const char *hosts, const char *certificates,
								  watcher_fn watcher, int timeout,
								  const clientid_t *resume, void *context, int flags);

static init_ssl_fn
find_init_ssl(void)
{
	return (init_ssl_fn) find_function("zookeeper_init_ssl");
}

bool
zklock_client_has_tls(void)
{
	return find_init_ssl() != NULL;
}

/*
 * The library takes what is before the last colon for the host, brackets and all, and
 * resolves that: an IPv6 address has to stand without them.
 */
static char *
copy_hosts(const char *hosts)
{
	char *copy = malloc(strlen(hosts) + 1);
	char *to = copy;
	bool path = false;

	for (const char *p = hosts; copy != NULL && *p != '\0'; p++)
	{
		path |= *p == '/';
		if (path || (*p != '[' && *p != ']'))
			*to++ = *p;
	}
	if (copy != NULL)
		*to = '\0';
	return copy;
}

/*
 * The library's handle.  Credentials are given before it can be told that there
 * is a connection, and the library puts them before all else that is to be sent.
 */
static zhandle_t *
make_handle(ZkClient *client, const char *hosts, int timeout_ms, const clientid_t *resume,
			const ZkSecurity *security)
{
	log_callback_fn log_function = log_functions[client->slot];
	zhandle_t *zh;
	int n = security != NULL ? security->ncredentials : 0;
	char *plain;
	int save_errno;

	if (security != NULL && security->tls != NULL && find_init_ssl() == NULL)
	{
		errno = ENOSYS;
		return NULL;
	}
	plain = copy_hosts(hosts);
	if (plain == NULL)
		return NULL;
	client->auth_open = n;
	errno = 0;
	if (security != NULL && security->tls != NULL)
	{
		init_ssl_fn init_ssl = find_init_ssl();

		/* it takes no log function, and must not write to stderr meanwhile */
		zoo_set_debug_level((ZooLogLevel) 0);
		zh = init_ssl(plain, security->tls, watcher, timeout_ms, resume, client,
					  ZOO_NO_LOG_CLIENTENV);
		if (zh != NULL)
			zoo_set_log_callback(zh, log_function);
		zoo_set_debug_level(log_level);
	}
	else
	{
		zoo_set_debug_level(log_level);
		zh = zookeeper_init2(plain, watcher, timeout_ms, resume, client,
							 ZOO_NO_LOG_CLIENTENV, log_function);
	}
	save_errno = errno;
	free(plain);
	errno = save_errno;
	if (zh == NULL)
		return NULL;
	for (int i = 0; i < n; i++)
	{
		const ZkCredential *credential = &security->credentials[i];
		int rc = zoo_add_auth(zh, credential->scheme, credential->data, credential->len,
							  auth_completion, client);

		if (rc != ZOK)
		{
			/* never go on without it */
			zookeeper_close(zh);
			errno = rc == ZINVALIDSTATE ? EACCES : ENOMEM;
			return NULL;
		}
	}
	return zh;
}

void
zklock_client_log_debug(bool debug)
{
	log_level = debug ? ZOO_LOG_LEVEL_DEBUG : ZOO_LOG_LEVEL_INFO;
	zoo_set_debug_level(log_level);
}

ZkClient *
zklock_client_open(const char *hosts, int timeout_ms, const ZkSessionId *resume,
				   const ZkSecurity *security, char *error, int errlen)
{
	ZkClient *client;
	clientid_t id;
	pthread_condattr_t attributes;
	sigset_t all;
	sigset_t saved;
	int slot;
	int save_errno;

	for (slot = 0; slot < ZKLOCK_MAX_CLIENTS; slot++)
		if (log_slots[slot] == NULL)
			break;
	if (slot == ZKLOCK_MAX_CLIENTS)
	{
		errno = EBUSY;
		snprintf(error, errlen, "too many ZooKeeper sessions in one process");
		return NULL;
	}

	client = calloc(1, sizeof(ZkClient));
	if (client == NULL)
	{
		snprintf(error, errlen, "out of memory");
		return NULL;
	}
	client->slot = slot;
	client->thread = pthread_self();
	client->opening = true;
	client->creator = security != NULL && security->creator;
	atomic_init(&client->closing, false);
	client->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (client->fd < 0)
	{
		save_errno = errno;
		snprintf(error, errlen, "could not create event descriptor: %s",
				 strerror(save_errno));
		free(client);
		errno = save_errno;
		return NULL;
	}
	pthread_mutex_init(&client->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&client->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	client->timeout_ms = timeout_ms;
	client->asked_at = zklock_clock();
	client->nhosts = 1;
	for (const char *p = hosts; *p != '\0' && *p != '/'; p++)
		client->nhosts += *p == ',';
	log_slots[slot] = client;

	if (resume != NULL)
	{
		id.client_id = resume->id;
		memcpy(id.passwd, resume->password, ZKLOCK_PASSWORD_LEN);
	}

	/* The library's threads inherit the mask, and must take no signal. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	if (threads_available())
	{
		client->zh = make_handle(client, hosts, timeout_ms,
								 resume != NULL && resume->id != 0 ? &id : NULL, security);
	}
	save_errno = errno;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);

	/* The I/O thread may be logging already. */
	pthread_mutex_lock(&client->mutex);
	client->opening = false;
	pthread_mutex_unlock(&client->mutex);

	if (client->zh == NULL)
	{
		if (save_errno == 0)
			save_errno = EINVAL;
		snprintf(error, errlen, "%s",
				 client->error_level != 0 ? client->error : strerror(save_errno));
		client_free(client);
		errno = save_errno;
		return NULL;
	}

	/*
	 * Do not resolve the names at each turn of the I/O loop, only before each
	 * attempt to connect.
	 */
	zoo_set_servers_resolution_delay(client->zh, -1);
	return client;
}

/* From here on all that comes from the library is dropped. */
static void
set_closing(ZkClient *client)
{
	assert(in_main_thread(client) && !atomic_load(&client->closing));
	pthread_mutex_lock(&client->mutex);
	atomic_store(&client->closing, true);
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->mutex);
}

/*
 * Read until the server hangs up.  One that said nothing while the library waited for it
 * is not waited for again.
 */
static void
hear_out(int socket, int64_t until)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	int ms = 0;
	int n;

	while ((n = poll(&fd, 1, ms)) > 0 || (n < 0 && errno == EINTR))
	{
		char buf[4096];
		ssize_t got = n > 0 ? read(socket, buf, sizeof(buf)) : 1;

		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			break;
		ms = (int) ((until - zklock_clock()) / 1000000);
		if (ms < 0)
			break;
	}
}

/*
 * zookeeper_close joins both threads.  It sends a close request only when
 * connected, and then waits for 3 s to send it and 1.5 s for the answer.
 *
 * But it takes for the answer whatever comes first: that of another request, the event of
 * a watch; and closes the socket without having read it.  That resets the connection.  A
 * server that is told so may hang up before it has read the close request, and what is
 * between us may drop that; and the session lives on until its timeout.  So the library
 * has not got the last descriptor of the socket: we have one, and with it hear the server
 * out, who hangs up when the session is closed.
 */
static void
close_handle(ZkClient *client)
{
	client->socket = -1;
	zookeeper_close(client->zh);
	if (client->socket < 0)
		return;
	hear_out(client->socket, client->hung_up_by);
	close(client->socket);
}

/*
 * A signal would end the library's wait for the server; and while the socket takes
 * nothing, the close request would not be sent at all.  Signals are heeded afterwards.
 * SIGQUIT, by which PostgreSQL ends a process at once, is not kept waiting.
 */
void
zklock_client_close(ZkClient *client)
{
	sigset_t most;
	sigset_t saved;

	if (client == NULL)
		return;
	set_closing(client);
	sigfillset(&most);
	sigdelset(&most, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &most, &saved);
	close_handle(client);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	client_free(client);
}

static void *
closer_main(void *argument)
{
	ZkClient *client = argument;

	close_handle(client);
	pthread_mutex_lock(&client->mutex);
	client->closed = true;
	client->readable = true;
	pthread_mutex_unlock(&client->mutex);
	fd_set_readable(client);
	return NULL;
}

bool
zklock_client_close_begin(ZkClient *client)
{
	sigset_t all;
	sigset_t saved;
	int error;

	set_closing(client);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	error = pthread_create(&client->closer, NULL, closer_main, client);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (error != 0)
		atomic_store(&client->closing, false);
	return error == 0;
}

bool
zklock_client_close_end(ZkClient *client)
{
	bool closed;

	pthread_mutex_lock(&client->mutex);
	closed = client->closed;
	pthread_mutex_unlock(&client->mutex);
	if (closed)
	{
		pthread_join(client->closer, NULL);
		client_free(client);
	}
	return closed;
}

bool
zklock_client_leave(ZkClient *client)
{
	bool established;

	pthread_mutex_lock(&client->mutex);
	established = client->established;
	if (!established)
	{
		client->leaving = true;
		pthread_cond_broadcast(&client->changed);
	}
	pthread_mutex_unlock(&client->mutex);
	return !established;
}

bool
zklock_client_left(ZkClient *client)
{
	bool left;

	pthread_mutex_lock(&client->mutex);
	left = client->left;
	pthread_mutex_unlock(&client->mutex);
	return left;
}

/*-------------------------------------------------------------------------
 * State and messages: the main thread.
 *-------------------------------------------------------------------------
 */

int
zklock_client_fd(ZkClient *client)
{
	return client->fd;
}

/*
 * The limit on them: each may leave one byte in the library's non-blocking
 * wake-up pipe (64 kB), and if that is full, the calling thread closes the
 * socket under the I/O thread.
 */
int
zklock_client_pending(ZkClient *client)
{
	int pending;

	pthread_mutex_lock(&client->mutex);
	pending = client->npending;
	pthread_mutex_unlock(&client->mutex);
	return pending;
}

uint64_t
zklock_client_requests(void)
{
	return last_serial;
}

bool
zklock_client_connected(ZkClient *client)
{
	bool connected;

	pthread_mutex_lock(&client->mutex);
	connected = client->connected;
	pthread_mutex_unlock(&client->mutex);
	return connected;
}

bool
zklock_client_session(ZkClient *client, ZkSessionId *session, int *timeout_ms)
{
	bool known;

	pthread_mutex_lock(&client->mutex);
	known = client->session.id != 0;
	if (known && session != NULL)
		*session = client->session;
	if (known && timeout_ms != NULL)
		*timeout_ms = client->timeout_ms;
	pthread_mutex_unlock(&client->mutex);
	return known;
}

void
zklock_client_server(ZkClient *client, char *buf, int buflen)
{
	pthread_mutex_lock(&client->mutex);
	snprintf(buf, buflen, "%s", client->server);
	pthread_mutex_unlock(&client->mutex);
}

/*
 * CONNECTED is at the head of the queue: put all replies before it that are not there
 * yet.  Those are the ones that stand behind it and the ones in the pending list, in
 * this order of age; annul does the rest.  Called with the mutex held.  No request can
 * be made between this and the return of CONNECTED, since "up" is false.
 */
static void
answer_open_requests(ZkClient *client)
{
	ZkMessage *lost = NULL;
	ZkMessage **lost_end = &lost;
	ZkMessage **link = &client->head;

	assert(!client->up);
	client->tail = NULL;
	while (*link != NULL)
	{
		ZkMessage *message = *link;

		if (zklock_is_reply(message))
		{
			*link = message->next;
			*lost_end = message;
			lost_end = &message->next;
			message->next = NULL;
		}
		else
		{
			client->tail = message;
			link = &message->next;
		}
	}
	for (ZkRequest *request = client->pending_head; request != NULL; request = request->next)
	{
		if (request->reply != NULL)
		{
			*lost_end = request->reply;
			lost_end = &request->reply->next;
			request->reply = NULL;
		}
	}
	*lost_end = client->head;
	client->head = lost;
}

/*
 * A reply that nobody gave, or that comes too late to count: what became of the request
 * is not known, whatever code the library made up for it.
 */
static void
annul(ZkMessage *reply)
{
	ZkMessage lost = {.type = reply->type,
					  .rc = ZCONNECTIONLOSS,
					  .tag = reply->tag,
					  .container = reply->container,
					  .sent_at = reply->sent_at,
					  .received_at = zklock_clock(),
					  .failed_op = -1};

	free(reply->path);
	free(reply->data);
	free(reply->children);
	*reply = lost;
}

/* Say how many lines were dropped, once those before them are out. */
static ZkMessage *
note_dropped(ZkClient *client)
{
	char text[100];
	ZkMessage *message = calloc(1, sizeof(ZkMessage));

	snprintf(text, sizeof(text), "%lu lines of the ZooKeeper library's log were dropped",
			 client->log_dropped);
	client->log_dropped = 0;
	if (message != NULL)
	{
		message->type = ZKLOCK_MSG_LOG;
		message->level = ZOO_LOG_LEVEL_WARN;
		message->received_at = zklock_clock();
		message->data = strdup(text);
		message->datalen = message->data != NULL ? (int) strlen(text) : 0;
	}
	if (message != NULL && message->data == NULL)
	{
		free(message);
		message = NULL;
	}
	return message;
}

ZkMessage *
zklock_client_receive(ZkClient *client)
{
	ZkMessage *message = NULL;

	assert(in_main_thread(client));
	pthread_mutex_lock(&client->mutex);
	if (client->log_dropped > 0 && client->nlogs == 0)
		message = note_dropped(client);
	if (message == NULL)
	{
		message = client->head;
		if (message != NULL && message->type == ZKLOCK_MSG_CONNECTED)
		{
			/* a reply that is about to come must come first: ask again */
			if (client->filling)
				message = NULL;
			else
			{
				answer_open_requests(client);
				message = client->head;
			}
		}
		if (message != NULL)
		{
			client->head = message->next;
			if (client->head == NULL)
				client->tail = NULL;
			message->next = NULL;
			if (message->type == ZKLOCK_MSG_LOG)
				client->nlogs--;
		}
	}
	if (client->readable && client->head == NULL && client->log_dropped == 0)
		fd_reset(client);
	pthread_mutex_unlock(&client->mutex);

	if (message != NULL)
	{
		if (message->type == ZKLOCK_MSG_CONNECTED)
			client->up = true;
		else if (message->type == ZKLOCK_MSG_DISCONNECTED ||
				 message->type == ZKLOCK_MSG_EXPIRED ||
				 message->type == ZKLOCK_MSG_AUTH_FAILED)
			client->up = false;
		else if (zklock_is_reply(message) && !client->up)
			annul(message);
	}
	return message;
}

/*-------------------------------------------------------------------------
 * Requests: the main thread.
 *-------------------------------------------------------------------------
 */

/* A request on its way to the library. */
typedef struct Sending
{
	ZkRequest *request; /* NULL: it is not to be made */
	uint64_t serial;
	int rc; /* of the call, or why not */
} Sending;

/*
 * Allocate a request and its reply and enter it into the pending list, before
 * the library hears of it: the reply can come before the call returns.  From then on
 * the library's threads read it.  "path", unless it is NULL, is copied into the reply,
 * with so much room behind it.  The request has "block" bytes behind it.
 */
static Sending
request_begin(ZkClient *client, ZkMessageType type, const ZkRequestTag *tag,
			  const char *path, size_t more_room, size_t block)
{
	Sending sending = {.rc = ZSYSTEMERROR};
	size_t pathroom = path != NULL ? strlen(path) + 1 + more_room : 0;
	ZkRequest *request;
	ZkMessage *reply;

	assert(in_main_thread(client) && !atomic_load(&client->closing));
	/* a request made now could only go out on a connection not yet known */
	if (!client->up)
	{
		sending.rc = ZCONNECTIONLOSS;
		return sending;
	}

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
	request->client = client;
	request->serial = ++last_serial;
	request->reply = reply;
	request->pathroom = (int) pathroom;

	pthread_mutex_lock(&client->mutex);
	if (client->npending >= ZKLOCK_MAX_PENDING)
	{
		pthread_mutex_unlock(&client->mutex);
		free(request);
		zklock_client_free_message(reply);
		return sending;
	}
	request->prev = client->pending_tail;
	if (client->pending_tail != NULL)
		client->pending_tail->next = request;
	else
		client->pending_head = request;
	client->pending_tail = request;
	client->npending++;
	pthread_mutex_unlock(&client->mutex);

	sending.request = request;
	sending.serial = last_serial;
	sending.rc = ZOK;
	return sending;
}

/*
 * The library has answered the call.  If it refused, there will be
 * no reply, and the request goes; except that after a ZMARSHALLINGERROR, which
 * stands for any failure half way, the completion may be queued, and may even
 * have been called and the request freed.  So look for it by its serial
 * number.
 */
static int
request_end(ZkClient *client, const Sending *sending)
{
	ZkMessage *reply = NULL;
	ZkRequest *found;
	int rc = sending->rc;

	if (sending->request == NULL || rc == ZOK)
		return rc;

	pthread_mutex_lock(&client->mutex);
	for (found = client->pending_tail; found != NULL; found = found->prev)
		if (found->serial == sending->serial)
			break;
	if (found != NULL)
	{
		reply = found->reply;
		found->reply = NULL;
		if (rc != ZMARSHALLINGERROR)
			pending_remove(client, found);
	}
	pthread_mutex_unlock(&client->mutex);

	if (found == NULL)
		return ZOK; /* answered meanwhile */
	zklock_client_free_message(reply);
	if (rc != ZMARSHALLINGERROR)
		free(sending->request);
	return rc;
}

/* ZooKeeper's, for a node that we create. */
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
	{
		/* the library has not heard of it yet */
		sending.request->reply->container = mode == ZKLOCK_CREATE_CONTAINER;
		sending.rc = zoo_acreate2(client->zh, path, data, datalen, new_acl(client),
								  create_flags(mode), create_completion, sending.request);
	}
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
			case ZKLOCK_OP_CHECK:
				zoo_check_op_init(&calls[i], op->path, op->version);
				break;
		}
	}
	if (sending.request != NULL)
		sending.rc = zoo_amulti(client->zh, nops, calls, sending.request->results,
								multi_completion, sending.request);
	free(calls);
	return request_end(client, &sending);
}
