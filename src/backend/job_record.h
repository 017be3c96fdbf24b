/*-------------------------------------------------------------------------
 *
 * job_record.h
 *	  The record of a job's runs: read, changed by the rules of job_rules.h, and written.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_RECORD_H
#define ZKLOCK_JOB_RECORD_H

#include "job_text.h"
#include "query.h"

/* Change it in memory, and set job->changed if it is to be written. */
typedef void (*ZkJobChange)(ZkJob *job, int64_t now, void *arg);

/*
 * Read the record of a job, have it changed, and write it, as often as it takes for the
 * change to be there: "change" is called anew with what is found.  Returns false if there
 * is no record, and nothing was written.  Raises as zklock_query_record does; 22023 if
 * somebody has damaged the record, unless "damaged" says that this is none, and to be
 * written; 55000 if it is of a newer version; and the loss of a hold.
 */
extern bool zklock_job_record_change(const char *name, bool damaged, ZkJobChange change,
									 void *arg);

/* The same for one who cannot wait for long: false also if time is up (ns of
 * CLOCK_BOOTTIME), or ZooKeeper refuses. */
extern bool zklock_job_record_change_until(const char *name, int64 until,
										   ZkJobChange change, void *arg);

/* A time of the record as people see it, palloc'd. */
extern const char *zklock_job_time_text(int64_t ms);

/* What the node of a job has. */
extern ZkRecordRead zklock_job_record_parse(const ZkNode *node, ZkJob *job);

#endif /* ZKLOCK_JOB_RECORD_H */
