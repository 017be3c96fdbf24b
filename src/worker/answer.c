/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  Answers the questions that backends put to the ensemble: the worker's part.
 *
 * An answer passes through one page, whatever its size.  The worker keeps only the
 * listing and the results of the gets that are open.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "answer.h"
#include "dispatch.h"
#include "ensemble.h"
#include "member.h"
#include "path.h"
#include "question.h"
#include "session.h"
#include "table.h"
#include "tag.h"

/* Gets open at a time, for one question. */
#define WINDOW 128

typedef struct Child
{
	char *name;
	int64 sequence;
} Child;

/* A question that the worker works on. */
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

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static Run runs[ZKLOCK_NQUESTIONS];

/* ZkRequestTag.uuid of a request that is not a get of a child.  For a get of a child it
 * is the child's index. */
#define TAG_LISTING PG_UINT64_MAX		/* of the directory */
#define TAG_REMOVAL (PG_UINT64_MAX - 1) /* a delete */
#define TAG_BASE	(PG_UINT64_MAX - 2) /* a get */
#define TAG_RAISE	(PG_UINT64_MAX - 3) /* a set of it */
#define TAG_TIME	(PG_UINT64_MAX - 4) /* a set of our own node */
#define TAG_RECORD	(PG_UINT64_MAX - 5) /* a get */
#define TAG_WRITE	(PG_UINT64_MAX - 6) /* a set of it */
#define TAG_OTHERS	(PG_UINT64_MAX - 7) /* all of these are larger */

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
		.kind = own_tag,
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

/*
 * Send a sync.  A read that follows its acknowledgement is no older than the question.
 */
static bool
send_sync(const Run *run)
{
	ZkClient *client = zklock_session_client();
	ZkRequestTag tag = make_tag(run, TAG_TIME);

	if (zklock_kinds[run->query.kind].record || run->query.ask == ZKLOCK_ASK_RECORD)
		return zklock_ensemble_admitted() &&
			zklock_member_touch(client, &tag) == ZKLOCK_ZOK;
	return zklock_client_sync(client, zklock_path_directory(run->query.kind),
							  &zklock_no_tag) == ZKLOCK_ZOK;
}

