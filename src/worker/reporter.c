/*-------------------------------------------------------------------------
 *
 * reporter.c
 *	  Tells other servers whose this server's contenders are, and which sessions wait
 *	  here without a contender.
 *
 * The worker adds the report (report.h) to the heartbeats.  So it costs no request, and
 * it wakes nobody, since nobody watches this server's node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "holder.h"
#include "reporter.h"

/* Entries that concern or did concern other servers, so that a look at them does not
 * read the whole table. */
static Bitmapset *noted = NULL;

void
zklock_reporter_note(const ZkLockEntry *entry)
{
	MemoryContext save;

	if (!zklock_holder_concerns(entry))
		return;
	save = MemoryContextSwitchTo(TopMemoryContext);
	noted = bms_add_member(noted, zklock_entry_index(entry));
	/* one that waits for a permit makes those that have one concern others, too */
	for (const ZkLockEntry *e =
			 zklock_kinds[entry->kind].by_session ? zklock_entry_first(entry) : NULL;
		 e != NULL; e = zklock_entry_namesake(e))
		noted = bms_add_member(noted, zklock_entry_index(e));
	MemoryContextSwitchTo(save);
}

/* A contender that the report may contain. */
typedef struct Candidate
{
	int32 entry;
	uint64 uuid;
	int rank; /* who comes first, if there is not room for all */
	int64 age;
} Candidate;

/* Sort holders first, then waiters, then contenders that no session uses, each with the
 * oldest first. */
static int
compare_candidates(const void *a, const void *b)
{
	const Candidate *left = a;
	const Candidate *right = b;

	if (left->rank != right->rank)
		return left->rank < right->rank ? -1 : 1;
	return left->age > right->age ? -1 : left->age < right->age;
}

static int
rank(ZkReportState state)
{
	return state == ZKLOCK_REPORT_HELD ? 0 : state == ZKLOCK_REPORT_WAITING ? 1 : 2;
}

/* Append the contenders of an entry.  False if the entry concerns no other server any
 * more. */
static bool
add_candidates(int32 index, Candidate *candidates, int *n)
{
	ZkLockEntry *entry = zklock_entry(index);
	LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
	bool concerns;

	if (lock == NULL)
		return false;
	concerns = zklock_holder_concerns(entry);
	for (int i = 0; concerns && i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];
		ZkReportItem item;

		if (!zklock_holder_concerned(entry, contender))
			continue;
		zklock_holder_find(entry, contender, &item);
		candidates[*n].entry = index;
		candidates[*n].uuid = contender->uuid;
		candidates[*n].rank = rank(item.state);
		candidates[*n].age = item.age;
		(*n)++;
	}
	zklock_entry_unlock(lock);
	return concerns;
}

/* Look up the contender again, if it still exists. */
static bool
find_again(const Candidate *candidate, ZkReportItem *item)
{
	ZkLockEntry *entry = zklock_entry(candidate->entry);
	LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
	bool found = false;

	if (lock == NULL)
		return false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS && !found; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];

		found = contender->uuid == candidate->uuid &&
			zklock_holder_concerned(entry, contender);
		if (found)
			zklock_holder_find(entry, contender, item);
	}
	zklock_entry_unlock(lock);
	return found;
}

/* A session that has waited for a long time. */
typedef struct LongWait
{
	int proc_number;
	ZkLocalWait wait;
} LongWait;

static int
compare_waits(const ListCell *a, const ListCell *b)
{
	const LongWait *left = lfirst(a);
	const LongWait *right = lfirst(b);

	return left->wait.since < right->wait.since ? -1 : left->wait.since > right->wait.since;
}

/* Does an item of the report show that the session waits? */
static bool
shows(const ZkReport *report, int pid)
{
	for (int i = 0; i < report->nitems; i++)
	{
		const ZkReportItem *item = &report->item[i];

		if (item->state == ZKLOCK_REPORT_WAITING && item->nsessions > 0 &&
			item->session[0].pid == pid)
			return true;
	}
	return false;
}

/* Append the sessions that wait without a contender of their own, the longest waits
 * first. */
static void
add_waits(ZkReport *report)
{
	TimestampTz now = GetCurrentTimestamp();
	List *waits = NIL;
	ListCell *cell;

	for (int i = 0; i < zklock_shared->nprocs; i++)
	{
		LongWait w = {.proc_number = i};

		if (zklock_holder_waiter(i, &w.wait) && now - w.wait.since >= ZKLOCK_LONG_WAIT &&
			!shows(report, w.wait.pid))
		{
			LongWait *found = palloc(sizeof(*found));

			*found = w;
			waits = lappend(waits, found);
		}
	}
	list_sort(waits, compare_waits);
	foreach (cell, waits)
	{
		const LongWait *w = lfirst(cell);

		if (report->nitems == ZKLOCK_REPORT_ITEMS)
			report->more++;
		else
			zklock_holder_report_wait(w->proc_number, &w->wait,
									  &report->item[report->nitems++]);
	}
	list_free_deep(waits);
}

char *
zklock_reporter_write(void)
{
	static ZkReport report;
	char *text = palloc(ZKLOCK_REPORT_TEXT_MAX);
	int room = ZKLOCK_NCONTENDERS * bms_num_members(noted);
	Candidate *candidates =
		palloc_extended(sizeof(Candidate) * ((Size) room + 1), MCXT_ALLOC_HUGE);
	int n = 0;
	int index = -1;

	while ((index = bms_next_member(noted, index)) >= 0)
	{
		if (!add_candidates(index, candidates, &n))
			noted = bms_del_member(noted, index);
	}
	Assert(n <= room);
	qsort(candidates, (size_t) n, sizeof(Candidate), compare_candidates);

	report.nitems = 0;
	report.more = 0;
	for (int i = 0; i < n; i++)
	{
		if (report.nitems == ZKLOCK_REPORT_ITEMS)
			report.more++;
		else if (find_again(&candidates[i], &report.item[report.nitems]))
			report.nitems++;
	}
	/* where contenders have no room, who is not shown may wait with one of these */
	if (report.more == 0)
		add_waits(&report);
	zklock_holder_complete(report.item, report.nitems);
	(void) zklock_report_write(&report, text);
	pfree(candidates);
	return text;
}
