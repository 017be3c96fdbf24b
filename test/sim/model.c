/*-------------------------------------------------------------------------
 *
 * model.c
 *	  A model of a ZooKeeper ensemble and of libzookeeper, for the simulator.
 *
 * See model.h for the picture.  What is modelled, because a client can be
 * hurt by it:
 *
 *	 - reads are answered by a follower that lags behind the leader, watch
 *	   events come when that follower gets there, in the order of zxids, and
 *	   before any reply that shows a newer state;
 *	 - a write's reply brings the follower up to that write, sync up to the
 *	   leader; a deposed leader answers sync all the same and writes never;
 *	 - after a reconnect the follower may be behind what events told, not
 *	   behind what replies told: an event carries no zxid for the library to
 *	   keep (the library remembers that of replies only);
 *	 - the library sets its watches again on a new connection, and the server
 *	   fires at once those whose node has changed since;
 *	 - a reply that is lost leaves a watch at the server only, and the library
 *	   does not set it again.
 *
 *-------------------------------------------------------------------------
 */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

Ensemble zk;
int nmultis;
Multi multis[MAX_MULTIS];
long coverage[NCOVERAGE];

const char *const coverage_name[NCOVERAGE] = {
	[COVER_GRANT_SHARED] = "shared grants",
	[COVER_GRANT_EXCLUSIVE] = "exclusive grants",
	[COVER_GRANT_UPGRADE] = "upgrades granted",
	[COVER_GRANT_UNWANTED] = "grants that nobody wanted any more",
	[COVER_DIRECT_HANDOVER] = "hand-overs without a listing",
	[COVER_FORESEEN] = "turns foreseen by a listing",
	[COVER_BLOCKED] = "waits behind somebody",
	[COVER_WITHDRAWN_CREATING] = "wishes withdrawn during the create",
	[COVER_WITHDRAWN_WAITING] = "wishes withdrawn in the queue",
	[COVER_REVOKED] = "grants revoked",
	[COVER_CREATE_LOST_DONE] = "creates done, reply lost",
	[COVER_CREATE_LOST_NOT_DONE] = "creates lost",
	[COVER_CREATE_LATE] = "creates done after the connection was lost",
	[COVER_ADOPTED] = "contenders adopted",
	[COVER_PHANTOM] = "creates that one server of the ensemble has kept",
	[COVER_PHANTOM_REFUSED] = "such nodes that the leader has not found",
	[COVER_STRAYED] = "servers known to have strayed",
	[COVER_DELETE_LOST] = "deletes without reply",
	[COVER_DELETE_REFUSED] = "deletes refused",
	[COVER_ORPHAN_MADE] = "orphans made",
	[COVER_ORPHAN_DELETED] = "orphans deleted",
	[COVER_ORPHANS_LEFT] = "more orphans than there is room for",
	[COVER_DEADLOCK] = "deadlocks",
	[COVER_SEQUENCE_LIMIT] = "counters near their end refused",
	[COVER_REFUSED] = "requests refused",
	[COVER_NO_DIRECTORY_MET] = "creates that met no directory",
	[COVER_NO_ANCESTORS_MET] = "directories that met no ancestors",
	[COVER_DIR_EXISTED] = "directories that existed already",
	[COVER_REAPED] = "directories reaped",
	[COVER_ADMIN_DELETED] = "contenders of ours deleted by somebody",
	[COVER_REMADE] = "contenders of ours made anew by somebody",
	[COVER_REMADE_GRANTED] = "grants by the name of one that was gone",
	[COVER_REMADE_NOTICED] = "grants lost to somebody's node of the same name",
	[COVER_MIMICKED] = "creates in doubt that somebody made a node for",
	[COVER_MIMIC_REFUSED] = "such nodes that were not adopted",
	[COVER_REMOVED] = "contenders of ours taken away by ourselves",
	[COVER_FOREIGN_EXCLUSIVE] = "foreign exclusive contenders",
	[COVER_FOREIGN_SHARED] = "foreign shared contenders",
	[COVER_FORGED_PAST] = "foreign contenders with a number of the past",
	[COVER_FORGED_EQUAL] = "foreign contenders with the number of one of ours",
	[COVER_FORGED_FUTURE] = "foreign contenders with a number of the future",
	[COVER_FORGED_NEGATIVE] = "foreign contenders with a number below zero",
	[COVER_NUMBER_REFUSED] = "numbers of the future refused",
	[COVER_NUMBER_SHARED] = "places given up for a number that two have",
	[COVER_NUMBER_REPEATED] = "numbers given twice",
	[COVER_NODE_CHANGED] = "watches used up by a change",
	[COVER_WATCH_NO_NODE] = "blockers gone before the watch",
	[COVER_WATCH_MISSED] = "watches fired on reconnecting",
	[COVER_STALE_LISTING] = "listings behind the leader",
	[COVER_RECONNECT_GRANTED] = "reconnects with a grant",
	[COVER_RECONNECT_DEPOSED] = "reconnects to a deposed leader",
	[COVER_LIMBO_CARRIED] = "requests carried to the next connection",
	[COVER_LIMBO_LOST] = "requests lost between connections",
	[COVER_EXPIRED_GRANTED] = "sessions expired with a grant",
	[COVER_EXPIRED_CREATING] = "sessions expired during a create",
	[COVER_SESSION_ABANDONED] = "sessions given up alive",
	[COVER_RESUMED_GRANTED] = "new workers with a grant",
	[COVER_RESUMED_CREATING] = "new workers during a create",
	[COVER_FORGOTTEN] = "empty queues forgotten",
	[COVER_KEPT_HIT] = "holds on a grant that was kept",
	[COVER_KEPT_EVICTED] = "kept grants evicted",
	[COVER_DEMANDED_KEPT] = "demands of a grant that was kept",
	[COVER_DEMANDED_BUSY] = "demands of a grant in use",
	[COVER_DEMAND_MISSED] = "demands heard of on reconnecting",
	[COVER_HANDED_ON] = "holds of local waiters after a demand",
	[COVER_UNDEMANDED] = "demands withdrawn",
	[COVER_JOIN_BLOCKED] = "readers told why they may not join",
	[COVER_JOINED_SPENT] = "readers whom an upgrade waits for joined",
	[COVER_UPGRADE_QUEUED] = "upgrades admitted at level 1",
	[COVER_UPGRADE_CIRCLE] = "upgrades that wait for each other",
	[COVER_PROBE_BLOCKED] = "probes that found somebody",
	[COVER_PROBE_FREE] = "probes that found nobody",
	[COVER_POLLED] = "waits without a watch",
	[COVER_SUCCEEDED] = "grants by their number",
	[COVER_NOT_SUCCEEDED] = "numbers that somebody came before",
	[COVER_DIR_GONE] = "directories gone that were watched",
	[COVER_DIR_DATA_CHANGED] = "directories written that were watched",
	[COVER_SET_FAST] = "sets on grants that were there",
	[COVER_SET_GRANTED] = "sets granted",
	[COVER_SET_SHARED] = "sets granted to readers",
	[COVER_SET_REPLACED] = "contenders replaced by a set's",
	[COVER_SET_ANEW] = "sets made anew",
	[COVER_SET_REFUSED] = "transactions refused",
	[COVER_SET_NO_DIRECTORY] = "transactions that met no directory",
	[COVER_SET_DELETE_GONE] = "transactions that met a contender gone",
	[COVER_SET_LOST_DONE] = "transactions done, reply lost",
	[COVER_SET_LATE] = "transactions done after the connection was lost",
	[COVER_SET_ADOPTED] = "contenders of sets adopted",
	[COVER_SET_WITHDRAWN] = "sets withdrawn",
	[COVER_SET_BLOCKED] = "sets that would not wait",
	[COVER_SET_WAITS_FOR_SET] = "sets that wait for sets",
	[COVER_SET_TAKE_FAILED] = "sets that lost a grant before they took it",
	[COVER_KEPT_SPENT] = "kept grants spent for a set",
};

