/*-------------------------------------------------------------------------
 *
 * deadlock_rules.c
 *	  Finds deadlocks that span several servers.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_rules.h"

#include <assert.h>
#include <string.h>

void
zklock_deadlock_init(ZkDeadlock *d, uint64_t session, int64_t pause)
{
	memset(d, 0, sizeof(*d));
	d->session = session;
	d->pause = pause;
	d->node = ZKLOCK_NODE_UNKNOWN;
}

/* The search starts again from the waits that this concerns. */
static void
search_again(ZkDeadlock *d, uint64_t contender, int waiter)
{
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].edge.contender == contender && d->own[i].edge.waiter == waiter)
			d->own[i].again = true;
}

/* Returns an edge of the wait that the search starts from; NULL: the wait is over. */
static const ZkWaitEdge *
start_edge(const ZkDeadlock *d)
{
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].edge.contender == d->contender && d->own[i].edge.waiter == d->waiter)
			return &d->own[i].edge;
	return NULL;
}

void
zklock_deadlock_connected(ZkDeadlock *d, bool connected)
{
	d->connected = connected;
	d->asked = false;
	d->serial++;
	if (d->active)
	{
		d->active = false;
		search_again(d, d->contender, d->waiter);
	}
	if (d->writing)
		zklock_deadlock_wrote(d, ZKLOCK_RC_LOST, 0);
	/* a predecessor's, too */
	if (connected && d->node == ZKLOCK_NODE_UNKNOWN)
		d->changed = true;
}

/* ------------------------------------------------------------------------
 * Publishing
 * ------------------------------------------------------------------------
 */

void
zklock_deadlock_drop(ZkDeadlock *d, int i)
{
	assert(i >= 0 && i < d->nown);
	d->own[i] = d->own[--d->nown];
	d->changed = true;
}

/* Finds the edge in own[] with this key; -1: there is none. */
static int
find_key(const ZkDeadlock *d, uint64_t key)
{
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].key == key)
			return i;
	return -1;
}

static bool
is_seen(const ZkOwnEdge *seen, int n, uint64_t key)
{
	for (int i = 0; i < n; i++)
		if (seen[i].key == key)
			return true;
	return false;
}

int
zklock_deadlock_look(ZkDeadlock *d, const ZkOwnEdge *seen, int n, uint64_t numbers)
{
	int given = 0;

	for (int i = 0; i < n; i++)
	{
		int known = find_key(d, seen[i].key);
		ZkOwnEdge *own;
		uint64_t number = numbers + (uint64_t) given;

		if (known >= 0)
		{
			d->own[known].again |= seen[i].again;
			continue;
		}
		if (d->nown == ZKLOCK_MAX_EDGES)
			continue; /* there may be room at the next look */
		own = &d->own[d->nown++];
		*own = seen[i];
		own->edge.number = number;
		own->edge.stamp = 0;
		own->again = false;
		own->sent = false;
		given++;
	}
	/* new, or refused the last time */
	for (int i = 0; i < d->nown; i++)
		d->changed |= !d->own[i].sent;
	d->changed |= d->node == ZKLOCK_NODE_UNKNOWN;
	for (int i = d->nown; --i >= 0;)
		if (!is_seen(seen, n, d->own[i].key))
			zklock_deadlock_drop(d, i);
	return given;
}

static ZkDeadlockAct
write_next(ZkDeadlock *d)
{
	d->changed = false;
	if (d->nown == 0 && d->node == ZKLOCK_NODE_NONE)
		return ZKLOCK_DO_NOTHING;
	for (int i = 0; i < d->nown; i++)
		d->own[i].sent = true;
	d->writing = true;
	d->write = d->nown == 0			  ? ZKLOCK_DO_DELETE
		: d->node == ZKLOCK_NODE_NONE ? ZKLOCK_DO_CREATE
									  : ZKLOCK_DO_SET;
	return d->write;
}

/* The edges that were written are known as of this transaction. */
static void
acknowledge(ZkDeadlock *d, int64_t zxid)
{
	for (int i = 0; i < d->nown; i++)
	{
		ZkOwnEdge *own = &d->own[i];

		if (!own->sent)
			continue;
		if (own->edge.stamp == 0)
		{
			own->edge.stamp = zxid;
			own->again = true;
		}
	}
}

