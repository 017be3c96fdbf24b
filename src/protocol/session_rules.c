/*-------------------------------------------------------------------------
 *
 * session_rules.c
 *	  Decides when the worker opens, resumes, gives up and closes its ZooKeeper session.
 *
 *-------------------------------------------------------------------------
 */
#include "session_rules.h"

#include "heartbeat.h"

#include <assert.h>

#define MS		 INT64_C(1000000)

#define RETRY_MS 1000
#define RETRY	 (RETRY_MS * MS)

/* The longest pause between two attempts when the ensemble refuses our credentials. */
#define LONGEST_PAUSE_MS 60000

/* Pause before another handle, if a server told this one nonsense. */
#define SPOILT (250 * MS)

/* The longest that a new session waits for the end of the one before it. */
#define AWAITED (500 * MS)

/* For this long after its loss a connection may be back in a moment. */
#define RETURNING (2000 * MS)

/* ------------------------------------------------------------------------
 * Questions about a phase
 * ------------------------------------------------------------------------
 */

bool
zklock_course_has_handle(const ZkSessionCourse *course)
{
	return course->phase > ZKLOCK_PHASE_NAMES;
}

bool
zklock_course_usable(const ZkSessionCourse *course)
{
	return course->phase == ZKLOCK_PHASE_UP || course->phase == ZKLOCK_PHASE_ANEW;
}

bool
zklock_course_connected(const ZkSessionCourse *course)
{
	return zklock_course_usable(course) || course->phase == ZKLOCK_PHASE_MENDING;
}

bool
zklock_course_held(const ZkSessionCourse *course)
{
	return course->phase == ZKLOCK_PHASE_FIRST_HELD ||
		course->phase == ZKLOCK_PHASE_AGAIN_HELD;
}

bool
zklock_course_tries(const ZkSessionCourse *course)
{
	return zklock_course_has_handle(course) && !zklock_course_connected(course) &&
		!zklock_course_held(course);
}

bool
zklock_course_returning(const ZkSessionCourse *course, bool session, int64_t now)
{
	return zklock_course_tries(course) &&
		(session || course->phase == ZKLOCK_PHASE_STALE) &&
		now - course->trying_since < RETURNING;
}

/* Each handle is given as long as all before it. */
bool
zklock_course_gives_up(const ZkSessionCourse *course, int64_t timeout, int64_t unreached,
					   int64_t now)
{
	return zklock_course_tries(course) &&
		now - course->trying_since >= zklock_heartbeat_patience(timeout, unreached);
}

bool
zklock_course_renewable(const ZkSessionCourse *course)
{
	return zklock_course_usable(course) && course->closing == ZKLOCK_CLOSING_NOTHING;
}

bool
zklock_course_wants_stale(const ZkSessionCourse *course, bool session)
{
	return !session && course->closing == ZKLOCK_CLOSING_NOTHING &&
		course->left == ZKLOCK_LEFT_GONE;
}

/* The session before this one is closed by then, whatever has become of this one, and
 * nothing waits for it any more. */
static int64_t
awaited_until(const ZkSessionCourse *course)
{
	return course->trying_since + AWAITED;
}

static int64_t
min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
zklock_course_due(const ZkSessionCourse *course)
{
	int64_t due = INT64_MAX;

	if (zklock_course_held(course) && course->closing != ZKLOCK_CLOSING_AWAITED)
		due = course->use_at;
	if (course->left != ZKLOCK_LEFT_GONE)
		due = min(due, course->left_until);
	if (course->closing == ZKLOCK_CLOSING_LATER || course->closing == ZKLOCK_CLOSING_AWAITED)
		due = min(due, awaited_until(course));
	return due;
}

bool
zklock_course_use_due(const ZkSessionCourse *course, int64_t now)
{
	return zklock_course_held(course) && course->closing != ZKLOCK_CLOSING_AWAITED &&
		now >= course->use_at;
}

/* May the session of a life before be closed without another question?  Its
 * contenders are in the way of others, and the cause that delays an answer may last. */
static bool
stale_is_over(const ZkSessionCourse *course, int64_t now)
{
	return course->ask_until != 0 && now >= course->ask_until;
}

/* ------------------------------------------------------------------------
 * Actions
 * ------------------------------------------------------------------------
 */

