/*-------------------------------------------------------------------------
 *
 * queue_puts.c
 *	  The worker's part in puts: writes the items that transactions put, and moves them
 *	  into the queues or deletes them.
 *
 * Before the commit, the worker writes the chunks that backends post to <queue>/puts.
 * When the transaction is over, it moves or deletes each chunk.  The worker keeps what it
 * has written as long as there is room.  It reads a chunk again that it does not have any
 * more, or never had: another worker may have written it, and the backend has gone on.
 *
 * A stray is a chunk without a put in shared memory.  A restarted server finds its own
 * strays, and a promoted server finds those of the server that it replaces.  So the
 * worker looks for strays of this database system once in the life of shared memory,
 * and judges them one by one by the commit log.  It looks once more if the ensemble has
 * gone back, or may have done so unnoticed, since a put was settled.  There are no
 * other strays: a put stays until its chunks are known to be gone.
 *
 * A deposed ZooKeeper leader may show an old state.  So a read counts as proven when a
 * heartbeat has been acknowledged on the same connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/timeline.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "lib/ilist.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#include "ensemble.h"
#include "member.h"
#include "names.h"
#include "path.h"
#include "queue_puts.h"
#include "queue_shared.h"
#include "queue_takes.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"

/* ZkRequestTag.uuid: of a put (entry, generation: its serial) ... */
#define TAG_LENGTH 0 /* a get of items/; hash: the round */
#define TAG_WRITE  1 /* the same, of a chunk's create */
#define TAG_SETTLE 2 /* and upwards: plus a ZkPutRequest */
/* ... and of the look for strays (generation: its number) */
#define TAG_SERVERS		 100
#define TAG_QUEUES		 101
#define TAG_CHUNKS		 102 /* hash: the queue */
#define TAG_STRAY_READ	 103
#define TAG_STRAY_SETTLE 104

/* ns for which the length of a queue is believed that is less than half full */
#define LENGTH_LASTS (1000 * NS_PER_MS)

/* In session timeouts: the ensemble may go back unnoticed by less than this.  A
 * heartbeat would show it, and heartbeats are at most two timeouts apart. */
#define UNNOTICED 3

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static bool due = true;
static bool proven = false;	 /* a heartbeat was acknowledged on this connection */
static int64 settled_at = 0; /* ns: a put was, last */

/* ------------------------------------------------------------------------
 * Chunks
 * ------------------------------------------------------------------------
 */

static char *
chunk_path(const char *queue, const char *chunk)
{
	return zklock_path_name(ZKLOCK_KIND_QUEUE, queue, psprintf("puts/%s", chunk));
}

static char *
own_chunk_path(const char *queue, uint32 put, uint32 chunk)
{
	ZkChunkName name = {
		.system = GetSystemIdentifier(),
		.life = zklock_queue_shared->life,
		.put = put,
		.chunk = chunk,
	};
	char text[ZKLOCK_CHUNK_NAME];

	zklock_chunk_format(text, &name);
	return chunk_path(queue, text);
}

/*
 * What this worker has written and not settled yet, oldest first.  Nothing depends on
 * it: each of these may go at any time.
 */
typedef struct Sent
{
	dlist_node node;
	uint32 put;
	uint32 chunk;
	int len;
	char data[FLEXIBLE_ARRAY_MEMBER];
} Sent;

/* bytes of chunks that are kept, more than all buffers have at once */
#define SENT_MAX (4 * 1024 * 1024)

static dlist_head sent = DLIST_STATIC_INIT(sent);
static int sent_size = 0;

static Sent *
find_sent(uint32 put, uint32 chunk)
{
	dlist_iter iter;

	dlist_foreach (iter, &sent)
	{
		Sent *s = dlist_container(Sent, node, iter.cur);

		if (s->put == put && s->chunk == chunk)
			return s;
	}
	return NULL;
}

static void
forget_sent(Sent *s)
{
	if (s == NULL)
		return;
	dlist_delete(&s->node);
	sent_size -= s->len;
	pfree(s);
}

