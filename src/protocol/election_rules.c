/*-------------------------------------------------------------------------
 *
 * election_rules.c
 *	  Decides when a leader gives way to a candidate of higher priority.
 *
 *-------------------------------------------------------------------------
 */
#include "election_rules.h"

bool
zklock_election_is_better(int priority, const ZkRival *rival, const ZkRival *best)
{
	return rival->priority > priority && (best->since == 0 || rival->since < best->since);
}

bool
zklock_election_yields(int priority, const ZkRival *rival, int64_t now, int64_t timeout)
{
	if (rival->priority <= priority)
		return false;
	return now - rival->since >= 2 * timeout;
}
