/*-------------------------------------------------------------------------
 *
 * ensemble.h
 *	  Is it the ensemble that we know, and has it forgotten nothing?
 *
 * The worker's part of history.h: what it asks on each connection, what it makes of the
 * answers, the base of tokens in ZooKeeper, and the file.  session.c is told what has
 * to become of the session.
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

/* The worker starts: remember what was known. */
extern void zklock_ensemble_start(void);

/* The end of the server, in good order: write the file.  "closes": the session, if there
 * is one, is closed next; else it is left. */
extern void zklock_ensemble_stop(bool closes);

/*
 * What a crash leaves says this of the session in shared memory from now on: to be called
 * when its lease has moved, and before the session is closed on purpose, when there is
 * none in shared memory any more.
 */
extern void zklock_ensemble_note(void);

/* A session that an earlier run has left is about to be resumed in order to be closed:
 * zklock_ensemble_expired goes by what is remembered of it from here on. */
extern void zklock_ensemble_resume(int64_t session);

/* On its connection: ask.  False: it has nothing to tell. */
extern bool zklock_ensemble_ask_left(ZkClient *client, int64_t session);

/* A message on it: NOTHING, WENT_BACK, or ADMITTED, when it has told all, and is to be
 * closed. */
extern ZkEnsembleNews zklock_ensemble_look_left(const ZkMessage *message);

/*
 * A connection begins, "resumed" if it is not the session's first.  To be called before
 * anything else is sent; a write, of our member's node, is to follow, and then
 * zklock_ensemble_ask.
 */
extern void zklock_ensemble_connected(bool resumed);

/* Ask for the base (again). */
extern void zklock_ensemble_ask(ZkClient *client);

/* The same, unless it is known, since what stands beside it is missing: it is made first. */
extern void zklock_ensemble_make(ZkClient *client);

/* The same before something is sent that is of no use without, if nobody has asked. */
extern void zklock_ensemble_remind(ZkClient *client);

/*
 * A message of a connection that is up, whomever else it concerns: to be shown before
 * anything is made of it.  The reason of bad news is in zklock_ensemble_reason.
 */
extern ZkEnsembleNews zklock_ensemble_look(ZkClient *client, const ZkMessage *message);
extern const char *zklock_ensemble_reason(void);

/* Is the connection admitted? */
extern bool zklock_ensemble_admitted(void);

/* The session's own write, see history.h: what it was the last time is void, since the
 * node is another. */
extern void zklock_ensemble_new_member(void);

/* The session, or one that an earlier run has left, has expired; "told": when the message
 * came.  Returns NOTHING or WENT_BACK. */
extern ZkEnsembleNews zklock_ensemble_expired(int64_t told);

/* The ensemble has gone back; the session, which is given up, had this timeout or 0. */
extern void zklock_ensemble_found(int timeout_ms);

/* Has it gone back, and the wait is not over? */
extern bool zklock_ensemble_waiting(void);

/* ms until a session is of use: 0 if it is.  Ends a wait that is over. */
extern long zklock_ensemble_open_in(void);

/* A session that is to mend the base has this timeout; the wait is no shorter if it does. */
extern void zklock_ensemble_extend(int timeout_ms);

/* At each heartbeat, and when the connection is lost: write the file if that has failed,
 * or if it is out of date. */
extern void zklock_ensemble_save_again(bool disconnected);

/* The fencing token of a contender made by this transaction; 0 of 0. */
extern int64_t zklock_ensemble_token(int64_t zxid);

#endif /* ZKLOCK_ENSEMBLE_H */