static void
keep_sent(const ZkQueueBuffer *buffer)
{
	Sent *s;

	forget_sent(find_sent(buffer->serial, buffer->chunk));
	while (sent_size + buffer->len > SENT_MAX)
		forget_sent(dlist_head_element(Sent, node, &sent));
	s = MemoryContextAlloc(TopMemoryContext, offsetof(Sent, data) + (Size) buffer->len);
	s->put = buffer->serial;
	s->chunk = buffer->chunk;
	s->len = buffer->len;
	memcpy(s->data, buffer->data, (size_t) buffer->len);
	dlist_push_tail(&sent, &s->node);
	sent_size += s->len;
}

/* Move a chunk: put its items into the queue and delete the chunk, in one transaction.
 * False: the chunk is damaged. */
static bool
send_move(const char *queue, const char *path, const char *data, int len,
		  const ZkRequestTag *tag)
{
	ZkChunkHead *head = palloc(sizeof(ZkChunkHead));
	const char *payload = zklock_chunk_read(data, (size_t) len, head);
	ZkOp *ops;

	if (payload == NULL)
		return false;
	ops = palloc0(sizeof(ZkOp) * (Size) (head->nitems + 1));
	ops[0] = (ZkOp){.type = ZKLOCK_OP_DELETE, .path = path, .version = -1};
	for (int i = 0; i < head->nitems; i++)
	{
		const ZkChunkItem *item = &head->item[i];
		char prefix[ZKLOCK_ITEM_NAME];

		zklock_item_prefix(prefix, item->id);
		ops[i + 1] = (ZkOp){.type = ZKLOCK_OP_CREATE,
							.path = zklock_path_name(ZKLOCK_KIND_QUEUE, queue,
													 psprintf("items/%s", prefix)),
							.data = payload,
							.datalen = item->length,
							.mode = ZKLOCK_CREATE_PERSISTENT_SEQUENTIAL};
		payload += item->length;
	}
	zklock_session_sent(
		zklock_client_multi(zklock_session_client(), ops, head->nitems + 1, tag));
	return true;
}

/*
 * The lengths of some queues, so that not each put has to ask.  Other servers may put as
 * many items meanwhile as they like, and so nobody is held to a limit exactly.
 */
typedef struct Length
{
	uint64 queue; /* hash */
	int64 length;
	int64 at; /* ns */
} Length;

static Length lengths[256];

static Length *
length_of(const char *queue)
{
	uint64 hash = zklock_hash_child(queue);
	Length *length = &lengths[hash % lengthof(lengths)];

	if (length->queue != hash)
		*length = (Length){.queue = hash};
	return length;
}

static void
note_length(const char *queue, int64 length)
{
	Length *known = length_of(queue);

	known->length = length;
	known->at = zklock_clock();
}

/* The length that this put may go by; -1: the ensemble has to be asked. */
static int64
known_length(const ZkQueuePut *staged)
{
	const Length *length = length_of(staged->queue);

	return length->at != 0 && zklock_clock() - length->at < LENGTH_LASTS &&
			length->length < staged->limit / 2
		? length->length
		: -1;
}

/* Handle the reply to a move: count the items, or act on a refusal.  True: the chunk
 * has been moved, by this request or before. */
static bool
was_moved(const ZkMessage *message, const char *queue)
{
	if (message->rc == ZKLOCK_ZOK)
	{
		zklock_queue_count(ZKLOCK_QUEUE_PUT, message->nchildren - 1);
		length_of(queue)->length += message->nchildren - 1;
		zklock_queue_takes_put(queue, message);
	}
	if (message->rc == ZKLOCK_ZOK ||
		(message->rc == ZKLOCK_ZNONODE && message->failed_op == 0))
		return true;
	if (message->rc == ZKLOCK_ZNONODE)
		zklock_queue_takes_make_queue(queue);
	else if (!zklock_rc_is_lost(message->rc))
		zklock_trouble_refused(message);
	return false;
}

