/*-------------------------------------------------------------------------
 *
 * job_backend.h
 *	  Runs jobs, in the backend that has called them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_BACKEND_H
#define ZKLOCK_JOB_BACKEND_H

#include "job_rules.h"

/* The order of a call, and the function of the extension that was called. */
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
 * Wait for the job, and if its slot is due, run the command in a transaction of its
 * own.  For a procedure that is not atomic, with SPI connected accordingly and no
 * transaction that matters.  A NOTICE says that the slot was done already, that the
 * server is drained, that the job is paused, or which other job is to be done before.
 * If the caller does not wait, a NOTICE says that another session runs the job.  Raises
 * the errors of the command and of zklock_acquire, 55P03 when the time is up, 55000
 * when no attempt is left, and 40001 when the job is lost.
 */
extern void zklock_job_run_once(const ZkJobOrder *order);

/* The same for a command that commits by itself.  Returns true if this session is to
 * run it.  The session has the job in session scope then. */
extern bool zklock_job_begin(const ZkJobOrder *order);

/*
 * The session has run it: end the run.  False, with a WARNING: this session has begun
 * no run of the job.  Also false, with "done", if one of the session's statements
 * failed since the job was lost: then the run is recorded as lost.  If the client ends
 * the session without this call, the run has failed.
 *
 * A run that is recorded as done cannot be undone, so everything that the session did
 * is on disk before that.  Raises 25001 if this transaction does anything else, 55000
 * if the latest transaction was rolled back, and the loss of another hold, which would
 * make the commit fail.
 */
extern bool zklock_job_end(Oid function, const char *name, bool done);

/* This server, with one of its databases.  Not during recovery. */
extern ZkJobServer zklock_job_self(uint64 database);

/*
 * Record the outcome of runs of this database that are in doubt, if it is known now.
 * With InvalidOid the extension is gone; then only for the runs that sessions have left
 * to the server.  The caller does not hold the job.
 */
extern void zklock_job_settle_runs(Oid function, const char *name);

/*
 * Reset or forget a job by hand.  False, with a NOTICE: there is nothing to reset or to
 * forget.  "slot" may be ZKLOCK_JOB_NEVER.  A job that is forgotten is held until the
 * transaction ends: 55006 while another session has it.
 */
extern bool zklock_job_reset_slot(const char *name, int64 slot, int attempt);
extern bool zklock_job_forget_runs(Oid function, const char *name);

#endif /* ZKLOCK_JOB_BACKEND_H */
