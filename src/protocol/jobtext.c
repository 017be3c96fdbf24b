/*-------------------------------------------------------------------------
 *
 * jobtext.c
 *	  The record of a job's runs as text.
 *
 * What has which name in the text is in tables, which serve both directions.
 *
 *-------------------------------------------------------------------------
 */
#include "jobtext.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Values inside values that are skipped. */
#define MAX_DEPTH 16

typedef enum Type
{
	INT64,
	TIME, /* int64_t, or null: NEVER.  A token, too */
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
	/* from here on all records have them */
	FIELD("count", INT64, ZkJob, count),
	FIELD("last_done", TIME, ZkJob, last_done),
	FIELD("every", INT64, ZkJob, every),
	FIELD("reset_slot", TIME, ZkJob, reset_slot),
};

#define FIRST_REQUIRED 3

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

/* What no text should have, and what would need more than two bytes, is written as '?'. */
static char *
write_text(char *out, const char *text)
{
	size_t len = strlen(text);
	bool utf8 = zklock_is_utf8(text, len);

	*out++ = '"';
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8))
			c = '?';
		if (c == '"' || c == '\\')
			*out++ = '\\';
		*out++ = (char) c;
	}
	*out++ = '"';
	return out;
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
			return write_text(out, value);
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

typedef struct Reader
{
	const char *p;
	const char *end;
} Reader;

static void
skip_space(Reader *in)
{
	while (in->p < in->end &&
		   (*in->p == ' ' || *in->p == '\t' || *in->p == '\n' || *in->p == '\r'))
		in->p++;
}

/* This character, after space. */
static bool
take(Reader *in, char c)
{
	skip_space(in);
	if (in->p == in->end || *in->p != c)
		return false;
	in->p++;
	return true;
}

static bool
take_word(Reader *in, const char *word)
{
	size_t len = strlen(word);

	skip_space(in);
	if ((size_t) (in->end - in->p) < len || memcmp(in->p, word, len) != 0)
		return false;
	in->p += len;
	return true;
}