const char *
request_name(ZkLockActionType type)
{
	static const char *const names[] = {"MAKE_DIR", "WATCH_DIR", "CREATE",
										"LIST",		"WATCH_OWN", "WATCH",
										"MARK",		"DELETE",	 "GRANTED",
										"BLOCKED",	"DEMANDED",	 "UNDEMANDED",
										"REVOKED",	"FAILED",	 "ABSENT"};

	return names[type];
}

/* ------------------------------------------------------------------------
 * The leader
 * ------------------------------------------------------------------------
 */

void
zk_reset(void)
{
	/* The nodes are not cleared: there are many, and few are used. */
	zk.zxid = 100;
	zk.ancestors = !once_in(4);
	memset(zk.dir, 0, sizeof(zk.dir));
	zk.nnodes = 0;
	zk.nalive = 0;
	zk.nsessions = 0;
	zk.error_rate = 0;
	nmultis = 0;
}

int
zk_new_session(void)
{
	Session *session = &zk.session[zk.nsessions];

	if (zk.nsessions == MAX_SESSIONS)
		fail("simulator: too many sessions");
	session->alive = true;
	session->id = random_bits() | 1;
	session->czxid = ++zk.zxid;
	return zk.nsessions++;
}

static void
remove_node(int node)
{
	for (int i = 0; i < zk.nalive; i++)
	{
		if (zk.alive[i] == node)
		{
			zk.alive[i] = zk.alive[--zk.nalive];
			zk.node[node].dzxid = zk.zxid;
			return;
		}
	}
	fail("simulator: node %d is not alive", node);
}

void
zk_expire(int session)
{
	zk.session[session].alive = false;
	zk.zxid++;
	for (int i = zk.nalive - 1; i >= 0; i--)
	{
		if (zk.node[zk.alive[i]].owner == session)
			remove_node(zk.alive[i]);
	}
}

/*
 * Returns the node, or -1 when there is no directory.  The directory counts all that are
 * made in it, with the sequence flag or without.
 */
