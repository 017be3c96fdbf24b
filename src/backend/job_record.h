/*-------------------------------------------------------------------------
 *
 * job_record.h
 *	  Reads the record of a job's runs, changes it by the rules of job_rules.h, and
 *	  writes it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_RECORD_H
#define ZKLOCK_JOB_RECORD_H

#include "job_text.h"
#include "query.h"

/* Change the record in memory, and set job->changed if it is to be written. */
typedef void (*ZkJobChange)(ZkJob *job, int64_t now, void *arg);

/*
 * Read the record of a job, change it by "change", and write it.  This is repeated
 * until the change is written; each time, "change" gets the record that was found.
 * Returns false if there is no record, and nothing was written.  Raises as
 * zklock_query_record does, 55000 for a record of a newer version, and the loss of a
 * hold.  Raises 22023 if the record is damaged, unless "damaged" is set: then a damaged
 * record counts as none, and is written.
 */
extern bool zklock_job_record_change(const char *name, bool damaged, ZkJobChange change,
									 void *arg);

/* The same for a caller that cannot wait for long.  Returns false also if the time is
 * up (ns of CLOCK_BOOTTIME), or if ZooKeeper refuses. */
extern bool zklock_job_record_change_until(const char *name, int64 until,
										   ZkJobChange change, void *arg);

/* A time of the record as a text to show, palloc'd. */
extern const char *zklock_job_time_text(int64_t ms);

/* Parse the content of a job's node. */
extern ZkRecordRead zklock_job_record_parse(const ZkNode *node, ZkJob *job);

#endif /* ZKLOCK_JOB_RECORD_H */
