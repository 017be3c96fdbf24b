/*-------------------------------------------------------------------------
 *
 * drain.h
 *	  zklock.drain: this server is taken out of service.
 *
 * While it drains, it stands in no election, begins no run of a job, and keeps no
 * lock for nobody.  Whoever asks for a lock gets it.  So sooner or later it has
 * nothing left in the ensemble, and can be stopped without anybody noticing: it is
 * drained.  Whoever takes a lock then makes it drain again.
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

/* Nothing that would have to be given up is to be begun.  As the worker has read the
 * setting: so all see the same. */
static inline bool
zklock_draining(void)
{
	return zklock_shared->draining;
}

/* How far is it?  A look at the whole lock table while it drains. */
extern ZkDrain zklock_drain_state(void);

/* "off", "draining", "drained" */
extern const char *zklock_drain_name(ZkDrain state);

#endif /* ZKLOCK_DRAIN_H */
