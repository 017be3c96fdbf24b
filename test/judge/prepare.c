/*-------------------------------------------------------------------------
 *
 * prepare.c
 *	  Turns operations into steps: see prepare.h.
 *
 *-------------------------------------------------------------------------
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>

static bool
is(int number, const char *string)
{
	return number == history_number(string);
}

static bool
has(const Op *op, const char *f, Outcome outcome)
{
	return op->outcome == outcome && is(op->f, f);
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */
static Fault *faults;
static int fault_count;

static void
note_fault(const Op *op)
{
	int harm = (int) op->value[KEY_HARM];
	int64_t server = op->value[KEY_HARMED];

	faults = enlarge(faults, sizeof(Fault) * (size_t) (fault_count + 1));
	faults[fault_count++] = (Fault){.harm = is(harm, "ensemble") ? HARM_ENSEMBLE
										: is(harm, "server")	 ? HARM_SERVER
																 : HARM_NONE,
									.server = server == NOTHING ? NO_SERVER : (int) server,
									.from = op->call,
									.until = op->ret};
	models_set_faults(faults, fault_count);
}

/* ------------------------------------------------------------------------
 * Steps
 * ------------------------------------------------------------------------
 */
static Step *
add_step(Object *object, Function f, const Op *op)
{
	Step *step = &object->steps[object->n++];

	*step = (Step){.f = f,
				   .process = op->process,
				   .server = op->server,
				   .call = op->call,
				   .ret = op->ret,
				   .shared = op->value[KEY_MODE] == history_number("shared"),
				   .token = op->value[KEY_TOKEN],
				   .number = op->value[KEY_NUMBER],
				   .op = op};
	if (op->outcome == INFO)
	{
		step->optional = true;
		step->ret = FOREVER;
	}
	return step;
}

/* The holds of a process on a lock or a semaphore. */
typedef struct Hold
{
	bool open;
	int first;		 /* its steps begin here */
	int claim;		 /* the last one that claims it */
	int count;		 /* times it was taken */
	const Op *asked; /* before it: a call that was not answered */
} Hold;

/* No further claim comes. */
static void
end_hold(Object *object, Hold *hold, bool by_claim)
{
	int64_t token = NOTHING;

	if (hold->open)
	{
		object->n = hold->claim + 1;
		object->steps[hold->claim].last = !by_claim;
		/* zk_try_lock tells no token; a later answer does */
		for (int i = hold->first; i < object->n && token == NOTHING; i++)
			token = object->steps[i].token;
		object->steps[hold->first].token = token;
		/* who did not hear that he has it, and never said so, may as well not have it */
		if (object->steps[hold->first].optional && hold->claim == hold->first)
			object->n = hold->first;
	}
	*hold = (Hold){0};
}

static Step *
claim(Object *object, Hold *hold, Function f, const Op *op)
{
	Step *step;

	if (!hold->open && hold->asked != NULL)
	{
		hold->first = object->n;
		hold->count = 1;
		(void) add_step(object, ACQUIRE, hold->asked);
	}
	else if (!hold->open)
		hold->first = object->n;
	step = add_step(object, f, op);
	hold->open = true;
	hold->asked = NULL;
	hold->claim = object->n - 1;
	return step;
}

static void
hold_op(Object *object, Hold *hold, const Op *op)
{
	bool ok = op->outcome == OK;

	if (is(op->f, "acquire"))
	{
		object->shares |= op->value[KEY_MODE] == history_number("shared");
		if (ok)
		{
			object->reenters |= hold->open;
			hold->asked = NULL;
			claim(object, hold, ACQUIRE, op)->limit = op->value[KEY_PERMITS];
			hold->count++;
		}
		else if (op->outcome == INFO && !hold->open)
			hold->asked = op;
	}
	else if (is(op->f, "check") && ok)
		(void) claim(object, hold, CHECK, op);
	else if (is(op->f, "commit") && ok)
	{
		(void) claim(object, hold, COMMIT, op);
		end_hold(object, hold, true);
	}
	else if (is(op->f, "release") && ok && !hold->open)
	{
		/* nobody can give back what he has not */
		(void) claim(object, hold, RELEASE, op);
		end_hold(object, hold, true);
	}
	else if (is(op->f, "release") && ok && hold->count > 1)
	{
		(void) add_step(object, RELEASE, op);
		hold->count--;
	}
	else if (!is(op->f, "check"))
		end_hold(object, hold, false);
}

