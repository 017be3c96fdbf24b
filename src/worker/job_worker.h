/*-------------------------------------------------------------------------
 *
 * job_worker.h
 *	  Runs of jobs that only this server can tell the end of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_WORKER_H
#define ZKLOCK_JOB_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_job_agent;

/* Are no runs left to be settled, and no process at work on some? */
extern bool zklock_job_settled(void);

#endif /* ZKLOCK_JOB_WORKER_H */
