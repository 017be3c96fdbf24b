/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Is the ensemble's state a later one than all that this server has seen?
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  The worker feeds it
 * with what the ensemble answers; the simulator (test/sim) links the same object.
 *
 * An ensemble that is restored from a backup, or wiped, forgets what it has
 * acknowledged, and so does the one that it is exchanged for.  Others then get locks
 * whose holders know of nothing, and transaction numbers, of which we make fencing
 * tokens, begin again.  Both can be mended only by those who remember:
 *
 *		token = base + number of the transaction that made the contender
 *
 * The base is the content of a persistent znode, <root>/tokens, which all servers add.
 * It is 0 until an ensemble has gone back; then it is raised so far that tokens go on
 * growing.  A server remembers the base and the top, the largest token that can have
 * been given as far as it knows, and finds out by what it is told anyway, at the
 * beginning of each connection:
 *
 *	  BEHIND   the first write has a number that makes no token above the top.  A write,
 *	           since what is read of a server that lags may be old, and means nothing.
 *	  FELL     the base is less than it was: it never is.
 *	  RAISED   the base is more than it was.  Another server has found out; or a
 *	           superuser has raised it.  The tokens that we have given since are too
 *	           small.  Who remembers nothing cannot tell whether that has just happened.
 *	  UNDONE   the session goes on, but our member's node is missing, or was written
 *	           fewer times than we know that it was.  This, and
 *	  TOO_SOON the session has expired within a timeout of its newest write, find out
 *	           what an ensemble of several hides that held an election as it came back:
 *	           its new epoch makes larger numbers than those before.
 *
 * One that is restored while it runs (ZooKeeper 3.9, AdminServer) numbers on, and keeps
 * the connections of the sessions that it remembers, but no watches.  So UNDONE is looked
 * for at each write of our node.  That it is missing means nothing in mid-connection:
 * somebody has deleted it.
 *
 * An ensemble that forgets nothing can say that, too, if our server did not pass on in
 * time that it heard us (lease.h): then we wait for nothing.  To wait only if the lease
 * is good would be too little: it is over 9/16 of the timeout after the newest write,
 * when that of another server, which has written a little later, is not.
 *
 * What follows is one for all.  Our session is given up with all that hangs on it, and
 * nothing is granted or believed here for a whole session timeout, after which nobody
 * can believe in what the ensemble forgot.  At once, in a session that is good for
 * nothing else, the base is raised: only if it has to be, and by comparing and setting.
 *
 * The base has to be raised only if tokens would not be above the top otherwise: a raise
 * costs every server its session.  It goes MARGIN above our own top, so that those who have
 * seen a little more need not raise it again, and wait again.  What is in the file
 * (historyfile.h) is never more than REACH behind.
 *
 * A crash of the server alone leaves the top in memory (historymemory.h).  If that memory
 * has noted all that was granted since the file was written, nothing is forgotten, and the
 * REACH does not count.  It has if the file names it: each memory has an id, and a server
 * that begins a new one writes the file before it grants anything.  So a data directory
 * that was used on another machine meanwhile names another memory.
 *
 * A crash also leaves the session, which the next run closes (sessionfile.h).  The memory
 * has what the session would have told: our node's version, and until when the session was
 * to live.  So the next run resumes the session and looks at UNDONE and TOO_SOON, before it
 * closes the session and opens one of its own.  A run that closes its session on purpose
 * takes the session out of the memory first, or the next run would take its end for too
 * soon.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORY_H
#define ZKLOCK_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No base is larger: half of what a bigint has room for. */
#define ZKLOCK_BASE_MAX (INT64_C(1) << 62)

/* A superuser goes no further, so that there is room for what servers find themselves. */
#define ZKLOCK_ABOVE_MAX	  (INT64_C(1) << 61)

#define ZKLOCK_HISTORY_REACH  (INT64_C(1) << 20)
#define ZKLOCK_HISTORY_MARGIN (2 * ZKLOCK_HISTORY_REACH)

typedef struct ZkHistory
{
	bool known; /* there is something to remember */
	int64_t base;
	int64_t top;
	int64_t ceiling;   /* what the file says that the top may have reached when a crash
						* of the machine makes us forget */
	int64_t forgotten; /* tokens up to this one may have been given, and nobody knows: the
						* file's ceiling after a crash of the machine; 0: none */
	int64_t memory;	   /* the id of the memory that notes for the file; 0: none does */
	int32_t version;   /* of our member's node as of the newest write; -1: none that we
						* know of in this session */
	bool admitted;	   /* the session was, on some connection */

	/* After a finding, until the wait is over: */
	bool found;
	bool mended;   /* ... and the base is raised as far as it has to be */
	int64_t wait;  /* ns */
	int64_t until; /* ns, on the clock of the one who calls */
} ZkHistory;

/* What a crash of the server leaves, if its machine goes on. */
typedef struct ZkHistoryMemory
{
	int64_t id; /* 0: there is none */
	int64_t top;
	int64_t forgotten; /* as of its beginning */

	/* The session, from its first admission until it is closed on purpose: */
	int64_t session; /* its id; 0: none */
	int64_t lost_at; /* it was to live until then (zklock_lease_lost_at) */
	int32_t version; /* of our member's node; -1: none that was known of */
} ZkHistoryMemory;

