/*-------------------------------------------------------------------------
 *
 * job_rules.h
 *	  Who runs a job, and what became of it: the record of a job's runs.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  A backend reads the
 * record from the ensemble, has it changed here, and writes it; the simulator (test/sim)
 * links the same object.
 *
 * A job is a name and a persistent znode, whose data is the record and whose children are
 * the queue of the job's lock.  Whoever holds the lock, by the ordinary protocol, may run
 * the job; it is the record that says whether it is due.  A time for which the job is to
 * run once is a slot: given by the caller, or with "every" the one that the present lies in,
 * counted from "origin" (zklock_job_slot).  All times are ms since 1970.  "now" is the
 * ensemble's clock, never a server's: the mtime of a znode that the session has just written.
 *
 * How to change the record.  Each function below changes it in memory and sets "changed"
 * if it has to be written.  So every change is the same loop:
 *
 *		for (;;)
 *		{
 *			write something, for the time;		a read that follows an acknowledged
 *			read the record and its version;	write of the session is not stale
 *			job.changed = false;
 *			zklock_job_...(&job, ...);
 *			if (!job.changed || set the data, if they have that version still)
 *				break;
 *		}
 *
 * A refused write, and one whose reply is lost, mean: read again.  Each function finds out
 * by the record whether its change is there already.  The first read can be left out by
 * who knows the record and its version from his own last write.  A version is good in the
 * session that it was seen in, and a write that compares it is sent in that one or not at
 * all: should the ensemble go back (history.h), versions begin again, but no session lives
 * on.  For the same reason a job's znode is never deleted: a job that is forgotten has an
 * empty record, and one without data is new.
 *
 * A run, step by step:
 *
 *	 1. Take the lock.  Read, in the session of the lock; zklock_job_settle for what this
 *	    server can tell of runs of its own (zklock_job_open); zklock_job_decide.  Whatever
 *	    it says counts when the record is written, if it changed: so one who was here
 *	    before, has lost the lock and does not know it, finds his run LOST when he wants
 *	    to commit.
 *	 2. RUN: the command's transaction.  It writes a row, by slot, token and number, into a
 *	    table of the same database.
 *	 3. zklock_job_commit says in the record that the run is COMMITTING, acknowledged by a
 *	    quorum.  ABORT: it must not commit.  The transaction's number goes along.
 *	 4. Look once more whether the lock is lost or the lease has lapsed; if so, abort.
 *	 5. Commit, durably: before the disk has it nothing may be said of it.
 *	 6. zklock_job_finish: DONE, or after an error FAILED, or LOST if it was aborted since
 *	    the lock was lost.  Until that is known, with whatever session there is, for it
 *	    needs no lock.  Only then let go of the lock: the write and the contender's delete
 *	    go out in this order on one session.  A backend that ends, or gives up, between
 *	    steps 3 and 6 leaves the lock to its server, which does step 6 for it; a server
 *	    that ends then leaves its session to its next life (zklock_job_left).
 *
 * Found by the next holder, a run that never reached COMMITTING did not commit, and one in
 * COMMITTING is in doubt: "doubt" says that nobody knows yet.  It counts as not done (LOST)
 * and is run again, or as done (SKIPPED), as the finder wants.  What really became of it
 * its own server says, as soon as it can, in the record's newest run or in its history.
 *
 * "Its own server" is the one that ran it: of the same database, by PostgreSQL's system
 * identifier, of the same name and on the same timeline.  A copy of it has the first alone.
 * What a copy finds in its table has committed; what it does not find there may be in the
 * other's.
 *
 * A command that commits by itself has no step 3 ("begun"): step 4 comes before it, and its
 * end, good or bad, is step 6.  A session that its client ends before that has FAILED, if
 * it can say so while it holds the lock.  Taken over before that it is LOST and in doubt,
 * as when the server ends the session, until its server knows whether it came to its end:
 * by the same row, which a transaction of its own writes.  It is run again: at least once.
 *
 * What holds (test/sim/job_sim.c), for a job whose commands run in a transaction:
 *
 *	 1. A slot is committed at most once if all callers say skip: while the ensemble
 *	    forgets nothing, the slot is not reset and the job not forgotten.
 *	 2. A slot that somebody calls for is committed in the end, or was skipped, or has
 *	    failed "attempts" times: if somebody who calls stays alive, the ensemble can be
 *	    reached, and neither a pause nor another job is in the way.
 *	 3. A slot is committed once, and never more often than 1 + the runs of it that were
 *	    in doubt.  A run is in doubt only if its server was down, paused or cut off for
 *	    longer than its session lasts, or had its contender deleted by others, all between
 *	    steps 3 and 6.
 *	 4. Runs commit in the order of their tokens, but for those that were in doubt; and
 *	    when a decision has been made on the strength of a run's not having committed,
 *	    it does not commit.
 *	 5. No run for a slot begins when "attempts" failures of it have been recorded, while it
 *	    is among the last ZKLOCK_JOB_RUNS runs.  A failure that could not be recorded
 *	    before the lock was lost is recorded when it can be.
 *	 6. When all servers are up and have settled, the record says what committed, and
 *	    what did not, of each run that it has; if the ensemble forgot nothing.
 *	 7. With "every", a run is for the slot of the present, by the ensemble's clock, or for one
 *	    that was reset.  The latter waits while the former is due, has an attempt left,
 *	    and need not wait for another job.
 *	    So no slot in which somebody calls is left out for what was run at other times.
 *	 8. A server never commits a slot again that it has committed itself, whatever the
 *	    ensemble has forgotten; unless the slot was reset, or does not count any more.
 *	 9. Whoever is told that nothing is due, or that no attempt is left, is told so by runs
 *	    that count, and by nothing else.
 *	10. No run begins while the job is paused.  To forget the job ends no pause.
 *	11. No run begins for a slot that a job has not done after which it is to be run.  A
 *	    caller who is told to wait for such a job is told of one that has not.
 *
 * What is assumed: the lease is honest, one contender at a time has the lock, tokens grow,
 * nobody is granted anything for a session timeout after the ensemble has gone back
 * (lease.h, protocol.h, history.h), what is committed survives a crash, and no two servers
 * are alike in all that makes one the other's own.
 *
 * The clock of the ensemble is its leader's.  A run that was done while it was fast can
 * hold a job back for long, and "ahead" says so.  zklock_job_reset mends it: no run up to
 * then ("forgotten") counts any more, and instead of them the present slot is the one last
 * done, and is due again if it is the one meant, or not known to be done.
 * zklock_job_forget sets the same mark, without a slot.
 *
 * A pause.  zklock_job_decide begins no run while the job is paused, by the ensemble's
 * clock; a run that goes on ends as always.  With "every" the slots that pass meanwhile are
 * run no more, as nobody can call for them later.
 *
 * One job after others.  A slot is run only when each job in "after" has done it: that job
 * has done the slot of its own, by its own "every", in which the slot begins.  If it has
 * left that out and done a later one, that will do, since nobody will call for it; but not
 * if it has failed there, or is due again.  The caller has read their records while he
 * holds the lock.  Without the lock he can ask by a copy of the record what he would be
 * told.
 *
 * The mark is in the record, since each decision reads that before it asks any table, and
 * there is one place to write, whatever servers are up.  If the ensemble loses the record,
 * or goes back, it loses the mark, too, and the tables count in full: nothing is run twice,
 * and what was mended may have to be mended again.  (Should it go back to a moment between
 * a reset and the next decision, the mark is above all that was run since.)  It is an id, a token and a number:
 * numbers begin again with a record that was lost, tokens grow over that; and a token alone
 * does not tell apart what one holder has run before and after.  Whoever resets has no
 * token, and the record need not know all that tables have, if the ensemble went back: so
 * the token is that of whoever decides next, since all that ran before had smaller ones,
 * or its own and a smaller number.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_RULES_H
#define ZKLOCK_JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contender.h"

/* Version of the record.  A library that does not know a key drops it when it writes.  So
 * a new key that must not be dropped needs a new version, from the first release on. */
