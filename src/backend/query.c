/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Asks questions of the ensemble: the backend's part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "check.h"
#include "query.h"
#include "table.h"
#include "waiter.h"
#include "zk.h"

/* ms: the pause before a backend begins again, and a backstop for lost wake-ups */
#define RESTART_PAUSE 50
#define LONGEST_SLEEP 1000

static ZkWaitEvent wait_event_query = {.name = "ZkLockQuery"};

typedef struct Answer
{
	MemoryContext context;
	ZkNode *nodes;
	int n;
	int room;
	/* as in the question */
	bool removing;
	int64 raised;
	int64 purged;
	int64 now;
	int64 session;
} Answer;

/* The question, and the time limits. */
typedef struct Asking
{
	const ZkQuery *query;
	const char *data;
	int len;
	int64 start;
	int64 until; /* 0: until the ensemble is out of reach for too long, which raises */
	Answer *answer;
	volatile int taken; /* a question, or -1 */
	char *page;			/* has room */
	int64 again;		/* when it is asked again; 0: it is being answered */
	int rc;
} Asking;

/* Is it time to give up, whatever the clock says?  May raise instead. */
static bool
is_over(const Asking *a)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	if (a->until != 0)
		return s.state != ZKLOCK_SESSION_CONNECTED && s.state != ZKLOCK_SESSION_CLOSING;
	if (s.state == ZKLOCK_SESSION_CLOSING)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("cannot ask ZooKeeper while the server is shutting down")));
	return false;
}

/* ns: so long a worker may take to replace another, or a connection to move */
#define MOVES INT64CONST(5000000000)

bool
zklock_query_moves(void)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	return s.state != ZKLOCK_SESSION_CONNECTED && s.state != ZKLOCK_SESSION_CLOSING &&
		(int64) zklock_clock() - s.not_connected_since < MOVES;
}

static bool
look_for_end_of_move(ZkWaiter *waiter, int64 now)
{
	return !zklock_query_moves();
}

void
zklock_query_await_move(int64 until)
{
	ZkWait limits = {.start = zklock_clock(), .until = until, .lock_timeout = PG_INT64_MAX};
	ZkWaiter waiter = {
		.look = look_for_end_of_move,
		.limits = &limits,
		.cv = &zklock_shared->write_cv,
		.event = &wait_event_query,
		.longest = RESTART_PAUSE,
		.end = ZKLOCK_WAIT_ENDS,
	};

	if (zklock_query_moves())
		(void) zklock_wait_for(&waiter);
}

/* Wait for the worker.  False: the time is up.  It adds no error context: the statement
 * is the question. */
static bool
wait_for_worker(Asking *a, ConditionVariable *cv, bool (*look)(ZkWaiter *, int64))
{
	ZkWait limits = {
		.start = a->start,
		.until = a->until != 0 ? a->until : a->start,
		.lock_timeout = PG_INT64_MAX,
	};
	ZkWaiter waiter = {
		.look = look,
		.arg = a,
		.limits = &limits,
		.cv = cv,
		.event = &wait_event_query,
		.longest = LONGEST_SLEEP,
		.connected = a->until == 0,
		.end = a->until != 0 ? ZKLOCK_WAIT_ENDS : ZKLOCK_WAIT_GOES_ON,
	};

	return zklock_wait_for(&waiter);
}

/* Post a question if there is room. */
static bool
look_for_question(ZkWaiter *waiter, int64 now)
{
	Asking *a = waiter->arg;

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZKLOCK_NQUESTIONS && a->taken < 0; i++)
	{
		ZkQuestion *question = &zklock_questions->question[i];

		if (question->state != ZKLOCK_QUESTION_FREE)
			continue;
		question->query = *a->query;
		question->removing = false;
		question->raised = question->purged = 0;
		question->now = question->session = 0;
		question->used = a->len;
		if (a->len > 0)
			memcpy(question->page, a->data, (size_t) a->len);
		question->serial = zklock_mailbox_serial(&zklock_questions->box);
		zklock_question_set_state(question, ZKLOCK_QUESTION_POSTED);
		a->taken = i;
	}
	LWLockRelease(zklock_questions->box.lock);
	return a->taken >= 0 || is_over(a);
}

/* Free the question with the number "arg", if that is not negative. */
static void
free_question(int code, Datum arg)
{
	int taken = ((const Asking *) DatumGetPointer(arg))->taken;
	ZkQuestion *question = &zklock_questions->question[taken];

	if (taken < 0)
		return;
	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	zklock_question_set_state(question, ZKLOCK_QUESTION_FREE);
	question->serial =
		zklock_mailbox_serial(&zklock_questions->box); /* the worker forgets it */
	LWLockRelease(zklock_questions->box.lock);
	ConditionVariableSignal(&zklock_questions->free_cv);
	zklock_worker_wake();
}

