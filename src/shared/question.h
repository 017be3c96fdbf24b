/*-------------------------------------------------------------------------
 *
 * question.h
 *	  Keeps backends' questions to the ensemble in shared memory.
 *
 * There is room for a few.  The backend posts its question (query.c).  The worker asks
 * the ensemble, and passes the answer back through the question, one page of rows at a
 * time (answer.c).
 *
 *	 state     who moves on      to
 *	 FREE      backend           POSTED: a question
 *	 POSTED    worker, connected RUNNING: sync and listing are sent, then a get a child
 *	 RUNNING   worker            PAGE: some rows, with more to come; DONE: the last
 *	                             ones, or a refusal; RESTART: the connection is lost
 *	 PAGE      backend           RUNNING: read
 *	           worker            RESTART: the connection is lost
 *	 DONE      backend           FREE
 *	 RESTART   backend           POSTED: what was read is forgotten
 *
 * A question belongs to its backend, which frees it in any state, whatever the worker
 * is about to do.  So each question has a serial number, and the worker compares it
 * under the lock before it touches the question.  By it the worker also drops the
 * replies to open gets.  A new worker does not know the questions that it finds, and
 * has their backends begin again.
 *
 * Some questions ask for a change:
 *
 *	 REMOVE		the worker looks for the child with the token and deletes it.  If
 *				the connection is lost then, all begins again; the question
 *				remembers that the child was there
 *	 RAISE		the worker reads the base of tokens and sets it, if nobody else has
 *				in between.  The question remembers the base that was set.  The
 *				answer is given at once, since the session ends when the base is
 *				another (ensemble.c)
 *	 PURGE		the worker deletes each child.  If the connection is lost then, all
 *				begins again; the question remembers how many were deleted
 *	 WRITE		the worker sets a job's record (or a semaphore's), which the page
 *				has, if the record has the version still; in the session that the
 *				version was read in, or not at all.  If the connection is lost,
 *				nobody knows the outcome: the backend does not begin again, but
 *				looks
 *
 * The answer about a job's record must not be stale.  It needs the time, too: the
 * leader's clock, by which all servers go.  An acknowledged write of the session's own
 * node gives both.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUESTION_H
#define ZKLOCK_QUESTION_H

#include "storage/condition_variable.h"

#include "contender.h"
#include "mailbox.h"
#include "queue_text.h"

/* Questions at a time; further ones wait. */
#define ZKLOCK_NQUESTIONS  4

#define ZKLOCK_ANSWER_PAGE (32 * 1024)

/* Longer names, which only foreigners make, are cut off: a row fits into a page. */
#define ZKLOCK_ANSWER_NAME_MAX 8192

/* bytes of a node's data; longer data are cut off there */
#define ZKLOCK_ANSWER_DATA_MAX 1024
#define ZKLOCK_RECORD_MAX	   (23 * 1024) /* a job's, or who has which number of permits */
#define ZKLOCK_MEMBER_MAX	   (12 * 1024) /* a server's, with its report */

typedef enum ZkAsk
{
	ZKLOCK_ASK_CHILDREN, /* which children of which directory? */
	ZKLOCK_ASK_SERVERS,	 /* ... of <root>/servers? */
	ZKLOCK_ASK_REMOVE,
	ZKLOCK_ASK_RAISE,
	ZKLOCK_ASK_RECORD, /* of a job, or a semaphore's directory; one row without a name */
	ZKLOCK_ASK_WRITE,
	ZKLOCK_ASK_PURGE /* delete the children that have none themselves; no rows */
} ZkAsk;

/* The longest part of a queue: an item. */
#define ZKLOCK_PART_MAX (6 + ZKLOCK_ITEM_NAME)

typedef struct ZkQuery
{
	ZkAsk ask;
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];		 /* directory of that name; "": the one of
										  * all directories of the kind */
	char part[ZKLOCK_PART_MAX + 1];		 /* the one of that path in it; or "" */
	char prefix[ZKLOCK_ENCODED_MAX + 1]; /* children whose names begin so */
	char mark[8];						 /* not the children's data, but whether each has
										  * a child of this name; "": the data */
	bool contenders;					 /* contenders only, in their order */
	int limit;							 /* so many at most; 0: all */
	int64_t token;						 /* REMOVE: the child's */
	int64_t above;						 /* RAISE: so that all tokens are above this */
	int32 version;						 /* WRITE: the record's, when it was read */
	int64 session;						 /* ... in this session */
} ZkQuery;

typedef enum ZkQuestionState
{
	ZKLOCK_QUESTION_FREE,
	ZKLOCK_QUESTION_POSTED,
	ZKLOCK_QUESTION_RUNNING,
	ZKLOCK_QUESTION_PAGE,
	ZKLOCK_QUESTION_DONE,
	ZKLOCK_QUESTION_RESTART
} ZkQuestionState;

typedef struct ZkQuestion
{
	ZkQuestionState state;
	uint32 serial;		  /* of the question, never 0 */
	ConditionVariable cv; /* broadcast by the worker when the state has changed */
	ZkQuery query;
	bool removing; /* the child to be removed has been found */
	int64 raised;  /* the base that was sent; 0 or -1: it will not be */
	int64 purged;  /* children that were deleted */
	int64 now;	   /* of jobs: ms since 1970, when the answer was good ... */
	int64 session; /* ... in this session */
	int rc;		   /* DONE: ZOK, NONODE, BADVERSION or what the ensemble said */
	int used;	   /* PAGE, DONE: bytes in the page; POSTED: WRITE's */
	char page[ZKLOCK_ANSWER_PAGE];
} ZkQuestion;

typedef struct ZkQuestions
{
	ZkMailbox box;
	ConditionVariable free_cv; /* one is free */
	ZkQuestion question[ZKLOCK_NQUESTIONS];
} ZkQuestions;

/* A row in a page, before its name and its data, which end in a NUL each. */
typedef struct ZkAnswerRow
{
	int32 size; /* of all, aligned */
	int32 name_len;
	int32 data_len;
	bool name_cut;
	bool data_cut;
	bool marked; /* it has a child of the query's mark */
	int32 nchildren;
	uint32 ncreated;
	int32 version;
	int64 token;
	int64 czxid;
	int64 ctime;
	int64 mtime;
	int64 ephemeral_owner;
} ZkAnswerRow;

extern ZkQuestions *zklock_questions;

extern const ZkSharedPart zklock_question_part;

/* Moves a question on, as the table above says.  With the lock. */
extern void zklock_question_set_state(ZkQuestion *question, ZkQuestionState state);

#endif /* ZKLOCK_QUESTION_H */
