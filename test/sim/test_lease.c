/*-------------------------------------------------------------------------
 *
 * test_lease.c
 *	  How slow may writes be?  Plays heartbeat.c against lease.c, output in TAP.
 *
 * There is one server, which needs its lease all the time, and which sends nothing but
 * heartbeats, one at a time.  Each takes the same time.  lease_sim has everything else.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "heartbeat.h"

#define MS		 INT64_C(1000000)
#define TIMEOUTS 30

typedef enum Begin
{
	NEW_SESSION,
	LAPSED,		   /* the lease, on this connection */
	NEW_CONNECTION /* of a session whose lease has lapsed */
} Begin;

/* The looks after the first two timeouts */
typedef struct Seen
{
	int without; /* there was no lease */
	int silent;	 /* a backend took the worker for one that is stuck: check.c, is_silent */
} Seen;

static Seen
play(int64_t timeout, int64_t takes, Begin begin)
{
	int64_t start = 100 * timeout;
	int64_t opened = begin == NEW_SESSION ? start : start - 3 * timeout;
	int64_t sent = 0; /* of the heartbeat that has no answer; 0: there is none */
	ZkHeartbeat heartbeat = {0};
	ZkLease lease;
	Seen seen = {0};

	zklock_lease_new_session(&lease, timeout, opened);
	if (begin == NEW_CONNECTION)
		zklock_lease_new_connection(&lease, timeout, start - takes, start);
	zklock_heartbeat_connected(&heartbeat, start);
	for (int64_t now = start; now < start + TIMEOUTS * timeout; now += timeout / 2000)
	{
		zklock_heartbeat_need(&heartbeat, now);
		if (sent != 0 && now >= sent + takes)
		{
			zklock_lease_write(&lease, sent, now);
			(void) zklock_heartbeat_written(&heartbeat, &lease, sent, now,
											(uint32_t) rand());
			zklock_heartbeat_answered(&heartbeat);
			sent = 0;
		}
		if (now >= zklock_heartbeat_due(&heartbeat, &lease, now))
		{
			zklock_heartbeat_sent(&heartbeat, now);
			sent = now;
		}
		if (now < start + 2 * timeout)
			continue;
		if (now >= zklock_lease_end(&lease))
			seen.without++;
		if (now - lease.last_write > 4 * zklock_heartbeat_period(timeout))
			seen.silent++;
	}
	return seen;
}

int
main(void)
{
	static const char *const begins[] = {
		[NEW_SESSION] = "in a new session",
		[LAPSED] = "after it has lapsed",
		[NEW_CONNECTION] = "on a new connection, after it has lapsed",
	};
	static const int64_t timeouts[] = {4000, 10000, 40000, 80000, 600000, 3600000};
	int silent = 0;
	Seen slow;
	bool good = true;

	printf("1..5\n");
	for (int begin = NEW_SESSION; begin <= NEW_CONNECTION; begin++)
	{
		int without = 0;

		for (int i = 0; i < 60; i++)
		{
			Seen seen = play(timeouts[i % 6] * MS,
							 ZKLOCK_SLOWEST_WRITE(timeouts[i % 6]) * MS, (Begin) begin);

			without += seen.without;
			silent += seen.silent;
		}
		printf("%s %d - the lease lasts %s, if writes are as slow as they may be\n",
			   without == 0 ? "ok" : "not ok", begin + 1, begins[begin]);
		good = good && without == 0;
	}
	slow = play(timeouts[1] * MS, ZKLOCK_SLOWEST_WRITE(timeouts[1]) * MS / 7 * 8, LAPSED);
	if (slow.without > 0)
		printf("ok");
	else
	{
		printf("not ok");
		good = false;
	}
	printf(
		" 4 - and it does not if they are slower by a seventh: else they may be slower\n");
	printf("%s 5 - and no worker that is well counts as silent\n",
		   silent == 0 ? "ok" : "not ok");
	good = good && silent == 0;
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
