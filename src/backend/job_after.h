/*-------------------------------------------------------------------------
 *
 * job_after.h
 *	  A job that is to be run after others: their records, and the wait for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_AFTER_H
#define ZKLOCK_JOB_AFTER_H

#include "job_rules.h"
#include "waiter.h"

/*
 * The records of so many jobs, no older than the call; of a job that nobody has called
 * yet, an empty one.  Raises as zklock_job_record_change does.
 */
extern void zklock_job_after_read(char *const *names, int n, ZkJob *jobs);

/*
 * One of them has not done the slot: sleep until it is time to read again.  False: the
 * time is up.  Raises what zklock_wait_for does.
 */
extern bool zklock_job_after_sleep(const ZkWait *limits);

#endif /* ZKLOCK_JOB_AFTER_H */
