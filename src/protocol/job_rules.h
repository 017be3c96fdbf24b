/*-------------------------------------------------------------------------
 *
 * job_rules.h
 *	  Decides who runs a job, and keeps the record of the job's runs.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  A backend reads the
 * record from the ensemble, has it changed here, and writes it; the simulator
 * (test/sim) links the same object.
 *
 * A job is a name and a persistent znode.  The znode's data is the record, and its
 * children are the queue of the job's lock.  The holder of the lock, by the ordinary
 * protocol, may run the job; the record says whether it is due.  A slot is a time for
 * which the job has to run once.  The caller names it, or with "every" it is the slot
 * in which the present lies, counted from "origin" (zklock_job_slot).  All times are ms
 * since 1970.  "now" is the ensemble's clock, never a server's: the mtime of a znode
 * that the session has just written.
 *
 * How to change the record.  Each function below changes it in memory and sets
 * "changed" if it has to be written.  So every change is the same loop:
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
 * After a refused write, or a write whose reply is lost, read again.  Each function
 * finds out from the record whether its change is there already.  A caller that knows
 * the record and its version from its own last write can leave out the first read.  A
 * version is good in the session in which it was seen, and a write that compares it
 * goes out in that session or not at all.  If the ensemble goes back (history.h),
 * versions begin again, but no session lives on.  For the same reason nobody ever
 * deletes a job's znode: a job that is forgotten has an empty record, and a job without
 * data is new.
 *
 * A run, step by step:
 *
 *	 1. Take the lock.  Read, in the session of the lock.  Call zklock_job_settle
 *	    for what this server can tell about runs of its own (zklock_job_open); then
 *	    zklock_job_decide.  The verdict counts when the record is written, if it
 *	    changed.  So a holder that was here before, has lost the lock and does not
 *	    know it, finds its run LOST when it wants to commit.
 *	 2. RUN: the command's transaction.  It writes a row, by slot, token and number,
 *	    into a table of the same database.
 *	 3. zklock_job_commit says in the record that the run is COMMITTING,
 *	    acknowledged by a quorum.  ABORT: it must not commit.  The record also gets
 *	    the transaction's number.
 *	 4. Check once more whether the lock is lost or the lease has lapsed; if so,
 *	    abort.
 *	 5. Commit, durably: nobody may say anything about it before the disk has it.
 *	 6. zklock_job_finish: DONE, or after an error FAILED, or LOST if the run was
 *	    aborted because the lock was lost.  Repeat this until the outcome is known,
 *	    in whatever session there is: it needs no lock.  Only then release the lock:
 *	    the write and the contender's delete go out in this order in one session.  A
 *	    backend that ends, or gives up, between steps 3 and 6 leaves the lock to its
 *	    server, which does step 6 for it.  A server that ends then leaves its
 *	    session to its next life (zklock_job_left).
 *
 * If the next holder finds a run that never reached COMMITTING, the run did not commit.
 * A run in COMMITTING is in doubt: "doubt" says that nobody knows yet.  As the finder
 * wants, the run counts as not done (LOST) and is run again, or it counts as done
 * (SKIPPED).  The run's own server says later what really happened, as soon as it can:
 * in the record's newest run or in its history.
 *
 * "Its own server" is the one that ran it: of the same database, by PostgreSQL's system
 * identifier, of the same name and on the same timeline.  A copy of it shares only the
 * first.  If a copy finds a run in its table, the run has committed; if it does not,
 * the run may be in the other's table.
 *
 * A command that commits by itself has no step 3 ("begun").  Step 4 comes before the
 * command, and step 6 is its end, good or bad.  If the client ends its session before
 * that, the run has FAILED, if the session can say so while it holds the lock.  If
 * another holder takes over before that, the run is LOST and in doubt, as when the
 * server ends the session.  It stays in doubt until its server knows whether it came to
 * its end: by the same row, which a transaction of its own writes.  It is run again: at
 * least once.
 *
 * Guarantees (test/sim/job_sim.c), for a job whose commands run in a transaction:
 *
 *	 1. A slot is committed at most once if all callers say skip: while the ensemble
 *	    forgets nothing, the slot is not reset and the job not forgotten.
 *	 2. A slot that somebody calls for is committed in the end, or was skipped, or
 *	    has failed "attempts" times.  This needs a caller that stays alive, an
 *	    ensemble that can be reached, and neither a pause nor another job in the
 *	    way.
 *	 3. A slot is committed once, and never more often than 1 + the runs of it that
 *	    were in doubt.  A run is in doubt only if its server was down, paused or cut
 *	    off for longer than its session lasts, or if others deleted its contender,
 *	    all between steps 3 and 6.
 *	 4. Runs commit in the order of their tokens, except for those that were in
 *	    doubt.  If a decision relies on a run's not having committed, that run does
 *	    not commit.
 *	 5. No run for a slot begins when "attempts" failures of it have been recorded,
 *	    while it is among the last ZKLOCK_JOB_RUNS runs.  A failure that could not
 *	    be recorded before the lock was lost is recorded when it can be.
 *	 6. When all servers are up and have settled, the record says which of its runs
 *	    committed, and which did not; if the ensemble forgot nothing.
 *	 7. With "every", a run is for the slot of the present, by the ensemble's clock,
 *	    or for one that was reset.  The latter waits while the former is due, has an
 *	    attempt left, and need not wait for another job.  So no slot in which
 *	    somebody calls is left out because of runs at other times.
 *	 8. A server never commits a slot again that it has committed itself, whatever
 *	    the ensemble has forgotten; unless the slot was reset, or does not count any
 *	    more.
 *	 9. A caller is told that nothing is due, or that no attempt is left, only
 *	    because of runs that count.
 *	 10. No run begins while the job is paused.  To forget the job ends no pause.
 *	 11. No run begins for a slot if a job that has to run before it has not done
 *	     it.  A caller that has to wait for such a job gets the name of one that has
 *	     not.
 *
 * Assumptions: the lease is honest, one contender at a time has the lock, tokens grow,
 * nobody is granted anything for a session timeout after the ensemble has gone back
 * (lease.h, protocol.h, history.h), a commit survives a crash, and no two servers are
 * alike in everything that makes a server a run's own.
 *
 * The clock of the ensemble is its leader's.  A run that was done while the clock was
 * fast can hold a job back for long, and "ahead" says so.  zklock_job_reset mends it:
 * no run up to then ("forgotten") counts any more.  Instead, the present slot is the
 * one done last; it is due again if the reset means it, or if it is not known to be
 * done.  zklock_job_forget sets the same mark, without a slot.
 *
 * A pause.  zklock_job_decide begins no run while the job is paused, by the ensemble's
 * clock; a run that goes on ends as always.  With "every", slots that pass meanwhile
 * are not run any more, because nobody can call for them later.
 *
 * One job after others.  A slot is run only when each job in "after" has done it.  That
 * job has done it when it has done its own slot, by its own "every", in which the slot
 * begins.  If it has left that slot out and done a later one, that will do, because
 * nobody will call for the slot; but not if that slot has failed there, or is due
 * again.  The caller has read the records of these jobs while it holds the lock.
 * Without the lock a caller can ask on a copy of the record what it would be told.
 *
 * The mark is in the record: each decision reads the record before it asks any table,
 * and there is one place to write, whatever servers are up.  If the ensemble loses the
 * record, or goes back, it loses the mark, too, and the tables count in full.  Then
 * nothing is run twice, and what was mended may have to be mended again.  (If the
 * ensemble goes back to a moment between a reset and the next decision, the mark is
 * above all runs since then.)  The mark is an id, a token and a number.  Numbers begin
 * again with a record that was lost, and tokens grow beyond that.  A token alone does
 * not separate the runs of one holder before the mark from those after it.  A reset has
 * no token, and if the ensemble went back, the record need not know every run in the
 * tables.  So the mark takes the token of the holder that decides next: all earlier
 * runs had smaller tokens, or that token and a smaller number.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_RULES_H
#define ZKLOCK_JOB_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contender.h"

/* Version of the record.  A library that does not know a key drops it when it writes.
 * So a new key that must not be dropped needs a new version, from the first release
 * on. */
