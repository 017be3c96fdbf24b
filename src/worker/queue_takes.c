/*-------------------------------------------------------------------------
 *
 * queue_takes.c
 *	  The worker's part in takes: gets items of queues for backends, and ends their
 *	  takes.
 *
 * The rules are in queue_rules.c.  Takes are in shared memory, and outlive the worker.
 * The knowledge about a queue's items is in the worker's own memory.  Both change under
 * the lock, and the worker sends the requests to the ensemble after it has released the
 * lock.
 *
 * The worker tells a take that there is no item only after a listing without one, which
 * it must have requested after the take began, behind a sync.  So the take sees
 * everything that was committed before, on any server.  Items that this server has
 * committed and not moved into the queue yet come first.  So do items that its
 * transactions have given back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "names.h"
#include "path.h"
#include "queue_shared.h"
#include "queue_takes.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"
#include "watches.h"

/* ns after which a queue is forgotten that no backend here has asked for */
#define FORGET_AFTER (60 * 1000 * NS_PER_MS)

/*
 * Number of requests about takes in one batch.  On a new connection the worker looks at
 * all items that are held.  With the requests that zklock_session_busy allows, the
 * number stays below ZKLOCK_MAX_PENDING.
 */
#define MOST_SENDINGS (ZKLOCK_MAX_PENDING / 4)

/* ZkRequestTag.uuid: of a take its ZkTakeRequest, of a queue: */
#define TAG_LIST 100
#define TAG_HELD 101
#define TAG_LOOK 102 /* hash: the item's number */
/* ... of several takes (entry: a Joint's id): */
#define TAG_JOINT 150
/* ... of what makes its directories (hash: of its name): */
#define TAG_MAKE_QUEUE 200
#define TAG_MAKE_PART  201

/* A queue as the worker sees it. */
typedef struct View
{
	uint32 id;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkItems items;
	MemoryContext context; /* of the newest listing */
	int room;			   /* for items in their memory */
	uint64 asked; /* the newest take when the listing was asked for that is out */
	uint64 fresh; /* ... that has come */
	int64 used;	  /* ns */
	bool waits;	  /* somebody does: there have to be watches */
	bool missing; /* it has no directories, as of the newest listing ... */
	bool made;	  /* ... though we have made them */
	bool stuck;	  /* a request was refused: again at the next TICK */
	bool passed;  /* nothing to be had, this time round */
} View;

/* A request that the worker sends when it has released the lock. */
typedef struct Sending
{
	uint32 what;
	uint32 entry; /* of a take, or of a view */
	uint32 generation;
	int pid;	/* of a take: whose */
	bool ahead; /* MARK: the item is asked for at once */
	int64 sequence;
	char queue[ZKLOCK_NAME_MAX + 1];
	char item[ZKLOCK_ITEM_NAME];
} Sending;

typedef struct Sendings
{
	Sending *sending; /* in the context of this time round */
	int n;
	int room;
} Sendings;

/* A request of several takes, one after the other in the ops of one multi. */
typedef struct Joint
{
	uint32 id;
	ZkTakeRequest what;
	int n;
	struct
	{
		uint32 entry;
		uint32 serial;
	} take[FLEXIBLE_ARRAY_MEMBER];
} Joint;

/* So many takes, and about so many bytes, are in one: the ensemble refuses what is too
 * large. */
#define JOINT_TAKES 100
#define JOINT_SIZE	(64 * 1024)

static void send_one(const Sending *s);

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static List *views = NIL;				 /* in TopMemoryContext */
static uint32 last_view = 0;
static uint32 connection = 0; /* replies of an earlier one are void */
static List *joints = NIL;	  /* ... on the wire; in TopMemoryContext */
static uint32 last_joint = 0;
static int torn = 0; /* items that were lost since the log was told */
static bool due = true;

void
zklock_queue_takes_look_again(void)
{
	due = true;
}

static uint64
hash_queue(const char *queue)
{
	return hash_bytes_extended((const unsigned char *) queue, (int) strlen(queue), 0);
}

void
zklock_queue_takes_make_queue(const char *queue)
{
	static const char *const parts[] = {NULL, "items", "held", "puts"};

	if (zklock_session_client() == NULL)
		return;
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		char *path = zklock_path_name(ZKLOCK_KIND_QUEUE, queue, parts[i]);
		ZkRequestTag tag = {
			.kind = own_tag,
			.uuid = parts[i] == NULL ? TAG_MAKE_QUEUE : TAG_MAKE_PART,
			.hash = hash_queue(queue),
		};

		(void) zklock_client_create(zklock_session_client(), path, "", 0,
									ZKLOCK_CREATE_PERSISTENT, &tag);
		pfree(path);
	}
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

static View *
view_by_id(uint32 id)
{
	ListCell *cell;

	foreach (cell, views)
	{
		View *view = lfirst(cell);

		if (view->id == id)
			return view;
	}
	return NULL;
}

static View *
find_view(const char *name, bool make)
{
	MemoryContext save;
	ListCell *cell;
	View *view;

	foreach (cell, views)
	{
		view = lfirst(cell);
		if (strcmp(view->name, name) == 0)
			return view;
	}
	if (!make)
		return NULL;
	save = MemoryContextSwitchTo(TopMemoryContext);
	view = palloc0(sizeof(View));
	view->id = ++last_view;
	strlcpy(view->name, name, sizeof(view->name));
	views = lappend(views, view);
	MemoryContextSwitchTo(save);
	return view;
}

/*
 * Remove the watches of a queue that is no longer listed: there may be many queues.
 * All requests that set a watch had their replies long ago.  False: there is no
 * connection.
 */
