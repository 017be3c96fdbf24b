/*-------------------------------------------------------------------------
 *
 * job_worker.h
 *	  Runs of jobs that only this server can tell the end of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_WORKER_H
#define ZKLOCK_JOB_WORKER_H

/* Each time round: start the processes where there may be some. */
extern void zklock_job_worker_work(void);

/* Is nothing wanted of them, and none at work? */
extern bool zklock_job_worker_over(void);

#endif /* ZKLOCK_JOB_WORKER_H */
