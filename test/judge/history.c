/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Reads a history, and pairs each question with its answer.
 *
 *-------------------------------------------------------------------------
 */
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 1024

static const char *const keys[KEYS] = {"token",	  "permits", "number", "slot",
									   "parties", "old",	 "new",	   "committed",
									   "item",	  "id",		 "mode",   "how",
									   "harm",	  "harmed"};

void
give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("judge: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

void *
enlarge(void *old, size_t size)
{
	void *p = realloc(old, size ? size : 1);

	if (p == NULL)
		give_up("out of memory");
	return p;
}

void *
allocate(size_t size)
{
	void *p = enlarge(NULL, size);

	memset(p, 0, size);
	return p;
}

/* ------------------------------------------------------------------------
 * Strings
 * ------------------------------------------------------------------------
 */
static char **strings;
static int string_count;
static int *string_slots; /* number + 1, by hash */
static int string_size;

static uint32_t
hash_string(const char *s)
{
	uint32_t hash = 2166136261u;

	for (; *s; s++)
		hash = (hash ^ (unsigned char) *s) * 16777619u;
	return hash;
}

static int *
find_slot(const char *string)
{
	uint32_t i = hash_string(string);

	for (;; i++)
	{
		int *slot = &string_slots[i & (uint32_t) (string_size - 1)];

		if (*slot == 0 || strcmp(strings[*slot - 1], string) == 0)
			return slot;
	}
}

static void
make_room(void)
{
	if (string_count * 2 < string_size)
		return;
	string_size = string_size ? string_size * 2 : 1024;
	free(string_slots);
	string_slots = allocate(sizeof(int) * (size_t) string_size);
	strings = enlarge(strings, sizeof(char *) * (size_t) string_size);
	for (int i = 0; i < string_count; i++)
		*find_slot(strings[i]) = i + 1;
}

int
history_number(const char *string)
{
	int *slot;

	make_room();
	slot = find_slot(string);
	if (*slot == 0)
	{
		size_t size = strlen(string) + 1;

		strings[string_count] = memcpy(allocate(size), string, size);
		*slot = ++string_count;
	}
	return *slot - 1;
}

const char *
history_string(int number)
{
	return strings[number];
}

/* ------------------------------------------------------------------------
 * A line
 * ------------------------------------------------------------------------
 */
typedef struct Line
{
	const char *at;
	const char *file;
	long number;
} Line;

/* One event; "op" has what is the question's and the answer's alike. */
typedef struct Event
{
	char type[16];
	Op op;
	int64_t time;
} Event;

static void
bad_line(const Line *line, const char *what)
{
	give_up("%s, line %ld: %s", line->file, line->number, what);
}

static void
skip_blanks(Line *line)
{
	while (*line->at == ' ' || *line->at == '\t' || *line->at == '\r')
		line->at++;
}

static bool
accept(Line *line, char c)
{
	skip_blanks(line);
	if (*line->at != c)
		return false;
	line->at++;
	return true;
}

static void
expect(Line *line, char c)
{
	char text[] = "\"?\" is missing";

	text[1] = c;
	if (!accept(line, c))
		bad_line(line, text);
}

/* Escapes are those that stand for themselves; nothing here needs others. */
static void
read_string(Line *line, char *to)
{
	int n = 0;

	expect(line, '"');
	while (*line->at != '"')
	{
		if (*line->at == '\\')
			line->at++;
		if (*line->at == '\0' || n == NAME_MAX_BYTES)
			bad_line(line, "a string has no end, or is too long");
		to[n++] = *line->at++;
	}
	line->at++;
	to[n] = '\0';
}

/* A number as it is, a string as its number. */
static int64_t
read_scalar(Line *line)
{
	char text[NAME_MAX_BYTES + 1];
	char *end;
	int64_t number;

	skip_blanks(line);
	if (*line->at == '"')
	{
		read_string(line, text);
		return history_number(text);
	}
	errno = 0;
	number = strtoll(line->at, &end, 10);
	if (end == line->at || errno != 0)
		bad_line(line, "neither a string nor an integer");
	line->at = end;
	return number;
}

static void
read_value(Line *line, int64_t *value)
{
	char key[NAME_MAX_BYTES + 1];

	expect(line, '{');
	if (accept(line, '}'))
		return;
	do
	{
		int64_t scalar;

		read_string(line, key);
		expect(line, ':');
		scalar = read_scalar(line);
		for (int i = 0; i < KEYS; i++)
		{
			if (strcmp(keys[i], key) == 0)
				value[i] = scalar;
		}
	} while (accept(line, ','));
	expect(line, '}');
}

static void
read_field(Line *line, Event *event)
{
	char key[NAME_MAX_BYTES + 1];
	char text[NAME_MAX_BYTES + 1];

	read_string(line, key);
	expect(line, ':');
	if (strcmp(key, "value") == 0)
		read_value(line, event->op.value);
	else if (strcmp(key, "type") == 0)
	{
		read_string(line, text);
		snprintf(event->type, sizeof(event->type), "%.15s", text);
	}
	else if (strcmp(key, "time") == 0)
		event->time = read_scalar(line);
	else if (strcmp(key, "process") == 0)
		event->op.process = (int) read_scalar(line);
	else
	{
		int number = (int) read_scalar(line);

		if (strcmp(key, "server") == 0)
			event->op.server = number;
		else if (strcmp(key, "kind") == 0)
			event->op.kind = number;
		else if (strcmp(key, "f") == 0)
			event->op.f = number;
		else if (strcmp(key, "name") == 0)
			event->op.name = number;
	}
}

static void
read_event(Line *line, Event *event)
{
	*event = (Event){.time = -1};
	event->op.server = event->op.kind = event->op.f = event->op.name = -1;
	for (int i = 0; i < KEYS; i++)
		event->op.value[i] = NOTHING;
	expect(line, '{');
	do
		read_field(line, event);
	while (accept(line, ','));
	expect(line, '}');
	skip_blanks(line);
	if (*line->at != '\0' && *line->at != '\n')
		bad_line(line, "something follows the object");
	if (event->type[0] == '\0' || event->time < 0 || event->op.kind < 0 ||
		event->op.f < 0 || event->op.name < 0)
		bad_line(line, "type, time, kind, f or name is missing");
	if (event->op.server < 0)
		event->op.server = history_number("");
}

/* ------------------------------------------------------------------------
 * Pairs
 * ------------------------------------------------------------------------
 */
typedef struct Events
{
	Event *events;
	long n;
	long size;
} Events;

static int
compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* By whose question it is, then by time; a question before the answer. */
static int
compare_events(const void *a, const void *b)
{
	const Event *one = a;
	const Event *other = b;
	int result = compare_numbers(one->op.process, other->op.process);

	if (result == 0)
		result = compare_numbers(one->op.kind, other->op.kind);
	if (result == 0)
		result = compare_numbers(one->op.name, other->op.name);
	if (result == 0)
		result = compare_numbers(one->time, other->time);
	/* lines of one time stand as they were written (add_event) */
	return result ? result : compare_numbers(one->op.call, other->op.call);
}

static int
compare_ops(const void *a, const void *b)
{
	const Op *one = a;
	const Op *other = b;

	return compare_numbers(one->call, other->call);
}

static bool
same_asker(const Op *a, const Op *b)
{
	return a->process == b->process && a->kind == b->kind && a->name == b->name;
}

static void
add_event(Events *all, const Event *event)
{
	if (all->n == all->size)
	{
		all->size = all->size ? 2 * all->size : 4096;
		all->events = enlarge(all->events, sizeof(Event) * (size_t) all->size);
	}
	all->events[all->n] = *event;
	all->events[all->n].op.call = all->n;
	all->n++;
}

static void
answer(Op *op, const Event *event)
{
	op->ret = event->time;
	op->outcome = strcmp(event->type, "ok") == 0 ? OK
		: strcmp(event->type, "fail") == 0		 ? FAIL
												 : INFO;
	for (int i = 0; i < KEYS; i++)
	{
		if (event->op.value[i] != NOTHING)
			op->value[i] = event->op.value[i];
	}
}

static void
pair(History *history, const Events *all)
{
	Op *open = NULL;

	history->ops = allocate(sizeof(Op) * (size_t) all->n);
	for (long i = 0; i < all->n; i++)
	{
		const Event *event = &all->events[i];
		bool asks = strcmp(event->type, "invoke") == 0;

		if (open != NULL && !asks && same_asker(open, &event->op) && open->f == event->op.f)
		{
			answer(open, event);
			open = NULL;
			continue;
		}
		if (!asks && strcmp(event->type, "info") != 0)
			give_up("process %d is told \"%s\" of %s %s, and had not asked",
					event->op.process, history_string(event->op.f),
					history_string(event->op.kind), history_string(event->op.name));
		/* a question without an answer stays open */
		open = &history->ops[history->n++];
		*open = event->op;
		open->call = event->time;
		open->ret = FOREVER;
		open->outcome = INFO;
		if (!asks)
			open = NULL;
	}
	qsort(history->ops, (size_t) history->n, sizeof(Op), compare_ops);
}

void
history_read(History *history, const char *file)
{
	FILE *in = fopen(file, "r");
	Events all = {0};
	char *text = NULL;
	size_t size = 0;

	if (in == NULL)
		give_up("could not open %s: %s", file, strerror(errno));
	*history = (History){0};
	while (getline(&text, &size, in) > 0)
	{
		Line line = {.at = text, .file = file, .number = ++history->lines};
		Event event;

		skip_blanks(&line);
		if (*line.at == '\n' || *line.at == '\0')
			continue;
		read_event(&line, &event);
		add_event(&all, &event);
	}
	fclose(in);
	free(text);
	qsort(all.events, (size_t) all.n, sizeof(Event), compare_events);
	pair(history, &all);
	free(all.events);
}
