/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Questions to the ensemble on behalf of backends.
 *
 *	 state     who moves on      to
 *	 FREE      backend           POSTED: a question
 *	 POSTED    worker, connected RUNNING: sync and listing are sent, then a get a child
 *	 RUNNING   worker            PAGE: some rows, with more to come; DONE: the last
 *	                             ones, or a refusal; RESTART: the connection is lost
 *	 PAGE      backend           RUNNING: read
 *	 DONE      backend           FREE
 *	 RESTART   backend           POSTED: what was read is forgotten
 *
 * A slot belongs to its backend, which frees it in any state, whatever the
 * worker is about to do.  So each question has a serial number, and the worker
 * compares it under the lock before it touches the slot; replies to gets that
 * are still out are dropped by it as well.  A new worker finds slots of which it
 * knows nothing and has their backends begin again.
 *
 * zklock_query_remove is a question, too, whose answer is a deletion: the worker looks
 * for the child with the token and deletes it.  If the connection is lost then, all
 * begins again; the slot remembers that the child was there.
 *
 * So is zklock_query_raise: the worker reads the base of tokens and sets it, if nobody
 * else has in between.  What it has set the slot remembers.  The answer is given at
 * once, since the session ends when the base is another (ensemble.c).
 *
 * An answer of any size passes through a page, and the worker keeps no more
 * than the listing and what the open gets bring.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "acquire.h"
#include "dispatch.h"
#include "ensemble.h"
#include "path.h"
#include "query.h"
#include "session.h"
#include "table.h"
#include "tag.h"

/* Questions at a time; further ones wait. */
#define NSLOTS	  4

#define PAGE_SIZE (32 * 1024)

/* Gets open at a time, for one question. */
#define WINDOW 128

/* Longer names, which only foreigners make, are cut off: a row fits into a page. */
#define QUERY_NAME_MAX 8192

/* ms: until a backend begins again; and a backstop for lost wake-ups */
#define RESTART_PAUSE 50
#define LONGEST_SLEEP 1000

typedef enum QueryState
{
	QUERY_FREE,
	QUERY_POSTED,
	QUERY_RUNNING,
	QUERY_PAGE,
	QUERY_DONE,
	QUERY_RESTART
} QueryState;

typedef struct QuerySlot
{
	QueryState state;
	uint32 serial;		  /* of the question, never 0 */
	ConditionVariable cv; /* broadcast by the worker when the state has changed */
	ZkQuery query;
	bool removing; /* the child to be removed has been found */
	int64 raised;  /* the base that was sent; 0 or -1: it will not be */
	int rc;		   /* DONE: ZOK, NONODE or what the ensemble said */
	int used;	   /* PAGE, DONE: bytes in the page */
	char page[PAGE_SIZE];
} QuerySlot;

typedef struct QueryShared
{
	LWLock *lock;			   /* of all that follows */
	ConditionVariable free_cv; /* a slot is free */
	uint32 last_serial;
	QuerySlot slot[NSLOTS];
} QueryShared;

/* A row in a page, before its name and its data, which end in a NUL each. */
typedef struct RowHeader
{
	int32 size; /* of all, aligned */
	int32 name_len;
	int32 data_len;
	bool name_cut;
	bool data_cut;
	int32 nchildren;
	int64 token;
	int64 ctime;
	int64 ephemeral_owner;
} RowHeader;

static QueryShared *shared = NULL;

void
zklock_query_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(QueryShared)));
	RequestNamedLWLockTranche("zklock_query", 1);
}

void
zklock_query_startup(void)
{
	bool found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock queries", sizeof(QueryShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(*shared));
		shared->lock = &GetNamedLWLockTranche("zklock_query")->lock;
		ConditionVariableInit(&shared->free_cv);
		for (int i = 0; i < NSLOTS; i++)
			ConditionVariableInit(&shared->slot[i].cv);
	}
	LWLockRelease(AddinShmemInitLock);
}

static uint32
next_serial(void)
{
	if (++shared->last_serial == 0)
		shared->last_serial = 1;
	return shared->last_serial;
}

