/*-------------------------------------------------------------------------
 *
 * fuzz_report.c
 *	  Fuzzer of src/protocol/report.c: what other servers say of their contenders.
 *
 * What is read is in range; written, as much of it as has room, and read again it is the
 * same, but for characters that are not written.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "report.h"

static void
check_name(const char *name)
{
	CHECK(strlen(name) < ZKLOCK_REPORT_NAME && zklock_is_utf8(name, strlen(name)));
}

static void
check(const ZkReport *report)
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
			check_name(session->database);
			check_name(session->user);
			check_name(session->application);
			check_name(session->waits);
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char once[ZKLOCK_REPORT_TEXT_MAX + 2];
	static char twice[ZKLOCK_REPORT_TEXT_MAX + 2];
	static ZkReport report;
	static ZkReport again;
	char *text = fuzz_text(data, size);
	bool read = zklock_report_read(text, size, &report);
	size_t len;

	free(text);
	check(&report);
	if (!read)
	{
		CHECK(report.nitems == 0 && report.more == 0);
		return 0;
	}
	/* written among the rest of a znode */
	once[0] = '{';
	len = 1 + zklock_report_write(&report, once + 1);
	CHECK(len <= ZKLOCK_REPORT_TEXT_MAX && strlen(once) == len);
	strcpy(once + len, "}");
	CHECK(zklock_is_utf8(once, len));
	CHECK(zklock_report_read(once, len + 1, &again));
	check(&again);
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
	return 0;
}