/* ------------------------------------------------------------------------
 * Puts of this life
 * ------------------------------------------------------------------------
 */

static void
send_chunk(ZkQueueBuffer *buffer)
{
	ZkClient *client = zklock_session_client();
	ZkQueuePut *staged =
		&zklock_queue_shared->staged[buffer->put]; /* its backend waits for us */
	ZkRequestTag tag = {
		.kind = own_tag,
		.entry = (uint32) buffer->put,
		.generation = buffer->serial,
		.uuid = TAG_LENGTH,
		.hash = buffer->round,
	};
	int64 length = buffer->chunk == 0 ? known_length(staged) : -1;

	if (client != NULL && buffer->chunk == 0 && length < 0)
		zklock_session_sent(
			zklock_client_get(client,
							  zklock_path_name(ZKLOCK_KIND_QUEUE, staged->queue, "items"),
							  false, &tag));
	tag.uuid = TAG_WRITE;
	if (client != NULL)
		zklock_session_sent(
			zklock_client_create(client,
								 own_chunk_path(staged->queue, buffer->serial, buffer->chunk),
								 buffer->data, buffer->len, ZKLOCK_CREATE_PERSISTENT, &tag));
	keep_sent(buffer);
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	if (client == NULL)
		zklock_put_lost(&staged->put);
	if (length >= 0 && staged->serial == buffer->serial)
		staged->length = length;
	buffer->state = ZKLOCK_BUFFER_FREE;
	ConditionVariableBroadcast(&zklock_queue_shared->room_cv);
	ConditionVariableBroadcast(&staged->cv);
	LWLockRelease(zklock_queue_shared->box.lock);
}

static void
send_chunks(void)
{
	for (int i = 0; i < ZKLOCK_QUEUE_BUFFERS; i++)
	{
		ZkQueueBuffer *buffer = &zklock_queue_shared->buffer[i];
		bool posted;

		LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
		posted = buffer->state == ZKLOCK_BUFFER_POSTED;
		if (posted)
			buffer->state = ZKLOCK_BUFFER_SENDING;
		LWLockRelease(zklock_queue_shared->box.lock);
		if (posted)
			send_chunk(buffer);
	}
}

static int
compare_orders(const void *a, const void *b)
{
	uint64 x = (*(ZkQueuePut *const *) a)->order;
	uint64 y = (*(ZkQueuePut *const *) b)->order;

	return x < y ? -1 : x > y;
}

static char *
chunk_to_settle(const ZkQueuePut *staged)
{
	return own_chunk_path(staged->queue, staged->serial, (uint32) staged->put.settled);
}

static Sent *
find_to_settle(const ZkQueuePut *staged)
{
	return find_sent(staged->serial, (uint32) staged->put.settled);
}

/* The puts whose transaction is over, in the order of the commits.  The caller holds the
 * lock. */
static int
find_ended(ZkQueuePut **puts)
{
	int n = 0;

	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
	{
		ZkQueuePut *staged = &zklock_queue_shared->staged[i];

		if (staged->put.state == ZKLOCK_PUT_COMMITTED ||
			staged->put.state == ZKLOCK_PUT_ABORTED)
			puts[n++] = staged;
	}
	qsort(puts, (size_t) n, sizeof(ZkQueuePut *), compare_orders);
	return n;
}

static void
send_step(const ZkQueuePut *staged, ZkPutRequest request)
{
	ZkClient *client = zklock_session_client();
	char *path = chunk_to_settle(staged);
	const Sent *known = find_to_settle(staged);
	ZkRequestTag tag = {
		.kind = own_tag,
		.entry = (uint32) (staged - zklock_queue_shared->staged),
		.generation = staged->serial,
		.uuid = TAG_SETTLE + (uint64) request,
	};

	if (request == ZKLOCK_SETTLE_READ)
		zklock_session_sent(zklock_client_get(client, path, false, &tag));
	else if (request == ZKLOCK_SETTLE_DROP)
		zklock_session_sent(zklock_client_delete(client, path, &tag));
	else
		(void) send_move(staged->queue, path, known->data, known->len, &tag);
}

