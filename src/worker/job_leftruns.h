/*-------------------------------------------------------------------------
 *
 * job_leftruns.h
 *	  Runs of jobs that a life before of this server has left to be settled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_LEFTRUNS_H
#define ZKLOCK_JOB_LEFTRUNS_H

#include "client.h"
#include "session_rules.h"

/*
 * On each connection of the session of the life before: ask for the records of all jobs,
 * and go on watching those with such a run.  False: they are none of this server's.
 */
extern bool zklock_job_leftruns_ask(ZkClient *client);

/* A message on it: is there any such run now? */
extern ZkLeftRuns zklock_job_leftruns_look(ZkClient *client, const ZkMessage *message);

/* The same, as of then. */
extern bool zklock_job_leftruns_any(void);

/* Can this server settle them when it has started?  Not a standby, nor one that recovers
 * to a point in time: it will be on another timeline. */
extern bool zklock_job_leftruns_own(void);

/* No more of it. */
extern void zklock_job_leftruns_forget(void);

#endif /* ZKLOCK_JOB_LEFTRUNS_H */
