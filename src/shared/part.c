/*-------------------------------------------------------------------------
 *
 * part.c
 *	  Requests and starts the parts of shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/ipc.h"
#include "storage/shmem.h"

#include "part.h"

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

			Assert(part->size() >= sizeof(*box));
			box->lock = &GetNamedLWLockTranche(part->name)->lock;
			pg_atomic_init_u32(&box->posted, 0);
		}
		if (part->init != NULL)
			part->init();
	}
	LWLockRelease(AddinShmemInitLock);
}