int
zk_create_named(int dir, const char *name, int owner)
{
	Dir *d = &zk.dir[dir];
	Node *node = &zk.node[zk.nnodes];

	zk.zxid++;
	if (!d->exists)
		return -1;
	if (zk.nnodes == MAX_NODES || zk.nalive == MAX_ALIVE)
		fail("simulator: too many nodes");

	snprintf(node->name, sizeof(node->name), "%s", name);
	/* The server's counter sticks at its end. */
	if (d->next_sequence < INT32_MAX)
		d->next_sequence++;
	if (!zklock_parse_child(node->name, &node->child))
		fail("\"%s\" was not recognised as a contender", node->name);
	node->dir = dir;
	node->owner = owner;
	node->czxid = zk.zxid;
	node->mzxid = 0;
	node->dzxid = NEVER;
	node->next = d->next_sequence;
	node->known = 0;
	node->orphan = false;
	node->forged = false;
	node->phantom = false;
	zk.alive[zk.nalive++] = zk.nnodes;
	return zk.nnodes++;
}

/* The same with the sequence flag. */
int
zk_create(int dir, const char *prefix, int owner)
{
	char name[NAME_LEN];

	snprintf(name, sizeof(name), "%s%010" PRId32, prefix,
			 (int32_t) zk.dir[dir].next_sequence);
	return zk_create_named(dir, name, owner);
}

/* The directory forgets that it has given its newest number.  False if it has given none
 * that somebody has. */
bool
zk_step_back(int dir)
{
	int newest = -1;

	for (int i = 0; i < zk.nalive; i++)
	{
		if (zk.node[zk.alive[i]].dir == dir && zk.alive[i] > newest)
			newest = zk.alive[i];
	}
	if (newest < 0 || zk.node[newest].child.sequence != zk.dir[dir].next_sequence - 1)
		return false;
	zk.node[newest].next = --zk.dir[dir].next_sequence;
	return true;
}

void
zk_delete(int node)
{
	zk.zxid++;
	remove_node(node);
}

void
zk_change(int node)
{
	zk.node[node].mzxid = ++zk.zxid;
}

/* A foreigner's node in place of one of ours. */
int
zk_remake(int node)
{
	int made;

	zk_delete(node);
	made = zk_create_named(zk.node[node].dir, zk.node[node].name, FOREIGN);
	zk.node[made].forged = true;
	return made;
}

/* ... beside one of ours, with another number.  -1: there is one. */
int
zk_mimic(int node, int64_t sequence)
{
	const Node *ours = &zk.node[node];
	char name[NAME_LEN];
	int made;

	snprintf(name, sizeof(name), "%.*s%010" PRId64, (int) strlen(ours->name) - 10,
			 ours->name, sequence);
	if (sequence < 0 || zk_find(ours->dir, name) >= 0)
		return -1;
	made = zk_create_named(ours->dir, name, FOREIGN);
	zk.node[made].forged = true;
	zk.node[node].orphan = true;
	return made;
}

/* Has another one the name of a node that is gone, as of then? */
bool
zk_is_remade(const Node *node, int64_t zxid)
{
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *other = &zk.node[i];

		if (other != node && other->dir == node->dir && other->czxid > node->czxid &&
			other->czxid <= zxid && strcmp(other->name, node->name) == 0)
			return true;
	}
	return false;
}

int
zk_find(int dir, const char *name)
{
	for (int i = 0; i < zk.nalive; i++)
	{
		const Node *node = &zk.node[zk.alive[i]];

		if (node->dir == dir && strcmp(node->name, name) == 0)
			return zk.alive[i];
	}
	return -1;
}

/* The node with this czxid, existing or not. */
int
zk_find_token(int dir, int64_t czxid)
{
	for (int i = zk.nnodes - 1; i >= 0; i--)
	{
		if (zk.node[i].dir == dir && zk.node[i].czxid == czxid)
			return i;
	}
	return -1;
}

void
zk_make_dir(int dir)
{
	Dir *d = &zk.dir[dir];

	if (d->nincarnations == MAX_INCARNATIONS)
		fail("simulator: directory made too often");
	d->exists = true;
	d->container = !once_in(8);
	d->next_sequence = 0;
	d->mzxid = 0;
	d->made[d->nincarnations] = ++zk.zxid;
	d->gone[d->nincarnations++] = NEVER;
}

void
zk_change_dir(int dir)
{
	zk.dir[dir].mzxid = ++zk.zxid;
}

bool
zk_dir_empty(int dir)
{
	for (int i = 0; i < zk.nalive; i++)
	{
		if (zk.node[zk.alive[i]].dir == dir)
			return false;
	}
	return true;
}

void
zk_remove_dir(int dir)
{
	zk.dir[dir].exists = false;
	zk.dir[dir].gone[zk.dir[dir].nincarnations - 1] = ++zk.zxid;
}

static bool
dir_existed(int dir, int64_t zxid)
{
	for (int i = zk.dir[dir].nincarnations - 1; i >= 0; i--)
	{
		if (zk.dir[dir].made[i] <= zxid && zxid < zk.dir[dir].gone[i])
			return true;
	}
	return false;
}

