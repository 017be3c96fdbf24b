/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Checks that the ensemble's state is later than all that this server has seen.
 *
 *-------------------------------------------------------------------------
 */
#include "history.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)

/* Nobody waits for longer.  If a file names a longer wait, zklock has not written it. */
#define LONGEST_WAIT_MS (7 * 24 * 3600 * INT64_C(1000))

/* Neither is below 0. */
static int64_t
add(int64_t a, int64_t b)
{
	assert(a >= 0 && b >= 0);
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t
larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void
zklock_history_init(ZkHistory *history)
{
	memset(history, 0, sizeof(*history));
	history->version = -1;
}

void
zklock_history_new_session(ZkHistory *history)
{
	history->version = -1;
	history->admitted = false;
}

/* ------------------------------------------------------------------------
 * The check
 * ------------------------------------------------------------------------
 */

ZkHistoryVerdict
zklock_history_check(const ZkHistory *history, const ZkHistorySight *sight)
{
	if (sight->resumed && history->version >= 0 && sight->version <= history->version)
		return ZKLOCK_HISTORY_UNDONE;
	if (history->known && add(sight->base, sight->zxid) <= history->top)
		return ZKLOCK_HISTORY_BEHIND;
	if (sight->base < history->base)
		return ZKLOCK_HISTORY_FELL;
	if (sight->base > history->base)
		return ZKLOCK_HISTORY_RAISED;
	return ZKLOCK_HISTORY_GOOD;
}

ZkHistoryVerdict
zklock_history_expired(const ZkHistory *history, int64_t told, int64_t lost_at)
{
	if (history->admitted && told < lost_at)
		return ZKLOCK_HISTORY_TOO_SOON;
	return ZKLOCK_HISTORY_GOOD;
}

bool
zklock_history_admit(ZkHistory *history, const ZkHistorySight *sight)
{
	bool news = !history->known || history->base != sight->base;

	history->known = true;
	history->base = sight->base;
	history->version = sight->version;
	history->admitted = true;
	return zklock_history_see(history, sight->zxid) || news;
}

ZkHistoryVerdict
zklock_history_wrote(ZkHistory *history, int32_t version)
{
	bool undone = version >= 0 && version <= history->version;

	if (undone)
		return ZKLOCK_HISTORY_UNDONE;
	history->version = version;
	return ZKLOCK_HISTORY_GOOD;
}

bool
zklock_history_see(ZkHistory *history, int64_t zxid)
{
	assert(history->base >= 0 && history->top >= 0);
	history->top = larger(history->top, zklock_history_token(history, zxid));
	return history->top > history->ceiling;
}

int64_t
zklock_history_token(const ZkHistory *history, int64_t zxid)
{
	return zxid > 0 ? add(history->base, zxid) : 0;
}

/* ------------------------------------------------------------------------
 * The cure
 * ------------------------------------------------------------------------
 */

void
zklock_history_found(ZkHistory *history, int64_t now, int64_t wait)
{
	assert(wait > 0);
	history->found = true;
	history->mended = false;
	history->wait = wait;
	history->until = now + wait;
	zklock_history_new_session(history);
}

void
zklock_history_extend(ZkHistory *history, int64_t wait)
{
	assert(history->found);
	if (wait <= history->wait)
		return;
	history->until += wait - history->wait;
	history->wait = wait;
}

int64_t
zklock_history_raise(const ZkHistory *history, int64_t base, int64_t zxid)
{
	int64_t most = larger(history->top, history->forgotten);
	int64_t raised = larger(base, history->base);

	if (add(raised, zxid) >= most)
		return raised;
	return larger(raised, add(history->top, ZKLOCK_HISTORY_MARGIN) - zxid);
}

void
zklock_history_mend(ZkHistory *history, int64_t base, int64_t zxid)
{
	assert(history->found && base >= history->base);
	history->known = true;
	history->mended = true;
	history->base = base;
	(void) zklock_history_see(history, zxid);
}

int64_t
zklock_history_raise_above(const ZkHistory *history, int64_t above)
{
	return above - (history->top - history->base);
}

bool
zklock_history_over(const ZkHistory *history, int64_t now)
{
	return history->found && history->mended && now >= history->until;
}

void
zklock_history_end(ZkHistory *history)
{
	assert(history->found && history->mended && !history->admitted);
	history->found = history->mended = false;
	history->wait = history->until = 0;
}

/* ------------------------------------------------------------------------
 * Text
 * ------------------------------------------------------------------------
 */

/* Reads digits: as many as make an int64, and no more than that number needs. */
static bool
parse_number(const char **text, const char *end, int64_t *number)
{
	const char *start = *text;
	const char *p = start;

	*number = 0;
	for (; p < end && *p >= '0' && *p <= '9'; p++)
	{
		int digit = *p - '0';

		if (*number > (INT64_MAX - digit) / 10)
			return false;
		*number = *number * 10 + digit;
	}
	*text = p;
	return p > start && (*start != '0' || p == start + 1);
}

bool
zklock_history_parse_base(const char *data, size_t len, int64_t *base)
{
	const char *end = data + len;
	int64_t number;

	if (!parse_number(&data, end, &number) || data != end || number > ZKLOCK_BASE_MAX)
		return false;
	*base = number;
	return true;
}

/* FNV-1a: finds a file that is cut off or half written; it is no protection against
 * people. */
static uint64_t
checksum(const char *text, size_t len)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ (unsigned char) text[i]) * UINT64_C(0x100000001b3);
	return sum;
}

