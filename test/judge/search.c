/*-------------------------------------------------------------------------
 *
 * search.c
 *	  Implements Wing and Gong's search, with Lowe's cache: see search.h.
 *
 *-------------------------------------------------------------------------
 */
#include "search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Hash
{
	uint64_t high;
	uint64_t low;
} Hash;

/* A call or a return of a required step, in the order of time. */
typedef struct Entry
{
	int prev;
	int next;
	int step;
	int match; /* the return of a call; 0: it is a return */
	int64_t time;
} Entry;

/* A step that was given its place in the order. */
typedef struct Frame
{
	int entry;	  /* its call; 0: it is optional */
	int optional; /* number of it in the list of these */
	int state;	  /* before it */
} Frame;

typedef struct Search
{
	const Model *model;
	const Step *steps;
	int n;
	Entry *entries; /* the first is the list's head */
	int *optional;	/* steps, in the order of their calls */
	int optionals;
	bool *used; /* of these */
	Frame *stack;
	int depth;
	int required; /* how many of the stack are */
	Hash set;	  /* of the stack */
	int state;

	int64_t **states; /* each once: its size, its words */
	int state_count;
	int *state_slots; /* number + 1, by hash */
	int state_size;
	Hash *seen;
	long seen_count;
	long seen_size;
} Search;

bool state_full;

static uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static Hash
hash_of(uint64_t number)
{
	return (Hash){mix(2 * number), mix(2 * number + 1)};
}

static Hash
sum(Hash a, Hash b)
{
	return (Hash){a.high ^ b.high, a.low ^ b.low};
}

/* ------------------------------------------------------------------------
 * States
 * ------------------------------------------------------------------------
 */
static uint64_t
hash_words(const int64_t *words, int64_t n)
{
	uint64_t hash = (uint64_t) n;

	for (int64_t i = 0; i < n; i++)
		hash = mix(hash ^ (uint64_t) words[i]);
	return hash;
}

static int *
find_state(Search *s, const int64_t *words, int64_t n)
{
	uint64_t i = hash_words(words, n);

	for (;; i++)
	{
		int *slot = &s->state_slots[i & (uint64_t) (s->state_size - 1)];
		const int64_t *known = *slot ? s->states[*slot - 1] : NULL;

		if (known == NULL ||
			(known[0] == n && memcmp(known + 1, words, sizeof(int64_t) * (size_t) n) == 0))
			return slot;
	}
}

static int
number_of(Search *s, const State *state)
{
	int *slot;

	if (2 * s->state_count >= s->state_size)
	{
		s->state_size = s->state_size ? 2 * s->state_size : 256;
		free(s->state_slots);
		s->state_slots = allocate(sizeof(int) * (size_t) s->state_size);
		s->states = enlarge(s->states, sizeof(int64_t *) * (size_t) s->state_size);
		for (int i = 0; i < s->state_count; i++)
			*find_state(s, s->states[i] + 1, s->states[i][0]) = i + 1;
	}
	slot = find_state(s, state->word, state->n);
	if (*slot == 0)
	{
		int64_t *words = allocate(sizeof(int64_t) * (size_t) (state->n + 1));

		words[0] = state->n;
		memcpy(words + 1, state->word, sizeof(int64_t) * (size_t) state->n);
		s->states[s->state_count] = words;
		*slot = ++s->state_count;
	}
	return *slot - 1;
}

static void
copy_state(const Search *s, int number, State *state)
{
	const int64_t *words = s->states[number];

	state->n = (int) words[0];
	memcpy(state->word, words + 1, sizeof(int64_t) * (size_t) words[0]);
}

/* ------------------------------------------------------------------------
 * The cache
 * ------------------------------------------------------------------------
 */
static Hash *
find_seen(const Search *s, Hash key)
{
	uint64_t i = key.low;

	for (;; i++)
	{
		Hash *slot = &s->seen[i & (uint64_t) (s->seen_size - 1)];

		if ((slot->high == 0 && slot->low == 0) ||
			(slot->high == key.high && slot->low == key.low))
			return slot;
	}
}

