/*-------------------------------------------------------------------------
 *
 * queue_put_sim.c
 *	  Plays seeded schedules of puts into a queue against
 *	  src/protocol/queue_put_rules.c.
 *
 * Transactions of one server put items, in chunks, and commit or roll back.  Requests and
 * replies go through a pipe each.  Connections break with requests and replies on them,
 * which may have been done.  The next connection may be to a server of the ensemble that
 * lags behind, but not behind what the worker has seen; a worker that takes the place of
 * another has seen nothing, and hears no replies of before.  Directories are missing, the
 * base of ids is not known for a while, requests are refused, or answered by a leader that
 * does not know whether they were done, and somebody overwrites a chunk.  Then all is well.
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

#include "harness.h"
#include "queue_put_rules.h"

#define NPUTS	   4  /* at a time */
#define MAX_PUTS   64 /* of a schedule */
#define MAX_CHUNKS 3
#define MAX_PIPE   64
#define WILD	   400 /* steps */
#define NEVER	   INT64_MAX

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
	COVER_LOST_DONE,
	COVER_LAGS,
	COVER_UNPROVEN,
	COVER_DONE_BEFORE,
	COVER_SUCCESSOR,
	COVER_NO_DIRECTORY,
	COVER_NO_ITEMS,
	COVER_NO_BASE,
	COVER_OTHER_BASE,
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
											  "... with a request that was done",
											  "connections to a server that lags",
											  "chunks missing, but perhaps not",
											  "moves that were done before",
											  "successors",
											  "chunks without a directory",
											  "items without a directory",
											  "moves while the base is not known",
											  "moves with another base",
											  "requests refused",
											  "requests of which nobody knows",
											  "chunks damaged",
											  "pairs of puts in order"};

long coverage[NCOVERAGE];

typedef enum What
{
	CREATE,
	SETTLE,
	HEARTBEAT
} What;

typedef struct Message
{
	What what;
	ZkPutRequest request; /* SETTLE */
	int put;			  /* index of a life */
	int chunk;
	uint32_t round;
	bool good_base; /* MOVE: it names the base that there is */
	/* the reply */
	ZkReply rc;
	int failed;
	int64_t seen; /* as of this state of the ensemble */
} Message;

typedef struct Pipe
{
	Message message[MAX_PIPE];
	int n;
} Pipe;

