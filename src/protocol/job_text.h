/*-------------------------------------------------------------------------
 *
 * job_text.h
 *	  The record of a job's runs as text: JSON, in UTF-8, as doc/jobs.md has it.
 *
 * Pure, like job_rules.h.  Whoever can reach the ensemble may have written the text: it
 * is read with care, and written so that any JSON reader can read it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_TEXT_H
#define ZKLOCK_JOB_TEXT_H

#include "job_rules.h"
#include "record.h"

/* Any record fits: its texts at twice their size, and all else. */
#define ZKLOCK_JOB_TEXT_MAX                                                              \
	(512 + ZKLOCK_JOB_RESETS * 18 +                                                      \
	 ZKLOCK_JOB_RUNS * (512 + 2 * (ZKLOCK_NAME_MAX + ZKLOCK_JOB_ERROR_MAX)))

/* "running" and so on. */
extern const char *zklock_job_state_name(ZkJobState state);

/* The record into "buf", which has room for ZKLOCK_JOB_TEXT_MAX bytes and a NUL.  Returns
 * the length. */
extern size_t zklock_job_write(const ZkJob *job, char *buf);

/*
 * The inverse.  No text is a record of no runs.  DAMAGED if it is none that
 * zklock_job_valid would accept, or lacks one of the keys that each record has; *job is
 * void unless GOOD.  What has another name than ours is skipped.
 */
extern ZkRecordRead zklock_job_read(const char *text, size_t len, ZkJob *job);

#endif /* ZKLOCK_JOB_TEXT_H */