void
zklock_deadlock_wrote(ZkDeadlock *d, ZkLockRc rc, int64_t zxid)
{
	if (!d->writing)
		return; /* of a connection before this one */
	d->writing = false;
	switch (rc)
	{
		case ZKLOCK_RC_OK:
			d->node = d->write == ZKLOCK_DO_DELETE ? ZKLOCK_NODE_NONE : ZKLOCK_NODE_THERE;
			d->made = false;
			acknowledge(d, zxid);
			return;
		case ZKLOCK_RC_NO_NODE:
			d->node = ZKLOCK_NODE_NONE;
			/* made once, the directory is there, or its parent is missing: later */
			if (d->write == ZKLOCK_DO_CREATE && d->made)
				break;
			d->made = d->write == ZKLOCK_DO_CREATE;
			d->changed = d->write != ZKLOCK_DO_DELETE;
			break;
		case ZKLOCK_RC_EXISTS:
			d->node = ZKLOCK_NODE_THERE;
			d->changed = true;
			break;
		case ZKLOCK_RC_LOST:
			d->node = ZKLOCK_NODE_UNKNOWN;
			d->changed = true;
			break;
		case ZKLOCK_RC_UNDONE:
		case ZKLOCK_RC_ERROR:
			d->node = ZKLOCK_NODE_UNKNOWN; /* the next look tries again */
			break;
	}
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].edge.stamp == 0)
			d->own[i].sent = false;
}

/* ------------------------------------------------------------------------
 * The search
 * ------------------------------------------------------------------------
 */

static void
begin_reading(ZkDeadlock *d)
{
	d->phase = ZKLOCK_SEARCH_SERVERS;
	d->nfollowed = d->nservers = d->nin_way = 0;
	d->at = -1;
	d->closed = false;
}

static void
begin_first_reading(ZkDeadlock *d)
{
	d->second = d->earlier = false;
	begin_reading(d);
}

/* The next wait to search from. */
static bool
begin_search(ZkDeadlock *d)
{
	for (int i = 0; i < d->nown; i++)
	{
		const ZkOwnEdge *own = &d->own[i];

		if (!own->again || own->edge.stamp == 0)
			continue;
		d->active = true;
		d->contender = own->edge.contender;
		d->waiter = own->edge.waiter;
		for (int j = i; j < d->nown; j++)
			if (d->own[j].edge.contender == d->contender &&
				d->own[j].edge.waiter == d->waiter && d->own[j].edge.stamp != 0)
				d->own[j].again = false;
		d->own[i].again = false;
		begin_first_reading(d);
		return true;
	}
	return false;
}

/* The wait whose queue the search looks at now. */
static const ZkWaitEdge *
present_edge(const ZkDeadlock *d)
{
	return d->at < 0 ? start_edge(d) : &d->followed[d->at].edge;
}

static uint64_t
present_session(const ZkDeadlock *d)
{
	return d->at < 0 ? d->session : d->followed[d->at].session;
}

const char *
zklock_deadlock_name(const ZkDeadlock *d, ZkLockKind *kind)
{
	const ZkWaitEdge *edge = present_edge(d);

	*kind = edge->kind;
	return edge->name;
}

/* Does "a" have a larger stamp? */
static bool
is_later(const ZkFollowed *a, const ZkFollowed *b)
{
	return a->edge.stamp != b->edge.stamp ? a->edge.stamp > b->edge.stamp
										  : a->edge.number > b->edge.number;
}

static bool
is_same(const ZkFollowed *a, const ZkFollowed *b)
{
	if (a->session != b->session)
		return false;
	return a->edge.number == b->edge.number && a->edge.stamp == b->edge.stamp;
}

/* Takes the ring, by the way back from the edge that closes it.  False: it is too
 * long. */
static bool
take_ring(ZkDeadlock *d)
{
	int n = 0;

	for (int i = d->nfollowed; i >= 0; i = d->followed[i].before)
		n++;
	if (n > ZKLOCK_MAX_RING)
		return false;
	d->nring = n;
	for (int i = d->nfollowed; i >= 0; i = d->followed[i].before)
		d->ring[--n] = d->followed[i];
	return true;
}

