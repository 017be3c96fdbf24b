/*-------------------------------------------------------------------------
 *
 * mailbox.c
 *	  Lets backends and the worker leave messages for each other in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "mailbox.h"
#include "table.h"

void
zklock_mailbox_post(ZkMailbox *box)
{
	pg_atomic_write_u32(&box->posted, 1);
	zklock_worker_wake();
}

bool
zklock_mailbox_posted(ZkMailbox *box)
{
	Assert(zklock_in_worker());
	return pg_atomic_exchange_u32(&box->posted, 0) != 0;
}

uint32
zklock_mailbox_serial(ZkMailbox *box)
{
	Assert(LWLockHeldByMeInMode(box->lock, LW_EXCLUSIVE));
	if (++box->last_serial == 0)
		box->last_serial = 1;
	return box->last_serial;
}