static bool
unwatch(const char *queue)
{
	static const char *const part[] = {"items", "held"};
	ZkClient *client = zklock_session_client();

	for (int i = 0; i < 2; i++)
	{
		char *path = zklock_path_name(ZKLOCK_KIND_QUEUE, queue, part[i]);
		int rc;

		if (client == NULL)
			return false;
		rc = zklock_client_unwatch(client, path, true, &zklock_no_tag);
		if (rc != ZKLOCK_ZOK && rc != ZKLOCK_ZNOWATCHER)
			return false;
		zklock_watch_fired(path, true);
	}
	return true;
}

/* Forget queues that nobody has asked for lately. */
static void
forget_views(void)
{
	ListCell *cell;

	foreach (cell, views)
	{
		View *view = lfirst(cell);

		if (zklock_clock() - view->used < FORGET_AFTER || !unwatch(view->name))
			continue;
		if (view->context != NULL)
			MemoryContextDelete(view->context);
		views = foreach_delete_current(views, cell);
		pfree(view);
	}
}

/* Take a listing of items/. */
static void
take_listing(View *view, const ZkMessage *message)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "zklock queue", ALLOCSET_DEFAULT_SIZES);
	int room = Max(message->nchildren, 1);
	ZkItem *item = MemoryContextAllocHuge(context, sizeof(ZkItem) * (Size) room);
	int n = 0;

	for (int i = 0; i < message->nchildren; i++)
	{
		ZkItemName parsed;

		/* whatever else is there is nothing of ours */
		if (!zklock_item_parse(message->children[i], &parsed))
			continue;
		item[n].sequence = parsed.sequence;
		strlcpy(item[n].name, message->children[i], sizeof(item[n].name));
		n++;
	}
	zklock_items_listed(&view->items, item, n, (int64) message->ncreated);
	view->fresh = view->asked;
	if (view->context != NULL)
		MemoryContextDelete(view->context);
	view->context = context;
	view->room = room;
}

void
zklock_queue_takes_put(const char *queue, const ZkMessage *message)
{
	View *view = find_view(queue, false);
	ZkItems *items;

	if (view == NULL || !view->items.known)
		return; /* a listing will tell */
	items = &view->items;
	if (items->n + message->nchildren > view->room)
		zklock_items_compact(items);
	if (items->n + message->nchildren > view->room)
	{
		view->room = 2 * (items->n + message->nchildren);
		items->item = repalloc_huge(items->item, sizeof(ZkItem) * (Size) view->room);
	}
	for (int i = 0; i < message->nchildren; i++)
	{
		if (message->children[i][0] != '\0')
			zklock_items_put(items, message->children[i]);
	}
	due = true;
}

/* This server may not read the queue, or not create it: tell the takes that want an
 * item ("made": only those that wait for one). */
static void
refuse(uint64 queue, bool made, int rc)
{
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < zklock_queue_shared->takes_high; i++)
	{
		ZkQueueTake *taken = &zklock_queue_shared->taken[i];

		if (taken->take.state != ZKLOCK_TAKE_WANTED ||
			hash_queue(taken->queue) != queue || (made && !taken->waits))
			continue;
		taken->refused = true;
		taken->rc = rc;
		zklock_queue_take_wake(taken);
	}
	LWLockRelease(zklock_queue_shared->box.lock);
}

/*
 * Take the reply to the creation of a queue's directory.  A server without the right to
 * create nodes in the queue's parent is refused even if the queue exists.  So the
 * replies for the parts of the queue count.
 */
static void
made_message(const ZkMessage *message)
{
	static int of_queue = ZKLOCK_ZOK;
	int rc = message->rc;

	if (message->tag.uuid == TAG_MAKE_QUEUE)
	{
		of_queue = rc;
		return;
	}
	if (rc == ZKLOCK_ZNONODE && of_queue != ZKLOCK_ZNODEEXISTS)
		rc = of_queue;
	if (zklock_reply(rc) != ZKLOCK_REPLY_REFUSED)
		return;
	zklock_trouble("could not make the directories of a queue: %s", zklock_rc_text(rc));
	refuse(message->tag.hash, true, rc);
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
	{
		ZkQueuePut *staged = &zklock_queue_shared->staged[i];

		if (staged->put.state != ZKLOCK_PUT_WRITING ||
			hash_queue(staged->queue) != message->tag.hash)
			continue;
		staged->rc = rc;
		ConditionVariableBroadcast(&staged->cv);
	}
	LWLockRelease(zklock_queue_shared->box.lock);
}

