/*-------------------------------------------------------------------------
 *
 * models.c
 *	  Decides what each kind of name may answer: see models.h.
 *
 *-------------------------------------------------------------------------
 */
#include "models.h"

#include <inttypes.h>
#include <string.h>

static const Fault *faults;
static int fault_count;

void
models_set_faults(const Fault *all, int n)
{
	faults = all;
	fault_count = n;
}

static bool
overlaps(const Fault *fault, int64_t from, int64_t until)
{
	return fault->from <= until && from <= fault->until;
}

bool
models_harmed(int server, int64_t from, int64_t until)
{
	for (int i = 0; i < fault_count; i++)
	{
		if (faults[i].harm == HARM_SERVER && overlaps(&faults[i], from, until) &&
			(faults[i].server == NO_SERVER || faults[i].server == server))
			return true;
	}
	return false;
}

bool
models_went_back(int64_t from, int64_t until)
{
	for (int i = 0; i < fault_count; i++)
	{
		if (faults[i].harm == HARM_ENSEMBLE && overlaps(&faults[i], from, until))
			return true;
	}
	return false;
}

static void
begin_words(State *state, int n)
{
	state->n = n;
	memset(state->word, 0, sizeof(int64_t) * (size_t) n);
}

/* Either of the two may be unknown. */
static bool
same_if_known(int64_t a, int64_t b)
{
	return a == b || a == NOTHING || b == NOTHING;
}

/* ------------------------------------------------------------------------
 * mutex: who has it (process + 1)
 * ------------------------------------------------------------------------
 */
static void
mutex_begin(State *state)
{
	begin_words(state, 1);
}

static bool
mutex_step(const Step *step, const State *state, State *next)
{
	int64_t me = step->process + 1;

	if (state->word[0] != (step->f == ACQUIRE ? 0 : me))
		return false;
	next->word[0] = step->f == COMMIT || step->f == RELEASE || step->last ? 0 : me;
	return true;
}

static void
mutex_describe(const State *state, char *text, size_t size)
{
	if (state->word[0] == 0)
		snprintf(text, size, "free");
	else
		snprintf(text, size, "process %" PRId64 " has it", state->word[0] - 1);
}

const Model mutex_model = {"mutex", mutex_begin, mutex_step, NULL, mutex_describe, NULL};

/* ------------------------------------------------------------------------
 * fenced mutex
 * ------------------------------------------------------------------------
 */
enum
{
	FM_HOLDER, /* process + 1 */
	FM_COUNT,
	FM_TOKEN,	/* of the hold, or NOTHING */
	FM_LARGEST, /* token of all holds so far */
	FM_SERVER,	/* that had it */
	FM_WORDS
};

static void
fenced_mutex_begin(State *state)
{
	begin_words(state, FM_WORDS);
	state->word[FM_TOKEN] = NOTHING;
}

/* Is a new hold's token larger than the largest so far?  On the same server it may be
 * as large. */
static bool
is_larger(const Step *step, int64_t largest, int64_t server)
{
	return step->token == NOTHING || step->token > largest ||
		(step->token == largest && step->server == server);
}

static bool
fenced_mutex_step(const Step *step, const State *state, State *next)
{
	const int64_t *w = state->word;
	int64_t *to = next->word;

	if (step->f == ACQUIRE && w[FM_HOLDER] == 0)
	{
		if (!is_larger(step, w[FM_LARGEST], w[FM_SERVER]))
			return false;
		to[FM_HOLDER] = step->process + 1;
		to[FM_TOKEN] = step->token;
		if (step->token > w[FM_LARGEST])
		{
			to[FM_LARGEST] = step->token;
			to[FM_SERVER] = step->server;
		}
	}
	else if (w[FM_HOLDER] != step->process + 1 || !same_if_known(step->token, w[FM_TOKEN]))
		return false;
	to[FM_COUNT] += step->f == ACQUIRE ? 1 : step->f == RELEASE ? -1 : 0;
	if (to[FM_COUNT] == 0 || step->f == COMMIT || step->last)
	{
		to[FM_HOLDER] = to[FM_COUNT] = 0;
		to[FM_TOKEN] = NOTHING;
	}
	return true;
}