/* An item that a process has taken. */
static void
item_op(Object *object, Hold *hold, const Op *op)
{
	Step *back;

	if (is(op->f, "put"))
	{
		if (op->outcome != FAIL)
			add_step(object, PUT, op)->number = op->value[KEY_ID];
	}
	else if (is(op->f, "empty") && op->outcome == OK)
		(void) add_step(object, EMPTY, op);
	else if (has(op, "take", OK))
	{
		end_hold(object, hold, false);
		hold->open = true;
		hold->first = hold->claim = object->n;
		add_step(object, TAKE, op)->number = op->value[KEY_ID];
	}
	else if (is(op->f, "done") && op->outcome == OK)
	{
		(void) add_step(object, DONE, op);
		*hold = (Hold){0};
	}
	else if (is(op->f, "done") && op->outcome == INFO)
	{
		/* either one, and the other not; the session may have ended long before */
		(void) add_step(object, DONE, op);
		back = add_step(object, GIVE_BACK, op);
		if (hold->open)
			back->call = object->steps[hold->first].call;
		*hold = (Hold){0};
	}
	else if (is(op->f, "done"))
		end_hold(object, hold, false);
}

static void
slot_op(Object *object, const Op *op)
{
	int how = (int) op->value[KEY_HOW];

	if (is(op->f, "count") && op->outcome == OK)
		add_step(object, COUNT, op)->number = op->value[KEY_COMMITTED];
	else if (!is(op->f, "run") || op->outcome == FAIL)
		return;
	else if (op->outcome == OK && is(how, "done"))
		(void) add_step(object, TOLD, op);
	else if (op->outcome == OK && is(how, "skipped"))
		(void) add_step(object, SKIPPED, op);
	else
		(void) add_step(object, RAN, op);
}

static void
register_op(Object *object, const Op *op)
{
	Function f = is(op->f, "read") ? READ : is(op->f, "cas") ? CAS : FENCE;
	Step *step;

	if (op->outcome == FAIL || (f == READ && op->outcome != OK))
		return;
	step = add_step(object, f, op);
	step->number = op->value[KEY_NEW];
	step->limit = op->value[KEY_OLD];
}

/* A party that the ensemble let go may not hear of it.  If the ensemble forgets, the
 * party goes on to wait for others: then it is in two rounds. */
static void
barrier_op(Object *object, const Op *op)
{
	if (op->outcome == FAIL)
		return;
	add_step(object, ARRIVE, op)->limit = op->value[KEY_PARTIES];
	if (models_went_back(op->call, op->ret))
	{
		Step *step = add_step(object, ARRIVE, op);

		step->limit = op->value[KEY_PARTIES];
		step->optional = true;
	}
}

static void
election_op(Object *object, const Op *op)
{
	if (op->outcome == OK && op->value[KEY_TOKEN] != NOTHING)
		(void) add_step(object, LEAD, op);
}

/* ------------------------------------------------------------------------
 * Objects
 * ------------------------------------------------------------------------
 */
static int
compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int
compare_asked(const void *a, const void *b)
{
	const Asked *one = a;
	const Asked *other = b;
	int result = compare(one->kind, other->kind);

	if (result == 0)
		result = compare(one->name, other->name);
	if (result == 0)
		result = compare(one->part, other->part);
	if (result == 0)
		result = compare(one->op->process, other->op->process);
	/* its operations stand in their order */
	return result ? result : (one->op > other->op) - (one->op < other->op);
}

static void
ask(List *list, const Op *op, int64_t part)
{
	if (list->n == list->size)
	{
		list->size = list->size ? 2 * list->size : 4096;
		list->asked = enlarge(list->asked, sizeof(Asked) * (size_t) list->size);
	}
	list->asked[list->n++] = (Asked){op->kind, op->name, part, op};
}

static bool
same_object(const Asked *a, const Asked *b)
{
	return a->kind == b->kind && a->name == b->name && a->part == b->part;
}

/* A question about a queue as a whole is a question about each item. */
static void
ask_items(List *list, const Op *op)
{
	long n = list->n;

	for (long i = 0; i < n; i++)
	{
		const Asked *asked = &list->asked[i];

		if (asked->kind == op->kind && asked->name == op->name &&
			(i == 0 || !same_object(asked, asked - 1)))
			ask(list, op, asked->part);
	}
}