/* A ring was read.  True: its last edge's wait has to end. */
static bool
judge(ZkDeadlock *d)
{
	const ZkFollowed *latest;

	if (!take_ring(d))
		return false;
	latest = &d->ring[d->nring - 1];
	for (int i = 0; i < d->nring; i++)
		if (is_later(&d->ring[i], latest))
			latest = &d->ring[i];
	if (latest != &d->ring[d->nring - 1])
	{
		/* it is another's turn, who may be here, too, and not have seen all of it */
		if (latest->session == d->session)
			search_again(d, latest->edge.contender, latest->edge.waiter);
		return false;
	}
	return true;
}

/* The search has come to an end. */
static ZkDeadlockAct
conclude(ZkDeadlock *d, int64_t now)
{
	bool mine = d->closed && judge(d);

	if (mine && !d->second)
	{
		d->second = true;
		d->at_time = now + d->pause;
		begin_reading(d);
		return ZKLOCK_DO_NOTHING;
	}
	if (d->second && !mine)
	{
		/* the ring is broken; but there may be others, which it has hidden */
		begin_first_reading(d);
		return ZKLOCK_DO_NOTHING;
	}
	if (d->closed && !mine && !d->earlier)
	{
		/* the same of a ring in which it is another's turn */
		d->earlier = true;
		begin_reading(d);
		return ZKLOCK_DO_NOTHING;
	}
	d->active = false;
	if (!mine)
		return ZKLOCK_DO_NOTHING;
	for (int i = d->nown; --i >= 0;)
		if (d->own[i].edge.contender == d->contender && d->own[i].edge.waiter == d->waiter)
			zklock_deadlock_drop(d, i);
	return ZKLOCK_DO_END;
}

/* The next owner of contenders in the way, among the servers that publish. */
static bool
next_to_read(ZkDeadlock *d)
{
	if (d->nin_way == 0)
		return false;
	d->reads = d->in_way[d->nin_way - 1].session;
	return true;
}

static ZkDeadlockAct
ask(ZkDeadlock *d, ZkDeadlockAct what)
{
	d->asked = true;
	d->serial++;
	return what;
}

static ZkDeadlockAct
search_next(ZkDeadlock *d, int64_t now)
{
	while (!d->asked)
	{
		if (!d->active && !begin_search(d))
			break;
		if (start_edge(d) == NULL)
		{
			d->active = false; /* the wait is over */
			continue;
		}
		if (d->second && d->phase == ZKLOCK_SEARCH_SERVERS && now < d->at_time)
			break;
		if (d->closed || d->at == d->nfollowed)
		{
			ZkDeadlockAct act = conclude(d, now);

			if (act != ZKLOCK_DO_NOTHING)
				return act;
		}
		else if (d->phase == ZKLOCK_SEARCH_SERVERS)
			return ask(d, ZKLOCK_DO_SERVERS);
		else if (d->phase == ZKLOCK_SEARCH_LIST)
			return ask(d, ZKLOCK_DO_LIST);
		else if (next_to_read(d))
			return ask(d, ZKLOCK_DO_READ);
		else
		{
			d->at++;
			d->phase = ZKLOCK_SEARCH_LIST;
		}
	}
	return ZKLOCK_DO_NOTHING;
}

ZkDeadlockAct
zklock_deadlock_next(ZkDeadlock *d, int64_t now)
{
	if (!d->connected)
		return ZKLOCK_DO_NOTHING;
	if (d->changed && !d->writing)
	{
		ZkDeadlockAct act = write_next(d);

		if (act != ZKLOCK_DO_NOTHING)
			return act;
	}
	return search_next(d, now);
}

int64_t
zklock_deadlock_due(const ZkDeadlock *d, int64_t now)
{
	if (!d->connected || !d->active || d->asked || !d->second)
		return -1;
	return d->at_time > now ? d->at_time - now : 0;
}

/* ------------------------------------------------------------------------
 * Replies
 * ------------------------------------------------------------------------
 */

/* Does the search wait for this reply?  If the reply is lost, the search starts again
 * on the next connection. */
static bool
is_awaited(ZkDeadlock *d, uint32_t serial, ZkLockRc rc)
{
	if (!d->asked || serial != d->serial)
		return false;
	d->asked = false;
	if (rc != ZKLOCK_RC_LOST)
		return d->active;
	d->active = false;
	search_again(d, d->contender, d->waiter);
	return false;
}

