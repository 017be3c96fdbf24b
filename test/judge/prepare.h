/*-------------------------------------------------------------------------
 *
 * prepare.h
 *	  From operations to steps: what was asked of one object, as its models know it.
 *
 * An object is a lock, a semaphore, an election, a barrier or a register by its name, one
 * item of a queue, or one slot of a job: that each object has an order is as much as that
 *all have one together (Herlihy and Wing).
 *
 * A process that holds a lock may have lost it, and is told when it asks.  So a hold ends
 *with the last answer that confirmed it, its last claim; what comes after, such as
 *zk_unlock or a COMMIT that failed, claims nothing, and is left out.  Then the step of
 *the last claim ends the hold, too: nobody can be harmed by an end that comes earlier,
 *for nothing is claimed any more.  Nor does it matter that a lock was taken by someone
 *who was never told of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PREPARE_H
#define PREPARE_H

#include "models.h"

typedef struct Object
{
	int kind;
	int name;
	int64_t part; /* an item or a slot, or NOTHING */
	Step *steps;
	int n;
	long ops;
	bool shares;   /* some would have it shared */
	bool reenters; /* somebody took it twice */
} Object;

typedef struct Objects
{
	Object *objects;
	int n;
} Objects;

extern void prepare(const History *history, Objects *objects);

/* Its models, NULL behind them. */
extern void models_of(const Object *object, const Model *models[3]);

#endif
