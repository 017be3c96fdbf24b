/*-------------------------------------------------------------------------
 *
 * job_pause.h
 *	  Pauses jobs, and resumes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_PAUSE_H
#define ZKLOCK_JOB_PAUSE_H

#include "datatype/timestamp.h"

#include "job_rules.h"

/* The end of a pause, as a timestamp, and as a palloc'd text to show. */
extern TimestampTz zklock_job_pause_end(int64_t until);
extern const char *zklock_job_pause_text(int64_t until);

/*
 * Pause a job: no server begins a run of it until the time "until", in ms since 1970,
 * or ZKLOCK_JOB_FOREVER.  Resume a job: each server may begin a run again.  False, with
 * a NOTICE: it is so already.  The first function raises 22023 for a time that is over.
 * A job that nobody has called yet can be paused, too.
 */
extern bool zklock_job_pause_until(const char *name, int64 until);
extern bool zklock_job_resume(const char *name);

#endif /* ZKLOCK_JOB_PAUSE_H */
