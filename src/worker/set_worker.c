/*-------------------------------------------------------------------------
 *
 * set_worker.c
 *	  The worker's part in sets, which acquire several locks in one step: handles the
 *	  sets that backends have posted.
 *
 * When a backend posts a set, the worker copies what its call says.  So the backend may
 * leave at any time.  If an entry of the set is used for another name after that, it
 * has another generation, and is no part of the set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/ilist.h"
#include "utils/memutils.h"

#include "ensemble.h"
#include "member.h"
#include "set_rules.h"
#include "set_shared.h"
#include "set_worker.h"
#include "tag.h"

/* A set that a backend waits for. */
typedef struct Set
{
	dlist_node node;
	int call;
	uint64 number;
	ZkLockMode mode;
	bool touched; /* something of it has changed */
	int n;
	ZkSetMember member[FLEXIBLE_ARRAY_MEMBER];
} Set;

/* A transaction that has no reply yet. */
typedef struct Flight
{
	dlist_node node;
	uint64 serial;
	int first; /* op of the first member: 1 if our own node is written, too */
	int next;  /* member that is to hear of the reply */
	int n;
	ZkSetMember member[FLEXIBLE_ARRAY_MEMBER];
} Flight;

static dlist_head sets = DLIST_STATIC_INIT(sets);
static dlist_head flights = DLIST_STATIC_INIT(flights);
static uint64 last_serial = 0;
static bool touched = false;   /* any of them */
static bool read_once = false; /* what a predecessor knew */

/* This server's own node is missing, so the ensemble refuses a transaction that would
 * write it. */
static bool without_member = false;

/* The operations of the next transaction. */
static int nops = 0;
static int ops_room = 0;
static ZkOp *ops = NULL;
static ZkSetMember *asked = NULL;

/* ------------------------------------------------------------------------
 * Sets
 * ------------------------------------------------------------------------
 */

static Set *
find_set(int call)
{
	dlist_iter iter;

	dlist_foreach (iter, &sets)
	{
		Set *set = dlist_container(Set, node, iter.cur);

		if (set->call == call)
			return set;
	}
	return NULL;
}

static void
forget_set(Set *set)
{
	dlist_delete(&set->node);
	pfree(set);
}

/* Add a set.  The calls are locked, so the set's proclocks stay, and so do their
 * entries. */
static void
add_set(int number, const ZkSetCall *call)
{
	int n = 0;
	Set *set;

	for (int32 i = call->first; i >= 0; i = zklock_proclock(i)->set_next)
		n++;
	set = MemoryContextAlloc(TopMemoryContext,
							 offsetof(Set, member) + sizeof(ZkSetMember) * (Size) n);
	set->call = number;
	set->number = call->number;
	set->mode = (ZkLockMode) call->mode;
	set->touched = true;
	set->n = 0;
	for (int32 i = call->first; i >= 0; i = zklock_proclock(i)->set_next)
	{
		int32 entry = zklock_proclock(i)->entry;

		set->member[set->n++] = (ZkSetMember){
			.entry = entry,
			.generation = zklock_entry(entry)->generation,
		};
	}
	dlist_push_tail(&sets, &set->node);
}

/* Update the list of sets from the calls of backends. */
static void
read_calls(void)
{
	int n;
	const ZkSetCall *calls = zklock_sets_lock(&n);

	for (int i = 0; i < n; i++)
	{
		Set *set = find_set(i);

		if (set != NULL && set->number == calls[i].number)
		{
			set->touched = true; /* it may doubt what it was told */
			continue;
		}
		if (set != NULL)
			forget_set(set);
		if (calls[i].number != 0)
			add_set(i, &calls[i]);
	}
	zklock_sets_unlock();
	touched = true;
}

void
zklock_set_worker_touch(uint64 number, bool news)
{
	dlist_iter iter;

	dlist_foreach (iter, &sets)
	{
		Set *set = dlist_container(Set, node, iter.cur);

		if (set->number != number)
			continue;
		set->touched = touched = true;
		if (news)
			zklock_set_wake(set->call);
		return;
	}
}

static bool
is_same(const ZkSetMember *member)
{
	const ZkLockEntry *entry = zklock_entry(member->entry);

	return entry->in_use && entry->generation == member->generation;
}

/* Read without locks: only the worker changes the queues.  The grants are all of one
 * transaction, and have one token. */
static ZkSetVerdict
judge(const Set *set, int64 *token)
{
	static const ZkLockQueue none; /* of an entry that is another's */
	ZkSetCount count = {0};

	*token = 0;
	for (int i = 0; i < set->n; i++)
	{
		const ZkLockQueue *queue =
			is_same(&set->member[i]) ? &zklock_entry(set->member[i].entry)->queue : &none;
		const ZkContender *grant = zklock_lock_queue_grant(queue, set->mode);

		zklock_set_count(&count, queue, set->mode, set->number);
		if (grant != NULL)
			*token = grant->token;
	}
	return zklock_set_judge(&count);
}

