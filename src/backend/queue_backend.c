/*-------------------------------------------------------------------------
 *
 * queue_backend.c
 *	  Queues of work: the items that this transaction puts, and the items that it has
 *	  taken.
 *
 * The commit of a transaction that has put something takes these steps:
 *
 *	 a record goes to the log, and is flushed, with the transaction's number: from then on
 *	 no server that has this part of the log gives the number to another transaction,
 *	 whatever comes, and each can tell by it whether this one has committed
 *	 (queue_rules.h);
 *	 the items are written to the ensemble, in chunks that name the record, and
 *	 acknowledged;
 *	 the transaction commits, and that is flushed before anybody is told.
 *
 * The worker does later what must not fail.  At the end of a transaction nothing here
 * throws, allocates or waits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "replication/message.h"
#include "tcop/utility.h"
#include "utils/memutils.h"

#include "check.h"
#include "drain.h"
#include "holder.h"
#include "limit.h"
#include "loss.h"
#include "names.h"
#include "queue_backend.h"
#include "settings.h"
#include "table.h"
#include "waiter.h"
#include "zktime.h"

/* ms: a backstop for lost wake-ups; the interval of checks of something that is about
 * to change, and the pause before a round is repeated */
#define LONGEST_SLEEP 1000
#define SHORT_SLEEP	  50

/* An item that is put. */
typedef struct Parcel
{
	dlist_node node; /* in the queue's list */
	int level;
	int len;
	char id[ZKLOCK_ITEM_ID];
	char payload[FLEXIBLE_ARRAY_MEMBER];
} Parcel;

/* The items that are put into one queue. */
typedef struct Outbox
{
	dlist_node node;
	char queue[ZKLOCK_NAME_MAX + 1];
	dlist_head items; /* in their order */
	int nitems;
	int put; /* in shared memory; -1: not yet */
	/* while it is written */
	dlist_node *next; /* item */
	uint32 chunk;
	bool posted; /* all of them, in this round */
} Outbox;

/* A rollback to a savepoint may leave an empty outbox. */
static bool
has_items(const Outbox *outbox)
{
	return outbox->nitems > 0;
}

/* An item that this transaction holds, or a take that this backend waits for. */
typedef struct Held
{
	dlist_node node; /* newest first */
	int level;
	int32 taken; /* in shared memory */
} Held;

static MemoryContext outbox_context = NULL; /* of a transaction's outboxes and items */
static MemoryContext held_context = NULL;
static dlist_head outboxes = DLIST_STATIC_INIT(outboxes);
static dlist_head held_items = DLIST_STATIC_INIT(held_items);
static dlist_head pending = DLIST_STATIC_INIT(pending); /* takes, oldest first */

static ZkWaitEvent wait_event_put = {.name = "ZkLockQueuePut"};
static ZkWaitEvent wait_event_take = {.name = "ZkLockQueueTake"};

bool
zklock_queue_any(void)
{
	return !dlist_is_empty(&pending) || !dlist_is_empty(&outboxes) ||
		!dlist_is_empty(&held_items);
}

static void
lock_work(void)
{
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
}

static void
unlock_work(void)
{
	LWLockRelease(zklock_queue_shared->box.lock);
}

/* ------------------------------------------------------------------------
 * Losses
 * ------------------------------------------------------------------------
 */

static ZkQueueTake *
taken_of(const Held *held)
{
	return &zklock_queue_shared->taken[held->taken];
}

/*
 * The clock says that nothing is proven any more, and the client is being told so.
 * From now on the transaction has lost all its items, even if the ZooKeeper session
 * turns out to live.  Does not throw.
 */
static void
forfeit(void)
{
	TimestampTz since =
		zklock_loss_unproven_since((int64) pg_atomic_read_u64(&zklock_shared->last_write));
	dlist_iter iter;

	lock_work();
	dlist_foreach (iter, &held_items)
	{
		ZkQueueTake *taken = taken_of(dlist_container(Held, node, iter.cur));

		if (taken->take.lost)
			continue;
		zklock_take_forfeit(&taken->take);
		taken->loss = ZKLOCK_ITEM_UNPROVEN;
		taken->unproven_since = since;
	}
	unlock_work();
}

