/*-------------------------------------------------------------------------
 *
 * job_runs.h
 *	  zk_runs: the runs of jobs and of zk_run_as_leader in this database.
 *
 * The transaction of a command inserts the row of its run as done.  So the row exists
 * if and only if that transaction has committed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_RUNS_H
#define ZKLOCK_JOB_RUNS_H

#include "datatype/timestamp.h"

#include "job_rules.h"

/* A row.  "function": any function of the extension to which the table belongs. */
typedef struct ZkRunRow
{
	ZkLockKind kind; /* a job or an election */
	const char *name;
	int64 token;
	const ZkJobRun *run; /* of a job; NULL: of an election */
	TimestampTz started; /* by this server's clock */
	bool done;
	const char *error; /* UTF-8, or NULL */
} ZkRunRow;

/* Insert the row in the current transaction, with now as the run's end, and delete rows
 * that are older than zklock.run_history. */
extern void zklock_job_runs_insert(Oid function, const ZkRunRow *row);

/* Can a row be inserted without a wait for another session's lock?  False also if there
 * is no such table any more. */
extern bool zklock_job_runs_ready(Oid function);

/* The latest slot of a job that is done by committed rows here and counts by the
 * record, or ZKLOCK_JOB_NEVER. */
extern int64_t zklock_job_runs_last_done(Oid function, const char *job,
										 const ZkJob *record);

/* Has this run of a job committed here? */
extern bool zklock_job_runs_committed(Oid function, const char *job, const ZkJobRun *run);

#endif /* ZKLOCK_JOB_RUNS_H */