static void
fenced_mutex_describe(const State *state, char *text, size_t size)
{
	const int64_t *w = state->word;

	if (w[FM_HOLDER] == 0)
		snprintf(text, size, "free, the largest token so far is %" PRId64, w[FM_LARGEST]);
	else
		snprintf(text, size,
				 "process %" PRId64 " has it %" PRId64
				 " times, the largest token so far is %" PRId64,
				 w[FM_HOLDER] - 1, w[FM_COUNT], w[FM_LARGEST]);
}

const Model fenced_mutex_model = {"fenced mutex",		 fenced_mutex_begin,
								  fenced_mutex_step,	 NULL,
								  fenced_mutex_describe, NULL};

/* ------------------------------------------------------------------------
 * Holders: four words each, in the order of their processes
 * ------------------------------------------------------------------------
 */
#define HOLDER_WORDS 4

enum
{
	HOLDER_PROCESS,
	HOLDER_COUNT,
	HOLDER_A,
	HOLDER_B
};

/* Finds the place of a process, or of the first one behind it. */
static int
find_holder(const State *state, int first, int process)
{
	int i = first;

	while (i < state->n && state->word[i] < process)
		i += HOLDER_WORDS;
	return i;
}

static bool
is_holder(const State *state, int i, int process)
{
	return i < state->n && state->word[i] == process;
}

static void
add_holder(State *state, int i, int process, int64_t a, int64_t b)
{
	if (state->n + HOLDER_WORDS > STATE_WORDS)
	{
		state_full = true;
		return;
	}
	memmove(&state->word[i + HOLDER_WORDS], &state->word[i],
			sizeof(int64_t) * (size_t) (state->n - i));
	state->n += HOLDER_WORDS;
	state->word[i + HOLDER_PROCESS] = process;
	state->word[i + HOLDER_COUNT] = 0;
	state->word[i + HOLDER_A] = a;
	state->word[i + HOLDER_B] = b;
}

static void
remove_holder(State *state, int i)
{
	state->n -= HOLDER_WORDS;
	memmove(&state->word[i], &state->word[i + HOLDER_WORDS],
			sizeof(int64_t) * (size_t) (state->n - i));
}

/* Counts the step's hold or release; the holder goes with the last count. */
static void
count_hold(const Step *step, State *next, int i)
{
	int64_t *count = &next->word[i + HOLDER_COUNT];

	*count += step->f == ACQUIRE ? 1 : step->f == RELEASE ? -1 : 0;
	if (*count == 0 || step->f == COMMIT || step->last)
		remove_holder(next, i);
}

static void
describe_holders(const State *state, int first, char *text, size_t size)
{
	size_t used =
		(size_t) snprintf(text, size, "%d holders:", (state->n - first) / HOLDER_WORDS);

	for (int i = first; i < state->n && used < size; i += HOLDER_WORDS)
		used += (size_t) snprintf(text + used, size - used, " %" PRId64, state->word[i]);
}

/* ------------------------------------------------------------------------
 * reader-writer lock; of a holder A is whether it reads, B its token
 * ------------------------------------------------------------------------
 */
enum
{
	RW_WRITTEN, /* the largest token of a writer */
	RW_WRITER,	/* its server */
	RW_READ,	/* the largest one of a reader */
	RW_READER,
	RW_HOLDERS
};

static void
reader_writer_begin(State *state)
{
	begin_words(state, RW_HOLDERS);
}

static bool
reader_writer_enter(const Step *step, const State *state, State *next, int i)
{
	const int64_t *w = state->word;
	int64_t *to = next->word;
	int largest = step->shared ? RW_READ : RW_WRITTEN;

	/* beside one reader there may be others */
	if (state->n > RW_HOLDERS && !(step->shared && w[RW_HOLDERS + HOLDER_A]))
		return false;
	if (!is_larger(step, w[RW_WRITTEN], w[RW_WRITER]) ||
		(!step->shared && !is_larger(step, w[RW_READ], w[RW_READER])))
		return false;
	if (step->token > w[largest])
	{
		to[largest] = step->token;
		to[largest + 1] = step->server;
	}
	add_holder(next, i, step->process, step->shared, step->token);
	return true;
}