/* An item of this transaction that is lost, or NULL.  The caller reports the loss. */
static const ZkQueueTake *
find_lost(void)
{
	dlist_iter iter;

	if (dlist_is_empty(&held_items))
		return NULL;
	if (zklock_lease_lost())
		forfeit();
	pg_read_barrier(); /* the lease first, as with locks */
	dlist_foreach (iter, &held_items)
	{
		const ZkQueueTake *taken = taken_of(dlist_container(Held, node, iter.cur));

		/* set once */
		if (((volatile const ZkQueueTake *) taken)->take.lost)
			return taken;
	}
	return NULL;
}

/* An item whose marks have not been seen on the newest connection, or NULL. */
static const ZkQueueTake *
find_unseen(void)
{
	const ZkQueueTake *unseen = NULL;
	dlist_iter iter;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	dlist_foreach (iter, &held_items)
	{
		const ZkQueueTake *taken = taken_of(dlist_container(Held, node, iter.cur));

		if (taken->take.unseen && (unseen == NULL || taken->refused))
			unseen = taken;
	}
	unlock_work();
	return unseen;
}

pg_noreturn static void
raise_refused(const char *queue, int rc)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("ZooKeeper refused the request for queue \"%s\": %s",
					zklock_display_name(queue), zklock_rc_text(rc)),
			 zklock_refusal_hint(rc)));
}

static const char *
describe_loss(const ZkQueueTake *taken)
{
	switch (taken->loss)
	{
		case ZKLOCK_ITEM_UNPROVEN:
			return zklock_loss_describe_unproven(taken->unproven_since,
												 "another session may have the item by now");
		case ZKLOCK_ITEM_TORN:
			return "ZooKeeper does not say any more that this server has the item: it was restored, or somebody deleted a mark; another session may have the item by now.";
		case ZKLOCK_ITEM_KEPT:
		case ZKLOCK_ITEM_SESSION_ENDED:
			break;
	}
	return "The ZooKeeper session ended while the transaction had the item; another server may have it by now.";
}

pg_noreturn static void
raise_lost(const ZkQueueTake *taken)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("item %.*s of queue \"%s\" was lost", ZKLOCK_UUID_LEN, taken->item,
					zklock_display_name(taken->queue)),
			 errdetail("%s", describe_loss(taken)),
			 errhint("The transaction might succeed if retried.")));
}

/* There is a lease, but a look at an item's marks has no answer. */
pg_noreturn static void
raise_unseen(const ZkQueueTake *taken, int64 ms)
{
	if (taken->refused)
		raise_refused(taken->queue, taken->rc);
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("could not prove item %.*s of queue \"%s\" within %lld ms",
					ZKLOCK_UUID_LEN, taken->item, zklock_display_name(taken->queue),
					(long long) ms),
			 errdetail(
				 "ZooKeeper has not said on the new connection whether this server still has the item."),
			 errhint("The transaction might succeed if retried.")));
}

typedef struct Proof
{
	const ZkQueueTake *lost;
	const ZkQueueTake *unseen;
	bool valid; /* lease */
} Proof;

/*
 * Is the lease good, and have the marks been seen on the newest connection?  Or is an
 * item lost?  The lease is read first: when the lease of a new connection exists, the
 * marks already count as unseen.
 */
static bool
look_for_proof(ZkWaiter *waiter, int64 now)
{
	Proof *proof = waiter->arg;

	proof->valid = zklock_lease_valid();
	proof->unseen = find_unseen();
	/* it was lost before it counted as seen */
	proof->lost = find_lost();
	return proof->lost != NULL ||
		(proof->valid && (proof->unseen == NULL || proof->unseen->refused));
}

static void
on_claim_error(void *arg)
{
	errcontext("while waiting for the proof of an item of queue \"%s\"",
			   zklock_plain_name(
				   taken_of(dlist_head_element(Held, node, &held_items))->queue));
}

void
zklock_queue_claim(void)
{
	int64 ms = (int64) zklock_shared->session.timeout_ms + zklock_connect_timeout;
	Proof proof = {0};
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_for_proof,
		.context = on_claim_error,
		.arg = &proof,
		.limits = &limits,
		.cv = &zklock_shared->write_cv,
		.event = &wait_event_take,
		.longest = SHORT_SLEEP,
		.for_lock = true,
	};

	if (dlist_is_empty(&held_items))
		return;
	/* the item is deleted: a commit that a crash takes back would have lost it */
	ForceSyncCommit();
	zklock_wait_begin(&limits, ms);
	(void) zklock_wait_for(&waiter);
	if (proof.lost != NULL)
		raise_lost(proof.lost);
	if (!proof.valid)
		zklock_check_raise_unproven(ms);
	if (proof.unseen != NULL)
		raise_unseen(proof.unseen, ms);
}

