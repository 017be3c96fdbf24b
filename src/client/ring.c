/*-------------------------------------------------------------------------
 *
 * ring.c
 *	  Makes the library try the host of our choice next, by turning its list of hosts.
 *
 *-------------------------------------------------------------------------
 */
#include "ring.h"

#include <stdio.h>
#include <string.h>

static void
turn(zhandle_t *zh, char *name)
{
	zoo_cycle_next_server(zh);
	snprintf(name, ZKLOCK_TRIES_NAME, "%s", zoo_get_current_server(zh));
}

/* At first the library goes once through a list that it considers new. */
static void
learn(ZkRing *ring, zhandle_t *zh, int naddresses)
{
	char name[ZKLOCK_TRIES_NAME];

	for (int i = 0; i <= naddresses; i++)
		turn(zh, name);
	turn(zh, ring->name[ring->n++]);
	for (int i = 1; i < naddresses && ring->n < ZKLOCK_TRIES_MAX; i++)
	{
		turn(zh, ring->name[ring->n]);
		/* it may use fewer than it was given */
		if (strcmp(ring->name[ring->n], ring->name[0]) == 0)
			break;
		ring->n++;
	}
}

const char *
zklock_ring_turn(ZkRing *ring, zhandle_t *zh, int naddresses, ZkTries *tries,
				 uint32_t random)
{
	const char *names[ZKLOCK_TRIES_MAX];
	char name[ZKLOCK_TRIES_NAME] = "";
	int next;

	if (ring->n == 0)
		learn(ring, zh, naddresses);
	for (int i = 0; i < ring->n; i++)
		names[i] = ring->name[i];
	zklock_tries_set(tries, names, ring->n);
	next = zklock_tries_next(tries, random);
	/* it turns once more by itself: to this host, when all others have had their turn */
	for (int i = 0; i < naddresses && strcmp(name, ring->name[next]) != 0; i++)
		turn(zh, name);
	for (int i = 1; i < naddresses; i++)
		turn(zh, name);
	return ring->name[next];
}
