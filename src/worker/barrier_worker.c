/*-------------------------------------------------------------------------
 *
 * barrier_worker.c
 *	  The worker's part in barriers: turns events into requests.
 *
 * The worker keeps a barrier (as barrier_rules.h defines it) while sessions of this
 * server wait at it, and a little longer for sessions that come again.  A new worker
 * finds the parties in shared memory as its predecessor left them, and knows nothing
 * else.  The event RESUMED is for that case.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "barrier_shared.h"
#include "barrier_worker.h"
#include "names.h"
#include "path.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"
#include "watches.h"

/* Heartbeats for which the worker keeps a barrier at which nobody waits; it keeps none
 * of these while there are more than IDLE_MAX. */
#define IDLE_TICKS 8
#define IDLE_MAX   32

typedef struct Meeting
{
	dlist_node node;
	uint32 serial; /* never 0 */
	int idle;	   /* heartbeats without a party */
	bool needed;   /* a party has come, or is to leave */
	bool watched;  /* there may be a watch on the record */
	char name[ZKLOCK_NAME_MAX + 1];
	ZkBarrier barrier;
} Meeting;

static uint32 own_tag = ZKLOCK_TAG_NONE;				  /* set by worker.c */
static dlist_head meetings = DLIST_STATIC_INIT(meetings); /* used last: at the end */
static int nmeetings = 0;
static uint32 last_serial = 0;
static Meeting **meeting_of = NULL; /* by call; NULL: none yet */
static ZkParty **parties;			/* room for one of each call */
static bool crowded = false;		/* some wait for room for their watches */

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

static char *
node_path(const Meeting *m, const ZkPartyNode *node)
{
	char child[ZKLOCK_PARTY_NAME_MAX + 16];

	zklock_barrier_format_party(child, node->id, node->session, node->parties);
	snprintf(child + strlen(child), 16, "%010d", (int) node->sequence);
	return zklock_path_name(ZKLOCK_KIND_BARRIER, m->name, child);
}

/* Find the call of a party. */
static const ZkBarrierCall *
call_of(const ZkParty *party)
{
	return (const ZkBarrierCall *) ((const char *) party - offsetof(ZkBarrierCall, party));
}

static int
send_create(ZkClient *client, const Meeting *m, const ZkParty *party,
			const ZkRequestTag *tag)
{
	char child[ZKLOCK_PARTY_NAME_MAX];
	StringInfoData data;

	zklock_barrier_format_party(child, party->id, m->barrier.session, party->parties);
	zklock_describe_server(&data, call_of(party)->pid);
	return zklock_client_create(client,
								zklock_path_name(ZKLOCK_KIND_BARRIER, m->name, child),
								data.data, data.len, ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL,
								tag);
}

/* The record comes first: its watch fires before anybody sees that a member's node is
 * gone. */
static int
send_open(ZkClient *client, const Meeting *m, const ZkBarrierAction *action,
		  const ZkRequestTag *tag)
{
	ZkOp *ops = palloc0(sizeof(ZkOp) * ((Size) action->nnodes + 1));

	ops[0].type = ZKLOCK_OP_SET;
	ops[0].path = zklock_path_name(ZKLOCK_KIND_BARRIER, m->name, NULL);
	ops[0].data = action->data;
	ops[0].datalen = action->datalen;
	ops[0].version = action->version;
	for (int i = 0; i < action->nnodes; i++)
	{
		ops[i + 1].type = ZKLOCK_OP_DELETE;
		ops[i + 1].path = node_path(m, &action->nodes[i]);
		ops[i + 1].version = -1;
	}
	return zklock_client_multi(client, ops, action->nnodes + 1, tag);
}