/* A child of <root>/waits has its session's name: 16 digits. */
static bool
parse_session(const char *child, uint64_t *session)
{
	static const char hex[] = "0123456789abcdef";

	*session = 0;
	if (strlen(child) != 16)
		return false;
	for (const char *p = child; *p != '\0'; p++)
	{
		const char *digit = strchr(hex, *p);

		if (digit == NULL)
			return false;
		*session = *session << 4 | (uint64_t) (digit - hex);
	}
	return *session != 0;
}

void
zklock_deadlock_servers(ZkDeadlock *d, uint32_t serial, ZkLockRc rc,
						char *const *children, int n)
{
	if (!is_awaited(d, serial, rc))
		return;
	for (int i = 0; rc == ZKLOCK_RC_OK && i < n && d->nservers < ZKLOCK_MAX_SERVERS; i++)
		if (parse_session(children[i], &d->server[d->nservers]))
			d->nservers++;
	d->phase = ZKLOCK_SEARCH_LIST;
}

static bool
publishes(const ZkDeadlock *d, uint64_t session)
{
	for (int i = 0; i < d->nservers; i++)
		if (d->server[i] == session)
			return true;
	return false;
}

static void
add_in_way(ZkDeadlock *d, uint64_t session, uint64_t uuid)
{
	ZkContenderId *id = &d->in_way[d->nin_way];

	if (d->nin_way == ZKLOCK_MAX_IN_WAY || !publishes(d, session))
		return;
	id->session = session;
	id->uuid = uuid;
	d->nin_way++;
}

/* The sessions that own the contenders: none, one, or several.  Another program's
 * contender has no session, and counts as a session of its own. */
typedef struct Sessions
{
	bool any;
	bool several;
	uint64_t one;
} Sessions;

static void
add_session(Sessions *sessions, uint64_t session)
{
	sessions->several |= sessions->any && (session == 0 || session != sessions->one);
	sessions->any = true;
	sessions->one = session;
}

static bool
has_other(const Sessions *sessions, uint64_t session)
{
	return sessions->any && (sessions->several || session == 0 || sessions->one != session);
}

/* Sorts the newest contender first. */
static void
sort_children(ZkLockChild *children, int n)
{
	for (int gap = n / 2; gap > 0; gap /= 2)
		for (int i = gap; i < n; i++)
			for (int j = i; j >= gap && children[j - gap].sequence < children[j].sequence;
				 j -= gap)
			{
				ZkLockChild child = children[j];

				children[j] = children[j - gap];
				children[j - gap] = child;
			}
}

/*
 * Finds the contenders in the way of children[self], directly or through others.
 * Contenders of one session are not in each other's way; but a contender of the same
 * session can be in the way of others that are.
 */
static void
find_in_way(ZkDeadlock *d, const ZkLockChild *children, int n, int self)
{
	Sessions all = {0};
	Sessions writers = {0};

	add_session(&all, children[self].uuid_hi);
	if (children[self].mode == ZKLOCK_EXCLUSIVE)
		add_session(&writers, children[self].uuid_hi);
	for (int i = self + 1; i < n; i++)
	{
		const ZkLockChild *child = &children[i];
		bool writes = child->mode == ZKLOCK_EXCLUSIVE;

		if (!has_other(writes ? &all : &writers, child->uuid_hi))
			continue;
		add_in_way(d, child->uuid_hi, child->uuid_lo);
		add_session(&all, child->uuid_hi);
		if (writes)
			add_session(&writers, child->uuid_hi);
	}
}

/*
 * The same for a contender for a permit.  Two contenders are in each other's way if
 * either asks for one of one.  Otherwise there is room for the later one beside the
 * earlier one, whatever those before them do.  So the last contender that asks for one
 * of one is in the way, and all before that.
 */
static void
find_in_way_of_permit(ZkDeadlock *d, const ZkLockChild *children, int n, int self)
{
	bool alone = children[self].permits == 1;

	for (int i = self + 1; i < n; i++)
	{
		alone |= children[i].permits == 1;
		if (alone)
			add_in_way(d, children[i].uuid_hi, children[i].uuid_lo);
	}
}

