/*-------------------------------------------------------------------------
 *
 * drain.h
 *	  Drains this server for zklock.drain: it takes the server out of service.
 *
 * While the server drains, it stands in no election, begins no run of a job, and keeps
 * no grant that nobody holds.  A session that asks for a lock gets it.  So sooner or
 * later the server has nothing left in the ensemble, and can be stopped without anybody
 * noticing: it is drained.  If a session then takes a lock, the server drains again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DRAIN_H
#define ZKLOCK_DRAIN_H

#include "table.h"

typedef enum ZkDrain
{
	ZKLOCK_DRAIN_OFF,
	ZKLOCK_DRAIN_ON,
	ZKLOCK_DRAIN_DONE
} ZkDrain;

/* Must this server begin nothing that it would have to give up?  Uses the setting as
 * the worker has read it: so all see the same. */
static inline bool
zklock_draining(void)
{
	return zklock_shared->draining;
}

/* How far is the server?  While it drains, this looks at the whole lock table. */
extern ZkDrain zklock_drain_state(void);

/* "off", "draining", "drained" */
extern const char *zklock_drain_name(ZkDrain state);

#endif /* ZKLOCK_DRAIN_H */