/* What a connection shows first. */
typedef struct ZkHistorySight
{
	int64_t base;
	int64_t zxid;	 /* of a write on it, made before the base was read */
	bool resumed;	 /* it is not the session's first */
	int32_t version; /* of our member's node after that write; -1: it is missing */
} ZkHistorySight;

typedef enum ZkHistoryVerdict
{
	ZKLOCK_HISTORY_GOOD,
	ZKLOCK_HISTORY_BEHIND,
	ZKLOCK_HISTORY_FELL,
	ZKLOCK_HISTORY_RAISED,
	ZKLOCK_HISTORY_UNDONE,
	ZKLOCK_HISTORY_TOO_SOON
} ZkHistoryVerdict;

/* Remembers nothing. */
extern void zklock_history_init(ZkHistory *history);

/* A new session begins, of which nothing is known yet. */
extern void zklock_history_new_session(ZkHistory *history);

/* To be asked of each connection before anything of it is believed, and again when
 * another base was read. */
extern ZkHistoryVerdict zklock_history_check(const ZkHistory *history,
											 const ZkHistorySight *sight);

/*
 * The same, when at "told" we were told that the session has expired: zklock_lease_lost_at
 * says when it may, 0 if nobody knows.  One that never was admitted proves nothing.
 */
extern ZkHistoryVerdict zklock_history_expired(const ZkHistory *history, int64_t told,
											   int64_t lost_at);

/*
 * The check was good: the base is what tokens are made with.  True: save the history
 * before anything is granted.
 */
extern bool zklock_history_admit(ZkHistory *history, const ZkHistorySight *sight);

/*
 * On a connection that was admitted, a write of our member's node has given it this
 * version, or failed since it is missing: -1.
 */
extern ZkHistoryVerdict zklock_history_wrote(ZkHistory *history, int32_t version);

/* A transaction's number was seen on a connection that was admitted.  True: as above. */
extern bool zklock_history_see(ZkHistory *history, int64_t zxid);

/* The token of a contender that was made by this transaction; 0 of 0. */
extern int64_t zklock_history_token(const ZkHistory *history, int64_t zxid);

/*
 * The ensemble has gone back, or another base says so: wait for "wait" ns from now on.
 * To be saved.
 */
extern void zklock_history_found(ZkHistory *history, int64_t now, int64_t wait);

/* The wait turns out to be too short: a session lasts that long. */
extern void zklock_history_extend(ZkHistory *history, int64_t wait);

/*
 * After a finding: what the base is to be, given the present one and a transaction's
 * number that was seen before it; the same one if that will do.  Beyond
 * ZKLOCK_BASE_MAX: there is no room for it.
 */
extern int64_t zklock_history_raise(const ZkHistory *history, int64_t base, int64_t zxid);

/* That is the base now, as of transaction "zxid".  To be saved. */
extern void zklock_history_mend(ZkHistory *history, int64_t base, int64_t zxid);

/*
 * A superuser wants no token up to "above" any more: what the base is to be.  Not more
 * than the present one if there is no need; beyond ZKLOCK_BASE_MAX: no room.
 */
extern int64_t zklock_history_raise_above(const ZkHistory *history, int64_t above);

/* Has the wait passed?  If so, zklock_history_end: what comes is checked as ever.  To be
 * saved. */
extern bool zklock_history_over(const ZkHistory *history, int64_t now);
extern void zklock_history_end(ZkHistory *history);

/* A base as others wrote it.  False: it is none. */
extern bool zklock_history_parse_base(const char *data, size_t len, int64_t *base);

/*
 * The file's content.  Formatting moves the ceiling: it counts as written from then on.
 * The ceiling is no more than what is known while nothing is granted, which is after a
 * finding and when nothing comes after that ("last"): so an end then does not call for a
 * raise.
 * Parsing is false, and nothing has changed, if that was not written by it; else the
 * history is what was remembered, a wait that was not over begins anew at "now", and
 * lasts for "wait" ns if that is longer.
 */
#define ZKLOCK_HISTORY_TEXT_MAX 256

extern size_t zklock_history_format(ZkHistory *history, bool last, char *text);
extern bool zklock_history_parse(ZkHistory *history, const char *text, size_t len,
								 int64_t now, int64_t wait);

/*
 * After zklock_history_parse: this memory was found.  False: the file does not name it,
 * so begin a new one, with what is known and a new id.
 */
extern bool zklock_history_remember(ZkHistory *history, const ZkHistoryMemory *memory);

/* The new one.  To be saved before anything is granted. */
extern ZkHistoryMemory zklock_history_new_memory(ZkHistory *history, int64_t id);

/* Note in the memory what is known now, before anything is granted by that.  "session":
 * ours; 0: there is none, or it is about to be closed. */
extern void zklock_history_note(const ZkHistory *history, ZkHistoryMemory *memory,
								int64_t session, int64_t lost_at);

/*
 * This session was left by a crash, and is to be resumed in order to be closed.  True:
 * the memory knows of it.  Ask zklock_history_expired, with the memory's lost_at, if it
 * has expired.  Else write our node in it, ask zklock_history_check, and close it if that
 * is good.  In a wait there is no need.
 */
extern bool zklock_history_resume(ZkHistory *history, const ZkHistoryMemory *memory,
								  int64_t session);

#endif /* ZKLOCK_HISTORY_H */