static void
send_request(void *arg, const ZkBarrierAction *action)
{
	Meeting *m = arg;
	ZkClient *client = zklock_session_client();
	char *path;
	int rc = ZKLOCK_ZOK;
	ZkRequestTag tag = {
		.kind = own_tag,
		.entry = m->serial,
		.generation = (uint32) action->type,
	};

	Assert(zklock_unlocked());
	if (client == NULL)
		return; /* whatever is out is annulled with it */
	path = zklock_path_name(ZKLOCK_KIND_BARRIER, m->name, NULL);
	if (action->party != NULL)
	{
		tag.uuid = action->party->id[0];
		tag.hash = action->party->id[1];
	}
	switch (action->type)
	{
		case ZKLOCK_BARRIER_MAKE_DIR:
			rc = zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_PERSISTENT, &tag);
			break;
		case ZKLOCK_BARRIER_READ_IT:
			if (action->sync)
				(void) zklock_client_sync(client,
										  zklock_path_directory(ZKLOCK_KIND_BARRIER),
										  &zklock_no_tag);
			tag.path = zklock_watch_count(path, false);
			m->watched = true;
			rc = zklock_client_get(client, path, true, &tag);
			break;
		case ZKLOCK_BARRIER_LIST:
			rc = zklock_client_list(client, path, false, &tag);
			break;
		case ZKLOCK_BARRIER_CREATE:
			rc = send_create(client, m, action->party, &tag);
			break;
		case ZKLOCK_BARRIER_DELETE:
			rc = zklock_client_delete(client, node_path(m, action->nodes), &tag);
			break;
		case ZKLOCK_BARRIER_OPEN:
			rc = send_open(client, m, action, &tag);
			break;
	}
	zklock_session_sent(rc);
}

/* ------------------------------------------------------------------------
 * Barriers
 * ------------------------------------------------------------------------
 */

static Meeting *
find_meeting(const char *name)
{
	dlist_iter iter;

	dlist_foreach (iter, &meetings)
	{
		Meeting *m = dlist_container(Meeting, node, iter.cur);

		if (strcmp(m->name, name) == 0)
			return m;
	}
	return NULL;
}

static Meeting *
make_meeting(const char *name)
{
	Meeting *m = MemoryContextAlloc(TopMemoryContext, sizeof(Meeting));

	if (++last_serial == 0)
		last_serial = 1;
	m->serial = last_serial;
	m->idle = 0;
	m->needed = false;
	m->watched = false;
	strlcpy(m->name, name, sizeof(m->name));
	zklock_shared->barriers_used = true;
	zklock_barrier_init(&m->barrier, zklock_shared->session.uuid_hi,
						zklock_session_client() != NULL);
	dlist_push_tail(&meetings, &m->node);
	nmeetings++;
	return m;
}

static bool
has_parties(const Meeting *m)
{
	for (int i = 0; i < zklock_barrier_max() && meeting_of != NULL; i++)
		if (meeting_of[i] == m)
			return true;
	return false;
}

/*
 * The record exists for a day.  A watch on it would exist for as long, and take room
 * that all watches share, so it is removed.  Requests are executed in order: if a
 * session comes to the barrier again, the next get sets the watch again.  Without a
 * connection the watch cannot be removed.
 */
static void
forget_meeting(Meeting *m)
{
	ZkClient *client = zklock_session_client();
	char *path = zklock_path_name(ZKLOCK_KIND_BARRIER, m->name, NULL);

	Assert(!has_parties(m));
	if (m->watched && client != NULL)
	{
		int rc = zklock_client_unwatch(client, path, false, &zklock_no_tag);

		/* heartbeats ago all was asked, and so has a reply */
		if (rc != ZKLOCK_ZOK && (rc != ZKLOCK_ZNOWATCHER || m->idle <= IDLE_TICKS))
			return;
		zklock_watch_fired(path, false);
	}
	pfree(path);
	dlist_delete(&m->node);
	pfree(m);
	nmeetings--;
}

/* The barrier that a reply belongs to, or NULL if the worker has forgotten it. */
static Meeting *
tagged_meeting(const ZkRequestTag *tag)
{
	dlist_iter iter;

	dlist_foreach (iter, &meetings)
	{
		Meeting *m = dlist_container(Meeting, node, iter.cur);

		if (m->serial == tag->entry)
			return m;
	}
	return NULL;
}

