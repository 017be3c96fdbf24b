/*-------------------------------------------------------------------------
 *
 * job_after.h
 *	  Reads the records of the jobs after which a job is to be run, and waits for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_AFTER_H
#define ZKLOCK_JOB_AFTER_H

#include "job_rules.h"
#include "waiter.h"

/* Read the records of "n" jobs, no older than the call.  The record of a job that
 * nobody has called yet is empty.  Raises as zklock_job_record_change does. */
extern void zklock_job_after_read(char *const *names, int n, ZkJob *jobs);

/* One of the jobs has not done the slot: sleep until the next read.  False: the time is
 * up.  Raises as zklock_wait_for does. */
extern bool zklock_job_after_sleep(const ZkWait *limits);

#endif /* ZKLOCK_JOB_AFTER_H */
