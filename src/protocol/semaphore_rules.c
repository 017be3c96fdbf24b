/*-------------------------------------------------------------------------
 *
 * semaphore_rules.c
 *	  Decides which contenders of a queue have one of N permits.
 *
 *-------------------------------------------------------------------------
 */
#include "semaphore_rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* No limit of its own. */
#define NO_LIMIT INT32_MAX

static int
limit_of(const ZkLockChild *child)
{
	return child->permits > 0 ? child->permits : NO_LIMIT;
}

static int
least(int a, int b)
{
	return a < b ? a : b;
}

static bool
is_of(const ZkLockChild *child, uint64_t session)
{
	return child->uuid_hi != 0 && child->uuid_hi == session;
}

/* Does it have a permit, as of the listing? */
static bool
is_granted(const ZkLockChild *children, int n, const ZkLockChild *one)
{
	int rank = 0;
	int limit = limit_of(one);

	for (int i = 0; i < n; i++)
	{
		if (children[i].sequence >= one->sequence)
			continue;
		rank++;
		limit = least(limit, limit_of(&children[i]));
	}
	return rank < limit;
}

/* Does it stand more than ZKLOCK_SEMAPHORE_NEAR numbers before "sequence"? */
static bool
is_far(const ZkLockChild *child, int64_t sequence)
{
	return child->sequence < sequence - ZKLOCK_SEMAPHORE_NEAR;
}

/*
 * Finds the contender from which the first waiter of a session has to hear when that
 * contender waits no more: the last of those that are far before the waiter.
 */
static const ZkLockChild *
find_far(const ZkLockChild *children, int n, int64_t sequence, uint64_t session)
{
	const ZkLockChild *far = NULL;

	for (int i = 0; i < n; i++)
	{
		if (is_far(&children[i], sequence) && !is_of(&children[i], session) &&
			(far == NULL || children[i].sequence > far->sequence))
			far = &children[i];
	}
	if (far == NULL || is_granted(children, n, far))
		return NULL; /* and so are all before it */

	/* by those it would not know that we have not heard (is_followed) */
	for (int i = 0; i < n; i++)
	{
		if (is_of(&children[i], session) && children[i].sequence > far->sequence &&
			children[i].sequence < sequence)
			return NULL;
	}
	return far;
}

/*
 * The same from the other side: is there a session whose first contender behind
 * "sequence" is far?  If in doubt, yes: that costs no more than a mark.
 */
static bool
is_followed(const ZkLockChild *children, int n, int64_t sequence, uint64_t session)
{
	uint64_t near[ZKLOCK_SEMAPHORE_NEAR];
	int nnear = 0;
	bool followed = false;

	for (int i = 0; i < n; i++)
	{
		const ZkLockChild *child = &children[i];
		bool found = false;

		if (child->sequence <= sequence ||
			child->sequence - sequence > ZKLOCK_SEMAPHORE_NEAR)
			continue;
		for (int j = 0; j < nnear && !found; j++)
			found = near[j] == child->uuid_hi;
		if (!found && nnear < ZKLOCK_SEMAPHORE_NEAR)
			near[nnear++] = child->uuid_hi;
	}
	for (int i = 0; i < n && !followed; i++)
	{
		const ZkLockChild *child = &children[i];

		if (child->sequence <= sequence ||
			child->sequence - sequence <= ZKLOCK_SEMAPHORE_NEAR || child->permits == 0 ||
			is_of(child, session))
			continue;
		followed = true;
		for (int j = 0; j < nnear; j++)
			followed &= near[j] != child->uuid_hi;
	}
	return followed;
}

ZkSemaphorePlace
zklock_semaphore_find_place(const ZkLockChild *children, int n, int64_t sequence,
							int permits, uint64_t session)
{
	ZkSemaphorePlace place = {0};
	int rank = 0;
	int leaving = 0;
	int limit = NO_LIMIT;	/* of those before ... */
	int staying = NO_LIMIT; /* ... and stay */
	int all = permits;
	int total = 1;

	assert(permits > 0);
	for (int i = 0; i < n; i++)
	{
		const ZkLockChild *child = &children[i];

		if (child->sequence == sequence)
			continue; /* itself */
		total++;
		all = least(all, limit_of(child));
		if (child->permits > 0 && child->permits != permits)
			place.other = child->permits;
		if (child->sequence > sequence)
			continue;
		rank++;
		limit = least(limit, limit_of(child));
		place.nothers += !child->sibling;
		if (child->leaving)
			leaving++;
		else
			staying = least(staying, limit_of(child));
		if (place.before == NULL || child->sequence > place.before->sequence)
			place.before = child;
	}
	place.granted = rank < least(limit, permits);
	place.contended = total > all;
	if (place.granted)
	{
		place.followed = is_followed(children, n, sequence, session);
		return place;
	}
	place.lacks = rank - leaving - least(staying, permits) + 1;
	/* with the one who names the least goes the limit */
	if (place.lacks > 1 && place.other != 0)
		place.lacks = 1;
	if (place.lacks < 0)
		place.lacks = 0;
	place.far = find_far(children, n, sequence, session);
	return place;
}

void
zklock_semaphore_find_holders(const ZkLockChild *queue, int n, bool *holds)
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

/* False: zklock has not written this line. */
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

/* Finds the next line of the text that zklock has written, from *at on. */
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

/* If several contenders stand in the text with a free number, the first one has it. */
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
zklock_semaphore_find_number(const char *text, size_t text_len,
							 const ZkLockChild *children, int n, uint64_t hi, uint64_t lo,
							 int permits, char *written, size_t *len)
{
	int number = 1;
	Line line;

	*len = 0;
	for (const char *at = text; next_line(&at, text + text_len, &line);)
	{
		/* such a line somebody else has written */
		bool forged = is_taken(written, *len, line.number);
		bool ours = line.hi == hi && line.lo == lo;

		if (ours && line.number <= permits && !forged)
		{
			*len = 0;
			return line.number;
		}
		if (ours || forged || !is_present(children, n, line.hi, line.lo))
			continue;
		if (*len + LINE_MAX > ZKLOCK_SEMAPHORE_TEXT_MAX)
			return -1;
		*len += (size_t) snprintf(written + *len, LINE_MAX, LINE_FORMAT, line.number,
								  line.hi, line.lo);
	}
	while (number <= permits && is_taken(written, *len, number))
		number++;
	if (number > permits)
	{
		*len = 0;
		return 0;
	}
	if (*len + LINE_MAX > ZKLOCK_SEMAPHORE_TEXT_MAX)
		return -1;
	*len += (size_t) snprintf(written + *len, LINE_MAX, LINE_FORMAT, number, hi, lo);
	return number;
}