static void
list_ops(const History *history, List *list)
{
	for (long i = 0; i < history->n; i++)
	{
		const Op *op = &history->ops[i];

		if (is(op->kind, "fault"))
			note_fault(op);
		else if (is(op->kind, "queue"))
		{
			/* a take without an answer has perhaps taken what goes back by itself */
			if (op->value[KEY_ITEM] != NOTHING)
				ask(list, op, op->value[KEY_ITEM]);
		}
		else
			ask(list, op, is(op->kind, "job") ? op->value[KEY_SLOT] : NOTHING);
	}
	qsort(list->asked, (size_t) list->n, sizeof(Asked), compare_asked);
	for (long i = 0; i < history->n; i++)
	{
		if (is(history->ops[i].kind, "queue") && is(history->ops[i].f, "empty"))
			ask_items(list, &history->ops[i]);
	}
	qsort(list->asked, (size_t) list->n, sizeof(Asked), compare_asked);
}

static void
add_op(Object *object, Hold *hold, const Op *op)
{
	if (is(op->kind, "lock") || is(op->kind, "semaphore"))
		hold_op(object, hold, op);
	else if (is(op->kind, "queue"))
		item_op(object, hold, op);
	else if (is(op->kind, "job"))
		slot_op(object, op);
	else if (is(op->kind, "register"))
		register_op(object, op);
	else if (is(op->kind, "barrier"))
		barrier_op(object, op);
	else if (is(op->kind, "election"))
		election_op(object, op);
	else
		give_up("there is no model for \"%s\"", history_string(op->kind));
}

/* Notes which steps the ensemble may have forgotten, and which runs may have been in
 * doubt. */
static void
excuse(Object *object)
{
	bool item = is(object->kind, "queue");
	int64_t first = FOREVER;
	int64_t doubt = FOREVER;

	if (!item && !is(object->kind, "job"))
		return;
	for (int i = 0; i < object->n; i++)
	{
		const Step *step = &object->steps[i];

		if (step->call < first)
			first = step->call;
		if (step->f == RAN && step->call < doubt)
			doubt = step->call;
	}
	for (int i = 0; i < object->n; i++)
	{
		Step *step = &object->steps[i];

		step->excused = models_went_back(first, step->optional ? step->op->ret : step->ret);
		/* only a run may be in doubt, and only with in_doubt => 'run' is it run again */
		if (step->f == SKIPPED)
			step->forgiving = doubt < step->ret;
		else if (step->f == RAN)
			step->forgiving = step->op->value[KEY_MODE] != history_number("skip");
	}
}

/* The operations come ordered by process. */
long
make_object(Object *object, const List *list, long first)
{
	const Asked *asked = &list->asked[first];
	long n = 1;
	Hold hold = {0};

	while (first + n < list->n && same_object(asked, &asked[n]))
		n++;
	*object = (Object){.kind = asked->kind, .name = asked->name, .part = asked->part};
	/* an operation makes two steps at most */
	object->steps = allocate(sizeof(Step) * (size_t) (2 * n));
	for (long i = 0; i < n; i++)
	{
		if (i > 0 && asked[i].op->process != asked[i - 1].op->process)
			end_hold(object, &hold, false);
		add_op(object, &hold, asked[i].op);
	}
	end_hold(object, &hold, false);
	excuse(object);
	return first + n;
}

void
prepare(const History *history, List *list)
{
	*list = (List){0};
	list_ops(history, list);
}

void
models_of(const Object *object, const Model *models[3])
{
	models[0] = is(object->kind, "semaphore") ? &semaphore_model
		: is(object->kind, "queue")			  ? &item_model
		: is(object->kind, "job")			  ? &slot_model
		: is(object->kind, "register")		  ? &register_model
		: is(object->kind, "barrier")		  ? &round_model
		: is(object->kind, "election")		  ? &leader_model
		: object->shares					  ? &reader_writer_model
											  : &fenced_mutex_model;
	/* the same history by the weaker model, with which others were judged */
	models[1] = models[0] == &fenced_mutex_model && !object->reenters ? &mutex_model : NULL;
	models[2] = NULL;
}
