/*-------------------------------------------------------------------------
 *
 * fuzz_record.c
 *	  Fuzzer of src/protocol/record.c, and of all that is written with it: the record of a
 *	  job's runs, what servers report of their contenders and say of their waits, chunks
 *	  of queues, rounds of barriers, candidates of elections.
 *
 * The input is taken for each of them.  What is read is in range; written, and read
 * again, it is the same, but for characters that are not written.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "barrier_text.h"
#include "deadlock_text.h"
#include "election_rules.h"
#include "election_text.h"
#include "job_text.h"
#include "queue_text.h"
#include "report.h"

static void
fuzz_job(const char *text, size_t size)
{
	static char once[ZKLOCK_JOB_TEXT_MAX + 1];
	static char twice[ZKLOCK_JOB_TEXT_MAX + 1];
	static ZkJob job;
	static ZkJob again;
	ZkRecordRead read = zklock_job_read(text, size, &job);
	int64_t due;
	size_t len;

	if (read != ZKLOCK_RECORD_GOOD)
		return;
	CHECK(zklock_job_valid(&job));
	due = zklock_job_next_due(&job);
	CHECK(due == ZKLOCK_JOB_NEVER ||
		  (due >= ZKLOCK_JOB_TIME_MIN && due <= ZKLOCK_JOB_TIME_MAX));
	len = zklock_job_write(&job, once);
	CHECK(len <= ZKLOCK_JOB_TEXT_MAX && once[len] == '\0' && strlen(once) == len);
	CHECK(zklock_is_utf8(once, len));
	CHECK(zklock_job_read(once, len, &again) == ZKLOCK_RECORD_GOOD);
	CHECK(again.count == job.count && again.nruns == job.nruns &&
		  again.last_done == job.last_done && again.every == job.every &&
		  again.origin == job.origin && again.paused_until == job.paused_until &&
		  again.resets.n == job.resets.n &&
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
}

static void
check_report_name(const char *name)
{
	CHECK(strlen(name) < ZKLOCK_REPORT_NAME && zklock_is_utf8(name, strlen(name)));
}

static void
check_report(const ZkReport *report)
{
	CHECK(report->nitems >= 0 && report->nitems <= ZKLOCK_REPORT_ITEMS);
	CHECK(report->more >= 0);
	for (int i = 0; i < report->nitems; i++)
	{
		const ZkReportItem *item = &report->item[i];

		CHECK(item->age >= -1 && zklock_report_state_name(item->state) != NULL);
		CHECK((unsigned) item->mode < ZKLOCK_NMODES);
		if (item->contender == 0)
			CHECK(zklock_report_find(report, 0) == NULL);
		else
			CHECK(zklock_report_find(report, item->contender)->contender == item->contender);
		CHECK(item->nsessions >= 0 && item->nsessions <= ZKLOCK_REPORT_SESSIONS);
		for (int j = 0; j < item->nsessions; j++)
		{
			const ZkReportSession *session = &item->session[j];

			CHECK(session->pid > 0 && session->query >= -1);
			CHECK((unsigned) session->kind < ZKLOCK_NKINDS);
			CHECK(strlen(session->name) <= ZKLOCK_NAME_MAX);
			check_report_name(session->database);
			check_report_name(session->user);
			check_report_name(session->application);
			check_report_name(session->waits);
		}
	}
}

static void
fuzz_report(const char *text, size_t size)
{
	static char once[ZKLOCK_REPORT_TEXT_MAX + 2];
	static char twice[ZKLOCK_REPORT_TEXT_MAX + 2];
	static ZkReport report;
	static ZkReport again;
	bool read = zklock_report_read(text, size, &report);
	size_t len;

	check_report(&report);
	if (!read)
	{
		CHECK(report.nitems == 0 && report.more == 0);
		return;
	}
	/* written among the rest of a znode */
	once[0] = '{';
	len = 1 + zklock_report_write(&report, once + 1);
	CHECK(len <= ZKLOCK_REPORT_TEXT_MAX && strlen(once) == len);
	strcpy(once + len, "}");
	CHECK(zklock_is_utf8(once, len));
	CHECK(zklock_report_read(once, len + 1, &again));
	check_report(&again);
	CHECK(again.nitems <= report.nitems);
	CHECK(again.nitems == report.nitems || again.more > 0);
	for (int i = 0; i < again.nitems; i++)
	{
		CHECK(again.item[i].contender == report.item[i].contender &&
			  (again.item[i].contender != 0 || again.item[i].mode == report.item[i].mode) &&
			  again.item[i].state == report.item[i].state &&
			  again.item[i].age == report.item[i].age &&
			  again.item[i].nsessions == report.item[i].nsessions);
		for (int j = 0; j < again.item[i].nsessions; j++)
		{
			CHECK(again.item[i].session[j].pid == report.item[i].session[j].pid);
			CHECK(strcmp(again.item[i].session[j].name, report.item[i].session[j].name) ==
				  0);
		}
	}
	twice[0] = '{';
	CHECK(1 + zklock_report_write(&again, twice + 1) == len);
	CHECK(memcmp(once, twice, len) == 0);
}