static void
step(Meeting *m, ZkBarrierEvent *event)
{
	int n = 0;

	Assert(zklock_in_worker());
	for (int i = 0; i < zklock_barrier_max(); i++)
		if (meeting_of[i] == m)
			parties[n++] = &zklock_barrier_call(i)->party;
	event->session = zklock_shared->session.uuid_hi;
	zklock_barrier_step(&m->barrier, parties, n, event, send_request, m);
	if (n > 0)
		m->idle = 0;
	for (int i = 0; i < zklock_barrier_max() && n > 0; i++)
	{
		if (meeting_of[i] != m)
			continue;
		n--;
		if (zklock_barrier_call(i)->party.state == ZKLOCK_PARTY_OVER)
		{
			meeting_of[i] = NULL;
			zklock_barrier_over(i);
		}
	}
}

static void
step_type(Meeting *m, ZkBarrierEventType type)
{
	ZkBarrierEvent event = {.type = type};

	step(m, &event);
}

/* Allocate the arrays on the first call: a predecessor may have left parties. */
static void
begin(void)
{
	if (meeting_of != NULL)
		return;
	meeting_of = MemoryContextAllocZero(TopMemoryContext,
										sizeof(*meeting_of) * (Size) zklock_barrier_max());
	parties = MemoryContextAlloc(TopMemoryContext,
								 sizeof(*parties) * (Size) zklock_barrier_max());
}

/* Assign a barrier to a call that has none yet. */
static void
take_call(int i)
{
	ZkBarrierCall *call = zklock_barrier_call(i);
	Meeting *m = find_meeting(call->name);

	if (m == NULL && zklock_watches_full() && !call->party.tried)
	{
		/* it waits for room, and may leave meanwhile */
		crowded = true;
		if (!call->party.leave)
			return;
		call->party.state = ZKLOCK_PARTY_OVER;
		call->party.end = ZKLOCK_PARTY_LEFT;
		zklock_barrier_over(i);
		return;
	}
	if (m == NULL)
		m = make_meeting(call->name);
	meeting_of[i] = m;
	dlist_delete(&m->node);
	dlist_push_tail(&meetings, &m->node);
}

/* Assign a barrier to each call that waits, and mark that barrier to be stepped. */
static void
take_calls(void)
{
	begin();
	crowded = false;
	for (int i = 0; i < zklock_barrier_max(); i++)
	{
		/* unlocked: whoever comes says so afterwards */
		if (!zklock_barrier_call(i)->used)
			continue;
		if (meeting_of[i] == NULL && zklock_barrier_waits(i))
			take_call(i);
		if (meeting_of[i] != NULL)
			meeting_of[i]->needed = true;
	}
}