/* The number that the directory, which existed, was to give next. */
static int64_t
next_number(int dir, int64_t zxid)
{
	int64_t made = 0;

	for (int i = 0; i < zk.dir[dir].nincarnations && zk.dir[dir].made[i] <= zxid; i++)
		made = zk.dir[dir].made[i];
	for (int i = zk.nnodes - 1; i >= 0 && zk.node[i].czxid > made; i--)
	{
		if (zk.node[i].dir == dir && zk.node[i].czxid <= zxid && !zk.node[i].phantom)
			return zk.node[i].next;
	}
	return 0;
}

/* When a child of the directory, which existed, was made or deleted last; its pzxid. */
static int64_t
last_change(int dir, int64_t zxid)
{
	int64_t last = 0;

	for (int i = 0; i < zk.dir[dir].nincarnations && zk.dir[dir].made[i] <= zxid; i++)
		last = zk.dir[dir].made[i];
	for (int i = 0; i < zk.nnodes; i++)
	{
		const Node *n = &zk.node[i];

		if (n->dir != dir || n->phantom)
			continue;
		if (n->czxid <= zxid && n->czxid > last)
			last = n->czxid;
		if (n->dzxid <= zxid && n->dzxid > last)
			last = n->dzxid;
	}
	return last;
}

static bool
node_existed(int node, int64_t zxid)
{
	return zk.node[node].czxid <= zxid && zxid < zk.node[node].dzxid &&
		!zk.node[node].phantom;
}

/* Does the connection's ZooKeeper server have the node? */
static bool
is_seen(const Conn *conn, int node)
{
	return node_existed(node, conn->view) ||
		(conn->strayed && zk.node[node].phantom && zk.node[node].owner == conn->session);
}

/* ------------------------------------------------------------------------
 * A connection, server side
 * ------------------------------------------------------------------------
 */

static Message *
add_message(Conn *conn, MessageType type)
{
	Message *message = &conn->s2c[conn->ns2c];

	if (conn->ns2c++ == MAX_WIRE)
		fail("simulator: too many replies");
	message->type = type;
	message->rc = ZKLOCK_RC_OK;
	message->node = -1;
	message->deleted = false;
	message->marked = false;
	message->zxid = conn->view;
	message->nchildren = 0;
	message->next = message->changed = 0;
	return message;
}

static void
add_request(Request *queue, int *n, const Request *request)
{
	if (*n == MAX_WIRE)
		fail("simulator: too many requests");
	queue[(*n)++] = *request;
}

static void
remove_request(Request *queue, int *n)
{
	memmove(queue, queue + 1, (size_t)-- * n * sizeof(Request));
}

static void
add_watch(int *watches, int *n, int node)
{
	for (int i = 0; i < *n; i++)
	{
		if (watches[i] == node)
			return;
	}
	if (*n == MAX_WATCHES)
		fail("simulator: too many watches");
	watches[(*n)++] = node;
}

static bool
remove_watch(int *watches, int *n, int node)
{
	for (int i = 0; i < *n; i++)
	{
		if (watches[i] == node)
		{
			watches[i] = watches[--*n];
			return true;
		}
	}
	return false;
}

/*
 * The first thing that happened to a node, to a directory or to its children
 * after zxid "since", or NEVER.  Of several changes of a node only the last is
 * remembered.
 */
static int64_t
first_dir_event(int watch, int64_t since, bool *deleted)
{
	int dir = dir_of_watch(watch);
	const Dir *d = &zk.dir[dir];
	int64_t first = NEVER;

	*deleted = false;
	if (!is_children_watch(watch) && d->mzxid > since)
		first = d->mzxid;
	for (int i = 0; is_children_watch(watch) && i < zk.nnodes; i++)
	{
		const Node *n = &zk.node[i];

		if (n->dir != dir || n->phantom)
			continue;
		if (n->czxid > since && n->czxid < first)
			first = n->czxid;
		if (n->dzxid > since && n->dzxid < first)
			first = n->dzxid;
	}
	for (int i = 0; i < d->nincarnations; i++)
	{
		if (d->gone[i] > since && d->gone[i] < first)
		{
			first = d->gone[i];
			*deleted = true;
		}
	}
	return first;
}

static int64_t
first_event(int watch, int64_t since, bool *deleted)
{
	const Node *n;

	if (is_dir_watch(watch))
		return first_dir_event(watch, since, deleted);
	n = &zk.node[watch];
	*deleted = n->mzxid <= since;
	if (!*deleted)
		return n->mzxid;
	return n->dzxid;
}

/* The follower applies transactions up to "zxid"; its watches fire. */
static void
advance(Conn *conn, int64_t zxid)
{
	while (conn->view < zxid)
	{
		int64_t next = zxid;
		int fired = 0;
		bool any = false;
		bool fired_deleted = false;

		for (int i = 0; i < conn->nwatches; i++)
		{
			bool deleted;
			int64_t when = first_event(conn->watch[i], conn->view, &deleted);

			if (when <= next && (!any || when < next))
			{
				next = when;
				fired = conn->watch[i];
				any = true;
				fired_deleted = deleted;
			}
		}
		if (!any)
		{
			conn->view = zxid;
			return;
		}

		/*
		 * Others may fire at the very same zxid (an expiry deletes several
		 * nodes): stay just before it until the last of them has.
		 */
		conn->view = next - 1;
		if (remove_watch(conn->watch, &conn->nwatches, fired))
		{
			Message *message = add_message(conn, MESSAGE_WATCH);

			message->node = fired;
			message->deleted = fired_deleted;
			message->zxid = next;
		}
	}
}