/* ------------------------------------------------------------------------
 * The backend
 * ------------------------------------------------------------------------
 */

static uint32 wait_event_query = 0;

/* Wait for the worker.  Raises when the ensemble is out of reach for too long. */
static void
wait_for_worker(ConditionVariable *cv, int64 start)
{
	ZkSessionShared s;

	zklock_session_read(&s);
	if (s.state == ZKLOCK_SESSION_CLOSING)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot ask ZooKeeper while the server is shutting down")));
	(void) zklock_check_connection(start);
	(void) ConditionVariableTimedSleep(cv, LONGEST_SLEEP,
									   zklock_wait_event(&wait_event_query, "ZkLockQuery"));
}

/* Take a free slot and post the question. */
static int
take_slot(const ZkQuery *query, int64 start)
{
	int taken = -1;

	ConditionVariablePrepareToSleep(&shared->free_cv);
	while (taken < 0)
	{
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		for (int i = 0; i < NSLOTS && taken < 0; i++)
		{
			QuerySlot *slot = &shared->slot[i];

			if (slot->state != QUERY_FREE)
				continue;
			slot->query = *query;
			slot->removing = false;
			slot->raised = 0;
			slot->serial = next_serial();
			slot->state = QUERY_POSTED;
			taken = i;
		}
		LWLockRelease(shared->lock);
		if (taken < 0)
			wait_for_worker(&shared->free_cv, start);
	}
	ConditionVariableCancelSleep();
	return taken;
}

/* "arg": which slot, if it is 0 or more. */
static void
free_slot(int code, Datum arg)
{
	int taken = *(volatile int *) DatumGetPointer(arg);
	QuerySlot *slot = &shared->slot[taken];

	if (taken < 0)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot->state = QUERY_FREE;
	slot->serial = next_serial(); /* the worker forgets it */
	LWLockRelease(shared->lock);
	ConditionVariableSignal(&shared->free_cv);
	zklock_worker_wake();
}

/* What the slot has to say.  A page is copied, and the worker may go on. */
static QueryState
read_slot(QuerySlot *slot, char *page, int *used, int *rc)
{
	QueryState state;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	state = slot->state;
	*used = 0;
	*rc = slot->rc;
	if (state == QUERY_PAGE || state == QUERY_DONE)
	{
		*used = slot->used;
		memcpy(page, slot->page, (size_t) slot->used);
	}
	if (state == QUERY_PAGE)
		slot->state = QUERY_RUNNING;
	else if (state == QUERY_RESTART)
	{
		slot->serial = next_serial();
		slot->state = QUERY_POSTED;
	}
	LWLockRelease(shared->lock);
	return state;
}

typedef struct Answer
{
	MemoryContext context;
	ZkNode *nodes;
	int n;
	int room;
} Answer;

