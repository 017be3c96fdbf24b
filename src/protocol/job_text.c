/*-------------------------------------------------------------------------
 *
 * job_text.c
 *	  The record of a job's runs as text.
 *
 * What has which name in the text is in tables, which serve both directions.
 *
 *-------------------------------------------------------------------------
 */
#include "job_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"

typedef enum Type
{
	INT64,
	TIME,  /* int64_t, or null: NEVER.  A token, too */
	SLOTS, /* null, a time, or an array of them, which are in their order */
	UINT64,
	TEXT_UINT64, /* as text, for readers whose numbers are short */
	INT,
	BOOL,
	STATE,
	SERVER_NAME,
	ERROR_LINE
} Type;

typedef struct Field
{
	const char *name;
	Type type;
	size_t offset;
} Field;

#define FIELD(name, type, of, member)                                                    \
	{                                                                                    \
		name, type, offsetof(of, member)                                                 \
	}

/* The version comes first: what is behind it may be another's to read. */
static const Field job_fields[] = {
	FIELD("version", INT, ZkJob, version),
	FIELD("forgotten_token", TIME, ZkJob, forgotten.token),
	FIELD("forgotten_number", INT64, ZkJob, forgotten.number),
	FIELD("origin", INT64, ZkJob, origin),
	/* from here on all records have them */
	FIELD("count", INT64, ZkJob, count),
	FIELD("last_done", TIME, ZkJob, last_done),
	FIELD("every", INT64, ZkJob, every),
	FIELD("reset_slot", SLOTS, ZkJob, resets),
};

#define FIRST_REQUIRED 4