static size_t
write_text(char *text, int64_t base, int64_t top, int64_t ceiling, int64_t memory,
		   int64_t wait_ms, int64_t mended)
{
	int n = snprintf(text, ZKLOCK_HISTORY_TEXT_MAX,
					 "zklock history 1\nbase %" PRId64 "\ntop %" PRId64 "\nceiling %" PRId64
					 "\nmemory %" PRId64 "\nwait %" PRId64 "\nmended %" PRId64 "\n",
					 base, top, ceiling, memory, wait_ms, mended);

	n += snprintf(text + n, ZKLOCK_HISTORY_TEXT_MAX - (size_t) n, "sum %016" PRIx64 "\n",
				  checksum(text, (size_t) n));
	return (size_t) n;
}

size_t
zklock_history_format(ZkHistory *history, bool last, char *text)
{
	int64_t wait_ms = 0;

	history->ceiling = history->found || last
		? larger(history->top, history->forgotten)
		: larger(add(history->top, ZKLOCK_HISTORY_REACH), history->forgotten);
	if (history->found)
	{
		wait_ms = larger(history->wait / NS_PER_MS, 1);
		if (wait_ms > LONGEST_WAIT_MS)
			wait_ms = LONGEST_WAIT_MS;
	}
	return write_text(text, history->base, history->top, history->ceiling,
					  history->memory, wait_ms, history->found && history->mended);
}

/* Is this word next, and a number behind it? */
static bool
parse_field(const char **text, const char *end, const char *word, int64_t *number)
{
	size_t len = strlen(word);

	if ((size_t) (end - *text) < len || memcmp(*text, word, len) != 0)
		return false;
	*text += len;
	return parse_number(text, end, number);
}

bool
zklock_history_parse(ZkHistory *history, const char *text, size_t len, int64_t now,
					 int64_t wait)
{
	char again[ZKLOCK_HISTORY_TEXT_MAX];
	const char *p = text;
	const char *end = text + len;
	int64_t base;
	int64_t top;
	int64_t ceiling;
	int64_t memory;
	int64_t wait_ms;
	int64_t mended;

	if (!parse_field(&p, end, "zklock history 1\nbase ", &base) ||
		!parse_field(&p, end, "\ntop ", &top) ||
		!parse_field(&p, end, "\nceiling ", &ceiling) ||
		!parse_field(&p, end, "\nmemory ", &memory) ||
		!parse_field(&p, end, "\nwait ", &wait_ms) ||
		!parse_field(&p, end, "\nmended ", &mended))
		return false;
	if (base > ZKLOCK_BASE_MAX || top < base || wait_ms > LONGEST_WAIT_MS ||
		ceiling < top || mended > (wait_ms > 0))
		return false;
	/* it is as we would write it, sum and all */
	if (write_text(again, base, top, ceiling, memory, wait_ms, mended) != len ||
		memcmp(again, text, len) != 0)
		return false;

	zklock_history_init(history);
	history->known = true;
	history->base = base;
	history->top = top;
	history->ceiling = history->forgotten = ceiling;
	history->memory = memory;
	if (wait_ms > 0)
	{
		zklock_history_found(history, now, larger(wait_ms * NS_PER_MS, wait));
		history->mended = mended != 0;
	}
	return true;
}

/*
 * A memory that the file does not name may still have noted something that the file
 * lacks, but need not have noted everything.
 */
bool
zklock_history_remember(ZkHistory *history, const ZkHistoryMemory *memory)
{
	if (history->known)
		history->top = larger(history->top, memory->top);
	if (memory->id == 0 || memory->id != history->memory)
		return false;
	history->forgotten = memory->forgotten;
	return true;
}

ZkHistoryMemory
zklock_history_new_memory(ZkHistory *history, int64_t id)
{
	history->memory = id;
	return (ZkHistoryMemory){.id = id, .top = history->top, .forgotten = history->forgotten};
}

void
zklock_history_note(const ZkHistory *history, ZkHistoryMemory *memory, int64_t session,
					int64_t lost_at)
{
	memory->top = history->top;
	memory->session = history->admitted ? session : 0;
	memory->lost_at = lost_at;
	memory->version = history->version;
}

bool
zklock_history_resume(ZkHistory *history, const ZkHistoryMemory *memory, int64_t session)
{
	if (memory->session != session || history->found)
		return false;
	history->version = memory->version;
	history->admitted = true;
	return true;
}