/* Notes this set of steps with this state; false: it was noted before. */
static bool
note(Search *s, Hash set, int state)
{
	Hash key = sum(set, hash_of(UINT64_C(1) << 40 | (uint64_t) state));
	Hash *slot;

	if (2 * s->seen_count >= s->seen_size)
	{
		Hash *old = s->seen;
		long size = s->seen_size;

		s->seen_size = size ? 2 * size : 1024;
		s->seen = allocate(sizeof(Hash) * (size_t) s->seen_size);
		for (long i = 0; i < size; i++)
		{
			if (old[i].high != 0 || old[i].low != 0)
				*find_seen(s, old[i]) = old[i];
		}
		free(old);
	}
	slot = find_seen(s, key);
	if (slot->high != 0 || slot->low != 0)
		return false;
	*slot = key;
	s->seen_count++;
	return true;
}

/* ------------------------------------------------------------------------
 * The list of calls and returns
 * ------------------------------------------------------------------------
 */
static const Step *sorted_steps;

/* If times are the same, calls come first: then the steps overlap. */
static int
compare_entries(const void *a, const void *b)
{
	const Entry *one = a;
	const Entry *other = b;

	if (one->time != other->time)
		return one->time < other->time ? -1 : 1;
	if ((one->match == 0) != (other->match == 0))
		return one->match != 0 ? -1 : 1;
	return one->step - other->step;
}

static int
compare_optional(const void *a, const void *b)
{
	int64_t one = sorted_steps[*(const int *) a].call;
	int64_t other = sorted_steps[*(const int *) b].call;

	return (one > other) - (one < other);
}

static void
make_list(Search *s)
{
	int *call_of = allocate(sizeof(int) * (size_t) (s->n + 1));
	int count = 0;

	s->entries = allocate(sizeof(Entry) * (size_t) (2 * s->n + 1));
	s->optional = allocate(sizeof(int) * (size_t) (s->n + 1));
	s->used = allocate((size_t) s->n + 1);
	for (int i = 0; i < s->n; i++)
	{
		const Step *step = &s->steps[i];

		if (step->optional)
		{
			s->optional[s->optionals++] = i;
			continue;
		}
		s->entries[++count] = (Entry){.step = i, .match = 1, .time = step->call};
		s->entries[++count] = (Entry){.step = i, .time = step->ret};
	}
	qsort(s->entries + 1, (size_t) count, sizeof(Entry), compare_entries);
	sorted_steps = s->steps;
	qsort(s->optional, (size_t) s->optionals, sizeof(int), compare_optional);
	for (int i = 1; i <= count; i++)
	{
		Entry *entry = &s->entries[i];

		entry->prev = i - 1;
		entry->next = i < count ? i + 1 : 0;
		if (entry->match != 0)
			call_of[entry->step] = i;
		else
			s->entries[call_of[entry->step]].match = i;
	}
	s->entries[0].next = count > 0 ? 1 : 0;
	free(call_of);
}

static void
take_out(Search *s, int i)
{
	Entry *entry = &s->entries[i];

	s->entries[entry->prev].next = entry->next;
	if (entry->next != 0)
		s->entries[entry->next].prev = entry->prev;
}

static void
put_back(Search *s, int i)
{
	Entry *entry = &s->entries[i];

	s->entries[entry->prev].next = i;
	if (entry->next != 0)
		s->entries[entry->next].prev = i;
}

/* ------------------------------------------------------------------------
 * The search
 * ------------------------------------------------------------------------
 */

/* Tries the step as the next one.  True: it may come next, and now does. */
static bool
try(Search *s, int number, Frame frame)
{
	static State state;
	static State next;
	Hash set = sum(s->set, hash_of((uint64_t) number));
	int after;

	copy_state(s, s->state, &state);
	next = state;
	if (!s->model->step(&s->steps[number], &state, &next) || state_full)
		return false;
	after = number_of(s, &next);
	/* what changes nothing need not have happened */
	if (frame.entry == 0 && after == s->state)
		return false;
	if (!note(s, set, after))
		return false;
	frame.state = s->state;
	s->stack[s->depth++] = frame;
	s->state = after;
	s->set = set;
	if (frame.entry != 0)
	{
		take_out(s, frame.entry);
		take_out(s, s->entries[frame.entry].match);
		s->required++;
	}
	else
		s->used[frame.optional] = true;
	return true;
}

static Frame
go_back(Search *s)
{
	Frame frame = s->stack[--s->depth];
	int number =
		frame.entry != 0 ? s->entries[frame.entry].step : s->optional[frame.optional];

	if (frame.entry != 0)
	{
		put_back(s, s->entries[frame.entry].match);
		put_back(s, frame.entry);
		s->required--;
	}
	else
		s->used[frame.optional] = false;
	s->state = frame.state;
	s->set = sum(s->set, hash_of((uint64_t) number));
	return frame;
}

