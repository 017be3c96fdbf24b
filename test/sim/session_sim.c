/*-------------------------------------------------------------------------
 *
 * session_sim.c
 *	  Plays seeded schedules of a server's ZooKeeper session against
 *	  src/protocol/session_rules.c.
 *
 * A server's worker opens, resumes, loses and closes sessions, as session.c does it.  Its
 * handles connect, or do not, or hang for ever in an ensemble that has seen less than
 * they did.  Connections break, sessions expire at any time, and messages wait at will.
 *Credentials are refused, the ensemble goes back, its base cannot be told, or was
 * touched; the root is missing, hosts are ClickHouse Keeper's, names are not known,
 * settings change. Workers die between two actions, and a successor knows shared memory;
 * servers crash, or stop, and the next life knows a file.  Then all is well.
 *
 * Invariants:
 *
 *	 - No session is made beside one that lives and was used, unless that one was closed,
 * is known to be over, or is put aside to be closed; or nobody can know of it any more.
 *	 - A session that is known to be over, or was closed, is not resumed.
 *	 - No session that the server goes by is closed.
 *	 - The agents hear CONNECTED, DISCONNECTED, TICK and RESUMED in an order that makes
 *	   sense, and of the end of one session before the next one has a lease.
 *	 - What is shown as connected is, and as proven is admitted.
 *	 - Whoever has found that the ensemble went back uses no session while he waits.
 *	 - A pause outlives the worker, and grows until all is well.
 *	 - A session of a life before is asked for a timeout, and kept for another, at most.
 *	 - A session waits for the end of the one before it, and that not for long.
 *	 - The end of a server closes the session that it has, or leaves it, as is wanted.
 *	 - In the end there is a connection that counts, and no other session.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "session_rules.h"

#define MS			 INT64_C(1000000)
#define TIMEOUT		 (6000 * MS)
#define MAX_SESSIONS 2000
#define MAX_QUEUE	 32
#define WILD		 600 /* steps */
#define CALM		 3000

/* a line of the trace */
#define TRACE(...) TRACE_LINE(__VA_ARGS__)

