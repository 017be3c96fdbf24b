/*-------------------------------------------------------------------------
 *
 * barrier_sim.c
 *	  Plays seeded schedules of sessions that meet, against src/protocol/barrier_rules.c.
 *
 * Sessions of several servers come to one barrier, leave it, are cancelled, and come
 * again the moment that they are let go.  Their servers' requests go through a pipe
 * to the ensemble and back, at their own pace.  The ensemble is a log of
 * transactions; each connection has a replica of its own that lags, but not behind
 * what its handle has seen, nor behind its own writes; a new handle may see anything
 * before it syncs.  Connections break with requests and replies on them, which were
 * done, or not, or are done later, as by a leader that was deposed; sessions expire,
 * workers are exchanged, nodes are deleted by hand, and so is the directory while
 * nobody is there.
 *
 * Invariants:
 *
 *	 - A round has as many parties as each of them waits for, all different; none of them
 *	   has been told that it left, and none is in two rounds.
 *	 - Who is told that he is let go is in a round; who is told that he left is in none,
 * and comes into none.
 *	 - Doubt only where so many rounds were opened meanwhile, or the directory went.
 *	 - When all are well, those who are in a round are told so, and there are not as many
 *	   others left as a round takes.  When all of them leave, too, nothing is left.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "barrier_rules.h"
#include "harness.h"

#define MAX_SERVERS	 4
#define NPARTIES	 4 /* of a server */
#define MAX_NODES	 64
#define MAX_LOG		 8192
#define MAX_PIPE	 64
#define MAX_CALLS	 4096
#define MAX_LIMBO	 4
#define MAX_GIVEN_UP 8

/* a line of the trace */
#define TRACE(format, ...) TRACE_LINE("%5ld " format, step_count, ##__VA_ARGS__)

