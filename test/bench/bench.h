/*-------------------------------------------------------------------------
 *
 * bench.h
 *	  What the clients in C have in common: a clock, and the median.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/*
 * Where one thing is measured alone, all have been idle for so long when it begins,
 * whoever is measured: a CPU that has gone to sleep takes a while to wake.
 */
#define IDLE_US 5000

static inline void __attribute__((noreturn, format(printf, 1, 2)))
fatal(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static inline double
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}

static inline int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return (x > y) - (x < y);
}

/* The answer to an order: how many times, and the median. */
static inline void
answer(double *times, size_t n)
{
	if (n == 0)
		fatal("nothing was measured");
	qsort(times, n, sizeof(double), compare_doubles);
	printf("%zu %.1f\n", n, times[n / 2]);
}

#endif /* BENCH_H */