bool
zklock_set_worker_next(ZkSetWork *work)
{
	dlist_iter iter;

	if (zklock_sets_changed() || !read_once)
		read_calls();
	read_once = true;
	if (!touched)
		return false;
	dlist_foreach (iter, &sets)
	{
		Set *set = dlist_container(Set, node, iter.cur);
		int64 token;

		if (!set->touched)
			continue;
		set->touched = false;
		switch (judge(set, &token))
		{
			case ZKLOCK_SET_WAIT:
				break;
			case ZKLOCK_SET_GRANTED:
				zklock_set_grant(set->call, set->number, token);
				break;
			case ZKLOCK_SET_SEND:
				*work = (ZkSetWork){.mode = set->mode, .n = set->n, .member = set->member};
				return true;
		}
	}
	touched = false;
	return false;
}

/* ------------------------------------------------------------------------
 * Transactions
 * ------------------------------------------------------------------------
 */

void
zklock_set_worker_add(const ZkSetMember *what, char *path, char *data, int len)
{
	if (nops == ops_room)
	{
		ops_room = Max(64, 2 * ops_room);
		ops = ops == NULL
			? MemoryContextAlloc(TopMemoryContext, sizeof(ZkOp) * (Size) ops_room)
			: repalloc(ops, sizeof(ZkOp) * (Size) ops_room);
		asked = asked == NULL
			? MemoryContextAlloc(TopMemoryContext, sizeof(ZkSetMember) * (Size) ops_room)
			: repalloc(asked, sizeof(ZkSetMember) * (Size) ops_room);
	}
	asked[nops] = *what;
	ops[nops++] = (ZkOp){
		.type = what->creates ? ZKLOCK_OP_CREATE : ZKLOCK_OP_DELETE,
		.path = path,
		.data = data,
		.datalen = len,
		.mode = ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL,
		.version = -1,
	};
}

/*
 * The reply to a create in a transaction does not contain the transaction's number,
 * which is the token.  The reply to a write does, so the transaction writes this
 * server's own node, too.
 */
int
zklock_set_worker_send(ZkClient *client)
{
	int first = without_member ? 0 : 1;
	Flight *flight =
		MemoryContextAlloc(TopMemoryContext,
						   offsetof(Flight, member) + sizeof(ZkSetMember) * (Size) nops);
	ZkOp *all = palloc(sizeof(ZkOp) * (Size) (nops + 1));
	ZkRequestTag tag = {.kind = ZKLOCK_TAG_SET, .uuid = ++last_serial};
	int rc;

	Assert(zklock_unlocked());
	flight->serial = last_serial;
	flight->first = first;
	flight->next = 0;
	flight->n = nops;
	memcpy(flight->member, asked, sizeof(ZkSetMember) * (Size) nops);
	if (first == 1)
		zklock_member_op(&all[0]);
	memcpy(all + first, ops, sizeof(ZkOp) * (Size) nops);
	rc = zklock_client_multi(client, all, nops + first, &tag);
	if (rc == ZKLOCK_ZOK)
		dlist_push_tail(&flights, &flight->node);
	else
		pfree(flight);
	if (first == 1)
		pfree(unconstify(char *, all[0].data));
	for (int i = 0; i < nops; i++)
	{
		pfree(unconstify(char *, ops[i].path));
		if (ops[i].data != NULL)
			pfree(unconstify(char *, ops[i].data));
	}
	pfree(all);
	nops = 0;
	return rc;
}

static Flight *
find_flight(uint64 serial)
{
	dlist_iter iter;

	dlist_foreach (iter, &flights)
	{
		Flight *flight = dlist_container(Flight, node, iter.cur);

		if (flight->serial == serial)
			return flight;
	}
	return NULL;
}

/* Take the sequence number of a contender that an op has created. */
static ZkLockRc
take_created(const ZkMessage *message, int op, ZkLockEvent *event)
{
	ZkLockChild child;

	if (op >= message->nchildren || !zklock_parse_child(message->children[op], &child))
		return ZKLOCK_RC_LOST; /* it is there, but where?  Settle it. */
	event->sequence = child.sequence;
	event->token = zklock_ensemble_token(message->zxid);
	return ZKLOCK_RC_OK;
}

bool
zklock_set_worker_reply(const ZkMessage *message, ZkSetMember *what, ZkLockEvent *event)
{
	Flight *flight = find_flight(message->tag.uuid);
	ZkLockRc rc = zklock_reply_rc(message->rc);
	int failed = message->failed_op;

	if (flight == NULL)
		return false; /* annulled */
	if (flight->next == flight->n)
	{
		dlist_delete(&flight->node);
		pfree(flight);
		return false;
	}
	if (failed >= 0 && failed < flight->first)
	{
		without_member = true;
		rc = ZKLOCK_RC_UNDONE;
	}
	failed = failed < 0 ? -1 : failed - flight->first;
	*what = flight->member[flight->next];
	*event = (ZkLockEvent){
		.type = what->creates ? ZKLOCK_EV_CREATED : ZKLOCK_EV_DELETED,
		.uuid = what->uuid,
		.sequence = -1,
		.rc = zklock_set_outcome(rc, failed, flight->next,
								 what->creates &&
									 (failed < 0 || flight->member[failed].creates)),
	};
	if (event->rc == ZKLOCK_RC_OK && what->creates)
		event->rc = take_created(message, flight->first + flight->next, event);
	flight->next++;
	return true;
}

void
zklock_set_worker_forget(void)
{
	while (!dlist_is_empty(&flights))
		pfree(dlist_container(Flight, node, dlist_pop_head_node(&flights)));
	without_member = false;
}