#define ZKLOCK_JOB_VERSION	 1

#define ZKLOCK_JOB_RUNS		 16
#define ZKLOCK_JOB_ERROR_MAX 200 /* bytes, without the NUL */
/* So many slots can be due again at a time.  The simulator fills them soon. */
#ifndef ZKLOCK_JOB_RESETS
#define ZKLOCK_JOB_RESETS 16
#endif

#define ZKLOCK_JOB_NEVER INT64_MIN /* no time */
/* All others are PostgreSQL's timestamps. */
#define ZKLOCK_JOB_TIME_MIN	 INT64_C(-210866803200000)
#define ZKLOCK_JOB_TIME_MAX	 INT64_C(9224318015999999)
#define ZKLOCK_JOB_FOREVER	 ZKLOCK_JOB_TIME_MAX /* the end of a pause that has none */
#define ZKLOCK_JOB_COUNT_MAX (INT64_C(1) << 53)

/* From where slots are counted if nobody says: 2000-01-03, a Monday, midnight UTC */
#define ZKLOCK_JOB_ORIGIN INT64_C(946857600000)
/* A call is for the slot that begins within this time, or a twentieth of "every" if that
 * is less: clocks differ. */
#define ZKLOCK_JOB_EARLY (5 * 60 * 1000)

typedef enum ZkJobState
{
	ZKLOCK_JOB_RUNNING,
	ZKLOCK_JOB_COMMITTING,
	ZKLOCK_JOB_DONE,
	ZKLOCK_JOB_FAILED, /* by an error of the command, or a client that left */
	ZKLOCK_JOB_LOST,   /* did not come to its end, or may have: doubt.  Not done */
	ZKLOCK_JOB_SKIPPED /* the same, but the slot counts as done */
} ZkJobState;