static bool
is_write(const Request *request)
{
	return request->multi >= 0 || request->type == ZKLOCK_ACT_MAKE_DIR ||
		request->type == ZKLOCK_ACT_CREATE || request->type == ZKLOCK_ACT_DELETE ||
		request->type == ZKLOCK_ACT_MARK;
}

/* All of them in one transaction, or none. */
static ZkLockRc
execute_multi(Multi *multi, int session)
{
	int64_t zxid = zk.zxid + 1;

	for (int i = 0; i < multi->n; i++)
	{
		Part *part = &multi->part[i];

		multi->failed = i;
		if (part->type == ZKLOCK_ACT_CREATE)
		{
			if (!zk.dir[part->dir].exists)
			{
				COVER(SET_NO_DIRECTORY);
				return ZKLOCK_RC_NO_NODE;
			}
		}
		else if ((part->node = zk_find(part->dir, part->name)) < 0)
		{
			COVER(SET_DELETE_GONE);
			return ZKLOCK_RC_NO_NODE;
		}
		if (zk.error_rate > 0 && once_in(zk.error_rate))
		{
			COVER(SET_REFUSED);
			return ZKLOCK_RC_ERROR;
		}
	}
	multi->failed = -1;
	for (int i = 0; i < multi->n; i++)
	{
		Part *part = &multi->part[i];
		char prefix[ZKLOCK_CONTENDER_LEN];

		zk.zxid = zxid - 1;
		if (part->type == ZKLOCK_ACT_DELETE)
			zk_delete(part->node);
		else
		{
			zklock_format_contender(prefix, zk.session[session].id, part->uuid,
									ZKLOCK_KIND_LOCK, part->mode);
			part->node = zk_create(part->dir, prefix, session);
		}
	}
	return ZKLOCK_RC_OK;
}

/* Execute a write at the leader.  "node" is the node created or deleted. */
static ZkLockRc
execute_write(const Request *request, int session, int *node)
{
	char prefix[ZKLOCK_CONTENDER_LEN];

	*node = -1;
	if (request->multi >= 0)
		return execute_multi(&multis[request->multi], session);
	if (zk.error_rate > 0 && once_in(zk.error_rate))
		return ZKLOCK_RC_ERROR;

	switch (request->type)
	{
		case ZKLOCK_ACT_MAKE_DIR:
			if (request->ancestors && !zk.ancestors)
			{
				zk.ancestors = true;
				zk.zxid++;
			}
			if (!zk.ancestors)
			{
				COVER(NO_ANCESTORS_MET);
				return ZKLOCK_RC_NO_NODE;
			}
			if (zk.dir[request->dir].exists)
			{
				COVER(DIR_EXISTED);
				return ZKLOCK_RC_EXISTS;
			}
			zk_make_dir(request->dir);
			return ZKLOCK_RC_OK;

		case ZKLOCK_ACT_CREATE:
			if (request->permits > 0)
				zklock_format_permit(prefix, zk.session[session].id, request->uuid,
									 request->permits);
			else
				zklock_format_contender(prefix, zk.session[session].id, request->uuid,
										ZKLOCK_KIND_LOCK, request->mode);
			*node = zk_create(request->dir, prefix, session);
			if (*node < 0)
			{
				COVER(NO_DIRECTORY_MET);
				return ZKLOCK_RC_NO_NODE;
			}
			return ZKLOCK_RC_OK;

		default:
			*node = zk_find(request->dir, request->name);
			if (*node < 0)
				return ZKLOCK_RC_NO_NODE;
			if (request->type == ZKLOCK_ACT_MARK)
			{
				zk_change(*node);
				return ZKLOCK_RC_OK;
			}
			if (zk.node[*node].orphan)
				COVER(ORPHAN_DELETED);
			zk_delete(*node);
			return ZKLOCK_RC_OK;
	}
}

/* A request left over from an earlier connection: nobody hears of it. */
static void
execute_silently(Conn *conn, const Request *request)
{
	int node;

	if (!is_write(request) || !zk.session[conn->session].alive)
		return;
	TRACE("    late %s", request_name(request->type));
	if (execute_write(request, conn->session, &node) != ZKLOCK_RC_OK)
		return;
	if (request->multi >= 0)
	{
		const Multi *multi = &multis[request->multi];

		COVER(SET_LATE);
		for (int i = 0; request->orphan && i < multi->n; i++)
		{
			if (multi->part[i].type == ZKLOCK_ACT_CREATE)
				zk.node[multi->part[i].node].orphan = true;
		}
	}
	else if (request->type == ZKLOCK_ACT_CREATE)
	{
		COVER(CREATE_LATE);
		if (request->orphan)
		{
			zk.node[node].orphan = true;
			COVER(ORPHAN_MADE);
			TRACE("    orphan %s", zk.node[node].name);
		}
	}
}

