/*-------------------------------------------------------------------------
 *
 * job_text.c
 *	  Reads and writes the record of a job's runs as text.
 *
 *-------------------------------------------------------------------------
 */
#include "job_text.h"

#include "record.h"

static const char *const states[] = {
	[ZKLOCK_JOB_RUNNING] = "running", [ZKLOCK_JOB_COMMITTING] = "committing",
	[ZKLOCK_JOB_DONE] = "done",		  [ZKLOCK_JOB_FAILED] = "failed",
	[ZKLOCK_JOB_LOST] = "lost",		  [ZKLOCK_JOB_SKIPPED] = "skipped",
};

static const ZkField run_fields[] = {
	{ZKLOCK_FIELD("number", INT, ZkJobRun, id.number)},
	{ZKLOCK_FIELD("token", INT, ZkJobRun, id.token)},
	{ZKLOCK_FIELD("slot", TIME, ZkJobRun, slot)},
	{ZKLOCK_FIELD("state", WORD, ZkJobRun, state), ZKLOCK_FIELD_WORDS(states)},
	{ZKLOCK_FIELD("doubt", BOOL, ZkJobRun, doubt)},
	{ZKLOCK_FIELD("begun", BOOL, ZkJobRun, begun)},
	{ZKLOCK_FIELD("reset", BOOL, ZkJobRun, reset)},
	{ZKLOCK_FIELD("start", TIME, ZkJobRun, start)},
	{ZKLOCK_FIELD("end", TIME, ZkJobRun, end)},
	{ZKLOCK_FIELD("attempt", INT, ZkJobRun, attempt)},
	{ZKLOCK_FIELD("failures", INT, ZkJobRun, failures)},
	{ZKLOCK_FIELD("server", TEXT, ZkJobRun, server_name)},
	{ZKLOCK_FIELD("system", UINT64_TEXT, ZkJobRun, server)},
	{ZKLOCK_FIELD("database", UINT64, ZkJobRun, database)},
	{ZKLOCK_FIELD("timeline", INT, ZkJobRun, timeline)},
	{ZKLOCK_FIELD("xid", UINT64, ZkJobRun, xid)},
	{ZKLOCK_FIELD("error", TEXT, ZkJobRun, error)},
};

static const ZkJobRun no_run = {
	.slot = ZKLOCK_JOB_NEVER,
	.start = ZKLOCK_JOB_NEVER,
	.end = ZKLOCK_JOB_NEVER,
};

static const ZkShape run_shape = {ZKLOCK_SHAPE(run_fields, ZkJobRun), .blank = &no_run,
								  .whole = true};

static const ZkField job_fields[] = {
	{ZKLOCK_FIELD("forgotten_token", TIME, ZkJob, forgotten.token)},
	{ZKLOCK_FIELD("forgotten_number", INT, ZkJob, forgotten.number)},
	{ZKLOCK_FIELD("origin", INT, ZkJob, origin)},
	{ZKLOCK_FIELD("paused_until", TIME, ZkJob, paused_until)},
	/* an object of somebody else's would be a job that was never run */
	{ZKLOCK_FIELD("count", INT, ZkJob, count), .needed = true},
	{ZKLOCK_FIELD("last_done", TIME, ZkJob, last_done), .needed = true},
	{ZKLOCK_FIELD("every", INT, ZkJob, every), .needed = true},
	{ZKLOCK_FIELD_ITEMS("reset_slots", ZkJob, resets.slot, resets.n), .needed = true},
	{ZKLOCK_FIELD_ITEMS("runs", ZkJob, run, nruns), .shape = &run_shape, .needed = true},
};

static const ZkJob no_job = {
	.origin = ZKLOCK_JOB_ORIGIN,
	.last_done = ZKLOCK_JOB_NEVER,
	.paused_until = ZKLOCK_JOB_NEVER,
};

static const ZkShape job_shape = {ZKLOCK_SHAPE(job_fields, ZkJob), .blank = &no_job,
								  .whole = true, .version = ZKLOCK_JOB_VERSION};

const char *
zklock_job_state_name(ZkJobState state)
{
	return states[state];
}

size_t
zklock_job_write(const ZkJob *job, char *buf)
{
	return (size_t) (zklock_record_write(&job_shape, job, buf) - buf);
}

ZkRecordRead
zklock_job_read(const char *text, size_t len, ZkJob *job)
{
	ZkRecordRead read;

	zklock_job_init(job);
	if (len == 0)
		return ZKLOCK_RECORD_GOOD;
	read = zklock_record_read(&job_shape, text, len, job);
	return read == ZKLOCK_RECORD_GOOD && !zklock_job_valid(job) ? ZKLOCK_RECORD_DAMAGED
																: read;
}