static int
compare_serials(const void *a, const void *b)
{
	uint32 x = *(const uint32 *) a;
	uint32 y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* The serials of all takes, sorted, in the memory context of this time round. */
static uint32 *
all_serials(int *n)
{
	uint32 *serials = palloc(sizeof(uint32) * (Size) zklock_queue_shared->ntakes);

	*n = 0;
	LWLockAcquire(zklock_queue_shared->box.lock, LW_SHARED);
	for (int i = 0; i < zklock_queue_shared->takes_high; i++)
	{
		if (zklock_queue_shared->taken[i].take.state != ZKLOCK_TAKE_FREE)
			serials[(*n)++] = zklock_queue_shared->taken[i].serial;
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	qsort(serials, (size_t) *n, sizeof(uint32), compare_serials);
	return serials;
}

/*
 * Take a listing of held/.  A take is over when both of its marks are known to be gone.
 * If the marks of such a take are there again, the ensemble has gone back by so little
 * that nobody has noticed.  The worker deletes them, since nobody else would while this
 * session lives.
 */
static void
take_held(View *view, const ZkMessage *message)
{
	int n;
	const uint32 *serials = all_serials(&n);

	for (int i = 0; i < message->nchildren; i++)
	{
		char *child = message->children[i];
		Sending s = {.what = ZKLOCK_TAKE_GIVE};
		uint64 life;

		if (zklock_item_of_mark(child, &life, &s.generation) &&
			life == zklock_queue_shared->life &&
			bsearch(&s.generation, serials, (size_t) n, sizeof(uint32), compare_serials) ==
				NULL)
		{
			strlcpy(s.queue, view->name, sizeof(s.queue));
			strlcpy(s.item, child, sizeof(s.item));
			send_one(&s); /* the reply is nobody's */
		}
	}
	zklock_items_listed_held(&view->items, (const char **) message->children,
							 message->nchildren);
}

/* Does the item have a mark?  It may also have child nodes of other programs. */
static bool
has_mark(const ZkMessage *message)
{
	for (int i = 0; i < message->nchildren; i++)
	{
		if (strcmp(message->children[i], "held") == 0)
			return true;
	}
	return false;
}

static void
view_message(const ZkMessage *message)
{
	View *view = view_by_id(message->tag.entry);
	bool missing = message->rc == ZKLOCK_ZNONODE;

	if (view == NULL || message->tag.generation != connection ||
		zklock_rc_is_lost(message->rc))
		return; /* what we know is void, too, or will be */
	due = true;
	if (message->tag.uuid == TAG_LOOK)
	{
		zklock_items_looked(&view->items, (int64) message->tag.hash,
							zklock_reply(message->rc), has_mark(message));
		return;
	}
	if (message->rc != ZKLOCK_ZOK && !missing)
	{
		zklock_items_not_listed(&view->items, message->tag.uuid == TAG_HELD);
		view->stuck = true;
		refuse(hash_queue(view->name), false, message->rc);
		zklock_trouble_refused(message);
	}
	else if (message->tag.uuid == TAG_HELD)
		take_held(view, message);
	else
		take_listing(view, message);
	if (message->tag.uuid == TAG_LIST)
		view->missing = missing;
	/* there is no watch on what is not there: so who waits has it made */
	if (missing)
	{
		zklock_items_changed(&view->items, message->tag.uuid == TAG_HELD);
		view->stuck |= view->made;
		view->made = view->waits && !view->stuck;
		if (view->made)
			zklock_queue_takes_make_queue(view->name);
	}
	else
		view->made = false;
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

static Sending *
add_sending(Sendings *sendings, uint32 what, const char *queue, const char *item)
{
	Sending *s;

	if (sendings->n == sendings->room)
	{
		sendings->room = Max(32, 2 * sendings->room);
		sendings->sending = sendings->sending == NULL
			? palloc(sizeof(Sending) * (Size) sendings->room)
			: repalloc(sendings->sending, sizeof(Sending) * (Size) sendings->room);
	}
	s = &sendings->sending[sendings->n++];
	s->what = what;
	s->ahead = false;
	s->sequence = 0;
	strlcpy(s->queue, queue, sizeof(s->queue));
	strlcpy(s->item, item, sizeof(s->item));
	return s;
}

static void
add_of_view(Sendings *sendings, uint32 what, const View *view, int item)
{
	Sending *s = add_sending(sendings, what, view->name,
							 item >= 0 ? view->items.item[item].name : "");

	s->entry = view->id;
	s->generation = connection;
	if (item >= 0)
		s->sequence = view->items.item[item].sequence;
}

/* Find a buffer for the payload.  False: there is none left.  The caller holds the lock. */
static bool
find_buffer(ZkQueueTake *taken)
{
	ZkQueueBuffer *buffer = taken->buffer < 0 ? zklock_queue_buffer() : NULL;

	if (buffer != NULL)
	{
		buffer->state = ZKLOCK_BUFFER_READING;
		taken->buffer = (int) (buffer - zklock_queue_shared->buffer);
	}
	return taken->buffer >= 0;
}

/*
 * Add the next request of a take, if the worker has to act.  The caller holds the lock.
 */
static void
add_of_take(Sendings *sendings, ZkQueueTake *taken)
{
	ZkTakeRequest request;
	Sending *s;

	if (taken->pause)
		return;
	if (taken->take.state == ZKLOCK_TAKE_READING && !find_buffer(taken))
		return; /* who frees one wakes us */
	request = zklock_take_request(&taken->take);
	if (request == ZKLOCK_TAKE_NOTHING)
		return;
	s = add_sending(sendings, request, taken->queue, taken->item);
	s->entry = (uint32) (taken - zklock_queue_shared->taken);
	s->generation = taken->serial;
	s->pid = taken->pid;
	s->ahead = request == ZKLOCK_TAKE_MARK && find_buffer(taken);
	if (s->ahead)
		zklock_take_ahead(&taken->take);
}

/* Are there items for this queue that are committed and not moved yet, among the first
 * "puts" commits?  The caller holds the lock. */
static bool
is_being_moved(const char *queue, uint64 puts)
{
	for (int i = 0; i < ZKLOCK_QUEUE_PUTS; i++)
	{
		const ZkQueuePut *staged = &zklock_queue_shared->staged[i];

		if (staged->put.state == ZKLOCK_PUT_COMMITTED && staged->order <= puts &&
			!staged->put.stuck && strcmp(staged->queue, queue) == 0)
			return true;
	}
	return false;
}

/* Is an item of this queue being given back since before a take began, without a reply
 * yet?  The caller holds the lock. */
static bool
is_being_returned(const char *queue, uint64 order)
{
	for (int i = 0; i < zklock_queue_shared->takes_high; i++)
	{
		const ZkQueueTake *taken = &zklock_queue_shared->taken[i];

		if (taken->take.leaving && taken->take.state != ZKLOCK_TAKE_FREE &&
			taken->take.state != ZKLOCK_TAKE_DONE && taken->order < order &&
			!taken->pause && strcmp(taken->queue, queue) == 0)
			return true;
	}
	return false;
}

/* Choose an item for a take, or add the requests that are needed to find one.  The
 * caller holds the lock. */
static void
choose(Sendings *sendings, View *view, ZkQueueTake *taken)
{
	int which[ZKLOCK_ITEMS_WINDOW];
	int n;

	view->used = zklock_clock();
	view->waits |= taken->waits;
	view->items.coming = is_being_moved(view->name, PG_UINT64_MAX);
	/* whoever has rolled back finds the item in its place */
	if (is_being_returned(taken->queue, taken->order))
		return; /* the reply makes us look again */
	while (!view->passed)
	{
		if (view->missing && taken->order <= view->fresh && !taken->none)
		{
			taken->none = true;
			zklock_queue_take_wake(taken);
		}
		if (view->missing && taken->none && !taken->waits)
			return;
		switch (zklock_items_choose(&view->items, which, &n))
		{
			case ZKLOCK_CHOOSE_TAKE:
				strlcpy(taken->item, view->items.item[which[0]].name, sizeof(taken->item));
				taken->take.state = ZKLOCK_TAKE_TAKING;
				add_of_take(sendings, taken);
				return;
			case ZKLOCK_CHOOSE_LOOK:
				for (int i = 0; i < n; i++)
					add_of_view(sendings, TAG_LOOK, view, which[i]);
				view->passed = true;
				break;
			case ZKLOCK_CHOOSE_LIST:
				/* what is being moved it need not show: then it counts for nobody */
				if (!is_being_moved(view->name, PG_UINT64_MAX))
					view->asked = zklock_queue_shared->last_order;
				add_of_view(sendings, TAG_LIST, view, -1);
				view->passed = true;
				break;
			case ZKLOCK_CHOOSE_LIST_HELD:
				add_of_view(sendings, TAG_HELD, view, -1);
				view->passed = true;
				break;
			case ZKLOCK_CHOOSE_WAIT:
				view->passed = true;
				break;
			case ZKLOCK_CHOOSE_NONE:
				if (taken->order <= view->fresh)
				{
					if (!taken->none)
						zklock_queue_take_wake(taken);
					taken->none = true;
					return;
				}
				if (is_being_moved(taken->queue, taken->puts))
					return; /* who has moved it makes us look again */
				zklock_items_changed(&view->items, true);
				zklock_items_changed(&view->items, false);
				break;
		}
	}
}

static int
compare_orders(const void *a, const void *b)
{
	uint64 x = (*(ZkQueueTake *const *) a)->order;
	uint64 y = (*(ZkQueueTake *const *) b)->order;

	return x < y ? -1 : x > y;
}

/* The znodes of a take. */
typedef struct Paths
{
	char *item;
	char *held; /* the mark below it */
	char *mark; /* the one in the queue's held/ */
} Paths;

static Paths
paths_of(const Sending *s)
{
	char name[ZKLOCK_MARK_NAME];
	Paths paths;

	zklock_item_mark(name, s->item, zklock_queue_shared->life, s->generation);
	paths.item =
		zklock_path_name(ZKLOCK_KIND_QUEUE, s->queue, psprintf("items/%s", s->item));
	paths.held = psprintf("%s/held", paths.item);
	paths.mark = zklock_path_name(ZKLOCK_KIND_QUEUE, s->queue, psprintf("held/%s", name));
	return paths;
}

/*
 * The ops that create the two marks of a take, or delete them, perhaps with the item, or
 * so that a node stays below the item.  The mark in the queue's held/ says whose they
 * are.  It comes first in a deletion, where it is expected to exist.  Its data are for
 * zk_queue_items.  Returns how many ops there are, 3 at most.
 */
static int
add_ops(ZkOp *ops, const Sending *s, int *size)
{
	Paths paths = paths_of(s);
	const char *name = strrchr(paths.mark, '/') + 1;
	int nops = s->what == ZKLOCK_TAKE_FINISH || s->what == ZKLOCK_TAKE_KEEP ? 3 : 2;

	if (s->what == ZKLOCK_TAKE_MARK)
	{
		StringInfoData whose;

		initStringInfo(&whose);
		zklock_describe_server(&whose, s->pid);
		ops[0] = (ZkOp){.type = ZKLOCK_OP_CREATE,
						.path = paths.held,
						.data = name,
						.datalen = (int) strlen(name),
						.mode = ZKLOCK_CREATE_EPHEMERAL};
		ops[1] = (ZkOp){.type = ZKLOCK_OP_CREATE,
						.path = paths.mark,
						.data = whose.data,
						.datalen = whose.len,
						.mode = ZKLOCK_CREATE_EPHEMERAL};
	}
	else
	{
		ops[0] = (ZkOp){.type = ZKLOCK_OP_DELETE, .path = paths.mark, .version = -1};
		ops[1] = (ZkOp){.type = ZKLOCK_OP_DELETE, .path = paths.held, .version = -1};
	}
	if (s->what == ZKLOCK_TAKE_KEEP)
		ops[2] = (ZkOp){.type = ZKLOCK_OP_CREATE,
						.path = paths.held,
						.data = "",
						.mode = ZKLOCK_CREATE_PERSISTENT};
	else if (s->what == ZKLOCK_TAKE_FINISH)
		ops[2] = (ZkOp){.type = ZKLOCK_OP_DELETE, .path = paths.item, .version = -1};
	for (int i = 0; i < nops; i++)
		*size += (int) strlen(ops[i].path) + ops[i].datalen;
	return nops;
}

/*
 * Move an item that was taken too often to the queue of failed items.  It keeps its id,
 * and its attempts begin at 0.  The payload is in the take's buffer, which stays while
 * this request is open.
 */
static void
send_fail(const ZkRequestTag *tag, const Sending *s, const Paths *paths)
{
	const ZkQueueTake *taken = &zklock_queue_shared->taken[s->entry];
	char failed[ZKLOCK_NAME_MAX + 1];
	char prefix[ZKLOCK_ITEM_NAME];
	ZkItemName name;
	ZkOp ops[4] = {
		{.type = ZKLOCK_OP_DELETE, .path = paths->mark, .version = -1},
		{.type = ZKLOCK_OP_DELETE, .path = paths->held, .version = -1},
		{.type = ZKLOCK_OP_DELETE, .path = paths->item, .version = -1},
		{.type = ZKLOCK_OP_CREATE, .mode = ZKLOCK_CREATE_PERSISTENT_SEQUENTIAL},
	};

	(void) zklock_item_parse(s->item, &name); /* it is one */
	zklock_item_prefix(prefix, name.id);
	zklock_queue_of_failed(failed, sizeof(failed), s->queue);
	ops[3].path = zklock_path_name(ZKLOCK_KIND_QUEUE, failed, psprintf("items/%s", prefix));
	ops[3].data = zklock_queue_shared->buffer[taken->buffer].data;
	ops[3].datalen = taken->len;
	zklock_session_sent(
		zklock_client_multi(zklock_session_client(), ops, lengthof(ops), tag));
}

static void
send_one(const Sending *s)
{
	ZkClient *client = zklock_session_client();
	ZkRequestTag tag = {
		.kind = own_tag,
		.entry = s->entry,
		.generation = s->generation,
		.uuid = s->what,
		.hash = (uint64) s->sequence,
	};
	Paths paths = paths_of(s);
	ZkOp ops[3];
	int size = 0;
	int nops;
	char *path;

	Assert(!LWLockHeldByMe(zklock_queue_shared->box.lock));
	if (client == NULL)
		return; /* all that is open is about to be taken for lost */
	switch (s->what)
	{
		case TAG_LIST:
		case TAG_HELD:
			path = zklock_path_name(ZKLOCK_KIND_QUEUE, s->queue,
									s->what == TAG_LIST ? "items" : "held");
			if (s->what == TAG_LIST)
				(void) zklock_client_sync(client, zklock_path_directory(ZKLOCK_KIND_QUEUE),
										  &zklock_no_tag);
			tag.path = zklock_watch_count(path, true);
			zklock_session_sent(zklock_client_list(client, path, true, &tag));
			break;
		case TAG_LOOK:
			zklock_session_sent(zklock_client_list(client, paths.item, false, &tag));
			break;
		case ZKLOCK_TAKE_MARK:
		case ZKLOCK_TAKE_FINISH:
		case ZKLOCK_TAKE_GIVE:
		case ZKLOCK_TAKE_KEEP:
			nops = add_ops(ops, s, &size);
			zklock_session_sent(zklock_client_multi(client, ops, nops, &tag));
			break;
		case ZKLOCK_TAKE_FAIL:
			send_fail(&tag, s, &paths);
			break;
		case ZKLOCK_TAKE_BAR:
			zklock_session_sent(zklock_client_create(client, paths.held, "", 0,
													 ZKLOCK_CREATE_PERSISTENT, &tag));
			break;
		case ZKLOCK_TAKE_WHOSE:
		case ZKLOCK_TAKE_SEE:
			zklock_session_sent(zklock_client_get(client, paths.mark, false, &tag));
			break;
		case ZKLOCK_TAKE_SEE_IT:
			zklock_session_sent(zklock_client_get(client, paths.held, false, &tag));
			break;
		case ZKLOCK_TAKE_CLEAR:
			zklock_session_sent(zklock_client_delete(client, paths.mark, &tag));
			break;
		case ZKLOCK_TAKE_REPAIR:
			zklock_session_sent(zklock_client_create(client, paths.mark, "", 0,
													 ZKLOCK_CREATE_EPHEMERAL, &tag));
			break;
		case ZKLOCK_TAKE_READ_IT:
			zklock_session_sent(zklock_client_get(client, paths.item, false, &tag));
			break;
		case ZKLOCK_TAKE_DELETE:
			zklock_session_sent(zklock_client_delete(client, paths.item, &tag));
			break;
	}
}

/* Ask for an item behind the marks that are being made. */
static void
send_ahead(const Sending *s)
{
	Sending read = *s;

	read.what = ZKLOCK_TAKE_READ_IT;
	if (s->ahead)
		send_one(&read);
}

/*
 * Send the request of the first of these, together with those of the next that ask for
 * the same in the same queue.  Returns how many were sent.
 */
static int
send_some(const Sending *s, int n)
{
	ZkOp ops[3 * JOINT_TAKES];
	MemoryContext save;
	Joint *joint;
	ZkRequestTag tag;
	int nops = 0;
	int size = 0;
	int i = 0;

	for (; i < Min(n, JOINT_TAKES) && size < JOINT_SIZE && s[i].what == s->what &&
		 strcmp(s[i].queue, s->queue) == 0;
		 i++)
	{
		if (s->what >= TAG_LIST || zklock_take_joint_ops((ZkTakeRequest) s->what) == 0)
			break;
		nops += add_ops(&ops[nops], &s[i], &size);
	}
	if (i <= 1 || zklock_session_client() == NULL)
	{
		send_one(s);
		send_ahead(s);
		return 1;
	}
	joint = MemoryContextAlloc(TopMemoryContext,
							   offsetof(Joint, take) + sizeof(joint->take[0]) * (Size) i);
	joint->id = ++last_joint;
	joint->what = (ZkTakeRequest) s->what;
	joint->n = i;
	for (int j = 0; j < i; j++)
	{
		joint->take[j].entry = s[j].entry;
		joint->take[j].serial = s[j].generation;
	}
	save = MemoryContextSwitchTo(TopMemoryContext);
	joints = lappend(joints, joint);
	MemoryContextSwitchTo(save);
	tag = (ZkRequestTag){.kind = own_tag, .entry = joint->id, .uuid = TAG_JOINT};
	zklock_session_sent(zklock_client_multi(zklock_session_client(), ops, nops, &tag));
	for (int j = 0; j < i; j++)
		send_ahead(&s[j]);
	return i;
}

/* Log that transactions have lost "n" items. */
static void
report_lost(int n, const char *why)
{
	ereport(LOG,
			(errmsg_plural("%d queue item was lost while a transaction had it",
						   "%d queue items were lost while transactions had them",
						   (unsigned long) n, n),
			 errdetail("%s", why)));
}

void
zklock_queue_takes_work(bool wanted)
{
	Sendings sendings = {0};
	ZkQueueTake **wishes;
	int nwishes = 0;
	ListCell *cell;

	if (torn > 0)
		report_lost(torn,
					"The marks that say who has them were deleted, or ZooKeeper was restored without them.");
	torn = 0;
	due |= wanted;
	if (!due || zklock_session_client() == NULL || zklock_session_busy())
		return;
	due = false;
	foreach (cell, views)
	{
		View *view = lfirst(cell);

		view->passed = view->stuck;
		view->waits = false;
	}
	wishes = palloc(sizeof(ZkQueueTake *) * (Size) zklock_queue_shared->ntakes);
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < zklock_queue_shared->takes_high; i++)
	{
		ZkQueueTake *taken = &zklock_queue_shared->taken[i];

		if (taken->take.state == ZKLOCK_TAKE_WANTED && !taken->refused)
			wishes[nwishes++] = taken;
		else if (sendings.n < MOST_SENDINGS)
			add_of_take(&sendings, taken);
		else
			due = true; /* when these have been answered */
	}
	qsort(wishes, (size_t) nwishes, sizeof(ZkQueueTake *), compare_orders);
	for (int i = 0; i < nwishes; i++)
		choose(&sendings, find_view(wishes[i]->queue, true), wishes[i]);
	LWLockRelease(zklock_queue_shared->box.lock);

	for (int i = 0; i < sendings.n;)
		i += send_some(&sendings.sending[i], sendings.n - i);
}

/* ------------------------------------------------------------------------
 * Replies
 * ------------------------------------------------------------------------
 */

/* Copy the payload for the backend.  False: zklock has not put it.  The caller holds
 * the lock. */
static bool
deliver(ZkQueueTake *taken, const ZkMessage *message)
{
	if (message->datalen > ZKLOCK_ITEM_MAX ||
		!pg_verify_mbstr(PG_UTF8, message->data, message->datalen, true))
		return false;
	memcpy(zklock_queue_shared->buffer[taken->buffer].data, message->data,
		   (size_t) message->datalen);
	taken->len = message->datalen;
	taken->take.attempt = (int) message->ncreated;
	taken->since = message->ctime;
	return true;
}

/* A mark exists: is it the mark of this take? */
static bool
is_ours(const ZkQueueTake *taken, ZkTakeRequest request, const ZkMessage *message)
{
	char mark[ZKLOCK_MARK_NAME];

	if (message->ephemeral_owner != zklock_shared->session.id.id)
		return false;
	/* no other take has this name */
	if (request == ZKLOCK_TAKE_SEE)
		return true;
	zklock_item_mark(mark, taken->item, zklock_queue_shared->life, taken->serial);
	return message->datalen == (int) strlen(mark) &&
		memcmp(message->data, mark, strlen(mark)) == 0;
}

/* A look at a mark has a result: wake a backend that waits for it at its commit. */
static void
note_look(ZkQueueTake *taken, ZkReply rc, int refusal)
{
	taken->refused = rc == ZKLOCK_REPLY_REFUSED;
	taken->rc = refusal;
	if (!taken->take.unseen || taken->refused)
		ConditionVariableBroadcast(&zklock_shared->write_cv);
}

/* Tell the take's backend that the request was refused. */
static void
refuse_take(ZkQueueTake *taken, ZkTakeRequest request, int rc)
{
	taken->refused = true;
	taken->failing = request == ZKLOCK_TAKE_FAIL;
	taken->rc = rc;
}

/* Handle the reply to a request of a take.  The caller holds the lock. */
static ZkTakeNews
take_reply(ZkQueueTake *taken, ZkTakeRequest request, const ZkMessage *message)
{
	View *view = find_view(taken->queue, false);
	ZkReply rc = zklock_reply(message->rc);
	bool done = taken->take.state == ZKLOCK_TAKE_DONE;
	ZkTakeNews news;

	Assert(LWLockHeldByMeInMode(zklock_queue_shared->box.lock, LW_EXCLUSIVE));
	if (request == ZKLOCK_TAKE_READ_IT && rc == ZKLOCK_REPLY_OK && !taken->take.leaving &&
		!deliver(taken, message))
		rc = ZKLOCK_REPLY_EXISTS;
	if ((request == ZKLOCK_TAKE_SEE || request == ZKLOCK_TAKE_SEE_IT) &&
		rc == ZKLOCK_REPLY_OK && !is_ours(taken, request, message))
		rc = ZKLOCK_REPLY_EXISTS;
	news = zklock_take_reply(&taken->take, request, rc, message->failed_op);
	switch (news)
	{
		case ZKLOCK_TAKE_NO_NEWS:
			/* what ends a take is repeated until it is answered, but not at once */
			taken->pause = rc == ZKLOCK_REPLY_REFUSED;
			break;
		case ZKLOCK_TAKE_MISSED:
		case ZKLOCK_TAKE_VANISHED:
			if (view != NULL)
				zklock_items_missed(&view->items, taken->item,
									news == ZKLOCK_TAKE_VANISHED);
			break;
		case ZKLOCK_TAKE_FAILED:
			if (view != NULL)
				zklock_items_left(&view->items, taken->item, true);
			break;
		case ZKLOCK_TAKE_ENDED:
		case ZKLOCK_TAKE_GIVEN:
		case ZKLOCK_TAKE_BARRED:
			if (view != NULL)
				zklock_items_left(&view->items, taken->item, news == ZKLOCK_TAKE_ENDED);
			if (!done)
				zklock_queue_count(ZKLOCK_QUEUE_RETURNED, 1);
			break;
		case ZKLOCK_TAKE_UNFIT:
		case ZKLOCK_TAKE_STUCK:
			if (view != NULL)
				zklock_items_set_aside(&view->items, taken->item);
			break;
		case ZKLOCK_TAKE_LOST:
			if (taken->loss == ZKLOCK_ITEM_KEPT)
				taken->loss = ZKLOCK_ITEM_TORN;
			torn++;
			break;
		case ZKLOCK_TAKE_NO_DIRECTORY:
			/* where failed items go is made at once, or not at all */
			if (request == ZKLOCK_TAKE_FAIL && taken->made == request &&
				!taken->take.leaving)
				refuse_take(taken, request, message->rc);
			else
				taken->pause = taken->made == request;
			taken->made = request;
			break;
		case ZKLOCK_TAKE_REFUSED:
			refuse_take(taken, request, message->rc);
			if (view != NULL)
				zklock_items_left(&view->items, taken->item, false);
			break;
	}
	if (taken->take.state == ZKLOCK_TAKE_HELD)
		note_look(taken, rc, message->rc);
	if (taken->take.state != ZKLOCK_TAKE_READING &&
		taken->take.state != ZKLOCK_TAKE_WORN && taken->take.state != ZKLOCK_TAKE_READ)
		zklock_queue_take_free_buffer(taken);
	if (taken->take.state == ZKLOCK_TAKE_READ || taken->refused)
		zklock_queue_take_wake(taken);
	if (taken->take.state == ZKLOCK_TAKE_FREE)
		zklock_queue_take_free(taken);
	return news;
}

/* Another program has brought the item into this state. */
static void
report_set_aside(const char *queue, const char *item, ZkTakeNews news)
{
	char shown[ZKLOCK_ENCODED_MAX + 1];
	const char *why = news == ZKLOCK_TAKE_BARRED
		? "It is done, and cannot be deleted: there is a znode below it."
		: news == ZKLOCK_TAKE_STUCK
		? "It was taken too often, and cannot be moved: there is a znode below it."
		: "It was not put by zklock.";

	ereport(LOG,
			(errmsg("item \"%s\" of queue \"%s\" is set aside", item,
					zklock_log_name(queue, shown)),
			 errdetail("%s", why),
			 news == ZKLOCK_TAKE_STUCK
				 ? errhint("Delete what is below znode \"items/%s\" in the queue's directory, and kill the worker, \"worker_pid\" in zk_session: the next take with \"attempts\" then moves the item.",
						   item)
				 : errhint("Delete znode \"items/%s\" in the queue's directory, with what is below it.",
						   item)));
}

/* "most": how often the item could be taken. */
static void
report_failed(const char *queue, const char *item, int most)
{
	char shown[ZKLOCK_ENCODED_MAX + 1];

	ereport(LOG,
			(errmsg("item %.*s of queue \"%s\" was moved to the queue of failed items",
					ZKLOCK_UUID_LEN, item, zklock_log_name(queue, shown)),
			 errdetail_plural("It was taken %d time without being done.",
							  "It was taken %d times without being done.",
							  (unsigned long) most, most)));
}

/* Does the reply to a take say that a directory is missing?  Returns its queue, or
 * NULL. */
static char *
find_missing(const ZkQueueTake *taken, const ZkMessage *message, char *buf)
{
	if (message->rc != ZKLOCK_ZNONODE || taken->take.state == ZKLOCK_TAKE_FREE)
		return NULL;
	switch (message->tag.uuid)
	{
		case ZKLOCK_TAKE_MARK:
			if (message->failed_op != 1)
				return NULL;
			break;
		case ZKLOCK_TAKE_REPAIR:
			break;
		case ZKLOCK_TAKE_FAIL:
			/* a refusal that is told is told once: what is made then is for the next */
			if (message->failed_op != 3 || taken->refused)
				return NULL;
			zklock_queue_of_failed(buf, ZKLOCK_NAME_MAX + 1, taken->queue);
			return buf;
		default:
			return NULL;
	}
	strlcpy(buf, taken->queue, ZKLOCK_NAME_MAX + 1);
	return buf;
}

/* Handle the reply to a request of a take, and report its news. */
static void
take_message(const ZkMessage *message)
{
	ZkQueueTake *taken = &zklock_queue_shared->taken[message->tag.entry];
	ZkTakeNews news = ZKLOCK_TAKE_NO_NEWS;
	char buf[ZKLOCK_NAME_MAX + 1];
	char *missing = NULL;
	bool refused = false;
	ZkQueueTake was;

	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	if (taken->serial == message->tag.generation &&
		zklock_take_expects(&taken->take, (ZkTakeRequest) message->tag.uuid))
	{
		news = take_reply(taken, (ZkTakeRequest) message->tag.uuid, message);
		missing = find_missing(taken, message, buf);
		refused = zklock_reply(message->rc) == ZKLOCK_REPLY_REFUSED || taken->pause;
		/* a take that is over has its names until the lock is released */
		was = *taken;
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	due = true;
	if (missing != NULL)
		zklock_queue_takes_make_queue(missing);
	if (news == ZKLOCK_TAKE_BARRED || news == ZKLOCK_TAKE_UNFIT || news == ZKLOCK_TAKE_STUCK)
		report_set_aside(was.queue, was.item, news);
	if (news == ZKLOCK_TAKE_FAILED)
		report_failed(was.queue, was.item, was.take.most);
	if (refused)
		zklock_trouble_refused(message);
}

/* Nothing was done of what this take has asked for together with others. */
static void
undo(uint32 entry, uint32 serial, bool behind)
{
	ZkQueueTake *taken = &zklock_queue_shared->taken[entry];

	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	if (taken->serial == serial && taken->take.open &&
		zklock_take_undone(&taken->take, behind) == ZKLOCK_TAKE_MISSED)
	{
		View *view = find_view(taken->queue, false);

		if (view != NULL)
			zklock_items_missed(&view->items, taken->item, false);
		zklock_queue_take_free_buffer(taken);
		if (taken->take.state == ZKLOCK_TAKE_FREE)
			zklock_queue_take_free(taken);
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	due = true;
}

static void
joint_message(const ZkMessage *message)
{
	Joint *joint = NULL;
	ListCell *cell;

	foreach (cell, joints)
	{
		if (((Joint *) lfirst(cell))->id == message->tag.entry)
			joint = lfirst(cell);
	}
	if (joint == NULL)
		return; /* of a connection that is over */
	joints = list_delete_ptr(joints, joint);
	for (int i = 0; i < joint->n; i++)
	{
		ZkMessage part = *message;

		part.tag.entry = joint->take[i].entry;
		part.tag.generation = joint->take[i].serial;
		part.tag.uuid = joint->what;
		part.failed_op = zklock_take_joint_failed(joint->what, zklock_reply(message->rc),
												  message->failed_op, i);
		if (part.failed_op <= ZKLOCK_TAKE_UNDONE)
			undo(part.tag.entry, part.tag.generation, part.failed_op == ZKLOCK_TAKE_BEHIND);
		else
			take_message(&part);
	}
	pfree(joint);
}

static void
on_message(const ZkMessage *message)
{
	if (message->tag.path != 0 && message->rc != ZKLOCK_ZOK)
		zklock_watch_gone(message->tag.path);
	if (message->tag.uuid >= TAG_MAKE_QUEUE)
		made_message(message);
	else if (message->tag.uuid == TAG_JOINT)
		joint_message(message);
	else if (message->tag.uuid >= TAG_LIST)
		view_message(message);
	else
		take_message(message);
}

static bool
on_watch(const ZkWatch *watch)
{
	View *view;

	if (watch->kind != ZKLOCK_KIND_QUEUE)
		return false;
	if (watch->children && watch->child != NULL &&
		(view = find_view(watch->name, false)) != NULL)
	{
		zklock_items_changed(&view->items, strcmp(watch->child, "held") == 0);
		due = true;
	}
	return true;
}

/* Adapt a take that is in use to the new connection or session. */
static void
start_take_again(ZkQueueTake *taken, ZkLockEventType type, int *lost)
{
	View *view;

	taken->pause = false;
	/* of a look on another connection */
	if (taken->take.state == ZKLOCK_TAKE_HELD)
		taken->refused = false;
	if (type != ZKLOCK_EV_SESSION_LOST)
	{
		zklock_take_resumed(&taken->take);
		if (type != ZKLOCK_EV_DISCONNECTED)
			zklock_take_connected(&taken->take);
	}
	else
	{
		if (zklock_take_session_lost(&taken->take))
		{
			if (taken->loss == ZKLOCK_ITEM_KEPT)
				taken->loss = ZKLOCK_ITEM_SESSION_ENDED;
			(*lost)++;
		}
		view = find_view(taken->queue, false);
		if (view != NULL && taken->take.state != ZKLOCK_TAKE_DONE)
			zklock_items_left(&view->items, taken->item, false);
	}
	if (taken->take.state != ZKLOCK_TAKE_READ)
		zklock_queue_take_free_buffer(taken);
	if (taken->take.state == ZKLOCK_TAKE_FREE)
		zklock_queue_take_free(taken);
}

/* The connection is a new one, and perhaps the session is, too. */
static void
start_again(ZkLockEventType type)
{
	ListCell *cell;
	int lost = 0;

	connection++;
	list_free_deep(joints);
	joints = NIL;
	foreach (cell, views)
	{
		View *view = lfirst(cell);

		zklock_items_forget(&view->items);
		view->stuck = false;
	}
	LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
	for (int i = 0; i < zklock_queue_shared->takes_high; i++)
	{
		if (zklock_queue_shared->taken[i].take.state != ZKLOCK_TAKE_FREE)
			start_take_again(&zklock_queue_shared->taken[i], type, &lost);
	}
	LWLockRelease(zklock_queue_shared->box.lock);
	if (lost > 0)
		report_lost(lost, "The ZooKeeper session ended.");
}

static void
on_event(ZkLockEventType type)
{
	ListCell *cell;

	switch (type)
	{
		case ZKLOCK_EV_CONNECTED:
		case ZKLOCK_EV_RESUMED:
		case ZKLOCK_EV_DISCONNECTED:
		case ZKLOCK_EV_SESSION_LOST:
			start_again(type);
			break;
		case ZKLOCK_EV_TICK:
			forget_views();
			foreach (cell, views)
			{
				View *view = lfirst(cell);

				view->stuck = view->made = false;
			}
			LWLockAcquire(zklock_queue_shared->box.lock, LW_EXCLUSIVE);
			for (int i = 0; i < zklock_queue_shared->takes_high; i++)
				zklock_queue_shared->taken[i].pause = false;
			LWLockRelease(zklock_queue_shared->box.lock);
			break;
		default:
			return;
	}
	due = true;
}

static bool
ask(ZkAgentAsk what)
{
	switch (what)
	{
		case ZKLOCK_AGENT_WANTS:
			return zklock_queue_shared->takes_used > 0;
		case ZKLOCK_AGENT_HOLDS:
			return zklock_queue_has_items();
		case ZKLOCK_AGENT_TICKS:
			/* what is watched in vain is no longer after some ticks */
			return views != NIL || zklock_queue_busy();
		case ZKLOCK_AGENT_BUSY:
			return zklock_queue_busy();
		default:
			return false;
	}
}

const ZkAgent zklock_queue_takes_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.watch = on_watch,
	.ask = ask,
};