static const Step *
step_of(const Search *s, const Frame *frame)
{
	return &s->steps[frame->entry != 0 ? s->entries[frame->entry].step
									   : s->optional[frame->optional]];
}

/* No order has gone further than this one. */
static void
remember(const Search *s, Finding *finding)
{
	int first = s->depth > 8 ? s->depth - 8 : 0;
	int i = s->entries[0].next;

	while (i != 0 && s->entries[i].match != 0)
		i = s->entries[i].next;
	finding->blocked = i != 0 ? &s->steps[s->entries[i].step] : NULL;
	finding->before = s->required;
	copy_state(s, s->state, &finding->state);
	memset(finding->order, 0, sizeof(finding->order));
	for (int d = first; d < s->depth; d++)
		finding->order[d - first] = step_of(s, &s->stack[d]);
}

static void
count_marks(const Search *s, Finding *finding)
{
	static State state;

	for (int i = 0; i < s->depth && s->model->mark != NULL; i++)
	{
		copy_state(s, s->stack[i].state, &state);
		finding->marks[s->model->mark(step_of(s, &s->stack[i]), &state)]++;
	}
}

/* Tries the steps that may come next, from the given places on; false: none fits. */
static bool
advance(Search *s, int entry, int optional, Finding *finding)
{
	int64_t bound;

	for (; entry != 0 && s->entries[entry].match != 0; entry = s->entries[entry].next)
	{
		finding->tried++;
		if (try(s, s->entries[entry].step, (Frame){.entry = entry}))
			return true;
	}
	/* and what nobody knows, last: mostly it did not happen */
	bound = entry != 0 ? s->entries[entry].time : FOREVER;
	for (; optional < s->optionals; optional++)
	{
		int number = s->optional[optional];

		if (s->steps[number].call > bound)
			break;
		if (s->used[optional])
			continue;
		finding->tried++;
		if (try(s, number, (Frame){.optional = optional}))
			return true;
	}
	return false;
}

/* Finds the first return that is left: no step behind it can come next. */
static int
first_return(const Search *s)
{
	int i = s->entries[0].next;

	while (i != 0 && s->entries[i].match != 0)
		i = s->entries[i].next;
	return i;
}

static double
seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static Verdict
run(Search *s, const Limits *limits, Finding *finding)
{
	double until = seconds() + limits->seconds;
	int entry = s->entries[0].next;
	int optional = 0;
	int deepest = -1;

	for (long round = 0;; round++)
	{
		static State state;
		Frame frame;

		if (s->required > deepest)
		{
			deepest = s->required;
			remember(s, finding);
		}
		copy_state(s, s->state, &state);
		if (s->entries[0].next == 0 && (s->model->end == NULL || s->model->end(&state)))
			return LINEARIZABLE;
		if (finding->tried > limits->steps || (round % 1024 == 0 && seconds() > until))
		{
			finding->why = finding->tried > limits->steps ? "too many steps" : "too long";
			return UNDECIDED;
		}
		if (advance(s, entry, optional, finding))
		{
			entry = s->entries[0].next;
			optional = 0;
			continue;
		}
		if (state_full)
		{
			finding->why = "a state is too large";
			return UNDECIDED;
		}
		if (s->depth == 0)
			return ANOMALY;
		frame = go_back(s);
		if (frame.entry != 0)
		{
			entry = s->entries[frame.entry].next;
			optional = 0;
		}
		else
		{
			entry = first_return(s);
			optional = frame.optional + 1;
		}
	}
}

void
search(const Model *model, const Step *steps, int n, const Limits *limits, Finding *finding)
{
	Search s = {.model = model, .steps = steps, .n = n};
	static State state;

	*finding = (Finding){0};
	state_full = false;
	make_list(&s);
	s.stack = allocate(sizeof(Frame) * (size_t) (n + 1));
	state.n = 0;
	model->begin(&state);
	s.state = number_of(&s, &state);
	finding->verdict = run(&s, limits, finding);
	if (finding->verdict == LINEARIZABLE)
		count_marks(&s, finding);
	for (int i = 0; i < s.state_count; i++)
		free(s.states[i]);
	free(s.states);
	free(s.state_slots);
	free(s.seen);
	free(s.entries);
	free(s.optional);
	free(s.used);
	free(s.stack);
}
