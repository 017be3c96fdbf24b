/*-------------------------------------------------------------------------
 *
 * fuzz_job.c
 *	  Fuzzer of src/protocol/job_text.c: the record of a job's runs.
 *
 * What is read is a record; written and read again it is the same, but for characters
 * that are not written.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "job_text.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char once[ZKLOCK_JOB_TEXT_MAX + 1];
	static char twice[ZKLOCK_JOB_TEXT_MAX + 1];
	static ZkJob job;
	static ZkJob again;
	char *text = fuzz_text(data, size);
	ZkJobText read = zklock_job_read(text, size, &job);
	int64_t due;
	size_t len;

	free(text);
	CHECK((read == ZKLOCK_JOB_NEWER) == (job.version > ZKLOCK_JOB_VERSION));
	if (read != ZKLOCK_JOB_GOOD)
		return 0;
	CHECK(zklock_job_valid(&job));
	due = zklock_job_next_due(&job);
	CHECK(due == ZKLOCK_JOB_NEVER ||
		  (due >= ZKLOCK_JOB_TIME_MIN && due <= ZKLOCK_JOB_TIME_MAX));
	len = zklock_job_write(&job, once);
	CHECK(len <= ZKLOCK_JOB_TEXT_MAX && once[len] == '\0' && strlen(once) == len);
	CHECK(zklock_is_utf8(once, len));
	CHECK(zklock_job_read(once, len, &again) == ZKLOCK_JOB_GOOD);
	CHECK(again.count == job.count && again.nruns == job.nruns &&
		  again.last_done == job.last_done && again.every == job.every &&
		  again.origin == job.origin && again.resets.n == job.resets.n &&
		  memcmp(again.resets.slot, job.resets.slot,
				 sizeof(int64_t) * (size_t) job.resets.n) == 0 &&
		  again.forgotten.token == job.forgotten.token &&
		  again.forgotten.number == job.forgotten.number);
	for (int i = 0; i < job.nruns; i++)
	{
		CHECK(again.run[i].slot == job.run[i].slot &&
			  again.run[i].state == job.run[i].state &&
			  again.run[i].server == job.run[i].server &&
			  again.run[i].timeline == job.run[i].timeline &&
			  again.run[i].xid == job.run[i].xid);
		CHECK(strlen(again.run[i].error) == strlen(job.run[i].error));
	}
	CHECK(zklock_job_write(&again, twice) == len && strcmp(once, twice) == 0);
	return 0;
}