typedef enum Coverage
{
	COVER_CONNECTED,
	COVER_RECONNECTED,
	COVER_RESUMED,
	COVER_HELD,
	COVER_HELD_LOST,
	COVER_EXPIRED,
	COVER_GIVEN_UP,
	COVER_SPOILT,
	COVER_REFUSED,
	COVER_PAUSED_ON,
	COVER_KEEPER,
	COVER_WENT_BACK,
	COVER_TOO_SOON,
	COVER_MENDED,
	COVER_NOT_MENDED,
	COVER_UNKNOWN_BASE,
	COVER_TOUCHED,
	COVER_NO_ROOT,
	COVER_NO_NAMES,
	COVER_RENEWED,
	COVER_AWAITED,
	COVER_AWAITED_LONG,
	COVER_DIED,
	COVER_DIED_BETWEEN,
	COVER_CRASHED,
	COVER_STOPPED,
	COVER_STOPPED_HELD,
	COVER_LEFT_TO_NEXT,
	COVER_STALE_CLOSED,
	COVER_STALE_BARE,
	COVER_STALE_OVER,
	COVER_STALE_KEPT,
	COVER_LEFT_SETTLED,
	COVER_LEFT_OVER,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {
	"sessions begun",
	"connections made again",
	"sessions resumed",
	"connections held",
	"... and lost meanwhile",
	"sessions expired",
	"handles that tried for too long",
	"handles that were told nonsense",
	"credentials refused",
	"pauses that a successor ends",
	"sessions of ClickHouse Keeper",
	"findings that the ensemble went back",
	"... as the session expired too soon",
	"bases mended",
	"bases not mended",
	"bases that cannot be told",
	"bases touched",
	"connections without a root",
	"names not known",
	"sessions renewed",
	"... that waited for the old one",
	"... until it took too long",
	"workers died",
	"... between two actions",
	"servers crashed",
	"servers stopped",
	"... with a connection that was held",
	"sessions left to the next life",
	"sessions of a life before closed",
	"... without credentials",
	"... as they were asked for too long",
	"... kept",
	"... until settlers had done what they could",
	"... until it took too long",
};

long coverage[NCOVERAGE];

/* As the ensemble has it, and what became of it here. */
typedef struct Session
{
	bool lives;
	bool used;	  /* something may have been asked in it */
	bool closed;  /* we have sent that, as far as we knew */
	bool over;	  /* we know that it is, or have given it up */
	bool mends;	  /* it is of no other use */
	bool unknown; /* nobody here knows of it any more */
} Session;

typedef struct Notice
{
	ZkCourseEventType type;
	ZkLeftRuns runs;
} Notice;

typedef struct Handle
{
	bool there;
	int session; /* 0: a new one is wanted */
	bool up;	 /* the connection is */
	bool heard;	 /* ... as the worker has heard */
	bool dead;	 /* EXPIRED or AUTH_FAILED is on its way */
	bool bare;
	bool hangs; /* what it has seen is more than there is */
	bool asks;	/* an answer is to come */
	int n;
	Notice queue[MAX_QUEUE];
} Handle;

static Session session[MAX_SESSIONS];
static int nsessions;
static int64_t now;
static bool calm;

/* the world */
static bool outage;
static bool refuses;

/* shared memory */
static struct
{
	int session;
	ZkSessionState state;
	ZkSessionState pause_state;
	long pause;
	int64_t pause_until;
	int64_t unreached_since;
	bool proven;
	int grants; /* the session by which agents have what they have; 0: nothing */
} shared;

/* files */
static int file;
static bool found;
static bool mended;
static int64_t found_until;

/* the worker's process */
static ZkSessionCourse course;
static Handle own;
static Handle closing;
static Handle left;
static int resumes;
static bool told_up; /* the agents were */
static bool fresh;	 /* the handle had no connection yet */
static bool admitted;
static bool rootless;
static bool contends;
static int64_t hold_until;
static int64_t closing_since;
static int64_t stale_since;
static int64_t left_since;
static bool stale_refused;
static bool stopping;
static bool ending; /* it does what comes last */
static int dies_in; /* actions; 0: it does not */
static bool dead;

static void feed(ZkCourseEvent e);

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static void
notify(Handle *h, Notice notice)
{
	if (h->n == MAX_QUEUE)
		fail("a handle is not listened to");
	h->queue[h->n++] = notice;
}

static Notice
next_notice(Handle *h)
{
	Notice first = h->queue[0];

	memmove(h->queue, h->queue + 1, sizeof(Notice) * (size_t) --h->n);
	return first;
}

/* Does anybody here know of the session? */
static bool
is_known(int s)
{
	return s == shared.session || s == file || (own.there && s == own.session) ||
		(closing.there && s == closing.session) || (left.there && s == left.session);
}

static int
new_session(void)
{
	for (int i = 1; i <= nsessions; i++)
	{
		const Session *s = &session[i];

		if (s->lives && s->used && !s->closed && !s->over && !s->mends && !s->unknown &&
			!(closing.there && i == closing.session) && !(left.there && i == left.session))
			fail("a session is made beside session %d, which lives", i);
	}
	if (++nsessions == MAX_SESSIONS)
		fail("too many sessions");
	session[nsessions] =
		(Session){.lives = true, .mends = course.phase == ZKLOCK_PHASE_MEND};
	return nsessions;
}

static void
lose(Handle *h)
{
	if (!h->up)
		return;
	h->up = h->asks = false;
	h->hangs = !calm && once_in(8);
	/* a refusal may come after the connection */
	h->dead = !calm && once_in(8);
	notify(h,
		   (Notice){.type = h->dead ? ZKLOCK_COURSE_AUTH_FAILED
									: ZKLOCK_COURSE_DISCONNECTED});
}

static void
expire(int s)
{
	session[s].lives = false;
	if (own.there && own.session == s)
		lose(&own);
	if (left.there && left.session == s)
		lose(&left);
}

static void
try_to_connect(Handle *h)
{
	if (!h->there || h->up || h->dead || h->hangs || outage || h->n > 0)
		return;
	if (refuses && !h->bare)
	{
		h->dead = true;
		notify(h, (Notice){.type = ZKLOCK_COURSE_AUTH_FAILED});
		return;
	}
	if (h->session != 0 && !session[h->session].lives)
	{
		h->dead = true;
		notify(h, (Notice){.type = ZKLOCK_COURSE_EXPIRED});
		return;
	}
	if (!calm && h == &own && once_in(40))
	{
		h->dead = true;
		notify(h, (Notice){.type = ZKLOCK_COURSE_KEEPER});
		return;
	}
	if (h->session == 0)
		h->session = new_session();
	h->up = true;
	notify(h, (Notice){.type = ZKLOCK_COURSE_CONNECTED});
}

/* What a connection tells, once it was asked. */
static void
answer(Handle *h)
{
	Notice notice = {.type = ZKLOCK_COURSE_ADMITTED};
	int what = calm ? 9 : random_below(10);

	if (!h->up || !h->asks || h->n > 0)
		return;
	h->asks = false;
	if (h == &left)
		notice = (Notice){ZKLOCK_COURSE_LEFT_RUNS,
						  calm ? ZKLOCK_LEFT_NONE : (ZkLeftRuns) random_below(3)};
	else if (course.phase == ZKLOCK_PHASE_STALE)
	{
		notice = (Notice){ZKLOCK_COURSE_STALE_RUNS,
						  calm ? ZKLOCK_LEFT_NONE : (ZkLeftRuns) random_below(3)};
		if (what < 2)
			notice.type = what == 0 ? ZKLOCK_COURSE_WENT_BACK : ZKLOCK_COURSE_STALE_TOLD;
		h->asks = notice.runs == ZKLOCK_LEFT_UNKNOWN;
	}
	else if (course.phase == ZKLOCK_PHASE_MENDING)
		notice.type = what < 2 ? ZKLOCK_COURSE_NOT_MENDED
			: what < 3		   ? ZKLOCK_COURSE_UNKNOWN_BASE
							   : ZKLOCK_COURSE_MENDED;
	else if (what < 5)
	{
		static const ZkCourseEventType bad[] = {ZKLOCK_COURSE_NO_ROOT,
												ZKLOCK_COURSE_WENT_BACK,
												ZKLOCK_COURSE_UNKNOWN_BASE,
												ZKLOCK_COURSE_TOUCHED,
												ZKLOCK_COURSE_NO_ROOT};

		notice.type = bad[what];
		h->asks = notice.type == ZKLOCK_COURSE_NO_ROOT;
	}
	notify(h, notice);
}

/* ------------------------------------------------------------------------
 * What the worker does, as session.c
 * ------------------------------------------------------------------------
 */

/* Its connection goes; the session goes with a close that arrives. */
static void
close_handle(Handle *h)
{
	if (h->session != 0 && h->heard)
	{
		session[h->session].closed = true;
		if (h->up)
			session[h->session].lives = false;
	}
	*h = (Handle){0};
}

static void
open_own(ZkSessionPhase phase, bool bare)
{
	if (own.there)
		fail("a handle is opened beside another");
	if (!calm && once_in(20))
	{
		COVER(NO_NAMES);
		feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NO_HANDLE, .yes = once_in(2)});
		return;
	}
	if (resumes != 0 && session[resumes].over)
		fail("session %d is resumed, and is known to be over", resumes);
	if (resumes != 0 && session[resumes].closed && phase != ZKLOCK_PHASE_STALE)
		fail("session %d is resumed, and was closed", resumes);
	if (phase == ZKLOCK_PHASE_STALE && stale_refused && !bare)
		fail("credentials that were refused are shown again, only to close a session");
	if (found != (phase == ZKLOCK_PHASE_MEND) && phase != ZKLOCK_PHASE_STALE)
		fail("in the wait after a finding a session is for mending, and not else");
	if (bare)
		COVER(STALE_BARE);
	own = (Handle){.there = true, .session = resumes, .bare = bare};
	fresh = true;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_OPENED, .phase = phase});
}

