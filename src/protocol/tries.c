/*-------------------------------------------------------------------------
 *
 * tries.c
 *	  Chooses the host to try next, and the time for the attempt.
 *
 *-------------------------------------------------------------------------
 */
#include "tries.h"

#include <string.h>

/* The part of the patience that the shortest attempt gets: less helps nobody. */
#define SHORTEST 8

static int64_t
min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int
zklock_tries_find(const ZkTries *tries, const char *name)
{
	for (int i = 0; i < tries->nhosts; i++)
		if (strcmp(tries->host[i].name, name) == 0)
			return i;
	return -1;
}

void
zklock_tries_set(ZkTries *tries, const char *const *names, int n)
{
	ZkTries before = *tries;

	memset(tries, 0, sizeof(*tries));
	tries->nhosts = n < ZKLOCK_TRIES_MAX ? n : ZKLOCK_TRIES_MAX;
	for (int i = 0; i < tries->nhosts; i++)
	{
		ZkTriedHost *host = &tries->host[i];
		int known = zklock_tries_find(&before, names[i]);

		if (known >= 0)
			*host = before.host[known];
		else
			strncpy(host->name, names[i], sizeof(host->name) - 1);
	}
}

static int
count_untried(const ZkTries *tries)
{
	int n = 0;

	for (int i = 0; i < tries->nhosts; i++)
		n += !tries->host[i].tried;
	return n;
}

static void
begin_round(ZkTries *tries)
{
	for (int i = 0; i < tries->nhosts; i++)
		tries->host[i].tried = false;
}

/* Must "a" be tried before "b"? 0: chance decides. */
static int
compare(const ZkTriedHost *a, const ZkTriedHost *b)
{
	if (a->end != b->end)
		return a->end < b->end ? 1 : -1;
	if (a->ended_at != b->ended_at && a->end != ZKLOCK_TRY_NOT)
		return a->ended_at < b->ended_at ? 1 : -1;
	return 0;
}

int
zklock_tries_next(ZkTries *tries, uint32_t random)
{
	int best = -1;
	uint32_t equals = 0;

	if (count_untried(tries) == 0)
		begin_round(tries);
	for (int i = 0; i < tries->nhosts; i++)
	{
		int order;

		if (tries->host[i].tried)
			continue;
		order = best < 0 ? 1 : compare(&tries->host[i], &tries->host[best]);
		if (order > 0)
			equals = 0;
		if (order >= 0)
		{
			equals++;
			/* each of the equals has the same chance */
			if (random % equals == 0)
				best = i;
			random = random * UINT32_C(1664525) + UINT32_C(1013904223);
			random ^= random >> 16;
		}
	}
	return best;
}

int64_t
zklock_tries_time(const ZkTries *tries, int64_t left, int64_t patience)
{
	int n = count_untried(tries);
	int64_t share;

	if (left <= 0)
		return max(patience / tries->nhosts, patience / SHORTEST);
	n = n < 2 ? 2 : n;
	share = left / n;
	return max(min(share, patience), patience / SHORTEST);
}

void
zklock_tries_reached(ZkTries *tries, int host)
{
	tries->host[host].end = ZKLOCK_TRY_NOT;
	begin_round(tries);
}

void
zklock_tries_ended(ZkTries *tries, int host, ZkTryEnd end, int64_t now)
{
	zklock_tries_lost(tries, host, end, now);
	tries->host[host].tried = true;
}

void
zklock_tries_lost(ZkTries *tries, int host, ZkTryEnd end, int64_t now)
{
	tries->host[host].end = end;
	tries->host[host].ended_at = now;
	tries->host[host].tried = false;
}

void
zklock_tries_left(ZkTries *tries, int host, int64_t took, int64_t given, int64_t now)
{
	/* a host that had its time, or nearly, was silent; another has its turn again */
	if (took >= given / 2)
		zklock_tries_ended(tries, host, ZKLOCK_TRY_SILENT, now);
}
