/*-------------------------------------------------------------------------
 *
 * job_pause.h
 *	  Pauses of jobs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_PAUSE_H
#define ZKLOCK_JOB_PAUSE_H

#include "datatype/timestamp.h"

#include "job_rules.h"

/* The end of a pause, and as people see it, palloc'd. */
extern TimestampTz zklock_job_pause_end(int64_t until);
extern const char *zklock_job_pause_text(int64_t until);

/*
 * No server begins a run of the job until then, in ms since 1970, or ZKLOCK_JOB_FOREVER;
 * or each server may again.  False, with a NOTICE: it is so already.  The first raises
 * 22023 for a time that is over.  A job that nobody has called yet can be paused, too.
 */
extern bool zklock_job_pause_until(const char *name, int64 until);
extern bool zklock_job_resume(const char *name);

#endif /* ZKLOCK_JOB_PAUSE_H */
