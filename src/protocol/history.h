/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Checks that the ensemble's state is later than all that this server has seen.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  The worker feeds it
 * with the ensemble's answers; the simulator (test/sim) links the same object.
 *
 * An ensemble that is restored from a backup, or wiped, forgets what it has
 * acknowledged.  So does an ensemble that is exchanged for another.  Then other servers
 * get locks although the holders know of nothing.  The numbers of transactions, of
 * which we make fencing tokens, begin again.  Only servers that remember can mend both:
 *
 *		token = base + number of the transaction that made the contender
 *
 * The base is the content of a persistent znode, <root>/tokens; all servers add it.  It
 * is 0 until an ensemble has gone back.  Then it is raised so far that tokens go on
 * growing.  A server remembers the base and the top: the largest token that can have
 * been given, as far as it knows.  At the beginning of each connection it uses the
 * answers that it gets anyway:
 *
 *	  BEHIND   the first write has a number that makes no token above the top.  Only a
 *	           write shows this: a read from a server that lags may be old, and means
 *	           nothing.
 *	  FELL     the base is less than it was: it never falls otherwise.
 *	  RAISED   the base is more than it was.  Another server has found out; or a
 *	           superuser has raised it.  The tokens that we have given since are too
 *	           small.  A server that remembers nothing cannot tell whether that has just
 *	           happened.
 *	  UNDONE   the session goes on, but our member's node is missing, or was written
 *	           fewer times than we know that it was.  This, and
 *	  TOO_SOON the session has expired within a timeout of its newest write.  These two
 *	           find what an ensemble of several servers hides if it held an election as it
 *	           came back: its new epoch makes larger numbers than those before.
 *
 * An ensemble that is restored while it runs (ZooKeeper 3.9, AdminServer) numbers on.
 * It keeps the connections of the sessions that it remembers, but no watches.  So we
 * check for UNDONE at each write of our node.  In mid-connection a missing node means
 * nothing: somebody has deleted it.
 *
 * An ensemble that forgets nothing can report TOO_SOON, too, if our server did not pass
 * on in time that it heard us (lease.h): then we wait in vain.  It would not be
 * enough to wait only if the lease is good: our lease is over 9/16 of the timeout after
 * the newest write, and the lease of another server, which has written a little later,
 * is not.
 *
 * The reaction is the same for all five.  The worker gives up our session and
 * everything that hangs on it.  For a whole session timeout this server grants and
 * believes nothing; after that nobody can believe in what the ensemble forgot.  At
 * once, in a session that is used for nothing else, the worker raises the base: only if
 * it has to be, and by comparing and setting.
 *
 * The base has to be raised only if tokens would not be above the top otherwise,
 * because a raise costs every server its session.  It goes MARGIN above our own top.
 * So servers that have seen a little more need not raise it again, and wait again.  The
 * file (historyfile.h) is never more than REACH behind.
 *
 * A crash of the server alone leaves the top in memory (historymemory.h).  If that
 * memory has noted everything that was granted since the file was written, nothing is
 * forgotten, and the REACH does not count.  The memory has, if the file names it: each
 * memory has an id, and a server that begins a new memory writes the file before it
 * grants anything.  So a data directory that was used on another machine meanwhile
 * names another memory.
 *
 * A crash also leaves the session, which the next run closes (sessionfile.h).  The
 * memory has what the session would have told: our node's version, and how long the
 * session was to live.  So the next run resumes the session and looks at UNDONE and
 * TOO_SOON.  Then it closes the session and opens one of its own.  A run that closes
 * its session on purpose takes the session out of the memory first, or the next run
 * would take the session's end for TOO_SOON.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORY_H
#define ZKLOCK_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest base: half of a bigint's range. */
#define ZKLOCK_BASE_MAX (INT64_C(1) << 62)

/* The largest raise by a superuser.  It leaves room for the raises that servers make
 * themselves. */
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

/* What the server's memory keeps after a crash, if the machine goes on. */
typedef struct ZkHistoryMemory
{
	int64_t id; /* 0: there is none */
	int64_t top;
	int64_t forgotten; /* as of its beginning */

	/* The session, from its first admission until the server closes it on purpose: */
	int64_t session; /* its id; 0: none */
	int64_t lost_at; /* it was to live until then (zklock_lease_lost_at) */
	int32_t version; /* of our member's node; -1: none that was known of */
} ZkHistoryMemory;

/* What the beginning of a connection shows. */
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

/* A new session begins.  Nothing is known about it yet. */
extern void zklock_history_new_session(ZkHistory *history);

