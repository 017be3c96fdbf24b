/*-------------------------------------------------------------------------
 *
 * set_rules.c
 *	  Decides when a set's contenders are made, and when the set is granted.
 *
 *-------------------------------------------------------------------------
 */
#include "set_rules.h"

void
zklock_set_count(ZkSetCount *count, const ZkLockQueue *queue, ZkLockMode mode, uint64_t set)
{
	bool fixed;
	ZkLockPart part = zklock_lock_queue_part(queue, mode, set, &fixed);

	count->total++;
	count->part[part]++;
	if (part >= ZKLOCK_PART_QUEUED && fixed)
		count->fixed = true;
}

ZkSetVerdict
zklock_set_judge(const ZkSetCount *count)
{
	if (count->part[ZKLOCK_PART_GRANTED] == count->total)
		return ZKLOCK_SET_GRANTED;
	if (count->part[ZKLOCK_PART_READY] == 0)
		return ZKLOCK_SET_WAIT;
	if (count->part[ZKLOCK_PART_UNREADY] > 0 || count->part[ZKLOCK_PART_SENT] > 0)
		return ZKLOCK_SET_WAIT;
	return count->fixed ? ZKLOCK_SET_WAIT : ZKLOCK_SET_SEND;
}

ZkLockRc
zklock_set_outcome(ZkLockRc rc, int failed, int op, bool creates)
{
	if (rc == ZKLOCK_RC_OK || rc == ZKLOCK_RC_LOST || op == failed)
		return rc;
	if (failed < 0)
		return creates ? rc : ZKLOCK_RC_UNDONE;
	/* where one directory is missing, others mostly are, and making one does no harm */
	if (rc == ZKLOCK_RC_NO_NODE && op > failed && creates)
		return rc;
	return ZKLOCK_RC_UNDONE;
}