static void
drop_own(void)
{
	if (!own.there)
		fail("no handle is dropped");
	if (own.heard && !ending && own.session == shared.session)
		fail("session %d is closed, and a successor would resume it", own.session);
	close_handle(&own);
}

static void
begin(bool known, bool resumed)
{
	if (found)
		fail("a session is used in the wait after a finding");
	if (now < hold_until)
		fail("a connection is used too early");
	if (closing.there && contends && now < closing_since + 500 * MS)
		fail("a session does not wait for the end of the one before it");
	if (shared.grants != 0 && shared.grants != own.session)
		fail("a lease begins, and the grants of session %d stand", shared.grants);
	if (resumed != (known && fresh))
		fail("session %d is %sresumed", own.session, resumed ? "" : "not ");
	fresh = admitted = rootless = false;
	shared.session = own.session;
	session[own.session].used = true;
	own.asks = own.up;
}

static void
tell(ZkLockEventType told)
{
	TRACE("  the agents hear %d", told);
	switch (told)
	{
		case ZKLOCK_EV_RESUMED:
		case ZKLOCK_EV_CONNECTED:
			if (told_up)
				fail("the agents hear twice that they are connected");
			break;
		case ZKLOCK_EV_DISCONNECTED:
		case ZKLOCK_EV_TICK:
			if (!told_up)
				fail("the agents hear %s without a connection",
					 told == ZKLOCK_EV_TICK ? "a tick" : "of a loss");
			break;
		case ZKLOCK_EV_SESSION_LOST:
			shared.grants = 0;
			break;
		default:
			fail("the agents hear %d", told);
	}
	if (told != ZKLOCK_EV_TICK)
		told_up = told == ZKLOCK_EV_CONNECTED || told == ZKLOCK_EV_RESUMED;
	if (told_up)
		shared.grants = own.session;
}