static bool
reader_writer_step(const Step *step, const State *state, State *next)
{
	int i = find_holder(state, RW_HOLDERS, step->process);

	if (is_holder(state, i, step->process))
	{
		if (!same_if_known(step->token, state->word[i + HOLDER_B]))
			return false;
	}
	else if (step->f != ACQUIRE || !reader_writer_enter(step, state, next, i))
		return false;
	if (!state_full)
		count_hold(step, next, i);
	return true;
}

static void
reader_writer_describe(const State *state, char *text, size_t size)
{
	int n = snprintf(text, size, "the largest token of a writer is %" PRId64 ", %s, ",
					 state->word[RW_WRITTEN],
					 state->n == RW_HOLDERS					  ? "free"
						 : state->word[RW_HOLDERS + HOLDER_A] ? "read"
															  : "written");

	describe_holders(state, RW_HOLDERS, text + n, size - (size_t) n);
}

const Model reader_writer_model = {"reader-writer lock",   reader_writer_begin,
								   reader_writer_step,	   NULL,
								   reader_writer_describe, NULL};

/* ------------------------------------------------------------------------
 * semaphore; of a holder A is how many it names, B its number or 0
 * ------------------------------------------------------------------------
 */
static void
semaphore_begin(State *state)
{
	begin_words(state, 0);
}

/* Is there room for one more holder, which names this many permits?  No holder may
 * then name fewer than there are holders. */
static bool
has_room(const State *state, int64_t permits)
{
	int64_t least = permits;

	for (int i = 0; i < state->n; i += HOLDER_WORDS)
	{
		if (state->word[i + HOLDER_A] < least)
			least = state->word[i + HOLDER_A];
	}
	return state->n / HOLDER_WORDS + 1 <= least;
}

static bool
number_is_free(const State *state, int64_t number)
{
	for (int i = 0; i < state->n; i += HOLDER_WORDS)
	{
		if (state->word[i + HOLDER_B] == number)
			return false;
	}
	return true;
}

static bool
semaphore_step(const Step *step, const State *state, State *next)
{
	int i = find_holder(state, 0, step->process);

	if (!is_holder(state, i, step->process))
	{
		if (step->f != ACQUIRE || !has_room(state, step->limit))
			return false;
		add_holder(next, i, step->process, step->limit, 0);
	}
	else if (step->number != NOTHING && step->number != state->word[i + HOLDER_B])
	{
		/* a holder keeps its number */
		if (state->word[i + HOLDER_B] != 0 || !number_is_free(state, step->number) ||
			step->number < 1 || step->number > state->word[i + HOLDER_A])
			return false;
		next->word[i + HOLDER_B] = step->number;
	}
	if (!state_full)
		count_hold(step, next, i);
	return true;
}

static void
semaphore_describe(const State *state, char *text, size_t size)
{
	describe_holders(state, 0, text, size);
}

const Model semaphore_model = {"semaphore", semaphore_begin,	semaphore_step,
							   NULL,		semaphore_describe, NULL};

/* ------------------------------------------------------------------------
 * leader: token, server
 * ------------------------------------------------------------------------
 */
static void
leader_begin(State *state)
{
	begin_words(state, 2);
}

static bool
leader_step(const Step *step, const State *state, State *next)
{
	if (step->token < state->word[0] ||
		(step->token == state->word[0] && step->server != state->word[1]))
		return false;
	next->word[0] = step->token;
	next->word[1] = step->server;
	return true;
}

static void
leader_describe(const State *state, char *text, size_t size)
{
	if (state->word[0] == 0)
		snprintf(text, size, "nobody has led");
	else
		snprintf(text, size, "server %s leads with token %" PRId64,
				 history_string((int) state->word[1]), state->word[0]);
}

const Model leader_model = {"leader", leader_begin,	   leader_step,
							NULL,	  leader_describe, NULL};

/* ------------------------------------------------------------------------
 * register: value, the fence's token
 * ------------------------------------------------------------------------
 */
static void
register_begin(State *state)
{
	begin_words(state, 2);
}