/* ------------------------------------------------------------------------
 * Putting
 * ------------------------------------------------------------------------
 */

static Outbox *
find_outbox(const char *queue)
{
	dlist_iter iter;
	Outbox *outbox;

	dlist_foreach (iter, &outboxes)
	{
		outbox = dlist_container(Outbox, node, iter.cur);
		if (strcmp(outbox->queue, queue) == 0)
			return outbox;
	}
	outbox = MemoryContextAllocZero(outbox_context, sizeof(Outbox));
	strlcpy(outbox->queue, queue, sizeof(outbox->queue));
	dlist_init(&outbox->items);
	outbox->put = -1;
	dlist_push_tail(&outboxes, &outbox->node);
	return outbox;
}

/* The number of queues with items: a rollback may leave an empty outbox. */
static int
count_queues(void)
{
	int n = 0;
	dlist_iter iter;

	dlist_foreach (iter, &outboxes)
		n += dlist_container(Outbox, node, iter.cur)->nitems > 0;
	return n;
}

/* Raise if the queue is too long.  "length": the length without the items of this
 * transaction. */
static void
check_length(const Outbox *outbox, int64 length)
{
	if (length + outbox->nitems > zklock_max_queue_length)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("queue \"%s\" is full", zklock_display_name(outbox->queue)),
				 errdetail("It has %lld items, the transaction puts %d, and \"%s\" is %d.",
						   (long long) length, outbox->nitems, "zklock.max_queue_length",
						   zklock_max_queue_length)));
}

/* Make an item's id.  Ids ascend even if two items are put within one us, or while the
 * clock is set back. */
