/*-------------------------------------------------------------------------
 *
 * ensemble.c
 *	  A model of a ZooKeeper ensemble and of connections to it, for simulators of rules
 *	  that read and write znodes.
 *
 * See ensemble.h for the picture.  What is modelled, because a client can be hurt by it:
 *
 *	 - reads are answered by a server that lags behind the leader; watches fire when that
 *	   server gets there, before any reply that shows as much;
 *	 - a write's reply brings the server up to that write, a sync up to the leader; a
 *	   deposed leader answers a sync all the same, and writes never;
 *	 - what a connection that breaks had under way is done, or done later, or never; on
 *	   the next connection to the same server it comes first;
 *	 - the next server may be behind what events told, not behind what replies told; for a
 *	   successor, which has heard none, it may be behind all;
 *	 - the library sets its watches again, and those fire whose znode has changed.
 *
 *-------------------------------------------------------------------------
 */
#include "ensemble.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_ZNODES	 8192
#define MAX_VALUES	 16384
#define MAX_ZXIDS	 16384
#define MAX_CHANGES	 32768
#define MAX_SESSIONS 4096
#define MAX_BYTES	 (2 * 1024 * 1024)
#define NBUCKETS	 256

typedef struct Change
{
	const Znode *node;
	bool set; /* else it was made, or deleted */
} Change;

enum
{
	COVERED_STALE,
	COVERED_DEPOSED,
	COVERED_DEPOSED_MEANWHILE,
	COVERED_DONE,
	COVERED_LATE,
	COVERED_FENCED,
	COVERED_UNKNOWN,
	/* if there are any */
	COVERED_SYNC,
	COVERED_WATCH
};

static const char *const covered_name[] = {"reads that were stale",
										   "connections to a leader that was deposed",
										   "leaders deposed under a connection",
										   "writes done whose reply was lost",
										   "writes done after the connection was lost",
										   "writes lost with a connection",
										   "writes of which nobody knows",
										   "syncs that a deposed leader answered",
										   "watches fired on reconnecting"};

Ensemble zk;

static Znode nodes[MAX_ZNODES];
static int nnodes;
static Value values[MAX_VALUES];
static int nvalues;
static Znode *bucket[NBUCKETS];
static Change changes[MAX_CHANGES];
static int nchanges[MAX_ZXIDS]; /* so many there are up to a zxid */
static int64_t session_end[MAX_SESSIONS];
static char bytes[MAX_BYTES];
static int nbytes;

/* All schedules'. */
static long covered[lengthof(covered_name)];
static bool syncs;
static bool watches;

/* ------------------------------------------------------------------------
 * The leader
 * ------------------------------------------------------------------------
 */

static Znode **
bucket_of(Path path)
{
	uint64_t hash = (uint64_t) path.kind * UINT64_C(0x9e3779b97f4a7c15) +
		(uint64_t) path.a * UINT64_C(0xbf58476d1ce4e5b9) +
		(uint64_t) path.b * UINT64_C(0x94d049bb133111eb);

	return &bucket[hash >> 56];
}

const void *
zk_keep(const void *data, int len)
{
	char *kept = bytes + nbytes;

	if (nbytes + len > MAX_BYTES)
		fail("too many bytes");
	memcpy(kept, data, (size_t) len);
	nbytes += (len + 7) & ~7;
	return kept;
}

static bool
was_there(const Znode *node, int64_t view)
{
	return node->czxid <= view && view < node->dzxid;
}

Znode *
zk_find(Path path, int64_t view)
{
	for (Znode *node = *bucket_of(path); node != NULL; node = node->same)
		if (was_there(node, view) && same_path(node->path, path))
			return node;
	return NULL;
}

static Znode *
first_there(Znode *node, int64_t view)
{
	while (node != NULL && !was_there(node, view))
		node = node->older;
	return node;
}

Znode *
zk_child(const Znode *parent, int64_t view)
{
	return first_there(parent->child, view);
}

Znode *
zk_next(const Znode *child, int64_t view)
{
	return first_there(child->older, view);
}

const Value *
zk_value(const Znode *node, int64_t view)
{
	const Value *value = node->value;

	while (value->mzxid > view)
		value = value->older;
	return value;
}

