/*-------------------------------------------------------------------------
 *
 * search.h
 *	  Finds out whether a history is linearizable, by Wing and Gong's search with Lowe's
 *	  cache.
 *
 * Can each step of a history have taken effect at one moment between its call and its
 * return?  It can if a model permits an order of all steps in which no step comes
 * before one that had returned when it was called.  Wing and Gong ("Testing and
 * verifying concurrent objects", 1993) look for the order: they try each step that may
 * come next, and go back where none fits.  Lowe ("Testing for linearizability", 2017)
 * remembers which set of steps led to which state, and never looks at both again.  Horn
 * and Kroening's linked list, as in Porcupine, finds the steps that may come next.
 *
 * An optional step, whose outcome nobody knows, may be left out.
 *
 * The key of a set is the sum (exclusive or) of random numbers of 128 bits, one for
 * each step.  It is less likely that two sets of a search have the same key than that
 * the machine fails.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SEARCH_H
#define SEARCH_H

#include "history.h"

/* The most words of a state; a state that would need more is not decided. */
#define STATE_WORDS 256

typedef struct State
{
	int n;
	int64_t word[STATE_WORDS];
} State;

/* What a step does; models.h says which of these a model knows. */
typedef enum Function
{
	ACQUIRE,
	CHECK,
	RELEASE,
	COMMIT,
	LEAD,
	PUT,
	TAKE,
	GIVE_BACK,
	DONE,
	EMPTY,
	RAN,
	TOLD,
	SKIPPED,
	COUNT,
	ARRIVE,
	READ,
	CAS,
	FENCE
} Function;

typedef struct Step
{
	Function f;
	int process;
	int server;
	int64_t call;
	int64_t ret;   /* FOREVER: it may take effect at any time after the call */
	bool optional; /* or never */
	bool last;	   /* nothing is claimed of the hold any more: the step ends it, too */
	bool shared;
	bool excused;	/* the ensemble went back, and may have forgotten */
	bool forgiving; /* a server was lost that may not have told what it committed */
	int64_t token;	/* or NOTHING */
	int64_t number; /* of a permit, or an item's id; the slot's commits; a register's new value */
	int64_t limit; /* permits, parties; a register's old value */
	const Op *op;
} Step;

typedef enum Mark
{
	NO_MARK,
	REPEATED,  /* what was done is done again */
	FORGOTTEN, /* what was put is lost, with what the ensemble lost */
	MARKS
} Mark;

typedef struct Model
{
	const char *name;
	void (*begin)(State *state);
	/* False if the step cannot come in this state.  "next" is a copy of "state". */
	bool (*step)(const Step *step, const State *state, State *next);
	/* May a history end so?  NULL: always */
	bool (*end)(const State *state);
	/* Writes at most "size" bytes: what the state is, for people. */
	void (*describe)(const State *state, char *text, size_t size);
	/* Marks a permitted step, which is counted.  NULL: no step is */
	Mark (*mark)(const Step *step, const State *state);
} Model;

typedef enum Verdict
{
	LINEARIZABLE,
	ANOMALY,
	UNDECIDED
} Verdict;

typedef struct Finding
{
	Verdict verdict;
	long tried;
	long marks[MARKS];	  /* of the order that was found */
	const char *why;	  /* undecided */
	const Step *blocked;  /* of an anomaly: what returned first and fits nowhere */
	int before;			  /* so many steps had an order */
	State state;		  /* after these */
	const Step *order[8]; /* the last of these; NULL behind them */
} Finding;

/* Steps tried, and seconds, until a search is given up. */
typedef struct Limits
{
	long steps;
	double seconds;
} Limits;

extern void search(const Model *model, const Step *steps, int n, const Limits *limits,
				   Finding *finding);

/* A model that cannot hold a state sets this. */
extern bool state_full;

#endif
