/*-------------------------------------------------------------------------
 *
 * queue_views.c
 *	  Views of queues of work, as they are in ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "names.h"
#include "nodes.h"
#include "query.h"
#include "queue_text.h"
#include "queue_views.h"
#include "row.h"
#include "table.h"

/* Number of the oldest items of each queue that are shown: the ensemble is asked for
 * each. */
#define SHOWN 1000

/* Ask for all queues. */
static int
ask_queues(ZkNode **queues)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE};

	return zklock_query(&query, queues);
}

/* Get a queue's name.  False: it is not a queue of this database. */
static bool
get_queue(const ZkNode *node, char *name)
{
	return !node->name_cut && zklock_decode_name(node->name, name) &&
		zklock_in_namespace(name);
}

/* Find the time at which the oldest item was put.  False: there is none. */
static bool
find_oldest(const char *name, TimestampTz *since)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE,
					 .part = "items",
					 .contenders = true,
					 .limit = 1};
	ZkNode *nodes;

	strlcpy(query.name, name, sizeof(query.name));
	if (zklock_query(&query, &nodes) <= 0)
		return false;
	*since = zklock_time_of_ms(nodes[0].ctime);
	return true;
}

/* The directories below a queue's, and the columns that count their nodes. */
static const struct
{
	const char *part;
	const char *column;
} parts_of_queue[] = {{"items", "length"}, {"held", "held"}, {"puts", "putting"}};

void
zklock_show_queues(ReturnSetInfo *rsinfo)
{
	ZkNode *queues;
	int nqueues;

	nqueues = ask_queues(&queues);
	for (int i = 0; i < nqueues; i++)
	{
		ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE};
		int64 length[lengthof(parts_of_queue)] = {0};
		TimestampTz oldest;
		ZkNode *parts;
		int nparts;
		ZkRow row;

		if (!get_queue(&queues[i], query.name))
			continue;
		nparts = zklock_query(&query, &parts);
		for (int j = 0; j < nparts; j++)
			for (size_t k = 0; k < lengthof(parts_of_queue); k++)
				if (strcmp(parts[j].name, parts_of_queue[k].part) == 0)
					length[k] = parts[j].nchildren;
		row = zklock_row_of_set(rsinfo);
		zklock_row_name(&row, "queue", query.name);
		for (size_t k = 0; k < lengthof(parts_of_queue); k++)
			zklock_row_bigint(&row, parts_of_queue[k].column, length[k]);
		if (length[0] > 0 && find_oldest(query.name, &oldest))
			zklock_row_time(&row, "oldest", oldest);
		zklock_row_store(rsinfo, &row);
	}
}

/* The mark that a take has put into held/. */
typedef struct Mark
{
	const char *item;
	const ZkNode *node;
} Mark;

static int
compare_marks(const void *a, const void *b)
{
	return strcmp(((const Mark *) a)->item, ((const Mark *) b)->item);
}

/* Ask for the marks in a queue's held/, sorted by their items. */
static int
ask_marks(const char *queue, Mark **marks)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE, .part = "held"};
	ZkNode *nodes;
	int nnodes;
	int n = 0;

	strlcpy(query.name, queue, sizeof(query.name));
	nnodes = zklock_query(&query, &nodes);
	*marks = palloc_extended(sizeof(Mark) * (Size) Max(nnodes, 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < nnodes; i++)
	{
		uint64 life;
		uint32 take;

		if (zklock_item_of_mark(nodes[i].name, &life, &take))
			(*marks)[n++] = (Mark){nodes[i].name, &nodes[i]};
	}
	qsort(*marks, (size_t) n, sizeof(Mark), compare_marks);
	return n;
}

/* The state of an item that has a mark below it, and none in held/. */
static const char *
ask_state(const char *queue, const char *item)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE};
	ZkNode *nodes;
	int n;

	strlcpy(query.name, queue, sizeof(query.name));
	snprintf(query.part, sizeof(query.part), "items/%s", item);
	n = zklock_query(&query, &nodes);
	for (int i = 0; i < n; i++)
	{
		if (strcmp(nodes[i].name, "held") == 0)
			return nodes[i].ephemeral_owner == 0 ? "done" : "held";
	}
	return "ready"; /* its take has ended meanwhile */
}

static void
put_item(ReturnSetInfo *rsinfo, const char *queue, const ZkNode *node, const Mark *mark)
{
	ZkItemName name;
	ZkRow row;

	if (!zklock_item_parse(node->name, &name))
		return; /* zklock has not put it */
	row = zklock_row_of_set(rsinfo);
	zklock_row_name(&row, "queue", queue);
	zklock_row_set(&row, "id", UUIDOID, zklock_uuid_datum(name.id));
	zklock_row_int(&row, "attempts", (int32) node->ncreated);
	zklock_row_time(&row, "since", zklock_time_of_ms(node->ctime));
	if (mark != NULL)
	{
		zklock_row_text(&row, "state", "held");
		zklock_row_field(&row, "server", mark->node, "server");
		zklock_row_number(&row, "pid", mark->node, "pid");
	}
	else
		zklock_row_text(&row, "state",
						node->marked ? ask_state(queue, node->name) : "ready");
	zklock_row_store(rsinfo, &row);
}

/* Store the items of a queue.  The items are read first, so that the marks of items
 * that are taken meanwhile are seen. */
static void
put_items(ReturnSetInfo *rsinfo, const char *queue)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE,
					 .part = "items",
					 .mark = "held",
					 .contenders = true,
					 .limit = SHOWN};
	ZkNode *items;
	Mark *marks;
	int nitems;
	int nmarks;

	strlcpy(query.name, queue, sizeof(query.name));
	nitems = zklock_query(&query, &items);
	if (nitems <= 0)
		return;
	nmarks = ask_marks(queue, &marks);
	for (int i = 0; i < nitems; i++)
	{
		Mark key = {items[i].name, NULL};

		put_item(rsinfo, queue, &items[i],
				 bsearch(&key, marks, (size_t) nmarks, sizeof(Mark), compare_marks));
	}
}

void
zklock_show_queue_items(ReturnSetInfo *rsinfo)
{
	ZkNode *queues;
	int nqueues = ask_queues(&queues);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zklock queue",
												  ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < nqueues; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		MemoryContext save;

		if (!get_queue(&queues[i], name))
			continue;
		save = MemoryContextSwitchTo(context);
		put_items(rsinfo, name);
		MemoryContextSwitchTo(save);
		MemoryContextReset(context);
	}
}