typedef enum Coverage
{
	COVER_CAME,
	COVER_ROUNDS,
	COVER_ROUND3,
	COVER_ONE_SERVER,
	COVER_TOLD,
	COVER_AT_ONCE,
	COVER_LEFT,
	COVER_LEFT_TOO_LATE,
	COVER_NUMBERS,
	COVER_NUMBERS_TOO_LATE,
	COVER_CANCELLED,
	COVER_CANCELLED_IN_ROUND,
	COVER_DOUBT,
	COVER_QUICKER,
	COVER_MEMBER_LEFT,
	COVER_GIVEN_UP,
	COVER_REMNANT,
	COVER_LOST,
	COVER_LOST_DONE,
	COVER_LOST_LATER,
	COVER_EXPIRED,
	COVER_EXPIRED_IN_ROUND,
	COVER_WORKERS,
	COVER_BY_HAND,
	COVER_DIRECTORY,
	COVER_STALE,
	COVER_CALM,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {
	"calls",
	"rounds",
	"... of 3 and more",
	"... of one server alone",
	"calls let go",
	"... and back at once",
	"calls that left",
	"... and were in a round by then",
	"calls with another number",
	"... and were in a round by then",
	"calls cancelled",
	"... in a round",
	"calls in doubt",
	"rounds that somebody else opened first",
	"... that a member had left",
	"sessions given up",
	"nodes of these deleted",
	"connections lost",
	"... with a request that was done",
	"... or is done later",
	"sessions expired",
	"... of one that was in a round",
	"workers exchanged",
	"nodes deleted by hand",
	"directories deleted",
	"reads that were stale",
	"calm ends",
};

long coverage[NCOVERAGE];

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

typedef enum TxnType
{
	TXN_MKDIR,
	TXN_RMDIR,
	TXN_CREATE,
	TXN_DELETE,
	TXN_OPEN,
	TXN_CLOSE
} TxnType;

typedef struct Txn
{
	TxnType type;
	uint64_t session;
	ZkPartyNode node;
	int n;
	ZkPartyNode member[NPARTIES];
	char data[ZKLOCK_ROUNDS_MAX];
	int datalen;
	int64_t life;
} Txn;

typedef struct Tree
{
	bool exists;
	int64_t life;
	int32_t version;
	int64_t sequence;
	char data[ZKLOCK_ROUNDS_MAX];
	int datalen;
	int n;
	ZkPartyNode node[MAX_NODES];
} Tree;

static Tree head;
static int nlog;
static Txn txn_log[MAX_LOG];

typedef enum RequestType
{
	REQ_MKDIR,
	REQ_READ,
	REQ_SYNC,
	REQ_LIST,
	REQ_CREATE,
	REQ_DELETE,
	REQ_OPEN,
	REQ_BEAT
} RequestType;

typedef struct Request
{
	RequestType type;
	uint64_t session;
	uint64_t id[2];
	ZkPartyNode node; /* CREATE, DELETE */
	int n;
	ZkPartyNode member[NPARTIES];
	int32_t version;
	char data[ZKLOCK_ROUNDS_MAX];
	int datalen;
} Request;

typedef struct Reply
{
	ZkBarrierEventType type;
	ZkLockRc rc;
	uint64_t id[2];
	int64_t sequence;
	int64_t life;
	int32_t version;
	char data[ZKLOCK_ROUNDS_MAX];
	int datalen;
	int n;
	ZkPartyNode node[MAX_NODES];
} Reply;

/* A call, for as long as the schedule lasts. */
typedef struct Call
{
	int32_t parties;
	int round;	   /* 0: none */
	bool told_off; /* it was told that it is in none */
	bool cancelled;
} Call;

typedef struct Server
{
	uint64_t session;
	bool alive;	 /* the session, in the ensemble */
	bool handle; /* the worker's client knows a session */
	bool connected;
	int seen; /* transactions that the handle has seen */
	/* the connection */
	int applied;
	Tree replica;
	bool watch;
	int nout;
	Request out[MAX_PIPE];
	int nin;
	Reply in[MAX_PIPE];
	int nlimbo;
	Request limbo[MAX_LIMBO];
	bool beat; /* one is out */
	ZkBarrier b;
	ZkParty party[NPARTIES];
	bool used[NPARTIES];
	int beats;
} Server;

static int nservers;
static Server server[MAX_SERVERS];
static uint64_t last_session;
static int ngiven_up;
static uint64_t given_up[MAX_GIVEN_UP];
static int ncalls;
static Call calls[MAX_CALLS];
static int nrounds;
static int nlives;
static bool calm;
static bool leaving;

/* What a schedule is like. */
static int numbers; /* of parties: the least */
static bool mixed, faults, rude, lagging, deposed;
static int come_every, leave_every;

static int
number_of(const Server *s)
{
	return (int) (s - server);
}

static Call *
call_of(const uint64_t id[2])
{
	return &calls[id[1]];
}

static int
find_node(const Tree *tree, const ZkPartyNode *node)
{
	for (int i = 0; i < tree->n; i++)
		if (memcmp(&tree->node[i], node, sizeof(*node)) == 0)
			return i;
	return -1;
}

static void
remove_node(Tree *tree, int at)
{
	tree->n--;
	memmove(&tree->node[at], &tree->node[at + 1],
			sizeof(tree->node[0]) * (size_t) (tree->n - at));
}

static void
apply(Tree *tree, const Txn *txn)
{
	int at;

	switch (txn->type)
	{
		case TXN_MKDIR:
			memset(tree, 0, sizeof(*tree));
			tree->exists = true;
			tree->life = txn->life;
			break;
		case TXN_RMDIR:
			tree->exists = false;
			break;
		case TXN_CREATE:
			tree->node[tree->n++] = txn->node;
			tree->sequence = txn->node.sequence + 1;
			break;
		case TXN_DELETE:
			at = find_node(tree, &txn->node);
			if (at >= 0)
				remove_node(tree, at);
			break;
		case TXN_OPEN:
			memcpy(tree->data, txn->data, (size_t) txn->datalen);
			tree->datalen = txn->datalen;
			tree->version++;
			for (int i = 0; i < txn->n; i++)
				if ((at = find_node(tree, &txn->member[i])) >= 0)
					remove_node(tree, at);
			break;
		case TXN_CLOSE:
			for (int i = tree->n; --i >= 0;)
				if (tree->node[i].session == txn->session)
					remove_node(tree, i);
			break;
	}
}

static Txn *
add_txn(TxnType type)
{
	if (nlog == MAX_LOG)
		fail("the log is full");
	memset(&txn_log[nlog], 0, sizeof(Txn));
	txn_log[nlog].type = type;
	return &txn_log[nlog];
}

static void
commit_txn(void)
{
	apply(&head, &txn_log[nlog]);
	nlog++;
}

/* ------------------------------------------------------------------------
 * What is true
 * ------------------------------------------------------------------------
 */

static void
check_round(const Txn *txn)
{
	bool one_server = true;

	nrounds++;
	COVER(ROUNDS);
	if (txn->n > 2)
		COVER(ROUND3);
	for (int i = 0; i < txn->n; i++)
	{
		Call *c = call_of(txn->member[i].id);

		if (c->parties != txn->n)
			fail("a round of %d has call %" PRIu64 ", which waits for %d", txn->n,
				 txn->member[i].id[1], c->parties);
		if (c->round == nrounds)
			fail("call %" PRIu64 " is twice in round %d", txn->member[i].id[1], nrounds);
		if (c->round != 0)
			fail("call %" PRIu64 " is in round %d and in round %d", txn->member[i].id[1],
				 c->round, nrounds);
		if (c->told_off)
			fail("call %" PRIu64 " is in round %d, and was told that it had left",
				 txn->member[i].id[1], nrounds);
		c->round = nrounds;
		one_server &= txn->member[i].session == txn->member[0].session;
		if (c->cancelled)
			COVER(CANCELLED_IN_ROUND);
	}
	if (one_server)
		COVER(ONE_SERVER);
	TRACE("round %d is open", nrounds);
}

/* ------------------------------------------------------------------------
 * Connections
 * ------------------------------------------------------------------------
 */

/* One more in a pipe. */
static void *
extend(void *pipe, int *n, size_t size)
{
	if (*n == MAX_PIPE)
		fail("too many messages");
	return memset((char *) pipe + (size_t) (*n)++ * size, 0, size);
}

static Reply *
add_reply(Server *s, ZkBarrierEventType type)
{
	Reply *r = extend(s->in, &s->nin, sizeof(*r));

	r->type = type;
	return r;
}

/* The replica goes on to there. */
static void
catch_up(Server *s, int to)
{
	for (; s->applied < to; s->applied++)
	{
		const Txn *txn = &txn_log[s->applied];

		apply(&s->replica, txn);
		if (s->watch && (txn->type == TXN_OPEN || txn->type == TXN_RMDIR))
		{
			s->watch = false;
			(void) add_reply(s, ZKLOCK_BARRIER_CHANGED);
		}
	}
}

/* What the leader makes of a write.  The sequence number goes to the request's node. */
static ZkLockRc
execute_write(Request *r)
{
	Txn *txn;

	switch (r->type)
	{
		case REQ_MKDIR:
			if (head.exists)
				return ZKLOCK_RC_EXISTS;
			txn = add_txn(TXN_MKDIR);
			txn->life = ++nlives;
			commit_txn();
			return ZKLOCK_RC_OK;
		case REQ_CREATE:
			if (!head.exists)
				return ZKLOCK_RC_NO_NODE;
			if (head.n == MAX_NODES)
				fail("too many nodes");
			for (int i = 0; i < head.n; i++)
				if (head.node[i].id[1] == r->node.id[1])
					fail("call %" PRIu64 " is there twice", r->node.id[1]);
			txn = add_txn(TXN_CREATE);
			r->node.sequence = head.sequence;
			txn->node = r->node;
			commit_txn();
			TRACE("call %" PRIu64 " is there as %" PRId64, r->node.id[1], r->node.sequence);
			return ZKLOCK_RC_OK;
		case REQ_DELETE:
			if (find_node(&head, &r->node) < 0)
				return ZKLOCK_RC_NO_NODE;
			txn = add_txn(TXN_DELETE);
			txn->node = r->node;
			commit_txn();
			return ZKLOCK_RC_OK;
		case REQ_OPEN:
			if (!head.exists)
				return ZKLOCK_RC_NO_NODE;
			if (head.version != r->version)
			{
				COVER(QUICKER);
				return ZKLOCK_RC_NO_NODE;
			}
			for (int i = 0; i < r->n; i++)
				if (find_node(&head, &r->member[i]) < 0)
				{
					COVER(MEMBER_LEFT);
					return ZKLOCK_RC_NO_NODE;
				}
			txn = add_txn(TXN_OPEN);
			txn->n = r->n;
			memcpy(txn->member, r->member, sizeof(txn->member));
			memcpy(txn->data, r->data, (size_t) r->datalen);
			txn->datalen = r->datalen;
			check_round(txn);
			commit_txn();
			return ZKLOCK_RC_OK;
		default:
			return ZKLOCK_RC_OK;
	}
}

/* What a leader that was deposed had hidden is there before any later write. */
static void
end_limbo(Server *s)
{
	for (int i = 0; i < s->nlimbo; i++)
		(void) execute_write(&s->limbo[i]);
	s->nlimbo = 0;
}

static const ZkBarrierEventType reply_type[] = {
	[REQ_MKDIR] = ZKLOCK_BARRIER_MADE_DIR, [REQ_READ] = ZKLOCK_BARRIER_READ,
	[REQ_SYNC] = ZKLOCK_BARRIER_NEED,	   [REQ_LIST] = ZKLOCK_BARRIER_LISTED,
	[REQ_CREATE] = ZKLOCK_BARRIER_CREATED, [REQ_DELETE] = ZKLOCK_BARRIER_DELETED,
	[REQ_OPEN] = ZKLOCK_BARRIER_OPENED,	   [REQ_BEAT] = ZKLOCK_BARRIER_TICK,
};

/* The first request of a connection. */
static void
execute(Server *s)
{
	Request r = s->out[0];
	Reply *reply;
	ZkLockRc rc = ZKLOCK_RC_OK;

	if (s->nin > MAX_PIPE - 16)
		return;
	memmove(s->out, s->out + 1, sizeof(Request) * (size_t) --s->nout);
	switch (r.type)
	{
		case REQ_READ:
		case REQ_LIST:
			if (s->applied < nlog)
				COVER(STALE);
			reply = add_reply(s, reply_type[r.type]);
			reply->rc = s->replica.exists ? ZKLOCK_RC_OK : ZKLOCK_RC_NO_NODE;
			if (!s->replica.exists)
				return;
			reply->life = s->replica.life;
			reply->version = s->replica.version;
			reply->datalen = s->replica.datalen;
			memcpy(reply->data, s->replica.data, (size_t) s->replica.datalen);
			reply->n = s->replica.n;
			memcpy(reply->node, s->replica.node, sizeof(reply->node));
			if (r.type == REQ_READ)
				s->watch = true;
			return;
		case REQ_SYNC:
			/* a leader that was deposed may have answered it */
			if (!(deposed && once_in(3)))
			{
				if (!deposed)
					end_limbo(s);
				catch_up(s, nlog);
			}
			return;
		default:
			if (s->alive)
			{
				end_limbo(s);
				rc = execute_write(&r);
			}
			catch_up(s, nlog);
			reply = add_reply(s, reply_type[r.type]);
			reply->rc = rc;
			reply->id[0] = r.id[0];
			reply->id[1] = r.id[1];
			reply->sequence = r.node.sequence;
	}
}

static Request *
add_request(Server *s, RequestType type)
{
	Request *r = extend(s->out, &s->nout, sizeof(*r));

	r->type = type;
	r->session = s->session;
	return r;
}

static void
send_action(void *arg, const ZkBarrierAction *a)
{
	Server *s = arg;
	Request *r;

	if (!s->connected)
		fail("server %d sends without a connection", number_of(s));
	switch (a->type)
	{
		case ZKLOCK_BARRIER_MAKE_DIR:
			(void) add_request(s, REQ_MKDIR);
			break;
		case ZKLOCK_BARRIER_READ_IT:
			if (a->sync)
				(void) add_request(s, REQ_SYNC);
			(void) add_request(s, REQ_READ);
			break;
		case ZKLOCK_BARRIER_LIST:
			(void) add_request(s, REQ_LIST);
			break;
		case ZKLOCK_BARRIER_CREATE:
			r = add_request(s, REQ_CREATE);
			memcpy(r->id, a->party->id, sizeof(r->id));
			memcpy(r->node.id, a->party->id, sizeof(r->id));
			r->node.session = s->session;
			r->node.parties = a->party->parties;
			break;
		case ZKLOCK_BARRIER_DELETE:
			r = add_request(s, REQ_DELETE);
			if (a->party != NULL)
				memcpy(r->id, a->party->id, sizeof(r->id));
			else
				COVER(REMNANT);
			/* the padding, too, as nodes are compared */
			memcpy(r->node.id, a->nodes->id, sizeof(r->id));
			r->node.session = a->nodes->session;
			r->node.parties = a->nodes->parties;
			r->node.sequence = a->nodes->sequence;
			break;
		case ZKLOCK_BARRIER_OPEN:
			r = add_request(s, REQ_OPEN);
			r->n = a->nnodes;
			memcpy(r->member, a->nodes, sizeof(ZkPartyNode) * (size_t) a->nnodes);
			r->version = a->version;
			r->datalen = a->datalen;
			memcpy(r->data, a->data, (size_t) a->datalen);
			break;
	}
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

static void
tell(Server *s, int i)
{
	ZkParty *p = &s->party[i];
	Call *c = call_of(p->id);
	int64_t newest;
	int64_t oldest;

	switch (p->end)
	{
		case ZKLOCK_PARTY_OPENED:
			if (c->round == 0)
				fail("call %" PRIu64 " is let go, and in no round", p->id[1]);
			COVER(TOLD);
			if (p->leave)
				COVER(LEFT_TOO_LATE);
			if (p->reason == ZKLOCK_PARTY_NUMBERS)
				COVER(NUMBERS_TOO_LATE);
			break;
		case ZKLOCK_PARTY_LEFT:
		case ZKLOCK_PARTY_NUMBERS:
			if (c->round != 0)
				fail("call %" PRIu64 " is told that it left, and is in round %d",
					 p->id[1], c->round);
			if (p->end == ZKLOCK_PARTY_NUMBERS)
			{
				COVER(NUMBERS);
				if (p->other == p->parties)
					fail("call %" PRIu64 " waits for no other number", p->id[1]);
			}
			else
			{
				COVER(LEFT);
				if (!p->leave)
					fail("call %" PRIu64 " left by itself", p->id[1]);
			}
			c->told_off = true;
			break;
		case ZKLOCK_PARTY_DOUBT:
			COVER(DOUBT);
			/* what it had seen may have been out of date */
			(void) zklock_barrier_rounds_parse(head.data, (size_t) head.datalen, &newest,
											   &oldest);
			if (p->life == head.life && p->round + 1 >= oldest)
				fail("call %" PRIu64 " is in doubt after %d rounds", p->id[1],
					 (int) (newest - p->round));
			break;
		default:
			fail("call %" PRIu64 " ended with %d", p->id[1], (int) p->end);
	}
	TRACE("call %" PRIu64 " ends: %d", p->id[1], (int) p->end);
	s->used[i] = false;
}

static void
feed(Server *s, ZkBarrierEvent *event)
{
	ZkParty *party[NPARTIES];
	int n = 0;

	for (int i = 0; i < NPARTIES; i++)
		if (s->used[i])
			party[n++] = &s->party[i];
	event->session = s->session;
	TRACE("server %d: event %d", number_of(s), (int) event->type);
	zklock_barrier_step(&s->b, party, n, event, send_action, s);
	for (int i = 0; i < NPARTIES; i++)
		if (s->used[i] && s->party[i].state == ZKLOCK_PARTY_OVER)
			tell(s, i);
}

static void
feed_type(Server *s, ZkBarrierEventType type)
{
	ZkBarrierEvent event = {.type = type};

	feed(s, &event);
}

static void
deliver(Server *s)
{
	static Reply r;
	ZkBarrierEvent event = {0};

	r = s->in[0];
	memmove(s->in, s->in + 1, sizeof(Reply) * (size_t) --s->nin);
	if (r.type == ZKLOCK_BARRIER_TICK)
		s->beat = false;
	event.type = r.type;
	event.rc = r.rc;
	event.id[0] = r.id[0];
	event.id[1] = r.id[1];
	event.sequence = r.sequence;
	event.life = r.life;
	event.version = r.version;
	event.data = r.data;
	event.datalen = r.datalen;
	event.nodes = r.node;
	event.nnodes = r.n;
	feed(s, &event);
}

static void
disconnect(Server *s)
{
	int nout = s->nout;
	static Request out[MAX_PIPE];
	static Reply in[MAX_PIPE];
	int nin = s->nin;

	COVER(LOST);
	TRACE("server %d is cut off", number_of(s));
	memcpy(out, s->out, sizeof(Request) * (size_t) nout);
	memcpy(in, s->in, sizeof(Reply) * (size_t) nin);
	s->seen = s->applied;
	s->nout = s->nin = 0;
	s->beat = s->connected = s->watch = false;
	feed_type(s, ZKLOCK_BARRIER_DISCONNECTED);
	/* answers that were under way, and requests, are answered as lost */
	for (int i = 0; i < nin; i++)
	{
		ZkBarrierEvent event = {.type = in[i].type, .rc = ZKLOCK_RC_LOST};

		memcpy(event.id, in[i].id, sizeof(event.id));
		if (in[i].type != ZKLOCK_BARRIER_CHANGED && in[i].type != ZKLOCK_BARRIER_TICK)
			feed(s, &event);
	}
	for (int i = 0; i < nout; i++)
	{
		ZkBarrierEvent event = {.type = reply_type[out[i].type], .rc = ZKLOCK_RC_LOST};

		memcpy(event.id, out[i].id, sizeof(event.id));
		if (out[i].type != REQ_SYNC && out[i].type != REQ_BEAT)
			feed(s, &event);
	}
	/* what was sent first may have been done */
	for (int i = 0; i < nout && s->alive; i++)
	{
		if (out[i].type == REQ_READ || out[i].type == REQ_LIST || out[i].type == REQ_SYNC)
			continue;
		if (deposed && s->nlimbo < MAX_LIMBO && once_in(2))
		{
			s->limbo[s->nlimbo++] = out[i];
			COVER(LOST_LATER);
		}
		else if (s->nlimbo == 0 && once_in(2))
		{
			(void) execute_write(&out[i]);
			COVER(LOST_DONE);
		}
		else
			break;
	}
}

/* The end of a session: all of its nodes go, before anybody can hear of it. */
static void
close_session(uint64_t session)
{
	Txn *txn = add_txn(TXN_CLOSE);

	txn->session = session;
	commit_txn();
}

static void
expire(Server *s)
{
	COVER(EXPIRED);
	TRACE("the session of server %d ends", number_of(s));
	s->alive = false;
	s->nlimbo = 0;
	close_session(s->session);
	for (int i = 0; i < NPARTIES; i++)
		if (s->used[i] && call_of(s->party[i].id)->round != 0)
			COVER(EXPIRED_IN_ROUND);
}

/* The server forgets its session, which the ensemble does not hear. */
static void
give_up(Server *s)
{
	COVER(GIVEN_UP);
	TRACE("server %d gives up its session", number_of(s));
	s->alive = false;
	s->nlimbo = 0;
	given_up[ngiven_up++] = s->session;
}

static void
start_connection(Server *s, int from)
{
	s->connected = true;
	s->watch = false;
	s->nout = s->nin = 0;
	s->applied = 0;
	memset(&s->replica, 0, sizeof(s->replica));
	catch_up(s, from);
	if (!lagging)
		catch_up(s, nlog);
}

static void
new_session(Server *s)
{
	s->session = ++last_session;
	s->alive = true;
	start_connection(s, random_below(nlog + 1));
	feed_type(s, ZKLOCK_BARRIER_RESUMED);
}

static void
reconnect(Server *s, bool worker)
{
	if (!s->alive)
	{
		s->session = 0;
		feed_type(s, ZKLOCK_BARRIER_SESSION_LOST);
		new_session(s);
		return;
	}
	if (worker)
	{
		COVER(WORKERS);
		start_connection(s, random_below(nlog + 1));
		zklock_barrier_init(&s->b, s->session, false);
		feed_type(s, ZKLOCK_BARRIER_RESUMED);
	}
	else
	{
		start_connection(s, s->seen + random_below(nlog - s->seen + 1));
		feed_type(s, ZKLOCK_BARRIER_CONNECTED);
	}
}

/* ------------------------------------------------------------------------
 * Schedules
 * ------------------------------------------------------------------------
 */

static void
come(Server *s, int i, int32_t parties)
{
	ZkParty *p = &s->party[i];

	if (ncalls == MAX_CALLS)
		return;
	memset(p, 0, sizeof(*p));
	p->id[0] = 7;
	p->id[1] = (uint64_t) ncalls;
	p->parties = parties;
	calls[ncalls++] = (Call){.parties = p->parties};
	s->used[i] = true;
	COVER(CAME);
	TRACE("call %" PRIu64 " of server %d comes, for %d", p->id[1], number_of(s),
		  p->parties);
	feed_type(s, ZKLOCK_BARRIER_NEED);
}

static int32_t
some_number(void)
{
	return numbers + (mixed && once_in(4) ? 1 : 0);
}

static void
go(Server *s, int i)
{
	ZkParty *p = &s->party[i];

	if (p->leave)
		return;
	p->leave = true;
	if (once_in(2) && !leaving)
	{
		call_of(p->id)->cancelled = true;
		COVER(CANCELLED);
	}
	TRACE("call %" PRIu64 " is to leave", p->id[1]);
	feed_type(s, ZKLOCK_BARRIER_NEED);
}

static void
beat(Server *s)
{
	if (s->connected && !s->beat && s->nout < MAX_PIPE / 2)
	{
		s->beat = true;
		s->beats++;
		(void) add_request(s, REQ_BEAT);
	}
}

static void
fault(Server *s)
{
	Txn *txn;

	switch (random_below(rude ? 8 : 6))
	{
		case 0:
		case 1:
		case 2:
			if (s->connected)
				disconnect(s);
			break;
		case 3:
			/* nobody there hears of it at once */
			if (ngiven_up > 0 && once_in(2))
				close_session(given_up[--ngiven_up]);
			else if (s->alive && !s->connected && ngiven_up < MAX_GIVEN_UP && once_in(4))
				give_up(s);
			else if (s->alive && !s->connected)
				expire(s);
			break;
		case 4:
			if (s->connected)
				disconnect(s);
			if (s->alive)
				reconnect(s, true);
			break;
		case 5:
			if (head.exists && head.n == 0)
			{
				txn = add_txn(TXN_RMDIR);
				commit_txn();
				nlives++;
				COVER(DIRECTORY);
				TRACE("the directory is deleted");
			}
			break;
		default:
			if (head.exists && head.n > 0)
			{
				txn = add_txn(TXN_DELETE);
				txn->node = head.node[random_below(head.n)];
				commit_txn();
				COVER(BY_HAND);
				TRACE("a node is deleted by hand");
			}
	}
}

static void
step(void)
{
	Server *s = &server[random_below(nservers)];
	int i = random_below(NPARTIES);

	step_count++;
	switch (random_below(8))
	{
		case 0:
		case 1:
			if (s->connected && s->nout > 0)
				execute(s);
			break;
		case 2:
		case 3:
			if (s->connected && s->nin > 0)
			{
				bool was = s->used[i];

				deliver(s);
				/* a fast one */
				if (was && !s->used[i] && !calm && once_in(2))
				{
					COVER(AT_ONCE);
					come(s, i, some_number());
				}
			}
			break;
		case 4:
			if (s->connected && s->applied < nlog && s->nin < MAX_PIPE - 16)
				catch_up(s, s->applied + 1);
			break;
		case 5:
			if (!s->used[i] && !calm && once_in(come_every))
				come(s, i, some_number());
			break;
		case 6:
			if (s->used[i] && (leaving || (!calm && once_in(leave_every))))
				go(s, i);
			break;
		default:
			if (!s->connected && (calm || once_in(4)))
				reconnect(s, once_in(4));
			else if (!calm && once_in(8))
				beat(s);
			else if (calm && s->beats < (rude ? 40 : 2) && s->nout == 0 && s->nin == 0)
				beat(s);
	}
}

static bool
quiet(void)
{
	for (int i = 0; i < nservers; i++)
	{
		const Server *s = &server[i];

		if (!s->connected || s->nout > 0 || s->nin > 0 || s->applied < nlog ||
			s->beats < (rude ? 40 : 2))
			return false;
		for (int j = 0; j < NPARTIES && leaving; j++)
			if (s->used[j] && !s->party[j].leave)
				return false;
	}
	return true;
}

static void
settle(const char *what)
{
	for (int i = 0; i < nservers; i++)
		server[i].beats = 0;
	for (int i = 0; !quiet(); i++)
	{
		if (i > 1000000)
			fail("there is no end of it: %s", what);
		step();
	}
}

static void
check_calm(void)
{
	int waiting[8] = {0};

	for (int i = 0; i < nservers; i++)
	{
		for (int j = 0; j < NPARTIES; j++)
		{
			const ZkParty *p = &server[i].party[j];

			if (!server[i].used[j])
				continue;
			if (call_of(p->id)->round != 0)
				fail("call %" PRIu64 " is in round %d, and waits", p->id[1],
					 call_of(p->id)->round);
			if (!p->leave)
				waiting[p->parties]++;
			else
				fail("call %" PRIu64 " is to leave, and waits", p->id[1]);
		}
	}
	for (int n = 1; n < 8; n++)
		if (waiting[n] >= n)
			fail("%d wait for a round of %d", waiting[n], n);
}

void
play(uint64_t seed)
{
	int length;
	int fault_every;

	random_state = seed;
	nlog = ncalls = nrounds = nlives = ngiven_up = 0;
	memset(&head, 0, sizeof(head));
	last_session = 0;
	calm = leaving = false;

	nservers = 1 + random_below(MAX_SERVERS);
	numbers = 2 + random_below(2);
	mixed = once_in(4);
	faults = !once_in(4);
	rude = faults && once_in(6);
	lagging = !once_in(3);
	deposed = faults && once_in(3);
	come_every = 1 + random_below(6);
	leave_every = 10 + random_below(100);
	fault_every = 20 + random_below(200);
	length = 200 + random_below(1500);
	for (int i = 0; i < nservers; i++)
	{
		Server *s = &server[i];

		memset(s, 0, offsetof(Server, b));
		memset(s->used, 0, sizeof(s->used));
		zklock_barrier_init(&s->b, 0, false);
		new_session(s);
	}
	for (int i = 0; i < length; i++)
	{
		if (faults && once_in(fault_every))
			fault(&server[random_below(nservers)]);
		step();
	}

	TRACE("---- calm");
	calm = true;
	while (ngiven_up > 0)
		close_session(given_up[--ngiven_up]);
	settle("all are well");
	check_calm();
	TRACE("---- all leave");
	leaving = true;
	settle("all leave");
	for (int i = 0; i < nservers; i++)
		for (int j = 0; j < NPARTIES; j++)
			if (server[i].used[j])
				fail("call %" PRIu64 " has not left", server[i].party[j].id[1]);
	if (head.exists && head.n > 0)
		fail("%d nodes are left", head.n);

	TRACE("---- two numbers");
	leaving = false;
	come(&server[0], 0, 3);
	settle("one comes");
	come(&server[nservers - 1], 1, 2);
	settle("one more comes");
	if (server[nservers - 1].used[1] || !server[0].used[0])
		fail("the number is not the first one's");
	COVER(CALM);
}

const Simulator simulator = {
	.schedules = "schedules of a barrier",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
