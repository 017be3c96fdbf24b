/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Until when this server may believe in its grants.
 *
 * ZKLOCK_LEASE_MUTANT, if defined, breaks the rule on purpose, for the test of
 * the simulator: 1 counts from the receipt of the proof, 2 takes reads for
 * writes (in the simulator heartbeats are reads, then), 3 is content with one
 * write, 4 with two and 3/4 of the timeout, 5 lets the timeout grow (4 and 5 were
 * the rule until the simulator broke them), 6 leaves no time for a second round
 * of pings.  Of a connection 7 counts from the answer, 8 asks for no write, 9 for one
 * though the lease had lapsed, 10 for one even then, but after a pause.  (With 11 the
 * simulator's learners answer for the leader.)
 *
 *-------------------------------------------------------------------------
 */
#include "lease.h"

#include <assert.h>
#include <string.h>

#ifndef ZKLOCK_LEASE_MUTANT
#define ZKLOCK_LEASE_MUTANT 0
#endif

/* How long after the acknowledgement of the write, and then of each witness, the
 * next witness is sent at the earliest: parts of the timeout. */
#if ZKLOCK_LEASE_MUTANT == 4
static const int gap[] = {4};
#elif ZKLOCK_LEASE_MUTANT == 6
static const int gap[] = {8, 16};
#else
static const int gap[] = {8, 8, 16};
#endif
#define WITNESSES ((int) (sizeof(gap) / sizeof(gap[0])))

#ifndef NDEBUG
/* What holds at any time (src/README, Invariants); for tests. */
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
	bool good = answered < zklock_lease_end(lease) || ZKLOCK_LEASE_MUTANT == 9;

	assert(timeout > 0 && asked <= answered);
	/* a shorter timeout binds at once what was proven under a longer one */
	if (timeout < lease->timeout || ZKLOCK_LEASE_MUTANT == 5)
		lease->timeout = timeout;

	/* revalidation is a touch, and needs no rounds of pings */
	m->sent = ZKLOCK_LEASE_MUTANT == 7 ? answered : asked;
	m->witnesses = good || ZKLOCK_LEASE_MUTANT == 10 ? WITNESSES - 1 : WITNESSES - 2;
	m->next = good ? answered : answered + lease->timeout / gap[WITNESSES - 1];
	lease->nwrites = 1;
#if ZKLOCK_LEASE_MUTANT == 8
	lease->proven = asked;
	lease->last_write = asked;
#endif
}

void
zklock_lease_write(ZkLease *lease, int64_t sent, int64_t acknowledged)
{
	int proven = 0;

	assert(sent <= acknowledged);
	if (lease->timeout == 0)
		return;
#if ZKLOCK_LEASE_MUTANT == 3
	lease->proven = sent;
#endif
	if (sent > lease->last_write)
		lease->last_write = sent;

	/* Whatever was acknowledged long enough before has one witness more.  An
	 * older write has never fewer than a newer one. */
	for (int i = 0; i < lease->nwrites; i++)
	{
		ZkLeaseWrite *m = &lease->write[i];

		if (m->next > sent)
			continue;
		if (++m->witnesses == WITNESSES)
			proven = i + 1;
		else
			m->next = acknowledged + lease->timeout / gap[m->witnesses];
	}
	if (proven > 0)
	{
		if (lease->write[proven - 1].sent > lease->proven)
			lease->proven = lease->write[proven - 1].sent;
#if ZKLOCK_LEASE_MUTANT == 1
		lease->proven = acknowledged;
#endif
		lease->nwrites -= proven;
		memmove(lease->write, lease->write + proven,
				sizeof(ZkLeaseWrite) * (size_t) lease->nwrites);
	}

	/* It may be proven itself.  Without room it is not, which is safe. */
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

int64_t
zklock_lease_next_witness(const ZkLease *lease)
{
	return lease->nwrites == 0 ? 0 : lease->write[lease->nwrites - 1].next;
}

int64_t
zklock_lease_end(const ZkLease *lease)
{
	if (lease->proven == 0)
		return 0;
#if ZKLOCK_LEASE_MUTANT == 4
	return lease->proven + lease->timeout / 4 * 3;
#else
	return lease->proven + lease->timeout / 8 * 7;
#endif
}

int64_t
zklock_lease_lost_at(const ZkLease *lease)
{
	return lease->last_write == 0 ? 0 : lease->last_write + lease->timeout;
}
