/*-------------------------------------------------------------------------
 *
 * report.c
 *	  Reads and writes the report of the sessions that hold a server's contenders or wait
 *	  with them.
 *
 *-------------------------------------------------------------------------
 */
#include "report.h"

#include <stdio.h>
#include <string.h>

#include "record.h"

/*
 * The longest item: its own keys and numbers, and for each session, besides these, four
 * texts and a name; each of their bytes may take two.
 */
#define ITEM_MAX                                                                         \
	(128 +                                                                               \
	 ZKLOCK_REPORT_SESSIONS * (256 + 2 * (4 * ZKLOCK_REPORT_NAME + ZKLOCK_ENCODED_MAX)))

/* The longest text behind the last item. */
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

/* The largest age, about 3,000 years: a time that is computed from it stays in
 * PostgreSQL's range. */
#define AGE_MAX INT64_C(100000000000000)

static const ZkField session_fields[] = {
	{ZKLOCK_FIELD("pid", INT, ZkReportSession, pid), .needed = true, .min = 1,
	 .max = INT32_MAX},
	{ZKLOCK_FIELD("database", TEXT, ZkReportSession, database)},
	{ZKLOCK_FIELD("user", TEXT, ZkReportSession, user)},
	{ZKLOCK_FIELD("application", TEXT, ZkReportSession, application)},
	{ZKLOCK_FIELD("query", INT, ZkReportSession, query), .max = AGE_MAX},
	{ZKLOCK_FIELD("waits", TEXT, ZkReportSession, waits)},
	{ZKLOCK_FIELD("kind", KIND, ZkReportSession, kind)},
	{ZKLOCK_FIELD("name", NAME, ZkReportSession, name)},
};

static const ZkReportSession no_session = {.query = -1};

static const ZkShape session_shape = {ZKLOCK_SHAPE(session_fields, ZkReportSession),
									  .blank = &no_session};

static const ZkField item_fields[] = {
	{ZKLOCK_FIELD("contender", UINT64, ZkReportItem, contender)},
	{ZKLOCK_FIELD("mode", WORD, ZkReportItem, mode), ZKLOCK_FIELD_WORDS(modes)},
	{ZKLOCK_FIELD("state", WORD, ZkReportItem, state), ZKLOCK_FIELD_WORDS(states),
	 .needed = true},
	{ZKLOCK_FIELD("for", INT, ZkReportItem, age), .max = AGE_MAX},
	{ZKLOCK_FIELD_ITEMS("sessions", ZkReportItem, session, nsessions),
	 .shape = &session_shape, .needed = true},
};

static const ZkReportItem no_item = {.age = -1};

static const ZkShape item_shape = {ZKLOCK_SHAPE(item_fields, ZkReportItem),
								   .blank = &no_item};

static const ZkField report_fields[] = {
	{ZKLOCK_FIELD_ITEMS("report", ZkReport, item, nitems), .shape = &item_shape,
	 .needed = true},
	{ZKLOCK_FIELD("more", INT, ZkReport, more), .max = INT32_MAX / 2},
};

static const ZkShape report_shape = {ZKLOCK_SHAPE(report_fields, ZkReport)};

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
		size_t len =
			(size_t) (zklock_record_write(&item_shape, &report->item[n], item) - item);

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

bool
zklock_report_read(const char *text, size_t len, ZkReport *report)
{
	return zklock_record_read(&report_shape, text, len, report) == ZKLOCK_RECORD_GOOD;
}
