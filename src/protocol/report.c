/*-------------------------------------------------------------------------
 *
 * report.c
 *	  Who has, or waits for, a server's contenders: written and read.
 *
 *-------------------------------------------------------------------------
 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"

/*
 * One item at its longest: its own keys and numbers, and of each session besides these
 * four texts and a name, of which each byte may take two.
 */
#define ITEM_MAX                                                                         \
	(128 +                                                                               \
	 ZKLOCK_REPORT_SESSIONS * (256 + 2 * (4 * ZKLOCK_REPORT_NAME + ZKLOCK_ENCODED_MAX)))

/* What follows the last item. */
#define TAIL_MAX 32

static const char *const states[] = {
	[ZKLOCK_REPORT_HELD] = "held",
	[ZKLOCK_REPORT_KEPT] = "kept",
	[ZKLOCK_REPORT_RELEASING] = "releasing",
	[ZKLOCK_REPORT_WAITING] = "waiting",
};

static const char *const modes[] = {
	[ZKLOCK_SHARED] = "shared",
	[ZKLOCK_EXCLUSIVE] = "exclusive",
};

const char *
zklock_report_state_name(ZkReportState state)
{
	return states[state];
}

const ZkReportItem *
zklock_report_find(const ZkReport *report, uint64_t contender)
{
	for (int i = 0; i < report->nitems && contender != 0; i++)
	{
		if (report->item[i].contender == contender)
			return &report->item[i];
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * To write
 * ------------------------------------------------------------------------
 */

/* Unless it is empty. */
static char *
write_text(char *out, const char *key, const char *text)
{
	if (text[0] == '\0')
		return out;
	out += sprintf(out, ", \"%s\": ", key);
	return zklock_json_write(out, text);
}

/* Unless it is not known. */
static char *
write_age(char *out, const char *key, int64_t age)
{
	return age < 0 ? out : out + sprintf(out, ", \"%s\": %" PRId64, key, age);
}

static char *
write_session(char *out, const ZkReportSession *session)
{
	out += sprintf(out, "{\"pid\": %d", session->pid);
	out = write_text(out, "database", session->database);
	out = write_text(out, "user", session->user);
	out = write_text(out, "application", session->application);
	out = write_age(out, "query", session->query);
	out = write_text(out, "waits", session->waits);
	if (session->name[0] != '\0')
	{
		char encoded[ZKLOCK_ENCODED_MAX + 1];

		zklock_encode_name(session->name, encoded);
		out = write_text(out, "kind", zklock_kinds[session->kind].name);
		out = write_text(out, "name", encoded);
	}
	*out++ = '}';
	return out;
}

static char *
write_item(char *out, const ZkReportItem *item)
{
	if (item->contender != 0)
		out += sprintf(out, "{\"contender\": %" PRIu64, item->contender);
	else
		out += sprintf(out, "{\"mode\": \"%s\"", modes[item->mode]);
	out = write_text(out, "state", states[item->state]);
	out = write_age(out, "for", item->age);
	out += sprintf(out, ", \"sessions\": [");
	for (int i = 0; i < item->nsessions; i++)
	{
		if (i > 0)
			out += sprintf(out, ", ");
		out = write_session(out, &item->session[i]);
	}
	out += sprintf(out, "]}");
	return out;
}

size_t
zklock_report_write(const ZkReport *report, char *buf)
{
	char *out = buf;
	char *end = buf + ZKLOCK_REPORT_TEXT_MAX - TAIL_MAX;
	int n = 0;

	out += sprintf(out, "\"report\": [");
	for (; n < report->nitems; n++)
	{
		char item[ITEM_MAX];
		size_t len = (size_t) (write_item(item, &report->item[n]) - item);

		if (len + 2 > (size_t) (end - out))
			break;
		if (n > 0)
			out += sprintf(out, ", ");
		memcpy(out, item, len);
		out += len;
	}
	out += sprintf(out, "], \"more\": %d", report->nitems - n + report->more);
	return (size_t) (out - buf);
}

/* ------------------------------------------------------------------------
 * To read: what is next, or false
 * ------------------------------------------------------------------------
 */

/* Called for each key of an object, to read what stands behind it. */
typedef bool (*ReadKey)(ZkJson *in, const char *key, void *of);

static bool
read_object(ZkJson *in, ReadKey read, void *of)
{
	if (!zklock_json_take(in, '{'))
		return false;
	if (zklock_json_take(in, '}'))
		return true;
	do
	{
		char key[32];

		if (!zklock_json_text(in, key, sizeof(key)) || !zklock_json_take(in, ':') ||
			!read(in, key, of))
			return false;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, '}');
}

/* Which of "n" words is it? */
static bool
read_word(ZkJson *in, const char *const *words, int n, int *which)
{
	char word[16];

	if (!zklock_json_text(in, word, sizeof(word)))
		return false;
	for (*which = 0; *which < n; (*which)++)
	{
		if (strcmp(word, words[*which]) == 0)
			return true;
	}
	return false;
}

static bool
read_number(ZkJson *in, int64_t min, int64_t max, int64_t *value)
{
	return zklock_json_int64(in, value) && *value >= min && *value <= max;
}

/* An age: about 3,000 years at most, so that no time that is computed from it is out of
 * PostgreSQL's range. */
static bool
read_age(ZkJson *in, int64_t *value)
{
	return read_number(in, 0, INT64_C(100000000000000), value);
}

static bool
read_name(ZkJson *in, char *name)
{
	char encoded[ZKLOCK_ENCODED_MAX + 2];

	return zklock_json_text(in, encoded, sizeof(encoded)) &&
		zklock_decode_name(encoded, name);
}

static bool
read_session(ZkJson *in, const char *key, void *of)
{
	ZkReportSession *session = of;
	int64_t number;
	int which;

	if (strcmp(key, "pid") == 0)
	{
		if (!read_number(in, 1, INT32_MAX, &number))
			return false;
		session->pid = (int) number;
		return true;
	}
	if (strcmp(key, "database") == 0)
		return zklock_json_text(in, session->database, sizeof(session->database));
	if (strcmp(key, "user") == 0)
		return zklock_json_text(in, session->user, sizeof(session->user));
	if (strcmp(key, "application") == 0)
		return zklock_json_text(in, session->application, sizeof(session->application));
	if (strcmp(key, "query") == 0)
		return read_age(in, &session->query);
	if (strcmp(key, "waits") == 0)
		return zklock_json_text(in, session->waits, sizeof(session->waits));
	if (strcmp(key, "kind") == 0)
	{
		char word[16];

		if (!zklock_json_text(in, word, sizeof(word)) ||
			(which = zklock_kind_find(word, strlen(word))) < 0)
			return false;
		session->kind = (ZkLockKind) which;
		return true;
	}
	if (strcmp(key, "name") == 0)
		return read_name(in, session->name);
	return zklock_json_skip(in);
}

/* Whoever wrote more than we would is not believed. */
static bool
read_sessions(ZkJson *in, ZkReportItem *item)
{
	item->nsessions = 0;
	if (!zklock_json_take(in, '['))
		return false;
	if (zklock_json_take(in, ']'))
		return true;
	do
	{
		ZkReportSession *session;

		if (item->nsessions == ZKLOCK_REPORT_SESSIONS)
			return false;
		session = &item->session[item->nsessions++];
		memset(session, 0, sizeof(*session));
		session->query = -1;
		if (!read_object(in, read_session, session) || session->pid == 0)
			return false;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, ']');
}

static bool
read_item(ZkJson *in, const char *key, void *of)
{
	ZkReportItem *item = of;
	int which;

	if (strcmp(key, "contender") == 0)
		return zklock_json_uint64(in, &item->contender);
	if (strcmp(key, "mode") == 0)
	{
		if (!read_word(in, modes, ZKLOCK_NMODES, &which))
			return false;
		item->mode = (ZkLockMode) which;
		return true;
	}
	if (strcmp(key, "state") == 0)
	{
		if (!read_word(in, states, ZKLOCK_REPORT_NSTATES, &which))
			return false;
		item->state = (ZkReportState) which;
		return true;
	}
	if (strcmp(key, "for") == 0)
		return read_age(in, &item->age);
	if (strcmp(key, "sessions") == 0)
		return read_sessions(in, item);
	return zklock_json_skip(in);
}

static bool
read_items(ZkJson *in, ZkReport *report)
{
	report->nitems = 0;
	if (!zklock_json_take(in, '['))
		return false;
	if (zklock_json_take(in, ']'))
		return true;
	do
	{
		ZkReportItem *item;

		if (report->nitems == ZKLOCK_REPORT_ITEMS)
			return false;
		item = &report->item[report->nitems++];
		memset(item, 0, offsetof(ZkReportItem, session));
		item->age = -1;
		if (!read_object(in, read_item, item))
			return false;
	} while (zklock_json_take(in, ','));
	return zklock_json_take(in, ']');
}

typedef struct Reading
{
	ZkReport *report;
	bool found;
} Reading;

static bool
read_member(ZkJson *in, const char *key, void *of)
{
	Reading *reading = of;
	int64_t number;

	if (strcmp(key, "report") == 0)
	{
		reading->found = true;
		return read_items(in, reading->report);
	}
	if (strcmp(key, "more") == 0)
	{
		if (!read_number(in, 0, INT32_MAX / 2, &number))
			return false;
		reading->report->more = (int) number;
		return true;
	}
	return zklock_json_skip(in);
}

bool
zklock_report_read(const char *text, size_t len, ZkReport *report)
{
	ZkJson in = {.p = text, .end = text + len};
	Reading reading = {.report = report};

	report->nitems = report->more = 0;
	if (zklock_is_utf8(text, len) && read_object(&in, read_member, &reading) &&
		reading.found)
	{
		zklock_json_space(&in);
		if (in.p == in.end)
			return true;
	}
	report->nitems = report->more = 0;
	return false;
}
