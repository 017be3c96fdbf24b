/*-------------------------------------------------------------------------
 *
 * run_session.h
 *	  Holds the lock for the command in a PostgreSQL session.
 *
 * A function that returns false or RUN_REFUSED has said why on standard error.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RUN_SESSION_H
#define ZKLOCK_RUN_SESSION_H

#include <libpq-fe.h>

#include "run_options.h"

typedef struct RunSession
{
	const RunOptions *options;
	PGconn *conn;
	char token[24];	  /* empty: the command gets none */
	char backend[16]; /* process of the server, as it says */
	int64_t silence;  /* ms: the server answers within them, or is taken for gone */
	int64_t asked;	  /* when the heartbeat was sent that is not answered; else 0 */
	int64_t next;	  /* when the next one is due */
} RunSession;

typedef enum RunTaken
{
	RUN_TAKEN,
	RUN_LATE, /* others had it until the timeout was over; says so with --verbose only */
	RUN_NEEDLESS, /* another server leads, or no slot of the job is due; the same */
	RUN_REFUSED,  /* no connection, or an error */
	RUN_SIGNALLED /* says nothing; run_session_take has the signal */
} RunTaken;

extern bool run_session_open(RunSession *session, const RunOptions *options);

/* Wait for the lock.  It is ours if this returns RUN_TAKEN. */
extern RunTaken run_session_take(RunSession *session, int *signal);

/*
 * Checks that the session still has the lock, without waiting for the server, and asks
 * the server once a second.  Sets when to check again, unless the socket can be read
 * before.
 */
extern bool run_session_watch(RunSession *session, int64_t *again);

/* The command has ended, well or not.  Makes sure that the lock was ours until now,
 * and releases it. */
extern bool run_session_end(RunSession *session, bool ok);

/* Returns the socket, for run_wait. */
extern int run_session_file(const RunSession *session);

#endif /* ZKLOCK_RUN_SESSION_H */