static void
add_rows(Answer *answer, const char *page, int used)
{
	MemoryContext save = MemoryContextSwitchTo(answer->context);

	for (const char *p = page; p < page + used;)
	{
		const RowHeader *row = (const RowHeader *) p;
		const char *name = p + sizeof(RowHeader);
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
		node->ephemeral_owner = row->ephemeral_owner;
		node->nchildren = row->nchildren;
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

/* Read until all is there.  Returns ZooKeeper's code. */
static int
read_answer(QuerySlot *slot, int64 start, Answer *answer)
{
	char *page = palloc(PAGE_SIZE);
	QueryState state;
	int used;
	int rc;

	ConditionVariablePrepareToSleep(&slot->cv);
	while ((state = read_slot(slot, page, &used, &rc)) != QUERY_DONE)
	{
		switch (state)
		{
			case QUERY_PAGE:
				zklock_worker_wake();
				add_rows(answer, page, used);
				CHECK_FOR_INTERRUPTS();
				break;
			case QUERY_RESTART:
				forget_rows(answer);
				(void) ConditionVariableTimedSleep(&slot->cv, RESTART_PAUSE,
												   zklock_wait_event(&wait_event_query,
																	 "ZkLockQuery"));
				zklock_worker_wake();
				break;
			default:
				wait_for_worker(&slot->cv, start);
		}
	}
	ConditionVariableCancelSleep();
	add_rows(answer, page, used);
	pfree(page);
	return rc;
}

/* Ask and free the slot again; "removing" and "raised" may be NULL. */
static int
ask(const ZkQuery *query, Answer *answer, bool *removing, int64 *raised)
{
	int64 start = zklock_clock();
	volatile int taken = -1;
	volatile int rc = ZKLOCK_ZOK;
	Datum which = PointerGetDatum(unvolatize(int *, &taken));

	/* which may itself raise: so the slot is taken inside */
	PG_ENSURE_ERROR_CLEANUP(free_slot, which);
	{
		taken = take_slot(query, start);
		zklock_worker_wake();
		rc = read_answer(&shared->slot[taken], start, answer);
		if (removing != NULL)
			*removing = shared->slot[taken].removing;
		if (raised != NULL)
			*raised = shared->slot[taken].raised;
	}
	PG_END_ENSURE_ERROR_CLEANUP(free_slot, which);
	free_slot(0, which);

	if (rc != ZKLOCK_ZOK && rc != ZKLOCK_ZNONODE)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("ZooKeeper refused to answer: %s", zklock_rc_text(rc)),
				 errhint("Check the permissions of the znodes under \"zklock.root\".")));
	return rc;
}

int
zklock_query(const ZkQuery *query, ZkNode **nodes)
{
	Answer answer = {.context = CurrentMemoryContext};

	if (ask(query, &answer, NULL, NULL) == ZKLOCK_ZNONODE)
		return -1;
	*nodes = answer.nodes;
	return answer.n;
}

bool
zklock_query_remove(const char *name, int64_t token)
{
	ZkQuery query = {
		.kind = ZKLOCK_KIND_LOCK,
		.contenders = true,
		.remove = token,
	};
	Answer answer = {.context = CurrentMemoryContext};
	bool removing = false;

	if (token <= 0)
		return false;
	strlcpy(query.name, name, sizeof(query.name));
	(void) ask(&query, &answer, &removing, NULL);
	return removing;
}