/* Read the state of the answer.  A page is copied, and then the worker may go on. */
static ZkQuestionState
read_question(ZkQuestion *question, char *page, int *used, int *rc)
{
	ZkQuestionState state;

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	state = question->state;
	Assert(state != ZKLOCK_QUESTION_FREE); /* it is ours */
	*used = 0;
	*rc = question->rc;
	if (state == ZKLOCK_QUESTION_PAGE || state == ZKLOCK_QUESTION_DONE)
	{
		*used = question->used;
		memcpy(page, question->page, (size_t) question->used);
	}
	if (state == ZKLOCK_QUESTION_PAGE)
		zklock_question_set_state(question, ZKLOCK_QUESTION_RUNNING);
	LWLockRelease(zklock_questions->box.lock);
	return state;
}

static void
add_rows(Answer *answer, const char *page, int used)
{
	MemoryContext save = MemoryContextSwitchTo(answer->context);

	for (const char *p = page; p < page + used;)
	{
		const ZkAnswerRow *row = (const ZkAnswerRow *) p;
		const char *name = p + sizeof(ZkAnswerRow);
		const char *data = name + row->name_len + 1;
		ZkNode *node;

		if (answer->n == answer->room)
		{
			Size size;

			answer->room = Max(64, 2 * answer->room);
			size = sizeof(ZkNode) * (Size) answer->room;
			answer->nodes =
				answer->nodes ? repalloc_huge(answer->nodes, size) : palloc(size);
		}
		node = &answer->nodes[answer->n++];
		node->name = pnstrdup(name, (Size) row->name_len);
		node->name_cut = row->name_cut;
		node->token = row->token;
		node->czxid = row->czxid;
		node->ctime = row->ctime;
		node->mtime = row->mtime;
		node->ephemeral_owner = row->ephemeral_owner;
		node->nchildren = row->nchildren;
		node->ncreated = row->ncreated;
		node->marked = row->marked;
		node->version = row->version;
		node->data = palloc((Size) row->data_len + 1);
		memcpy(node->data, data, (size_t) row->data_len + 1);
		node->datalen = row->data_len;
		node->data_cut = row->data_cut;
		p += row->size;
	}
	MemoryContextSwitchTo(save);
}

static void
forget_rows(Answer *answer)
{
	for (int i = 0; i < answer->n; i++)
	{
		pfree(answer->nodes[i].name);
		pfree(answer->nodes[i].data);
	}
	answer->n = 0;
}

/* The worker wants the backend to ask again. */
static void
ask_again(Asking *a, ZkQuestion *question)
{
	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	question->serial = zklock_mailbox_serial(&zklock_questions->box);
	zklock_question_set_state(question, ZKLOCK_QUESTION_POSTED);
	LWLockRelease(zklock_questions->box.lock);
	zklock_worker_wake();
	a->again = 0;
}

/* Is the answer complete, or will it never be? */
static bool
look_for_answer(ZkWaiter *waiter, int64 now)
{
	Asking *a = waiter->arg;
	ZkQuestion *question = &zklock_questions->question[a->taken];
	int used;
	int rc;

	switch (read_question(question, a->page, &used, &rc))
	{
		case ZKLOCK_QUESTION_DONE:
			add_rows(a->answer, a->page, used);
			a->rc = rc;
			return true;
		case ZKLOCK_QUESTION_PAGE:
			zklock_worker_wake();
			add_rows(a->answer, a->page, used);
			return false;
		case ZKLOCK_QUESTION_RESTART:
			if (a->query->ask == ZKLOCK_ASK_WRITE)
				return true;

			/* not at once: what made the worker want it may be so for longer */
			forget_rows(a->answer);
			if (a->again == 0)
				a->again = now + RESTART_PAUSE * NS_PER_MS;
			if (now < a->again)
				waiter->wake = a->again;
			else
				ask_again(a, question);
			break;
		default:
			break;
	}
	return is_over(a);
}

/* Ask, and free the question.  Returns ZooKeeper's code, or ZKLOCK_ZCONNECTIONLOSS also
 * when the time is up.  Raises a refusal unless there is a time limit. */