/* A chunk, as the ensemble has it: there from one state to another. */
typedef struct Chunk
{
	int64_t made;
	int64_t gone;
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

static int64_t state; /* of the ensemble: transactions that it has done */
static bool puts_there;
static bool items_there;
static int made[MAX_PUTS]; /* puts of one chunk, in the order of their items */
static int nmade;

static bool connected;
static bool proven;
static int64_t view; /* what the server that we are connected to knows */
static int64_t seen; /* what the worker has seen of it */
static Pipe out;
static Pipe in;
static bool calm;

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static void
push(Pipe *pipe, const Message *message)
{
	if (pipe->n == MAX_PIPE)
		fail("a pipe is full");
	pipe->message[pipe->n++] = *message;
}

static Message
pop(Pipe *pipe)
{
	Message first = pipe->message[0];

	memmove(pipe->message, pipe->message + 1, sizeof(Message) * (size_t) --pipe->n);
	return first;
}

static bool
is_there(const Chunk *chunk, int64_t when)
{
	return chunk->made <= when && when < chunk->gone;
}

static ZkReply
create(Chunk *chunk)
{
	if (!puts_there)
	{
		COVER(NO_DIRECTORY);
		return ZKLOCK_REPLY_NO_NODE;
	}
	if (is_there(chunk, state))
	{
		COVER(THERE);
		return ZKLOCK_REPLY_EXISTS;
	}
	if (chunk->moved > 0)
		fail("a chunk whose items were made is created again");
	chunk->made = ++state;
	chunk->gone = NEVER;
	return ZKLOCK_REPLY_OK;
}

static void
move(Life *l, Chunk *chunk, Message *m)
{
	m->failed = 0;
	m->rc = ZKLOCK_REPLY_NO_NODE;
	if (!is_there(chunk, state))
	{
		COVER(DONE_BEFORE);
		return;
	}
	if (!m->good_base)
	{
		COVER(OTHER_BASE);
		m->failed = 1;
		m->rc = ZKLOCK_REPLY_REFUSED;
		return;
	}
	if (!items_there)
	{
		COVER(NO_ITEMS);
		l->refused = true;
		m->failed = 2;
		return;
	}
	m->failed = -1;
	m->rc = ZKLOCK_REPLY_OK;
	chunk->gone = ++state;
	if (++chunk->moved > 1)
		fail("items are made twice");
	if (!l->committed)
		fail("items are made of a transaction that has not committed");
	if (l->nchunks == 1)
		made[nmade++] = (int) (l - life);
}

static ZkReply
settle(Life *l, Chunk *chunk, Message *m)
{
	switch (m->request)
	{
		case ZKLOCK_SETTLE_READ:
			if (!is_there(chunk, view))
				return ZKLOCK_REPLY_NO_NODE;
			return chunk->damaged ? ZKLOCK_REPLY_EXISTS : ZKLOCK_REPLY_OK;
		case ZKLOCK_SETTLE_MOVE:
			move(l, chunk, m);
			return m->rc;
		case ZKLOCK_SETTLE_DROP:
			if (l->committed)
				fail("a chunk of a transaction that has committed is deleted");
			if (!is_there(chunk, state))
				return ZKLOCK_REPLY_NO_NODE;
			chunk->gone = ++state;
			return ZKLOCK_REPLY_OK;
		default:
			fail("request %d", m->request);
	}
}

/* The ensemble does what comes next.  Writes bring the server up to date. */
static Message
execute(void)
{
	Message m = pop(&out);
	Life *l = &life[m.put];
	bool reads = m.what == SETTLE && m.request == ZKLOCK_SETTLE_READ;

	m.rc = ZKLOCK_REPLY_OK;
	m.failed = -1;
	if (reads && once_in(2))
		view += random_below((int) (state - view) + 1);
	if (m.what != HEARTBEAT && !calm && once_in(20))
	{
		COVER(REFUSED);
		m.rc = ZKLOCK_REPLY_REFUSED;
		l->refused = true;
	}
	else if (m.what == CREATE)
		m.rc = create(&l->chunk[m.chunk]);
	else if (m.what == SETTLE)
		m.rc = settle(l, &l->chunk[m.chunk], &m);
	else
		state++;
	if (!reads)
		view = state;
	m.seen = view;
	/* its leader is deposed */
	if (m.what != HEARTBEAT && !calm && once_in(30))
	{
		COVER(UNKNOWN);
		m.rc = ZKLOCK_REPLY_LOST;
		l->refused = true;
	}
	return m;
}

/* Somebody writes into a chunk. */
static void
damage(void)
{
	Life *l = &life[random_below(MAX_PUTS)];
	Chunk *chunk = &l->chunk[random_below(MAX_CHUNKS)];

	if (!l->began || chunk->damaged || !is_there(chunk, state))
		return;
	COVER(DAMAGED);
	chunk->damaged = l->refused = true;
}

/* ------------------------------------------------------------------------
 * The worker
 * ------------------------------------------------------------------------
 */

static void
send(const Message *message)
{
	TRACE("put %d, chunk %d: request %d.%d", message->put, message->chunk, message->what,
		  message->request);
	push(&out, message);
}

static void
send_move(Message *m)
{
	Life *l = &life[m->put];

	m->request = ZKLOCK_SETTLE_MOVE;
	m->good_base = calm || !once_in(10);
	l->refused |= !m->good_base;
	if (!calm && once_in(10))
	{
		COVER(NO_BASE);
		l->refused = true;
		(void) zklock_put_reply(&l->put, m->request, ZKLOCK_REPLY_REFUSED, -1, proven);
		return;
	}
	send(m);
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
	int n = 0;

	if (!connected || out.n > MAX_PIPE / 2)
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
		Message m = {.what = SETTLE, .put = order[i], .chunk = l->put.settled};

		m.request = zklock_put_request(&l->put);
		if (m.request == ZKLOCK_SETTLE_FREE)
		{
			l->free = true;
			for (int c = 0; c < l->nchunks; c++)
			{
				const Chunk *chunk = &l->chunk[c];

				if (chunk->damaged)
					continue;
				if (l->committed && chunk->moved == 0)
					fail("put %d is settled, and items were not made", order[i]);
				if (is_there(chunk, state))
					fail("put %d is settled, and a chunk is there", order[i]);
			}
		}
		else if (m.request != ZKLOCK_SETTLE_NOTHING)
			send(&m);
	}
	if (once_in(10) || calm)
		send(&(Message){.what = HEARTBEAT});
}

