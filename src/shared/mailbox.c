/*-------------------------------------------------------------------------
 *
 * mailbox.c
 *	  Mailboxes, and the start of shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/ipc.h"
#include "storage/shmem.h"

#include "mailbox.h"
#include "table.h"

void
zklock_part_request(const ZkSharedPart *part)
{
	RequestAddinShmemSpace(MAXALIGN(part->size()));
	if (part->nlocks > 0)
		RequestNamedLWLockTranche(part->name, part->nlocks);
}

/*
 * Runs in the postmaster at start and after a crash of any child: then the memory is
 * new, and nobody has anything.
 */
void
zklock_part_startup(const ZkSharedPart *part)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	*part->memory = ShmemInitStruct(part->name, part->size(), &found);
	if (part->attach != NULL)
		part->attach();
	if (!found)
	{
		memset(*part->memory, 0, part->size());
		if (part->nlocks == 1)
		{
			ZkMailbox *box = *part->memory;

			box->lock = &GetNamedLWLockTranche(part->name)->lock;
			pg_atomic_init_u32(&box->posted, 0);
		}
		if (part->init != NULL)
			part->init();
	}
	LWLockRelease(AddinShmemInitLock);
}

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