static void
show(ZkSessionState state)
{
	if (shared.state == ZKLOCK_SESSION_CONNECTED && shared.proven &&
		state != ZKLOCK_SESSION_CONNECTED)
		shared.unreached_since = now;
	shared.proven = false;
	if (shared.state != ZKLOCK_SESSION_CLOSING)
		shared.state = state;
}

static void
begin_pause(long pause, ZkSessionState state)
{
	if (pause != 0 && pause != 60000 && pause < 2 * shared.pause)
		fail("a pause of %ld ms follows one of %ld ms", pause, shared.pause);
	shared.pause = pause;
	shared.pause_state = state;
	shared.pause_until = pause == 0 ? 0 : now + pause * MS;
}

static void
forget(void)
{
	int s = shared.session;

	/* but for that which is put aside or closed in good order, it is given up */
	if (s != 0 && !ending && !(closing.there && closing.session == s))
		session[s].over = true;
	shared.session = 0;
}

static void
found_it(void)
{
	COVER(WENT_BACK);
	if (shared.session != 0)
		fail("a successor would go on with what the ensemble forgot");
	found = true;
	mended = false;
	found_until = now + TIMEOUT;
}

static void
perform_on_handle(const ZkCourseAction *a)
{
	switch (a->type)
	{
		case ZKLOCK_DO_OPEN:
			open_own(a->phase, a->yes);
			break;
		case ZKLOCK_DO_DROP:
			drop_own();
			break;
		case ZKLOCK_DO_BEGIN:
			begin(a->known, a->resumed);
			break;
		case ZKLOCK_DO_MEND:
		case ZKLOCK_DO_STALE_RUNS:
			own.asks = own.up;
			break;
		case ZKLOCK_DO_CLOSE:
			if (!closing.there)
				fail("no session is closed");
			session[closing.session].closed = true;
			closing_since = now;
			break;
		case ZKLOCK_DO_AWAIT:
			close_handle(&closing);
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_CLOSED});
			break;
		case ZKLOCK_DO_STALE:
			if (stale_since == 0)
				stale_since = now;
			if (once_in(2))
				feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STALE_TOLD});
			else
				own.asks = own.up;
			break;
		case ZKLOCK_DO_STALE_CLOSE:
			COVER(STALE_CLOSED);
			if (stale_since != 0 && now >= stale_since + TIMEOUT)
				COVER(STALE_OVER);
			stale_since = 0;
			stale_refused = false;
			break;
		case ZKLOCK_DO_KEEP:
			COVER(STALE_KEPT);
			stale_since = 0;
			stale_refused = false;
			left_since = now;
			left = own;
			own = (Handle){0};
			break;
		case ZKLOCK_DO_LEFT_RUNS:
			COVER(LEFT_SETTLED);
			left.asks = left.up;
			break;
		case ZKLOCK_DO_LEFT_CLOSE:
			if (now >= left_since + TIMEOUT)
				COVER(LEFT_OVER);
			if (closing.there)
				fail("two sessions are closed at a time");
			closing = left;
			left = (Handle){0};
			session[closing.session].closed = true;
			closing_since = now;
			contends = false;
			break;
		default:
			break;
	}
}