static ZkCourseAction *
act(ZkCourseActions *actions, ZkCourseActionType type)
{
	ZkCourseAction *action = &actions->action[actions->n];

	assert(actions->n < ZKLOCK_COURSE_ACTIONS);
	actions->n++;
	*action = (ZkCourseAction){.type = type};
	return action;
}

static void
show(ZkCourseActions *actions, ZkSessionState state)
{
	act(actions, ZKLOCK_DO_SHOW)->state = state;
}

static void
tell(ZkCourseActions *actions, ZkLockEventType told)
{
	act(actions, ZKLOCK_DO_TELL)->told = told;
}

/* The log gets it, and so does zk_session. */
static void
say(ZkCourseActions *actions, ZkCourseEventType event)
{
	act(actions, ZKLOCK_DO_SAY_TROUBLE)->event = event;
}

/* Sessions that wait for ZooKeeper are told. */
static void
say_why(ZkCourseActions *actions, ZkCourseEventType event)
{
	act(actions, ZKLOCK_DO_SAY_WHY)->event = event;
}

static void
show_went_back(ZkCourseActions *actions)
{
	show(actions, ZKLOCK_SESSION_WENT_BACK);
	say_why(actions, ZKLOCK_COURSE_WENT_BACK);
}

/* Gives up the handle.  If the session lives, it is closed, or times out by itself. */
static void
drop(ZkSessionCourse *course, int64_t retry_at, ZkCourseActions *actions)
{
	course->phase = ZKLOCK_PHASE_NONE;
	course->retry_at = retry_at;
	act(actions, ZKLOCK_DO_DROP);
}

/* Tries again later, and if that does not help either, later still.  The state that
 * is shown meanwhile is for a successor, too. */
static void
begin_pause(const ZkCourseEvent *e, ZkSessionState state, ZkCourseActions *actions)
{
	ZkCourseAction *action = act(actions, ZKLOCK_DO_PAUSE);

	action->state = state;
	action->pause = e->pause == 0 ? RETRY_MS : min(2 * e->pause, LONGEST_PAUSE_MS);
	show(actions, state);
}

/* The same, and nothing is shown but the reason. */
static void
pause_without_session(const ZkCourseEvent *e, ZkCourseActions *actions)
{
	begin_pause(e, e->found ? ZKLOCK_SESSION_WENT_BACK : ZKLOCK_SESSION_CONNECTING,
				actions);
}

/* ------------------------------------------------------------------------
 * A handle
 * ------------------------------------------------------------------------
 */

/*
 * A server that crashed or was stopped in a hurry left a session behind that nobody can
 * use: shared memory is new, and every backend of that time is gone.  Its contenders
 * would block everybody until it expires.  So the worker closes it before anything
 * else, when the session has told what it can.  The worker keeps it while jobs hang on
 * it, if only we can tell how their runs ended.
 */
static void
open_handle(const ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	ZkCourseAction *open;

	/* why nothing could be mended yet goes on being shown */
	if (e->found)
	{
		if (e->state != ZKLOCK_SESSION_WENT_BACK)
			show_went_back(actions);
	}
	else if (e->pause == 0)
		show(actions, ZKLOCK_SESSION_CONNECTING);
	open = act(actions, ZKLOCK_DO_OPEN);
	open->phase = e->yes ? ZKLOCK_PHASE_STALE
		: e->found		 ? ZKLOCK_PHASE_MEND
						 : ZKLOCK_PHASE_FIRST;
	/* nobody needs them to close his session, but to ask before */
	open->yes = e->yes && stale_is_over(course, e->now);
}

static void
no_handle(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	course->retry_at = e->now + RETRY;
	if (e->yes && course->phase != ZKLOCK_PHASE_NAMES)
		course->phase = ZKLOCK_PHASE_NAMES; /* no trouble yet */
	else
		say(actions, ZKLOCK_COURSE_NO_HANDLE);
	say_why(actions, ZKLOCK_COURSE_NO_HANDLE);
}

/* The session goes on.  The next handle resumes it. */
static void
leave_handle(ZkSessionCourse *course, const ZkCourseEvent *e)
{
	assert(zklock_course_tries(course));
	course->phase = ZKLOCK_PHASE_NONE;
	course->retry_at = e->yes ? e->now + min(SPOILT, e->timeout / 6) : 0;
}

