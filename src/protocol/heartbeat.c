/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *	  Decides when a server has to write to keep its lease.
 *
 *-------------------------------------------------------------------------
 */
#include "heartbeat.h"

#define SECOND		  INT64_C(1000000000)
#define LONGEST_PAUSE (10 * SECOND)

/* In this time an ensemble of few cores can take one more server back and do other
 * work, too. */
#define EACH_COMES_BACK INT64_C(2500000)

static int64_t
max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t
min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
zklock_heartbeat_period(int64_t timeout)
{
	return max(timeout / 6, 1);
}

int64_t
zklock_heartbeat_pause(const ZkLease *lease, int64_t timeout, int64_t asked,
					   int64_t answered, uint32_t random)
{
	int64_t took = answered - asked;
	int64_t longest =
		min(4 * took, min(zklock_heartbeat_period(lease->timeout), LONGEST_PAUSE));
	int64_t left = zklock_lease_end(lease) - answered;

	if (timeout < lease->timeout)
		return 0;
	if (left <= 0)
		left = zklock_lease_lost_at(lease) - answered;
	/* the write that follows takes as long as the connection did */
	if (left > 0)
		longest = min(longest, max(left - took, 0) / 2);
	return longest * (int64_t) (random % 1024) / 1024;
}

int64_t
zklock_heartbeat_spread(const ZkLease *lease, int64_t now, int servers)
{
	if (zklock_lease_lost_at(lease) > now)
		return 0;
	return min(servers * EACH_COMES_BACK, lease->timeout / 2);
}

int64_t
zklock_heartbeat_patience(int64_t timeout, int64_t unreached)
{
	int64_t least = max(SECOND, min(timeout / 4, 5 * SECOND));

	return max(least, min(unreached / 2, 60 * SECOND));
}

void
zklock_heartbeat_connected(ZkHeartbeat *heartbeat, int64_t now)
{
	heartbeat->sent = 0;
	heartbeat->open = false;
	heartbeat->counts_from = now;
	heartbeat->due = now;
	if (heartbeat->needed_at == 0)
		heartbeat->needed_at = now;
}

void
zklock_heartbeat_sent(ZkHeartbeat *heartbeat, int64_t now)
{
	heartbeat->sent = now;
	heartbeat->open = true;
}

void
zklock_heartbeat_answered(ZkHeartbeat *heartbeat)
{
	heartbeat->open = false;
}

bool
zklock_heartbeat_written(ZkHeartbeat *heartbeat, const ZkLease *lease, int64_t sent,
						 int64_t acknowledged, uint32_t random)
{
	int64_t period = zklock_heartbeat_period(lease->timeout);

	if (sent < heartbeat->counts_from)
		return false;
	heartbeat->counts_from = acknowledged + lease->timeout / 8;
	heartbeat->due =
		max(sent + period / 16 * 15 + (int64_t) (random % 1024) * (period / 8) / 1024,
			heartbeat->counts_from);
	return true;
}

/* Is less than "span" left of the lease? */
static bool
runs_out(const ZkLease *lease, int64_t now, int64_t span)
{
	return now >= zklock_lease_end(lease) - span;
}

void
zklock_heartbeat_need(ZkHeartbeat *heartbeat, int64_t now)
{
	heartbeat->resting = false;
	heartbeat->needed_at = now;
}

bool
zklock_heartbeat_rested(ZkHeartbeat *heartbeat, const ZkLease *lease, int64_t now)
{
	bool lapsed = runs_out(lease, now, 0);

	/* a lease that ends now ends while there is need: that is another matter */
	if (!heartbeat->resting && !lapsed)
		heartbeat->rested = false;
	return heartbeat->rested && lapsed;
}

void
zklock_heartbeat_keep(ZkHeartbeat *heartbeat)
{
	heartbeat->rested = false;
}

int64_t
zklock_heartbeat_due(ZkHeartbeat *heartbeat, const ZkLease *lease, int64_t now)
{
	int64_t due = heartbeat->due;
	int64_t soon = lease->timeout / 8;

	if (now - heartbeat->needed_at >= 2 * lease->timeout)
		heartbeat->resting = heartbeat->rested = true;
	if (heartbeat->resting || heartbeat->open)
		return ZKLOCK_NO_HEARTBEAT;
	if (lease->nwrites > 0)
		due = min(due, max(lease->write[0].next, zklock_lease_end(lease) - soon));
	if (runs_out(lease, now, 0) && lease->nwrites > 0)
		due = lease->write[0].next;
	if (heartbeat->sent != 0)
		due = min(due, heartbeat->sent + 2 * lease->timeout);
	/* a refused write was no witness, and the next may be refused, too */
	if (heartbeat->sent != 0)
		due = max(due, heartbeat->sent + lease->timeout / 16);
	return due;
}