void
zklock_deadlock_listed(ZkDeadlock *d, uint32_t serial, ZkLockRc rc, ZkLockChild *children,
					   int n)
{
	const ZkWaitEdge *edge;
	uint64_t session;

	if (!is_awaited(d, serial, rc) || (edge = present_edge(d)) == NULL)
		return;
	session = present_session(d);
	d->phase = ZKLOCK_SEARCH_READ;
	d->nin_way = 0;
	if (rc != ZKLOCK_RC_OK)
		return; /* nobody is there */
	sort_children(children, n);
	for (int i = 0; i < n; i++)
	{
		if (children[i].uuid_hi != session || children[i].uuid_lo != edge->contender)
			continue;
		if (children[i].permits > 0)
			find_in_way_of_permit(d, children, n, i);
		else if (!edge->joins)
			find_in_way(d, children, n, i);
		else
			add_in_way(d, session, edge->contender);
		return;
	}
}

static bool
is_in_way(const ZkDeadlock *d, uint64_t session, uint64_t uuid)
{
	for (int i = 0; i < d->nin_way; i++)
		if (d->in_way[i].session == session && d->in_way[i].uuid == uuid)
			return true;
	return false;
}

static bool
is_in_ring(const ZkDeadlock *d, const ZkFollowed *edge)
{
	for (int i = 0; i < d->nring; i++)
		if (is_same(&d->ring[i], edge))
			return true;
	return false;
}

/* Is this edge later than all edges of the wait that the search starts from?  Then
 * that wait does not have to end, whatever ring the edge is in. */
static bool
is_anothers_turn(const ZkDeadlock *d, const ZkFollowed *edge)
{
	for (int i = 0; i < d->nown; i++)
	{
		ZkFollowed own = {.edge = d->own[i].edge};

		if (own.edge.contender == d->contender && own.edge.waiter == d->waiter &&
			!is_later(edge, &own))
			return false;
	}
	return true;
}

/* Finds the edge by which the search reached that wait.  The edge that closes the
 * ring comes behind all others. -1: there is none. */
static int
find_followed(const ZkDeadlock *d, const ZkFollowed *edge)
{
	int n = d->nfollowed + (d->closed ? 1 : 0);

	for (int i = 0; i < n; i++)
		if (d->followed[i].session == edge->session &&
			d->followed[i].edge.contender == edge->edge.contender &&
			d->followed[i].edge.waiter == edge->edge.waiter)
			return i;
	return -1;
}

static void
follow(ZkDeadlock *d, const ZkFollowed *edge)
{
	bool closes = edge->session == d->session && edge->edge.contender == d->contender &&
		edge->edge.waiter == d->waiter;
	int known = find_followed(d, edge);

	if (known >= 0)
	{
		ZkFollowed *other = &d->followed[known];

		/* two ways of one step */
		if (other->before == edge->before && is_later(other, edge))
			*other = *edge;
		return;
	}
	if (d->nfollowed == ZKLOCK_MAX_FOLLOWED - 1 || (d->closed && !closes))
		return;
	d->followed[d->nfollowed] = *edge;
	if (closes)
		d->closed = true;
	else
		d->nfollowed++;
}

void
zklock_deadlock_read(ZkDeadlock *d, uint32_t serial, ZkLockRc rc, int64_t zxid,
					 const char *text, size_t len)
{
	ZkWaitsReader reader;
	ZkFollowed edge = {.before = d->at, .session = d->reads};
	int left = 0;

	if (!is_awaited(d, serial, rc))
		return;
	if (rc == ZKLOCK_RC_OK && zklock_deadlock_waits_open(&reader, text, len))
	{
		memcpy(edge.server, reader.server, sizeof(edge.server));
		while (zklock_deadlock_waits_next(&reader, &edge.edge))
		{
			if (edge.edge.stamp == 0)
				edge.edge.stamp = zxid;
			if (!is_in_way(d, d->reads, edge.edge.grant) ||
				(d->second && !is_in_ring(d, &edge)) ||
				(d->earlier && is_anothers_turn(d, &edge)))
				continue;
			follow(d, &edge);
		}
	}
	for (int i = 0; i < d->nin_way; i++)
		if (d->in_way[i].session != d->reads)
			d->in_way[left++] = d->in_way[i];
	d->nin_way = left;
}