/* Which run, of all runs of a job. */
typedef struct ZkJobId
{
	int64_t token; /* of the lock, which several runs may share that a server's
					* backends hand to each other */
	int64_t number; /* of the runs of the job, from 1; begins again if the record is lost */
} ZkJobId;

typedef struct ZkJobRun
{
	ZkJobId id;
	int64_t slot;
	ZkJobState state;
	bool doubt;		   /* LOST, SKIPPED: may have committed */
	bool begun;		   /* by a command that commits by itself */
	bool reset;		   /* the slot was, since: counts neither as done nor as failed */
	uint64_t server;   /* whose data it changes: a server and its
						* copies have the same */
	uint64_t database; /* ... of this server */
	int timeline;	   /* ... on this one; 0: not known */
	uint64_t xid;	   /* of the transaction; 0: not COMMITTING yet */
	int64_t start;	   /* may be after the end: the clock was set */
	int64_t end;	   /* NEVER: no end yet */
	int attempt;	   /* run of this slot, from 1 */
	int failures;	   /* ... that failed, up to this one */
	char server_name[ZKLOCK_NAME_MAX + 1];
	char error[ZKLOCK_JOB_ERROR_MAX + 1]; /* its first line */
} ZkJobRun;

/* Slots that are due again, the earliest first. */
typedef struct ZkJobSlots
{
	int n;
	int64_t slot[ZKLOCK_JOB_RESETS];
} ZkJobSlots;

