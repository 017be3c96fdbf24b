/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The worker's ZooKeeper session: opened, resumed, lost, closed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "client.h"
#include "protocol.h"

/* Who is told what becomes of the session. */
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

/* To be called first. */
extern void zklock_session_set_listener(const ZkSessionListener *to);

/* Open the session, or resume the one in shared memory, unless it is open. */
extern void zklock_session_open(void);

/*
 * After a reload: the setting, or "..." for several, that calls for a new handle
 * and so for a new process; NULL if there is none.  Who waits to try again does so
 * at once.
 */
extern const char *zklock_session_reload(void);

/* A setting that a session keeps has a new value: say when that takes effect. */
extern void zklock_session_keeps(const char *setting);

/* Handle what the client has received. */
extern void zklock_session_receive(void);

/*
 * No connection for so long that another handle should try, which zklock_session_open
 * makes.  True: a new process should.  Says so in the log.
 */
extern bool zklock_session_stuck(void);

/* So many requests in this process that their numbers would soon wrap around. */
extern bool zklock_session_worn(void);

/* Readable when zklock_session_receive has something to do; -1 while there is no client.
 * To be called before each wait.  It changes when the session is opened anew, which
 * zklock_session_opened() counts; then there may be the one before, too, which is being
 * closed, and one of a life before, which is kept.  And the name service may have an
 * answer. */
extern int zklock_session_fd(void);
extern int zklock_session_names_fd(void);
extern int zklock_session_closing_fd(void);
extern int zklock_session_left_fd(void);
extern int zklock_session_opened(void);

/* ms until zklock_session_open should be called (again); -1: there is a client. */
extern long zklock_session_retry_in(void);

/* There is need of heartbeats.  Two timeouts after the last time the session rests: none
 * is sent. */
extern void zklock_session_need(void);
extern bool zklock_session_resting(void);

/*
 * Has the lease lapsed since the session rested, and can there be another one?  That is
 * the shortest way to a lease; to be taken if nothing of what we have in this one is of
 * use to anybody, and before anything that is wanted is sent.
 */
extern bool zklock_session_renewable(void);
/* "contends": with contenders in this one, whose end the next one waits for. */
extern void zklock_session_renew(bool contends);

/* Send a heartbeat if one is due, or wanted.  ms until the next, -1 if not connected. */
extern long zklock_session_heartbeat(void);

/* Publish how many requests are without a reply. */
extern void zklock_session_count_requests(void);

/* The server stops: nobody gets a new hold from here on. */
extern void zklock_session_set_stopping(void);

/* May a session that is to be closed be reached if one waits a little?  Its connection
 * was lost a moment ago, or is the first one that is tried for. */
extern bool zklock_session_returning(void);

/* End of the server: delete our contenders by closing the session; or, if jobs hang on it
 * whose runs are not settled, leave that to our next life. */
extern void zklock_session_close(bool leaves);

/* The client when requests may be sent, else NULL. */
extern ZkClient *zklock_session_client(void);

/*
 * "rc" is what a request function of the client returned.  That is no error if the client
 * took the request, or the session is at its end, which annuls all requests.  Otherwise
 * (out of memory) somebody would wait for a reply that never comes: raise an ERROR, and
 * our successor settles what we leave.
 */
extern void zklock_session_sent(int rc);

/* So many requests are open that no new ones are to be made until replies have come. */
extern bool zklock_session_busy(void);

#endif /* ZKLOCK_SESSION_H */