/* The old session is closed when the new one has come to a write, so that the first
 * lock need not wait for that, too.  It is closed at once if it has contenders of
 * ours: otherwise a session that would not wait for a lock would find it taken by our
 * kept grants. */
static void
renew(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	assert(zklock_course_renewable(course));
	course->phase = ZKLOCK_PHASE_FIRST;
	course->trying_since = e->now;
	course->closing = e->yes ? ZKLOCK_CLOSING_AWAITED : ZKLOCK_CLOSING_LATER;
	act(actions, ZKLOCK_DO_FORGET);
	show(actions, ZKLOCK_SESSION_CONNECTING);
	tell(actions, ZKLOCK_EV_SESSION_LOST);
	if (e->yes)
		act(actions, ZKLOCK_DO_CLOSE);
}

/* ------------------------------------------------------------------------
 * A connection
 * ------------------------------------------------------------------------
 */

/*
 * On a connection of the session that we have, nothing is sent for a while, so that
 * servers that come back do not all send at once.  And requests of a new session do not
 * meet contenders that were kept in the old one.
 */
static bool
is_held(const ZkSessionCourse *course, const ZkCourseEvent *e)
{
	if (course->phase != ZKLOCK_PHASE_FIRST && course->phase != ZKLOCK_PHASE_AGAIN)
		return false;
	return course->closing == ZKLOCK_CLOSING_AWAITED || (e->known && e->at > e->now);
}

/* A predecessor that heard of its session's end may have died before it told all
 * entries.  Their grants must be gone before there is a lease again. */
static void
use(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool first =
		course->phase == ZKLOCK_PHASE_FIRST || course->phase == ZKLOCK_PHASE_FIRST_HELD;
	bool resumed = e->known && first;
	ZkCourseAction *action;

	if (!e->known)
		tell(actions, ZKLOCK_EV_SESSION_LOST);
	course->phase = ZKLOCK_PHASE_UP;
	action = act(actions, ZKLOCK_DO_BEGIN);
	action->known = e->known;
	action->resumed = resumed;
	action = act(actions, ZKLOCK_DO_SAY_OPENED);
	action->known = e->known;
	action->resumed = resumed;
	tell(actions, resumed ? ZKLOCK_EV_RESUMED : ZKLOCK_EV_CONNECTED);
	/* at last: somebody may be waiting for what is sent */
	if (!e->known)
		act(actions, ZKLOCK_DO_FILE);
}

static void
connected(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	switch (course->phase)
	{
		case ZKLOCK_PHASE_STALE:
			if (course->ask_until == 0)
				course->ask_until = e->now + e->lasts;
			act(actions, ZKLOCK_DO_STALE);
			break;
		case ZKLOCK_PHASE_MEND:
			course->phase = ZKLOCK_PHASE_MENDING;
			act(actions, ZKLOCK_DO_MEND);
			break;
		default:
			if (e->type == ZKLOCK_COURSE_CONNECTED && is_held(course, e))
			{
				course->phase = course->phase == ZKLOCK_PHASE_FIRST
					? ZKLOCK_PHASE_FIRST_HELD
					: ZKLOCK_PHASE_AGAIN_HELD;
				course->use_at = e->at;
				break;
			}
			assert(zklock_course_tries(course) || zklock_course_held(course));
			use(course, e, actions);
			break;
	}
}

/* ClickHouse Keeper ends sessions while their clients believe in them.  It resumes no
 * session, so this is not the one that we had. */
static void
refuse_keeper(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	say(actions, ZKLOCK_COURSE_KEEPER);
	drop(course, e->now + RETRY, actions);
	pause_without_session(e, actions);
	say_why(actions, ZKLOCK_COURSE_KEEPER);
}

static void
disconnected(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	switch (course->phase)
	{
		case ZKLOCK_PHASE_FIRST_HELD:
			course->phase = ZKLOCK_PHASE_FIRST;
			course->trying_since = e->now;
			break;
		case ZKLOCK_PHASE_AGAIN_HELD:
			course->phase = ZKLOCK_PHASE_AGAIN;
			course->trying_since = e->now;
			break;
		case ZKLOCK_PHASE_MENDING:
			act(actions, ZKLOCK_DO_SAVE);
			drop(course, e->now + RETRY, actions);
			break;
		case ZKLOCK_PHASE_UP:
			course->phase = ZKLOCK_PHASE_AGAIN;
			course->trying_since = e->now;
			act(actions, ZKLOCK_DO_SAVE);
			say(actions, ZKLOCK_COURSE_DISCONNECTED);
			show(actions, ZKLOCK_SESSION_RECONNECTING);
			act(actions, ZKLOCK_DO_HOSTS);
			tell(actions, ZKLOCK_EV_DISCONNECTED);
			break;
		default:
			break; /* it never was of use */
	}
}