static const Field run_fields[] = {
	FIELD("number", INT64, ZkJobRun, id.number),
	FIELD("token", INT64, ZkJobRun, id.token),
	FIELD("slot", TIME, ZkJobRun, slot),
	FIELD("state", STATE, ZkJobRun, state),
	FIELD("doubt", BOOL, ZkJobRun, doubt),
	FIELD("begun", BOOL, ZkJobRun, begun),
	FIELD("reset", BOOL, ZkJobRun, reset),
	FIELD("start", TIME, ZkJobRun, start),
	FIELD("end", TIME, ZkJobRun, end),
	FIELD("attempt", INT, ZkJobRun, attempt),
	FIELD("failures", INT, ZkJobRun, failures),
	FIELD("server", SERVER_NAME, ZkJobRun, server_name),
	FIELD("system", TEXT_UINT64, ZkJobRun, server),
	FIELD("database", UINT64, ZkJobRun, database),
	FIELD("timeline", INT, ZkJobRun, timeline),
	FIELD("xid", UINT64, ZkJobRun, xid),
	FIELD("error", ERROR_LINE, ZkJobRun, error),
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char *const states[] = {
	[ZKLOCK_JOB_RUNNING] = "running", [ZKLOCK_JOB_COMMITTING] = "committing",
	[ZKLOCK_JOB_DONE] = "done",		  [ZKLOCK_JOB_FAILED] = "failed",
	[ZKLOCK_JOB_LOST] = "lost",		  [ZKLOCK_JOB_SKIPPED] = "skipped",
};

const char *
zklock_job_state_name(ZkJobState state)
{
	return states[state];
}

/* ------------------------------------------------------------------------
 * To write
 * ------------------------------------------------------------------------
 */

static char *
write_slots(char *out, const ZkJobSlots *slots)
{
	if (slots->n == 0)
		return out + sprintf(out, "null");
	for (int i = 0; i < slots->n; i++)
	{
		out += sprintf(out, i > 0 ? ", " : slots->n > 1 ? "[" : "");
		out += sprintf(out, "%" PRId64, slots->slot[i]);
	}
	return out + sprintf(out, slots->n > 1 ? "]" : "");
}

static char *
write_value(char *out, Type type, const char *value)
{
	switch (type)
	{
		case TIME:
			return *(const int64_t *) value == ZKLOCK_JOB_NEVER
				? out + sprintf(out, "null")
				: write_value(out, INT64, value);
		case SLOTS:
			return write_slots(out, (const ZkJobSlots *) value);
		case INT64:
			return out + sprintf(out, "%" PRId64, *(const int64_t *) value);
		case UINT64:
			return out + sprintf(out, "%" PRIu64, *(const uint64_t *) value);
		case TEXT_UINT64:
			return out + sprintf(out, "\"%" PRIu64 "\"", *(const uint64_t *) value);
		case INT:
			return out + sprintf(out, "%d", *(const int *) value);
		case BOOL:
			return out + sprintf(out, *(const bool *) value ? "true" : "false");
		case STATE:
			return out + sprintf(out, "\"%s\"", states[*(const ZkJobState *) value]);
		case SERVER_NAME:
		case ERROR_LINE:
			return zklock_json_write(out, value);
	}
	return out;
}

static char *
write_fields(char *out, const Field *fields, size_t n, const void *of)
{
	for (size_t i = 0; i < n; i++)
	{
		out += sprintf(out, "%s\"%s\": ", i > 0 ? ", " : "", fields[i].name);
		out = write_value(out, fields[i].type, (const char *) of + fields[i].offset);
	}
	return out;
}

static char *
write_run(char *out, const ZkJobRun *run)
{
	*out++ = '{';
	out = write_fields(out, run_fields, LENGTH(run_fields), run);
	*out++ = '}';
	*out = '\0';
	return out;
}

size_t
zklock_job_write_run(const ZkJobRun *run, char *buf)
{
	return (size_t) (write_run(buf, run) - buf);
}

size_t
zklock_job_write(const ZkJob *job, char *buf)
{
	char *out = buf;

	*out++ = '{';
	out = write_fields(out, job_fields, LENGTH(job_fields), job);
	out += sprintf(out, ", \"runs\": [");
	for (int i = 0; i < job->nruns; i++)
	{
		out += sprintf(out, i > 0 ? ",\n" : "\n");
		out = write_run(out, &job->run[i]);
	}
	out += sprintf(out, "]}");
	return (size_t) (out - buf);
}

/* ------------------------------------------------------------------------
 * To read: what is next, or false
 * ------------------------------------------------------------------------
 */

static bool
take_state(ZkJson *in, ZkJobState *state)
{
	char word[16];

	if (!zklock_json_text(in, word, sizeof(word)))
		return false;
	for (size_t i = 0; i < LENGTH(states); i++)
	{
		if (strcmp(word, states[i]) == 0)
		{
			*state = (ZkJobState) i;
			return true;
		}
	}
	return false;
}

static bool
take_text_uint64(ZkJson *in, uint64_t *value)
{
	char digits[24];
	ZkJson inner = {.p = digits};

	if (!zklock_json_text(in, digits, sizeof(digits)))
		return false;
	inner.end = digits + strlen(digits);
	return zklock_json_uint64(&inner, value) && inner.p == inner.end;
}

static bool
take_slots(ZkJson *in, ZkJobSlots *slots)
{
	slots->n = 0;
	if (zklock_json_word(in, "null"))
		return true;
	if (!zklock_json_take(in, '['))
	{
		slots->n = 1;
		return zklock_json_int64(in, &slots->slot[0]);
	}
	if (zklock_json_take(in, ']'))
		return true;
	do
	{
		if (slots->n == ZKLOCK_JOB_RESETS ||
			!zklock_json_int64(in, &slots->slot[slots->n++]))
			return false;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, ']');
}

static bool
take_value(ZkJson *in, Type type, char *value)
{
	int64_t number;

	switch (type)
	{
		case TIME:
			if (zklock_json_word(in, "null"))
			{
				*(int64_t *) value = ZKLOCK_JOB_NEVER;
				return true;
			}
			return zklock_json_int64(in, (int64_t *) value);
		case SLOTS:
			return take_slots(in, (ZkJobSlots *) value);
		case INT64:
			return zklock_json_int64(in, (int64_t *) value);
		case UINT64:
			return zklock_json_uint64(in, (uint64_t *) value);
		case TEXT_UINT64:
			return take_text_uint64(in, (uint64_t *) value);
		case INT:
			if (!zklock_json_int64(in, &number) || number < INT32_MIN || number > INT32_MAX)
				return false;
			*(int *) value = (int) number;
			return true;
		case BOOL:
			return zklock_json_bool(in, (bool *) value);
		case STATE:
			return take_state(in, (ZkJobState *) value);
		case SERVER_NAME:
			return zklock_json_text(in, value, ZKLOCK_NAME_MAX + 1);
		case ERROR_LINE:
			return zklock_json_text(in, value, ZKLOCK_JOB_ERROR_MAX + 1);
	}
	return false;
}

static bool take_runs(ZkJson *in, ZkJob *job);

/*
 * An object with these fields; "job": it has runs besides.  "seen": which of them it has,
 * 1 << n for the runs.
 */
static bool
take_object(ZkJson *in, const Field *fields, size_t n, void *of, ZkJob *job, unsigned *seen)
{
	*seen = 0;
	if (!zklock_json_take(in, '{'))
		return false;
	if (zklock_json_take(in, '}'))
		return true;
	do
	{
		char name[32];
		size_t i = 0;
		bool ok;

		if (!zklock_json_text(in, name, sizeof(name)) || !zklock_json_take(in, ':'))
			return false;
		while (i < n && strcmp(name, fields[i].name) != 0)
			i++;
		if (i < n)
			ok = take_value(in, fields[i].type, (char *) of + fields[i].offset);
		else if (job != NULL && strcmp(name, "runs") == 0)
			ok = take_runs(in, job);
		else
			ok = zklock_json_skip(in);
		if (!ok || (job != NULL && job->version > ZKLOCK_JOB_VERSION))
			return false;
		if (i < n || strcmp(name, "runs") == 0)
			*seen |= 1u << i;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, '}');
}

static bool
take_runs(ZkJson *in, ZkJob *job)
{
	job->nruns = 0;
	if (!zklock_json_take(in, '['))
		return false;
	if (zklock_json_take(in, ']'))
		return true;
	do
	{
		ZkJobRun *run;
		unsigned seen;

		if (job->nruns == ZKLOCK_JOB_RUNS)
			return false;
		run = &job->run[job->nruns++];
		memset(run, 0, sizeof(*run));
		run->slot = run->start = run->end = ZKLOCK_JOB_NEVER;
		if (!take_object(in, run_fields, LENGTH(run_fields), run, NULL, &seen))
			return false;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, ']');
}

static bool
take_job(const char *text, size_t len, ZkJob *job)
{
	ZkJson in = {.p = text, .end = text + len};
	unsigned seen;

	if (!zklock_is_utf8(text, len) ||
		!take_object(&in, job_fields, LENGTH(job_fields), job, job, &seen))
		return false;
	/* an object of somebody else's would be a job that was never run */
	if (seen >> FIRST_REQUIRED != (2u << (LENGTH(job_fields) - FIRST_REQUIRED)) - 1)
		return false;
	zklock_json_space(&in);
	return in.p == in.end && zklock_job_valid(job);
}

ZkJobText
zklock_job_read(const char *text, size_t len, ZkJob *job)
{
	zklock_job_init(job);
	if (len == 0 || take_job(text, len, job))
		return ZKLOCK_JOB_GOOD;
	return job->version > ZKLOCK_JOB_VERSION ? ZKLOCK_JOB_NEWER : ZKLOCK_JOB_DAMAGED;
}
