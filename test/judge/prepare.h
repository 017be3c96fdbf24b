/*-------------------------------------------------------------------------
 *
 * prepare.h
 *	  Turns operations into steps: an object's questions and answers, as its models know
 *	  them.
 *
 * An object is a lock, a semaphore, an election, a barrier or a register by its name,
 * one item of a queue, or one slot of a job.  Each object has an order exactly if all
 * of them together have one (Herlihy and Wing).
 *
 * A process that holds a lock may have lost it, and is told when it asks.  So a hold
 * ends with the last answer that confirmed it, its last claim.  What comes after, such
 * as zk_unlock or a COMMIT that failed, claims nothing, and is left out.  Then the step
 * of the last claim ends the hold, too.  An end that comes earlier can harm nobody,
 * because nobody claims anything any more.  Nor does it matter that someone took a lock
 * and was never told of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PREPARE_H
#define PREPARE_H

#include "models.h"

/* An operation beside its object.  One operation may be of several objects: the
 * answer that a queue is empty is about each of its items. */
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

/* All operations, grouped by object. */
typedef struct List
{
	Asked *asked;
	long n;
	long size;
} List;

extern void prepare(const History *history, List *list);

/* Makes the object whose operations begin there; returns where those of the next one
 * begin. */
extern long make_object(Object *object, const List *list, long first);

/* Returns its models, with NULL behind them. */
extern void models_of(const Object *object, const Model *models[3]);

#endif