static void
make_id(char *id)
{
	static int64 last = 0; /* us since 1970 */
	int64 now = GetCurrentTimestamp() + ZKLOCK_MS_TO_2000 * 1000;
	uint64 random;

	if (!pg_strong_random(&random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	last = Max(now, last + 1);
	zklock_item_make_id(id, last, random);
}

void
zklock_queue_put(const char *queue, const char *payload, int len, char *id)
{
	Outbox *outbox;
	Parcel *item;

	PreventCommandIfReadOnly("zk_queue_put()");
	if (len > zklock_max_item_size)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("item for queue \"%s\" is too large", zklock_display_name(queue)),
				 errdetail("It has %d bytes in UTF-8, and \"%s\" is %d.", len,
						   "zklock.max_item_size", zklock_max_item_size),
				 errhint("Put the row elsewhere, and its key into the queue.")));
	if (outbox_context == NULL)
		outbox_context = AllocSetContextCreate(TopMemoryContext, "zklock outbox",
											   ALLOCSET_DEFAULT_SIZES);
	outbox = find_outbox(queue);
	if (outbox->put >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot put an item into a queue while the transaction commits")));
	if (outbox->nitems == 0)
		zklock_limit_check(ZKLOCK_LIMIT_QUEUES, count_queues(), 1);
	make_id(id);
	item = MemoryContextAlloc(outbox_context, offsetof(Parcel, payload) + (Size) len);
	item->level = GetCurrentTransactionNestLevel();
	item->len = len;
	strlcpy(item->id, id, sizeof(item->id));
	memcpy(item->payload, payload, (size_t) len);
	dlist_push_tail(&outbox->items, &item->node);
	outbox->nitems++;
	if (outbox->nitems > zklock_max_queue_length)
		check_length(outbox, 0);
}

/* ------------------------------------------------------------------------
 * ... before the commit
 * ------------------------------------------------------------------------
 */

/* Make a put in shared memory for each queue, or none while there are too few: two
 * transactions that have some and wait for more would wait for each other. */
static bool
make_puts(int n)
{
	int nfree = 0;
	dlist_iter iter;
	int next = 0;

	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
		nfree += zklock_queue_shared->staged[i].put.state == ZKLOCK_PUT_FREE;
	if (nfree < n)
		return false;
	dlist_foreach (iter, &outboxes)
	{
		Outbox *outbox = dlist_container(Outbox, node, iter.cur);
		ZkQueuePut *staged;

		if (!has_items(outbox))
			continue;
		while (zklock_queue_shared->staged[next].put.state != ZKLOCK_PUT_FREE)
			next++;
		staged = &zklock_queue_shared->staged[next];
		outbox->put = next;
		zklock_put_begin(&staged->put);
		staged->serial = zklock_mailbox_serial(&zklock_queue_shared->box);
		staged->pid = MyProcPid;
		staged->rc = 0;
		staged->length = -1;
		staged->limit = zklock_max_queue_length - outbox->nitems;
		strlcpy(staged->queue, outbox->queue, sizeof(staged->queue));
		outbox->next = dlist_head_node(&outbox->items);
		outbox->chunk = 0;
		outbox->posted = false;
	}
	return true;
}

/* Copy the next chunk into a buffer: as many items as there is room for.  The caller
 * holds the lock. */
static void
post_chunk(Outbox *outbox, ZkQueueBuffer *buffer, ZkChunkHead *head)
{
	ZkQueuePut *staged = &zklock_queue_shared->staged[outbox->put];
	dlist_node *node = outbox->next;
	int size = 0;
	char *p;

	for (head->nitems = 0; node != NULL && head->nitems < ZKLOCK_CHUNK_ITEMS; head->nitems++)
	{
		const Parcel *item = dlist_container(Parcel, node, node);
		ZkChunkItem *entry = &head->item[head->nitems];

		if (size + item->len > ZKLOCK_ITEM_MAX)
			break;
		size += item->len;
		entry->length = item->len;
		strlcpy(entry->id, item->id, sizeof(entry->id));
		node = dlist_has_next(&outbox->items, node) ? dlist_next_node(&outbox->items, node)
													: NULL;
	}
	p = buffer->data + zklock_chunk_write(buffer->data, head);
	for (dlist_node *n = outbox->next; n != node;)
	{
		const Parcel *item = dlist_container(Parcel, node, n);

		memcpy(p, item->payload, (size_t) item->len);
		p += item->len;
		n = dlist_has_next(&outbox->items, n) ? dlist_next_node(&outbox->items, n) : NULL;
	}
	buffer->state = ZKLOCK_BUFFER_POSTED;
	buffer->put = outbox->put;
	buffer->serial = staged->serial;
	buffer->round = staged->put.round;
	buffer->chunk = outbox->chunk++;
	buffer->len = (int) (p - buffer->data);
	zklock_put_posted(&staged->put, (int) buffer->chunk);
	outbox->next = node;
	outbox->posted = node == NULL;
}

/* Free the buffers of a put that are not being sent.  The caller holds the lock. */
static void
free_buffers(int put)
{
	for (int i = 0; i < ZKLOCK_QUEUE_BUFFERS; i++)
	{
		ZkQueueBuffer *buffer = &zklock_queue_shared->buffer[i];

		if (buffer->state == ZKLOCK_BUFFER_POSTED && buffer->put == put)
			buffer->state = ZKLOCK_BUFFER_FREE;
	}
}

/* Post the chunks that there is room for.  False: there is no room for the rest. */
static bool
post(Outbox *outbox, ZkChunkHead *head)
{
	bool posted = false;

	lock_work();
	while (!outbox->posted)
	{
		ZkQueueBuffer *buffer = zklock_queue_buffer();

		if (buffer == NULL)
			break;
		post_chunk(outbox, buffer, head);
		posted = true;
	}
	unlock_work();
	if (posted)
		zklock_mailbox_post(&zklock_queue_shared->box);
	return outbox->posted;
}

typedef struct Writing
{
	Outbox *outbox;
	ZkChunkHead *head;
	int64 again; /* when the round is repeated; 0: it is not */
} Writing;

/* Begin a round.  The names of chunks stay the same, and a chunk that exists counts as
 * acknowledged.  The caller holds the lock. */
static void
begin_round(Outbox *outbox, ZkQueuePut *staged)
{
	free_buffers(outbox->put);
	zklock_put_repeat(&staged->put);
	outbox->next = dlist_head_node(&outbox->items);
	outbox->chunk = 0;
	outbox->posted = false;
}

/* Post the chunks that there is room for.  Returns whether all chunks of the queue are
 * acknowledged. */
static bool
look_at_put(ZkWaiter *waiter, int64 now)
{
	Writing *w = waiter->arg;
	Outbox *outbox = w->outbox;
	ZkQueuePut *staged = &zklock_queue_shared->staged[outbox->put];
	bool room = now < w->again || post(outbox, w->head);
	bool again;
	bool complete;
	int64 length;
	int rc;

	lock_work();
	complete = outbox->posted && zklock_put_is_written(&staged->put) && staged->length >= 0;
	again = staged->put.again && !complete;
	length = staged->length;
	rc = staged->rc;
	if (again)
		begin_round(outbox, staged);
	unlock_work();
	if (rc != 0)
		raise_refused(outbox->queue, rc);
	if (length >= 0)
		check_length(outbox, length);
	if (again)
		w->again = now + SHORT_SLEEP * NS_PER_MS;
	if (now < w->again)
		waiter->wake = w->again;
	else if (!room)
		waiter->wake = now + SHORT_SLEEP * NS_PER_MS;
	return complete;
}

static void
on_write_error(void *arg)
{
	errcontext("while writing items into queue \"%s\"",
			   zklock_plain_name(((const Writing *) arg)->outbox->queue));
}

/* Write all chunks of one queue, and wait until they are acknowledged. */
static void
write_outbox(Outbox *outbox, ZkChunkHead *head)
{
	Writing writing = {.outbox = outbox, .head = head};
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_at_put,
		.context = on_write_error,
		.arg = &writing,
		.limits = &limits,
		.cv = &zklock_queue_shared->staged[outbox->put].cv,
		.event = &wait_event_put,
		.longest = LONGEST_SLEEP,
		.connected = true,
	};

	zklock_wait_begin(&limits, ZKLOCK_WAIT_FOREVER);
	(void) zklock_wait_for(&waiter);
}