#define ZKLOCK_JOB_VERSION	 1

#define ZKLOCK_JOB_RUNS		 16
#define ZKLOCK_JOB_ERROR_MAX 200 /* bytes, without the NUL */
/* The most slots that can be due again at a time.  The simulator fills them soon. */
#ifndef ZKLOCK_JOB_RESETS
#define ZKLOCK_JOB_RESETS 16
#endif

#define ZKLOCK_JOB_NEVER INT64_MIN /* no time */
/* The range of PostgreSQL's timestamps */
#define ZKLOCK_JOB_TIME_MIN	 INT64_C(-210866803200000)
#define ZKLOCK_JOB_TIME_MAX	 INT64_C(9224318015999999)
#define ZKLOCK_JOB_FOREVER	 ZKLOCK_JOB_TIME_MAX /* the end of a pause that has none */
#define ZKLOCK_JOB_COUNT_MAX (INT64_C(1) << 53)

/* The default origin of slots: 2000-01-03, a Monday, midnight UTC */
#define ZKLOCK_JOB_ORIGIN INT64_C(946857600000)
/* A call is for the slot that begins within this time, or within a twentieth of
 * "every" if that is less: clocks differ. */
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

/* Identifies a run among all runs of a job. */
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

/* The server that runs a job, or says how a run ended. */
typedef struct ZkJobServer
{
	uint64_t system;
	uint64_t database;
	int timeline;
	const char *name;
} ZkJobServer;

