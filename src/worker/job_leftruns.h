/*-------------------------------------------------------------------------
 *
 * job_leftruns.h
 *	  Finds runs of jobs that this server's previous life has left to be settled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_LEFTRUNS_H
#define ZKLOCK_JOB_LEFTRUNS_H

#include "client.h"
#include "session_rules.h"

/*
 * Ask for the records of all jobs, and then watch those with such a run.  To be called
 * on each connection of the session of the previous life.  False: this server cannot
 * settle them.
 */
extern bool zklock_job_leftruns_ask(ZkClient *client);

/* Look at a message on that connection.  Returns whether there is any such run now. */
extern ZkLeftRuns zklock_job_leftruns_look(ZkClient *client, const ZkMessage *message);

/* Was there any such run as of the last message? */
extern bool zklock_job_leftruns_any(void);

/* Can this server settle the runs when it has started?  A standby cannot, nor can a
 * server that recovers to a point in time: it will be on another timeline. */
extern bool zklock_job_leftruns_own(void);

/* Forget all records. */
extern void zklock_job_leftruns_forget(void);

#endif /* ZKLOCK_JOB_LEFTRUNS_H */
