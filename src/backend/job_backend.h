/*-------------------------------------------------------------------------
 *
 * job_backend.h
 *	  Runs of jobs, by the backend that runs them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_BACKEND_H
#define ZKLOCK_JOB_BACKEND_H

#include "job_rules.h"

/* What is asked for, and by which function of the extension. */
typedef struct ZkJobOrder
{
	Oid function;
	const char *name;	 /* UTF-8, checked */
	const char *command; /* NULL: a run of the session, until zklock_job_end */
	int64 every;		 /* ms, or 0: slot */
	int64 origin;		 /* ms since 1970, and so is slot */
	int64 slot;
	int64 wait; /* ms, or ZKLOCK_WAIT_FOREVER; 0: skip it while somebody else has it */
	int attempts;
	bool skip;	/* a run in doubt counts as done */
	int nafter; /* the job is run after so many others, with these names: when they have
				 * done the slot */
	char **after;
} ZkJobOrder;

/*
 * Wait for the job, and if its slot is due run the command, in a transaction of its own.
 * For a procedure that is not atomic, with SPI connected so and no transaction that
 * matters.  Says in a NOTICE what was done already, that the server is drained, that the
 * job is paused, or, if the caller would not wait, that somebody else runs the job, or
 * which other job is to be done before.  Raises what the command does; what
 * zklock_acquire does; 55P03 when the time is up; 55000 when no attempt is left; 40001
 * when the job is lost.
 */
extern void zklock_job_run_once(const ZkJobOrder *order);

/*
 * The same for a command that commits by itself: true if this session is to run it.  It
 * has the job in session scope then.
 */
extern bool zklock_job_begin(const ZkJobOrder *order);

/*
 * ... and it has.  False, with a WARNING: this session has begun no run of the job; or
 * "done", and one of its statements failed since the job was lost: then the run is
 * recorded as lost.  A session that its client ends without this has failed.
 *
 * What is recorded as done cannot be taken back, so all that the session did is on the
 * disk before that.  Raises 25001 if this transaction does anything else, 55000 if the
 * latest one was rolled back, and the loss of another hold, which would fail the commit.
 */
extern bool zklock_job_end(Oid function, const char *name, bool done);

/* This server, and one of its databases.  Not during recovery. */
extern ZkJobServer zklock_job_self(uint64 database);

/* Say what became of runs of this database that are in doubt, if it can be told now: with
 * InvalidOid, where the extension is gone, of those that sessions have left to the
 * server. The job is not held. */
extern void zklock_job_settle_runs(Oid function, const char *name);

/*
 * By hand.  False, with a NOTICE: there is nothing to reset or to forget.  "slot" may be
 * ZKLOCK_JOB_NEVER.  What is forgotten is held until the transaction ends: 55006 while
 * somebody else has it.
 */
extern bool zklock_job_reset_slot(const char *name, int64 slot, int attempt);
extern bool zklock_job_forget_runs(Oid function, const char *name);

#endif /* ZKLOCK_JOB_BACKEND_H */