/* What a deposed leader does not know of, the client may give up. */
static void
mark_orphans(Conn *conn, const Request *request)
{
	for (int i = 0; conn->deposed && i < zk.nalive; i++)
	{
		Node *node = &zk.node[zk.alive[i]];

		if (node->dir == request->dir && node->owner == conn->session &&
			node->czxid > conn->view && !node->orphan)
		{
			node->orphan = true;
			COVER(ORPHAN_MADE);
			TRACE("    orphan %s", node->name);
		}
	}
}

static void
answer_listing(Conn *conn, const Request *request)
{
	Message *message;

	if (request->sync && !conn->deposed)
		advance(conn, zk.zxid);
	mark_orphans(conn, request);
	message = add_message(conn, MESSAGE_REPLY);
	message->request = *request;
	if (zk.error_rate > 0 && once_in(zk.error_rate))
	{
		message->rc = ZKLOCK_RC_ERROR;
		return;
	}
	if (conn->view < zk.zxid)
		COVER(STALE_LISTING);

	if (!dir_existed(request->dir, conn->view))
	{
		message->rc = ZKLOCK_RC_NO_NODE;
		return;
	}
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].dir == request->dir && is_seen(conn, i))
		{
			if (message->nchildren == MAX_ALIVE)
				fail("simulator: too many children");
			message->children[message->nchildren++] = i;
		}
	}
	message->next = next_number(request->dir, conn->view);
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].phantom && zk.node[i].dir == request->dir && is_seen(conn, i) &&
			zk.node[i].next > message->next)
			message->next = zk.node[i].next;
	}
	message->changed = last_change(request->dir, conn->view);
	if (request->watch)
		add_watch(conn->watch, &conn->nwatches, children_watch(request->dir));
	/* The ensemble lists them in no order. */
	for (int i = message->nchildren - 1; i > 0; i--)
	{
		int j = random_below(i + 1);
		int swap = message->children[i];

		message->children[i] = message->children[j];
		message->children[j] = swap;
	}
}

static void
answer_get(Conn *conn, const Request *request)
{
	Message *message = add_message(conn, MESSAGE_REPLY);

	mark_orphans(conn, request);
	message->request = *request;
	if (zk.error_rate > 0 && once_in(zk.error_rate))
	{
		message->rc = ZKLOCK_RC_ERROR;
		return;
	}
	if (request->type == ZKLOCK_ACT_WATCH_DIR)
	{
		if (dir_existed(request->dir, conn->view))
		{
			message->node = data_watch(request->dir);
			add_watch(conn->watch, &conn->nwatches, message->node);
		}
		else
			message->rc = ZKLOCK_RC_NO_NODE;
		return;
	}
	for (int i = zk.nnodes - 1; i >= 0; i--)
	{
		if (zk.node[i].dir == request->dir && is_seen(conn, i) &&
			strcmp(zk.node[i].name, request->name) == 0)
		{
			message->node = i;
			message->marked = zk.node[i].mzxid != 0 && zk.node[i].mzxid <= conn->view;
			add_watch(conn->watch, &conn->nwatches, i);
			return;
		}
	}
	message->rc = ZKLOCK_RC_NO_NODE;
	if (request->type == ZKLOCK_ACT_WATCH)
		COVER(WATCH_NO_NODE);
}

/* The server takes the next request.  False if it cannot. */
bool
conn_apply(Conn *conn)
{
	Request request;
	Message *message;
	ZkLockRc rc;
	int node;

	if (!conn->up || conn->nc2s == 0)
		return false;
	request = conn->c2s[0];

	if (is_write(&request))
	{
		if (conn->deposed)
			return false; /* waits for a quorum that is no more */
		if (!zk.session[conn->session].alive)
		{
			conn_break(conn);
			return true;
		}
	}
	remove_request(conn->c2s, &conn->nc2s);
	if (request.silent)
	{
		execute_silently(conn, &request);
		if (is_write(&request))
			advance(conn, zk.zxid);
		return true;
	}

	TRACE("    executes %s%s", request_name(request.type),
		  conn->deposed ? " by a deposed leader" : "");
	if (request.type == ZKLOCK_ACT_LIST)
		answer_listing(conn, &request);
	else if (!is_write(&request))
		answer_get(conn, &request);
	else
	{
		rc = execute_write(&request, conn->session, &node);
		if (request.type == ZKLOCK_ACT_MARK && conn->strayed && rc == ZKLOCK_RC_NO_NODE)
			COVER(PHANTOM_REFUSED);
		advance(conn, zk.zxid);
		message = add_message(conn, MESSAGE_REPLY);
		message->request = request;
		message->rc = rc;
		message->node = node;
	}
	return true;
}

/* The old server passes on one more request of the lost connection. */
bool
conn_apply_zombie(Conn *conn)
{
	Request request;

	if (conn->nzombies == 0)
		return false;
	request = conn->zombie[0];
	remove_request(conn->zombie, &conn->nzombies);
	execute_silently(conn, &request);
	return true;
}