static void
perform(const ZkCourseAction *a)
{
	switch (a->type)
	{
		case ZKLOCK_DO_FORGET:
			forget();
			break;
		case ZKLOCK_DO_FOUND:
			found_it();
			break;
		case ZKLOCK_DO_LEFT_LEAVE:
			file = left.session;
			break;
		case ZKLOCK_DO_FILE:
			file = own.session;
			break;
		case ZKLOCK_DO_NO_FILE:
			file = 0;
			stale_refused = false;
			break;
		case ZKLOCK_DO_PAUSE:
			begin_pause(a->pause, a->state);
			break;
		case ZKLOCK_DO_SHOW:
			show(a->state);
			break;
		case ZKLOCK_DO_PROVE:
			if (a->yes && !admitted)
				fail("a connection is good, and not admitted");
			shared.proven = a->yes && shared.state == ZKLOCK_SESSION_CONNECTED;
			break;
		case ZKLOCK_DO_TELL:
			tell(a->told);
			break;
		case ZKLOCK_DO_SAY_OPENED:
			if (!a->known)
				COVER(CONNECTED);
			else if (a->resumed)
				COVER(RESUMED);
			else
				COVER(RECONNECTED);
			break;
		default:
			perform_on_handle(a);
			break;
	}
}

/* What holds when all actions are done. */
static void
check(void)
{
	if (zklock_course_has_handle(&course) != own.there)
		fail("phase %d, and %s handle", course.phase, own.there ? "a" : "no");
	if ((course.closing != ZKLOCK_CLOSING_NOTHING) != closing.there ||
		(course.left != ZKLOCK_LEFT_GONE) != left.there)
		fail("a handle is not known of");
	if (zklock_course_usable(&course) != told_up)
		fail("phase %d, and the agents were told otherwise", course.phase);
	if (zklock_course_usable(&course) && !own.heard)
		fail("phase %d, and the connection is lost", course.phase);
	if (shared.state == ZKLOCK_SESSION_CONNECTED && (!told_up || (!admitted && !rootless)))
		fail("a connection is shown that is none");
	if (zklock_course_usable(&course) && shared.session != own.session)
		fail("a successor would not resume session %d", own.session);
	if (shared.session != 0 && session[shared.session].over)
		fail("a successor would resume session %d, which is over", shared.session);
	if (file != 0 && session[file].over)
		fail("the next life would resume session %d, which is over", file);
	if (course.closing == ZKLOCK_CLOSING_AWAITED && now >= course.trying_since + 500 * MS)
		fail("a session waits too long for the end of the one before it");
}

static void
feed(ZkCourseEvent e)
{
	ZkCourseActions actions;

	if (dead)
		return;
	e.now = now;
	e.session = shared.session != 0;
	e.found = found;
	e.state = shared.state;
	e.pause_state = shared.pause_state;
	e.pause = shared.pause;
	e.timeout = TIMEOUT;
	zklock_course_step(&course, &e, &actions);
	if (e.type != ZKLOCK_COURSE_LOOK || actions.n > 0)
		TRACE("%.3f event %d: phase %d, closing %d, left %d, session %d, state %d",
			  (double) now / 1e9, e.type, course.phase, course.closing, course.left,
			  shared.session, shared.state);
	for (int i = 0; i < actions.n && !dead; i++)
	{
		if (dies_in > 0 && --dies_in == 0)
		{
			COVER(DIED_BETWEEN);
			dead = true;
			return;
		}
		TRACE("  action %d (handle %d)", actions.action[i].type, own.session);
		perform(&actions.action[i]);
	}
}