/* Check each connection before anything from it is believed, and again when another
 * base was read. */
extern ZkHistoryVerdict zklock_history_check(const ZkHistory *history,
											 const ZkHistorySight *sight);

/*
 * The same, when at "told" we learned that the session has expired.
 * zklock_lease_lost_at says when it may expire; 0: nobody knows.  A session that was
 * never admitted proves nothing.
 */
extern ZkHistoryVerdict zklock_history_expired(const ZkHistory *history, int64_t told,
											   int64_t lost_at);

/*
 * The check was good: tokens are made with this base.  True: save the history before
 * anything is granted.
 */
extern bool zklock_history_admit(ZkHistory *history, const ZkHistorySight *sight);

/*
 * On an admitted connection, a write of our member's node has given it this version;
 * -1: the write failed because the node is missing.
 */
extern ZkHistoryVerdict zklock_history_wrote(ZkHistory *history, int32_t version);

/* An admitted connection has shown this transaction's number.  True: as above. */
extern bool zklock_history_see(ZkHistory *history, int64_t zxid);

/* Returns the token of a contender that this transaction made; 0 for 0. */
extern int64_t zklock_history_token(const ZkHistory *history, int64_t zxid);

/*
 * The ensemble has gone back, or another base says so: wait for "wait" ns from now on.
 * Save the history.
 */
extern void zklock_history_found(ZkHistory *history, int64_t now, int64_t wait);

/* The wait turns out to be too short: a session lasts this long. */
extern void zklock_history_extend(ZkHistory *history, int64_t wait);

/*
 * After a finding: returns the base to set, given the present base and a transaction's
 * number that was seen before it.  Returns the present base if that will do.  Beyond
 * ZKLOCK_BASE_MAX: there is no room for it.
 */
extern int64_t zklock_history_raise(const ZkHistory *history, int64_t base, int64_t zxid);

/* This is the base now, as of transaction "zxid".  Save the history. */
extern void zklock_history_mend(ZkHistory *history, int64_t base, int64_t zxid);

/*
 * A superuser wants no more tokens up to "above".  Returns the base to set.  Not more
 * than the present base: there is no need.  Beyond ZKLOCK_BASE_MAX: there is no room.
 */
extern int64_t zklock_history_raise_above(const ZkHistory *history, int64_t above);

/* Has the wait passed?  Then call zklock_history_end: later connections are checked
 * as ever.  Save the history. */
extern bool zklock_history_over(const ZkHistory *history, int64_t now);
extern void zklock_history_end(ZkHistory *history);

/* Reads a base that others may have written.  False: it is none. */
extern bool zklock_history_parse_base(const char *data, size_t len, int64_t *base);

/*
 * The file's content.  Formatting moves the ceiling: from then on it counts as written.
 * While nothing is granted, the ceiling is no more than what is known: after a finding,
 * and when no grant follows ("last").  So an end at such a moment does not call for a
 * raise.  Parsing returns false, and changes nothing, if zklock_history_format did not
 * write the text.  Otherwise the history is what was remembered.  A wait that was not
 * over begins again at "now", and lasts for "wait" ns if that is longer.
 */
#define ZKLOCK_HISTORY_TEXT_MAX 256

extern size_t zklock_history_format(ZkHistory *history, bool last, char *text);
extern bool zklock_history_parse(ZkHistory *history, const char *text, size_t len,
								 int64_t now, int64_t wait);

/*
 * After zklock_history_parse: this memory was found.  False: the file does not name it;
 * begin a new memory, with what is known and a new id.
 */
extern bool zklock_history_remember(ZkHistory *history, const ZkHistoryMemory *memory);

/* Returns the new memory.  Save the history before anything is granted. */
extern ZkHistoryMemory zklock_history_new_memory(ZkHistory *history, int64_t id);

/* Notes in the memory what is known now.  Call it before anything is granted by that.
 * "session": ours; 0: there is none, or it is about to be closed. */
extern void zklock_history_note(const ZkHistory *history, ZkHistoryMemory *memory,
								int64_t session, int64_t lost_at);

/*
 * A crash left this session, and the worker resumes it to close it.  True: the memory
 * knows the session.  Ask zklock_history_expired, with the memory's lost_at, if it has
 * expired.  Otherwise write our node in it, ask zklock_history_check, and close it if
 * the verdict is good.  During a wait there is no need.
 */
extern bool zklock_history_resume(ZkHistory *history, const ZkHistoryMemory *memory,
								  int64_t session);

#endif /* ZKLOCK_HISTORY_H */