bool
conn_catch_up(Conn *conn, int64_t steps)
{
	if (!conn->up || conn->deposed || conn->view == zk.zxid)
		return false;
	advance(conn, conn->view + steps < zk.zxid ? conn->view + steps : zk.zxid);
	return true;
}

/* ------------------------------------------------------------------------
 * A connection, client side
 * ------------------------------------------------------------------------
 */

/* The session and its first connection. */
void
conn_open(Conn *conn)
{
	conn->session = zk_new_session();
	conn->up = true;
	conn->deposed = false;
	conn->strayed = false;
	conn->view = conn->seen = zk.zxid;
	conn->nwatches = conn->nregistered = 0;
	conn->nc2s = conn->ns2c = conn->nzombies = conn->nlimbo = 0;
	add_message(conn, MESSAGE_CONNECTED);
}

static void
lose_request(Conn *conn, const Request *request)
{
	Message *message = add_message(conn, MESSAGE_REPLY);

	message->request = *request;
	message->rc = ZKLOCK_RC_LOST;
	message->zxid = 0;
}

/* A connection attempt fails, and what waited for it is lost. */
static void
lose_limbo(Conn *conn)
{
	for (int i = 0; i < conn->nlimbo; i++)
	{
		COVER(LIMBO_LOST);
		lose_request(conn, &conn->limbo[i]);
	}
	conn->nlimbo = 0;
}

/*
 * The client has not read yet that the connection was lost and made again.
 * The request goes out all the same, but client.c says that it is lost before
 * it says that there is a connection.
 */
static bool
lose_unaware(Conn *conn, const Request *request)
{
	for (int i = 0; i < conn->ns2c; i++)
	{
		if (conn->s2c[i].type == MESSAGE_CONNECTED)
		{
			Message lost;

			lose_request(conn, request);
			lost = conn->s2c[conn->ns2c - 1];
			memmove(conn->s2c + i + 1, conn->s2c + i,
					(size_t) (conn->ns2c - 1 - i) * sizeof(Message));
			conn->s2c[i] = lost;
			return true;
		}
	}
	return false;
}

void
conn_send(Conn *conn, const Request *request)
{
	if (conn->up)
	{
		Request sent = *request;

		sent.silent = lose_unaware(conn, request);
		add_request(conn->c2s, &conn->nc2s, &sent);
		return;
	}
	add_request(conn->limbo, &conn->nlimbo, request);
	if (once_in(2))
		lose_limbo(conn);
}

/*
 * The connection is lost.  Replies and events not yet received are gone, and
 * the library answers every request that is open, in order, before or after
 * it says that the connection is lost.
 */
void
conn_break(Conn *conn)
{
	static Message old[MAX_WIRE];
	int nold = conn->ns2c;
	bool first = once_in(2);

	memcpy(old, conn->s2c, (size_t) nold * sizeof(Message));
	conn->ns2c = 0;
	conn->up = false;
	conn->strayed = false;
	conn->nwatches = 0;

	if (first)
		add_message(conn, MESSAGE_DISCONNECTED);
	for (int i = 0; i < nold; i++)
	{
		if (old[i].type == MESSAGE_REPLY)
		{
			if (old[i].request.multi >= 0 && old[i].rc == ZKLOCK_RC_OK)
				COVER(SET_LOST_DONE);
			else if (old[i].request.type == ZKLOCK_ACT_CREATE && old[i].rc == ZKLOCK_RC_OK)
				COVER(CREATE_LOST_DONE);
			if (old[i].request.type == ZKLOCK_ACT_DELETE && old[i].rc == ZKLOCK_RC_OK)
				COVER(DELETE_LOST);
			lose_request(conn, &old[i].request);
		}
	}
	for (int i = 0; i < conn->nc2s; i++)
	{
		Request *request = &conn->c2s[i];

		if (!request->silent)
			lose_request(conn, request);
		request->silent = true;
		if (conn->deposed)
			continue; /* will never be executed */
		if (request->type == ZKLOCK_ACT_CREATE)
			COVER(CREATE_LOST_NOT_DONE);
		add_request(conn->zombie, &conn->nzombies, request);
	}
	conn->nc2s = 0;
	conn->deposed = false;
	if (!first)
		add_message(conn, MESSAGE_DISCONNECTED);
}

static bool
exists_by_name(const Node *node, int64_t zxid)
{
	for (int i = 0; i < zk.nnodes; i++)
	{
		if (zk.node[i].dir == node->dir && node_existed(i, zxid) &&
			strcmp(zk.node[i].name, node->name) == 0)
			return true;
	}
	return false;
}

/*
 * The ZooKeeper server was about to lead, and had creates of this session that the
 * others did not have.  Now another one leads, but this one has not forgotten.
 */