int64_t
zk_children_made(const Znode *node, int64_t view)
{
	int64_t n = node->next;

	for (const Znode *c = node->child; c != NULL && c->czxid > view; c = c->older)
		n--;
	return n;
}

static void
add_change(const Znode *node, bool set)
{
	int *n = &nchanges[zk.zxid];

	if (*n == MAX_CHANGES)
		fail("too many changes");
	changes[(*n)++] = (Change){.node = node, .set = set};
}

static void
begin_zxid(void)
{
	if (++zk.zxid == MAX_ZXIDS)
		fail("too many writes");
	nchanges[zk.zxid] = nchanges[zk.zxid - 1];
}

static void
set_value(Znode *node, const void *data, int len)
{
	Value *value = &values[nvalues++];

	if (nvalues == MAX_VALUES)
		fail("too many data");
	*value = (Value){.mzxid = zk.zxid,
					 .version = node->value == NULL ? 0 : node->value->version + 1,
					 .len = len,
					 .data = data,
					 .older = node->value};
	node->value = value;
}

static void
create(int session, Op *op)
{
	Znode *parent = zk_find(op->parent, zk.zxid);
	Znode **chain;
	Znode *node = &nodes[nnodes++];

	if (nnodes == MAX_ZNODES)
		fail("too many znodes");
	if (op->sequential)
		op->path.b = parent->next;
	chain = bucket_of(op->path);
	*node = (Znode){.path = op->path,
					.owner = op->ephemeral ? session : NOBODY,
					.czxid = zk.zxid,
					.dzxid = NEVER,
					.parent = parent,
					.older = parent->child,
					.same = *chain};
	set_value(node, op->data, op->len);
	*chain = parent->child = node;
	parent->next++;
	parent->nchildren++;
	add_change(node, false);
}

static void
end_node(Znode *node)
{
	node->dzxid = zk.zxid;
	node->parent->nchildren--;
	add_change(node, false);
}

/* The newest of the first n ops that makes the path or deletes it, or NULL. */
static const Op *
find_op(const Op *op, int n, Path path)
{
	while (--n >= 0)
		if ((op[n].type == OP_CREATE || op[n].type == OP_DELETE) &&
			same_path(op[n].path, path))
			return &op[n];
	return NULL;
}

static bool
is_there(const Op *op, int n, Path path)
{
	const Op *before = find_op(op, n, path);

	return before != NULL ? before->type == OP_CREATE : zk_find(path, zk.zxid) != NULL;
}

/* Has it children after the first n ops? */
static bool
is_empty(const Op *op, int n, Path path)
{
	const Znode *node = zk_find(path, zk.zxid);
	int left = node == NULL ? 0 : node->nchildren;

	while (--n >= 0)
	{
		const Znode *deleted = zk_find(op[n].path, zk.zxid);

		if (op[n].type == OP_CREATE)
			left += same_path(op[n].parent, path);
		else if (op[n].type == OP_DELETE && deleted != NULL)
			left -= deleted->parent == node;
	}
	return left == 0;
}

/* May the n-th be done after those before it? */
static ZkReply
check(const Op *ops, int n)
{
	const Op *op = &ops[n];
	const Znode *node = zk_find(op->path, zk.zxid);

	if (op->type == OP_CREATE)
	{
		if (!is_there(ops, n, op->parent))
			return ZKLOCK_REPLY_NO_NODE;
		return !op->sequential && is_there(ops, n, op->path) ? ZKLOCK_REPLY_EXISTS
															 : ZKLOCK_REPLY_OK;
	}
	if (!is_there(ops, n, op->path))
		return ZKLOCK_REPLY_NO_NODE;
	if (op->type == OP_DELETE)
		return is_empty(ops, n, op->path) ? ZKLOCK_REPLY_OK : ZKLOCK_REPLY_NOT_EMPTY;
	return op->version != ANY && op->version != node->value->version
		? ZKLOCK_REPLY_BAD_VERSION
		: ZKLOCK_REPLY_OK;
}