typedef struct ZkJob
{
	bool changed;	   /* not of the record: to be written */
	int64_t count;	   /* runs that there were */
	int64_t last_done; /* the latest slot that counts as done, or NEVER */
	int64_t every;	   /* as of the newest run; 0: none, its slot was given.  Then it may
						* be of a call that found the job done */
	int64_t origin;	   /* ... of "every" */
	int64_t paused_until; /* no run begins before; NEVER: no pause.  A pause that is over
						   * stays here until the next one */
	ZkJobSlots resets;	  /* stay until they are done, whatever else is reset */
	ZkJobId forgotten;	  /* no run up to this one counts, here or in a table, but as
						   * last_done says.  The token may be NEVER: none counts so far */
	int nruns;
	ZkJobRun run[ZKLOCK_JOB_RUNS]; /* newest first */
} ZkJob;

/* Who is it that runs a job, or tells what became of it? */
typedef struct ZkJobServer
{
	uint64_t system;
	uint64_t database;
	int timeline;
	const char *name;
} ZkJobServer;

/* What the caller wants, and is. */
typedef struct ZkJobCall
{
	int64_t every; /* above 0, or 0: slot */
	int64_t origin;
	int64_t slot;
	int attempts;	  /* at least 1 */
	bool skip;		  /* a run in doubt counts as done */
	bool begun;		  /* see above */
	int64_t own_done; /* the latest slot that is done by the table of this database, and
					   * by a run that counts; or NEVER */
	int64_t token;	  /* of the lock that the caller holds */
	ZkJobServer server;
	int nafter;			/* the job runs after so many others ... */
	const ZkJob *after; /* ... with these records */
} ZkJobCall;

typedef enum ZkJobVerdict
{
	ZKLOCK_JOB_RUN,		 /* run[0] is the new run; written, it is the caller's */
	ZKLOCK_JOB_NOT_DUE,	 /* nothing to do: done, by whomever, or a later slot is */
	ZKLOCK_JOB_GIVEN_UP, /* no attempt is left for the slot */
	ZKLOCK_JOB_PAUSED,	 /* by hand */
	ZKLOCK_JOB_TOO_SOON, /* another job has not done the slot, after which it is to be run */
	ZKLOCK_JOB_NO_HOLDER /* somebody has had the lock after the caller, who has lost it */
} ZkJobVerdict;

typedef struct ZkJobDecision
{
	ZkJobVerdict verdict;
	int64_t slot; /* to be run, or the one last done, or the one given up; PAUSED: the
				   * time until which it is */
	int run;	  /* its newest run, done or failed, for the message; -1: not in the
				   * record any more */
	bool ahead;	  /* NOT_DUE: the slot last done is none that may have begun */
	int after;	  /* TOO_SOON: which of the other jobs has not done the slot */
} ZkJobDecision;

/* The slot that a call at this time is for: what date_bin(every, now, origin) says, or
 * the next one if that begins soon. */
extern int64_t zklock_job_slot(int64_t every, int64_t origin, int64_t now);

/* No run yet, and none remembered. */
extern void zklock_job_init(ZkJob *job);

/* Can this be a record?  What others wrote must pass before anything below sees it. */
extern bool zklock_job_valid(const ZkJob *job);

/* The run, or NULL. */
extern const ZkJobRun *zklock_job_find(const ZkJob *job, ZkJobId id);

/* Does a run that was done count as that?  Or has it been forgotten? */
extern bool zklock_job_counts(const ZkJob *job, ZkJobId id);

/*
 * The next run from index "from" on that only this server, or a copy, can tell the end
 * of, or -1.  It can by its table's row (done); or, without one, if zklock_job_is_own,
 * and the transaction is over; for one "begun", if its backend is.  Look at the
 * transaction before the row.
 */
extern int zklock_job_open(const ZkJob *job, const ZkJobServer *server, int from);

/* Was it run by this server itself, and not by one that it is a copy of? */
extern bool zklock_job_is_own(const ZkJobRun *run, const ZkJobServer *server);

/*
 * Is it this server's own run that others would find in COMMITTING?  Who asks is the next
 * life of the server, which keeps the session of the life before, and with it the lock,
 * until it has settled the run.  "database" and "timeline" do not matter.
 */
extern bool zklock_job_left(const ZkJob *job, const ZkJobServer *server);

