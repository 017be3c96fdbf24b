/*-------------------------------------------------------------------------
 *
 * harness.c
 *	  What the simulators share: random numbers, the trace, failures, main().
 *
 *-------------------------------------------------------------------------
 */
#include "harness.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRACE_LINES 80
#define TRACE_WIDTH 160

uint64_t present_seed;
uint64_t random_state;
long step_count;
bool tracing;

static const char *program;
static jmp_buf failed;
static char failure_text[256];

static bool trace_all;
static char trace_line[TRACE_LINES][TRACE_WIDTH];
static long trace_count;

/* As given on the command line. */
static uint64_t first = 1;
static uint64_t count = 10000;
static const char *mutant;

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

void
trace(const char *format, ...)
{
	char *line = trace_line[trace_count++ % TRACE_LINES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, TRACE_WIDTH, format, args);
	va_end(args);
	if (trace_all)
		printf("# %s\n", line);
}

void
fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(failure_text, sizeof(failure_text), format, args);
	va_end(args);
	longjmp(failed, 1);
}

/* assert() of the C library calls this: a broken assertion of what is played fails the
 * schedule, and so has a seed and a trace. */
void
__assert_fail(const char *assertion, const char *file, unsigned line, const char *function)
{
	const char *name = strrchr(file, '/');

	fail("assertion of %s, %s:%u: %s", function, name ? name + 1 : file, line, assertion);
}

/* A sanitizer's verdict or a crash must name the seed, too. */
static void
on_abort(int signo)
{
	char text[80];
	int len = snprintf(text, sizeof(text), "# signal %d in seed %" PRIu64 "\n", signo,
					   present_seed);

	if (write(STDOUT_FILENO, text, (size_t) len) < 0)
		_exit(2);
	_exit(1);
}

/* True if the schedule went well. */
static bool
goes_well(uint64_t seed)
{
	present_seed = seed;
	step_count = 0;
	trace_count = 0;
	if (setjmp(failed) != 0)
		return false;
	play(seed);
	return true;
}

static const char *
step_name(void)
{
	return simulator.step != NULL ? simulator.step : "step";
}

static void
explain_failure(uint64_t seed)
{
	printf("# seed %" PRIu64 " failed at %s %ld: %s\n", seed, step_name(), step_count,
		   failure_text);
	if (!trace_all)
	{
		tracing = true;
		if (goes_well(seed))
			printf("# ... and not when played again: the simulator is at fault\n");
		for (long i = trace_count > TRACE_LINES ? trace_count - TRACE_LINES : 0;
			 i < trace_count; i++)
			printf("# %s\n", trace_line[i % TRACE_LINES]);
		tracing = false;
	}
	printf("# replay: %s --seed %" PRIu64, program, seed);
	for (size_t i = 0; i < simulator.noptions; i++)
	{
		const Option *option = &simulator.options[i];

		if (option->value != NULL && *option->variable >= 0)
			printf(" %s %d", option->name, *option->variable);
		else if (option->value == NULL && *option->variable != 0)
			printf(" %s", option->name);
	}
	printf(" --trace\n");
}

/* ------------------------------------------------------------------------
 * The command line
 * ------------------------------------------------------------------------
 */

_Noreturn static void
usage(void)
{
	fprintf(stderr,
			"usage: %s [--seeds N] [--first N] [--seed N] [--trace] [--mutant NAME]",
			program);
	for (size_t i = 0; i < simulator.noptions; i++)
	{
		const Option *option = &simulator.options[i];

		fprintf(stderr, " [%s%s%s]", option->name, option->value ? " " : "",
				option->value ? option->value : "");
	}
	fprintf(stderr, "\n");
	exit(2);
}

static uint64_t
number(const char *text, uint64_t max)
{
	char *end;
	uint64_t n;

	if (text == NULL || !isdigit((unsigned char) text[0]))
		usage();
	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end != '\0' || errno != 0 || n > max)
		usage();
	return n;
}

static const Option *
find_option(const char *name)
{
	for (size_t i = 0; i < simulator.noptions; i++)
	{
		if (strcmp(simulator.options[i].name, name) == 0)
			return &simulator.options[i];
	}
	usage();
}

static void
parse(char **arg)
{
	while (*++arg != NULL)
	{
		if (strcmp(*arg, "--trace") == 0)
			tracing = trace_all = true;
		else if (strcmp(*arg, "--seeds") == 0)
			count = number(*++arg, UINT64_MAX);
		else if (strcmp(*arg, "--first") == 0)
			first = number(*++arg, UINT64_MAX);
		else if (strcmp(*arg, "--seed") == 0)
		{
			first = number(*++arg, UINT64_MAX);
			count = 1;
		}
		else if (strcmp(*arg, "--mutant") == 0 && arg[1] != NULL)
			mutant = *++arg;
		else
		{
			const Option *option = find_option(*arg);

			*option->variable =
				option->value ? (int) number(*++arg, (uint64_t) option->max) : 1;
		}
	}
}

/* ------------------------------------------------------------------------
 * A run
 * ------------------------------------------------------------------------
 */

int
report_counts(const char *what, const long *counts, const char *const *name, int n)
{
	int missing = 0;

	for (int i = 0; i < n; i++)
	{
		printf("# %10ld %s%s\n", counts[i], what, name[i]);
		missing += counts[i] == 0;
	}
	return missing;
}

static double
seconds(void)
{
	return (double) clock() / CLOCKS_PER_SEC;
}

int
main(int argc, char **argv)
{
	bool complete; /* the report must be */
	long steps = 0;
	int missing;

	(void) argc;
	program = argv[0];
	parse(argv);
	complete = !mutant && count > 1 && count >= simulator.enough;
	signal(SIGABRT, on_abort);

	printf("1..%d\n", complete ? 2 : 1);
	for (uint64_t seed = first; seed < first + count; seed++)
	{
		bool good = goes_well(seed);

		steps += step_count;
		if (good)
			continue;
		if (mutant)
		{
			printf("ok 1 - %s is found out by seed %" PRIu64 ": %s (%.1f s)\n", mutant,
				   seed, failure_text, seconds());
			return EXIT_SUCCESS;
		}
		explain_failure(seed);
		printf("not ok 1 - seed %" PRIu64 "\n", seed);
		return EXIT_FAILURE;
	}

	if (mutant)
	{
		printf("not ok 1 - %s survives %" PRIu64 " schedules\n", mutant, count);
		return EXIT_FAILURE;
	}
	printf("ok 1 - %" PRIu64 " %s, %ld %ss (%.1f s)\n", count, simulator.schedules, steps,
		   step_name(), seconds());
	if (count == 1)
		return EXIT_SUCCESS;
	missing = report_counts("", coverage, coverage_name, simulator.ncoverage);
	if (simulator.report != NULL)
		missing += simulator.report();
	if (!complete)
		return EXIT_SUCCESS;
	printf("%s 2 - every kind of thing happened%s\n", missing ? "not ok" : "ok",
		   missing ? ", but for those with 0" : "");
	return missing ? EXIT_FAILURE : EXIT_SUCCESS;
}