ZkReply
zk_write(int session, Op *op, int n, int *failed)
{
	for (*failed = 0; *failed < n; (*failed)++)
	{
		ZkReply rc = check(op, *failed);

		if (rc != ZKLOCK_REPLY_OK)
			return rc;
	}
	*failed = -1;
	begin_zxid();
	for (int i = 0; i < n; i++)
	{
		if (op[i].type == OP_CREATE)
			create(session, &op[i]);
		else if (op[i].type == OP_DELETE)
			end_node(zk_find(op[i].path, zk.zxid));
		else
		{
			Znode *node = zk_find(op[i].path, zk.zxid);

			set_value(node, op[i].data, op[i].len);
			add_change(node, true);
		}
	}
	return ZKLOCK_REPLY_OK;
}

void
zk_make(Path path, Path parent)
{
	Op op = {.type = OP_CREATE, .path = path, .parent = parent};
	int failed;

	(void) zk_write(NOBODY, &op, 1, &failed);
}

static void
end_tree(Znode *node)
{
	Znode *child;

	while ((child = zk_child(node, zk.zxid)) != NULL)
		end_tree(child);
	end_node(node);
}

void
zk_delete(Path path)
{
	Znode *node = zk_find(path, zk.zxid);

	if (node == NULL)
		return;
	begin_zxid();
	end_tree(node);
}

void
zk_end_session(int session)
{
	begin_zxid();
	session_end[session] = zk.zxid;
	for (int i = 0; i < nnodes; i++)
		if (nodes[i].owner == session && nodes[i].dzxid == NEVER)
			end_node(&nodes[i]);
}

bool
zk_lives(int session)
{
	return session_end[session] == NEVER;
}

void
zk_reset(void)
{
	memset(&zk, 0, sizeof(zk));
	memset(bucket, 0, sizeof(bucket));
	nnodes = nvalues = nbytes = 0;
	nchanges[0] = 0;
	nodes[nnodes++] = (Znode){.dzxid = NEVER};
	set_value(&nodes[0], NULL, 0);
	*bucket_of((Path){0}) = &nodes[0];
}

int
zk_report(void)
{
	int missing = report_counts("ensemble: ", covered, covered_name, COVERED_SYNC);

	if (syncs)
		missing += report_counts("ensemble: ", &covered[COVERED_SYNC],
								 &covered_name[COVERED_SYNC], 1);
	if (watches)
		missing += report_counts("ensemble: ", &covered[COVERED_WATCH],
								 &covered_name[COVERED_WATCH], 1);
	return missing;
}

/* ------------------------------------------------------------------------
 * A connection, server side
 * ------------------------------------------------------------------------
 */

static void
add_packet(Packet *wire, int *n, const Packet *packet)
{
	if (*n == MAX_WIRE)
		fail("too many packets");
	wire[(*n)++] = *packet;
}

static Packet
take_packet(Packet *wire, int *n)
{
	Packet first = wire[0];

	memmove(wire, wire + 1, sizeof(Packet) * (size_t)-- * n);
	return first;
}

static bool
concerns(const Change *change, const Watch *watch)
{
	const Znode *node = change->node;

	if (same_path(node->path, watch->path))
		return !watch->children || !change->set;
	return watch->children && !change->set && node->parent != NULL &&
		same_path(node->parent->path, watch->path);
}

static void
fire(Conn *conn, int i)
{
	Packet event = {.type = EVENT,
					.path = conn->watch[i].path,
					.children = conn->watch[i].children,
					.view = conn->view};

	conn->watch[i] = conn->watch[--conn->nwatches];
	add_packet(conn->s2c, &conn->ns2c, &event);
}

/* The server goes on to there. */
static void
advance(Conn *conn, int64_t to)
{
	while (conn->view < to)
	{
		int i = nchanges[conn->view++];

		for (; i < nchanges[conn->view]; i++)
			for (int w = conn->nwatches; --w >= 0;)
				if (concerns(&changes[i], &conn->watch[w]))
					fire(conn, w);
	}
}

bool
conn_catch_up(Conn *conn)
{
	if (!conn->up || conn->deposed || conn->view == zk.zxid)
		return false;
	advance(conn, conn->view + 1 + random_below((int) (zk.zxid - conn->view)));
	return true;
}

