/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Questions to the ensemble: the backend that asks.
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
#include "zk.h"

/* ms: until a backend begins again; and a backstop for lost wake-ups */
#define RESTART_PAUSE 50
#define LONGEST_SLEEP 1000

static uint32 wait_event_query = 0;

/* For how long a backend asks. */
typedef struct Patience
{
	int64 start;
	int64 until; /* 0: until the ensemble is out of reach for too long, which raises */
} Patience;

/* Is it time to give up?  Or raises. */
static bool
is_over(const Patience *patience)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	if (patience->until != 0)
		return zklock_clock() >= patience->until ||
			(s.state != ZKLOCK_SESSION_CONNECTED && s.state != ZKLOCK_SESSION_CLOSING);
	if (s.state == ZKLOCK_SESSION_CLOSING)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot ask ZooKeeper while the server is shutting down")));
	(void) zklock_check_connection(patience->start, patience->start);
	return false;
}

/* Wait for the worker.  False: no longer. */
static bool
wait_for_worker(ConditionVariable *cv, const Patience *patience)
{
	long sleep = LONGEST_SLEEP;

	Assert(!LWLockHeldByMe(zklock_questions->box.lock) && zklock_unlocked());
	if (is_over(patience))
		return false;
	if (patience->until != 0)
		sleep = (long) Min(sleep, (patience->until - zklock_clock()) / NS_PER_MS + 1);
	(void) ConditionVariableTimedSleep(cv, Max(sleep, 1),
									   zklock_wait_event(&wait_event_query, "ZkLockQuery"));
	return true;
}

/* Post a question where there is room; -1: there was none in time. */
static int
take_question(const ZkQuery *query, const char *data, int len, const Patience *patience)
{
	int taken = -1;

	ConditionVariablePrepareToSleep(&zklock_questions->free_cv);
	while (taken < 0)
	{
		LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
		for (int i = 0; i < ZKLOCK_NQUESTIONS && taken < 0; i++)
		{
			ZkQuestion *question = &zklock_questions->question[i];

			if (question->state != ZKLOCK_QUESTION_FREE)
				continue;
			question->query = *query;
			question->removing = false;
			question->raised = question->purged = 0;
			question->now = question->session = 0;
			question->used = len;
			if (len > 0)
				memcpy(question->page, data, (size_t) len);
			question->serial = zklock_mailbox_serial(&zklock_questions->box);
			zklock_question_set_state(question, ZKLOCK_QUESTION_POSTED);
			taken = i;
		}
		LWLockRelease(zklock_questions->box.lock);
		if (taken < 0 && !wait_for_worker(&zklock_questions->free_cv, patience))
			break;
	}
	ConditionVariableCancelSleep();
	return taken;
}

/* "arg": which question, if it is 0 or more. */
static void
free_question(int code, Datum arg)
{
	int taken = *(volatile int *) DatumGetPointer(arg);
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

/* What is the answer so far?  A page is copied, and the worker may go on. */
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

/*
 * The worker wants us to begin again.  Not at once, since what made it want that may be
 * so for longer, and not until then does it see the question.
 */
static void
begin_again(ZkQuestion *question, const Patience *patience)
{
	int64 until = zklock_clock() + RESTART_PAUSE * NS_PER_MS;
	int64 now;

	(void) is_over(patience);
	while ((now = zklock_clock()) < until)
		(void) ConditionVariableTimedSleep(&question->cv,
										   (long) ((until - now) / NS_PER_MS + 1),
										   zklock_wait_event(&wait_event_query,
															 "ZkLockQuery"));
	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	question->serial = zklock_mailbox_serial(&zklock_questions->box);
	zklock_question_set_state(question, ZKLOCK_QUESTION_POSTED);
	LWLockRelease(zklock_questions->box.lock);
	zklock_worker_wake();
}

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
		node->ctime = row->ctime;
		node->mtime = row->mtime;
		node->ephemeral_owner = row->ephemeral_owner;
		node->nchildren = row->nchildren;
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

/* Read until all is there.  Returns ZooKeeper's code, which is ZKLOCK_ZCONNECTIONLOSS
 * also when patience is over. */
static int
read_answer(ZkQuestion *question, const Patience *patience, Answer *answer)
{
	char *page = palloc(ZKLOCK_ANSWER_PAGE);
	ZkQuestionState state;
	int used;
	int rc;

	ConditionVariablePrepareToSleep(&question->cv);
	while ((state = read_question(question, page, &used, &rc)) != ZKLOCK_QUESTION_DONE)
	{
		switch (state)
		{
			case ZKLOCK_QUESTION_PAGE:
				zklock_worker_wake();
				add_rows(answer, page, used);
				CHECK_FOR_INTERRUPTS();
				break;
			case ZKLOCK_QUESTION_RESTART:
				if (question->query.ask == ZKLOCK_ASK_WRITE)
				{
					ConditionVariableCancelSleep();
					pfree(page);
					return ZKLOCK_ZCONNECTIONLOSS;
				}
				forget_rows(answer);
				begin_again(question, patience);
				break;
			default:
				if (wait_for_worker(&question->cv, patience))
					break;
				ConditionVariableCancelSleep();
				pfree(page);
				return ZKLOCK_ZCONNECTIONLOSS;
		}
	}
	ConditionVariableCancelSleep();
	add_rows(answer, page, used);
	pfree(page);
	return rc;
}

/* Ask, with "len" bytes of data, and make room again.  Returns ZooKeeper's code, and
 * raises a refusal unless there is a limit "until". */
static int
ask(const ZkQuery *query, const char *data, int len, int64 until, Answer *answer)
{
	Patience patience = {.start = zklock_clock(), .until = until};
	volatile int taken = -1;
	volatile int rc = ZKLOCK_ZOK;
	Datum which = PointerGetDatum(unvolatize(int *, &taken));

	/* which may itself raise: so it is posted inside */
	PG_ENSURE_ERROR_CLEANUP(free_question, which);
	{
		ZkQuestion *question;

		taken = take_question(query, data, len, &patience);
		if (taken < 0)
			rc = ZKLOCK_ZCONNECTIONLOSS;
		else
		{
			question = &zklock_questions->question[taken];
			zklock_worker_wake();
			rc = read_answer(question, &patience, answer);
			answer->removing = question->removing;
			answer->raised = question->raised;
			answer->purged = question->purged;
			answer->now = question->now;
			answer->session = question->session;
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(free_question, which);
	free_question(0, which);

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