static long
work(void)
{
	dlist_mutable_iter iter;

	if (!zklock_barrier_changed() && !crowded)
		return -1;
	take_calls();
	dlist_foreach_modify (iter, &meetings)
	{
		Meeting *m = dlist_container(Meeting, node, iter.cur);

		if (m->needed)
		{
			m->needed = false;
			step_type(m, ZKLOCK_BARRIER_NEED);
		}
		else if (nmeetings > IDLE_MAX && !has_parties(m))
			forget_meeting(m);
	}
	return -1;
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
on_event(ZkLockEventType type)
{
	dlist_mutable_iter iter;
	ZkBarrierEventType event;

	switch (type)
	{
		case ZKLOCK_EV_CONNECTED:
			/* a new session has seen all that was there when it was made */
			event = ZKLOCK_BARRIER_CONNECTED;
			break;
		case ZKLOCK_EV_RESUMED:
			event = ZKLOCK_BARRIER_RESUMED;
			break;
		case ZKLOCK_EV_DISCONNECTED:
			event = ZKLOCK_BARRIER_DISCONNECTED;
			break;
		case ZKLOCK_EV_SESSION_LOST:
			event = ZKLOCK_BARRIER_SESSION_LOST;
			break;
		case ZKLOCK_EV_TICK:
			event = ZKLOCK_BARRIER_TICK;
			break;
		default:
			return;
	}
	/* what a predecessor has left is to hear of it, too */
	if (type != ZKLOCK_EV_TICK && zklock_barrier_used() > 0)
		take_calls();
	dlist_foreach_modify (iter, &meetings)
	{
		Meeting *m = dlist_container(Meeting, node, iter.cur);

		if (event != ZKLOCK_BARRIER_TICK && event != ZKLOCK_BARRIER_CONNECTED &&
			event != ZKLOCK_BARRIER_DISCONNECTED)
			m->watched = false; /* with the handle */
		if (type == ZKLOCK_EV_TICK && !has_parties(m) && ++m->idle > IDLE_TICKS)
			forget_meeting(m);
		else
			step_type(m, event);
	}
}

static bool
on_watch(const ZkWatch *watch)
{
	Meeting *m;

	if (watch->kind != ZKLOCK_KIND_BARRIER)
		return false;
	if ((m = find_meeting(watch->name)) != NULL)
	{
		m->watched = false;
		step_type(m, ZKLOCK_BARRIER_CHANGED);
	}
	return true;
}

static void
take_listing(Meeting *m, const ZkMessage *message, ZkBarrierEvent *event)
{
	ZkPartyNode *nodes = palloc(sizeof(ZkPartyNode) * (Size) Max(message->nchildren, 1));

	for (int i = 0; i < message->nchildren; i++)
		if (zklock_barrier_parse_party(message->children[i], &nodes[event->nnodes]))
			event->nnodes++;
	event->nodes = nodes;
	step(m, event);
	pfree(nodes);
}

static void
on_message(const ZkMessage *message)
{
	Meeting *m = tagged_meeting(&message->tag);
	ZkReply reply = zklock_reply(message->rc);
	ZkBarrierEvent event = {0};

	if (message->tag.path != 0 && message->rc != ZKLOCK_ZOK)
		zklock_watch_gone(message->tag.path);
	if (m == NULL)
		return;
	event.rc = zklock_reply_rc(message->rc);
	event.code = message->rc;
	event.id[0] = message->tag.uuid;
	event.id[1] = message->tag.hash;
	if (reply == ZKLOCK_REPLY_EXISTS)
		event.rc = message->tag.generation == ZKLOCK_BARRIER_MAKE_DIR ? ZKLOCK_RC_OK
																	  : ZKLOCK_RC_ERROR;
	if (reply == ZKLOCK_REPLY_BAD_VERSION)
		event.rc = ZKLOCK_RC_NO_NODE;
	if (event.rc == ZKLOCK_RC_ERROR)
	{
		char shown[ZKLOCK_ENCODED_MAX + 1];

		zklock_trouble("ZooKeeper refused a request for barrier \"%s\": %s",
					   zklock_log_name(m->name, shown), zklock_rc_text(message->rc));
	}
	switch ((ZkBarrierActionType) message->tag.generation)
	{
		case ZKLOCK_BARRIER_MAKE_DIR:
			event.type = ZKLOCK_BARRIER_MADE_DIR;
			break;
		case ZKLOCK_BARRIER_READ_IT:
			event.type = ZKLOCK_BARRIER_READ;
			event.life = message->czxid;
			event.version = message->version;
			event.data = message->data;
			event.datalen = Max(message->datalen, 0);
			break;
		case ZKLOCK_BARRIER_LIST:
			event.type = ZKLOCK_BARRIER_LISTED;
			take_listing(m, message, &event);
			return;
		case ZKLOCK_BARRIER_CREATE:
		{
			const char *child = message->path ? strrchr(message->path, '/') : NULL;
			ZkPartyNode node;

			event.type = ZKLOCK_BARRIER_CREATED;
			if (event.rc != ZKLOCK_RC_OK)
				break;
			if (child != NULL && zklock_barrier_parse_party(child + 1, &node))
				event.sequence = node.sequence;
			else
				event.rc = ZKLOCK_RC_LOST; /* it exists, but where? */
			break;
		}
		case ZKLOCK_BARRIER_DELETE:
			event.type = ZKLOCK_BARRIER_DELETED;
			break;
		case ZKLOCK_BARRIER_OPEN:
			event.type = ZKLOCK_BARRIER_OPENED;
			if (event.rc == ZKLOCK_RC_OK)
				zklock_barrier_count_opened();
			break;
	}
	step(m, &event);
}

static bool
ask(ZkAgentAsk what)
{
	switch (what)
	{
		case ZKLOCK_AGENT_BOUND:
			return zklock_barrier_used() > 0;
		case ZKLOCK_AGENT_TICKS:
			return nmeetings > 0; /* what nobody waits for is forgotten by ticks */
		default:
			return false;
	}
}

const ZkAgent zklock_barrier_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
	.watch = on_watch,
	.work = work,
	.ask = ask,
};
