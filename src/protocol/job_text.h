/*-------------------------------------------------------------------------
 *
 * job_text.h
 *	  Reads and writes the record of a job's runs as text: JSON, in UTF-8, as doc/jobs.md
 *	  has it.
 *
 * Pure, like job_rules.h.  Any client of the ensemble may have written the text.  So
 * the reader is careful, and the writer writes text that any JSON reader can read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_TEXT_H
#define ZKLOCK_JOB_TEXT_H

#include "job_rules.h"
#include "record.h"

/* Room for any record: its texts at twice their size, and the rest. */
#define ZKLOCK_JOB_TEXT_MAX                                                              \
	(512 + ZKLOCK_JOB_RESETS * 18 +                                                      \
	 ZKLOCK_JOB_RUNS * (512 + 2 * (ZKLOCK_NAME_MAX + ZKLOCK_JOB_ERROR_MAX)))

/* "running" and so on. */
extern const char *zklock_job_state_name(ZkJobState state);

/* Writes the record into "buf", which has room for ZKLOCK_JOB_TEXT_MAX bytes and a
 * NUL.  Returns the length. */
extern size_t zklock_job_write(const ZkJob *job, char *buf);

/*
 * The inverse.  An empty text is a record of no runs.  DAMAGED: zklock_job_valid would
 * not accept the record, or it lacks one of the keys that each record has. *job is void
 * unless GOOD.  Unknown names are skipped.
 */
extern ZkRecordRead zklock_job_read(const char *text, size_t len, ZkJob *job);

#endif /* ZKLOCK_JOB_TEXT_H */