static void
add_watch(Conn *conn, Path path, bool children)
{
	for (int i = 0; i < conn->nwatches; i++)
		if (same_path(conn->watch[i].path, path) && conn->watch[i].children == children)
			return;
	if (conn->nwatches == MAX_WIRE)
		fail("too many watches");
	conn->watch[conn->nwatches++] = (Watch){.path = path, .children = children};
}

static void
read_at_server(Conn *conn, Packet *p)
{
	if (conn->view < zk.zxid)
		covered[COVERED_STALE]++;
	p->rc = zk_find(p->path, conn->view) != NULL ? ZKLOCK_REPLY_OK : ZKLOCK_REPLY_NO_NODE;
	if (p->watch && p->rc == ZKLOCK_REPLY_OK)
		add_watch(conn, p->path, p->type == CHILDREN);
}

static void
write_at_leader(Conn *conn, Packet *p)
{
	p->rc = zk_write(conn->session, p->op, p->nops, &p->failed);
	TRACE_LINE("    session %d%s: write %d.%d of %d (%" PRIu64 ") at %d: %d",
			   conn->session, p->silent ? ", late" : "", p->what, p->detail, p->who,
			   p->serial, p->at, p->rc);
	if (zk.observe != NULL)
		zk.observe(conn->session, p);
}

/* The server takes the next request.  False: it does not. */
bool
conn_apply(Conn *conn)
{
	Packet p;

	if (!conn->up || conn->cut || conn->nc2s == 0 || conn->ns2c > MAX_WIRE / 2)
		return false;
	if (conn->deposed && conn->c2s[0].type == WRITE)
		return false; /* it waits for a quorum that is no more */
	if (session_end[conn->session] <= (conn->c2s[0].type == WRITE ? zk.zxid : conn->view))
	{
		conn->cut = true;
		return true;
	}
	p = take_packet(conn->c2s, &conn->nc2s);
	p.failed = -1;
	p.rc = ZKLOCK_REPLY_OK;
	if (p.type == SYNC && conn->deposed)
		covered[COVERED_SYNC]++;
	else if (p.type == SYNC)
		advance(conn, zk.zxid);
	else if ((p.type != WRITE || p.nops > 0) && zk.refuse_every > 0 &&
			 once_in(zk.refuse_every))
		p.rc = ZKLOCK_REPLY_REFUSED;
	else if (p.type == WRITE)
		write_at_leader(conn, &p);
	else
		read_at_server(conn, &p);
	if (p.type == WRITE)
		advance(conn, zk.zxid);
	if (p.nops > 0 && zk.lose_every > 0 && once_in(zk.lose_every))
	{
		covered[COVERED_UNKNOWN]++;
		p.rc = ZKLOCK_REPLY_LOST;
	}
	p.view = conn->view;
	if (!p.silent)
		add_packet(conn->s2c, &conn->ns2c, &p);
	return true;
}

/* The old server passes on one more request of the lost connection. */
bool
conn_apply_zombie(Conn *conn)
{
	Packet p;

	if (conn->nzombies == 0)
		return false;
	p = take_packet(conn->zombie, &conn->nzombies);
	if (!zk_lives(conn->session))
		return true;
	covered[COVERED_LATE]++;
	write_at_leader(conn, &p);
	return true;
}

/* Of what is under way the first requests may be known to others, and be done by them. */
static void
leave_zombies(Conn *conn, int n)
{
	for (int i = 0; i < n && conn->nzombies < MAX_WIRE / 2; i++)
	{
		Packet zombie = conn->c2s[i];

		zombie.silent = true;
		if (zombie.type == WRITE)
			add_packet(conn->zombie, &conn->nzombies, &zombie);
	}
}

/* The leader of its server is deposed, and neither knows it. */
void
conn_depose(Conn *conn)
{
	if (!conn->up || conn->deposed)
		return;
	covered[COVERED_DEPOSED_MEANWHILE]++;
	conn->deposed = true;
	leave_zombies(conn, random_below(conn->nc2s + 1));
}

/* ------------------------------------------------------------------------
 * A connection, client side
 * ------------------------------------------------------------------------
 */

