/*-------------------------------------------------------------------------
 *
 * barrier_sim.c
 *	  Plays seeded schedules of sessions that meet, against src/protocol/barrier_rules.c.
 *
 * Sessions of several servers come to one barrier, leave it, are cancelled, and come
 * again the moment that they are let go.  The ensemble is that of ensemble.h: its servers
 * lag, leaders are deposed, connections break with requests on them, which were done, or
 * not, or are done later.  Sessions expire, or are given up, workers are exchanged, nodes
 * are deleted by hand, and so is the directory while nobody is there.  In some schedules
 *a few servers write a newer version of the record, which the others cannot read.
 *
 * Invariants:
 *
 *	 - A round has as many parties as each of them waits for, all different; none of them
 *	   has been told that it left, and none is in two rounds.
 *	 - Who is told that he is let go is in a round; who is told that he left is in none,
 *	   and comes into none.
 *	 - Doubt only where so many rounds were opened meanwhile, or the directory went, or
 *the record cannot be read.
 *	 - No server overwrites a record that it cannot read.
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
#include "ensemble.h"

#define MAX_SERVERS	 4
#define NPARTIES	 4 /* of a server */
#define MAX_NODES	 64
#define MAX_CALLS	 4096
#define MAX_ROUNDS	 4096 /* asked for */
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
	COVER_NEWER,
	COVER_NEWER_LEFT,
	COVER_NEWER_DOUBT,
	COVER_QUICKER,
	COVER_MEMBER_LEFT,
	COVER_GIVEN_UP,
	COVER_REMNANT,
	COVER_LOST,
	COVER_EXPIRED,
	COVER_EXPIRED_IN_ROUND,
	COVER_WORKERS,
	COVER_BY_HAND,
	COVER_DIRECTORY,
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
	"records of a newer version",
	"... that made a call leave",
	"... that left a call in doubt",
	"rounds that somebody else opened first",
	"... that a member had left",
	"sessions given up",
	"nodes of these deleted",
	"connections lost",
	"sessions expired",
	"... of one that was in a round",
	"workers exchanged",
	"nodes deleted by hand",
	"directories deleted",
	"calm ends",
};

long coverage[NCOVERAGE];

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

/* Paths: of this kind; of a party's node the call, and the number that it was given. */
enum
{
	DIRECTORY = 1,
	PARTY
};
static const Path directory = {DIRECTORY, 0, 0};
static const Path root = {0};

/* Who is to be let go by a request. */
typedef struct Round
{
	int n;
	uint64_t call[NPARTIES];
	int session[NPARTIES];
} Round;

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
	bool alive; /* the session, and the server has not given it up */
	bool newer; /* it writes the newer version */
	bool beat;	/* a heartbeat is out */
	int beats;
	bool used[NPARTIES];
	ZkParty party[NPARTIES];
	ZkBarrier b;
	Conn conn;
} Server;

static int nservers;
static Server server[MAX_SERVERS];
static int ngiven_up;
static int given_up[MAX_GIVEN_UP]; /* sessions */
static int ncalls;
static Call calls[MAX_CALLS];
static int nrounds; /* opened */
static int nasked;
static Round asked[MAX_ROUNDS];
static bool calm;
static bool leaving;

/* What a schedule is like. */
static int numbers; /* of parties: the least */
static bool mixed, faults, rude, two_versions;
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

/* ------------------------------------------------------------------------
 * What is true
 * ------------------------------------------------------------------------
 */

static void
check_round(const Round *r)
{
	bool one_server = true;

	nrounds++;
	COVER(ROUNDS);
	if (r->n > 2)
		COVER(ROUND3);
	for (int i = 0; i < r->n; i++)
	{
		Call *c = &calls[r->call[i]];

		if (c->parties != r->n)
			fail("a round of %d has call %" PRIu64 ", which waits for %d", r->n,
				 r->call[i], c->parties);
		if (c->round == nrounds)
			fail("call %" PRIu64 " is twice in round %d", r->call[i], nrounds);
		if (c->round != 0)
			fail("call %" PRIu64 " is in round %d and in round %d", r->call[i], c->round,
				 nrounds);
		if (c->told_off)
			fail("call %" PRIu64 " is in round %d, and was told that it had left",
				 r->call[i], nrounds);
		c->round = nrounds;
		one_server &= r->session[i] == r->session[0];
		if (c->cancelled)
			COVER(CANCELLED_IN_ROUND);
	}
	if (one_server)
		COVER(ONE_SERVER);
	TRACE("round %d is open", nrounds);
}