/*
 * Take the next step for each put whose transaction is over, in the order of the
 * commits.  ZooKeeper executes a session's requests in order, so the items come into
 * the queue in that order.
 */
static void
settle(void)
{
	ZkQueuePut *puts[ZKLOCK_QUEUE_PUTS] = {NULL};
	ZkPutRequest request[ZKLOCK_QUEUE_PUTS];
	bool behind = false;
	int nputs;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	nputs = find_ended(puts);
	for (int i = 0; i < nputs; i++)
	{
		request[i] =
			zklock_put_request(&puts[i]->put, find_to_settle(puts[i]) != NULL, &behind);
		if (request[i] == ZKLOCK_SETTLE_FREE)
		{
			ConditionVariableBroadcast(&zklock_queue_shared->room_cv);
			zklock_queue_takes_look_again();
		}
	}
	LWLockRelease(zklock_queue_shared->box.lock);

	/* nobody else moves what is over */
	for (int i = 0; i < nputs && zklock_session_client() != NULL; i++)
	{
		if (request[i] != ZKLOCK_SETTLE_NOTHING && request[i] != ZKLOCK_SETTLE_FREE)
			send_step(puts[i], request[i]);
	}
}

/* Handle the reply to a request from before the end of the transaction.  The caller
 * holds the lock. */
static void
written(ZkQueuePut *staged, const ZkMessage *message, bool *missing)
{
	ZkReply rc = zklock_reply(message->rc);

	if (staged->put.state != ZKLOCK_PUT_WRITING || staged->put.round != message->tag.hash)
		return;
	if (message->tag.uuid == TAG_WRITE)
		*missing = zklock_put_created(&staged->put, (uint32) message->tag.hash, rc);
	else if (rc == ZKLOCK_REPLY_LOST)
		zklock_put_lost(&staged->put);
	else if (rc == ZKLOCK_REPLY_OK)
		staged->length = message->nchildren;
	else if (rc == ZKLOCK_REPLY_NO_NODE)
		staged->length = 0;
	if (message->tag.uuid == TAG_LENGTH &&
		(rc == ZKLOCK_REPLY_OK || rc == ZKLOCK_REPLY_NO_NODE))
		note_length(staged->queue, staged->length);
	if (rc == ZKLOCK_REPLY_REFUSED)
		staged->rc = message->rc;
	ConditionVariableBroadcast(&staged->cv);
}

/* The chunk was read: move it. */
static void
move(ZkQueuePut *staged, const ZkMessage *message)
{
	ZkRequestTag tag = message->tag;

	tag.uuid = TAG_SETTLE + ZKLOCK_SETTLE_MOVE;
	if (zklock_session_client() == NULL)
		(void) zklock_put_reply(&staged->put, ZKLOCK_SETTLE_READ, ZKLOCK_REPLY_LOST, -1,
								proven);
	else if (!send_move(staged->queue, chunk_to_settle(staged), message->data,
						message->datalen, &tag))
	{
		zklock_trouble("znode \"%s\" is damaged: its queue items stay in it",
					   chunk_to_settle(staged));
		(void) zklock_put_reply(&staged->put, ZKLOCK_SETTLE_READ, ZKLOCK_REPLY_EXISTS, -1,
								proven);
	}
}

/* Handle the reply to a step after the end of the transaction.  The caller does not
 * hold the lock: nobody else changes such a put. */
static void
settled(ZkQueuePut *staged, const ZkMessage *message)
{
	ZkPutRequest request = (ZkPutRequest) (message->tag.uuid - TAG_SETTLE);
	Sent *known = find_to_settle(staged);
	int before = staged->put.settled;

	due = true;
	/* a take waits for this, unless nobody waits for it any more */
	zklock_queue_takes_look_again();
	if (request == ZKLOCK_SETTLE_MOVE)
		(void) was_moved(message, staged->queue);
	if (zklock_put_reply(&staged->put, request, zklock_reply(message->rc),
						 message->failed_op, proven) == ZKLOCK_SETTLE_MOVE)
		move(staged, message);
	if (staged->put.settled == before)
		return;
	settled_at = zklock_clock();
	forget_sent(known);
}

