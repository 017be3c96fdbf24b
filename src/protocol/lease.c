/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Computes until when this server may believe in its grants.
 *
 *-------------------------------------------------------------------------
 */
#include "lease.h"

#include <assert.h>
#include <string.h>

/* The least time before the next witness is sent: after the acknowledgement of the
 * write, and then of each witness.  Parts of the timeout.  The last one is for a lease
 * that has lapsed. */
static const int gap[] = {8, 8, 16, 16};
#define WITNESSES ((int) (sizeof(gap) / sizeof(gap[0])))

#ifndef NDEBUG
/* Checks the invariants (src/README, Invariants); for tests. */
static void
check_lease(const ZkLease *lease)
{
	assert(lease->timeout >= 0);
	assert(lease->nwrites >= 0 && lease->nwrites <= ZKLOCK_LEASE_WRITES);
	/* what is proven was acknowledged; no lease outlives what the ensemble grants */
	assert(lease->proven <= lease->last_write);
	assert(zklock_lease_end(lease) <= zklock_lease_lost_at(lease));
	for (int i = 0; i < lease->nwrites; i++)
	{
		const ZkLeaseWrite *m = &lease->write[i];

		assert((i == 0 || m->sent <= lease->last_write) && m->sent <= m->next);
		assert(m->witnesses >= 0 && m->witnesses < WITNESSES);
		assert(i == 0 || (m[-1].sent <= m->sent && m[-1].witnesses >= m->witnesses));
	}
}
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
	assert(timeout > 0 && opened > 0);
	lease->timeout = timeout;
	lease->proven = opened;
	lease->last_write = opened;
}

void
zklock_lease_new_connection(ZkLease *lease, int64_t timeout, int64_t asked, int64_t answered)
{
	ZkLeaseWrite *m = &lease->write[0];
	bool good = answered < zklock_lease_end(lease);

	assert(timeout > 0 && asked <= answered);
	/* a shorter timeout binds at once what was proven under a longer one */
	if (timeout < lease->timeout)
		lease->timeout = timeout;

	/* revalidation is a touch, and needs no rounds of pings */
	m->sent = asked;
	m->witnesses = good ? WITNESSES - 1 : WITNESSES - 2;
	m->next = good ? answered : answered + lease->timeout / gap[WITNESSES - 1];
	lease->nwrites = 1;
}

void
zklock_lease_write(ZkLease *lease, int64_t sent, int64_t acknowledged)
{
	int needed = acknowledged < zklock_lease_end(lease) ? WITNESSES - 1 : WITNESSES;
	int proven = 0;

	assert(sent <= acknowledged);
	if (lease->timeout == 0)
		return;
	zklock_lease_heard(lease, sent);

	/* Each write that was acknowledged long enough before has one more witness.  An
	 * older write never has fewer than a newer one. */
	for (int i = 0; i < lease->nwrites; i++)
	{
		ZkLeaseWrite *m = &lease->write[i];

		if (m->next > sent)
			continue;
		if (++m->witnesses >= needed)
			proven = i + 1;
		else
			m->next = acknowledged + lease->timeout / gap[m->witnesses];
	}
	if (proven > 0)
	{
		if (lease->write[proven - 1].sent > lease->proven)
			lease->proven = lease->write[proven - 1].sent;
		lease->nwrites -= proven;
		memmove(lease->write, lease->write + proven,
				sizeof(ZkLeaseWrite) * (size_t) lease->nwrites);
	}

	/* This write may be proven later.  Without room for it it is not, which is safe. */
	if (lease->nwrites < ZKLOCK_LEASE_WRITES &&
		(lease->nwrites == 0 ||
		 sent >= lease->write[lease->nwrites - 1].sent + lease->timeout / 64))
	{
		ZkLeaseWrite *m = &lease->write[lease->nwrites++];

		m->sent = sent;
		m->next = acknowledged + lease->timeout / gap[0];
		m->witnesses = 0;
	}
#ifndef NDEBUG
	check_lease(lease);
#endif
}

void
zklock_lease_heard(ZkLease *lease, int64_t sent)
{
	if (lease->timeout != 0 && sent > lease->last_write)
		lease->last_write = sent;
}

int64_t
zklock_lease_end(const ZkLease *lease)
{
	if (lease->proven == 0)
		return 0;
	return lease->proven + lease->timeout / 8 * 7;
}

int64_t
zklock_lease_lost_at(const ZkLease *lease)
{
	return lease->last_write == 0 ? 0 : lease->last_write + lease->timeout;
}