/* Puts for n queues, of which the first is named in messages. */
typedef struct Puts
{
	int n;
	char *queue;
} Puts;

static void
on_room_error(void *arg)
{
	const Puts *puts = arg;
	int nputs;
	int writer = zklock_unlocked() ? zklock_queue_writer(MyProcPid, &nputs) : 0;

	errcontext("while waiting to put items into queue \"%s\"%s",
			   zklock_plain_name(puts->queue),
			   writer != 0 ? psprintf(", behind process %d", writer) : "");
}

pg_noreturn static void
raise_no_puts(int n)
{
	int nputs;
	int writer = zklock_queue_writer(MyProcPid, &nputs);

	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many transactions of this server put items into queues"),
			 writer != 0
				 ? errdetail("This one needs room for %d queues, the server has it for %d, and process %d takes %d.",
							 n, ZKLOCK_QUEUE_PUTS, writer, nputs)
				 : errdetail("This one needs room for %d queues, the server has it for %d.",
							 n, ZKLOCK_QUEUE_PUTS),
			 errhint(
				 "Retry when these have committed. While a COMMIT waits, zk_waits shows for whom.")));
}

static bool
try_puts(int n)
{
	bool made;

	lock_work();
	made = make_puts(n);
	unlock_work();
	return made;
}

static bool
look_for_puts(ZkWaiter *waiter, int64 now)
{
	return try_puts(((const Puts *) waiter->arg)->n);
}

/*
 * Wait for puts.  Other sessions may have them, and their commits may wait for
 * anything.  So this is a wait for other sessions, with the limits of a wait for room
 * in the lock table.  Without the ensemble no put is settled.
 */
static void
await_puts(Puts *puts)
{
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_for_puts,
		.context = on_room_error,
		.arg = puts,
		.limits = &limits,
		.cv = &zklock_queue_shared->room_cv,
		.event = &wait_event_put,
		.longest = LONGEST_SLEEP,
		.for_lock = true,
		.connected = true,
	};

	if (try_puts(puts->n))
		return;
	zklock_wait_begin(&limits, zklock_connect_timeout);
	/* until the end of the transaction, should an error end it */
	zklock_holder_set_wait(ZKLOCK_KIND_QUEUE, puts->queue);
	if (!zklock_wait_for(&waiter))
		raise_no_puts(puts->n);
	zklock_holder_set_wait(ZKLOCK_KIND_QUEUE, NULL);
}

static void
write_outboxes(void)
{
	ZkChunkHead *head = palloc(sizeof(ZkChunkHead));
	Outbox *first = NULL;
	char name[256];
	dlist_iter iter;
	int n = 0;
	uint64 xid;

	dlist_foreach (iter, &outboxes)
	{
		Outbox *outbox = dlist_container(Outbox, node, iter.cur);

		if (has_items(outbox) && n++ == 0)
			first = outbox;
	}
	if (n == 0)
		return;
	ForceSyncCommit();
	xid = U64FromFullTransactionId(GetTopFullTransactionId());
	zklock_effective_server_name(name, sizeof(name));
	head->timeline = (int) GetWALInsertionTimeLine();
	head->xid = xid;
	head->server = zklock_hash_child(name);
	head->lsn = zklock_log_message("zklock", (const char *) &xid, sizeof(xid));
	XLogFlush(head->lsn);

	await_puts(&(Puts){n, first->queue});
	dlist_foreach (iter, &outboxes)
	{
		Outbox *outbox = dlist_container(Outbox, node, iter.cur);

		if (has_items(outbox))
			write_outbox(outbox, head);
	}
	pfree(head);
}