/* The caller, and its wishes. */
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

/* Returns the slot of a call at this time: the result of date_bin(every, now,
 * origin), or the next slot if that begins soon. */
extern int64_t zklock_job_slot(int64_t every, int64_t origin, int64_t now);

/* No run yet, and none remembered. */
extern void zklock_job_init(ZkJob *job);

/* Can this be a record?  Check a record that others wrote before you pass it to any
 * function below. */
extern bool zklock_job_valid(const ZkJob *job);

/* The run, or NULL. */
extern const ZkJobRun *zklock_job_find(const ZkJob *job, ZkJobId id);

/* Does a run that was done count as done?  Or has it been forgotten? */
extern bool zklock_job_counts(const ZkJob *job, ZkJobId id);

/*
 * Returns the next run from index "from" on whose end only this server, or a copy of
 * it, can tell; -1: there is none.  The server can tell by its table's row (done).
 * Without a row it can tell if zklock_job_is_own and the transaction is over; for a run
 * that is "begun", if its backend has ended.  Look at the transaction before the row.
 */
extern int zklock_job_open(const ZkJob *job, const ZkJobServer *server, int from);

/* Did this server itself run it, and not one that this server is a copy of? */
extern bool zklock_job_is_own(const ZkJobRun *run, const ZkJobServer *server);

/*
 * Is this a run of this server that others would find in COMMITTING?  The server's next
 * life asks this.  It keeps the session of the life before, and with it the lock, until
 * it has settled the run.  "database" and "timeline" do not matter.
 */
extern bool zklock_job_left(const ZkJob *job, const ZkJobServer *server);

/* The run has committed, or has not and never will.  Needs no lock. */
extern void zklock_job_settle(ZkJob *job, ZkJobId id, const ZkJobServer *server,
							  bool committed, int64_t now);

/*
 * For the holder of the lock: has the job to be run?  If the record changed, the
 * verdict counts as soon as the record is written.  A caller that has to read again
 * looks first whether its RUN is there (zklock_job_find: RUNNING).
 */
extern ZkJobDecision zklock_job_decide(ZkJob *job, const ZkJobCall *call, int64_t now);

/* Another job has to run for this slot after this one: is there nothing to wait for? */
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
 * Records the end of the caller's own run: DONE, FAILED or LOST.  Needs no lock.  It is
 * recorded in the history, too, if others have taken over; zklock_job_find before that
 * tells.  "error" is UTF-8, or NULL, and is cut off where it is too long.
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
 * Makes a slot due again, once, with all its attempts.  A call for it runs it, or any
 * call with "every" that has nothing else to run.  If a run for the slot goes on, only
 * a run that begins later counts.  NEVER: the newest slot that has failed and is not
 * done, else the one done last.  Earlier resets stay due.  Returns the slot in *slot.
 * Needs no lock.  "attempt": the caller knows that this attempt of the slot that it
 * names has failed; 0: it knows of none.
 *
 * With "every", no slot that was run lies ahead of the clock, unless the clock was
 * wrong.  Then what was done at a slot ahead does not count any more, and the present
 * slot is due again; if the caller names another slot, only if the present one is not
 * known to be done.
 */
extern ZkJobReset zklock_job_reset(ZkJob *job, int64_t *slot, int attempt, int64_t now);

typedef enum ZkJobPause
{
	ZKLOCK_JOB_CHANGED,
	ZKLOCK_JOB_UNCHANGED, /* it is paused until then; to resume: it is not paused */
	ZKLOCK_JOB_PAST		  /* the time is over already */
} ZkJobPause;

/*
 * No run may begin until then; NEVER: from now on any may.  A pause replaces the one
 * before.  Needs no lock.
 */
extern ZkJobPause zklock_job_pause(ZkJob *job, int64_t until, int64_t now);

extern bool zklock_job_is_paused(const ZkJob *job, int64_t now);

/* Is the slot due again, and not done since? */
extern bool zklock_job_is_reset(const ZkJob *job, int64_t slot);

/*
 * For the holder of the lock.  No earlier run counts any more, here or in servers'
 * tables, and none is remembered.  False: the caller has lost the lock.
 */
extern bool zklock_job_forget(ZkJob *job, int64_t token);

/* Returns when the job is due next: when the slot begins that follows the one done
 * last, by the newest run's "every".  NEVER: nobody can tell, or it is after the end
 * of time. */
extern int64_t zklock_job_next_due(const ZkJob *job);

#endif /* ZKLOCK_JOB_RULES_H */