static void
check_created(Path path)
{
	const Znode *dir = zk_find(directory, zk.zxid);

	for (const Znode *c = zk_child(dir, zk.zxid); c != NULL; c = zk_next(c, zk.zxid))
		if (c->path.a == path.a && c->path.b != path.b)
			fail("call %" PRId64 " is there twice", path.a);
	TRACE("call %" PRId64 " is there as %" PRId64, path.a, path.b);
}

/* A write was done, or refused. */
static void
observe(int session, const Packet *p)
{
	(void) session;
	if (p->what == ZKLOCK_BARRIER_CREATED && p->rc == ZKLOCK_REPLY_OK)
		check_created(p->op[0].path);
	if (p->what != ZKLOCK_BARRIER_OPENED)
		return;
	if (p->rc == ZKLOCK_REPLY_OK)
		check_round(&asked[p->at]);
	else if (p->rc == ZKLOCK_REPLY_BAD_VERSION)
		COVER(QUICKER);
	else if (p->failed > 0)
		COVER(MEMBER_LEFT);
}

/* ------------------------------------------------------------------------
 * Two versions of the record
 * ------------------------------------------------------------------------
 */

static const char version_key[] = "\"version\": ";
#define KEY_LEN ((int) sizeof(version_key) - 1)

static bool
is_newer(const char *data, int len)
{
	return zklock_record_version(data, (size_t) len) == 2;
}

/* A copy in which all lines have this version, '1' or '2'.  It lasts until the next one. */
static const char *
as_version(const char *data, int len, char version)
{
	static char text[ZKLOCK_ROUNDS_MAX];

	if (len > 0)
		memcpy(text, data, (size_t) len);
	for (int i = 0; i + KEY_LEN < len; i++)
		if (memcmp(&text[i], version_key, (size_t) KEY_LEN) == 0)
			text[i + KEY_LEN] = version;
	return text;
}

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------
 */

static Op
delete_op(const ZkPartyNode *node)
{
	return (Op){.type = OP_DELETE, .path = {PARTY, (int64_t) node->id[1], node->sequence}};
}

static void
add_open(const Server *s, Packet *p, const ZkBarrierAction *a)
{
	Round *r = &asked[p->at = nasked++];
	const char *text = as_version(a->data, a->datalen, s->newer ? '2' : '1');

	if (nasked == MAX_ROUNDS)
		fail("too many rounds");
	if (s->b.newer)
		fail("server %d overwrites a record that it cannot read", (int) (s - server));
	if (s->newer)
		COVER(NEWER);
	r->n = a->nnodes;
	p->op[p->nops++] = (Op){.type = OP_SET,
							.path = directory,
							.version = a->version,
							.data = zk_keep(text, a->datalen),
							.len = a->datalen};
	for (int i = 0; i < a->nnodes; i++)
	{
		r->call[i] = a->nodes[i].id[1];
		r->session[i] = (int) a->nodes[i].session;
		p->op[p->nops++] = delete_op(&a->nodes[i]);
	}
}