static void
put_message(const ZkMessage *message)
{
	ZkQueuePut *staged = &zklock_queue_shared->staged[message->tag.entry];
	char queue[ZKLOCK_NAME_MAX + 1];
	bool missing = false;
	bool over;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	if (staged->serial != message->tag.generation || staged->put.state == ZKLOCK_PUT_FREE)
	{
		LWLockRelease(zklock_queue_shared->box.lock);
		return;
	}
	over = message->tag.uuid >= TAG_SETTLE;
	if (!over)
		written(staged, message, &missing);
	strlcpy(queue, staged->queue, sizeof(queue));
	LWLockRelease(zklock_queue_shared->box.lock);
	if (missing)
		zklock_queue_takes_make_queue(queue);
	if (over && staged->put.open)
		settled(staged, message);
}

/* ------------------------------------------------------------------------
 * Strays
 * ------------------------------------------------------------------------
 */

typedef struct Stray
{
	char *queue;
	char *chunk;
	ZkChunkName name;
} Stray;

static struct
{
	bool wanted;   /* another look */
	bool running;  /* one that goes on */
	bool open;	   /* a stray's request is out */
	uint32 number; /* of the look */
	bool namesake; /* another server has our name, or a session that we had */
	bool restart;  /* look again at the next TICK */
	bool seen;	   /* all of it, if this connection is proven; not that of one before */
	MemoryContext context;
	char **queues;
	int nqueues;
	int next_queue;
	int lists_open;
	Stray *strays;
	int nstrays;
	int room;
	int next;
} look;

static ZkRequestTag
look_tag(uint64 what, uint64 hash)
{
	return (ZkRequestTag){.kind = own_tag,
						  .generation = look.number,
						  .uuid = what,
						  .hash = hash};
}

static void
end_look(void)
{
	if (look.context != NULL)
		MemoryContextDelete(look.context);
	look.context = NULL;
	look.running = look.open = look.seen = false;
	look.queues = NULL;
	look.strays = NULL;
	look.nqueues = look.next_queue = look.nstrays = look.room = look.next = 0;
	look.lists_open = 0;
}

static void
begin_look(void)
{
	ZkRequestTag servers;
	ZkRequestTag queues;

	end_look();
	look.number++;
	look.wanted = look.restart = look.namesake = false;
	look.running = true;
	look.context =
		AllocSetContextCreate(TopMemoryContext, "zklock strays", ALLOCSET_DEFAULT_SIZES);
	servers = look_tag(TAG_SERVERS, 0);
	queues = look_tag(TAG_QUEUES, 0);
	look.lists_open = 2;
	(void) zklock_client_sync(zklock_session_client(),
							  zklock_path_directory(ZKLOCK_KIND_QUEUE), &zklock_no_tag);
	zklock_session_sent(zklock_client_list(zklock_session_client(), zklock_path_servers(),
										   false, &servers));
	zklock_session_sent(zklock_client_list(zklock_session_client(),
										   zklock_path_directory(ZKLOCK_KIND_QUEUE),
										   false, &queues));
}

/* Is there a put in shared memory for this chunk? */
static bool
is_spoken_for(const ZkChunkName *name)
{
	bool found = false;

	if (name->life != zklock_queue_shared->life)
		return false;
	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS && !found; i++)
		found = zklock_queue_shared->staged[i].put.state != ZKLOCK_PUT_FREE &&
			zklock_queue_shared->staged[i].serial == name->put;
	LWLockRelease(zklock_queue_shared->box.lock);
	return found;
}

/* Look up the outcome of a transaction that has a record in this server's log.  False:
 * the transaction is too old. */
