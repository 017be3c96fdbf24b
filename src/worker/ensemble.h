/*-------------------------------------------------------------------------
 *
 * ensemble.h
 *	  Checks that the ensemble is the one that this server knows, and that it has
 *	  forgotten nothing.
 *
 * This is the worker's part of history.h: the requests on each connection, the verdicts
 * on the replies, the base of tokens in ZooKeeper, and the file.  session.c gets the
 * news, and decides about the session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ENSEMBLE_H
#define ZKLOCK_ENSEMBLE_H

#include "client.h"

typedef enum ZkEnsembleNews
{
	ZKLOCK_ENSEMBLE_NOTHING,
	ZKLOCK_ENSEMBLE_ADMITTED,  /* the connection is good for what it is meant for */
	ZKLOCK_ENSEMBLE_WENT_BACK, /* give up the session: zklock_ensemble_found */
	ZKLOCK_ENSEMBLE_MENDED,	   /* the session has served, and is to be closed */
	ZKLOCK_ENSEMBLE_ANEW,	/* resume the session in a new process: the base was touched
							 * while replies were on their way */
	ZKLOCK_ENSEMBLE_UNKNOWN /* the base cannot be told: give up the session, and try
							 * again some time later */
} ZkEnsembleNews;

/* The worker starts: read what was known before. */
extern void zklock_ensemble_start(void);

/* The server ends in good order: write the file.  "closes": the session, if there is
 * one, is closed next; else it is left. */
extern void zklock_ensemble_stop(bool closes);

/*
 * Note the state of the session in shared memory, so that it outlives a crash.  To be
 * called when the lease has moved, and before the session is closed on purpose, when
 * the session is no longer in shared memory.
 */
extern void zklock_ensemble_note(void);

/*
 * The worker is about to resume a session that an earlier run has left, in order to
 * close it.  From here on zklock_ensemble_expired uses what is remembered of that
 * session.
 */
extern void zklock_ensemble_resume(int64_t session);

/* On the connection of that session: send the requests.  False: the session has nothing
 * to tell. */
extern bool zklock_ensemble_ask_left(ZkClient *client, int64_t session);

/* Look at a message on that connection.  Returns NOTHING, WENT_BACK, or ADMITTED when
 * the session has told everything and is to be closed. */
extern ZkEnsembleNews zklock_ensemble_look_left(const ZkMessage *message);

/* A connection begins; "resumed": it is not the session's first.  Call this before
 * anything else is sent.  Then write the member node, and call zklock_ensemble_ask. */
extern void zklock_ensemble_connected(bool resumed);

/* Ask for the base (again). */
extern void zklock_ensemble_ask(ZkClient *client);

/* The same, unless the connection is admitted.  A directory next to the base is
 * missing, so the base may be, too: this creates it first. */
extern void zklock_ensemble_make(ZkClient *client);

/* The same, if nobody has asked yet, before a request whose reply is useless without
 * the base. */
extern void zklock_ensemble_remind(ZkClient *client);

/*
 * Look at a message of a connection that is up, before any other code handles it, also
 * if the message concerns somebody else.  zklock_ensemble_reason gives the reason of
 * bad news.
 */
extern ZkEnsembleNews zklock_ensemble_look(ZkClient *client, const ZkMessage *message);
extern const char *zklock_ensemble_reason(void);

/* Is the connection admitted? */
extern bool zklock_ensemble_admitted(void);

/* The node of the session is another one now, so the last version of the session's own
 * write (history.h) is void. */
extern void zklock_ensemble_new_member(void);

/* The session has expired, or a session that an earlier run has left; "told": when the
 * message came.  Returns NOTHING or WENT_BACK. */
extern ZkEnsembleNews zklock_ensemble_expired(int64_t told);

/*
 * The ensemble has gone back.  The session, which is given up, had this timeout, or 0.
 */
extern void zklock_ensemble_found(int timeout_ms);

/* Has the ensemble gone back, and is the wait not over? */
extern bool zklock_ensemble_waiting(void);

/* ms until a session is useful, 0 if it is now.  Ends a wait that is over. */
extern long zklock_ensemble_open_in(void);

/* A session that is to mend the base has this timeout.  If it does mend the base, the
 * wait is at least as long. */
extern void zklock_ensemble_extend(int timeout_ms);

/* Write the file if the last attempt failed, or if the file is out of date.  To be
 * called at each heartbeat, and when the connection is lost. */
extern void zklock_ensemble_save_again(bool disconnected);

/* The fencing token of a contender made by this transaction; 0 of 0. */
extern int64_t zklock_ensemble_token(int64_t zxid);

#endif /* ZKLOCK_ENSEMBLE_H */