/* ------------------------------------------------------------------------
 * The end of a session
 * ------------------------------------------------------------------------
 */

/* The data that our successor needs come before every step that may fail; and nobody
 * believes in the session any more.  Closing the handle may take its time. */
static void
went_back(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	course->ask_until = 0;
	act(actions, ZKLOCK_DO_FORGET);
	say(actions, ZKLOCK_COURSE_WENT_BACK);
	act(actions, ZKLOCK_DO_FOUND)->lasts = e->timeout;
	show_went_back(actions);
	tell(actions, ZKLOCK_EV_SESSION_LOST);
	drop(course, 0, actions);
	act(actions, ZKLOCK_DO_NO_FILE);
}

/* As with refused credentials: the session is of no use, and the trouble will last. */
static void
unknown_base(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	act(actions, ZKLOCK_DO_FORGET);
	say(actions, ZKLOCK_COURSE_UNKNOWN_BASE);
	pause_without_session(e, actions);
	say_why(actions, ZKLOCK_COURSE_UNKNOWN_BASE);
	tell(actions, ZKLOCK_EV_SESSION_LOST);
	drop(course, e->now + RETRY, actions);
	act(actions, ZKLOCK_DO_NO_FILE);
}

static void
expired(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool stale = course->phase == ZKLOCK_PHASE_STALE;
	bool mends =
		course->phase == ZKLOCK_PHASE_MEND || course->phase == ZKLOCK_PHASE_MENDING;

	course->ask_until = 0;
	if (!stale)
		say(actions, ZKLOCK_COURSE_EXPIRED);
	if (e->yes)
	{
		went_back(course, e, actions);
		return;
	}
	drop(course, 0, actions);
	act(actions, ZKLOCK_DO_FORGET);
	act(actions, ZKLOCK_DO_NO_FILE);
	if (stale || mends)
		return;
	show(actions, ZKLOCK_SESSION_CONNECTING);
	tell(actions, ZKLOCK_EV_SESSION_LOST);
}

/* The ensemble does not take our credentials.  The session may live, and waits for
 * its time. */
static void
auth_failed(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool was_usable = zklock_course_usable(course);

	/* the next attempt closes it without them, and so without a word from it */
	if (course->phase == ZKLOCK_PHASE_STALE)
	{
		act(actions, ZKLOCK_DO_NOTE);
		course->ask_until = e->now;
	}
	say(actions, ZKLOCK_COURSE_AUTH_FAILED);
	drop(course, e->now + RETRY, actions);
	begin_pause(e, ZKLOCK_SESSION_AUTH_FAILED, actions);
	say_why(actions, ZKLOCK_COURSE_AUTH_FAILED);
	if (was_usable)
		tell(actions, ZKLOCK_EV_DISCONNECTED);
}

/* Closes the session before this one, without a wait, if there is one and its end has
 * not begun. */
static void
close_begin(ZkSessionCourse *course, ZkCourseActions *actions)
{
	if (course->closing != ZKLOCK_CLOSING_LATER)
		return;
	course->closing = ZKLOCK_CLOSING_BEGUN;
	act(actions, ZKLOCK_DO_CLOSE);
}

/* The end of the server.  A session that cannot be closed times out, or our next
 * start closes it: we do not wait for a library that cannot reach anybody. */
static void
end(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool there = zklock_course_connected(course) || zklock_course_held(course);

	/* what cannot be closed may tell our next start something */
	act(actions, ZKLOCK_DO_STOP)->yes = there && !e->yes;
	/* or its kept grants might be in the way of others until it times out */
	close_begin(course, actions);
	if (course->closing != ZKLOCK_CLOSING_NOTHING)
		act(actions, ZKLOCK_DO_AWAIT);
	if (e->yes)
	{
		if (zklock_course_has_handle(course))
			act(actions, ZKLOCK_DO_SAY_LEAVING);
		return;
	}
	if (!there)
		return;
	/* From here on nobody may resume it.  The library does not say whether the
	 * ensemble has heard of the end, so the file stays: our next start looks. */
	act(actions, ZKLOCK_DO_FORGET);
	drop(course, e->now + RETRY, actions);
	if (course->left != ZKLOCK_LEFT_GONE)
		act(actions, ZKLOCK_DO_LEFT_LEAVE);
}

