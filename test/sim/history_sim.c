/*-------------------------------------------------------------------------
 *
 * history_sim.c
 *	  Plays seeded schedules of an ensemble that goes back against src/protocol/history.c.
 *
 * Servers hold sessions with an ensemble, take a few locks, lose connections, stop,
 * crash, alone or with their machine, and start again with the file that they left, or
 * without, on the same machine or on another, which may have a memory of long ago.
 * First they close the session that they have left, and ask it what it tells.  The
 * ensemble is saved now and then; later it goes back to what was saved, or to nothing,
 * at any moment and within any time, as one ZooKeeper does, with the old numbers, or as
 * several do, which hold an election and number on above all that there was, or as one
 * does that is restored while it runs, with connections that go on. Requests and replies
 * are in order, and take any time.  What the worker does with history.c, in ensemble.c
 * and session.c, is done here alike.
 *
 * Invariants, of which a server is excused only as far as it could not know better, and
 * that is worked out here by itself (could_know):
 *
 *	 - No server is admitted that could know that the ensemble has gone back, or that
 *	   another server says so, and has not waited.
 *	 - No two servers believe in one lock at a time.  Excused: one that was admitted when
 *	   nothing told it that the ensemble had gone back since.
 *	 - A grant has a larger token than all those before it that anybody remembers who has
 *	   been admitted, or has mended the base, since the ensemble went back.  Excused: one
 *	   that has lost its watch of the base with a restore while the ensemble ran.
 *	 - The base never falls but by the ensemble's going back, and nobody finds that it has
 *	   before it has.
 *	 - Nobody raises the base who knows that he need not: it costs all servers their
 *	   sessions.
 *	 - When all is calm everybody is admitted in the end.
 *
 * In half of the schedules nobody is excused for a belief: there the ensemble goes back
 * only when all servers are connected, and have written since the state that it goes
 * back to, and within the last sixth of a timeout; and then no connection breaks for a
 * while, since what is written on one that breaks again may be as much as was forgotten.
 * Servers may have crashed since they wrote, each alone, and start again at any time.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "history.h"

#define NSERVERS	 3
#define NLOCKS		 2
#define NSAVED		 3
#define NMACHINES	 2
#define MAX_SESSIONS 400
#define QUEUE		 64
#define STEPS		 1500
#define S			 INT64_C(1000000000)
#define TIMEOUT		 (8 * S)
#define LEASE		 (TIMEOUT / 16 * 9) /* after a write; see lease.h: 7/8 less 5/16 */
#define FIRST_LEASE	 (TIMEOUT / 8 * 7) /* of a session, or of a connection under a lease */
#define NEVER		 INT64_MAX