static void
receive(void)
{
	Message m = pop(&in);
	Life *l = &life[m.put];

	TRACE("put %d, chunk %d: request %d.%d is answered by %d", m.put, m.chunk, m.what,
		  m.request, m.rc);
	if (seen < m.seen)
		seen = m.seen;
	switch (m.what)
	{
		case HEARTBEAT:
			proven = true;
			for (int i = 0; i < nlives; i++)
				zklock_put_tick(&life[i].put);
			break;
		case CREATE:
			if (m.round != l->put.round)
				COVER(STALE);
			l->denied |= m.rc == ZKLOCK_REPLY_REFUSED && m.round == l->put.round;
			puts_there |= zklock_put_created(&l->put, m.round, m.rc);
			break;
		case SETTLE:
			if (!l->put.open)
				fail("put %d: a reply that nobody waits for", m.put);
			if (m.request == ZKLOCK_SETTLE_READ && m.rc == ZKLOCK_REPLY_NO_NODE && !proven)
			{
				COVER(UNPROVEN);
				l->refused = true;
			}
			items_there |= m.rc == ZKLOCK_REPLY_NO_NODE && m.failed == 2;
			if (zklock_put_reply(&l->put, m.request, m.rc, m.failed, proven) ==
				ZKLOCK_SETTLE_MOVE)
				send_move(&m);
			break;
	}
}

/* With requests on it, some of which are done.  A successor hears nothing of them. */
static void
disconnect(bool successor)
{
	if (connected)
		COVER(LOST);
	for (int n = random_below(out.n + 1); n > 0; n--)
	{
		(void) execute();
		COVER(LOST_DONE);
	}
	for (int i = 0; i < out.n + in.n && !successor; i++)
	{
		const Message *m = i < in.n ? &in.message[i] : &out.message[i - in.n];
		Life *l = &life[m->put];

		if (m->what == CREATE)
			(void) zklock_put_created(&l->put, m->round, ZKLOCK_REPLY_LOST);
		else if (m->what == SETTLE && l->put.open)
			(void) zklock_put_reply(&l->put, m->request, ZKLOCK_REPLY_LOST, -1, proven);
	}
	out.n = in.n = 0;
	connected = proven = false;
	if (successor)
	{
		COVER(SUCCESSOR);
		seen = 0;
	}
	for (int i = 0; i < nlives; i++)
		if (!life[i].free)
			zklock_put_connection(&life[i].put);
}

static void
connect_again(void)
{
	connected = true;
	proven = false;
	view = calm ? state : seen + random_below((int) (state - seen) + 1);
	if (view < state)
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
	for (int i = 0; i < MAX_CHUNKS; i++)
		l->chunk[i].made = l->chunk[i].gone = NEVER;
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
			if (!is_there(&l->chunk[c], state))
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
		Message m = {.what = CREATE,
					 .put = (int) (l - life),
					 .chunk = l->posted++,
					 .round = l->put.round};

		zklock_put_posted(&l->put, m.chunk);
		if (connected && out.n < MAX_PIPE / 2)
			send(&m);
		else
			zklock_put_lost(&l->put);
	}
	else if (l->denied || (once_in(20) && !calm))
		end(l, false);
	else if (calm && out.n == 0 && in.n == 0)
		fail("put %d is never written", (int) (l - life));
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static void
step(void)
{
	Message m;

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
			if (connected && out.n > 0)
			{
				m = execute();
				push(&in, &m);
			}
			break;
		case 5:
			if (in.n > 0)
				receive();
			break;
		case 6:
			if (!connected)
				connect_again();
			else if (once_in(15))
				disconnect(once_in(3));
			else if (once_in(15))
				damage();
			else if (once_in(30))
				items_there = false;
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

void
play(uint64_t seed)
{
	random_state = seed;
	memset(life, 0, sizeof(life));
	nlives = ncommitted = nmade = 0;
	state = view = seen = 0;
	puts_there = once_in(2);
	items_there = once_in(2);
	connected = proven = calm = false;
	out.n = in.n = 0;
	for (int i = 0; i < WILD; i++)
		step();
	calm = true;
	for (int i = 0; i < 2000 && !all_free(); i++)
	{
		if (!connected)
			connect_again();
		for (int l = 0; l < nlives; l++)
			backend(&life[l]);
		work();
		while (out.n > 0)
		{
			Message m = execute();

			push(&in, &m);
		}
		while (in.n > 0)
			receive();
	}
	for (int i = 0; i < nlives; i++)
	{
		if (!life[i].free)
			fail("put %d is never settled", i);
		for (int c = 0; c < life[i].nchunks; c++)
			if (is_there(&life[i].chunk[c], state) && !life[i].chunk[c].damaged)
				fail("a chunk of put %d is left", i);
	}
	check_order();
}

const Simulator simulator = {
	.schedules = "schedules of puts",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