static void
fuzz_waits(const char *text, size_t size)
{
	static char once[ZKLOCK_WAITS_TEXT_MAX + 1];
	ZkWaitsReader reader;
	ZkWaitsReader again;
	ZkWaitEdge edge = {0};
	ZkWaitEdge other = {0};
	char *end = once;
	int n = 0;

	if (zklock_deadlock_waits_open(&reader, text, size))
	{
		ZkWaitsReader from_start = reader;

		end = zklock_deadlock_waits_begin(once, reader.server);
		while (n < ZKLOCK_MAX_EDGES && zklock_deadlock_waits_next(&reader, &edge))
		{
			end = zklock_deadlock_waits_add(end, &edge);
			n++;
		}
		CHECK((size_t) (end - once) <= ZKLOCK_WAITS_TEXT_MAX && *end == '\0');
		CHECK(zklock_is_utf8(once, strlen(once)));
		CHECK(zklock_deadlock_waits_open(&again, once, (size_t) (end - once)));
		CHECK(strlen(again.server) == strlen(from_start.server));
		for (int i = 0; i < n; i++)
		{
			CHECK(zklock_deadlock_waits_next(&from_start, &edge));
			CHECK(zklock_deadlock_waits_next(&again, &other));
			CHECK(edge.number == other.number && edge.stamp == other.stamp &&
				  edge.grant == other.grant && edge.contender == other.contender &&
				  edge.joins == other.joins && edge.kind == other.kind &&
				  edge.holder == other.holder && edge.waiter == other.waiter);
			CHECK(strcmp(edge.name, other.name) == 0 &&
				  strlen(edge.via) == strlen(other.via));
		}
		CHECK(!zklock_deadlock_waits_next(&again, &other));
	}
}

static void
fuzz_chunk(const char *text, size_t len)
{
	static ZkChunkHead head;
	static ZkChunkHead again;
	static char once[ZKLOCK_CHUNK_HEAD + 8192];
	const char *payload = zklock_chunk_read(text, len, &head);
	size_t rest;
	size_t total = 0;
	int n;

	if (payload == NULL)
		return;
	CHECK(payload > text && payload <= text + len);
	CHECK(head.nitems >= 1 && head.nitems <= ZKLOCK_CHUNK_ITEMS);
	for (int i = 0; i < head.nitems; i++)
	{
		CHECK(strlen(head.item[i].id) == ZKLOCK_UUID_LEN);
		CHECK(head.item[i].length >= 0 && head.item[i].length <= ZKLOCK_ITEM_MAX);
		total += (size_t) head.item[i].length;
	}
	rest = (size_t) (text + len - payload);
	CHECK(total == rest);
	n = zklock_chunk_write(once, &head);
	CHECK(n > 0 && n < ZKLOCK_CHUNK_HEAD && once[n - 1] == '\n');
	if (rest > sizeof(once) - (size_t) n)
		return;
	memcpy(once + n, payload, rest);
	CHECK(zklock_chunk_read(once, (size_t) n + rest, &again) == once + n);
	CHECK(again.timeline == head.timeline && again.lsn == head.lsn &&
		  again.xid == head.xid && again.server == head.server &&
		  again.nitems == head.nitems);
	for (int i = 0; i < head.nitems; i++)
		CHECK(strcmp(again.item[i].id, head.item[i].id) == 0 &&
			  again.item[i].length == head.item[i].length);
	CHECK(zklock_chunk_read(once, (size_t) n + rest + 1, &again) == NULL);
	CHECK(rest == 0 || zklock_chunk_read(once, (size_t) n + rest - 1, &again) == NULL);
}

static void
fuzz_rounds(const char *text, size_t len)
{
	static char next[ZKLOCK_ROUNDS_MAX];
	static ZkPartyNode member[ZKLOCK_BARRIER_PARTIES_MAX];
	int n = len > 0 ? 1 + (unsigned char) text[0] * ZKLOCK_BARRIER_PARTIES_MAX / 256 : 1;
	int64_t newest;
	int64_t oldest;
	int64_t then;
	int length;

	if (zklock_barrier_rounds_parse(text, len, &newest, &oldest) != ZKLOCK_RECORD_GOOD)
	{
		CHECK(newest == 0 && oldest == 1);
		return;
	}
	if (len >= ZKLOCK_ROUNDS_MAX || newest > INT64_C(99999999999999999))
		return;
	for (int i = 0; i < n; i++)
		member[i].id[0] = member[i].id[1] = (uint64_t) i + 1;
	length = zklock_barrier_rounds_add(text, len, newest + 1, member, n, next);
	CHECK(length > 0 && length < ZKLOCK_ROUNDS_MAX && next[length] == '\0');
	CHECK(zklock_barrier_rounds_parse(next, (size_t) length, &then, &oldest) ==
		  ZKLOCK_RECORD_GOOD);
	CHECK(then == newest + 1 && oldest >= 1 && oldest <= then);
	for (int i = 0; i < n; i++)
		CHECK(zklock_barrier_rounds_have(next, (size_t) length, member[i].id));
}

static void
fuzz_candidate(const char *text, size_t size)
{
	char once[64 + ZKLOCK_CANDIDATE_MAX];
	int priority = zklock_candidate_priority(text, size);

	CHECK(zklock_candidate_name_len(text, size) <= size);
	if (priority == ZKLOCK_PRIORITY_UNKNOWN)
		return;
	CHECK(priority >= 0 && priority <= ZKLOCK_PRIORITY_MAX);
	zklock_candidate_write(once, "server", priority);
	CHECK(strlen(once) < sizeof(once));
	CHECK(zklock_candidate_name_len(once, strlen(once)) == strlen("server"));
	CHECK(zklock_candidate_priority(once, strlen(once)) == priority);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_job(text, size);
	fuzz_report(text, size);
	fuzz_waits(text, size);
	fuzz_chunk(text, size);
	fuzz_rounds(text, size);
	fuzz_candidate(text, size);
	free(text);
	return 0;
}