static bool
look_up(uint64 xid, ZkPutFacts *facts)
{
	TransactionId id = (TransactionId) xid;
	FullTransactionId next = ReadNextFullTransactionId();

	if (U64FromFullTransactionId(next) - xid > PG_INT32_MAX)
		return false;
	/* in progress first: what ends is in the commit log before it is not */
	facts->in_progress = TransactionIdIsInProgress(id);
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	if (TransactionIdPrecedes(id, ZKLOCK_OLDEST_CLOG_XID))
	{
		LWLockRelease(XactTruncationLock);
		return false;
	}
	facts->committed = TransactionIdDidCommit(id);
	LWLockRelease(XactTruncationLock);
	return true;
}

static ZkPutVerdict
judge(const Stray *stray, const ZkChunkHead *head)
{
	ZkPutFacts facts = {.recovering = RecoveryInProgress()};
	char name[256];
	TimeLineID timeline;

	if (facts.recovering)
		return zklock_put_judge(&facts);
	zklock_effective_server_name(name, sizeof(name));
	timeline = GetWALInsertionTimeLine();
	facts.own_life = stray->name.life == zklock_queue_shared->life;
	facts.own_name = head->server == zklock_hash_child(name) && !look.namesake;
	facts.timeline = head->timeline == (int) timeline;
	/* the record ends where it says, which may be where the next timeline begins */
	facts.history = head->lsn > 1 && head->lsn <= GetXLogInsertRecPtr() &&
		TransactionIdIsNormal((TransactionId) head->xid) &&
		head->xid < U64FromFullTransactionId(ReadNextFullTransactionId()) &&
		tliOfPointInHistory(head->lsn - 1, readTimeLineHistory(timeline)) ==
			(TimeLineID) head->timeline;
	facts.unknown = facts.history && !look_up(head->xid, &facts);
	return zklock_put_judge(&facts);
}

static void
take_stray(const ZkMessage *message)
{
	const Stray *stray = &look.strays[look.next];
	char *path = chunk_path(stray->queue, stray->chunk);
	ZkRequestTag tag = look_tag(TAG_STRAY_SETTLE, 0);
	ZkChunkHead *head = palloc(sizeof(ZkChunkHead));
	ZkPutVerdict verdict = ZKLOCK_PUT_LEAVE;
	char shown[ZKLOCK_ENCODED_MAX + 1];
	bool sent = false;

	Assert(look.open && look.next < look.nstrays);
	if (message->rc == ZKLOCK_ZOK && zklock_session_client() != NULL &&
		!is_spoken_for(&stray->name) &&
		zklock_chunk_read(message->data, (size_t) message->datalen, head) != NULL)
		verdict = judge(stray, head);
	else if (message->rc == ZKLOCK_ZOK &&
			 zklock_chunk_is_newer(message->data, (size_t) message->datalen))
		zklock_trouble("znode \"%s\" is of a newer version of zklock: its items are left there",
					   path);
	if (verdict == ZKLOCK_PUT_LATER)
		look.restart = true;
	else if (verdict == ZKLOCK_PUT_MOVE)
	{
		ereport(LOG,
				(errmsg("putting items of transaction " UINT64_FORMAT " into queue \"%s\"",
						head->xid, zklock_log_name(stray->queue, shown)),
				 errdetail(
					 "The transaction has committed, but a failure kept its items out of the queue.")));
		sent = send_move(stray->queue, path, message->data, message->datalen, &tag);
	}
	else if (verdict == ZKLOCK_PUT_DROP)
	{
		ereport(LOG,
				(errmsg("deleting items of transaction " UINT64_FORMAT " for queue \"%s\"",
						head->xid, zklock_log_name(stray->queue, shown)),
				 errdetail("The transaction has not committed.")));
		zklock_session_sent(zklock_client_delete(zklock_session_client(), path, &tag));
		sent = true;
	}
	if (!sent)
	{
		look.open = false;
		look.next++;
	}
}

