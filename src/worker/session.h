/*-------------------------------------------------------------------------
 *
 * session.h
 *	  Opens, resumes and closes the worker's ZooKeeper session, and handles its loss.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "client.h"
#include "protocol.h"

/* The functions that get the session's events and messages. */
typedef struct ZkSessionListener
{
	/*
	 * CONNECTED, RESUMED, DISCONNECTED, SESSION_LOST or TICK, for every queue.  All
	 * have heard of SESSION_LOST when it returns: their grants are gone before there
	 * is the lease of a new session.
	 */
	void (*event)(ZkLockEventType type);

	/* A reply, or a watch that has fired.  Replies tagged ZKLOCK_TAG_ENSEMBLE have
	 * been seen. */
	void (*message)(const ZkMessage *message);
} ZkSessionListener;

/* Set the listener.  Call this first. */
extern void zklock_session_set_listener(const ZkSessionListener *to);

/* Open the session, or resume the one in shared memory, unless it is open. */
extern void zklock_session_open(void);

/*
 * Handle a reload.  Returns the setting that calls for a new handle, and so for a new
 * process, or "..." for several; NULL if there is none.  A worker that pauses before
 * its next attempt makes it at once.
 */
extern const char *zklock_session_reload(void);

/* A setting that a session keeps has a new value: log when that takes effect. */
extern void zklock_session_keeps(const char *setting);

/* Handle the messages that the client has received.  Not "came": the latest wait has
 * found none of our descriptors readable. */
extern void zklock_session_receive(bool came);

/* Has there been no connection for so long that another handle should try?
 * zklock_session_open makes that handle.  True: a new process should try.  Logs it. */
extern bool zklock_session_stuck(void);

/* Has this process sent so many requests that their numbers would soon wrap around? */
extern bool zklock_session_worn(void);

/*
 * A descriptor that is readable when zklock_session_receive has something to do; -1
 * while there is no client.  Ask for it before each wait: it changes when the session
 * is opened again, which zklock_session_opened() counts.  There are more descriptors:
 * of the previous session while it is being closed, of a session of the previous life
 * that is kept, and of the name service, which may have an answer.
 */
extern int zklock_session_fd(void);
extern int zklock_session_names_fd(void);
extern int zklock_session_closing_fd(void);
extern int zklock_session_left_fd(void);
extern int zklock_session_opened(void);

/* ms until zklock_session_open should be called (again); -1: there is a client. */
extern long zklock_session_retry_in(void);

/* Somebody needs heartbeats.  Two timeouts after the last such call the session rests:
 * the worker sends none. */
extern void zklock_session_need(void);
extern bool zklock_session_resting(void);

/*
 * Has the lease lapsed since the session began to rest, and is another session
 * possible?  A new session is the shortest way to a lease.  Use it if nobody needs
 * anything that this server has in this session, and before sending requests that
 * somebody waits for.
 */
extern bool zklock_session_renewable(void);
/* A new session is possible: has all that was asked its answer, which comes first? */
extern bool zklock_session_answered(void);
/* Make the new session.  "contends": this session has contenders, and the next one
 * waits for their end. */
extern void zklock_session_renew(bool contends);

/* Send a heartbeat if one is due, or wanted.  ms until the next, -1 if not connected. */
extern long zklock_session_heartbeat(void);

/* Publish the number of requests that have no reply yet. */
extern void zklock_session_count_requests(void);

/* The server stops: nobody gets a new hold from here on. */
extern void zklock_session_set_stopping(void);

/* The session is to be closed: can the worker reach it if it waits a little?  It can if
 * the connection was lost a moment ago, or if the first attempt to connect goes on. */
extern bool zklock_session_returning(void);

/*
 * The server ends: close the session, which deletes this server's contenders.
 * "leaves": jobs with unsettled runs depend on the session, so leave it to the server's
 * next life.
 */
extern void zklock_session_close(bool leaves);

/* The client when requests may be sent, else NULL. */
extern ZkClient *zklock_session_client(void);

/*
 * Check "rc", the result of a request function of the client.  It is no error if the
 * client has taken the request, or if the session is at its end, which annuls all
 * requests.  Otherwise (out of memory) some waiter would never get its reply.  So this
 * raises an ERROR, and the worker's successor settles what is left.
 */
extern void zklock_session_sent(int rc);

/* Are so many requests open that the caller should send no new ones until replies have
 * come? */
extern bool zklock_session_busy(void);

#endif /* ZKLOCK_SESSION_H */