/* ------------------------------------------------------------------------
 * A session that a life before has left
 * ------------------------------------------------------------------------
 */

/* The file stays, and the next attempt to use it hears that the session is gone. */
static void
close_stale(ZkSessionCourse *course, ZkCourseActions *actions)
{
	act(actions, ZKLOCK_DO_STALE_CLOSE);
	course->ask_until = 0;
	act(actions, ZKLOCK_DO_NOTE);
	drop(course, 0, actions);
}

/*
 * The session of a life before has left runs to be settled.  The jobs hang on it, so it
 * stays until that is done, beside the session that is opened now.  But it stays no
 * longer than it would without us, because all its contenders are in the way of others.
 */
static void
keep_stale(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	course->ask_until = 0;
	act(actions, ZKLOCK_DO_KEEP);
	course->phase = ZKLOCK_PHASE_NONE;
	course->retry_at = 0;
	course->left = ZKLOCK_LEFT_KEPT;
	course->left_until = e->now + e->lasts;
}

static void
stale(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool over = stale_is_over(course, e->now);

	assert(course->phase == ZKLOCK_PHASE_STALE);
	if (e->type == ZKLOCK_COURSE_STALE_TOLD && !over)
		act(actions, ZKLOCK_DO_STALE_RUNS);
	else if (e->type == ZKLOCK_COURSE_STALE_TOLD || e->runs == ZKLOCK_LEFT_NONE)
		close_stale(course, actions);
	else if (e->runs == ZKLOCK_LEFT_SOME)
		keep_stale(course, e, actions);
	else if (over)
		close_stale(course, actions);
}

/* Is the session of a life before of no use any more?  Settlers that have ended have
 * settled what they could: the worker reads the records once more. */