/* ------------------------------------------------------------------------
 * The main loop
 * ------------------------------------------------------------------------
 */

static void
open_session(void)
{
	bool stale;

	if (own.there || dead || now < course.retry_at || now < shared.pause_until)
		return;
	if (found && mended)
	{
		if (now < found_until)
		{
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_WAIT, .at = found_until});
			return;
		}
		found = false;
	}
	resumes = shared.session;
	stale = zklock_course_wants_stale(&course, resumes != 0) && file != 0;
	if (stale)
		resumes = file;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_OPEN, .yes = stale});
}

static void
on_connected(ZkCourseEvent *e)
{
	own.heard = true;
	e->known = own.session == shared.session;
	e->lasts = TIMEOUT;
	e->at = now;
	if (e->known && once_in(2))
		e->at += random_below(1000) * MS;
	hold_until = course.phase == ZKLOCK_PHASE_FIRST || course.phase == ZKLOCK_PHASE_AGAIN
		? e->at
		: 0;
}

/* Before the rules hear of it. */
static void
note(ZkCourseEvent *e)
{
	bool stale = course.phase == ZKLOCK_PHASE_STALE;

	switch (e->type)
	{
		case ZKLOCK_COURSE_CONNECTED:
			on_connected(e);
			break;
		case ZKLOCK_COURSE_DISCONNECTED:
			own.heard = admitted = rootless = false;
			if (zklock_course_held(&course))
				COVER(HELD_LOST);
			break;
		case ZKLOCK_COURSE_EXPIRED:
			COVER(EXPIRED);
			own.heard = false;
			e->yes = !calm && (stale || shared.session != 0) && once_in(6);
			if (e->yes)
				COVER(TOO_SOON);
			break;
		case ZKLOCK_COURSE_AUTH_FAILED:
			COVER(REFUSED);
			own.heard = false;
			stale_refused |= stale;
			admitted = rootless = false;
			break;
		case ZKLOCK_COURSE_KEEPER:
			COVER(KEEPER);
			break;
		case ZKLOCK_COURSE_ADMITTED:
			admitted = true;
			break;
		case ZKLOCK_COURSE_NO_ROOT:
			COVER(NO_ROOT);
			rootless = true;
			break;
		case ZKLOCK_COURSE_UNKNOWN_BASE:
			COVER(UNKNOWN_BASE);
			break;
		case ZKLOCK_COURSE_MENDED:
			COVER(MENDED);
			mended = true;
			break;
		case ZKLOCK_COURSE_NOT_MENDED:
			COVER(NOT_MENDED);
			break;
		case ZKLOCK_COURSE_TOUCHED:
			COVER(TOUCHED);
			break;
		case ZKLOCK_COURSE_BEAT:
			e->yes = admitted;
			break;
		default:
			break;
	}
}

static void
receive(void)
{
	Notice notice;
	ZkCourseEvent e;
	int was = own.session;
	ZkSessionPhase before = course.phase;

	if (!own.there || own.n == 0 || course.phase == ZKLOCK_PHASE_ANEW)
		return;
	notice = next_notice(&own);
	e = (ZkCourseEvent){.type = notice.type, .runs = notice.runs, .lasts = TIMEOUT};
	note(&e);
	feed(e);
	if (dead)
		return;
	if (notice.type == ZKLOCK_COURSE_EXPIRED && was != 0)
	{
		session[was].over = true;
		if (before != ZKLOCK_PHASE_STALE && before < ZKLOCK_PHASE_FIRST &&
			course.retry_at > now)
			fail("nothing is mended for a while");
	}
	if (zklock_course_held(&course) && notice.type == ZKLOCK_COURSE_CONNECTED)
		COVER(HELD);
	if (course.phase == ZKLOCK_PHASE_STALE && stale_since != 0 &&
		now >= stale_since + TIMEOUT &&
		(notice.type == ZKLOCK_COURSE_STALE_RUNS || notice.type == ZKLOCK_COURSE_STALE_TOLD))
		fail("a session of a life before is asked for too long");
}

