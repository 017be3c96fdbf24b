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

/* An operation beside the object that it is of.  One may be of several: that a queue is
 * empty is asked of each of its items. */
typedef struct Asked
{
	int kind;
	int name;
	int64_t part;
	const Op *op;
} Asked;

typedef struct Object
{
	int kind;
	int name;
	int64_t part; /* an item or a slot, or NOTHING */
	Step *steps;
	int n;
	bool shares;   /* some would have it shared */
	bool reenters; /* somebody took it twice */
} Object;

/* All operations, those of one object together. */
typedef struct List
{
	Asked *asked;
	long n;
	long size;
} List;

extern void prepare(const History *history, List *list);

/* The object whose operations begin there; returns where those of the next one do. */
extern long make_object(Object *object, const List *list, long first);

/* Its models, NULL behind them. */
extern void models_of(const Object *object, const Model *models[3]);

#endif
