/*-------------------------------------------------------------------------
 *
 * world.h
 *	  What the simulated servers compete for: locks (sim.c), or permits (semaphore_sim.c).
 *
 * All else is theirs in common: ZooKeeper (model.c), the worker (server.c), the table
 * (local.c), and what can happen to them (schedule.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "schedule.h"
#include "server.h"

typedef struct World
{
	/* Sets nservers, ndirs, nqueues, and calls server_init. */
	void (*begin)(void);
	const Kind *kinds; /* what can happen besides */
	int nkinds;
	int nbackends;		 /* of a table, that schedule.c lets act */
	bool (*quiet)(void); /* nobody holds or waits, but for those; or NULL */
	void (*lull)(void);	 /* is called now and then when faults have stopped; or NULL */

	/* Is it the turn of our contender, which is granted and exists? */
	void (*check_turn)(Server *server, int queue, const Node *own);
	/* Was there a reason since then not to be granted it? */
	bool (*was_blocked)(const Server *server, int queue, ZkLockMode mode, int64_t since);
	/* Invariants; after each step. */
	void (*check)(void);
	/* Notices what is worth counting. */
	void (*observe)(const Server *server, int queue, const ZkLockEvent *event,
					const ZkLockQueue *before, const ZkLockActions *actions);
	/* Something in the server's tables may have changed. */
	void (*notice)(Server *server);
} World;

extern const World world;

#endif /* SIM_WORLD_H */