static void
connect_to(Conn *conn, int64_t oldest)
{
	if (oldest < zk.floor)
		oldest = zk.floor;
	conn->up = true;
	conn->view = zk.zxid;
	if (zk.lags && once_in(2))
		conn->view = oldest + random_below((int) (zk.zxid - oldest) + 1);
}

void
conn_open(Conn *conn)
{
	if (++zk.nsessions == MAX_SESSIONS)
		fail("too many sessions");
	conn->session = zk.nsessions;
	session_end[conn->session] = NEVER;
	conn->cut = conn->deposed = false;
	conn->nc2s = conn->ns2c = conn->nzombies = conn->nwatches = 0;
	connect_to(conn, 0);
	conn->seen = conn->view;
}

/* The library's watches on a new connection: the server fires those that it missed. */
static void
set_watches(Conn *conn)
{
	for (int i = conn->nwatches; --i >= 0;)
	{
		if (!conn->watch[i].heard)
			conn->watch[i] = conn->watch[--conn->nwatches];
		else if (conn->seen < conn->view)
		{
			for (int c = nchanges[conn->seen]; c < nchanges[conn->view]; c++)
				if (concerns(&changes[c], &conn->watch[i]))
				{
					covered[COVERED_WATCH]++;
					fire(conn, i);
					break;
				}
		}
	}
}

/*
 * The session goes on, at the same server, where what is under way comes first; or at
 * another, so that it is refused; or at a leader that was deposed, and then some of it
 * may be done for as long as that lasts.
 */
void
conn_reconnect(Conn *conn)
{
	connect_to(conn, conn->seen);
	if (zk.deposes && once_in(4))
	{
		covered[COVERED_DEPOSED]++;
		conn->deposed = true;
	}
	else
	{
		bool here = once_in(2);

		for (int i = 0; i < conn->nzombies && here; i++)
			add_packet(conn->c2s, &conn->nc2s, &conn->zombie[i]);
		if (!here)
			covered[COVERED_FENCED] += conn->nzombies;
		conn->nzombies = 0;
	}
	set_watches(conn);
}

void
conn_send(Conn *conn, const Packet *request)
{
	if (!conn->up)
		fail("a request without a connection");
	syncs |= request->type == SYNC;
	watches |= request->watch;
	add_packet(conn->c2s, &conn->nc2s, request);
}

/* Replies are lost, and events; each request is answered by that, in order. */
void
conn_break(Conn *conn)
{
	int n = conn->ns2c;

	conn->up = false;
	conn->ns2c = 0;
	for (int i = 0; i < n; i++)
	{
		Packet lost = conn->s2c[i];

		if (lost.type == EVENT)
			continue;
		if (lost.type == WRITE && lost.rc == ZKLOCK_REPLY_OK)
			covered[COVERED_DONE]++;
		lost.rc = ZKLOCK_REPLY_LOST;
		conn->s2c[conn->ns2c++] = lost;
	}
	for (int i = 0; i < conn->nc2s; i++)
	{
		conn->c2s[i].rc = ZKLOCK_REPLY_LOST;
		if (!conn->c2s[i].silent)
			add_packet(conn->s2c, &conn->ns2c, &conn->c2s[i]);
	}
	if (!conn->deposed)
		leave_zombies(conn, conn->nc2s);
	conn->nc2s = 0;
	conn->deposed = conn->cut = false;
}

/* A worker takes over that has asked for nothing, and has seen nothing. */
void
conn_succeed(Conn *conn)
{
	conn->ns2c = conn->nwatches = 0;
	conn->seen = 0;
}

/* The client takes the next reply, or event. */
bool
conn_receive(Conn *conn, Packet *reply)
{
	if (conn->ns2c == 0)
		return false;
	*reply = take_packet(conn->s2c, &conn->ns2c);
	if (reply->type == EVENT || reply->rc == ZKLOCK_REPLY_LOST)
		return true;
	if (reply->view > conn->seen)
		conn->seen = reply->view;
	for (int i = 0; i < conn->nwatches && reply->watch; i++)
		if (same_path(conn->watch[i].path, reply->path) &&
			conn->watch[i].children == (reply->type == CHILDREN))
			conn->watch[i].heard = true;
	return true;
}