void
zklock_queue_before_commit(void)
{
	if (!dlist_is_empty(&outboxes))
		write_outboxes();
}


void
zklock_queue_refuse_prepare(void)
{
	if (!dlist_is_empty(&held_items) || count_queues() > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot PREPARE a transaction that has put items into a queue, or taken them"),
				 errdetail(
					 "The queue could not be changed when the prepared transaction ends.")));
}

/* ------------------------------------------------------------------------
 * Taking
 * ------------------------------------------------------------------------
 */

/* The backend leaves before the take has an item. */
static void
leave(Held *held)
{
	ZkQueueTake *taken = taken_of(held);

	lock_work();
	taken->order = ++zklock_queue_shared->last_order;
	zklock_take_leave(&taken->take);
	/* the worker is at these */
	if (taken->take.state != ZKLOCK_TAKE_READING && taken->take.state != ZKLOCK_TAKE_WORN)
		zklock_queue_take_free_buffer(taken);
	if (taken->take.state == ZKLOCK_TAKE_FREE)
		zklock_queue_take_free(taken);
	unlock_work();
	dlist_delete(&held->node);
	pfree(held);
}

static void
leave_pending(void)
{
	if (dlist_is_empty(&pending))
		return;
	while (!dlist_is_empty(&pending))
		leave(dlist_head_element(Held, node, &pending));
	zklock_mailbox_post(&zklock_queue_shared->box);
}

static int
count_items(void)
{
	int n = 0;
	dlist_iter iter;

	dlist_foreach (iter, &held_items)
		n++;
	return n;
}

/* The wait for "pending". */
typedef struct Taking
{
	const char *queue;
	int most;
	int count;
	bool one;	  /* the wait is for one, and goes on where there is none */
	bool drained; /* it has ended: the server is taken out of service */
	char *payload;
	ZkHandout *handout; /* has room for all */
	int n;
} Taking;

/* The item is there, and so is the lease: hand the item out.  The caller holds the
 * lock. */
static void
hand_out(Held *held, const Taking *t)
{
	ZkQueueTake *taken = taken_of(held);
	ZkHandout *handout = &t->handout[t->n];

	(void) zklock_item_parse(taken->item, &handout->item); /* it is one */
	handout->attempt = taken->take.attempt;
	handout->since = taken->since;
	handout->len = taken->len;
	memcpy(t->payload, zklock_queue_shared->buffer[taken->buffer].data,
		   (size_t) taken->len);
	zklock_queue_take_free_buffer(taken);
	taken->take.state = ZKLOCK_TAKE_HELD;
	dlist_delete(&held->node);
	dlist_push_head(&held_items, &held->node);
}

/* Look at the state of a take. */
static void
look_at_take(Held *held, ZkWaiter *waiter)
{
	const ZkQueueTake *taken = taken_of(held);
	Taking *t = waiter->arg;
	bool refused;
	bool failing;
	bool ready;
	bool drained;
	bool none;
	bool got;
	int rc;

	lock_work();
	refused = taken->refused;
	failing = taken->failing;
	rc = taken->rc;
	ready = !refused && taken->take.state == ZKLOCK_TAKE_READ;
	none = !ready && taken->none;
	drained = t->one && zklock_draining() && taken->take.state == ZKLOCK_TAKE_WANTED;
	got = ready && zklock_lease_valid();
	if (got)
		hand_out(held, t);
	unlock_work();
	if (refused)
		raise_refused(failing ? psprintf("%s%s", t->queue, ZKLOCK_FAILED) : t->queue, rc);
	if (got)
	{
		t->handout[t->n].payload = pnstrdup(t->payload, (Size) t->handout[t->n].len);
		t->n++;
		zklock_mailbox_post(&zklock_queue_shared->box); /* the buffer is free */
	}
	else if (drained || (none && !t->one))
	{
		t->drained = drained;
		leave(held);
	}
	else if (!none)
		waiter->end = ZKLOCK_WAIT_GOES_ON;
	waiter->granted |= ready && !got;
}