static void
settled_stray(const ZkMessage *message)
{
	Assert(look.open && look.next < look.nstrays);
	look.open = false;
	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE)
		look.restart = true;
	if (message->type == ZKLOCK_MSG_MULTI &&
		!was_moved(message, look.strays[look.next].queue))
		look.restart = true;
	look.next++;
	zklock_queue_takes_look_again();
}

/* Collect the strays: chunks of this database system, from any life of it, without a
 * put. */
static void
take_chunks(const ZkMessage *message)
{
	MemoryContext save = MemoryContextSwitchTo(look.context);

	for (int i = 0; i < message->nchildren; i++)
	{
		ZkChunkName name;
		Stray *stray;

		if (!zklock_chunk_parse(message->children[i], &name) ||
			name.system != GetSystemIdentifier() || is_spoken_for(&name))
			continue;
		if (look.nstrays == look.room)
		{
			Size size;

			look.room = Max(64, 2 * look.room);
			size = sizeof(Stray) * (Size) look.room;
			look.strays =
				look.strays == NULL ? palloc(size) : repalloc_huge(look.strays, size);
		}
		stray = &look.strays[look.nstrays++];
		stray->queue = look.queues[message->tag.hash];
		stray->chunk = pstrdup(message->children[i]);
		stray->name = name;
	}
	MemoryContextSwitchTo(save);
}

static void
take_queues(const ZkMessage *message)
{
	MemoryContext save = MemoryContextSwitchTo(look.context);

	look.queues =
		palloc_extended(sizeof(char *) * ((Size) message->nchildren + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < message->nchildren; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];

		if (zklock_decode_name(message->children[i], name))
			look.queues[look.nqueues++] = pstrdup(name);
	}
	MemoryContextSwitchTo(save);
}

/* Other nodes with this server's name: such a server lives, or did a moment ago. */
static void
take_servers(const ZkMessage *message)
{
	for (int i = 0; i < message->nchildren; i++)
	{
		if (zklock_member_namesake(message->children[i]) != NULL)
			look.namesake = look.restart = true;
	}
}

static void
look_message(const ZkMessage *message)
{
	if (!look.running || message->tag.generation != look.number)
		return;
	due = true;
	if (zklock_rc_is_lost(message->rc))
	{
		end_look();
		look.wanted = true;
		return;
	}
	if (message->tag.uuid <= TAG_CHUNKS)
		look.lists_open--;
	Assert(look.lists_open >= 0);
	if (message->tag.uuid <= TAG_CHUNKS && message->rc != ZKLOCK_ZOK)
	{
		look.restart |= message->rc != ZKLOCK_ZNONODE;
		return;
	}
	switch (message->tag.uuid)
	{
		case TAG_SERVERS:
			take_servers(message);
			break;
		case TAG_QUEUES:
			take_queues(message);
			break;
		case TAG_CHUNKS:
			take_chunks(message);
			break;
		case TAG_STRAY_READ:
			take_stray(message);
			break;
		case TAG_STRAY_SETTLE:
			settled_stray(message);
			break;
	}
}

/* The look has left no strays.  Remember that if the result is proven: a deposed leader
 * may have given it. */
static void
note_seen(void)
{
	if (look.seen && proven)
		zklock_queue_shared->looked = true;
}