static int
ask(const ZkQuery *query, const char *data, int len, int64 until, Answer *answer)
{
	Asking a = {
		.query = query,
		.data = data,
		.len = len,
		.start = zklock_clock(),
		.until = until,
		.answer = answer,
		.taken = -1,
		.page = palloc(ZKLOCK_ANSWER_PAGE),
		.rc = ZKLOCK_ZCONNECTIONLOSS,
	};
	Datum arg = PointerGetDatum(&a);
	int rc;

	/* which may itself raise: so it is posted inside */
	PG_ENSURE_ERROR_CLEANUP(free_question, arg);
	{
		if (wait_for_worker(&a, &zklock_questions->free_cv, look_for_question) &&
			a.taken >= 0)
		{
			ZkQuestion *question = &zklock_questions->question[a.taken];

			zklock_worker_wake();
			(void) wait_for_worker(&a, &question->cv, look_for_answer);
			answer->removing = question->removing;
			answer->raised = question->raised;
			answer->purged = question->purged;
			answer->now = question->now;
			answer->session = question->session;
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(free_question, arg);
	free_question(0, arg);
	pfree(a.page);

	rc = a.rc;
	if (until == 0 && rc != ZKLOCK_ZOK && rc != ZKLOCK_ZNONODE &&
		(query->ask != ZKLOCK_ASK_WRITE ||
		 (rc != ZKLOCK_ZBADVERSION && !zklock_rc_is_lost(rc))))
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("ZooKeeper refused to answer: %s", zklock_rc_text(rc)),
				 zklock_refusal_hint(rc)));
	return rc;
}

int
zklock_query_until(const ZkQuery *query, int64 until, ZkNode **nodes)
{
	Answer answer = {.context = CurrentMemoryContext};

	if (ask(query, NULL, 0, until, &answer) != ZKLOCK_ZOK)
		return -1;
	*nodes = answer.nodes;
	return answer.n;
}

int
zklock_query(const ZkQuery *query, ZkNode **nodes)
{
	return zklock_query_until(query, 0, nodes);
}

bool
zklock_query_remove(ZkLockKind kind, const char *name, int64_t token)
{
	ZkQuery query = {
		.ask = ZKLOCK_ASK_REMOVE,
		.kind = kind,
		.contenders = true,
		.token = token,
	};
	Answer answer = {.context = CurrentMemoryContext};

	if (token <= 0)
		return false;
	strlcpy(query.name, name, sizeof(query.name));
	(void) ask(&query, NULL, 0, 0, &answer);
	return answer.removing;
}

int64_t
zklock_query_raise(int64_t above)
{
	ZkQuery query = {.ask = ZKLOCK_ASK_RAISE, .above = above};
	Answer answer = {.context = CurrentMemoryContext};

	(void) ask(&query, NULL, 0, 0, &answer);
	return answer.raised;
}

int64_t
zklock_query_purge(const char *name, const char *part)
{
	ZkQuery query = {
		.ask = ZKLOCK_ASK_PURGE,
		.kind = ZKLOCK_KIND_QUEUE,
	};
	Answer answer = {.context = CurrentMemoryContext};

	strlcpy(query.part, part, sizeof(query.part));
	strlcpy(query.name, name, sizeof(query.name));
	(void) ask(&query, NULL, 0, 0, &answer);
	return answer.purged;
}

int
zklock_query_records(ZkNode **nodes, int64_t *now)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_JOB};
	Answer answer = {.context = CurrentMemoryContext};
	int rc = ask(&query, NULL, 0, 0, &answer);

	*nodes = answer.nodes;
	*now = answer.now;
	return rc == ZKLOCK_ZNONODE ? 0 : answer.n;
}

bool
zklock_query_record(ZkLockKind kind, const char *name, int64 until, ZkRecord *record)
{
	ZkQuery query = {.ask = ZKLOCK_ASK_RECORD, .kind = kind};
	Answer answer = {.context = CurrentMemoryContext};
	int rc;

	strlcpy(query.name, name, sizeof(query.name));
	rc = ask(&query, NULL, 0, until, &answer);
	record->exists = rc == ZKLOCK_ZOK;
	record->now = answer.now;
	record->session = answer.session;
	record->rc = rc;
	if (record->exists)
		record->node = answer.nodes[0];
	return rc == ZKLOCK_ZOK || rc == ZKLOCK_ZNONODE;
}

bool
zklock_query_write(ZkLockKind kind, const char *name, int64 until, const ZkRecord *record,
				   const char *data, int len)
{
	ZkQuery query = {
		.ask = ZKLOCK_ASK_WRITE,
		.kind = kind,
		.version = record->node.version,
		.session = record->session,
	};
	Answer answer = {.context = CurrentMemoryContext};

	Assert(record->exists && len <= ZKLOCK_RECORD_MAX);
	strlcpy(query.name, name, sizeof(query.name));
	return ask(&query, data, len, until, &answer) == ZKLOCK_ZOK;
}