static bool
register_step(const Step *step, const State *state, State *next)
{
	if (step->f == READ)
		return step->number == state->word[0];
	if (step->token != NOTHING)
	{
		if (step->token < state->word[1])
			return false;
		next->word[1] = step->token;
	}
	if (step->f == CAS)
	{
		if (step->limit != state->word[0])
			return false;
		next->word[0] = step->number;
	}
	return true;
}

static void
register_describe(const State *state, char *text, size_t size)
{
	snprintf(text, size, "its value is %" PRId64 ", the fence has seen token %" PRId64,
			 state->word[0], state->word[1]);
}

const Model register_model = {"register", register_begin,	 register_step,
							  NULL,		  register_describe, NULL};

/* ------------------------------------------------------------------------
 * item of a queue
 * ------------------------------------------------------------------------
 */
enum
{
	ITEM_STATE,
	ITEM_HOLDER, /* process */
	ITEM_ID,	 /* or NOTHING */
	ITEM_CALL,	 /* when it was about to be done */
	ITEM_SERVER, /* and where */
	ITEM_WORDS
};

enum
{
	ITEM_NOT_PUT,
	ITEM_WAITS,
	ITEM_TAKEN,
	ITEM_DONE
};

static void
item_begin(State *state)
{
	begin_words(state, ITEM_WORDS);
	state->word[ITEM_ID] = NOTHING;
}

/* May the item be handed out again?  Only if a fault may have hidden that it was done. */
static bool
may_repeat(const Step *step, const State *state)
{
	return step->excused ||
		models_harmed((int) state->word[ITEM_SERVER], state->word[ITEM_CALL], step->ret);
}

static bool
take_item(const Step *step, const State *state, State *next)
{
	int64_t is = state->word[ITEM_STATE];

	/* an ensemble that knows a put again makes another item of it */
	if (!same_if_known(step->number, state->word[ITEM_ID]) && !step->excused)
		return false;
	if (is == ITEM_NOT_PUT || (is == ITEM_TAKEN && !step->excused) ||
		(is == ITEM_DONE && !may_repeat(step, state)))
		return false;
	next->word[ITEM_STATE] = step->last ? ITEM_WAITS : ITEM_TAKEN;
	next->word[ITEM_HOLDER] = step->last ? 0 : step->process;
	next->word[ITEM_CALL] = next->word[ITEM_SERVER] = 0;
	if (step->number != NOTHING)
		next->word[ITEM_ID] = step->number;
	return true;
}

static bool
end_item(const Step *step, const State *state, State *next)
{
	bool mine = state->word[ITEM_STATE] == ITEM_TAKEN &&
		state->word[ITEM_HOLDER] == step->process;

	if (!mine && !step->excused)
		return false;
	next->word[ITEM_HOLDER] = 0;
	next->word[ITEM_STATE] = step->f == DONE ? ITEM_DONE : ITEM_WAITS;
	if (step->f == DONE)
	{
		next->word[ITEM_CALL] = step->call;
		next->word[ITEM_SERVER] = step->server;
	}
	return true;
}

static bool
item_step(const Step *step, const State *state, State *next)
{
	int64_t is = state->word[ITEM_STATE];

	switch (step->f)
	{
		case PUT:
			next->word[ITEM_STATE] = ITEM_WAITS;
			if (step->number != NOTHING)
				next->word[ITEM_ID] = step->number;
			return is == ITEM_NOT_PUT;
		case TAKE:
			return take_item(step, state, next);
		case DONE:
		case GIVE_BACK:
			return end_item(step, state, next);
		case EMPTY:
			return is == ITEM_NOT_PUT || is == ITEM_DONE || step->excused;
		default:
			return false;
	}
}

static void
item_describe(const State *state, char *text, size_t size)
{
	static const char *const names[] = {"not put", "in the queue", "taken by process",
										"done"};
	int64_t is = state->word[ITEM_STATE];

	if (is == ITEM_TAKEN)
		snprintf(text, size, "%s %" PRId64, names[is], state->word[ITEM_HOLDER]);
	else
		snprintf(text, size, "%s", names[is]);
}

