/*-------------------------------------------------------------------------
 *
 * harness.h
 *	  What the simulators share: random numbers, the trace, failures, main().
 *
 * A simulator plays schedules, each of which depends on its seed alone.  One
 * that fails is played again with the trace on, and its last lines are printed.
 * After many schedules a report tells whether everything has happened that
 * should be tried.
 *
 * Usage of each: [--seeds N] [--first N] [--seed N] [--trace] [--mutant NAME],
 * and the simulator's own options.  --seed plays one schedule; --mutant turns
 * the verdict round: some seed must fail.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_HARNESS_H
#define SIM_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

typedef struct Option
{
	const char *name;
	const char *value; /* what usage calls it; NULL: a flag */
	int *variable;	   /* a flag's becomes 1; another's that is < 0 is not set */
	int max;
} Option;

typedef struct Simulator
{
	const char *schedules; /* what it plays */
	const char *step;	   /* what step_count counts; NULL: steps */
	uint64_t enough;	   /* schedules after which it must be complete */
	const Option *options;
	size_t noptions;
	int ncoverage;
	int (*report)(void); /* prints more; returns how much has not happened; or NULL */
} Simulator;

/* Each program has one; harness.c's main() plays it, and prints what came of that in TAP. */
extern const Simulator simulator;

/* The program's, too: plays one schedule.  Sets random_state; may fail(). */
extern void play(uint64_t seed);

/* The present schedule. */
extern uint64_t present_seed;
extern uint64_t random_state;
extern long step_count;
extern void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Adds a line to the trace; only to be called while tracing. */
extern bool tracing;
extern void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define TRACE_LINE(...)                                                                  \
	do                                                                                   \
	{                                                                                    \
		if (tracing)                                                                     \
			trace(__VA_ARGS__);                                                          \
	} while (0)

/* Counters of what must have happened at least once in a run, for the report. */
extern long coverage[];
extern const char *const coverage_name[];
#define COVER(what) (coverage[COVER_##what]++)

/* Prints counters with their names; returns how many are 0. */
extern int report_counts(const char *what, const long *count, const char *const *name,
						 int n);

/* splitmix64: any seed is as good as any other */
static inline uint64_t
random_bits(void)
{
	uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* A number below n; true once in n. */
#define random_below(n) ((int) (random_bits() % (uint64_t) (n)))
#define once_in(n)		(random_below(n) == 0)

#endif /* SIM_HARNESS_H */