static void
receive_left(void)
{
	ZkCourseEvent e = {.type = ZKLOCK_COURSE_LEFT_RUNS, .yes = calm || !once_in(20)};

	if (!left.there || closing.there)
		return;
	e.settled = shared.proven && once_in(3);
	if (left.n > 0)
	{
		Notice notice = next_notice(&left);

		if (notice.type == ZKLOCK_COURSE_CONNECTED)
			left.heard = true, left.asks = left.up;
		else if (notice.type == ZKLOCK_COURSE_DISCONNECTED)
			left.heard = false;
		else if (notice.type != ZKLOCK_COURSE_LEFT_RUNS)
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LEFT_ENDED});
		e.runs = notice.runs;
	}
	feed(e);
	if (!dead && left.there && now >= left_since + TIMEOUT)
		fail("a session of a life before is kept for too long");
}

static void
close_end(void)
{
	if (!closing.there || course.closing == ZKLOCK_CLOSING_LATER)
		return;
	if (contends && course.closing == ZKLOCK_CLOSING_BEGUN && !zklock_course_usable(&course))
		COVER(AWAITED_LONG);
	if (!calm && !once_in(6))
		return;
	close_handle(&closing);
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_CLOSED});
}

static void
use_connection(void)
{
	if (!zklock_course_use_due(&course, now))
		return;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_USE, .known = own.session == shared.session});
}

/* Is another handle, or another process, to try? */
static void
look_at_handle(void)
{
	bool spoilt = !calm && once_in(30);

	if (course.phase == ZKLOCK_PHASE_ANEW && !stopping)
		dead = true;
	if (dead || stopping || own.up || own.n > 0 || !zklock_course_tries(&course))
		return;
	if (!spoilt &&
		!zklock_course_gives_up(&course, TIMEOUT, now - shared.unreached_since, now))
		return;
	if (spoilt)
		COVER(SPOILT);
	else
		COVER(GIVEN_UP);
	own = (Handle){0};
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LEFT, .yes = spoilt});
}

static void
renew(void)
{
	contends = once_in(2);
	COVER(RENEWED);
	if (contends)
		COVER(AWAITED);
	closing = own;
	closing.n = 0;
	own = (Handle){.there = true};
	resumes = 0;
	fresh = true;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_RENEWED, .yes = contends});
}

static void
work(void)
{
	ZkSessionState before = shared.state;

	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LOOK});
	if (before == ZKLOCK_SESSION_STARTING && shared.pause > 0)
	{
		COVER(PAUSED_ON);
		if (!dead && shared.state == ZKLOCK_SESSION_STARTING)
			fail("why the worker waits is not shown");
	}
	if (!stopping || shared.session != 0)
		open_session();
	close_end();
	if (!dead)
		receive_left();
	if (!dead)
		use_connection();
	for (int n = calm ? MAX_QUEUE : random_below(4); n > 0 && !dead; n--)
		receive();
	if (!dead)
		look_at_handle();
	if (!dead && !calm && !stopping && once_in(30) && zklock_course_renewable(&course) &&
		!own.n)
		renew();
	if (!dead)
		check();
}

/* ------------------------------------------------------------------------
 * Ends, and beginnings
 * ------------------------------------------------------------------------
 */

/* What remains is shared memory, unless that is gone, too. */
static void
end_process(bool server)
{
	/* what was put aside times out, but for what the file has */
	session[closing.session].unknown = session[left.session].unknown = true;
	/* what it has is not known to be over: it is closed at least */
	session[file].over = false;
	memset(&course, 0, sizeof(course));
	own = closing = left = (Handle){0};
	told_up = admitted = rootless = stale_refused = dead = contends = false;
	dies_in = 0;
	hold_until = stale_since = 0;
	if (shared.state == ZKLOCK_SESSION_CONNECTED && shared.proven)
		shared.unreached_since = now;
	shared.proven = false;
	if (shared.state != ZKLOCK_SESSION_CLOSING)
		shared.state = ZKLOCK_SESSION_STARTING;
	if (server || stopping)
	{
		memset(&shared, 0, sizeof(shared));
		shared.unreached_since = now;
		found_until = now + TIMEOUT;
		stopping = ending = false;
	}
	for (int i = 1; i <= nsessions; i++)
		if (!is_known(i))
			session[i].unknown = true;
}