/* The four digits behind \u, or -1. */
static int
take_hex(Reader *in)
{
	int value = 0;

	if (in->end - in->p < 4)
		return -1;
	for (int i = 0; i < 4; i++, in->p++)
	{
		char c = *in->p;

		if (c >= '0' && c <= '9')
			value = 16 * value + (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = 16 * value + ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return value;
}

/* One character that is written \u...., as UTF-8.  Returns how many bytes, 0: none. */
static size_t
take_unicode(Reader *in, char *utf8)
{
	int c = take_hex(in);

	if (c >= 0xD800 && c <= 0xDBFF)
	{
		int low;

		if (in->end - in->p < 2 || in->p[0] != '\\' || in->p[1] != 'u')
			return 0;
		in->p += 2;
		low = take_hex(in);
		if (low < 0xDC00 || low > 0xDFFF)
			return 0;
		c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
	}
	else if (c <= 0 || (c >= 0xDC00 && c <= 0xDFFF))
		return 0;
	if (c < 0x80)
	{
		utf8[0] = (char) c;
		return 1;
	}
	if (c < 0x800)
	{
		utf8[0] = (char) (0xC0 | (c >> 6));
		utf8[1] = (char) (0x80 | (c & 0x3F));
		return 2;
	}
	if (c < 0x10000)
	{
		utf8[0] = (char) (0xE0 | (c >> 12));
		utf8[1] = (char) (0x80 | ((c >> 6) & 0x3F));
		utf8[2] = (char) (0x80 | (c & 0x3F));
		return 3;
	}
	utf8[0] = (char) (0xF0 | (c >> 18));
	utf8[1] = (char) (0x80 | ((c >> 12) & 0x3F));
	utf8[2] = (char) (0x80 | ((c >> 6) & 0x3F));
	utf8[3] = (char) (0x80 | (c & 0x3F));
	return 4;
}

/* A text, as much of it as has room in "size" bytes with a NUL. */
static bool
take_text(Reader *in, char *buf, size_t size)
{
	size_t len = 0;
	bool full = false;

	if (!take(in, '"'))
		return false;
	while (in->p < in->end && *in->p != '"')
	{
		static const char escaped[] = "\"\\/bfnrt";
		static const char meant[] = "\"\\/\b\f\n\r\t";
		char bytes[4] = {*in->p++};
		size_t n = 1;

		if ((unsigned char) bytes[0] < 0x20)
			return false;
		if (bytes[0] == '\\')
		{
			const char *which;

			if (in->p == in->end)
				return false;
			if (*in->p == 'u')
			{
				in->p++;
				n = take_unicode(in, bytes);
			}
			else if (*in->p != '\0' && (which = strchr(escaped, *in->p)) != NULL)
			{
				in->p++;
				bytes[0] = meant[which - escaped];
			}
			else
				return false;
			if (n == 0)
				return false;
		}
		full |= len + n >= size;
		if (!full)
		{
			memcpy(buf + len, bytes, n);
			len += n;
		}
	}
	buf[full ? zklock_clip_utf8(buf, len) : len] = '\0';
	return take(in, '"');
}

/* An integer of at most "max", or below zero of at most "min". */
static bool
take_integer(Reader *in, uint64_t max, uint64_t min, bool *negative, uint64_t *value)
{
	const char *start;

	*value = 0;
	*negative = take(in, '-');
	start = in->p;
	for (; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++)
	{
		unsigned digit = (unsigned) (*in->p - '0');

		if (*value > (UINT64_MAX - digit) / 10)
			return false;
		*value = 10 * *value + digit;
	}
	if (in->p == start || (*start == '0' && in->p > start + 1))
		return false;
	/* neither a fraction nor an exponent */
	if (in->p < in->end && (*in->p == '.' || *in->p == 'e' || *in->p == 'E'))
		return false;
	return *value <= (*negative ? min : max);
}

static bool
take_int64(Reader *in, int64_t *value)
{
	bool negative;
	uint64_t number;

	if (!take_integer(in, INT64_MAX, INT64_MAX, &negative, &number))
		return false;
	*value = negative ? -(int64_t) number : (int64_t) number;
	return true;
}

static bool
take_uint64(Reader *in, uint64_t *value)
{
	bool negative;

	return take_integer(in, UINT64_MAX, 0, &negative, value) && !negative;
}

static bool
take_bool(Reader *in, bool *value)
{
	*value = take_word(in, "true");
	return *value || take_word(in, "false");
}

static bool
take_state(Reader *in, ZkJobState *state)
{
	char word[16];

	if (!take_text(in, word, sizeof(word)))
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
take_text_uint64(Reader *in, uint64_t *value)
{
	char digits[24];
	Reader inner = {.p = digits};

	if (!take_text(in, digits, sizeof(digits)))
		return false;
	inner.end = digits + strlen(digits);
	return take_uint64(&inner, value) && inner.p == inner.end;
}

static bool
take_value(Reader *in, Type type, char *value)
{
	int64_t number;

	switch (type)
	{
		case TIME:
			if (take_word(in, "null"))
			{
				*(int64_t *) value = ZKLOCK_JOB_NEVER;
				return true;
			}
			return take_int64(in, (int64_t *) value);
		case INT64:
			return take_int64(in, (int64_t *) value);
		case UINT64:
			return take_uint64(in, (uint64_t *) value);
		case TEXT_UINT64:
			return take_text_uint64(in, (uint64_t *) value);
		case INT:
			if (!take_int64(in, &number) || number < INT32_MIN || number > INT32_MAX)
				return false;
			*(int *) value = (int) number;
			return true;
		case BOOL:
			return take_bool(in, (bool *) value);
		case STATE:
			return take_state(in, (ZkJobState *) value);
		case SERVER_NAME:
			return take_text(in, value, ZKLOCK_NAME_MAX + 1);
		case ERROR_LINE:
			return take_text(in, value, ZKLOCK_JOB_ERROR_MAX + 1);
	}
	return false;
}

/* Whatever it is. */
static bool
skip_value(Reader *in, int depth)
{
	char none[1];
	bool object;

	skip_space(in);
	if (in->p == in->end || depth > MAX_DEPTH)
		return false;
	if (*in->p == '"')
		return take_text(in, none, sizeof(none));
	if (take_word(in, "null") || take_word(in, "true") || take_word(in, "false"))
		return true;
	object = *in->p == '{';
	if (object || *in->p == '[')
	{
		char end = object ? '}' : ']';

		in->p++;
		if (take(in, end))
			return true;
		do
		{
			if (object && (!take_text(in, none, sizeof(none)) || !take(in, ':')))
				return false;
			if (!skip_value(in, depth + 1))
				return false;
		} while (take(in, ','));
		return take(in, end);
	}
	if (strchr("-0123456789", *in->p) == NULL)
		return false;
	while (in->p < in->end && *in->p != '\0' && strchr("+-.0123456789eE", *in->p) != NULL)
		in->p++;
	return true;
}

static bool take_runs(Reader *in, ZkJob *job);

/*
 * An object with these fields; "job": it has runs besides.  "seen": which of them it has,
 * 1 << n for the runs.
 */
static bool
take_object(Reader *in, const Field *fields, size_t n, void *of, ZkJob *job, unsigned *seen)
{
	*seen = 0;
	if (!take(in, '{'))
		return false;
	if (take(in, '}'))
		return true;
	do
	{
		char name[32];
		size_t i = 0;
		bool ok;

		if (!take_text(in, name, sizeof(name)) || !take(in, ':'))
			return false;
		while (i < n && strcmp(name, fields[i].name) != 0)
			i++;
		if (i < n)
			ok = take_value(in, fields[i].type, (char *) of + fields[i].offset);
		else if (job != NULL && strcmp(name, "runs") == 0)
			ok = take_runs(in, job);
		else
			ok = skip_value(in, 0);
		if (!ok || (job != NULL && job->version > ZKLOCK_JOB_VERSION))
			return false;
		if (i < n || strcmp(name, "runs") == 0)
			*seen |= 1u << i;
	} while (take(in, ','));
	return take(in, '}');
}

static bool
take_runs(Reader *in, ZkJob *job)
{
	job->nruns = 0;
	if (!take(in, '['))
		return false;
	if (take(in, ']'))
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
	} while (take(in, ','));
	return take(in, ']');
}

static bool
take_job(const char *text, size_t len, ZkJob *job)
{
	Reader in = {.p = text, .end = text + len};
	unsigned seen;

	if (!zklock_is_utf8(text, len) ||
		!take_object(&in, job_fields, LENGTH(job_fields), job, job, &seen))
		return false;
	/* an object of somebody else's would be a job that was never run */
	if (seen >> FIRST_REQUIRED != (2u << (LENGTH(job_fields) - FIRST_REQUIRED)) - 1)
		return false;
	skip_space(&in);
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