static void
send_action(void *arg, const ZkBarrierAction *a)
{
	static const ZkBarrierEventType reply[] =
		{[ZKLOCK_BARRIER_MAKE_DIR] = ZKLOCK_BARRIER_MADE_DIR,
		 [ZKLOCK_BARRIER_READ_IT] = ZKLOCK_BARRIER_READ,
		 [ZKLOCK_BARRIER_LIST] = ZKLOCK_BARRIER_LISTED,
		 [ZKLOCK_BARRIER_CREATE] = ZKLOCK_BARRIER_CREATED,
		 [ZKLOCK_BARRIER_DELETE] = ZKLOCK_BARRIER_DELETED,
		 [ZKLOCK_BARRIER_OPEN] = ZKLOCK_BARRIER_OPENED};
	Server *s = arg;
	Packet p = {.type = WRITE, .path = directory, .what = (int) reply[a->type]};

	p.who = a->party != NULL;
	p.serial = a->party != NULL ? a->party->id[1] : 0;
	switch (a->type)
	{
		case ZKLOCK_BARRIER_MAKE_DIR:
			p.op[p.nops++] = (Op){.type = OP_CREATE, .path = directory, .parent = root};
			break;
		case ZKLOCK_BARRIER_READ_IT:
			if (a->sync)
				conn_send(&s->conn, &(Packet){.type = SYNC});
			p.type = READ;
			p.watch = true;
			break;
		case ZKLOCK_BARRIER_LIST:
			p.type = CHILDREN;
			break;
		case ZKLOCK_BARRIER_CREATE:
			p.op[p.nops++] = (Op){.type = OP_CREATE,
								  .path = {PARTY, (int64_t) a->party->id[1], 0},
								  .parent = directory,
								  .ephemeral = true,
								  .sequential = true};
			break;
		case ZKLOCK_BARRIER_DELETE:
			if (a->party == NULL)
				COVER(REMNANT);
			p.op[p.nops++] = delete_op(a->nodes);
			break;
		case ZKLOCK_BARRIER_OPEN:
			add_open(s, &p, a);
			break;
	}
	conn_send(&s->conn, &p);
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

static void
check_doubt(const Server *s, const ZkParty *p)
{
	const Znode *dir = zk_find(directory, zk.zxid);
	int64_t newest;
	int64_t oldest;

	/* what it had seen may have been out of date */
	if (dir == NULL || dir->czxid != p->life)
		return;
	if (!s->newer && is_newer(dir->value->data, dir->value->len))
	{
		COVER(NEWER_DOUBT);
		return;
	}
	(void) zklock_barrier_rounds_parse(as_version(dir->value->data, dir->value->len, '1'),
									   (size_t) dir->value->len, &newest, &oldest);
	if (p->round + 1 >= oldest)
		fail("call %" PRIu64 " is in doubt after %d rounds", p->id[1],
			 (int) (newest - p->round));
}

static void
tell(Server *s, int i)
{
	ZkParty *p = &s->party[i];
	Call *c = call_of(p->id);

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
		case ZKLOCK_PARTY_NEWER:
			if (c->round != 0)
				fail("call %" PRIu64 " is told that it left, and is in round %d",
					 p->id[1], c->round);
			if (p->end == ZKLOCK_PARTY_NUMBERS)
			{
				COVER(NUMBERS);
				if (p->other == p->parties)
					fail("call %" PRIu64 " waits for no other number", p->id[1]);
			}
			else if (p->end == ZKLOCK_PARTY_NEWER)
			{
				COVER(NEWER_LEFT);
				if (s->newer || !two_versions)
					fail("server %d knows no newer version", number_of(s));
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
			check_doubt(s, p);
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
	event->session = (uint64_t) s->conn.session;
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

static ZkLockRc
to_rc(ZkReply rc)
{
	switch (rc)
	{
		case ZKLOCK_REPLY_OK:
			return ZKLOCK_RC_OK;
		case ZKLOCK_REPLY_EXISTS:
			return ZKLOCK_RC_EXISTS;
		case ZKLOCK_REPLY_LOST:
			return ZKLOCK_RC_LOST;
		default:
			return ZKLOCK_RC_NO_NODE;
	}
}

static void
list_nodes(const Packet *p, ZkPartyNode *nodes, int *n)
{
	const Znode *c = zk_child(zk_find(directory, p->view), p->view);

	for (*n = 0; c != NULL; c = zk_next(c, p->view))
	{
		if (*n == MAX_NODES)
			fail("too many nodes");
		nodes[(*n)++] = (ZkPartyNode){.id = {7, (uint64_t) c->path.a},
									  .session = (uint64_t) c->owner,
									  .parties = calls[c->path.a].parties,
									  .sequence = c->path.b};
	}
}

/* A reply, or a watch has fired. */
static void
deliver(Server *s, const Packet *p)
{
	static ZkPartyNode nodes[MAX_NODES];
	ZkBarrierEvent event = {.type = ZKLOCK_BARRIER_CHANGED};
	const Znode *dir = zk_find(directory, p->view);

	if (p->type == SYNC)
		return;
	if (p->type != EVENT)
	{
		event.type = (ZkBarrierEventType) p->what;
		event.rc = to_rc(p->rc);
		event.id[0] = p->who ? 7 : 0;
		event.id[1] = p->serial;
		event.sequence = p->op[0].path.b;
	}
	if (event.type == ZKLOCK_BARRIER_TICK)
		s->beat = false;
	if (event.type == ZKLOCK_BARRIER_TICK && event.rc != ZKLOCK_RC_OK)
		return;
	if ((p->type == READ || p->type == CHILDREN) && event.rc == ZKLOCK_RC_OK)
	{
		const Value *value = zk_value(dir, p->view);

		event.life = dir->czxid;
		event.version = value->version;
		event.data = s->newer ? as_version(value->data, value->len, '1') : value->data;
		event.datalen = value->len;
		list_nodes(p, nodes, &event.nnodes);
		event.nodes = nodes;
	}
	feed(s, &event);
}

static void
disconnect(Server *s)
{
	Packet p;

	COVER(LOST);
	TRACE("server %d is cut off", number_of(s));
	conn_break(&s->conn);
	s->beat = false;
	feed_type(s, ZKLOCK_BARRIER_DISCONNECTED);
	while (conn_receive(&s->conn, &p))
		deliver(s, &p);
}

static void
expire(Server *s)
{
	COVER(EXPIRED);
	TRACE("the session of server %d ends", number_of(s));
	s->alive = false;
	zk_end_session(s->conn.session);
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
	given_up[ngiven_up++] = s->conn.session;
}

static void
new_session(Server *s)
{
	conn_open(&s->conn);
	s->alive = true;
	feed_type(s, ZKLOCK_BARRIER_RESUMED);
}

static void
reconnect(Server *s, bool worker)
{
	if (!s->alive)
	{
		s->conn.session = 0;
		feed_type(s, ZKLOCK_BARRIER_SESSION_LOST);
		new_session(s);
		return;
	}
	if (worker)
	{
		COVER(WORKERS);
		conn_succeed(&s->conn);
	}
	conn_reconnect(&s->conn);
	if (worker)
		zklock_barrier_init(&s->b, (uint64_t) s->conn.session, false);
	feed_type(s, worker ? ZKLOCK_BARRIER_RESUMED : ZKLOCK_BARRIER_CONNECTED);
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
	if (!s->conn.up || s->beat || s->conn.nc2s > MAX_WIRE / 2)
		return;
	s->beat = true;
	s->beats++;
	conn_send(&s->conn, &(Packet){.type = WRITE, .what = ZKLOCK_BARRIER_TICK});
}

/* Somebody deletes a node, or the directory if it is empty. */
static void
delete_by_hand(bool node)
{
	const Znode *dir = zk_find(directory, zk.zxid);
	const Znode *c;

	if (dir == NULL || node != (dir->nchildren > 0))
		return;
	if (!node)
	{
		COVER(DIRECTORY);
		TRACE("the directory is deleted");
		zk_delete(directory);
		return;
	}
	COVER(BY_HAND);
	TRACE("a node is deleted by hand");
	c = zk_child(dir, zk.zxid);
	for (int i = random_below(dir->nchildren); i > 0; i--)
		c = zk_next(c, zk.zxid);
	zk_delete(c->path);
}

static void
fault(Server *s)
{
	switch (random_below(rude ? 8 : 6))
	{
		case 0:
		case 1:
			if (s->conn.up)
				disconnect(s);
			break;
		case 2:
			if (zk.deposes)
				conn_depose(&s->conn);
			else if (s->conn.up)
				disconnect(s);
			break;
		case 3:
			/* nobody there hears of it at once */
			if (ngiven_up > 0 && once_in(2))
				zk_end_session(given_up[--ngiven_up]);
			else if (s->alive && !s->conn.up && ngiven_up < MAX_GIVEN_UP && once_in(4))
				give_up(s);
			else if (s->alive && (!s->conn.up || once_in(2)))
				expire(s);
			break;
		case 4:
			if (s->conn.up)
				disconnect(s);
			if (s->alive)
				reconnect(s, true);
			break;
		case 5:
			delete_by_hand(false);
			break;
		default:
			delete_by_hand(true);
	}
}

static bool
is_idle(const Conn *conn)
{
	return conn->up && conn->nc2s == 0 && conn->ns2c == 0;
}

static void
step(void)
{
	Server *s = &server[random_below(nservers)];
	int i = random_below(NPARTIES);
	Packet p;

	step_count++;
	switch (random_below(8))
	{
		case 0:
		case 1:
			if (!conn_apply(&s->conn) && s->alive && once_in(4))
				(void) conn_apply_zombie(&s->conn);
			if (s->conn.cut || (calm && s->conn.deposed))
				disconnect(s);
			break;
		case 2:
		case 3:
			if (conn_receive(&s->conn, &p))
			{
				bool was = s->used[i];

				deliver(s, &p);
				/* a fast one */
				if (was && !s->used[i] && !calm && once_in(2))
				{
					COVER(AT_ONCE);
					come(s, i, some_number());
				}
			}
			break;
		case 4:
			(void) conn_catch_up(&s->conn);
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
			if (!s->conn.up && (calm || once_in(4)))
				reconnect(s, once_in(4));
			else if (!calm && once_in(8))
				beat(s);
			else if (calm && s->beats < (rude ? 40 : 2) && is_idle(&s->conn))
				beat(s);
	}
}

static bool
quiet(void)
{
	for (int i = 0; i < nservers; i++)
	{
		const Server *s = &server[i];

		if (!is_idle(&s->conn) || s->conn.view < zk.zxid || s->beats < (rude ? 40 : 2))
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

static void
name_two_numbers(void)
{
	TRACE("---- two numbers");
	leaving = false;
	come(&server[0], 0, 3);
	settle("one comes");
	come(&server[nservers - 1], 1, 2);
	settle("one more comes");
	if (server[nservers - 1].used[1] || !server[0].used[0])
		fail("the number is not the first one's");
}

void
play(uint64_t seed)
{
	int length;
	int fault_every;
	const Znode *dir;

	random_state = seed;
	ncalls = nrounds = nasked = ngiven_up = 0;
	zk_reset();
	zk.observe = observe;
	calm = leaving = false;

	nservers = 1 + random_below(MAX_SERVERS);
	numbers = 2 + random_below(2);
	mixed = once_in(4);
	two_versions = once_in(4);
	faults = !once_in(4);
	rude = faults && once_in(6);
	zk.lags = !once_in(3);
	zk.lose_every = faults ? 40 : 0;
	zk.deposes = faults && once_in(3);
	come_every = 1 + random_below(6);
	leave_every = 10 + random_below(100);
	fault_every = 20 + random_below(200);
	length = 200 + random_below(1500);
	for (int i = 0; i < nservers; i++)
	{
		Server *s = &server[i];

		s->beat = false;
		s->newer = two_versions && once_in(2);
		s->beats = 0;
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
	zk.lags = zk.deposes = false;
	zk.lose_every = 0;
	while (ngiven_up > 0)
		zk_end_session(given_up[--ngiven_up]);
	settle("all are well");
	check_calm();
	TRACE("---- all leave");
	leaving = true;
	settle("all leave");
	for (int i = 0; i < nservers; i++)
		for (int j = 0; j < NPARTIES; j++)
			if (server[i].used[j])
				fail("call %" PRIu64 " has not left", server[i].party[j].id[1]);
	dir = zk_find(directory, zk.zxid);
	if (dir != NULL && dir->nchildren > 0)
		fail("%d nodes are left", dir->nchildren);

	COVER(CALM);
	/* who cannot read the record comes into no round any more */
	if (!two_versions)
		name_two_numbers();
}

const Simulator simulator = {
	.schedules = "schedules of a barrier",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
	.report = zk_report,
};
