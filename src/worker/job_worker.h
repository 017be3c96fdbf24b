/*-------------------------------------------------------------------------
 *
 * job_worker.h
 *	  Has runs of jobs settled whose outcome only this server can tell.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_WORKER_H
#define ZKLOCK_JOB_WORKER_H

#include "agent.h"

extern const ZkAgent zklock_job_agent;

/* Are no runs left to be settled, and is no settler running? */
extern bool zklock_job_settled(void);

#endif /* ZKLOCK_JOB_WORKER_H */