static bool
look_at_takes(ZkWaiter *waiter, int64 now)
{
	dlist_mutable_iter iter;

	waiter->granted = false;
	waiter->end = ZKLOCK_WAIT_ENDS_CURRENT;
	dlist_foreach_modify (iter, &pending)
		look_at_take(dlist_container(Held, node, iter.cur), waiter);
	return dlist_is_empty(&pending);
}

static void
on_wait_error(void *arg)
{
	errcontext("while waiting for an item of queue \"%s\"",
			   zklock_plain_name(((const Taking *) arg)->queue));
}

static void
wait_for_items(const ZkWait *limits, Taking *taking)
{
	int32 waker = dlist_head_element(Held, node, &pending)->taken;
	ZkWaiter waiter = {
		.look = look_at_takes,
		.context = on_wait_error,
		.arg = taking,
		.limits = limits,
		.cv = &zklock_queue_shared->taken[waker].cv,
		.event = &wait_event_take,
		.longest = LONGEST_SLEEP,
		.for_lock = taking->one, /* for more it waits for ZooKeeper alone */
		.connected = true,
	};

	zklock_mailbox_post(&zklock_queue_shared->box);
	(void) zklock_wait_for(&waiter);
}

static bool
look_at_drain(ZkWaiter *waiter, int64 now)
{
	return !zklock_draining();
}

/* Wait as if the queue were empty: who asks again and again is not to spin.  False: the
 * time is up. */
static bool
await_service(const ZkWait *limits, Taking *taking)
{
	ZkWaiter waiter = {
		.look = look_at_drain,
		.context = on_wait_error,
		.arg = taking,
		.limits = limits,
		.event = &wait_event_take,
		.longest = LONGEST_SLEEP, /* nobody wakes us */
		.for_lock = true,
	};

	ereport(NOTICE,
			(errmsg("no item of queue \"%s\" is taken by this server",
					zklock_display_name(taking->queue)),
			 errdetail("The server is taken out of service by \"zklock.drain\".")));
	return zklock_wait_for(&waiter);
}

/* Make one more take that this backend waits for.  False: there is no room for it. */
static bool
make_take(const Taking *t, bool waits)
{
	Held *held = MemoryContextAlloc(held_context, sizeof(Held));
	ZkQueueTake *taken;

	held->level = GetCurrentTransactionNestLevel();
	lock_work();
	taken = zklock_queue_take_make(t->queue, waits, t->most);
	if (taken != NULL)
	{
		held->taken = (int32) (taken - zklock_queue_shared->taken);
		dlist_push_tail(&pending, &held->node);
		taken->waker = dlist_head_element(Held, node, &pending)->taken;
	}
	unlock_work();
	if (taken == NULL)
		pfree(held);
	return taken != NULL;
}

pg_noreturn static void
raise_no_takes(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many queue items are held on this server"),
			 errdetail("Its sessions hold or wait for %d, which is a quarter of \"%s\".",
					   zklock_max_items(), "zklock.max_locks"),
			 errhint(
				 "Retry when other transactions have ended, or ask an administrator for a higher limit.")));
}

static int
compare_handouts(const void *a, const void *b)
{
	int64 x = ((const ZkHandout *) a)->item.sequence;
	int64 y = ((const ZkHandout *) b)->item.sequence;

	return x < y ? -1 : x > y;
}

/* Take the first item, with a wait, also if the server is out of service meanwhile. */
static void
take_first(int64 wait_ms, Taking *taking)
{
	ZkWait limits;

	taking->one = true;
	zklock_wait_begin(&limits, wait_ms);
	do
	{
		taking->drained = false;
		if (zklock_draining() && !await_service(&limits, taking))
			return;
		if (!make_take(taking, wait_ms != 0))
			raise_no_takes();
		wait_for_items(&limits, taking);
	} while (taking->drained);
}

/* Take the first item, with a wait, and then all others that are there, together. */
static void
take_items(int64 wait_ms, Taking *taking)
{
	ZkWait limits;

	take_first(wait_ms, taking);
	if (taking->n == 0)
		return;
	taking->one = false;
	for (int i = 1; i < taking->count && make_take(taking, false); i++)
		;
	if (dlist_is_empty(&pending))
		return;
	zklock_wait_begin(&limits, 0);
	wait_for_items(&limits, taking);
}

