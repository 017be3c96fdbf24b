/*-------------------------------------------------------------------------
 *
 * semaphore_siblings.c
 *	  Tells the places of one name on one server what they have to know about each other.
 *
 *-------------------------------------------------------------------------
 */
#include "semaphore_siblings.h"

/* Is its number known, and does it need to know whether it is its turn? */
static bool
waits(const ZkContender *c)
{
	return (c->state == ZKLOCK_QUEUED && c->token != 0) || c->state == ZKLOCK_WAITING;
}

int64_t
zklock_semaphore_siblings_waiting(const ZkLockQueue *place)
{
	int64_t first = INT64_MAX;

	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &place->contender[i];

		if (waits(c) && c->sequence < first)
			first = c->sequence;
	}
	return first;
}

void
zklock_semaphore_siblings_add(ZkLockEvent *event, const ZkLockQueue *other)
{
	int64_t waiting = zklock_semaphore_siblings_waiting(other);

	if (waiting < event->leader)
		event->leader = waiting;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &other->contender[i];

		event->beside += waits(c) || c->state == ZKLOCK_GRANTED ||
			(c->state == ZKLOCK_CREATING && c->create_sent);
	}
}

int
zklock_semaphore_siblings_ended(const ZkLockQueue *before, const ZkLockQueue *after,
								const ZkLockActions *actions, int64_t first)
{
	int n = 0;

	/* of those that ended while it waited first it alone has heard */
	if (zklock_semaphore_siblings_waiting(before) < first &&
		zklock_semaphore_siblings_waiting(after) > first)
		return ZKLOCK_ENDED_UNKNOWN;
	for (int i = 0; i < actions->n; i++)
	{
		const ZkLockAction *action = &actions->action[i];

		n += action->type == ZKLOCK_ACT_DELETE && action->sequence < first;
	}
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *old = &before->contender[i];
		const ZkContender *new = &after->contender[i];

		/* somebody else has deleted it */
		n += (waits(old) || old->state == ZKLOCK_GRANTED) && old->sequence < first &&
			(new->state == ZKLOCK_FREE || new->uuid != old->uuid ||
			 new->state == ZKLOCK_UNSETTLED);
	}
	return n;
}

bool
zklock_semaphore_siblings_is_led(const ZkLockQueue *place)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (place->contender[i].led)
			return true;
	}
	return false;
}

bool
zklock_semaphore_siblings_leaves(const ZkContender *c)
{
	return c->state == ZKLOCK_DELETING && c->delete_sent && !c->delete_refused;
}
