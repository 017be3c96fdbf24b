/*-------------------------------------------------------------------------
 *
 * queue_put_sim.c
 *	  Plays seeded schedules of puts into a queue against
 *	  src/protocol/queue_put_rules.c.
 *
 * Transactions of one server put items, in chunks, and commit or roll back.  The ensemble
 * is that of ensemble.h: its servers lag, leaders are deposed, connections break with
 * requests on them that are done, or done later.  Sessions expire.  The worker forgets
 * what it has written.  A worker that takes the place of another has seen nothing, has
 * written nothing, and hears no replies of before.  Directories are
 * missing, requests are refused, or answered by a leader that does not know whether they
 * were done, and somebody overwrites a chunk.  Then all is well.
 *
 * Invariants:
 *
 *	 - A transaction commits only when all its chunks are there.
 *	 - No item is made twice, and none of a transaction that was rolled back.
 *	 - When a put is settled, its items were made, or its chunks are gone.
 *	 - Items of transactions that have committed are made in that order, unless one was
 *	   refused, or has several chunks.
 *	 - In the end everything is settled, and no chunk is left but what somebody has
 *	   overwritten.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ensemble.h"
#include "queue_put_rules.h"

#define NPUTS	   4  /* at a time */
#define MAX_PUTS   64 /* of a schedule */
#define MAX_CHUNKS 3
#define WILD	   400 /* steps */

/* a line of the trace */
#define TRACE(...) TRACE_LINE(__VA_ARGS__)