int
zklock_queue_take(const char *queue, int64 wait_ms, int count, int most,
				  ZkHandout **handouts)
{
	const ZkQueueTake *lost = find_lost();
	Taking taking = {.queue = queue, .most = most};

	Assert(dlist_is_empty(&pending));
	if (lost != NULL)
		raise_lost(lost);
	zklock_limit_check(ZKLOCK_LIMIT_ITEMS, count_items(), 1);
	taking.count = Min(count, zklock_limit_room(ZKLOCK_LIMIT_ITEMS, count_items()));
	if (held_context == NULL)
		held_context =
			AllocSetContextCreate(TopMemoryContext, "zklock items", ALLOCSET_SMALL_SIZES);
	taking.payload = palloc(ZKLOCK_ITEM_MAX);
	taking.handout = palloc(sizeof(ZkHandout) * (Size) taking.count);
	PG_TRY();
	{
		take_items(wait_ms, &taking);
	}
	PG_FINALLY();
	{
		leave_pending();
	}
	PG_END_TRY();
	pfree(taking.payload);
	qsort(taking.handout, (size_t) taking.n, sizeof(ZkHandout), compare_handouts);
	zklock_queue_count(ZKLOCK_QUEUE_TAKEN, taking.n);
	*handouts = taking.handout;
	return taking.n;
}

/* ------------------------------------------------------------------------
 * How it ends
 * ------------------------------------------------------------------------
 */

static void
end_held(Held *held, bool committed)
{
	ZkQueueTake *taken = taken_of(held);

	lock_work();
	/* by the worker's word or by the clock */
	if (taken->take.lost || zklock_lease_lost())
		zklock_queue_count(ZKLOCK_QUEUE_LOST, 1);
	taken->order = ++zklock_queue_shared->last_order;
	zklock_take_end(&taken->take, committed);
	if (taken->take.state == ZKLOCK_TAKE_FREE)
		zklock_queue_take_free(taken);
	unlock_work();
	dlist_delete(&held->node);
	pfree(held);
}

static void
end_outbox(Outbox *outbox, bool committed)
{
	ZkQueuePut *staged = &zklock_queue_shared->staged[outbox->put];

	lock_work();
	free_buffers(outbox->put);
	staged->order = committed ? ++zklock_queue_shared->committed : 0;
	zklock_put_end(&staged->put, committed);
	unlock_work();
	ConditionVariableBroadcast(&zklock_queue_shared->room_cv);
}

void
zklock_queue_end(bool committed)
{
	dlist_iter iter;

	if (!zklock_queue_any())
		return;
	leave_pending();
	if (zklock_proc(ZKLOCK_MY_PROC_NUMBER)->wait_since != 0)
		zklock_holder_set_wait(ZKLOCK_KIND_QUEUE, NULL);
	dlist_foreach (iter, &outboxes)
	{
		Outbox *outbox = dlist_container(Outbox, node, iter.cur);

		if (outbox->put >= 0)
			end_outbox(outbox, committed);
	}
	dlist_init(&outboxes);
	if (outbox_context != NULL)
		MemoryContextReset(outbox_context);
	while (!dlist_is_empty(&held_items))
		end_held(dlist_head_element(Held, node, &held_items), committed);
	zklock_mailbox_post(&zklock_queue_shared->box);
}

void
zklock_queue_end_sub(int level, bool committed)
{
	dlist_iter iter;
	dlist_mutable_iter held_iter;
	bool ended = false;

	dlist_foreach (iter, &outboxes)
	{
		Outbox *outbox = dlist_container(Outbox, node, iter.cur);

		/* levels grow along the list */
		for (dlist_node *node =
				 dlist_is_empty(&outbox->items) ? NULL : dlist_tail_node(&outbox->items);
			 node != NULL;)
		{
			Parcel *item = dlist_container(Parcel, node, node);
			dlist_node *before = dlist_has_prev(&outbox->items, node)
				? dlist_prev_node(&outbox->items, node)
				: NULL;

			if (item->level < level)
				break;
			if (committed)
				item->level = level - 1;
			else
			{
				dlist_delete(node);
				pfree(item);
				outbox->nitems--;
			}
			node = before;
		}
	}
	dlist_foreach_modify (held_iter, &held_items)
	{
		Held *held = dlist_container(Held, node, held_iter.cur);

		if (held->level < level)
			break;
		if (committed)
			held->level = level - 1;
		else
		{
			end_held(held, false);
			ended = true;
		}
	}
	if (ended)
		zklock_mailbox_post(&zklock_queue_shared->box);
}
