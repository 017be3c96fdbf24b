/*-------------------------------------------------------------------------
 *
 * deadlock_sim.c
 *	  Plays seeded schedules of deadlocks across servers against
 *	  src/protocol/deadlock_rules.c and deadlock_text.c.
 *
 * Backends of several servers take locks, shared or exclusive, in any order, and local
 * ones beside them, which PostgreSQL would see; they wait for them for as long as it
 * takes, or are cancelled; they commit.  Servers hand a lock on to their own, or give it
 * up, or keep it for whoever comes next.  Some names are not locks but permits: there
 * each backend has a contender of its own, which asks for one of so many.  What a server
 * publishes, reads and lists goes through a pipe to the ensemble and back, at its own
 * pace.  Connections break with requests and replies on them, sessions expire, workers
 * are paused while their backends go on, whole servers are, and workers are exchanged for
 * successors that know nothing.
 *
 * What is taken for granted: the queue of a lock, which sim.c proves, and
 * PostgreSQL's own detector, which sees what is a ring on one server.
 *
 * Invariants, by what is true of all backends, which is computed here by itself:
 *
 *	 - A wait is ended only for a ring whose edges were all true at one moment.  A ring
 * that was broken since, within the time that it takes to hear of it, is counted; so
 * is one that never was if a server had reported late, being paused or cut off.
 *	 - One wait a ring is ended.
 *	 - When all servers are well, nobody waits in a ring for longer than three rounds; and
 *	   if there are no local locks besides, a ring is found the first time.  Who waits for
 *	   one of several permits, and is in no ring, gives up after a while.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "deadlock_rules.h"
#include "harness.h"

#define MAX_SERVERS	   5
#define MAX_NAMES	   5
#define NBACKENDS	   3 /* of a server */
#define NLOCAL		   2 /* local locks of a server */
#define ALL_BACKENDS   (MAX_SERVERS * NBACKENDS)
#define MAX_CONTENDERS 64
#define MAX_PIPE	   16
#define MAX_RECORDS	   4096
#define MAX_ENDED	   256

/* ms */
#define STEP	 5
#define PATIENCE INT64_C(2000) /* deadlock_timeout */
#define PAUSE	 INT64_C(150)  /* between two readings */
#define LATENCY	 100		   /* of a request, or a reply, at most */
#define ROUND	 (8 * PATIENCE + 1000)
#define SOON	 INT64_C(1000) /* less than until the second look */
#define WILD	 INT64_C(30000)

/* a line of the trace */
#define TRACE(format, ...) TRACE_LINE("%8.3f " format, (double) now / 1000, ##__VA_ARGS__)

