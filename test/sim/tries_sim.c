/*-------------------------------------------------------------------------
 *
 * tries_sim.c
 *	  Plays seeded schedules of lost connections against src/protocol/tries.c.
 *
 * A schedule is a session of some hosts, the connection of which is cut again and again.
 * One host, which may be another one after each cut, is bad: it answers nothing, answers
 * rubbish, or hangs up.  The others answer soon, but the one that was cut off may refuse
 * for a moment.  A bad host may be the one that there was a connection to: it freezes,
 * and that is noticed when it has been silent for two thirds of the timeout.  Handles are
 * given up when their patience is at its end, or when they were told rubbish, and the next
 * one has the hosts in another order.  Sometimes a new process begins, which knows
 * nothing.  In some schedules all hosts are away for longer than the session lasts.
 *
 * Invariants:
 *
 *	 - While at most one host is bad, no session is lost.
 *	 - A host that is known to be silent, or to answer rubbish, is tried when each other
 *	   one has refused since the connection was lost.
 *	 - Of as many attempts as there are hosts, each is at another one.
 *	 - An attempt is over when the patience of a handle is.
 *	 - After an outage some host is reached as soon as each was tried.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "heartbeat.h"
#include "tries.h"

#define MS		  INT64_C(1000000)
#define MAX_HOSTS 5
#define CUTS	  12

/* a line of the trace */
#define TRACE(...) TRACE_LINE(__VA_ARGS__)