/* a line of the trace */
#define TRACE(format, ...)                                                               \
	TRACE_LINE("%8.3f " format, (double) now / (double) S, ##__VA_ARGS__)

typedef enum Coverage
{
	COVER_BEHIND,
	COVER_FELL,
	COVER_RAISED,
	COVER_RAISED_UNKNOWN,
	COVER_UNDONE,
	COVER_UNDONE_LATER,
	COVER_TOO_SOON,
	COVER_MENDED_BY_US,
	COVER_MENDED_BY_OTHERS,
	COVER_BAD_VERSION,
	COVER_MEND_BROKEN,
	COVER_WENT_BACK,
	COVER_WENT_BACK_EPOCH,
	COVER_WENT_BACK_RUNNING,
	COVER_WIPED,
	COVER_WENT_BACK_IN_WAIT,
	COVER_CRASHED,
	COVER_STOPPED,
	COVER_CRASHED_IN_WAIT,
	COVER_MACHINE_CRASHED,
	COVER_REMEMBERED,
	COVER_MOVED,
	COVER_OLD_MEMORY,
	COVER_UNSURE,
	COVER_LEFT_GOOD,
	COVER_LEFT_EXPIRED,
	COVER_LEFT_UNDONE,
	COVER_LEFT_TOO_SOON,
	COVER_LEFT_UNKNOWN,
	COVER_LEFT_BY_STOP,
	COVER_CRASHED_FINDING,
	COVER_FILE_LOST,
	COVER_FILE_BEHIND,
	COVER_EXPIRED,
	COVER_RESUMED,
	COVER_GRANTED,
	COVER_GRANTED_AFTER_WAIT,
	COVER_HANDED_OVER,
	COVER_TOKEN_DROPPED,
	COVER_OVERLAP_EXCUSED,
	COVER_TOKEN_EXCUSED,
	COVER_CALM,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] =
	{"found by a write behind the top",
	 "found by a base that fell",
	 "found by a base that was raised",
	 "... by a server that remembered nothing",
	 "found by the member's node",
	 "... in mid-connection",
	 "found by a session that expired too soon",
	 "bases raised",
	 "bases that others had raised enough",
	 "bases that others raised at that moment",
	 "mending broken off",
	 "restored with the old numbers",
	 "restored with larger numbers",
	 "restored while it ran",
	 "wiped",
	 "gone back while servers waited",
	 "servers crashed",
	 "servers stopped",
	 "servers crashed while they waited",
	 "machines crashed",
	 "tops that the file did not know remembered",
	 "starts on another machine",
	 "... where there was a memory of long ago",
	 "starts of servers that cannot know what they have given",
	 "sessions that a server had left were as they should be",
	 "... had expired in their time",
	 "... had been written less often",
	 "... had expired too soon",
	 "... and nothing was known of them",
	 "... by a good end",
	 "servers crashed before they saved what they found",
	 "files lost",
	 "files behind what was granted",
	 "sessions expired",
	 "sessions resumed",
	 "locks granted",
	 "... after a wait",
	 "... that another server had before",
	 "grants refused while the base was read",
	 "overlaps that nobody could know of",
	 "tokens that did not grow since nobody remembered yet",
	 "calm ends"};

long coverage[NCOVERAGE];

/* ------------------------------------------------------------------------
 * The world
 * ------------------------------------------------------------------------
 */

typedef struct Session
{
	bool alive;
	int64_t heard;
	int32_t version; /* of the member's node; -1: none */
} Session;

/* All that the ensemble knows, and forgets when it goes back. */
typedef struct Ensemble
{
	int64_t zxid;
	int64_t base;
	int32_t base_version;
	Session session[MAX_SESSIONS];
	int holder[NLOCKS]; /* session, or -1 */
	int64_t vouched;	/* the largest token remembered by anybody who has been here
						 * since it went back: what comes is above */
} Ensemble;

typedef enum Kind
{
	MEMBER,	  /* create our node */
	WRITE,	  /* ... write it */
	GET_BASE, /* with a watch */
	SET_BASE,
	LOCK,
	UNLOCK,
	CHANGED /* the watch: no request */
} Kind;

typedef struct Packet
{
	Kind kind;
	bool ok;
	int lock;
	int64_t sent;
	int64_t base;
	int32_t version;
	int64_t zxid;
	int64_t number;	 /* of a read of the base */
	int64_t vouched; /* of a grant: as of its create */
	int incarnation; /* of a reply: as of its request's execution */
} Packet;

typedef struct Fifo
{
	int n;
	Packet packet[QUEUE];
} Fifo;

typedef struct Server
{
	bool up;
	/* shared memory */
	ZkHistory history;
	int session; /* -1: none */
	int64_t lease_end;
	int64_t lost_at;
	bool holds[NLOCKS];
	int grant_incarnation[NLOCKS];
	bool grant_excused[NLOCKS];
	bool busy[NLOCKS]; /* a request for it is out */
	/* the connection */
	bool connected;
	int64_t away;	/* until then it tries elsewhere, or pauses */
	int64_t paused; /* the worker, and not the server's backends */
	bool mending;
	bool asking; /* the session that it has left */
	bool watching;
	bool deaf; /* it was, and does not know that it is not */
	bool resumed;
	bool admitted;
	bool before;
	bool heard_base;
	bool heard_member;
	int64_t proves; /* its first write will prove the lease, from then on; 0: it will not */
	int64_t wrote; /* when our node's newest write was sent */
	int64_t asked;
	int64_t raising;
	int32_t base_version;
	ZkHistorySight sight;
	Fifo requests;
	Fifo replies;
	/* disk */
	bool file;
	size_t file_len;
	char text[ZKLOCK_HISTORY_TEXT_MAX];
	int file_session; /* in the session's file; -1: there is none */
	int left;		  /* the session that is to be closed; -1: none */
	/* memory that outlives it, one on each machine */
	ZkHistoryMemory memory[NMACHINES];
	int machine;
	/* what it has to know, worked out here */
	bool known;
	int64_t base;
	int64_t top;   /* what it remembers */
	int64_t given; /* what it has seen, and may have forgotten by its machine's crash ... */
	int64_t file_top; /* ... down to this */
	int64_t file_ceiling;
	int64_t kept_top; /* 0: by that, or there was no crash */
	int kept_session; /* in which it was admitted, and that it has not given up; or -1 */
	int64_t kept_lost_at;
	int32_t kept_version;
	int64_t unsure; /* it may have given up to this one, and cannot know */
	bool stopped;	/* by its good end, so that the file knows all */
	int64_t file_base;
	int32_t version;
	bool admitted_once; /* in this session */
	int found_in;		/* the incarnation of its newest finding */
	int admitted_in;
	bool excused;	/* it was admitted there without a finding */
	bool must_wait; /* until ... */
	int64_t wait_end;
} Server;

static int64_t now;
static Ensemble zk;
static bool zk_up;
static int64_t up_at; /* after it went back; NEVER: nobody knows */
static int incarnation;
static int heard_in; /* the incarnation of the reply that was received last */
static int64_t largest_epoch;
static int nsessions;
static int nmemories;
static Ensemble saved[NSAVED];
static int nsaved;
static Server server[NSERVERS];
static int64_t largest[NLOCKS]; /* token */
static int last_holder[NLOCKS];
static bool calm;
static bool keeps;	  /* locks are held for long */
static bool tame;	  /* nobody is excused */
static int64_t quiet; /* ... but then there are no faults until then */

static int64_t
random_time(int64_t below)
{
	return (int64_t) (random_bits() % (uint64_t) below);
}

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static int64_t
next_zxid(void)
{
	/* others write, too */
	zk.zxid += once_in(8) ? 1 + random_time(INT64_C(1) << (1 + random_below(20))) : 1;
	return zk.zxid;
}

static void
end_session(int session)
{
	zk.session[session].alive = false;
	for (int l = 0; l < NLOCKS; l++)
		if (zk.holder[l] == session)
			zk.holder[l] = -1;
}

static void
reply(Server *s, const Packet *p)
{
	if (s->replies.n == QUEUE)
		fail("too many replies");
	s->replies.packet[s->replies.n++] = *p;
}

static void
set_base(const Server *by, Packet *p)
{
	Packet changed = {.kind = CHANGED};

	p->ok = p->version == zk.base_version;
	if (!p->ok)
		return;
	if (p->base < zk.base)
		fail("the base falls from %" PRId64 " to %" PRId64, zk.base, p->base);
	p->zxid = next_zxid();
	zk.base = p->base;
	p->version = ++zk.base_version;
	if (by->given > zk.vouched)
		zk.vouched = by->given;
	for (int i = 0; i < NSERVERS; i++)
	{
		if (!server[i].connected || !server[i].watching)
			continue;
		server[i].watching = false;
		reply(&server[i], &changed);
	}
}

static void
execute(Server *s)
{
	Packet p = s->requests.packet[0];
	Session *session = &zk.session[s->session];

	memmove(s->requests.packet, s->requests.packet + 1,
			sizeof(Packet) * (size_t) --s->requests.n);
	session->heard = now;
	p.ok = true;
	p.incarnation = incarnation;
	switch (p.kind)
	{
		case MEMBER:
			p.ok = session->version < 0;
			if (p.ok)
				session->version = 0;
			p.zxid = next_zxid();
			break;
		case WRITE:
			p.ok = session->version >= 0;
			if (p.ok)
			{
				p.zxid = next_zxid();
				p.version = ++session->version;
			}
			break;
		case GET_BASE:
			p.base = zk.base;
			p.version = zk.base_version;
			p.zxid = zk.zxid;
			s->watching = true;
			break;
		case SET_BASE:
			set_base(s, &p);
			break;
		case LOCK:
			p.ok = zk.holder[p.lock] < 0 || zk.holder[p.lock] == s->session;
			if (p.ok)
			{
				zk.holder[p.lock] = s->session;
				p.zxid = next_zxid();
				p.vouched = zk.vouched;
			}
			break;
		case UNLOCK:
			if (zk.holder[p.lock] == s->session)
				zk.holder[p.lock] = -1;
			p.zxid = next_zxid();
			break;
		case CHANGED:
			break;
	}
	reply(s, &p);
}

/* ------------------------------------------------------------------------
 * A server
 * ------------------------------------------------------------------------
 */

static int
number(const Server *s)
{
	return (int) (s - server);
}

static int64_t
larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void
send_request(Server *s, Kind kind, int lock)
{
	Packet p = {.kind = kind, .lock = lock, .sent = now};

	if (s->requests.n == QUEUE)
		return;
	if (kind == WRITE)
		s->wrote = now;
	if (kind == GET_BASE)
		p.number = ++s->asked;
	if (kind == SET_BASE)
	{
		p.base = s->raising;
		p.version = s->base_version;
	}
	s->requests.packet[s->requests.n++] = p;
}

static void
write_file(Server *s, bool last)
{
	s->file_len = zklock_history_format(&s->history, last, s->text);
	s->file = true;
	s->file_top = s->top;
	s->file_base = s->base;
	s->file_ceiling = larger(last ? s->given : s->given + ZKLOCK_HISTORY_REACH, s->unsure);
}

static void
save_file(Server *s)
{
	write_file(s, false);
}

static void
disconnect(Server *s)
{
	s->connected = s->watching = s->deaf = false;
	memset(s->busy, 0, sizeof(s->busy));
	s->requests.n = s->replies.n = 0;
	if (s->asking)
		s->session = -1;
	s->asking = false;
}

/* What the server leaves, should it crash. */
static void
note(Server *s)
{
	zklock_history_note(&s->history, &s->memory[s->machine],
						s->mending ? 0 : s->session + 1, s->lost_at);
	s->kept_top = s->top;
	s->kept_session = s->mending || !s->admitted_once ? -1 : s->session;
	s->kept_lost_at = s->lost_at;
	s->kept_version = s->version;
}

/* The session is gone, or will be, and shall be no surprise. */
static void
forget_session(Server *s)
{
	zklock_history_note(&s->history, &s->memory[s->machine], 0, 0);
	s->kept_session = -1;
}

/* The session is closed, if the ensemble hears of it. */
static void
close_session(Server *s)
{
	forget_session(s);
	if (s->connected && s->session >= 0 && !once_in(4))
		end_session(s->session);
	disconnect(s);
	s->session = -1;
}

static void
lose_all(Server *s)
{
	memset(s->holds, 0, sizeof(s->holds));
	s->lease_end = s->lost_at = 0;
	s->version = -1;
}

static void crash(Server *s);

static void
found(Server *s, ZkHistoryVerdict verdict)
{
	static const int cover[] = {[ZKLOCK_HISTORY_BEHIND] = COVER_BEHIND,
								[ZKLOCK_HISTORY_FELL] = COVER_FELL,
								[ZKLOCK_HISTORY_RAISED] = COVER_RAISED,
								[ZKLOCK_HISTORY_UNDONE] = COVER_UNDONE,
								[ZKLOCK_HISTORY_TOO_SOON] = COVER_TOO_SOON};

	if (incarnation == 1)
		fail("server %d finds that the ensemble went back, and it has not", number(s));
	coverage[cover[verdict]]++;
	if (verdict == ZKLOCK_HISTORY_RAISED && !s->history.known)
		COVER(RAISED_UNKNOWN);
	TRACE("%d finds out: %d", number(s), (int) verdict);
	if (!tame && !calm && once_in(16))
	{
		COVER(CRASHED_FINDING);
		crash(s);
		return;
	}
	lose_all(s);
	zklock_history_found(&s->history, now, TIMEOUT);
	save_file(s);
	close_session(s);
	s->found_in = incarnation;
	s->must_wait = true;
	s->wait_end = now + TIMEOUT;
}

/* What the rule goes by, worked out from what the server has seen and not lost. */
static bool
could_know(const Server *s, int64_t base, int64_t zxid)
{
	if (!s->known)
		return base > 0;
	return base != s->base || (!s->before && base + zxid <= s->top) ||
		(s->sight.resumed && s->version >= 0 && s->sight.version <= s->version);
}

static void
vouch(int64_t top)
{
	if (heard_in == incarnation && top > zk.vouched)
		zk.vouched = top;
}

static void
see(Server *s, int64_t zxid)
{
	if (s->base + zxid > s->top)
		s->top = s->base + zxid;
	if (s->top > s->given)
		s->given = s->top;
	if (zklock_history_see(&s->history, zxid))
		save_file(s);
	note(s);
}

/* The connection's first write counts, where the lease was good before it (lease.h). */
static void
prove(Server *s)
{
	if (s->proves != 0 && s->proves + FIRST_LEASE > s->lease_end)
		s->lease_end = s->proves + FIRST_LEASE;
}

static void
admit(Server *s)
{
	bool news;

	if (could_know(s, s->sight.base, s->sight.zxid))
		fail("server %d is admitted, and could know better", number(s));
	if (s->must_wait)
		fail("server %d is admitted before a timeout has passed", number(s));
	vouch(s->top);
	s->known = true;
	s->base = s->sight.base;
	s->version = s->sight.version;
	s->admitted = s->admitted_once = true;
	if (s->admitted_in != heard_in || heard_in != incarnation)
		s->excused = s->found_in != incarnation;
	else if (s->found_in == incarnation)
		s->excused = false;
	s->admitted_in = heard_in;
	news = zklock_history_admit(&s->history, &s->sight);
	see(s, s->sight.zxid);
	if (news)
		save_file(s);
	prove(s);
	TRACE("%d is admitted%s, base %" PRId64 ", write %" PRId64, number(s),
		  s->excused ? ", unknowing" : "", s->base, s->sight.zxid);
}

static void
mended(Server *s, int64_t base, int64_t zxid)
{
	TRACE("%d has mended: base %" PRId64 ", top %" PRId64, number(s), base, s->given);
	zklock_history_mend(&s->history, base, zxid);
	vouch(s->given);
	s->known = true;
	s->base = base;
	see(s, zxid);
	save_file(s);
	close_session(s);
}

static void
decide(Server *s)
{
	ZkHistoryVerdict verdict;

	if (!s->heard_base || s->sight.zxid == 0)
		return;
	if (s->history.found)
	{
		s->raising = zklock_history_raise(&s->history, s->sight.base, s->sight.zxid);
		if (s->raising == s->sight.base)
		{
			COVER(MENDED_BY_OTHERS);
			mended(s, s->raising, s->sight.zxid);
		}
		else
		{
			int64_t enough = larger(s->base, s->sight.base);

			if (s->raising > enough && enough + s->sight.zxid >= larger(s->given, s->unsure))
				fail("server %d raises the base, though its tokens would grow", number(s));
			send_request(s, SET_BASE, 0);
		}
		return;
	}
	verdict = zklock_history_check(&s->history, &s->sight);
	if (verdict != ZKLOCK_HISTORY_GOOD)
		found(s, verdict);
	else
		admit(s);
}

static bool
believes(const Server *s, int lock)
{
	return s->up && s->holds[lock] && now < s->lease_end;
}

static void
granted(Server *s, const Packet *p)
{
	int64_t token = zklock_history_token(&s->history, p->zxid);
	int l = p->lock;

	COVER(GRANTED);
	if (s->found_in == incarnation)
		COVER(GRANTED_AFTER_WAIT);
	if (last_holder[l] != number(s))
		COVER(HANDED_OVER);
	last_holder[l] = number(s);
	TRACE("%d has lock %d, token %" PRId64, number(s), l, token);
	s->holds[l] = true;
	s->grant_incarnation[l] = p->incarnation;
	s->grant_excused[l] = s->excused;
	if (token <= largest[l])
	{
		if (largest[l] <= p->vouched && !s->deaf)
			fail("token %" PRId64 " of lock %d comes after %" PRId64
				 ", which somebody remembers",
				 token, l, largest[l]);
		COVER(TOKEN_EXCUSED);
	}
	if (token > largest[l])
		largest[l] = token;
}

/* The session that the server has left is gone: too soon? */
static void
left_expired(Server *s, bool known, bool could_ask)
{
	ZkHistoryVerdict verdict = ZKLOCK_HISTORY_GOOD;

	TRACE("%d hears that session %d, which it left, has expired", number(s), s->left);
	if (known)
		verdict = zklock_history_expired(&s->history, now, s->memory[s->machine].lost_at);
	if (could_ask && now < s->kept_lost_at && verdict == ZKLOCK_HISTORY_GOOD)
		fail("server %d could know that the session it left cannot have expired",
			 number(s));
	s->left = -1;
	if (verdict != ZKLOCK_HISTORY_GOOD)
	{
		COVER(LEFT_TOO_SOON);
		found(s, verdict);
		return;
	}
	COVER(LEFT_EXPIRED);
	s->file_session = -1;
	forget_session(s);
}

static void
ask_left(Server *s)
{
	bool known = zklock_history_resume(&s->history, &s->memory[s->machine], s->left + 1);
	bool could_ask = s->kept_session == s->left && !s->history.found;

	if (!known)
		COVER(LEFT_UNKNOWN);
	if (s->stopped)
		COVER(LEFT_BY_STOP);
	if (!zk.session[s->left].alive)
	{
		left_expired(s, known, could_ask);
		return;
	}
	TRACE("%d resumes session %d, which it left", number(s), s->left);
	zk.session[s->left].heard = now;
	s->session = s->left;
	s->connected = true;
	s->mending = false;
	if (known && s->history.version >= 0)
	{
		s->asking = true;
		send_request(s, WRITE, 0);
		return;
	}
	if (could_ask && s->kept_version >= 0)
		fail("server %d does not ask the session that it left", number(s));
	close_session(s);
}

/* Our node in it was written, or is missing. */
static void
left_answers(Server *s, const Packet *p)
{
	ZkHistorySight sight = {.base = s->history.base,
							.zxid = p->zxid,
							.resumed = true,
							.version = p->ok ? p->version : -1};
	ZkHistoryVerdict verdict = zklock_history_check(&s->history, &sight);

	if (verdict == ZKLOCK_HISTORY_GOOD)
	{
		if (sight.version <= s->kept_version || s->base + p->zxid <= s->top)
			fail("server %d has asked the session that it left, and could know better",
				 number(s));
		COVER(LEFT_GOOD);
		close_session(s);
		return;
	}
	if (verdict == ZKLOCK_HISTORY_UNDONE)
		COVER(LEFT_UNDONE);
	found(s, verdict);
}

static void
receive(Server *s)
{
	Packet p = s->replies.packet[0];

	memmove(s->replies.packet, s->replies.packet + 1,
			sizeof(Packet) * (size_t) --s->replies.n);
	heard_in = p.incarnation;
	/* above all between a connection's first write and the base */
	if (!calm && once_in(s->admitted ? 64 : 8))
		s->paused = now + random_time(TIMEOUT);
	if (s->asking)
	{
		left_answers(s, &p);
		return;
	}
	if (p.kind == CHANGED)
	{
		if (s->admitted)
		{
			s->admitted = false;
			s->before = true;
			s->sight.resumed = false;
			s->sight.version = s->version;
			s->sight.zxid = 0;
		}
		s->heard_base = false;
		send_request(s, GET_BASE, 0);
		return;
	}
	if (p.kind == GET_BASE)
	{
		if (p.number != s->asked)
			return;
		s->sight.base = p.base;
		s->base_version = p.version;
		s->heard_base = true;
		if (s->before)
			s->sight.zxid = p.zxid;
		decide(s);
		return;
	}
	if (p.kind == SET_BASE)
	{
		if (p.ok)
		{
			COVER(MENDED_BY_US);
			mended(s, s->raising, p.zxid);
		}
		else
		{
			COVER(BAD_VERSION);
			s->heard_base = false;
			send_request(s, GET_BASE, 0);
		}
		return;
	}
	if (p.kind == LOCK || p.kind == UNLOCK)
		s->busy[p.lock] = false;
	if (p.kind == WRITE && !s->mending)
	{
		int32_t version = p.ok ? p.version : -1;

		if (s->admitted || s->before)
		{
			bool undone = p.ok && version <= s->version;
			ZkHistoryVerdict verdict = zklock_history_wrote(&s->history, version);

			if (undone && verdict == ZKLOCK_HISTORY_GOOD)
				fail("server %d goes on, and could know better", number(s));
			s->version = s->sight.version = version;
			if (verdict != ZKLOCK_HISTORY_GOOD)
			{
				COVER(UNDONE_LATER);
				found(s, verdict);
				return;
			}
		}
		else if (!s->heard_member)
			s->sight.version = version;
		s->heard_member = true;
		if (!p.ok)
			send_request(s, MEMBER, 0);
		if (!p.ok && !s->admitted && s->sight.resumed && s->history.version >= 0)
		{
			found(s, ZKLOCK_HISTORY_UNDONE);
			return;
		}
	}
	if (!p.ok)
		return;
	/* the three witnesses that a lease takes are sent when the verdict is known */
	if (p.sent + LEASE > s->lease_end && s->admitted)
		s->lease_end = p.sent + LEASE;
	if (p.sent + TIMEOUT > s->lost_at && !s->mending)
		s->lost_at = p.sent + TIMEOUT;
	if (s->before)
		note(s);
	if (s->admitted)
		see(s, p.zxid);
	else if (s->sight.zxid == 0)
	{
		s->sight.zxid = p.zxid;
		decide(s);
		if (!s->connected)
			return;
	}
	if (p.kind == LOCK)
	{
		if (s->admitted)
			granted(s, &p);
		else
		{
			/* as session.c: a token that cannot be told */
			COVER(TOKEN_DROPPED);
			lose_all(s);
			close_session(s);
		}
	}
}

static void
connect_server(Server *s)
{
	bool resumed = false;

	if (s->history.found && s->history.mended)
	{
		if (!zklock_history_over(&s->history, now))
			return;
		if (now < s->wait_end)
			fail("server %d does not wait for a timeout", number(s));
		s->must_wait = false;
		zklock_history_end(&s->history);
		save_file(s);
	}
	if (s->left >= 0)
	{
		ask_left(s);
		return;
	}
	s->mending = s->history.found;
	if (s->session >= 0)
	{
		if (!zk.session[s->session].alive)
		{
			bool too_soon = now < s->lease_end && s->admitted_once;
			ZkHistoryVerdict verdict = zklock_history_expired(&s->history, now, s->lost_at);

			COVER(EXPIRED);
			TRACE("%d hears that session %d has expired", number(s), s->session);
			if (too_soon && verdict == ZKLOCK_HISTORY_GOOD)
				fail("server %d could know that its session cannot have expired",
					 number(s));
			if (verdict != ZKLOCK_HISTORY_GOOD)
			{
				found(s, verdict);
				return;
			}
			forget_session(s);
			lose_all(s);
			s->session = -1;
			return;
		}
		resumed = true;
		COVER(RESUMED);
	}
	else
	{
		if (nsessions == MAX_SESSIONS)
			return;
		s->session = nsessions++;
		zk.session[s->session] = (Session){.alive = true, .version = -1};
		next_zxid();
		if (!s->mending)
		{
			s->lease_end = now + FIRST_LEASE;
			s->lost_at = now + TIMEOUT;
			s->file_session = s->session;
		}
	}
	zk.session[s->session].heard = now;
	s->connected = true;
	s->resumed = resumed;
	s->proves = resumed && now < s->lease_end ? now : 0;
	s->admitted = s->before = s->heard_base = s->heard_member = false;
	memset(&s->sight, 0, sizeof(s->sight));
	s->sight.resumed = resumed;
	s->sight.version = -1;
	if (!resumed)
	{
		s->version = -1;
		s->admitted_once = false;
		zklock_history_new_session(&s->history);
		send_request(s, MEMBER, 0);
	}
	send_request(s, WRITE, 0);
	send_request(s, GET_BASE, 0);
	TRACE("%d is connected%s, session %d", number(s), s->mending ? " to mend" : "",
		  s->session);
}

static void
start_server(Server *s)
{
	int64_t given = s->given;
	bool told = false;

	s->up = true;
	zklock_history_init(&s->history);
	if (s->file)
		told = zklock_history_parse(&s->history, s->text, s->file_len, now, TIMEOUT);
	if (s->file != told)
		fail("server %d cannot read its file", number(s));
	if (!tame && once_in(4))
	{
		COVER(MOVED);
		s->machine = (s->machine + 1) % NMACHINES;
		s->kept_top = 0;
		s->kept_session = s->file_session = -1;
		if (s->memory[s->machine].id != 0)
			COVER(OLD_MEMORY);
	}
	if (!told)
	{
		s->kept_top = s->unsure = 0;
		s->kept_session = -1;
	}
	else if (!s->stopped && s->kept_top == 0 && s->unsure < s->file_ceiling)
	{
		COVER(UNSURE);
		s->unsure = s->file_ceiling;
	}
	s->known = told;
	s->base = told ? s->file_base : 0;
	s->top = told ? s->file_top : 0;
	if (s->kept_top > s->top)
	{
		COVER(REMEMBERED);
		s->top = s->kept_top;
	}
	s->given = told ? larger(given, s->memory[s->machine].top) : 0;
	if (!zklock_history_remember(&s->history, &s->memory[s->machine]))
	{
		s->memory[s->machine] = zklock_history_new_memory(&s->history, ++nmemories);
		if (told)
			save_file(s);
	}
	s->must_wait &= told;
	if (!told)
		s->found_in = 0;
	if (s->must_wait)
		s->wait_end = now + TIMEOUT;
	if (told && s->top < s->given)
		COVER(FILE_BEHIND);
	s->session = -1;
	s->left = s->file_session;
	lose_all(s);
	TRACE("%d starts, %s", number(s), told ? "and remembers" : "and knows nothing");
}

static void
end_server(Server *s)
{
	s->up = false;
	memset(s->holds, 0, sizeof(s->holds));
}

static void
crash(Server *s)
{
	COVER(CRASHED);
	TRACE("%d crashes", number(s));
	if (s->history.found)
		COVER(CRASHED_IN_WAIT);
	s->stopped = false;
	disconnect(s);
	end_server(s);
}

static void
crash_machine(Server *s)
{
	COVER(MACHINE_CRASHED);
	TRACE("the machine of %d crashes", number(s));
	memset(&s->memory[s->machine], 0, sizeof(ZkHistoryMemory));
	s->kept_top = 0;
	s->kept_session = s->file_session = -1;
	crash(s);
}

/* The session is closed if there is a connection, else left. */
static void
stop_server(Server *s)
{
	COVER(STOPPED);
	TRACE("%d stops", number(s));
	if (s->connected && !s->asking)
		close_session(s);
	disconnect(s);
	if (s->known)
	{
		write_file(s, true);
		s->stopped = true;
		s->kept_top = 0;
		if (s->memory[s->machine].session == 0)
			memset(&s->memory[s->machine], 0, sizeof(ZkHistoryMemory));
	}
	end_server(s);
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */

static void
go_back(void)
{
	int which = random_below(nsaved + 1);
	int64_t epoch = zk.zxid >> 32;

	if (epoch > largest_epoch)
		largest_epoch = epoch;
	for (int i = 0; i < NSERVERS; i++)
	{
		disconnect(&server[i]);
		if (server[i].history.found)
			COVER(WENT_BACK_IN_WAIT);
	}
	if (which == nsaved)
	{
		memset(&zk, 0, sizeof(zk));
		zk.holder[0] = zk.holder[1] = -1;
		COVER(WIPED);
		nsaved = 0;
	}
	else
	{
		zk = saved[which];
		nsaved = which + 1;
	}
	incarnation++;
	up_at = now + (once_in(2) ? 0 : random_time(TIMEOUT));
	zk_up = false;
	for (int i = 0; i < NSERVERS; i++)
		server[i].away = up_at + (once_in(2) ? 0 : random_time(TIMEOUT / 2));
	quiet = up_at + TIMEOUT;
	zk.vouched = 0;
	for (int i = 0; i < nsessions; i++)
		zk.session[i].heard = up_at;
	if (largest_epoch < 1000 && once_in(3))
	{
		zk.zxid = ++largest_epoch << 32;
		COVER(WENT_BACK_EPOCH);
	}
	else
		COVER(WENT_BACK);
	TRACE("-- the ensemble goes back, to %" PRId64 ", base %" PRId64, zk.zxid, zk.base);
}

/*
 * The ensemble is restored while it runs: it numbers on, forgets the watches, and keeps
 * the connections of sessions that it remembers.
 */
static void
go_back_running(void)
{
	int64_t zxid = zk.zxid;

	if (nsaved == 0)
		return;
	nsaved = 1 + random_below(nsaved);
	zk = saved[nsaved - 1];
	zk.zxid = zxid;
	zk.vouched = 0;
	incarnation++;
	for (int i = 0; i < nsessions; i++)
		zk.session[i].heard = now;
	for (int i = 0; i < NSERVERS; i++)
	{
		Server *s = &server[i];

		s->deaf |= s->watching;
		s->watching = false;
		if (s->connected && !zk.session[s->session].alive)
		{
			disconnect(s);
			if (s->mending)
				s->session = -1;
		}
		/* until its next write nothing tells it */
		s->excused |= s->connected;
	}
	COVER(WENT_BACK_RUNNING);
	TRACE("-- the ensemble goes back while it runs, to base %" PRId64, zk.base);
}

/* Does everybody know of something that will be gone? */
static bool
all_know(void)
{
	for (int i = 0; i < NSERVERS; i++)
	{
		const Server *s = &server[i];

		/* one that has crashed knows what it kept */
		if (s->up ? !s->connected || !s->admitted : s->kept_session < 0)
			return false;
		if (s->kept_lost_at < now + TIMEOUT / 6 * 5)
			return false;
		for (int j = 0; j < nsaved; j++)
			if (s->top <= saved[j].base + saved[j].zxid ||
				s->kept_version <= saved[j].session[s->kept_session].version)
				return false;
	}
	return true;
}

static void
fault(void)
{
	Server *s = &server[random_below(NSERVERS)];

	if (tame && now < quiet)
		return;
	switch (random_below(tame ? 6 : 12))
	{
		case 0:
		case 1:
			if (nsaved < NSAVED)
				saved[nsaved++] = zk;
			break;
		case 2:
			if (!tame && once_in(4))
				go_back_running();
			else if (tame ? all_know() : once_in(2))
				go_back();
			break;
		case 3:
		case 4:
			if (s->connected && s->mending)
				COVER(MEND_BROKEN);
			disconnect(s);
			if (s->mending && s->up)
				s->session = -1; /* as session.c */
			break;
		case 5:
			if (tame)
			{
				if (s->up)
					crash(s);
				break;
			}
			zk_up = !zk_up;
			up_at = NEVER;
			for (int i = 0; !zk_up && i < NSERVERS; i++)
			{
				disconnect(&server[i]);
				if (server[i].mending && server[i].up)
					server[i].session = -1;
			}
			break;
		case 6:
		case 7:
			if (!s->up)
				break;
			if (once_in(2))
				stop_server(s);
			else if (once_in(2))
				crash(s);
			else
				crash_machine(s);
			break;
		case 8:
			if (!s->up && s->file && once_in(3))
			{
				COVER(FILE_LOST);
				s->file = false;
			}
			break;
		case 9:
			zk.zxid += random_time(INT64_C(1) << random_below(23));
			break;
		default:
			if (!s->up)
				start_server(s);
	}
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static void
check_exclusion(void)
{
	for (int l = 0; l < NLOCKS; l++)
		for (int i = 0; i < NSERVERS; i++)
			for (int j = 0; j < i; j++)
			{
				const Server *older = &server[i];
				const Server *newer = &server[j];

				if (!believes(older, l) || !believes(newer, l))
					continue;
				if (older->grant_incarnation[l] > newer->grant_incarnation[l])
				{
					older = &server[j];
					newer = &server[i];
				}
				if (older->grant_incarnation[l] == newer->grant_incarnation[l])
					fail("servers %d and %d have lock %d of one ensemble", i, j, l);
				if ((!newer->grant_excused[l] && !older->excused) || tame)
					fail("server %d has lock %d, and %d believes in it still",
						 number(newer), l, number(older));
				COVER(OVERLAP_EXCUSED);
			}
}

static void
act(Server *s)
{
	int l = random_below(NLOCKS);

	if (!s->up)
	{
		if (tame && once_in(8))
			start_server(s);
		return;
	}
	if (!s->connected)
	{
		if (zk_up && now >= s->away && once_in(3))
			connect_server(s);
		return;
	}
	switch (random_below(6))
	{
		case 0:
		case 1:
			if (s->requests.n > 0)
				execute(s);
			break;
		case 2:
		case 3:
			if (s->replies.n > 0 && now >= s->paused)
				receive(s);
			break;
		case 4:
			if (!s->mending && !s->asking && s->requests.n < 4 && s->replies.n < 8)
				send_request(s, WRITE, 0);
			break;
		default:
			/* right behind the check, too */
			if (s->mending || s->asking || s->busy[l] ||
				(keeps && s->holds[l] && !once_in(64)))
				break;
			s->busy[l] = true;
			if (now >= s->wrote + TIMEOUT / 6)
				send_request(s, WRITE, 0);
			if (s->holds[l])
			{
				s->holds[l] = false;
				send_request(s, UNLOCK, l);
			}
			else
				send_request(s, LOCK, l);
	}
}

static bool
all_admitted(void)
{
	for (int i = 0; i < NSERVERS; i++)
		if (!server[i].connected || !server[i].admitted)
			return false;
	return true;
}

void
play(uint64_t seed)
{
	int64_t pace;
	int wild;

	random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	now = S;
	quiet = 0;
	pace = TIMEOUT / (20 + random_below(200));
	wild = 4 + random_below(40);
	memset(&zk, 0, sizeof(zk));
	zk.holder[0] = zk.holder[1] = -1;
	zk_up = true;
	up_at = NEVER;
	incarnation = 1;
	largest_epoch = nsessions = nsaved = nmemories = 0;
	calm = false;
	tame = once_in(2);
	keeps = once_in(2);
	memset(largest, 0, sizeof(largest));
	memset(server, 0, sizeof(server));
	for (int i = 0; i < NSERVERS; i++)
	{
		server[i].session = server[i].file_session = server[i].kept_session = -1;
		start_server(&server[i]);
	}
	for (int i = 0; i < NLOCKS; i++)
		last_holder[i] = -1;

	for (step_count = 0; step_count < STEPS || !calm || !all_admitted(); step_count++)
	{
		if (step_count == STEPS)
		{
			TRACE("---- calm");
			calm = true;
			zk_up = true;
			for (int i = 0; i < NSERVERS; i++)
				if (!server[i].up)
					start_server(&server[i]);
		}
		if (step_count > 4 * STEPS + 40 * 1000)
			fail("somebody is not admitted long after all is calm");
		if (once_in(3))
			now += random_time(pace);
		if (!calm && once_in(wild))
			fault();
		for (int i = 0; i < nsessions; i++)
			if (zk_up && zk.session[i].alive && zk.session[i].heard + TIMEOUT < now)
			{
				end_session(i);
				for (int j = 0; j < NSERVERS; j++)
					if (server[j].connected && server[j].session == i)
						disconnect(&server[j]);
			}
		if (!zk_up && now >= up_at)
			zk_up = true;
		act(&server[random_below(NSERVERS)]);
		check_exclusion();
	}
	COVER(CALM);
}

const Simulator simulator = {
	.schedules = "schedules of an ensemble that goes back",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