typedef enum Coverage
{
	COVER_WAITS,
	COVER_LEVEL1,
	COVER_LOCAL,
	COVER_JOINS,
	COVER_CANCELLED,
	COVER_HANDED_ON,
	COVER_KEPT,
	COVER_SLOT,
	COVER_SIBLING,
	COVER_SEVERAL,
	COVER_LOCAL_RING,
	COVER_PUBLISHED,
	COVER_WITHDRAWN,
	COVER_ENDED,
	COVER_RING2,
	COVER_RING3,
	COVER_RING4,
	COVER_LOCAL_STEP,
	COVER_ONE_SERVER,
	COVER_SHARED_STEP,
	COVER_SIBLING_STEP,
	COVER_SEVERAL_STEP,
	COVER_BROKEN_SINCE,
	COVER_PHANTOM,
	COVER_LOST,
	COVER_LOST_DONE,
	COVER_EXPIRED,
	COVER_PAUSED,
	COVER_WORKER_PAUSED,
	COVER_SUCCESSOR,
	COVER_CALM,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {"waits at level 2",
											  "waits at level 1",
											  "waits for a local lock",
											  "waits for the end of a spent grant",
											  "waits cancelled",
											  "grants handed on",
											  "grants kept",
											  "waits for a permit",
											  "... that no other server wants",
											  "waits for one of several, given up",
											  "local rings",
											  "texts published",
											  "texts withdrawn",
											  "waits ended",
											  "... in a ring of 2",
											  "... of 3",
											  "... of 4 or more",
											  "... through a local wait",
											  "... on one server",
											  "... through a shared lock",
											  "... through a permit that no other server wants",
											  "... through a wait for one of several permits",
											  "... for a ring that was broken just before",
											  "... for none, by a late report",
											  "connections lost",
											  "... with a write that was done",
											  "sessions expired",
											  "servers paused",
											  "workers paused",
											  "successors",
											  "calm ends"};

long coverage[NCOVERAGE];

/* ------------------------------------------------------------------------
 * The world
 * ------------------------------------------------------------------------
 */

typedef enum Waiting
{
	NOT,
	LOCAL,	/* for a local lock */
	LEVEL1, /* for a name, here */
	LEVEL2	/* ... in the ensemble */
} Waiting;

typedef struct Backend
{
	bool holds[MAX_NAMES];
	ZkLockMode mode[MAX_NAMES];
	uint64_t permit[MAX_NAMES]; /* its contender, of permits */
	bool has[NLOCAL];
	Waiting waiting;
	int what; /* name or local lock */
	ZkLockMode wants;
	int permits; /* ... one of so many; 0: a lock */
	int64_t since;
	int64_t look;  /* when it looks next */
	uint64_t wait; /* a number of its own */
	uint64_t work; /* the transaction's */
	int64_t place; /* in line */
	bool again;	   /* it has asked to look since the last look */
	bool asked;
} Backend;

/* Of the server of "server" in the queue of a name. */
typedef struct Contender
{
	int server;
	uint64_t session;
	uint64_t uuid;
	ZkLockMode mode;
	int permits;
	int64_t sequence;
} Contender;

typedef enum RequestType
{
	CREATE,
	SET,
	DELETE,
	SERVERS,
	LIST,
	READ
} RequestType;

typedef struct Request
{
	RequestType type;
	uint32_t serial;
	int name;
	uint64_t session;
	char text[ZKLOCK_WAITS_TEXT_MAX + 1];
	/* the reply */
	int64_t due;
	ZkLockRc rc;
	int64_t zxid;
	int nchildren;
	Contender children[MAX_CONTENDERS];
	uint64_t sessions[MAX_SERVERS];
} Request;

typedef struct Pipe
{
	int n;
	Request packet[MAX_PIPE];
} Pipe;

typedef struct Server
{
	uint64_t session;
	uint64_t last_uuid;
	uint64_t last_number;
	bool connected;
	int64_t reconnects;
	int64_t paused; /* until then */
	int64_t worker_paused;
	int64_t well_since; /* reports in time */
	bool look;
	ZkDeadlock d;
	Pipe out;
	Pipe in;
	Backend backend[NBACKENDS];
	/* its znode */
	bool node;
	char text[ZKLOCK_WAITS_TEXT_MAX + 1];
	int64_t zxid;
	int64_t clock; /* what it is ahead */
} Server;

/* An edge with a number: when was it true? */
typedef struct Record
{
	uint64_t session;
	uint64_t number;
	uint64_t key;
	int server;
	int64_t begun;
	int64_t ended; /* -1: it is true */
} Record;

typedef struct Ended
{
	int n;
	uint64_t session[ALL_BACKENDS];
	uint64_t number[ALL_BACKENDS];
} Ended;

static int64_t now;
static int64_t zxid;
static uint64_t last_session;
static uint64_t last_wait;
static int64_t last_place;
static int64_t last_sequence[MAX_NAMES];
static int nservers;
static int nnames;
static int permits_of[MAX_NAMES]; /* what is mostly named; 0: it is a lock */
static Server server[MAX_SERVERS];
static int nqueue[MAX_NAMES];
static Contender queue[MAX_NAMES][MAX_CONTENDERS];
static int64_t left_at[MAX_NAMES]; /* when did somebody leave it last? */
static bool directory;			   /* <root>/waits is there */
static int nrecords;
static Record records[MAX_RECORDS];
static int nended;
static Ended ended[MAX_ENDED];
static bool calm;

/* What a schedule is like. */
static int want_every, local_every, shared_every, commit_every, cancel_every;
static bool keeps; /* what is granted, for whoever comes next */
static bool faults;
static bool strict; /* no faults, no local locks, short ways: it is quick */
static int latency;
static int reading; /* latency of what is read */

static int
number_of(const Server *s)
{
	return (int) (s - server);
}

static int
backend_number(const Server *s, const Backend *b)
{
	return number_of(s) * NBACKENDS + (int) (b - s->backend);
}

static uint64_t
mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* ------------------------------------------------------------------------
 * Queues
 * ------------------------------------------------------------------------
 */

/* The newest contender of that server, or NULL. */
static Contender *
find_contender(const Server *s, int name, ZkLockMode mode)
{
	for (int i = nqueue[name]; --i >= 0;)
		if (queue[name][i].server == number_of(s) && queue[name][i].mode == mode)
			return &queue[name][i];
	return NULL;
}

/* The one that a backend waits with for a permit, or has; or NULL. */
static Contender *
find_permit(const Server *s, int name, uint64_t uuid)
{
	for (int i = 0; i < nqueue[name]; i++)
		if (queue[name][i].server == number_of(s) && queue[name][i].uuid == uuid)
			return &queue[name][i];
	return NULL;
}

/* The one with which a backend waits at level 2, or NULL. */
static Contender *
contender_of(const Server *s, const Backend *b)
{
	return permits_of[b->what] > 0 ? find_permit(s, b->what, b->permit[b->what])
								   : find_contender(s, b->what, b->wants);
}

/* Is that one before this one and in its way, by the rules of locks or of permits? */
static bool
conflicts(const Contender *before, const Contender *c)
{
	return before < c &&
		(c->permits > 0 ||
		 (before->server != c->server && zklock_modes_conflict(before->mode, c->mode)));
}

/* Fewer are before it than it names, and than each of these. */
static bool
is_granted_permit(int name, const Contender *c)
{
	int limit = c->permits;

	for (const Contender *o = queue[name]; o < c; o++)
		if (o->permits < limit)
			limit = o->permits;
	return c - queue[name] < limit;
}

static bool
is_granted(int name, const Contender *c)
{
	if (c->permits > 0)
		return is_granted_permit(name, c);
	for (const Contender *o = queue[name]; o < c; o++)
		if (conflicts(o, c))
			return false;
	return true;
}

/* Do other servers want it, as far as the queue tells?  A permit all do who are there. */
static bool
is_demanded(int name, const Contender *c)
{
	for (const Contender *o = queue[name]; o < queue[name] + nqueue[name]; o++)
		if (c->permits > 0 ? o->server != c->server : conflicts(c, o))
			return true;
	return false;
}

/* Does a backend of its own server wait for a permit? */
static bool
is_wanted_here(int name, const Contender *c)
{
	for (const Contender *o = queue[name]; o < queue[name] + nqueue[name]; o++)
		if (c->permits > 0 && o->server == c->server && !is_granted(name, o))
			return true;
	return false;
}

static void
remove_contender(int name, Contender *c)
{
	int i = (int) (c - queue[name]);

	memmove(c, c + 1, sizeof(*c) * (size_t) (nqueue[name] - i - 1));
	nqueue[name]--;
	left_at[name] = now;
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* Does b hold what "who" wants, or stand before it, at level 1 of a name? */
static bool
blocks_level1(const Backend *b, const Backend *who)
{
	int name = who->what;

	if (b == who)
		return false;
	if (b->holds[name] && zklock_modes_conflict(b->mode[name], who->wants))
		return true;
	/* one at level 2 has level 1 */
	if ((b->waiting == LEVEL2 || (b->waiting == LEVEL1 && b->place < who->place)) &&
		b->what == name && zklock_modes_conflict(b->wants, who->wants))
		return true;
	return false;
}

/* Does "who" wait for b, on one server, as PostgreSQL would see it? */
static bool
blocks_locally(const Backend *b, const Backend *who)
{
	if (b == who)
		return false;
	if (who->waiting == LEVEL1)
		return blocks_level1(b, who);
	if (who->waiting == LOCAL)
		return b->has[who->what] ||
			(b->waiting == LOCAL && b->what == who->what && b->place < who->place);
	return false;
}

static bool
holds_in_mode(const Backend *b, int name, ZkLockMode mode)
{
	return b->holds[name] && b->mode[name] == mode;
}

/* Has it what the contender is granted? */
static bool
has_grant(const Backend *b, int name, const Contender *c)
{
	return c->permits > 0 ? b->holds[name] && b->permit[name] == c->uuid
						  : holds_in_mode(b, name, c->mode);
}

static int
holders(const Server *s, int name, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NBACKENDS; i++)
		n += holds_in_mode(&s->backend[i], name, mode);
	return n;
}

static int
wishes(const Server *s, int name, ZkLockMode mode)
{
	int n = 0;

	for (int i = 0; i < NBACKENDS; i++)
		n += s->backend[i].waiting == LEVEL2 && s->backend[i].what == name &&
			s->backend[i].wants == mode;
	return n;
}

/* Waits at level 2 for the end of a grant of its own server? */
static bool
joins(const Server *s, const Backend *b)
{
	const Contender *c = contender_of(s, b);

	return c != NULL && c->permits == 0 && is_granted(b->what, c) &&
		holders(s, b->what, b->wants) > 0;
}

/* Is there a ring of local waits through b? */
static bool
in_local_ring(const Server *s, const Backend *b)
{
	bool reached[NBACKENDS] = {false};
	bool more = true;

	while (more)
	{
		more = false;
		for (int i = 0; i < NBACKENDS; i++)
		{
			for (int j = 0; j < NBACKENDS && !reached[i]; j++)
			{
				const Backend *who = &s->backend[j];

				if ((who == b || reached[j]) && blocks_locally(&s->backend[i], who))
					reached[i] = more = true;
			}
		}
	}
	return reached[b - s->backend];
}

/* All that a backend has goes. */
static void
end_work(Server *s, Backend *b)
{
	memset(b, 0, sizeof(*b));
	b->work = ++last_wait;
	(void) s;
}

static void
start_wait(Server *s, Backend *b, Waiting waiting, int what, ZkLockMode wants)
{
	b->waiting = waiting;
	b->what = what;
	b->wants = wants;
	b->since = now;
	b->look = now + PATIENCE;
	b->wait = ++last_wait;
	b->place = ++last_place;
	b->asked = b->again = false;
	if (in_local_ring(s, b))
	{
		COVER(LOCAL_RING);
		end_work(s, b);
	}
}

static void
stop_wait(Backend *b)
{
	if (b->waiting == LEVEL2 && !b->holds[b->what])
		b->permit[b->what] = 0;
	b->waiting = NOT;
	b->asked = b->again = false;
	b->wait = ++last_wait;
}

static bool
is_free_local(const Server *s, const Backend *b)
{
	for (int i = 0; i < NBACKENDS; i++)
		if (blocks_locally(&s->backend[i], b))
			return false;
	return true;
}

static Contender *
add_contender(Server *s, int name, ZkLockMode mode, int permits)
{
	Contender *c = &queue[name][nqueue[name]++];

	if (nqueue[name] > MAX_CONTENDERS)
		fail("too many contenders");
	*c = (Contender){.server = number_of(s),
					 .session = s->session,
					 .uuid = ++s->last_uuid,
					 .mode = mode,
					 .permits = permits,
					 .sequence = ++last_sequence[name]};
	for (int i = 0; i < nservers; i++)
		server[i].look = true; /* somebody's grant is demanded */
	return c;
}

/* May it stay for whoever comes next here? */
static bool
is_kept(int name, const Contender *c)
{
	return keeps && is_granted(name, c) && !is_demanded(name, c) &&
		!is_wanted_here(name, c);
}

static const Backend *
permit_owner(const Server *s, int name, const Contender *c)
{
	for (int i = 0; i < NBACKENDS; i++)
		if (s->backend[i].permit[name] == c->uuid)
			return &s->backend[i];
	return NULL;
}

/* One that is kept, or a new one. */
static Contender *
take_permit(Server *s, int name, int permits)
{
	for (Contender *c = queue[name]; c < queue[name] + nqueue[name]; c++)
		if (c->server == number_of(s) && permit_owner(s, name, c) == NULL &&
			c->permits == permits && is_kept(name, c))
		{
			COVER(KEPT);
			return c;
		}
	return add_contender(s, name, ZKLOCK_EXCLUSIVE, permits);
}

/* The same of permits as serve() does for locks. */
static void
serve_permits(Server *s, int name)
{
	for (int i = 0; i < NBACKENDS; i++)
	{
		Backend *b = &s->backend[i];

		if (b->waiting == LEVEL2 && b->what == name && contender_of(s, b) == NULL)
			b->permit[name] = take_permit(s, name, b->permits)->uuid;
	}
	for (int i = nqueue[name]; --i >= 0;)
	{
		Contender *c = &queue[name][i];

		if (c->server == number_of(s) && permit_owner(s, name, c) == NULL &&
			!is_kept(name, c))
			remove_contender(name, c);
	}
}

/* A server makes what its backends want of the ensemble, and gives up the rest. */
static void
serve(Server *s)
{
	for (int name = 0; name < nnames; name++)
	{
		if (permits_of[name] > 0)
		{
			serve_permits(s, name);
			continue;
		}
		for (ZkLockMode mode = ZKLOCK_SHARED; mode <= ZKLOCK_EXCLUSIVE; mode++)
		{
			Contender *c = find_contender(s, name, mode);
			int held = holders(s, name, mode);
			int want = wishes(s, name, mode);

			if (c != NULL && held == 0 && !(want == 0 && is_kept(name, c)) &&
				(want == 0 || (is_granted(name, c) && is_demanded(name, c) && !once_in(3))))
			{
				/* it may not serve anybody else, or has nobody to serve */
				bool spent = is_granted(name, c);

				if (want == 0 || (spent && !once_in(2)))
				{
					remove_contender(name, c);
					c = NULL;
				}
			}
			if (c == NULL && want > 0)
				(void) add_contender(s, name, mode, 0);
		}
	}
}

static void
advance(Server *s, Backend *b)
{
	const Contender *c;

	if (b->waiting == LOCAL && is_free_local(s, b))
	{
		b->has[b->what] = true;
		stop_wait(b);
	}
	if (b->waiting == LEVEL1 && is_free_local(s, b))
	{
		b->waiting = LEVEL2;
		b->since = now;
		b->look = now + PATIENCE;
		b->wait = ++last_wait;
		COVER(WAITS);
	}
	if (b->waiting != LEVEL2)
		return;
	c = contender_of(s, b);
	if (c == NULL || !is_granted(b->what, c))
		return;
	if (c->permits == 0 && b->wants == ZKLOCK_SHARED &&
		holders(s, b->what, b->wants) > 0 && is_demanded(b->what, c))
	{
		COVER(JOINS);
		return;
	}
	if (c->permits == 0 && is_demanded(b->what, c))
		COVER(HANDED_ON);
	b->holds[b->what] = true;
	b->mode[b->what] = b->wants;
	stop_wait(b);
}

static bool in_ring(int b);

static void
live(Server *s, Backend *b)
{
	bool busy = false;

	for (int i = 0; i < nnames; i++)
		busy |= b->holds[i];
	for (int i = 0; i < NLOCAL; i++)
		busy |= b->has[i];

	if (b->waiting != NOT)
	{
		/* lock_timeout */
		if (b->waiting == LEVEL2 && b->permits > 1 && now - b->since > 2 * PATIENCE &&
			!in_ring(backend_number(s, b)))
		{
			COVER(SEVERAL);
			stop_wait(b);
		}
		else if (!calm && once_in(cancel_every))
		{
			COVER(CANCELLED);
			if (once_in(2))
				stop_wait(b); /* it goes on with what it has */
			else
				end_work(s, b);
		}
		return;
	}
	if (calm || once_in(commit_every))
	{
		if (busy)
			end_work(s, b);
		return;
	}
	if (!once_in(want_every))
		return;
	if (once_in(local_every))
	{
		int what = random_below(NLOCAL);

		if (!b->has[what])
		{
			start_wait(s, b, LOCAL, what, ZKLOCK_EXCLUSIVE);
			COVER(LOCAL);
		}
	}
	else
	{
		int name = random_below(nnames);

		if (b->holds[name])
			return;
		b->permits = permits_of[name];
		if (b->permits > 0)
		{
			if (once_in(6))
				b->permits = 1 + random_below(3);
			start_wait(s, b, LEVEL2, name, ZKLOCK_EXCLUSIVE);
			COVER(SLOT);
		}
		else
		{
			start_wait(s, b, LEVEL1, name,
					   once_in(shared_every) ? ZKLOCK_SHARED : ZKLOCK_EXCLUSIVE);
			COVER(LEVEL1);
		}
	}
}

/* ------------------------------------------------------------------------
 * What is true
 * ------------------------------------------------------------------------
 */

/* Contenders that c waits for, directly or by those before it. */
static bool
is_behind(int name, const Contender *c, const Contender *before)
{
	if (conflicts(before, c))
		return true;
	for (const Contender *o = before + 1; o < c; o++)
		if (conflicts(o, c) && is_behind(name, o, before))
			return true;
	return false;
}

/* Would c, which asks for a permit, wait still if that one stayed, and of the others all
 * went that can? */
static bool
needs_permit(const Contender *c, const Contender *that)
{
	int limit = that->permits;
	int nstay = 1;

	for (const Contender *o = that + 1; o <= c; o++)
	{
		int least = o->permits < limit ? o->permits : limit;

		if (nstay < least)
			continue;
		if (o == c)
			return true;
		limit = least;
		nstay++;
	}
	return false;
}

/* Does that backend wait for this one, anywhere? */
static bool
waits_for(int who, int b)
{
	const Server *s = &server[who / NBACKENDS];
	const Server *t = &server[b / NBACKENDS];
	const Backend *p = &s->backend[who % NBACKENDS];
	const Backend *q = &t->backend[b % NBACKENDS];
	const Contender *c;

	if (who == b)
		return false;
	if (s == t && blocks_locally(q, p))
		return true;
	if (p->waiting != LEVEL2)
		return false;
	if (joins(s, p))
		return s == t && holds_in_mode(q, p->what, p->wants);
	c = contender_of(s, p);
	if (c == NULL)
		return false;
	for (const Contender *o = queue[p->what]; o < c; o++)
		if (o->server == number_of(t) && has_grant(q, p->what, o) &&
			is_granted(p->what, o) &&
			(c->permits > 0 ? needs_permit(c, o) : is_behind(p->what, c, o)))
			return true;
	return false;
}

static bool
in_ring(int b)
{
	bool reached[ALL_BACKENDS] = {false};
	int stack[ALL_BACKENDS];
	int n = 0;

	stack[n++] = b;
	while (n > 0)
	{
		int who = stack[--n];

		for (int i = 0; i < nservers * NBACKENDS; i++)
		{
			if (reached[i] || !waits_for(who, i))
				continue;
			if (i == b)
				return true;
			reached[i] = true;
			stack[n++] = i;
		}
	}
	return false;
}

/*
 * Rings of waits that were all looked at long enough ago.  A reader who would join is
 * left out: he comes to wait for another, without a word.
 */
static void
check_soon(void)
{
	bool old[ALL_BACKENDS];
	bool more = true;
	int n = nservers * NBACKENDS;

	for (int i = 0; i < n; i++)
	{
		const Server *s = &server[i / NBACKENDS];
		const Backend *b = &s->backend[i % NBACKENDS];

		old[i] = b->waiting == LEVEL2 && now - b->since >= PATIENCE + SOON && !joins(s, b);
	}
	/* whoever waits for none of these is in no ring of them */
	while (more)
	{
		more = false;
		for (int i = 0; i < n; i++)
		{
			bool waits = false;

			for (int j = 0; j < n && old[i] && !waits; j++)
				waits = old[j] && waits_for(i, j);
			if (old[i] && !waits)
			{
				old[i] = false;
				more = true;
			}
		}
	}
	for (int i = 0; i < n; i++)
		if (old[i])
			fail("%d.%d is in a ring, or waits for one, that was not found at once",
				 i / NBACKENDS, i % NBACKENDS);
}

/* ------------------------------------------------------------------------
 * A server's look at its own waits
 * ------------------------------------------------------------------------
 */

/* The edges from a backend that holds a grant. */
static int
edges_from(const Server *s, int name, const Contender *c, int holder, bool all,
		   ZkOwnEdge *edges)
{
	uint64_t key[NBACKENDS] = {0};
	int line[NBACKENDS];
	int nline = 0;
	int n = 0;

	key[holder] = mix(mix(c->uuid, s->session), s->backend[holder].work);
	line[nline++] = holder;
	for (int i = 0; i < nline; i++)
	{
		const Backend *b = &s->backend[line[i]];

		if (b->waiting == LEVEL2 && (b->asked || all))
		{
			const Contender *w = contender_of(s, b);

			if (w != NULL)
			{
				ZkOwnEdge *e = &edges[n++];
				bool join = joins(s, b);

				memset(e, 0, sizeof(*e));
				e->edge.grant = c->uuid;
				e->edge.contender = w->uuid;
				e->edge.joins = join;
				e->edge.kind = w->permits > 0 ? ZKLOCK_KIND_SEMAPHORE : ZKLOCK_KIND_LOCK;
				e->edge.name[0] = (char) ('a' + b->what);
				e->edge.holder = holder + 1;
				e->edge.waiter = line[i] + 1;
				if (i > 0)
					snprintf(e->edge.via, sizeof(e->edge.via), "via\t%d", i);
				e->key = mix(mix(mix(key[line[i]], b->wait), w->uuid), join);
				e->again = b->again;
			}
		}
		for (int j = 0; j < NBACKENDS; j++)
			if (key[j] == 0 && blocks_locally(&s->backend[j], b))
			{
				key[j] = mix(key[line[i]], b->wait);
				line[nline++] = j;
			}
	}
	(void) name;
	return n;
}

#define MAX_SEEN (MAX_NAMES * 2 * NBACKENDS * NBACKENDS)

static int
look_at(const Server *s, ZkOwnEdge *edges, bool all)
{
	int n = 0;

	for (int name = 0; name < nnames; name++)
		for (const Contender *c = queue[name]; c < queue[name] + nqueue[name]; c++)
		{
			if (c->server != number_of(s) || !is_granted(name, c))
				continue;
			/* of a grant that is joined its own server knows that it is wanted */
			if (!is_demanded(name, c))
			{
				if (!is_wanted_here(name, c))
					continue;
				COVER(SIBLING);
			}
			for (int i = 0; i < NBACKENDS; i++)
				if (has_grant(&s->backend[i], name, c))
					n += edges_from(s, name, c, i, all, edges + n);
		}
	return n;
}

static void
record_edges(Server *s)
{
	for (int i = 0; i < s->d.nown; i++)
	{
		const ZkOwnEdge *own = &s->d.own[i];
		bool known = false;

		for (int j = nrecords; --j >= 0 && !known;)
			known = records[j].session == s->session &&
				records[j].number == own->edge.number && records[j].key == own->key;
		if (known)
			continue;
		if (nrecords == MAX_RECORDS)
			fail("too many edges");
		records[nrecords++] = (Record){.session = s->session,
									   .number = own->edge.number,
									   .key = own->key,
									   .server = number_of(s),
									   .begun = now,
									   .ended = -1};
	}
}

static void
look(Server *s)
{
	ZkOwnEdge edges[MAX_SEEN];
	int n;

	for (int i = 0; i < NBACKENDS; i++)
	{
		Backend *b = &s->backend[i];

		if (b->waiting != LEVEL2 || now < b->look)
			continue;
		b->look = now + (now - b->since < 8 * PATIENCE ? now - b->since : 8 * PATIENCE);
		b->asked = b->again = true;
		s->look = true;
	}
	if (!s->look)
		return;
	s->look = false;
	n = look_at(s, edges, false);
	for (int i = 0; i < NBACKENDS; i++)
		s->backend[i].again = false;
	s->last_number += (uint64_t) zklock_deadlock_look(&s->d, edges, n, s->last_number + 1);
	record_edges(s);
}

/* Edges that are over. */
static void
withdraw(Server *s)
{
	ZkOwnEdge edges[MAX_SEEN];
	int n;

	if (s->d.nown == 0)
		return;
	n = look_at(s, edges, false);
	for (int i = s->d.nown; --i >= 0;)
	{
		bool there = false;

		for (int j = 0; j < n && !there; j++)
			there = edges[j].key == s->d.own[i].key;
		if (!there)
			zklock_deadlock_drop(&s->d, i);
	}
}

/* What has ended since? */
static void
watch_edges(void)
{
	static ZkOwnEdge edges[MAX_SERVERS][MAX_SEEN];
	int n[MAX_SERVERS];

	for (int i = 0; i < nservers; i++)
		n[i] = look_at(&server[i], edges[i], true);
	for (int i = 0; i < nrecords; i++)
	{
		Record *r = &records[i];
		bool there = false;

		if (r->ended >= 0 && r->ended < now - STEP)
			continue;
		for (int j = 0; j < n[r->server] && !there; j++)
			there = edges[r->server][j].key == r->key;
		there &= server[r->server].session == r->session;
		/* a grant that is joined may pass from one to another who joined it */
		if (there)
			r->ended = -1;
		else if (r->ended < 0)
			r->ended = now;
	}
}

/* ------------------------------------------------------------------------
 * A wait is ended
 * ------------------------------------------------------------------------
 */

/* Have both the same edges? */
static bool
same_ring(const Ended *a, const Ended *b)
{
	if (a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
	{
		bool found = false;

		for (int j = 0; j < b->n && !found; j++)
			found = a->session[i] == b->session[j] && a->number[i] == b->number[j];
		if (!found)
			return false;
	}
	return true;
}

/* Does nobody but backends of its own server wait for the grant? */
static bool
is_wanted_here_alone(const ZkFollowed *f)
{
	for (int name = 0; name < nnames; name++)
		for (const Contender *c = queue[name]; c < queue[name] + nqueue[name]; c++)
			if (c->session == f->session && c->uuid == f->edge.grant)
				return !is_demanded(name, c) && is_wanted_here(name, c);
	return false;
}

/* Does its wait ask for one of several permits? */
static bool
asks_for_several(const ZkFollowed *f)
{
	for (int name = 0; name < nnames; name++)
		for (const Contender *c = queue[name]; c < queue[name] + nqueue[name]; c++)
			if (c->session == f->session && c->uuid == f->edge.contender)
				return c->permits > 1;
	return false;
}

/* Has somebody left one of its queues since the second reading began?  So who waits there
 * for one of several permits may not need the next in the ring any more. */
static bool
is_broken_by_leaving(const ZkDeadlock *d)
{
	for (int i = 0; i < d->nring; i++)
		if (d->ring[i].edge.kind == ZKLOCK_KIND_SEMAPHORE &&
			left_at[d->ring[i].edge.name[0] - 'a'] >= d->at_time)
			return true;
	return false;
}

static void
end_wait(Server *s)
{
	const ZkDeadlock *d = &s->d;
	Backend *b = &s->backend[d->waiter - 1];
	Ended *e = &ended[nended % MAX_ENDED];
	int64_t begun = 0;
	int64_t over = INT64_MAX;
	bool late = false;
	bool one = true;

	if (b->waiting != LEVEL2)
		fail("server %d ends a wait that is over", number_of(s));
	e->n = 0;
	for (int i = 0; i < d->nring; i++)
	{
		const ZkFollowed *f = &d->ring[i];
		bool found = false;

		e->session[e->n] = f->session;
		e->number[e->n++] = f->edge.number;
		for (int j = nrecords; --j >= 0 && !found;)
		{
			const Record *r = &records[j];

			if (r->session != f->session || r->number != f->edge.number)
				continue;
			found = true;
			if (r->begun > begun)
				begun = r->begun;
			if (r->ended >= 0 && r->ended < over)
				over = r->ended;
			/* it had not the time to hear of it */
			late |= r->ended >= 0 &&
				(server[r->server].well_since > r->ended - PAUSE ||
				 server[r->server].session != r->session);
		}
		if (!found)
			fail("an edge that nobody has published");
		one &= f->session == s->session;
		if (f->edge.via[0] != '\0')
			COVER(LOCAL_STEP);
		if (is_wanted_here_alone(f))
			COVER(SIBLING_STEP);
		if (asks_for_several(f))
			COVER(SEVERAL_STEP);
		TRACE("  edge %" PRIx64 " number %" PRIu64 ": %" PRIu64
			  " needs %s%s, for %d, by %d",
			  f->session, f->edge.number, f->edge.grant, f->edge.name,
			  f->edge.joins ? " (joins)" : "", f->edge.waiter, f->edge.holder);
	}
	TRACE("edges were true from %" PRId64 " to %" PRId64, begun, over);
	TRACE("%d.%d is ended, a ring of %d", number_of(s), d->waiter - 1, d->nring);
	COVER(ENDED);
	coverage[d->nring >= 4 ? COVER_RING4 : d->nring == 3 ? COVER_RING3 : COVER_RING2]++;
	if (one)
		COVER(ONE_SERVER);
	if (b->wants == ZKLOCK_SHARED)
		COVER(SHARED_STEP);
	for (int i = 0; i < nended && i < MAX_ENDED; i++)
		if (&ended[i] != e && same_ring(&ended[i], e))
			fail("two waits of one ring are ended");
	nended++;
	if (begun > over)
	{
		if (!late)
			fail("server %d ends a wait that was in no ring", number_of(s));
		COVER(PHANTOM);
	}
	else if (over != INT64_MAX ||
			 (!in_ring(backend_number(s, b)) && is_broken_by_leaving(d)))
		COVER(BROKEN_SINCE);
	else if (!in_ring(backend_number(s, b)))
		fail("server %d ends a wait in no ring, with edges that are true", number_of(s));
	if (once_in(3))
		stop_wait(b);
	else
		end_work(s, b);
}

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static Server *
find_session(uint64_t session)
{
	for (int i = 0; i < nservers; i++)
		if (server[i].session == session)
			return &server[i];
	return NULL;
}

static void
execute(Server *s, Request *r)
{
	Server *other;

	r->rc = ZKLOCK_RC_OK;
	switch (r->type)
	{
		case CREATE:
			if (!directory)
				r->rc = ZKLOCK_RC_NO_NODE;
			else if (s->node)
				r->rc = ZKLOCK_RC_EXISTS;
			break;
		case SET:
		case DELETE:
			if (!s->node)
				r->rc = ZKLOCK_RC_NO_NODE;
			break;
		case SERVERS:
			r->nchildren = 0;
			for (int i = 0; i < nservers; i++)
				if (server[i].node)
					r->sessions[r->nchildren++] = server[i].session;
			return;
		case LIST:
			r->nchildren = nqueue[r->name];
			memcpy(r->children, queue[r->name], sizeof(queue[r->name]));
			return;
		case READ:
			other = find_session(r->session);
			if (other == NULL || !other->node)
				r->rc = ZKLOCK_RC_NO_NODE;
			else
			{
				strcpy(r->text, other->text);
				r->zxid = other->zxid;
			}
			return;
	}
	if (r->rc != ZKLOCK_RC_OK)
		return;
	r->zxid = s->zxid = ++zxid;
	s->node = r->type != DELETE;
	if (r->type != DELETE)
		strcpy(s->text, r->text);
	if (r->type == DELETE)
		COVER(WITHDRAWN);
	else
		COVER(PUBLISHED);
}

static void
send_request(Server *s, RequestType type)
{
	Request *r = &s->out.packet[s->out.n++];
	ZkLockKind kind;
	char *out;

	if (s->out.n > MAX_PIPE)
		fail("too many requests");
	r->type = type;
	r->serial = s->d.serial;
	r->due = now + random_below(latency);
	switch (type)
	{
		case CREATE:
		case SET:
			out = zklock_deadlock_waits_begin(r->text, "server");
			for (int i = 0; i < s->d.nown; i++)
			{
				ZkWaitEdge edge = s->d.own[i].edge;

				out = zklock_deadlock_waits_add(out, &edge);
			}
			if (s->d.made)
				directory = true;
			break;
		case LIST:
			r->name = zklock_deadlock_name(&s->d, &kind)[0] - 'a';
			break;
		case READ:
			r->session = s->d.reads;
			break;
		default:
			break;
	}
}

static void
take_reply(Server *s, Request *r)
{
	ZkLockChild children[MAX_CONTENDERS];
	char names[MAX_SERVERS][17];
	char *list[MAX_SERVERS];

	switch (r->type)
	{
		case CREATE:
		case SET:
		case DELETE:
			zklock_deadlock_wrote(&s->d, r->rc, r->zxid);
			break;
		case SERVERS:
			for (int i = 0; i < r->nchildren; i++)
			{
				snprintf(names[i], sizeof(names[i]), "%016" PRIx64, r->sessions[i]);
				list[i] = names[i];
			}
			zklock_deadlock_servers(&s->d, r->serial, r->rc, list, r->nchildren);
			break;
		case LIST:
			for (int i = 0; i < r->nchildren; i++)
				children[i] = (ZkLockChild){.uuid_hi = r->children[i].session,
											.uuid_lo = r->children[i].uuid,
											.sequence = r->children[i].sequence,
											.mode = r->children[i].mode,
											.permits = r->children[i].permits};
			zklock_deadlock_listed(&s->d, r->serial, r->rc, children, r->nchildren);
			break;
		case READ:
			zklock_deadlock_read(&s->d, r->serial, r->rc, r->zxid, r->text,
								 r->rc == ZKLOCK_RC_OK ? strlen(r->text) : 0);
			break;
	}
}

static void
take_first(Pipe *pipe)
{
	memmove(pipe->packet, pipe->packet + 1, sizeof(Request) * (size_t) --pipe->n);
}

static void
move_packets(Server *s)
{
	while (s->out.n > 0 && s->out.packet[0].due <= now)
	{
		Request *reply = &s->in.packet[s->in.n++];

		if (s->in.n > MAX_PIPE)
			fail("too many replies");
		*reply = s->out.packet[0];
		execute(s, reply);
		reply->due = now + random_below(reply->type > DELETE && !calm ? reading : latency);
		take_first(&s->out);
	}
}

/* ------------------------------------------------------------------------
 * A worker
 * ------------------------------------------------------------------------
 */

static void
work(Server *s)
{
	static const RequestType type[] =
		{[ZKLOCK_DO_CREATE] = CREATE, [ZKLOCK_DO_SET] = SET,
		 [ZKLOCK_DO_DELETE] = DELETE, [ZKLOCK_DO_SERVERS] = SERVERS,
		 [ZKLOCK_DO_LIST] = LIST,	  [ZKLOCK_DO_READ] = READ};
	ZkDeadlockAct act;

	while (s->in.n > 0 && s->in.packet[0].due <= now)
	{
		take_reply(s, &s->in.packet[0]);
		take_first(&s->in);
	}
	withdraw(s);
	look(s);
	while ((act = zklock_deadlock_next(&s->d, now)) != ZKLOCK_DO_NOTHING)
	{
		if (act == ZKLOCK_DO_END)
			end_wait(s);
		else
			send_request(s, type[act]);
	}
}

static void
disconnect(Server *s)
{
	/* what is out may be done */
	while (s->out.n > 0 && once_in(2))
	{
		if (s->out.packet[0].type <= DELETE)
			COVER(LOST_DONE);
		execute(s, &s->out.packet[0]);
		take_first(&s->out);
	}
	s->out.n = s->in.n = 0;
	s->connected = false;
	s->reconnects = now + 1 + random_below(500);
	zklock_deadlock_connected(&s->d, false);
	COVER(LOST);
}

static void
new_session(Server *s)
{
	s->session = ++last_session;
	s->node = false;
	zklock_deadlock_init(&s->d, s->session, PAUSE);
}

/* The ensemble forgets it; what its backends hold is lost, and they wait anew. */
static void
expire(Server *s)
{
	COVER(EXPIRED);
	if (s->connected)
		disconnect(s);
	for (int name = 0; name < nnames; name++)
		for (int i = nqueue[name]; --i >= 0;)
			if (queue[name][i].server == number_of(s))
				remove_contender(name, &queue[name][i]);
	for (int i = 0; i < NBACKENDS; i++)
	{
		Backend *b = &s->backend[i];

		for (int name = 0; name < nnames; name++)
			if (b->holds[name])
			{
				end_work(s, b);
				break;
			}
	}
	new_session(s);
}

static void
fault(void)
{
	Server *s = &server[random_below(nservers)];

	switch (random_below(6))
	{
		case 0:
		case 1:
			if (s->connected)
				disconnect(s);
			break;
		case 2:
			if (once_in(3))
				expire(s);
			break;
		case 3:
			s->paused = now + random_below(6000);
			COVER(PAUSED);
			break;
		case 4:
			s->worker_paused = now + random_below(4000);
			COVER(WORKER_PAUSED);
			break;
		case 5:
			/* a successor finds the session, and a number to go on from */
			if (s->connected)
				disconnect(s);
			zklock_deadlock_init(&s->d, s->session, PAUSE);
			COVER(SUCCESSOR);
			break;
	}
	if (!s->connected || s->paused > now || s->worker_paused > now)
		s->well_since = INT64_MAX;
}

static void
step(void)
{
	step_count++;
	now += STEP;
	for (int i = 0; i < nservers; i++)
	{
		Server *s = &server[i];

		move_packets(s);
		if (s->paused > now)
			continue;
		for (int j = 0; j < NBACKENDS; j++)
		{
			if (once_in(4))
				live(s, &s->backend[j]);
			advance(s, &s->backend[j]);
		}
		serve(s);
		if (!s->connected && now >= s->reconnects && s->worker_paused <= now)
		{
			s->connected = true;
			s->look = true;
			zklock_deadlock_connected(&s->d, true);
		}
		if (s->worker_paused > now)
			continue;
		/* by now it has told what it had to */
		if (s->connected && s->well_since == INT64_MAX)
			s->well_since = now + 4 * LATENCY;
		watch_edges();
		work(s);
	}
	watch_edges();
	if (strict && step_count % 40 == 0)
		check_soon();
}

static void
begin_world(uint64_t seed)
{
	random_state = seed;
	step_count = 0;
	now = 1000000;
	zxid = 100;
	last_session = 0x1000;
	last_wait = 0;
	last_place = 0;
	nrecords = nended = 0;
	calm = false;
	directory = once_in(2);
	nservers = 2 + random_below(MAX_SERVERS - 1);
	nnames = 2 + random_below(MAX_NAMES - 1);
	want_every = 4 + random_below(60);
	local_every = 2 + random_below(12);
	shared_every = 1 + random_below(5);
	commit_every = 20 + random_below(600);
	cancel_every = 10 + random_below(once_in(3) ? 100 : 3000);
	faults = !once_in(3);
	strict = !faults && !once_in(4);
	latency = strict ? 5 : once_in(2) ? LATENCY / 5 : LATENCY;
	/* what is read is old by then, and a ring may be read that never was */
	reading = !strict && once_in(3) ? 10 * LATENCY : latency;
	if (strict)
	{
		nservers = 2 + random_below(2);
		local_every = 1000000;
		/* crowded: rings hide one another, and many are broken */
		if (!once_in(4))
		{
			want_every = 6 + random_below(20);
			cancel_every = 100 + random_below(400);
			commit_every = 1000;
		}
	}
	keeps = !once_in(3);
	for (int i = 0; i < nnames; i++)
		permits_of[i] = once_in(5) ? 1 + once_in(3) : 0;
	memset(nqueue, 0, sizeof(nqueue));
	memset(left_at, 0, sizeof(left_at));
	memset(last_sequence, 0, sizeof(last_sequence));
	for (int i = 0; i < nservers; i++)
	{
		Server *s = &server[i];

		s->out.n = s->in.n = 0;
		s->last_uuid = s->last_number = 0;
		s->connected = s->look = false;
		s->reconnects = s->paused = s->worker_paused = s->well_since = 0;
		s->clock = random_below(10000);
		for (int j = 0; j < NBACKENDS; j++)
			end_work(s, &s->backend[j]);
		new_session(s);
	}
}

void
play(uint64_t seed)
{
	int wild;
	int64_t until;

	begin_world(seed);
	wild = 50 + random_below(1000);
	until = now + random_below((int) WILD);
	while (now < until)
	{
		if (faults && once_in(wild))
			fault();
		step();
	}

	TRACE("---- calm");
	calm = true;
	for (int i = 0; i < nservers; i++)
		server[i].paused = server[i].worker_paused = 0;
	until = now + 3 * ROUND;
	while (now < until)
	{
		bool idle = true;

		step();
		for (int i = 0; i < nservers * NBACKENDS; i++)
			idle &= server[i / NBACKENDS].backend[i % NBACKENDS].waiting == NOT;
		if (idle)
			break;
	}
	for (int i = 0; i < nservers * NBACKENDS; i++)
		if (server[i / NBACKENDS].backend[i % NBACKENDS].waiting != NOT)
			fail("%d.%d waits after three rounds%s", i / NBACKENDS, i % NBACKENDS,
				 in_ring(i) ? ", in a ring" : "");
	until = now + 1000;
	while (now < until)
		step();
	for (int i = 0; i < nservers; i++)
		if (server[i].node)
			fail("server %d has not withdrawn its text", i);
	COVER(CALM);
}

const Simulator simulator = {
	.schedules = "schedules of deadlocks",
	.enough = 10000,
	.ncoverage = NCOVERAGE,
};