typedef enum Coverage
{
	COVER_SILENT,
	COVER_RUBBISH,
	COVER_REFUSED,
	COVER_KNOWN,
	COVER_SAME,
	COVER_OTHER,
	COVER_FIRST,
	COVER_LAST,
	COVER_FROZE,
	COVER_DOWN,
	COVER_HANDLE,
	COVER_LEFT,
	COVER_PROCESS,
	COVER_ROUND,
	COVER_OUTAGE,
	COVER_NOTHING_LEFT,
	COVER_REACHED,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {"attempts at a silent host",
											  "... at one that answers rubbish",
											  "... at one that refuses",
											  "known bad hosts that were not tried",
											  "the host that was cut off is the next one, too",
											  "... another one is",
											  "choices by chance: the first",
											  "... the last",
											  "hosts that froze with the connection to them",
											  "hosts that were away for a moment",
											  "handles given up for want of patience",
											  "... in an attempt that was not over",
											  "new processes",
											  "second rounds",
											  "outages",
											  "attempts with nothing left of the session",
											  "connections"};

long coverage[NCOVERAGE];

typedef enum Kind
{
	SILENT,
	RUBBISH,
	REFUSES,
	NKINDS
} Kind;

static ZkTries tries;
static int nhosts;
static int order[MAX_HOSTS]; /* the handle's: hosts by their number there */
static int64_t now;
static int64_t timeout;
static int64_t lost_at; /* the session ends */

/* the hosts */
static int bad;
static Kind bad_kind;
static int down; /* away for a moment; -1: none */
static int64_t down_until;
static int64_t outage_until; /* all are silent */

/* what the client knows */
static int64_t unreached_since;
static int64_t handle_since;
static bool known_bad[MAX_HOSTS];
static bool refused[MAX_HOSTS]; /* since the connection was lost */
static int attempts;			/* since then */
static int refusals;			/* in a row, for the pauses */
static bool seen[MAX_HOSTS];	/* of these attempts, in this round */

static int64_t
random_time(int64_t most)
{
	return (int64_t) (random_bits() % (uint64_t) (most + 1));
}

static int64_t
patience(void)
{
	return zklock_heartbeat_patience(timeout, now - unreached_since);
}

/* Another handle: it has the hosts in another order. */
static void
open_handle(void)
{
	char text[MAX_HOSTS][16];
	const char *names[MAX_HOSTS];

	for (int i = 0; i < nhosts; i++)
	{
		int other = random_below(i + 1);

		order[i] = order[other];
		order[other] = i;
	}
	for (int i = 0; i < nhosts; i++)
	{
		snprintf(text[i], sizeof(text[i]), "10.0.0.%d:2181", order[i]);
		names[i] = text[i];
	}
	zklock_tries_set(&tries, names, nhosts);
	handle_since = now;
}

static void
open_process(void)
{
	memset(&tries, 0, sizeof(tries));
	memset(known_bad, 0, sizeof(known_bad));
	memset(refused, 0, sizeof(refused));
	memset(seen, 0, sizeof(seen));
	attempts = 0;
	open_handle();
}

static void
check_choice(int host)
{
	if (seen[host])
		fail("host %d is tried again, and another one was not", host);
	seen[host] = true;
	if (++attempts % nhosts == 0)
	{
		memset(seen, 0, sizeof(seen));
		COVER(ROUND);
	}
	for (int i = 0; known_bad[host] && i < nhosts; i++)
		if (!known_bad[i] && !refused[i])
			fail("host %d is tried, which is known to be bad, and not host %d", host, i);
}

/* The client has given up the handle in an attempt. */
static bool
handle_ends(int i, int64_t began, int64_t given)
{
	int64_t ends = handle_since + patience();
	int host = order[i];

	if (began + given <= ends || ends < began)
		return false;
	COVER(LEFT);
	now = ends;
	zklock_tries_left(&tries, i, now - began, given, now);
	if (2 * (now - began) >= given)
		known_bad[host] = true;
	else
	{
		seen[host] = false;
		attempts--;
	}
	open_handle();
	return true;
}

/* As client.c pauses, when all have failed. */
static void
pause_after_refusal(void)
{
	int64_t ms = 50 * MS;

	if (++refusals % nhosts != 0)
		return;
	for (int i = refusals / nhosts; i > 1 && ms < 1000 * MS; i--)
		ms *= 2;
	ms = ms < timeout / 6 ? ms : timeout / 6;
	now += ms / 2 + random_time(ms / 2);
}

static void
on_failure(int i, ZkTryEnd end)
{
	int host = order[i];

	zklock_tries_ended(&tries, i, end, now);
	known_bad[host] = end != ZKLOCK_TRY_REFUSED;
	refused[host] = end == ZKLOCK_TRY_REFUSED;
	TRACE("%" PRId64 " ms: host %d has failed, %d", now / MS, host, (int) end);
	if (end != ZKLOCK_TRY_SILENT)
		pause_after_refusal();
	if (end == ZKLOCK_TRY_RUBBISH)
		open_handle();
	else if (now - handle_since >= patience())
	{
		COVER(HANDLE);
		open_handle();
	}
}

/* One attempt; the host that was reached, -1: none was. */
static int
attempt(void)
{
	int i = zklock_tries_next(&tries, (uint32_t) random_bits());
	int host;
	int64_t began = now;
	int64_t given;
	int64_t takes = MS + random_time(timeout / 40);
	ZkTryEnd end = ZKLOCK_TRY_REFUSED;

	if (i < 0 || i >= nhosts)
		fail("there is no host to be tried");
	host = order[i];
	given = zklock_tries_time(&tries, lost_at - now, patience());
	TRACE("%" PRId64 " ms: host %d, for %" PRId64 " ms", now / MS, host, given / MS);
	if (given <= 0 || given > patience())
		fail("an attempt has %" PRId64 " ms", given / MS);
	if (lost_at <= now)
		COVER(NOTHING_LEFT);
	check_choice(host);
	if (now < outage_until || (host == bad && bad_kind == SILENT))
	{
		COVER(SILENT);
		if (handle_ends(i, began, given))
			return -1;
		end = ZKLOCK_TRY_SILENT;
		takes = given;
	}
	else if (host == bad && bad_kind == RUBBISH)
	{
		COVER(RUBBISH);
		end = ZKLOCK_TRY_RUBBISH;
	}
	else if (host != bad && (host != down || now >= down_until))
	{
		if (takes < given)
		{
			now += takes;
			zklock_tries_reached(&tries, i);
			return i;
		}
		takes = given;
		end = ZKLOCK_TRY_SILENT;
	}
	else
		COVER(REFUSED);
	now += takes;
	on_failure(i, end);
	return -1;
}

/* Until there is a connection; its number in the handle. */
static int
reconnect(void)
{
	int i;
	int64_t by = lost_at;

	/* in an outage that no session outlives each host has its turn after it */
	if (outage_until > 0)
		by = outage_until +
			3 * (nhosts + 2) *
				zklock_heartbeat_patience(timeout,
										  outage_until - unreached_since + 60 * timeout);
	unreached_since = handle_since = now;
	attempts = refusals = 0;
	memset(refused, 0, sizeof(refused));
	memset(seen, 0, sizeof(seen));
	if (once_in(8))
	{
		COVER(PROCESS);
		open_process();
	}
	else if (once_in(8))
		open_handle();
	while ((i = attempt()) < 0)
	{
		step_count++;
		if (now >= by)
			fail(outage_until > 0 ? "nobody is reached after an outage"
								  : "the session is lost");
	}
	if (now >= by)
		fail("the session is lost");
	COVER(REACHED);
	TRACE("%" PRId64 " ms: connected to host %d", now / MS, order[i]);
	return i;
}

/* The connection is lost: how, and what the hosts do from now on. */
static void
cut(int i)
{
	int host = order[i];
	bool froze = once_in(4);
	bool silent_now = false;

	known_bad[host] = false;
	down = -1;
	outage_until = 0;
	if (once_in(3) || host == bad)
	{
		bad = random_below(nhosts);
		bad_kind = (Kind) random_below(NKINDS);
	}
	/* a write every sixth */
	lost_at = now + timeout - random_time(zklock_heartbeat_period(timeout));
	if (froze)
	{
		COVER(FROZE);
		bad = host;
		bad_kind = SILENT;
		silent_now = true;
		now += timeout * 2 / 3;
		if (lost_at - now < timeout / 8)
			lost_at = now + timeout / 8;
	}
	else if (host != bad && once_in(2))
	{
		COVER(DOWN);
		down = host;
		down_until = now + random_time(timeout / 16);
	}
	if (once_in(10))
	{
		COVER(OUTAGE);
		outage_until = now + random_time(10 * timeout);
	}
	zklock_tries_lost(&tries, i, silent_now ? ZKLOCK_TRY_SILENT : ZKLOCK_TRY_REFUSED, now);
	known_bad[host] = silent_now;
	TRACE("%" PRId64 " ms: host %d is cut off, host %d is bad (%d), %" PRId64
		  " ms are left",
		  now / MS, host, bad, (int) bad_kind, (lost_at - now) / MS);
}

void
play(uint64_t seed)
{
	static const int numbers[] = {2, 3, 5};
	int i;

	random_state = seed;
	nhosts = numbers[random_below(lengthof(numbers))];
	timeout = 1000 * MS + random_time(once_in(2) ? 4000 * MS : 60000 * MS);
	now = 1000000 * MS;
	down = -1;
	down_until = outage_until = 0;
	bad = random_below(nhosts);
	bad_kind = (Kind) random_below(NKINDS);
	lost_at = now + timeout;
	open_process();
	i = reconnect();
	if (i == 0)
		COVER(FIRST);
	if (i == nhosts - 1)
		COVER(LAST);
	for (int n = 0; n < CUTS; n++)
	{
		int before = order[i];
		int other;

		now += timeout;
		cut(i);
		i = reconnect();
		other = order[i];
		if (other == before)
			COVER(SAME);
		else
			COVER(OTHER);
		if (known_bad[bad] && attempts == 1)
			COVER(KNOWN);
		step_count++;
	}
}

const Simulator simulator = {
	.schedules = "schedules of the choice of hosts",
	.step = "attempt",
	.enough = 1000,
	.ncoverage = NCOVERAGE,
};
