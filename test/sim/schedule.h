/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Seeded schedules of what can happen to servers and to the ensemble.
 *
 * A schedule has three phases.  In the first, everything happens at random:
 * backends want, hold and give up, connections break, sessions expire,
 * workers die, directories are reaped, foreign contenders come and go.  In the
 * second, faults have stopped and nobody gives up: everybody who waits must
 * get what he wants in turn, without the help of a tick, or be told of a deadlock.
 * In the third there is no need any more, and nothing may be left.  The invariants
 * are checked after every step (server.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "server.h"

#define CALM_STEPS 20000 /* everybody must have had his turn by then */

typedef enum Phase
{
	PHASE_CHAOS,
	PHASE_CALM,
	PHASE_DRAIN,
	NPHASES
} Phase;

/* Its weight varies from seed to seed; but for one seed in ten it does not happen; it is
 * a new wish; it is how news get around. */
#define KIND_FAULT 1
#define KIND_RARE  2
#define KIND_WISH  4
#define KIND_NEWS  8

/* Something that can happen, to a server, to a queue, or in a directory; each returns
 * whether it did anything. */
typedef struct Kind
{
	const char *name;
	int weight[NPHASES];
	int flags;
	bool (*server)(Server *server);
	bool (*queue)(Server *server, int queue);
	bool (*dir)(int dir);
} Kind;

extern Phase phase;

/* Mostly this one wants, to write, and no foreigner comes; NULL: no such. */
extern Server *recurring;

/* A backend by chance, or the one whose turn it is in a scan of them all. */
extern int some_backend(void);

/* Some node of the directory, foreign or ours; -1 if there is none. */
extern int some_node(int dir, bool foreign);

/* May a foreigner come?  Makes the directory if need be. */
extern bool foreigner_may_come(int dir);

/* News get around until there are none; nobody does anything else. */
extern void spread_news(void);

#endif /* SIM_SCHEDULE_H */