/* Send the first request for the answer.  "data": the text to be written. */
static bool
start_run(Run *run, uint32 serial, const ZkQuery *query, const char *data, int len)
{
	ZkClient *client = zklock_session_client();
	const char *directory = query->ask == ZKLOCK_ASK_SERVERS
		? zklock_path_servers()
		: zklock_path_directory(query->kind);
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

	if (query->ask == ZKLOCK_ASK_RAISE)
		return get_base(run);
	strlcpy(run->path, directory, sizeof(run->path));
	if (query->name[0] != '\0')
	{
		char encoded[ZKLOCK_ENCODED_MAX + 1];

		zklock_encode_name(query->name, encoded);
		snprintf(run->path, sizeof(run->path), "%s/%s%s%s", directory, encoded,
				 query->part[0] != '\0' ? "/" : "", query->part);
	}
	switch (query->ask)
	{
		case ZKLOCK_ASK_WRITE:
			if (!zklock_ensemble_admitted() ||
				query->session != zklock_shared->session.id.id)
				return false;
			tag = make_tag(run, TAG_WRITE);
			return zklock_client_set(client, run->path, data, len, query->version, &tag) ==
				ZKLOCK_ZOK;
		case ZKLOCK_ASK_RECORD:
			tag = make_tag(run, TAG_RECORD);
			return send_sync(run) &&
				zklock_client_get(client, run->path, false, &tag) == ZKLOCK_ZOK;
		default:
			tag = make_tag(run, TAG_LISTING);
			return send_sync(run) &&
				zklock_client_list(client, run->path, false, &tag) == ZKLOCK_ZOK;
	}
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

/* Does the listing contain a child that has the query's mark? */
static bool
is_marked(const Run *run, const ZkMessage *message)
{
	for (int i = 0; message->children != NULL && i < message->nchildren; i++)
	{
		if (strcmp(message->children[i], run->query.mark) == 0)
			return true;
	}
	return false;
}

/*
 * Store a row with the facts about the child, or with none if the message is a refusal.
 */
static void
take_child(Run *run, const char *name, const ZkMessage *message)
{
	static const char padding[MAXIMUM_ALIGNOF] = {0};
	size_t name_len = strlen(name);
	bool record =
		zklock_kinds[run->query.kind].record || run->query.ask == ZKLOCK_ASK_RECORD;
	int data_max = record					   ? ZKLOCK_RECORD_MAX
		: run->query.ask == ZKLOCK_ASK_SERVERS ? ZKLOCK_MEMBER_MAX
											   : ZKLOCK_ANSWER_DATA_MAX;
	ZkAnswerRow row = {
		.name_len = (int32) Min(name_len, ZKLOCK_ANSWER_NAME_MAX),
		.data_len = Min(message->datalen, data_max),
		.name_cut = name_len > ZKLOCK_ANSWER_NAME_MAX,
		.data_cut = message->datalen > data_max || message->rc != ZKLOCK_ZOK,
		.marked = is_marked(run, message),
		.nchildren = message->nchildren,
		.ncreated = message->ncreated,
		.version = message->version,
		.token = zklock_ensemble_token(message->czxid),
		.czxid = message->czxid,
		.ctime = message->ctime,
		.mtime = message->mtime,
		.ephemeral_owner = message->ephemeral_owner,
	};
	int size = (int) sizeof(row) + row.name_len + 1 + row.data_len + 1;

	row.size = (int32) MAXALIGN(size);
	appendBinaryStringInfo(&run->rows, (const char *) &row, sizeof(row));
	appendBinaryStringInfo(&run->rows, name, row.name_len);
	appendBinaryStringInfo(&run->rows, padding, 1);
	if (row.data_len > 0)
		appendBinaryStringInfo(&run->rows, message->data, row.data_len);
	appendBinaryStringInfo(&run->rows, padding, 1 + row.size - size);
	run->found++;
}

/*
 * Delete the child that the question names.  If it is a contender of this server, the
 * lock table drops it first: no backend here may believe in a grant that another server
 * may get in a moment.
 */
static void
remove_child(Run *run, const char *name)
{
	ZkQuestion *question = &zklock_questions->question[run - runs];
	ZkClient *client = zklock_session_client();
	ZkRequestTag tag = make_tag(run, TAG_REMOVAL);
	char *path = psprintf("%s/%s", run->path, name);

	/* whatever becomes of the connection: it was there, and will go */
	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	if (question->serial == run->serial)
		question->removing = true;
	LWLockRelease(zklock_questions->box.lock);

	zklock_dispatch_removal(run->query.kind, run->query.name, name);
	if (client == NULL || zklock_client_delete(client, path, &tag) != ZKLOCK_ZOK)
		run->opened = -1; /* begin again */
	else
		run->open++;
	run->next = run->nchildren;
	pfree(path);
}

/* End the question with this answer.  The worker does not look at the question again. */
static void
finish(Run *run, int rc, int64 raised)
{
	ZkQuestion *question = &zklock_questions->question[run - runs];

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	if (question->serial == run->serial && question->state == ZKLOCK_QUESTION_RUNNING)
	{
		question->raised = raised;
		question->rc = rc;
		question->used = 0;
		zklock_question_set_state(question, ZKLOCK_QUESTION_DONE);
		ConditionVariableBroadcast(&question->cv);
	}
	LWLockRelease(zklock_questions->box.lock);
	forget_run(run);
}

/* The reply that has the current base: raise the base, unless that has been done. */
static void
take_base(Run *run, const ZkMessage *message)
{
	ZkQuestion *question = &zklock_questions->question[run - runs];
	ZkRequestTag tag = make_tag(run, TAG_RAISE);
	int64 sent = question->raised; /* while we are at it we alone write it */
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
		finish(run, ZKLOCK_ZOK, base); /* it was, though we did not hear of it */
	else if (raised <= base)
		finish(run, ZKLOCK_ZOK, 0);
	else if (run->query.above > ZKLOCK_ABOVE_MAX || raised > ZKLOCK_BASE_MAX)
		finish(run, ZKLOCK_ZOK, -1);
	else
	{
		LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
		if (question->serial == run->serial)
			question->raised = raised;
		LWLockRelease(zklock_questions->box.lock);
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

/* Fill the page with whole rows.  The caller holds the lock. */
static void
fill_page(Run *run, ZkQuestion *question)
{
	const char *start = run->rows.data + run->rows_sent;
	int left = run->rows.len - run->rows_sent;
	int used = 0;

	while (used < left)
	{
		int32 size = ((const ZkAnswerRow *) (start + used))->size;

		if (used + size > ZKLOCK_ANSWER_PAGE)
			break;
		used += size;
	}
	Assert(used > 0 || left == 0);
	memcpy(question->page, start, (size_t) used);
	question->used = used;
	run->rows_sent += used;
	if (run->rows_sent == run->rows.len)
	{
		resetStringInfo(&run->rows);
		run->rows_sent = 0;
	}
}

/* Send a get of a child, or its delete. */
static int
send_get(const Run *run, const char *path, const ZkRequestTag *tag)
{
	ZkClient *client = zklock_session_client();

	if (run->query.ask == ZKLOCK_ASK_PURGE)
		return zklock_client_delete(client, path, tag);
	if (run->query.mark[0] != '\0')
		return zklock_client_list(client, path, false, tag);
	return zklock_client_get(client, path, false, tag);
}

/* Send gets of children for as long as the backend reads the answer.  False if the
 * client takes no request. */
static bool
send_gets(Run *run)
{
	while (run->listed && run->rc == ZKLOCK_ZOK && run->next < run->nchildren &&
		   run->open < WINDOW && run->rows.len - run->rows_sent < ZKLOCK_ANSWER_PAGE &&
		   (run->query.limit == 0 || run->found + run->open < run->query.limit))
	{
		ZkRequestTag tag = make_tag(run, (uint64) run->next);
		char *path = psprintf("%s/%s", run->path, run->children[run->next].name);
		int rc = send_get(run, path, &tag);

		pfree(path);
		if (rc != ZKLOCK_ZOK)
			return false;
		run->next++;
		run->open++;
	}
	return true;
}

static void
work_on(Run *run, ZkQuestion *question)
{
	static char data[ZKLOCK_RECORD_MAX];
	int len = 0;
	ZkQuery query;
	uint32 serial;
	ZkQuestionState before;
	bool alive;

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	before = question->state;
	serial = question->serial;
	query = question->query;
	if (before == ZKLOCK_QUESTION_POSTED && zklock_session_client() != NULL)
	{
		zklock_question_set_state(question, ZKLOCK_QUESTION_RUNNING);
		if (query.ask == ZKLOCK_ASK_WRITE)
		{
			len = question->used;
			memcpy(data, question->page, (size_t) len);
		}
	}
	LWLockRelease(zklock_questions->box.lock);

	if (run->serial != 0 && (run->serial != serial || before == ZKLOCK_QUESTION_FREE))
		forget_run(run);
	if (before == ZKLOCK_QUESTION_FREE || before == ZKLOCK_QUESTION_DONE ||
		before == ZKLOCK_QUESTION_RESTART || zklock_session_client() == NULL)
		alive = false;
	else if (before == ZKLOCK_QUESTION_POSTED)
		alive = start_run(run, serial, &query, data, len);
	else
		alive = run->serial == serial && run->opened == zklock_session_opened();
	alive = alive && send_gets(run);

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	if (question->serial == serial &&
		(question->state == ZKLOCK_QUESTION_RUNNING ||
		 question->state == ZKLOCK_QUESTION_PAGE))
	{
		if (!alive)
			zklock_question_set_state(question, ZKLOCK_QUESTION_RESTART);
		else if (question->state == ZKLOCK_QUESTION_RUNNING &&
				 (run_finished(run) ||
				  run->rows.len - run->rows_sent > ZKLOCK_ANSWER_PAGE / 2))
		{
			fill_page(run, question);
			question->rc = run->rc;
			zklock_question_set_state(question,
									  run_finished(run) && run->rows.len == 0
										  ? ZKLOCK_QUESTION_DONE
										  : ZKLOCK_QUESTION_PAGE);
		}
		if (question->state != ZKLOCK_QUESTION_RUNNING)
			ConditionVariableBroadcast(&question->cv);
		if (question->state == ZKLOCK_QUESTION_RESTART ||
			question->state == ZKLOCK_QUESTION_DONE)
			forget_run(run);
	}
	LWLockRelease(zklock_questions->box.lock);
}

static long
work(void)
{
	for (int i = 0; i < ZKLOCK_NQUESTIONS; i++)
	{
		/* unlocked: whoever posts a question wakes us, and then we see it */
		if (zklock_questions->question[i].state != ZKLOCK_QUESTION_FREE ||
			runs[i].serial != 0)
			work_on(&runs[i], &zklock_questions->question[i]);
	}
	return -1;
}

/* Is the answer useful without a child that this server may not read?  A queue is not,
 * nor is a listing of queues. */
static bool
can_do_without(const Run *run)
{
	return run->query.ask == ZKLOCK_ASK_SERVERS ||
		(zklock_kinds[run->query.kind].record && !run->query.contenders);
}

/* Handle the reply to a request that is not a get of a child. */
static void
take_other(Run *run, const ZkMessage *message)
{
	ZkQuestion *question = &zklock_questions->question[run - runs];

	switch (message->tag.uuid)
	{
		case TAG_LISTING:
			take_listing(run, message);
			break;
		case TAG_BASE:
			take_base(run, message);
			break;
		case TAG_RAISE:
			finish(run, ZKLOCK_ZOK, question->raised);
			break;
		case TAG_TIME:
			LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
			if (question->serial == run->serial)
			{
				question->now = message->mtime;
				question->session = zklock_shared->session.id.id;
			}
			LWLockRelease(zklock_questions->box.lock);
			break;
		case TAG_RECORD:
			take_child(run, "", message);
			run->listed = true;
			break;
		case TAG_WRITE:
			finish(run, ZKLOCK_ZOK, 0);
			break;
		default: /* TAG_REMOVAL */
			break;
	}
}

/* Handle the final refusal of such a request. */
static void
take_refusal(Run *run, const ZkMessage *message)
{
	ZkReply reply = zklock_reply(message->rc);
	bool missing = reply == ZKLOCK_REPLY_NO_NODE;

	switch (message->tag.uuid)
	{
		case TAG_BASE:
		case TAG_RAISE:
		case TAG_TIME:
			if (missing || reply == ZKLOCK_REPLY_BAD_VERSION)
				run->opened = -1; /* it will be made anew, or is another: begin again */
			else
				run->rc = message->rc;
			break;
		case TAG_WRITE:
			finish(run, missing ? ZKLOCK_ZBADVERSION : message->rc, 0);
			break;
		case TAG_REMOVAL:
			if (!missing)
				run->rc = message->rc;
			break;
		default:
			run->rc = message->rc;
	}
}

static void
count_purged(Run *run)
{
	ZkQuestion *question = &zklock_questions->question[run - runs];

	LWLockAcquire(zklock_questions->box.lock, LW_EXCLUSIVE);
	if (question->serial == run->serial)
		question->purged++;
	LWLockRelease(zklock_questions->box.lock);
}

static void
on_message(const ZkMessage *message)
{
	Run *run = &runs[message->tag.entry];
	uint64 what = message->tag.uuid;
	ZkReply reply = zklock_reply(message->rc);

	Assert(message->tag.entry < ZKLOCK_NQUESTIONS);
	if (run->serial != message->tag.generation)
		return; /* nobody waits for it any more */
	if (what < TAG_OTHERS || what == TAG_REMOVAL)
		run->open--;

	if (reply == ZKLOCK_REPLY_LOST)
		run->opened = -1; /* begin again */
	else if (what > TAG_OTHERS)
		(reply == ZKLOCK_REPLY_OK ? take_other : take_refusal)(run, message);
	else if (reply == ZKLOCK_REPLY_NO_NODE)
		return; /* the child has gone since the listing */
	else if (run->query.ask == ZKLOCK_ASK_PURGE && reply == ZKLOCK_REPLY_NOT_EMPTY)
		return; /* somebody has it */
	else if (reply != ZKLOCK_REPLY_OK &&
			 !(message->rc == ZKLOCK_ZNOAUTH && can_do_without(run)))
		run->rc = message->rc;
	else if (run->query.ask == ZKLOCK_ASK_PURGE)
		count_purged(run);
	else if (run->query.ask != ZKLOCK_ASK_REMOVE)
		take_child(run, run->children[what].name, message);
	else if (run->query.token == zklock_ensemble_token(message->czxid))
		remove_child(run, run->children[what].name);
}

const ZkAgent zklock_answer_agent = {
	.tag = &own_tag,
	.message = on_message,
	.work = work,
};