typedef enum Coverage
{
	COVER_COMMITTED,
	COVER_ABORTED,
	COVER_ABORTED_EARLY,
	COVER_ROUND,
	COVER_THERE,
	COVER_STALE,
	COVER_LOST,
	COVER_LAGS,
	COVER_UNPROVEN,
	COVER_DONE_BEFORE,
	COVER_KNOWN,
	COVER_SUCCESSOR,
	COVER_NO_DIRECTORY,
	COVER_NO_ITEMS,
	COVER_REFUSED,
	COVER_UNKNOWN,
	COVER_DAMAGED,
	COVER_ORDER,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {"puts committed",
											  "puts rolled back",
											  "... before all was written",
											  "further rounds",
											  "chunks that were there already",
											  "replies of an earlier round",
											  "connections lost",
											  "connections to a server that lags",
											  "chunks missing, but perhaps not",
											  "moves that were done before",
											  "moves without a read",
											  "successors",
											  "chunks without a directory",
											  "items without a directory",
											  "requests refused",
											  "requests of which nobody knows",
											  "chunks damaged",
											  "pairs of puts in order"};

long coverage[NCOVERAGE];

/* Paths: of this kind, and of a chunk the put's and its own number. */
enum
{
	PUTS = 1,
	ITEMS,
	CHUNK,
	ITEM
};
static const Path root = {0};
static const Path puts_dir = {PUTS, 0, 0};
static const Path items_dir = {ITEMS, 0, 0};

/* What a request is: "who" is a put, "at" its chunk. */
enum
{
	CREATE, /* serial: the round */
	SETTLE, /* detail: a ZkPutRequest */
	HEARTBEAT
};

typedef struct Chunk
{
	bool known; /* the worker has what it has written */
	bool damaged;
	int moved; /* times that its items were made */
} Chunk;

/* A transaction's. */
typedef struct Life
{
	bool began;
	bool free;
	bool committed;
	bool denied;  /* a create was refused */
	bool refused; /* something was, or it is damaged: nothing is said of its order */
	int nchunks;
	int posted;		  /* in this round */
	int committed_at; /* in the order of these */
	Chunk chunk[MAX_CHUNKS];
	ZkPut put;
} Life;

static Life life[MAX_PUTS];
static int nlives;
static int ncommitted;

static int made[MAX_PUTS]; /* puts of one chunk, in the order of their items */
static int nmade;

static Conn conn;
static bool proven;
static bool calm;

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static Path
chunk_path(int put, int chunk)
{
	return (Path){CHUNK, put, chunk};
}

static bool
is_there(int put, int chunk)
{
	return zk_find(chunk_path(put, chunk), zk.zxid) != NULL;
}

static void
observe_move(const Packet *p, Life *l)
{
	if (p->rc == ZKLOCK_REPLY_OK)
	{
		if (++l->chunk[p->at].moved > 1)
			fail("items are made twice");
		if (!l->committed)
			fail("items are made of a transaction that has not committed");
		if (l->nchunks == 1)
			made[nmade++] = p->who;
	}
	else if (p->failed == 0)
		COVER(DONE_BEFORE);
	else
	{
		COVER(NO_ITEMS);
		l->refused = true;
	}
}

/* A write was done, or refused. */
static void
observe(int session, const Packet *p)
{
	Life *l = &life[p->who];

	(void) session;
	if (p->what == CREATE && p->rc == ZKLOCK_REPLY_NO_NODE)
		COVER(NO_DIRECTORY);
	else if (p->what == CREATE && p->rc == ZKLOCK_REPLY_EXISTS)
		COVER(THERE);
	else if (p->what == CREATE && l->chunk[p->at].moved > 0)
		fail("a chunk whose items were made is created again");
	else if (p->what == SETTLE && p->detail == ZKLOCK_SETTLE_MOVE)
		observe_move(p, l);
	else if (p->what == SETTLE && l->committed)
		fail("a chunk of a transaction that has committed is deleted");
}

/* Somebody writes into a chunk. */
static void
damage(void)
{
	Life *l = &life[random_below(MAX_PUTS)];
	int chunk = random_below(MAX_CHUNKS);
	Op op = {.type = OP_SET, .path = chunk_path((int) (l - life), chunk), .version = ANY};
	int failed;

	op.len = 1;
	op.data = "x";
	if (!l->began || l->chunk[chunk].damaged ||
		zk_write(NOBODY, &op, 1, &failed) != ZKLOCK_REPLY_OK)
		return;
	COVER(DAMAGED);
	l->chunk[chunk].damaged = l->refused = true;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static void
send(int what, int put, int chunk, int detail)
{
	Packet p = {.type = WRITE, .what = what, .who = put, .at = chunk, .detail = detail};
	Path path = chunk_path(put, chunk);

	TRACE("put %d, chunk %d: request %d.%d", put, chunk, what, detail);
	p.serial = life[put].put.round;
	if (what == CREATE)
	{
		p.op[p.nops++] = (Op){.type = OP_CREATE, .path = path, .parent = puts_dir};
		life[put].chunk[chunk].known = true;
	}
	else if (what == SETTLE && detail == ZKLOCK_SETTLE_READ)
	{
		p.type = READ;
		p.path = path;
	}
	else if (what == SETTLE)
		p.op[p.nops++] = (Op){.type = OP_DELETE, .path = path};
	if (what == SETTLE && detail == ZKLOCK_SETTLE_MOVE)
		p.op[p.nops++] = (Op){.type = OP_CREATE,
							  .path = {.kind = ITEM},
							  .parent = items_dir,
							  .sequential = true};
	conn_send(&conn, &p);
}

static void
send_move(int put, int chunk)
{
	Life *l = &life[put];

	if (!conn.up)
		(void) zklock_put_reply(&l->put, ZKLOCK_SETTLE_READ, ZKLOCK_REPLY_LOST, -1, proven);
	else
		send(SETTLE, put, chunk, ZKLOCK_SETTLE_MOVE);
}

static int
compare_commits(int a, int b)
{
	return life[a].committed_at - life[b].committed_at;
}

/* As worker/queue_puts.c does: in the order of the commits. */
static void
work(void)
{
	int order[MAX_PUTS];
	bool behind = false;
	int n = 0;

	if (!conn.up || conn.nc2s > MAX_WIRE / 4)
		return;
	for (int i = 0; i < nlives; i++)
	{
		int at = n;

		if (life[i].free)
			continue;
		for (; at > 0 && compare_commits(i, order[at - 1]) < 0; at--)
			order[at] = order[at - 1];
		order[at] = i;
		n++;
	}
	for (int i = 0; i < n; i++)
	{
		Life *l = &life[order[i]];
		bool known = l->put.settled < l->nchunks && l->chunk[l->put.settled].known;
		ZkPutRequest request = zklock_put_request(&l->put, known, &behind);

		if (request == ZKLOCK_SETTLE_MOVE)
			COVER(KNOWN);
		if (request == ZKLOCK_SETTLE_FREE)
		{
			l->free = true;
			for (int c = 0; c < l->nchunks; c++)
			{
				if (l->chunk[c].damaged)
					continue;
				if (l->committed && l->chunk[c].moved == 0)
					fail("put %d is settled, and items were not made", order[i]);
				if (is_there(order[i], c))
					fail("put %d is settled, and a chunk is there", order[i]);
			}
		}
		else if (request != ZKLOCK_SETTLE_NOTHING)
			send(SETTLE, order[i], l->put.settled, (int) request);
	}
	if (once_in(10) || calm)
		send(HEARTBEAT, 0, 0, 0);
}

/* What has a chunk that was read? */
static ZkReply
read_chunk(const Packet *p)
{
	if (p->rc != ZKLOCK_REPLY_OK)
		return p->rc;
	return zk_value(zk_find(p->path, p->view), p->view)->len > 0 ? ZKLOCK_REPLY_EXISTS
																 : ZKLOCK_REPLY_OK;
}

static void
settled(const Packet *p)
{
	Life *l = &life[p->who];
	ZkPutRequest request = (ZkPutRequest) p->detail;
	ZkReply rc = request == ZKLOCK_SETTLE_READ ? read_chunk(p) : p->rc;

	if (request == ZKLOCK_SETTLE_READ && rc == ZKLOCK_REPLY_NO_NODE && !proven)
	{
		COVER(UNPROVEN);
		l->refused = true;
	}
	if (rc == ZKLOCK_REPLY_NO_NODE && p->failed == 1)
		zk_make(items_dir, root);
	if (zklock_put_reply(&l->put, request, rc, p->failed, proven) == ZKLOCK_SETTLE_MOVE)
		send_move(p->who, p->at);
}

static void
receive(const Packet *p)
{
	Life *l = &life[p->who];

	TRACE("put %d, chunk %d: request %d.%d is answered by %d", p->who, p->at, p->what,
		  p->detail, p->rc);
	if (p->what != HEARTBEAT && p->rc == ZKLOCK_REPLY_REFUSED)
	{
		COVER(REFUSED);
		l->refused = true;
	}
	if (conn.up && p->rc == ZKLOCK_REPLY_LOST)
	{
		COVER(UNKNOWN);
		l->refused = true;
	}
	if (p->what == HEARTBEAT && p->rc == ZKLOCK_REPLY_OK)
	{
		proven = true;
		for (int i = 0; i < nlives; i++)
			zklock_put_tick(&life[i].put);
	}
	else if (p->what == CREATE)
	{
		if (p->serial != l->put.round)
			COVER(STALE);
		l->denied |= p->rc == ZKLOCK_REPLY_REFUSED && p->serial == l->put.round;
		if (zklock_put_created(&l->put, (uint32_t) p->serial, p->rc))
			zk_make(puts_dir, root);
	}
	else if (p->what == SETTLE)
	{
		if (!l->put.open)
			fail("put %d: a reply that nobody waits for", p->who);
		settled(p);
	}
}

/* The worker drops what it has written of one put. */
static void
forget(Life *l)
{
	for (int c = 0; c < MAX_CHUNKS; c++)
		l->chunk[c].known = false;
}

/* A successor hears nothing of what is on its way. */
static void
disconnect(bool successor)
{
	Packet p;

	COVER(LOST);
	/* what was refused, and nobody hears of that */
	for (int i = 0; i < conn.ns2c; i++)
		life[conn.s2c[i].who].refused |= conn.s2c[i].rc == ZKLOCK_REPLY_REFUSED;
	conn_break(&conn);
	if (successor)
		conn_succeed(&conn);
	while (conn_receive(&conn, &p))
		receive(&p);
	proven = false;
	if (successor)
		COVER(SUCCESSOR);
	for (int i = 0; i < nlives; i++)
	{
		if (successor)
			forget(&life[i]);
		if (!life[i].free)
			zklock_put_connection(&life[i].put);
	}
}

static void
connect_again(void)
{
	proven = false;
	if (!zk_lives(conn.session))
		conn_open(&conn);
	else
		conn_reconnect(&conn);
	if (conn.view < zk.zxid)
		COVER(LAGS);
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

static void
begin(void)
{
	Life *l = &life[nlives];
	int busy = 0;

	for (int i = 0; i < nlives; i++)
		busy += !life[i].free;
	if (calm || nlives == MAX_PUTS || busy == NPUTS)
		return;
	nlives++;
	l->began = true;
	l->nchunks = 1 + random_below(MAX_CHUNKS);
	zklock_put_begin(&l->put);
}

static void
end(Life *l, bool commit)
{
	TRACE("put %d is %s", (int) (l - life), commit ? "committed" : "rolled back");
	if (!commit)
	{
		COVER(ABORTED);
		if (l->posted < l->nchunks || !zklock_put_is_written(&l->put))
			COVER(ABORTED_EARLY);
	}
	else
	{
		COVER(COMMITTED);
		for (int c = 0; c < l->nchunks; c++)
			if (!is_there((int) (l - life), c))
				fail("put %d commits, and chunk %d is not there", (int) (l - life), c);
		l->committed = true;
		l->committed_at = ++ncommitted;
	}
	zklock_put_end(&l->put, commit);
}

static void
backend(Life *l)
{
	if (l->put.state != ZKLOCK_PUT_WRITING)
		return;
	if (l->posted == l->nchunks && zklock_put_is_written(&l->put))
		end(l, !once_in(4));
	else if (l->put.again)
	{
		COVER(ROUND);
		zklock_put_repeat(&l->put);
		l->posted = 0;
		l->denied = false;
	}
	else if (l->posted < l->nchunks)
	{
		int chunk = l->posted++;

		zklock_put_posted(&l->put, chunk);
		if (conn.up && conn.nc2s < MAX_WIRE / 4)
			send(CREATE, (int) (l - life), chunk, 0);
		else
			zklock_put_lost(&l->put);
	}
	else if (l->denied || (once_in(20) && !calm))
		end(l, false);
	else if (calm && conn.nc2s == 0 && conn.ns2c == 0)
		fail("put %d is never written", (int) (l - life));
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static void
step(void)
{
	Packet p;

	step_count++;
	switch (random_below(7))
	{
		case 0:
			begin();
			break;
		case 1:
		case 2:
			if (nlives > 0)
				backend(&life[random_below(nlives)]);
			break;
		case 3:
			work();
			break;
		case 4:
			if (!conn_apply(&conn) && !once_in(3))
				(void) conn_apply_zombie(&conn);
			break;
		case 5:
			if (conn_receive(&conn, &p))
				receive(&p);
			break;
		case 6:
			if (!conn.up)
				connect_again();
			else if (conn.cut || once_in(15))
				disconnect(once_in(3));
			else if (once_in(15))
				damage();
			else if (once_in(4) && nlives > 0)
				forget(&life[random_below(nlives)]);
			else if (once_in(30))
				zk_delete(items_dir);
			else if (once_in(60))
				conn_depose(&conn);
			else if (once_in(60) && zk_lives(conn.session))
				zk_end_session(conn.session);
			else
				(void) conn_catch_up(&conn);
			break;
	}
}

static void
check_order(void)
{
	for (int i = 1; i < nmade; i++)
	{
		const Life *before = &life[made[i - 1]];
		const Life *after = &life[made[i]];

		if (before->refused || after->refused)
			continue;
		COVER(ORDER);
		if (before->committed_at > after->committed_at)
			fail("put %d has committed after put %d, and its items come before",
				 made[i - 1], made[i]);
	}
}

static bool
all_free(void)
{
	for (int i = 0; i < nlives; i++)
		if (!life[i].free)
			return false;
	return true;
}

/* All is well, and everything is settled. */
static void
calm_down(void)
{
	Packet p;

	calm = true;
	zk.lags = zk.deposes = false;
	zk.refuse_every = zk.lose_every = 0;
	if (conn.deposed)
		disconnect(false);
	for (int i = 0; i < 2000 && !all_free(); i++)
	{
		if (conn.cut)
			disconnect(false);
		if (!conn.up)
			connect_again();
		for (int l = 0; l < nlives; l++)
			backend(&life[l]);
		work();
		while (conn_apply(&conn))
			while (conn_receive(&conn, &p))
				receive(&p);
	}
}

void
play(uint64_t seed)
{
	random_state = seed;
	memset(life, 0, sizeof(life));
	nlives = ncommitted = nmade = 0;
	proven = calm = false;
	zk_reset();
	zk.observe = observe;
	zk.lags = zk.deposes = true;
	zk.refuse_every = 20;
	zk.lose_every = 30;
	if (once_in(2))
		zk_make(puts_dir, root);
	if (once_in(2))
		zk_make(items_dir, root);
	conn_open(&conn);
	for (int i = 0; i < WILD; i++)
		step();
	calm_down();
	for (int i = 0; i < nlives; i++)
	{
		if (!life[i].free)
			fail("put %d is never settled", i);
		for (int c = 0; c < life[i].nchunks; c++)
			if (is_there(i, c) && !life[i].chunk[c].damaged)
				fail("a chunk of put %d is left", i);
	}
	check_order();
}

const Simulator simulator = {
	.schedules = "schedules of puts",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
	.report = zk_report,
};
