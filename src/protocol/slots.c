/*-------------------------------------------------------------------------
 *
 * slots.c
 *	  "At most N at a time": who of a queue has one of N slots.
 *
 *-------------------------------------------------------------------------
 */
#include "slots.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifndef ZKLOCK_SLOTS_MUTANT
#define ZKLOCK_SLOTS_MUTANT 0
#endif

/* No limit of its own. */
#define NO_LIMIT INT32_MAX

static int
limit_of(const ZkLockChild *child)
{
	return child->slots > 0 ? child->slots : NO_LIMIT;
}

static int
least(int a, int b)
{
	return a < b ? a : b;
}

ZkSlotPlace
zklock_slots_place(const ZkLockChild *children, int n, int64_t sequence, int slots)
{
	ZkSlotPlace place = {0};
	int rank = 0;
	int limit = NO_LIMIT; /* of those before */
	int all = slots;
	int total = 1;

	assert(slots > 0);
	for (int i = 0; i < n; i++)
	{
		const ZkLockChild *child = &children[i];

		if (child->sequence == sequence)
			continue; /* itself */
		total++;
		all = least(all, limit_of(child));
		if (child->slots > 0 && child->slots != slots)
			place.other = child->slots;
		if (child->sequence > sequence)
		{
			place.followed = true;
			continue;
		}
		rank++;
		limit = least(limit, limit_of(child));
		if (place.before == NULL || child->sequence > place.before->sequence)
			place.before = child;
	}
	if (ZKLOCK_SLOTS_MUTANT == 1)
		limit = NO_LIMIT; /* only one's own number counts */
	place.granted = rank < least(limit, slots) + (ZKLOCK_SLOTS_MUTANT == 2);
	/*
	 * The one before has one less before it, and its limit is that of all before.
	 * Another program's does not say when it is granted a slot.
	 */
	place.first = !place.granted &&
		(rank <= limit || (place.before->slots == 0 && ZKLOCK_SLOTS_MUTANT != 7));
	if (ZKLOCK_SLOTS_MUTANT == 3)
		place.first = !place.granted && rank == least(limit, slots);
	place.contended = total > all;
	return place;
}

void
zklock_slots_find_holders(const ZkLockChild *queue, int n, bool *holds)
{
	int limit = NO_LIMIT;

	for (int i = 0; i < n; i++)
	{
		limit = least(limit, limit_of(&queue[i]));
		holds[i] = i < limit;
	}
}

/* ------------------------------------------------------------------------
 * Numbers
 * ------------------------------------------------------------------------
 */

#define LINE_FORMAT "%d %016" PRIx64 "%016" PRIx64 "\n"
#define LINE_MAX	48

typedef struct Line
{
	int number;
	uint64_t hi;
	uint64_t lo;
} Line;

/* False: it is none of ours. */
static bool
read_line(const char *text, size_t len, Line *line)
{
	char buf[LINE_MAX];
	char again[LINE_MAX];

	if (len >= sizeof(buf))
		return false;
	memcpy(buf, text, len);
	buf[len] = '\0';
	if (sscanf(buf, "%7d %16" SCNx64 "%16" SCNx64, &line->number, &line->hi, &line->lo) !=
			3 ||
		line->number < 1)
		return false;
	/* what was not written so was written by somebody else */
	snprintf(again, sizeof(again), LINE_FORMAT, line->number, line->hi, line->lo);
	return strncmp(again, buf, len) == 0 && again[len] == '\n';
}

/* The next line of the text that is ours, from *at on. */
static bool
next_line(const char **at, const char *end, Line *line)
{
	while (*at < end)
	{
		const char *start = *at;
		const char *eol = memchr(start, '\n', (size_t) (end - start));
		size_t len = (size_t) ((eol != NULL ? eol : end) - start);

		*at = eol != NULL ? eol + 1 : end;
		if (read_line(start, len, line))
			return true;
	}
	return false;
}

static bool
is_present(const ZkLockChild *children, int n, uint64_t hi, uint64_t lo)
{
	for (int i = 0; i < n; i++)
	{
		if (children[i].uuid_hi == hi && children[i].uuid_lo == lo && hi != 0)
			return true;
	}
	return false;
}

/* Who stands first in the text for a number that is free has it. */
static bool
is_taken(const char *text, size_t len, int number)
{
	Line line;

	for (const char *at = text; next_line(&at, text + len, &line);)
	{
		if (line.number == number)
			return true;
	}
	return false;
}

int
zklock_slots_number(const char *text, size_t text_len, const ZkLockChild *children, int n,
					uint64_t hi, uint64_t lo, int slots, char *written, size_t *len)
{
	int number = 1;
	Line line;

	*len = 0;
	for (const char *at = text; next_line(&at, text + text_len, &line);)
	{
		/* such a line somebody else has written */
		bool forged = is_taken(written, *len, line.number);
		bool ours = line.hi == hi && line.lo == lo;

		if (ours && line.number <= slots && !forged)
		{
			*len = 0;
			return line.number;
		}
		if (ours || forged || !is_present(children, n, line.hi, line.lo))
			continue;
		if (*len + LINE_MAX > ZKLOCK_SLOT_TEXT_MAX)
			return -1;
		*len += (size_t) snprintf(written + *len, LINE_MAX, LINE_FORMAT, line.number,
								  line.hi, line.lo);
	}
	while (number <= slots && is_taken(written, *len, number))
		number++;
	if (number > slots)
	{
		*len = 0;
		return 0;
	}
	if (*len + LINE_MAX > ZKLOCK_SLOT_TEXT_MAX)
		return -1;
	*len += (size_t) snprintf(written + *len, LINE_MAX, LINE_FORMAT, number, hi, lo);
	return number;
}