int64_t
zklock_query_raise(int64_t above)
{
	ZkQuery query = {.raise = true, .above = above};
	Answer answer = {.context = CurrentMemoryContext};
	int64 raised = 0;

	(void) ask(&query, &answer, NULL, &raised);
	return raised;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

typedef struct Child
{
	char *name;
	int64 sequence;
} Child;

/* A question that the worker is at. */
typedef struct Run
{
	uint32 serial; /* 0: none */
	int opened;	   /* zklock_session_opened() of the client that is asked */
	ZkQuery query;
	char path[1024];	   /* of the directory */
	MemoryContext context; /* of what follows */
	bool listed;
	Child *children;
	int nchildren;
	int next;			 /* the child to get next */
	int open;			 /* gets without a reply */
	int found;			 /* rows made */
	StringInfoData rows; /* made, and not in a page yet */
	int rows_sent;		 /* bytes of it that are */
	int rc;
} Run;

static Run runs[NSLOTS];

/* ZkRequestTag.uuid of a listing and of a delete; else it is the child's index. */
#define TAG_LISTING PG_UINT64_MAX
#define TAG_REMOVAL (PG_UINT64_MAX - 1)
#define TAG_BASE	(PG_UINT64_MAX - 2)
#define TAG_RAISE	(PG_UINT64_MAX - 3)

static void
forget_run(Run *run)
{
	if (run->context != NULL)
		MemoryContextDelete(run->context);
	memset(run, 0, sizeof(*run));
}

static ZkRequestTag
make_tag(const Run *run, uint64 what)
{
	ZkRequestTag tag = {
		.kind = ZKLOCK_TAG_QUERY,
		.entry = (uint32) (run - runs),
		.generation = run->serial,
		.uuid = what,
	};

	return tag;
}

static bool
get_base(const Run *run)
{
	ZkRequestTag tag = make_tag(run, TAG_BASE);

	return zklock_client_get(zklock_session_client(), zklock_path_tokens(), false, &tag) ==
		ZKLOCK_ZOK;
}

/* Sync first: what is read is then no older than the question. */
static bool
start_run(Run *run, uint32 serial, const ZkQuery *query)
{
	ZkClient *client = zklock_session_client();
	const char *directory = zklock_path_directory(query->kind);
	static const ZkRequestTag no_tag = {0};
	ZkRequestTag tag;
	MemoryContext save;

	run->serial = serial;
	run->opened = zklock_session_opened();
	run->query = *query;
	run->context =
		AllocSetContextCreate(TopMemoryContext, "zklock query", ALLOCSET_DEFAULT_SIZES);
	save = MemoryContextSwitchTo(run->context);
	initStringInfo(&run->rows);
	MemoryContextSwitchTo(save);

	if (query->raise)
		return get_base(run);
	strlcpy(run->path, directory, sizeof(run->path));
	if (query->name[0] != '\0')
	{
		char encoded[ZKLOCK_ENCODED_MAX + 1];

		zklock_encode_name(query->name, encoded);
		snprintf(run->path, sizeof(run->path), "%s/%s", directory, encoded);
	}
	tag = make_tag(run, TAG_LISTING);
	return zklock_client_sync(client, directory, &no_tag) == ZKLOCK_ZOK &&
		zklock_client_list(client, run->path, false, &tag) == ZKLOCK_ZOK;
}

static int
compare_children(const void *a, const void *b)
{
	int64 x = ((const Child *) a)->sequence;
	int64 y = ((const Child *) b)->sequence;

	return (x > y) - (x < y);
}

static void
take_listing(Run *run, const ZkMessage *message)
{
	MemoryContext save = MemoryContextSwitchTo(run->context);
	size_t prefix_len = strlen(run->query.prefix);

	run->children =
		MemoryContextAllocHuge(run->context, sizeof(Child) * Max(message->nchildren, 1));
	for (int i = 0; i < message->nchildren; i++)
	{
		const char *name = message->children[i];
		Child *child = &run->children[run->nchildren];
		ZkLockChild parsed = {0};

		if (strncmp(name, run->query.prefix, prefix_len) != 0 ||
			(!zklock_parse_child(name, &parsed) && run->query.contenders))
			continue;
		child->name = pstrdup(name);
		child->sequence = parsed.sequence;
		run->nchildren++;
	}
	if (run->query.contenders)
		qsort(run->children, (size_t) run->nchildren, sizeof(Child), compare_children);
	run->listed = true;
	MemoryContextSwitchTo(save);
}

static void
take_child(Run *run, const char *name, const ZkMessage *message)
{
	static const char padding[MAXIMUM_ALIGNOF] = {0};
	size_t name_len = strlen(name);
	RowHeader row = {
		.name_len = (int32) Min(name_len, QUERY_NAME_MAX),
		.data_len = Min(message->datalen, ZKLOCK_QUERY_DATA_MAX),
		.name_cut = name_len > QUERY_NAME_MAX,
		.data_cut = message->datalen > ZKLOCK_QUERY_DATA_MAX,
		.nchildren = message->nchildren,
		.token = zklock_ensemble_token(message->czxid),
		.ctime = message->ctime,
		.ephemeral_owner = message->ephemeral_owner,
	};
	int size = (int) sizeof(row) + row.name_len + 1 + row.data_len + 1;

	row.size = (int32) MAXALIGN(size);
	appendBinaryStringInfo(&run->rows, (const char *) &row, sizeof(row));
	appendBinaryStringInfo(&run->rows, name, row.name_len);
	appendBinaryStringInfo(&run->rows, padding, 1);
	appendBinaryStringInfo(&run->rows, message->data, row.data_len);
	appendBinaryStringInfo(&run->rows, padding, 1 + row.size - size);
	run->found++;
}

/*
 * The child that is to be removed.  A contender of our own is gone for the table
 * first: nobody here shall believe in a grant that others may have in a moment.
 */
static void
remove_child(Run *run, const char *name)
{
	QuerySlot *slot = &shared->slot[run - runs];
	ZkClient *client = zklock_session_client();
	ZkRequestTag tag = make_tag(run, TAG_REMOVAL);
	char *path = psprintf("%s/%s", run->path, name);

	/* whatever becomes of the connection: it was there, and will go */
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (slot->serial == run->serial)
		slot->removing = true;
	LWLockRelease(shared->lock);

	zklock_dispatch_removal(run->query.kind, run->query.name, name);
	if (client == NULL || zklock_client_delete(client, path, &tag) != ZKLOCK_ZOK)
		run->opened = -1; /* begin again */
	else
		run->open++;
	run->next = run->nchildren;
	pfree(path);
}

/* The answer, before the worker comes to look at the slot again. */
static void
finish_raise(Run *run, int rc, int64 raised)
{
	QuerySlot *slot = &shared->slot[run - runs];

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (slot->serial == run->serial && slot->state == QUERY_RUNNING)
	{
		slot->raised = raised;
		slot->rc = rc;
		slot->used = 0;
		slot->state = QUERY_DONE;
		ConditionVariableBroadcast(&slot->cv);
	}
	LWLockRelease(shared->lock);
	forget_run(run);
}

/* The base as it is: set it, unless that is done. */
static void
take_base(Run *run, const ZkMessage *message)
{
	QuerySlot *slot = &shared->slot[run - runs];
	ZkRequestTag tag = make_tag(run, TAG_RAISE);
	int64 sent = slot->raised; /* the worker alone writes it */
	int64 base;
	int64 raised;
	char text[32];

	if (!zklock_ensemble_admitted() ||
		!zklock_history_parse_base(message->data, (size_t) message->datalen, &base))
	{
		run->opened = -1; /* begin again when it can be told */
		return;
	}
	raised = zklock_history_raise_above(&zklock_shared->history, run->query.above);
	if (sent > 0 && base >= sent)
		finish_raise(run, ZKLOCK_ZOK, base); /* it was, though we did not hear of it */
	else if (raised <= base)
		finish_raise(run, ZKLOCK_ZOK, 0);
	else if (run->query.above > ZKLOCK_ABOVE_MAX || raised > ZKLOCK_BASE_MAX)
		finish_raise(run, ZKLOCK_ZOK, -1);
	else
	{
		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		if (slot->serial == run->serial)
			slot->raised = raised;
		LWLockRelease(shared->lock);
		snprintf(text, sizeof(text), INT64_FORMAT, raised);
		if (zklock_client_set(zklock_session_client(), zklock_path_tokens(), text,
							  (int) strlen(text), message->version, &tag) != ZKLOCK_ZOK)
			run->opened = -1;
	}
}

static bool
run_finished(const Run *run)
{
	if (run->rc != ZKLOCK_ZOK)
		return true;
	return run->listed && run->open == 0 &&
		(run->next == run->nchildren ||
		 (run->query.limit > 0 && run->found >= run->query.limit));
}

/* Fill the page with whole rows.  With the lock. */
static void
fill_page(Run *run, QuerySlot *slot)
{
	const char *start = run->rows.data + run->rows_sent;
	int left = run->rows.len - run->rows_sent;
	int used = 0;

	while (used < left)
	{
		int32 size = ((const RowHeader *) (start + used))->size;

		if (used + size > PAGE_SIZE)
			break;
		used += size;
	}
	memcpy(slot->page, start, (size_t) used);
	slot->used = used;
	run->rows_sent += used;
	if (run->rows_sent == run->rows.len)
	{
		resetStringInfo(&run->rows);
		run->rows_sent = 0;
	}
}

/* Ask for children, as long as the backend takes what comes.  False if the client
 * takes no request. */
static bool
send_gets(Run *run)
{
	ZkClient *client = zklock_session_client();

	while (run->listed && run->rc == ZKLOCK_ZOK && run->next < run->nchildren &&
		   run->open < WINDOW && run->rows.len - run->rows_sent < PAGE_SIZE &&
		   (run->query.limit == 0 || run->found + run->open < run->query.limit))
	{
		ZkRequestTag tag = make_tag(run, (uint64) run->next);
		char *path = psprintf("%s/%s", run->path, run->children[run->next].name);
		int rc = zklock_client_get(client, path, false, &tag);

		pfree(path);
		if (rc != ZKLOCK_ZOK)
			return false;
		run->next++;
		run->open++;
	}
	return true;
}

static void
work_on(Run *run, QuerySlot *slot)
{
	ZkQuery query;
	uint32 serial;
	QueryState before;
	bool alive;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	before = slot->state;
	serial = slot->serial;
	query = slot->query;
	if (before == QUERY_POSTED && zklock_session_client() != NULL)
		slot->state = QUERY_RUNNING;
	LWLockRelease(shared->lock);

	if (run->serial != 0 && (run->serial != serial || before == QUERY_FREE))
		forget_run(run);
	if (before == QUERY_FREE || before == QUERY_DONE || before == QUERY_RESTART ||
		zklock_session_client() == NULL)
		alive = false;
	else if (before == QUERY_POSTED)
		alive = start_run(run, serial, &query);
	else
		alive = run->serial == serial && run->opened == zklock_session_opened();
	alive = alive && send_gets(run);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (slot->serial == serial &&
		(slot->state == QUERY_RUNNING || slot->state == QUERY_PAGE))
	{
		if (!alive)
			slot->state = QUERY_RESTART;
		else if (slot->state == QUERY_RUNNING &&
				 (run_finished(run) || run->rows.len - run->rows_sent > PAGE_SIZE / 2))
		{
			fill_page(run, slot);
			slot->rc = run->rc;
			slot->state = run_finished(run) && run->rows.len == 0 ? QUERY_DONE : QUERY_PAGE;
		}
		if (slot->state != QUERY_RUNNING)
			ConditionVariableBroadcast(&slot->cv);
		if (slot->state == QUERY_RESTART || slot->state == QUERY_DONE)
			forget_run(run);
	}
	LWLockRelease(shared->lock);
}

void
zklock_query_work(void)
{
	for (int i = 0; i < NSLOTS; i++)
	{
		/* unlocked: whoever posts a question wakes us, and then we see it */
		if (shared->slot[i].state != QUERY_FREE || runs[i].serial != 0)
			work_on(&runs[i], &shared->slot[i]);
	}
}

void
zklock_query_message(const ZkMessage *message)
{
	Run *run = &runs[message->tag.entry];

	if (run->serial != message->tag.generation)
		return; /* nobody waits for it any more */
	if (message->tag.uuid == TAG_BASE && message->rc == ZKLOCK_ZOK)
	{
		take_base(run, message);
		return;
	}
	if (message->tag.uuid == TAG_RAISE && message->rc == ZKLOCK_ZOK)
	{
		finish_raise(run, ZKLOCK_ZOK, shared->slot[run - runs].raised);
		return;
	}
	if (message->tag.uuid < TAG_RAISE || message->tag.uuid == TAG_REMOVAL)
		run->open--;

	switch (message->rc)
	{
		case ZKLOCK_ZOK:
			if (message->tag.uuid == TAG_LISTING)
				take_listing(run, message);
			else if (message->tag.uuid == TAG_REMOVAL)
				break;
			else if (run->query.remove == zklock_ensemble_token(message->czxid))
				remove_child(run, run->children[message->tag.uuid].name);
			else if (run->query.remove == 0)
				take_child(run, run->children[message->tag.uuid].name, message);
			break;
		case ZKLOCK_ZNONODE:
			/* a child may have gone since the listing */
			if (message->tag.uuid == TAG_LISTING)
				run->rc = message->rc;
			else if (message->tag.uuid == TAG_BASE || message->tag.uuid == TAG_RAISE)
				run->opened = -1; /* it will be made anew */
			break;
		case ZKLOCK_ZCONNECTIONLOSS:
		case ZKLOCK_ZOPERATIONTIMEOUT:
		case ZKLOCK_ZSESSIONEXPIRED:
		case ZKLOCK_ZBADVERSION:
			run->opened = -1; /* begin again */
			break;
		default:
			run->rc = message->rc;
			break;
	}
}
