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

/* One event; "op" has the fields that question and answer share. */
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

/* An escaped character stands for itself; nothing here needs other escapes. */
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

/* Reads a number as it is, a string as its number. */
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
/* The last question of a process about a kind and name: its operation. */
typedef struct Asker
{
	long op; /* its number + 1; 0: the place is free */
	bool open;
} Asker;

typedef struct Askers
{
	Asker *askers;
	long n;
	long size;
} Askers;

static Asker *
find_asker(const History *history, const Askers *askers, const Op *op)
{
	uint64_t i =
		(uint64_t) op->process * 1000003 + (uint64_t) op->name * 31 + (uint64_t) op->kind;

	for (i = i * 0x9e3779b97f4a7c15u >> 20;; i++)
	{
		Asker *asker = &askers->askers[i & (uint64_t) (askers->size - 1)];
		const Op *last = asker->op ? &history->ops[asker->op - 1] : NULL;

		if (last == NULL ||
			(last->process == op->process && last->kind == op->kind &&
			 last->name == op->name))
			return asker;
	}
}

static Asker *
get_asker(const History *history, Askers *askers, const Op *op)
{
	if (2 * askers->n >= askers->size)
	{
		Askers old = *askers;

		askers->size = old.size ? 2 * old.size : 1024;
		askers->askers = allocate(sizeof(Asker) * (size_t) askers->size);
		for (long i = 0; i < old.size; i++)
		{
			const Asker *asker = &old.askers[i];

			if (asker->op != 0)
				*find_asker(history, askers, &history->ops[asker->op - 1]) = *asker;
		}
		free(old.askers);
	}
	return find_asker(history, askers, op);
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

/* The operation is unknown until its answer comes. */
static void
add_op(History *history, const Event *event)
{
	Op *op;

	if (history->n == history->size)
	{
		history->size = history->size ? 2 * history->size : 4096;
		history->ops = enlarge(history->ops, sizeof(Op) * (size_t) history->size);
	}
	op = &history->ops[history->n++];
	*op = event->op;
	op->call = event->time;
	op->ret = FOREVER;
	op->outcome = INFO;
}

static void
add_event(History *history, Askers *askers, const Event *event, const Line *line)
{
	bool asks = strcmp(event->type, "invoke") == 0;
	Asker *asker = get_asker(history, askers, &event->op);

	if (!asks && asker->open && history->ops[asker->op - 1].f == event->op.f)
	{
		answer(&history->ops[asker->op - 1], event);
		asker->open = false;
		return;
	}
	if (!asks && strcmp(event->type, "info") != 0)
		bad_line(line, "an answer to what was not asked");
	add_op(history, event);
	if (asker->op == 0)
		askers->n++;
	*asker = (Asker){history->n, asks};
}

void
history_read(History *history, const char *file)
{
	FILE *in = fopen(file, "r");
	Askers askers = {0};
	Line line = {.file = file};
	char *text = NULL;
	size_t size = 0;

	if (in == NULL)
		give_up("could not open %s: %s", file, strerror(errno));
	*history = (History){0};
	while (getline(&text, &size, in) > 0)
	{
		Event event;

		line.at = text;
		line.number++;
		skip_blanks(&line);
		if (*line.at == '\n' || *line.at == '\0')
			continue;
		read_event(&line, &event);
		add_event(history, &askers, &event, &line);
	}
	fclose(in);
	free(text);
	free(askers.askers);
}
