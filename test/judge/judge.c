/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  judge [--steps N] [--seconds N] HISTORY - is a history linearizable?
 *
 * Judges each object of a history (history.h) by its models (models.h), and prints each
 * anomaly and a table.  The last line is the sum.  A search that reaches its limit of
 * steps or seconds is undecided: judge names each, and counts them.  It also counts the
 * items and runs that were repeated, because a server was lost, and the items that are
 * forgotten, because the ensemble went back.  Exit status: 0 without an anomaly, 1 with
 * one, 2 if the file is no history.
 *
 *-------------------------------------------------------------------------
 */
#include "prepare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The most operations of an object that are printed. */
#define SHOWN 24
/* Operations that were called later than this after the one that fits nowhere are not
 * printed, in ns. */
#define NEAR INT64_C(500000000)

typedef struct Row
{
	const Model *model;
	long objects;
	long steps;
	long anomalies;
	long undecided;
	long marks[MARKS];
} Row;

#define ROWS 16

static Row rows[ROWS];

static Row *
row_of(const Model *model)
{
	Row *row = rows;

	while (row->model != NULL && row->model != model)
		row++;
	row->model = model;
	return row;
}

static void
print_name(const Object *object)
{
	printf("%s \"%s\"", history_string(object->kind), history_string(object->name));
	if (object->part == NOTHING)
		return;
	if (strcmp(history_string(object->kind), "queue") == 0)
		printf(", item %s", history_string((int) object->part));
	else
		printf(", slot %" PRId64, object->part);
}

static double
in_seconds(int64_t time)
{
	return (double) time / 1e9;
}

static void
print_step(const Step *step)
{
	const Op *op = step->op;

	printf("    %s by process %d (%s)", history_string(op->f), op->process,
		   history_string(op->server));
	if (op->value[KEY_TOKEN] != NOTHING)
		printf(", token %" PRId64, op->value[KEY_TOKEN]);
	if (step->shared)
		printf(", shared");
	printf(", %.6f to ", in_seconds(step->call));
	if (op->ret == FOREVER)
		printf("...");
	else
		printf("%.6f", in_seconds(op->ret));
	printf("%s%s\n", step->optional ? ", answer unknown" : "",
		   step->last ? ", its last claim" : "");
}

static int
compare_calls(const void *a, const void *b)
{
	int64_t one = ((const Step *) a)->call;
	int64_t other = ((const Step *) b)->call;

	return (one > other) - (one < other);
}

static void
print_anomaly(const Object *object, const Model *model, const Finding *finding)
{
	char text[512];
	int shown = 0;

	model->describe(&finding->state, text, sizeof(text));
	printf("anomaly: ");
	print_name(object);
	printf(" is no %s.  %d steps have an order, of which the last are\n", model->name,
		   finding->before);
	for (int i = 0; i < 8 && finding->order[i] != NULL; i++)
		print_step(finding->order[i]);
	printf("  Then it is: %s.  ", text);
	if (finding->blocked == NULL)
	{
		printf("It must not end so.\n");
		return;
	}
	printf("What returns next fits nowhere:\n");
	print_step(finding->blocked);
	printf("  Beside it, and soon after:\n");
	qsort(object->steps, (size_t) object->n, sizeof(Step), compare_calls);
	for (int i = 0; i < object->n && shown < SHOWN; i++)
	{
		const Step *step = &object->steps[i];

		if (step->ret >= finding->blocked->call &&
			step->call <= finding->blocked->ret + NEAR)
		{
			print_step(step);
			shown++;
		}
	}
}

static void
judge(const Object *object, const Model *model, const Limits *limits)
{
	Row *row = row_of(model);
	Finding finding;

	search(model, object->steps, object->n, limits, &finding);
	row->objects++;
	row->steps += object->n;
	for (int i = 0; i < MARKS; i++)
		row->marks[i] += finding.marks[i];
	if (finding.verdict == ANOMALY)
	{
		static Finding copy;
		static Step blocked;

		row->anomalies++;
		copy = finding;
		/* printing sorts the steps */
		if (finding.blocked != NULL)
		{
			blocked = *finding.blocked;
			copy.blocked = &blocked;
		}
		print_anomaly(object, model, &copy);
	}
	else if (finding.verdict == UNDECIDED)
	{
		row->undecided++;
		printf("undecided: ");
		print_name(object);
		printf(" as a %s: %s (%ld tried, %d of %d steps have an order)\n", model->name,
			   finding.why, finding.tried, finding.before, object->n);
	}
}

static int
report(long operations, long names)
{
	long anomalies = 0;
	long undecided = 0;

	printf("%-20s %9s %10s %10s %10s %10s %10s\n", "model", "objects", "steps",
		   "anomalies", "undecided", "repeated", "forgotten");
	for (const Row *row = rows; row->model != NULL; row++)
	{
		printf("%-20s %9ld %10ld %10ld %10ld %10ld %10ld\n", row->model->name,
			   row->objects, row->steps, row->anomalies, row->undecided,
			   row->marks[REPEATED], row->marks[FORGOTTEN]);
		anomalies += row->anomalies;
		undecided += row->undecided;
	}
	printf("judged: %ld operations on %ld names, %ld anomalies, %ld undecided\n",
		   operations, names, anomalies, undecided);
	return anomalies > 0;
}

/* Judges an object by each of its models. */
static void
judge_object(const Object *object, const Limits *limits)
{
	const Model *models[3];

	models_of(object, models);
	for (int i = 0; models[i] != NULL; i++)
		judge(object, models[i], limits);
}

int
main(int argc, char **argv)
{
	Limits limits = {50000000, 60};
	History history;
	List list;
	long operations = 0;
	long names = 0;
	int i = 1;

	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
	{
		if (strcmp(argv[i], "--steps") == 0)
			limits.steps = atol(argv[i + 1]);
		else if (strcmp(argv[i], "--seconds") == 0)
			limits.seconds = atof(argv[i + 1]);
		else
			give_up("there is no option \"%s\"", argv[i]);
	}
	if (i + 1 != argc)
		give_up("usage: judge [--steps N] [--seconds N] HISTORY");
	history_read(&history, argv[i]);
	prepare(&history, &list);
	for (long next = 0; next < list.n;)
	{
		const Asked *first = &list.asked[next];
		Object object;

		names +=
			next == 0 || first->kind != first[-1].kind || first->name != first[-1].name;
		next = make_object(&object, &list, next);
		judge_object(&object, &limits);
		free(object.steps);
	}
	for (long op = 0; op < history.n; op++)
		operations += strcmp(history_string(history.ops[op].kind), "fault") != 0;
	free(list.asked);
	free(history.ops);
	return report(operations, names);
}
