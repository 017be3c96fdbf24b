/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Until when this server may believe in its grants.
 *
 * ZKLOCK_LEASE_MUTANT, if defined, breaks the rule on purpose, for the test of
 * the simulator: 1 counts from the receipt of the acknowledgement, 2 takes
 * reads for writes (the simulator feeds them), 3 is content with one write.
 *
 *-------------------------------------------------------------------------
 */
#include "lease.h"

#include <string.h>

#ifndef ZKLOCK_LEASE_MUTANT
#define ZKLOCK_LEASE_MUTANT 0
#endif

void
zklock_lease_init(ZkLease *lease)
{
	memset(lease, 0, sizeof(*lease));
}

void
zklock_lease_new_session(ZkLease *lease, int64_t timeout, int64_t opened)
{
	zklock_lease_init(lease);
	lease->timeout = timeout;
	lease->proven = opened;
	lease->last_write = opened;
}

void
zklock_lease_new_connection(ZkLease *lease, int64_t timeout)
{
	/* a shorter timeout binds at once what was proven under a longer one */
	lease->timeout = timeout;
	lease->nwrites = 0;
}

void
zklock_lease_write(ZkLease *lease, int64_t sent, int64_t acknowledged)
{
	int proven = 0;

	if (lease->timeout == 0)
		return;
#if ZKLOCK_LEASE_MUTANT == 1
	sent = acknowledged;
#endif
#if ZKLOCK_LEASE_MUTANT == 3
	lease->proven = sent;
#endif
	if (sent > lease->last_write)
		lease->last_write = sent;

	/* This is an n; what was acknowledged long enough before it are m's. */
	while (proven < lease->nwrites &&
		   lease->write[proven].acknowledged + lease->timeout / 4 <= sent)
		proven++;
	if (proven > 0)
	{
		if (lease->write[proven - 1].sent > lease->proven)
			lease->proven = lease->write[proven - 1].sent;
		lease->nwrites -= proven;
		memmove(lease->write, lease->write + proven,
				sizeof(ZkLeaseWrite) * (size_t) lease->nwrites);
	}

	/* It may become an m itself.  Without room it does not, which is safe. */
	if (lease->nwrites < ZKLOCK_LEASE_WRITES &&
		(lease->nwrites == 0 ||
		 sent >= lease->write[lease->nwrites - 1].sent + lease->timeout / 64))
	{
		lease->write[lease->nwrites].sent = sent;
		lease->write[lease->nwrites].acknowledged = acknowledged;
		lease->nwrites++;
	}
}

int64_t
zklock_lease_end(const ZkLease *lease)
{
	return lease->proven == 0 ? 0 : lease->proven + lease->timeout / 4 * 3;
}

int64_t
zklock_lease_lost_at(const ZkLease *lease)
{
	return lease->last_write == 0 ? 0 : lease->last_write + lease->timeout;
}