static void
keep_phantom(Conn *conn)
{
	for (int i = 0; i < conn->nzombies; i++)
	{
		const Request *request = &conn->zombie[i];
		int64_t next = zk.dir[request->dir].next_sequence;
		int node = -1;

		if (request->multi >= 0 || request->type != ZKLOCK_ACT_CREATE ||
			!dir_existed(request->dir, conn->view) || !zk.dir[request->dir].exists)
			continue;
		if (execute_write(request, conn->session, &node) == ZKLOCK_RC_OK)
		{
			zk.nalive--; /* it was the last */
			zk.dir[request->dir].next_sequence = next;
			zk.node[node].phantom = true;
			COVER(PHANTOM);
			TRACE("    phantom %s", zk.node[node].name);
		}
	}
}

/* Put the connection to some server and do what the library does then. */
static void
connect_to(Conn *conn, ReconnectKind kind, int64_t oldest)
{
	int64_t seen = conn->seen;

	conn->up = true;
	conn->deposed = kind == RECONNECT_DEPOSED;
	conn->view = oldest + (int64_t) (random_bits() % (uint64_t) (zk.zxid - oldest + 1));
	if (once_in(2))
		conn->view = zk.zxid;

	if (kind == RECONNECT_DEPOSED)
	{
		COVER(RECONNECT_DEPOSED);
		for (int i = 0; i < conn->nzombies; i++)
			conn->zombie[i].orphan = true;
	}
	else
	{
		if (kind == RECONNECT_SAME)
		{
			for (int i = 0; i < conn->nzombies; i++)
				add_request(conn->c2s, &conn->nc2s, &conn->zombie[i]);
		}
		else if (kind == RECONNECT_STRAYED)
		{
			keep_phantom(conn);
			conn->strayed = true;
		}
		conn->nzombies = 0;
	}

	add_message(conn, MESSAGE_CONNECTED);

	/* The library's watches: the server fires those that it missed. */
	conn->nwatches = 0;
	for (int i = 0; i < conn->nregistered; i++)
	{
		int node = conn->registered[i];
		bool deleted;

		if (is_dir_watch(node))
		{
			/* a data watch fires, too, where the directory is another one now */
			if (first_event(node, seen, &deleted) <= conn->view)
			{
				Message *message = add_message(conn, MESSAGE_WATCH);

				if (is_children_watch(node))
					COVER(DEMAND_MISSED);
				message->node = node;
				message->deleted = !dir_existed(dir_of_watch(node), conn->view);
			}
			else
				add_watch(conn->watch, &conn->nwatches, node);
			continue;
		}
		deleted = !node_existed(node, conn->view);
		if (deleted || (zk.node[node].mzxid > seen && zk.node[node].mzxid <= conn->view))
		{
			Message *message = add_message(conn, MESSAGE_WATCH);

			COVER(WATCH_MISSED);
			message->node = node;
			/* a watch is on a name */
			message->deleted = deleted && !exists_by_name(&zk.node[node], conn->view);
		}
		else
			add_watch(conn->watch, &conn->nwatches, node);
	}
}

void
conn_reconnect(Conn *conn, ReconnectKind kind)
{
	if (once_in(3))
		lose_limbo(conn);

	/*
	 * The library lets the others go on the new connection and would answer
	 * them late; client.c says before CONNECTED that they are lost.
	 */
	for (int i = 0; i < conn->nlimbo; i++)
	{
		lose_request(conn, &conn->limbo[i]);
		conn->limbo[i].silent = true;
	}
	connect_to(conn, kind, conn->seen);
	for (int i = 0; i < conn->nlimbo; i++)
	{
		COVER(LIMBO_CARRIED);
		add_request(conn->c2s, &conn->nc2s, &conn->limbo[i]);
	}
	conn->nlimbo = 0;
}

/*
 * A new worker takes the session over.  It has no requests, no watches and
 * has seen no zxid, so the follower may be behind all its predecessor saw.
 */
void
conn_resume(Conn *conn, ReconnectKind kind)
{
	if (conn->up)
		conn_break(conn);
	conn->ns2c = conn->nlimbo = conn->nregistered = 0;
	conn->seen = zk.session[conn->session].czxid;
	connect_to(conn, kind, conn->seen);
}

/* The client takes the next message. */
bool
conn_receive(Conn *conn, Message *message)
{
	if (conn->ns2c == 0)
		return false;
	*message = conn->s2c[0];
	memmove(conn->s2c, conn->s2c + 1, (size_t) --conn->ns2c * sizeof(Message));

	if (message->type == MESSAGE_WATCH)
		remove_watch(conn->registered, &conn->nregistered, message->node);
	else if (message->type == MESSAGE_REPLY && message->rc != ZKLOCK_RC_LOST)
	{
		if (message->zxid > conn->seen)
			conn->seen = message->zxid;
		if (message->rc == ZKLOCK_RC_OK &&
			(message->request.type == ZKLOCK_ACT_WATCH_OWN ||
			 message->request.type == ZKLOCK_ACT_WATCH ||
			 message->request.type == ZKLOCK_ACT_WATCH_DIR))
			add_watch(conn->registered, &conn->nregistered, message->node);
		if (message->rc == ZKLOCK_RC_OK && message->request.watch)
			add_watch(conn->registered, &conn->nregistered,
					  children_watch(message->request.dir));
	}
	return true;
}