/* That run has committed, or has not and never will.  Needs no lock. */
extern void zklock_job_settle(ZkJob *job, ZkJobId id, const ZkJobServer *server,
							  bool committed, int64_t now);

/*
 * By the holder of the lock: is the job to be run?  If the record changed, the verdict
 * counts as soon as that is written; whoever has to read again looks first whether his
 * RUN is there (zklock_job_find: RUNNING).
 */
extern ZkJobDecision zklock_job_decide(ZkJob *job, const ZkJobCall *call, int64_t now);

/* Is there nothing to be waited for of this job, when another one is to be run for this
 * slot after it? */
extern bool zklock_job_has_done(const ZkJob *job, int64_t slot);

typedef enum ZkJobCommit
{
	ZKLOCK_JOB_COMMIT,		  /* as soon as it is written */
	ZKLOCK_JOB_ABORT,		  /* the run was taken over */
	ZKLOCK_JOB_DONE_BY_OTHERS /* it may not, as it turns out that the slot was done by a
							   * run that was in doubt */
} ZkJobCommit;

extern ZkJobCommit zklock_job_commit(ZkJob *job, ZkJobId id, uint64_t xid);

/*
 * What became of one's own run: DONE, FAILED or LOST.  Needs no lock.  It is recorded in
 * the history, too, if others have taken over; zklock_job_find before that tells. "error"
 * is UTF-8, or NULL, and cut off where it is too long.
 */
extern void zklock_job_finish(ZkJob *job, ZkJobId id, ZkJobState end, const char *error,
							  int64_t now);

typedef enum ZkJobReset
{
	ZKLOCK_JOB_RESET,
	ZKLOCK_JOB_NOTHING, /* there is no such slot, or nobody has called for it, and those
						 * who call make the slots */
	ZKLOCK_JOB_FULL,	/* as many are due again as can be */
	ZKLOCK_JOB_SINCE	/* the slot is done, or being run, since that attempt */
} ZkJobReset;

/*
 * Makes a slot due again, once, with all its attempts: by a call for it, or by any call
 * with "every" that has nothing else to run; by a run that begins later, should one go on
 * for it.  NEVER: the newest one that has failed and is not done, else the one last done.
 * Those that were reset before stay due.  Says in *slot which one it was.  Needs no lock.
 * "attempt": the caller knows that this one of a slot that he names has failed; 0: he
 * knows of none.
 *
 * With "every" no slot that was run lies ahead of the clock, unless that was wrong: then
 * what was done at a slot ahead does not count any more, and the present one is due
 * again; if another one is named, only if it is not known to be done.
 */
extern ZkJobReset zklock_job_reset(ZkJob *job, int64_t *slot, int attempt, int64_t now);

typedef enum ZkJobPause
{
	ZKLOCK_JOB_CHANGED,
	ZKLOCK_JOB_UNCHANGED, /* it is paused until then; to resume: it is not paused */
	ZKLOCK_JOB_PAST		  /* the time is over already */
} ZkJobPause;

/*
 * No run is to begin until then, or from now on any may: NEVER.  A pause takes the place
 * of the one before.  Needs no lock.
 */
extern ZkJobPause zklock_job_pause(ZkJob *job, int64_t until, int64_t now);

extern bool zklock_job_is_paused(const ZkJob *job, int64_t now);

/* Is the slot due again, and not done since? */
extern bool zklock_job_is_reset(const ZkJob *job, int64_t slot);

/*
 * By the holder of the lock.  No run so far counts any more, here or in servers' tables,
 * and none is remembered.  False: the caller has lost the lock.
 */
extern bool zklock_job_forget(ZkJob *job, int64_t token);

/* When is the job due next: when does the slot begin that follows the one last done, by
 * the newest run's "every"?  NEVER: nobody can tell, or after the end of time. */
extern int64_t zklock_job_next_due(const ZkJob *job);

#endif /* ZKLOCK_JOB_RULES_H */