static void
stop(void)
{
	stopping = true;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STOPPING});
}

/* The end of the server, in good order. */
static void
end_server(bool leaves)
{
	bool held = zklock_course_held(&course);
	bool has = own.heard && (held || zklock_course_connected(&course));
	int s = own.session;

	COVER(STOPPED);
	ending = true;
	if (held)
		COVER(STOPPED_HELD);
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_END, .yes = leaves});
	if (!dead && has && !leaves && (own.there || !session[s].closed))
		fail("session %d is not closed by the end of its server", s);
	if (!dead && has && leaves)
	{
		COVER(LEFT_TO_NEXT);
		if (session[s].closed)
			fail("session %d is closed, and runs hang on it", s);
	}
	if (!dead && closing.there)
		fail("session %d is left to time out", closing.session);
	if (!dead && told_up && !own.there && shared.session != 0)
		fail("a session is closed that somebody might resume");
	end_process(true);
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static void
misfortune(void)
{
	switch (random_below(14))
	{
		case 0:
			lose(&own);
			break;
		case 1:
			lose(&left);
			break;
		case 2:
			if (nsessions > 0)
				expire(1 + random_below(nsessions));
			break;
		case 3:
			if (own.session != 0)
				expire(own.session);
			break;
		case 4:
			outage = !outage && once_in(2);
			break;
		case 5:
			refuses = !refuses && once_in(2);
			break;
		case 6:
			COVER(DIED);
			end_process(false);
			break;
		case 7:
			dies_in = 1 + random_below(12);
			break;
		case 8:
			if (!once_in(3))
				break;
			COVER(CRASHED);
			end_process(true);
			break;
		case 9:
			if (!stopping)
				stop();
			break;
		case 10:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_RELOADED});
			break;
		case 11:
			if (!own.there)
				feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NAMED});
			break;
		default:
			now += random_below(8000) * MS;
			break;
	}
}

static void
step(void)
{
	step_count++;
	now += random_below(calm ? 100 : 200) * MS;
	if (!calm && once_in(12))
		misfortune();
	try_to_connect(&own);
	try_to_connect(&left);
	if (calm || once_in(2))
		answer(&own);
	if (calm || once_in(3))
		answer(&left);
	if (own.up && own.n == 0 && !own.dead && zklock_course_usable(&course) &&
		(calm || once_in(3)))
		notify(&own, (Notice){.type = ZKLOCK_COURSE_BEAT});
	work();
	if (dead)
	{
		COVER(DIED);
		end_process(false);
	}
	else if (stopping && (calm || once_in(15)))
		end_server(!calm && once_in(3));
}

static void
check_end(void)
{
	if (shared.state != ZKLOCK_SESSION_CONNECTED || !shared.proven)
		fail("in the end there is no connection: phase %d, state %d", course.phase,
			 shared.state);
	if (shared.pause != 0)
		fail("in the end there is a pause");
	if (closing.there || left.there)
		fail("in the end a session is still to be closed");
	if (!session[own.session].lives)
		fail("in the end the session does not live");
	for (int i = 1; i <= nsessions; i++)
	{
		const Session *s = &session[i];

		if (s->lives && i != own.session && s->used && !s->closed && !s->over && !s->unknown)
			fail("in the end session %d lives, too", i);
	}
}

void
play(uint64_t seed)
{
	random_state = seed;
	memset(session, 0, sizeof(session));
	memset(&shared, 0, sizeof(shared));
	nsessions = file = 0;
	found = mended = stopping = ending = outage = refuses = calm = false;
	now = 1000 * MS;
	shared.unreached_since = now;
	end_process(false);
	for (int i = 0; i < WILD; i++)
		step();
	calm = true;
	outage = refuses = false;
	for (int i = 0; i < CALM; i++)
		step();
	check_end();
}

const Simulator simulator = {
	.schedules = "schedules of a session",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