/* The chunks of one put in their order: so are their items. */
static int
compare_strays(const void *a, const void *b)
{
	const ZkChunkName *x = &((const Stray *) a)->name;
	const ZkChunkName *y = &((const Stray *) b)->name;

	if (x->life != y->life)
		return x->life < y->life ? -1 : 1;
	if (x->put != y->put)
		return x->put < y->put ? -1 : 1;
	return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* Continue the look for strays. */
static void
work_on_look(void)
{
	if (!look.running && look.wanted && !RecoveryInProgress() && zklock_ensemble_admitted())
		begin_look();
	if (!look.running)
		return;
	while (look.next_queue < look.nqueues && look.lists_open < 16)
	{
		ZkRequestTag tag = look_tag(TAG_CHUNKS, (uint64) look.next_queue);

		zklock_session_sent(
			zklock_client_list(zklock_session_client(),
							   zklock_path_name(ZKLOCK_KIND_QUEUE,
												look.queues[look.next_queue], "puts"),
							   false, &tag));
		look.next_queue++;
		look.lists_open++;
	}
	if (look.lists_open > 0 || look.open)
		return;
	if (look.next < look.nstrays)
	{
		ZkRequestTag tag = look_tag(TAG_STRAY_READ, 0);
		const Stray *stray;

		if (look.next == 0)
			qsort(look.strays, (size_t) look.nstrays, sizeof(Stray), compare_strays);
		stray = &look.strays[look.next];
		look.open = true;
		zklock_session_sent(zklock_client_get(zklock_session_client(),
											  chunk_path(stray->queue, stray->chunk),
											  false, &tag));
		return;
	}
	/* without strays it matters to nobody who else has our name */
	look.restart &= look.nstrays > 0;
	end_look();
	look.seen = !look.restart;
	note_seen();
}

/* ------------------------------------------------------------------------
 * All of it
 * ------------------------------------------------------------------------
 */

static void
work_on_puts(bool wanted)
{
	due |= wanted;
	/* a look waits for the connection to be admitted, of which nobody tells us */
	if (!(due || look.wanted) || zklock_session_client() == NULL || zklock_session_busy())
		return;
	due = false;
	send_chunks();
	if (zklock_session_client() != NULL)
		settle();
	if (zklock_session_client() != NULL)
		work_on_look();
}

static void
on_message(const ZkMessage *message)
{
	if (message->tag.uuid >= TAG_SERVERS)
		look_message(message);
	else
		put_message(message);
}

static void
on_event(ZkLockEventType type)
{
	bool tick = type == ZKLOCK_EV_TICK;

	if (!tick && type != ZKLOCK_EV_CONNECTED && type != ZKLOCK_EV_RESUMED &&
		type != ZKLOCK_EV_DISCONNECTED && type != ZKLOCK_EV_SESSION_LOST)
		return;
	due = true;
	proven = tick;
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
	{
		ZkQueuePut *staged = &zklock_queue_shared->staged[i];

		if (tick)
		{
			zklock_put_tick(&staged->put);
			continue;
		}
		zklock_put_connection(&staged->put);
		if (staged->put.again)
			ConditionVariableBroadcast(&staged->cv);
	}
	if (!tick)
	{
		/* what a predecessor was about to send: we are about nothing here */
		for (int i = 0; i < ZKLOCK_QUEUE_BUFFERS; i++)
			if (zklock_queue_shared->buffer[i].state == ZKLOCK_BUFFER_SENDING)
				zklock_queue_shared->buffer[i].state = ZKLOCK_BUFFER_FREE;
		ConditionVariableBroadcast(&zklock_queue_shared->room_cv);
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	if (tick)
		note_seen();
	else
		end_look();
	/* what was moved may be there again */
	if (zklock_ensemble_waiting() ||
		(type == ZKLOCK_EV_DISCONNECTED && settled_at != 0 &&
		 zklock_clock() - settled_at < UNNOTICED * zklock_shared->session.lease.timeout))
		zklock_queue_shared->looked = false;
	if (!zklock_queue_shared->looked && (!tick || look.restart))
		look.wanted = true;
}

static long
work(void)
{
	bool wanted = zklock_mailbox_posted(&zklock_queue_shared->box);

	work_on_puts(wanted);
	zklock_queue_takes_work(wanted);
	return -1;
}

static bool
ask(ZkAgentAsk what)
{
	switch (what)
	{
		case ZKLOCK_AGENT_TICKS:
			return look.running || look.restart;
		case ZKLOCK_AGENT_OWES:
			return zklock_queue_owed();
		default:
			return false;
	}
}

const ZkAgent zklock_queue_puts_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.work = work,
	.ask = ask,
};