static Mark
item_mark(const Step *step, const State *state)
{
	int64_t is = state->word[ITEM_STATE];

	if (step->f == TAKE && is == ITEM_DONE)
		return REPEATED;
	return step->f == EMPTY && (is == ITEM_WAITS || is == ITEM_TAKEN) ? FORGOTTEN : NO_MARK;
}

const Model item_model = {"item of a queue", item_begin, item_step, NULL,
						  item_describe,	 item_mark};

/* ------------------------------------------------------------------------
 * slot of a job
 * ------------------------------------------------------------------------
 */
enum
{
	SLOT_RUNS, /* that have committed */
	SLOT_SKIPPED,
	SLOT_CALL, /* of the last run */
	SLOT_SERVER,
	SLOT_WORDS
};

static void
slot_begin(State *state)
{
	begin_words(state, SLOT_WORDS);
}

/* A server knows by its own table what it has committed, so it never runs a slot twice. */
static bool
run_slot(const Step *step, const State *state, State *next)
{
	const int64_t *w = state->word;
	bool lost =
		step->forgiving && models_harmed((int) w[SLOT_SERVER], w[SLOT_CALL], step->ret);

	if (w[SLOT_RUNS] > 0 && (w[SLOT_SERVER] == step->server || !(lost || step->excused)))
		return false;
	if (w[SLOT_SKIPPED] && !step->excused)
		return false;
	next->word[SLOT_RUNS]++;
	next->word[SLOT_CALL] = step->call;
	next->word[SLOT_SERVER] = step->server;
	return true;
}

static bool
slot_step(const Step *step, const State *state, State *next)
{
	bool done = state->word[SLOT_RUNS] > 0 || state->word[SLOT_SKIPPED];

	switch (step->f)
	{
		case RAN:
			return run_slot(step, state, next);
		case TOLD:
			return done || step->excused;
		case SKIPPED:
			/* a run that is in doubt counts as done, whether it has committed or not */
			next->word[SLOT_SKIPPED] = 1;
			return done || step->forgiving || step->excused;
		case COUNT:
			return step->number == state->word[SLOT_RUNS] &&
				(done || step->number > 0 || step->excused);
		default:
			return false;
	}
}

static void
slot_describe(const State *state, char *text, size_t size)
{
	snprintf(text, size, "%" PRId64 " runs have committed%s", state->word[SLOT_RUNS],
			 state->word[SLOT_SKIPPED] ? ", skipped" : "");
}

static Mark
slot_mark(const Step *step, const State *state)
{
	return step->f == RAN && state->word[SLOT_RUNS] > 0 ? REPEATED : NO_MARK;
}

const Model slot_model = {"slot of a job", slot_begin, slot_step, NULL,
						  slot_describe,   slot_mark};

/* ------------------------------------------------------------------------
 * round of a barrier
 * ------------------------------------------------------------------------
 */
enum
{
	ROUND_ARRIVED,
	ROUND_PARTIES,
	ROUND_UNTIL, /* the first return of those who have arrived */
	ROUND_WORDS
};

static void
round_begin(State *state)
{
	begin_words(state, ROUND_WORDS);
}

static bool
round_step(const Step *step, const State *state, State *next)
{
	const int64_t *w = state->word;
	int64_t *to = next->word;

	/* All must be there at one moment, and none before it was called. */
	if (w[ROUND_ARRIVED] > 0 &&
		(step->call > w[ROUND_UNTIL] || step->limit != w[ROUND_PARTIES]))
		return false;
	to[ROUND_ARRIVED]++;
	to[ROUND_PARTIES] = step->limit;
	if (w[ROUND_ARRIVED] == 0 || step->ret < w[ROUND_UNTIL])
		to[ROUND_UNTIL] = step->ret;
	if (to[ROUND_ARRIVED] == step->limit)
		begin_words(next, ROUND_WORDS);
	return true;
}

static bool
round_end(const State *state)
{
	return state->word[ROUND_ARRIVED] == 0;
}

static void
round_describe(const State *state, char *text, size_t size)
{
	snprintf(text, size, "%" PRId64 " of %" PRId64 " have arrived",
			 state->word[ROUND_ARRIVED], state->word[ROUND_PARTIES]);
}

const Model round_model = {"round of a barrier", round_begin, round_step, round_end,
						   round_describe,		 NULL};