static void
left_runs(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	bool over = e->runs == ZKLOCK_LEFT_NONE ||
		(e->runs == ZKLOCK_LEFT_SOME && course->left == ZKLOCK_LEFT_SETTLED);

	/* no two are closed at a time */
	assert(course->left != ZKLOCK_LEFT_GONE && course->closing == ZKLOCK_CLOSING_NOTHING);
	if (!over && course->left == ZKLOCK_LEFT_KEPT && e->settled &&
		zklock_course_connected(course))
	{
		course->left = ZKLOCK_LEFT_SETTLED;
		act(actions, ZKLOCK_DO_LEFT_RUNS);
	}
	if (!over && e->yes && e->now < course->left_until)
		return;
	course->left = ZKLOCK_LEFT_GONE;
	course->closing = ZKLOCK_CLOSING_BEGUN;
	act(actions, ZKLOCK_DO_LEFT_CLOSE);
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

static void
look(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	/* the pause that a predecessor began is ours to end */
	if (e->pause > 0 && e->state == ZKLOCK_SESSION_STARTING)
		show(actions, e->pause_state);
	if (course->closing == ZKLOCK_CLOSING_NOTHING || e->now < awaited_until(course))
		return;
	close_begin(course, actions);
	course->closing = ZKLOCK_CLOSING_BEGUN;
}

static void
on_worker(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	switch (e->type)
	{
		case ZKLOCK_COURSE_LOOK:
			look(course, e, actions);
			break;
		case ZKLOCK_COURSE_WAIT:
			/* a predecessor's finding, or that of before the server's start, shows, too */
			if (e->state != ZKLOCK_SESSION_WENT_BACK)
				show_went_back(actions);
			course->retry_at = e->at;
			break;
		case ZKLOCK_COURSE_OPEN:
			assert(!zklock_course_has_handle(course) && e->now >= course->retry_at);
			open_handle(course, e, actions);
			break;
		case ZKLOCK_COURSE_OPENED:
			course->phase = e->phase;
			course->trying_since = e->now;
			break;
		case ZKLOCK_COURSE_NO_HANDLE:
			no_handle(course, e, actions);
			break;
		case ZKLOCK_COURSE_NAMED:
			if (!zklock_course_has_handle(course))
				course->retry_at = 0;
			break;
		case ZKLOCK_COURSE_LEFT:
			leave_handle(course, e);
			break;
		case ZKLOCK_COURSE_RENEWED:
			renew(course, e, actions);
			break;
		case ZKLOCK_COURSE_CLOSED:
			course->closing = ZKLOCK_CLOSING_NOTHING;
			break;
		case ZKLOCK_COURSE_RELOADED:
			act(actions, ZKLOCK_DO_PAUSE);
			course->retry_at = 0;
			break;
		case ZKLOCK_COURSE_STOPPING:
			show(actions, ZKLOCK_SESSION_CLOSING);
			act(actions, ZKLOCK_DO_SAY_STOPPING);
			break;
		case ZKLOCK_COURSE_END:
			end(course, e, actions);
			break;
		default:
			assert(false);
	}
}

static void
on_handle(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	assert(zklock_course_has_handle(course));
	switch (e->type)
	{
		case ZKLOCK_COURSE_CONNECTED:
		case ZKLOCK_COURSE_USE:
			connected(course, e, actions);
			break;
		case ZKLOCK_COURSE_KEEPER:
			refuse_keeper(course, e, actions);
			break;
		case ZKLOCK_COURSE_DISCONNECTED:
			disconnected(course, e, actions);
			break;
		case ZKLOCK_COURSE_EXPIRED:
			expired(course, e, actions);
			break;
		case ZKLOCK_COURSE_AUTH_FAILED:
			auth_failed(course, e, actions);
			break;
		default:
			assert(false);
	}
}

static void
on_ensemble(ZkSessionCourse *course, const ZkCourseEvent *e, ZkCourseActions *actions)
{
	assert(zklock_course_has_handle(course));
	switch (e->type)
	{
		case ZKLOCK_COURSE_ADMITTED:
		case ZKLOCK_COURSE_NO_ROOT:
			/* after the base was read again, it is still so */
			if (e->state != ZKLOCK_SESSION_CONNECTED)
				show(actions, ZKLOCK_SESSION_CONNECTED);
			if (e->type == ZKLOCK_COURSE_ADMITTED)
				act(actions, ZKLOCK_DO_PROVE)->yes = true;
			break;
		case ZKLOCK_COURSE_WENT_BACK:
			went_back(course, e, actions);
			break;
		case ZKLOCK_COURSE_MENDED:
			show_went_back(actions);
			drop(course, 0, actions);
			break;
		case ZKLOCK_COURSE_NOT_MENDED:
			drop(course, e->now + RETRY, actions);
			break;
		case ZKLOCK_COURSE_TOUCHED:
			assert(course->phase == ZKLOCK_PHASE_UP);
			course->phase = ZKLOCK_PHASE_ANEW;
			break;
		case ZKLOCK_COURSE_UNKNOWN_BASE:
			unknown_base(course, e, actions);
			break;
		case ZKLOCK_COURSE_BEAT:
			assert(zklock_course_usable(course));
			/* whatever is needed, we have it */
			if (e->yes && e->pause > 0)
				act(actions, ZKLOCK_DO_PAUSE);
			act(actions, ZKLOCK_DO_PROVE)->yes = e->yes;
			/* what the end of the old session takes the ensemble is not in the way of the
			 * first lock */
			close_begin(course, actions);
			tell(actions, ZKLOCK_EV_TICK);
			break;
		default:
			assert(false);
	}
}

void
zklock_course_step(ZkSessionCourse *course, const ZkCourseEvent *event,
				   ZkCourseActions *actions)
{
	actions->n = 0;
	if (event->type <= ZKLOCK_COURSE_END)
		on_worker(course, event, actions);
	else if (event->type <= ZKLOCK_COURSE_AUTH_FAILED)
		on_handle(course, event, actions);
	else if (event->type <= ZKLOCK_COURSE_BEAT)
		on_ensemble(course, event, actions);
	else if (event->type == ZKLOCK_COURSE_LEFT_RUNS)
		left_runs(course, event, actions);
	else if (event->type == ZKLOCK_COURSE_LEFT_ENDED)
		course->left_until = 0;
	else
		stale(course, event, actions);
}
