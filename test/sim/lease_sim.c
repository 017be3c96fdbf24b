/*-------------------------------------------------------------------------
 *
 * lease_sim.c
 *	  Plays seeded schedules of time against the lease (src/protocol/lease.c).
 *
 * A schedule is a few session timeouts long.  zklock servers keep a lease on
 * their sessions while threads, servers and machines are paused and resumed,
 * links are cut or slow, leaders change and clocks run apart.  Faults start at
 * random, or at a moment at which they hurt: right after a write has been
 * committed, right before a ping.  Two or three go on at a time.  The invariant
 * is that whenever a backend could claim, its session has not expired at the
 * leader; for if it has, its locks are somebody else's.  In the end faults
 * stop, and the leases must come back.
 *
 * Half of the schedules have faults of one kind only; the smallest margin
 * between the end of a lease and the expiry of its session is reported by
 * kind, in fractions of the session timeout.
 *
 * In half of the schedules clients may be connected to an observer, of the leader
 * or of a follower.  In a quarter of them servers come and go with a larger
 * minSessionTimeout, so that a session has one timeout at its creation and a longer
 * one on later connections.
 *
 * What is assumed; src/README.session and doc/failures.md say so:
 *	 - Clocks run up to 5 % too fast or too slow.
 *	 - The timeout is at least 2 ticks, 4 behind an observer's master.  --ticks,
 *	   --observed and --mastered set other limits.
 *	 - A server does not come back with a maxSessionTimeout below the timeouts of
 *	   sessions.
 *	 - The ensemble forgets nothing that it has acknowledged; or if it comes back
 *	   without our session, whoever comes next waits for a session timeout.
 *	 - A server that resumes gets to do what has waited, in any order, before it is
 *	   stopped again.  --flapping drops this, and then no rule that counts writes
 *	   holds for ever: a leader that is stopped again and again just before it pings
 *	   acknowledges a write each time.
 *
 * Usage: see harness.h; and [--skew PPM] [--survey] [--only KIND] [--flapping]
 * [--at POINT] [--observers KIND] [--ticks N] [--observed N] [--mastered N].  --skew: how
 * fast or slow clocks may be, in millionths.  --survey does not stop at a broken lease,
 * but counts.  --only: faults of that kind only, a number from 0.  --at: half of the
 * faults pause the leader, at that point.  --observers: 0 none, 1 of the leader, 2 of a
 * follower.  The last three: the shortest timeout, in half ticks, with each of these.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>

#include "lease_model.h"

#define SEVERAL NFAULT_KINDS /* index of that in the margins */

typedef struct Fault
{
	enum
	{
		IDLE,
		ARMED,
		ACTIVE
	} state;
	FaultKind kind;
	Point point;
	int countdown;
	Time duration;
	int a; /* whom it hit */
	int b;
	Time extra;
} Fault;

typedef enum Phase
{
	PHASE_FAULTS,
	PHASE_RECOVERY,
	PHASE_SETTLE,
	PHASE_CALM,
	PHASE_OVER
} Phase;

static const char *const fault_name[NFAULT_KINDS + 1] =
	{"leader paused",	 "follower paused",	  "client process paused",
	 "library paused",	 "worker paused",	  "backend paused",
	 "follower cut off", "leader cut off",	  "client cut off",
	 "one-way cut",		 "slow links",		  "leader killed",
	 "follower killed",	 "connection broken", "heartbeats lost",
	 "worker died",		 "old state",		  "several kinds"};

static const char *const point_name[NPOINTS] = {"any time",			  "heartbeat",
												"write acknowledged", "lease published",
												"write forwarded",	  "write proposed",
												"write committed",	  "ping due",
												"ping sent",		  "ping answered",
												"session touched",	  "bucket taken",
												"fault ended"};

const char *const coverage_name[NCOVERAGE] =
	{"a lease was proven",
	 "a lease lapsed and backends were refused before its session ended",
	 "a lapsed lease came back",
	 "a lease was over when it was proven",
	 "claims",
	 "claims refused",
	 "claims on a lease read before it changed",
	 "sessions expired",
	 "expiries while a lease had ended less than 1/4 timeout ago",
	 "expiries as a leader resumed",
	 "expiries that the client's server had not heard of",
	 "expiries by deposed leaders",
	 "handovers to another server",
	 "expiries with the touch still at the follower",
	 "touches of sessions whose bucket was taken",
	 "reconnects of such sessions",
	 "writes of such sessions",
	 "writes refused",
	 "reads at a cut-off follower",
	 "reads at a deposed leader",
	 "reads in an expired session",
	 "reconnects",
	 "reconnects at a deposed leader",
	 "new sessions",
	 "leader changes",
	 "leaders deposed unawares",
	 "leaders that stepped down",
	 "followers that left",
	 "followers dropped",
	 "clients of the leader",
	 "clients of an observer of the leader",
	 "clients of an observer of a follower",
	 "touches relayed by an observer's master",
	 "sessions made with a longer timeout",
	 "reconnects with a longer timeout than the session was made with",
	 "new leaders that gave such a session its first timeout",
	 "sessions forgotten by the ensemble",
	 "heartbeats in a hurry",
	 "looks at the clock of a server that rests",
	 "new sessions of servers that rested",
	 "looks at a connection that is not used yet",
	 "recoveries",
	 "heartbeats in calm conditions"};

/* Options. */
static int skew = 50000;
static int survey;
static int only = -1;
static int only_point = -1;
static int flapping;
static int only_observers = -1;
static int least_ticks[] = {4, 4, 8}; /* of a timeout, times 2, by "observers" */

/* ------------------------------------------------------------------------
 * The invariant, and how near it came to being broken
 * ------------------------------------------------------------------------
 */

long coverage[NCOVERAGE];

static double margin[NFAULT_KINDS + 1] = {[0 ... NFAULT_KINDS] = 99};
static uint64_t margin_seed[NFAULT_KINDS + 1];
static long margin_count[NFAULT_KINDS + 1];
static int margin_kind;
static bool broken_now;
static long broken; /* schedules */
static int holder;	/* session that has the lock; -1: none */

static void
note_margin(int s)
{
	int node = NSERVERS + session[s].client;
	double m = (double) (session[s].expired - true_time(node, session[s].claim_end)) /
		(double) timeout;

	if (m < margin[margin_kind])
	{
		margin[margin_kind] = m;
		margin_seed[margin_kind] = present_seed;
	}
	if (m >= 0 || clock_of(node) >= session[s].claim_end)
		return;
	broken_now = true;
	if (!survey)
		fail("session %d of client %d has expired, its lease lasts another %.4f timeouts",
			 s, session[s].client, -m);
}

static void
grant_lock(void)
{
	for (int s = nsessions - 1; s >= 0 && holder < 0; s--)
		if (session[s].made && session[s].expired == NEVER)
			holder = s;
}

void
session_expired(int s)
{
	int node = NSERVERS + session[s].client;

	if (holder == s)
	{
		holder = -1;
		grant_lock();
		if (holder >= 0 && session[holder].client != session[s].client)
			COVER(HANDOVER);
	}
	COVER(EXPIRED);
	if (conn[session[s].client].attached && conn[session[s].client].session == s)
		COVER(EXPIRED_UNHEARD);
	if (session[s].claim_end == 0)
		return;
	margin_count[margin_kind]++;
	if (clock_of(node) < session[s].claim_end + timeout / 4)
		COVER(EXPIRED_LEASE_ENDING);
	if (session[s].claim_end > 0 && lease_session[session[s].client] == s)
		COVER(LEASE_LAPSED);
	note_margin(s);
}

/* The end of a lease was published. */
void
claim_published(int s)
{
	grant_lock();
	if (session[s].expired == NEVER)
		return;
	note_margin(s);
}

/* A backend has claimed a lock of the session. */
void
claim_made(int s)
{
	if (session[s].expired > now)
		return;
	broken_now = true;
	if (!survey)
		fail("a backend of client %d claims, but session %d has expired",
			 session[s].client, s);
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */

static Fault fault[NFAULTS];
static long fault_count[NFAULT_KINDS];
static long point_count[NPOINTS];
static unsigned kinds; /* of this schedule */

/* Some schedules play pairs: a fault, and on its heels a pause of a server. */
#define NO_PAIRS NFAULT_KINDS
static int pairing;
static Phase phase;

static Time
random_duration(void)
{
	switch (random_below(6))
	{
		case 0:
			return random_time(timeout / 4);
		case 1:
		case 2:
			return timeout / 5 + random_time(timeout / 5 * 3);
		case 3:
		case 4:
			return timeout / 2 + random_time(timeout / 4 * 3);
		default:
			return random_time(timeout * 3);
	}
}

static void
cut_off(int node, int first, int last, bool heal)
{
	for (int i = first; i <= last; i++)
	{
		if (i == node)
			continue;
		(heal ? link_heal : link_cut)(node, i);
		(heal ? link_heal : link_cut)(i, node);
	}
}

static bool
just_resumed(int server)
{
	return paused[UNIT_SERVER + server] == 0 &&
		now < resumed[UNIT_SERVER + server] + 2 * race + 2 * dawdle;
}

static void
fault_start(int i)
{
	Fault *f = &fault[i];
	int leader = true_leader;
	int c = once_in(8) ? NCLIENTS - 1 : 0;
	int follower = conn[c].server >= 0 && conn[c].server != leader
		? conn[c].server
		: (leader + 1 + random_below(NVOTERS - 1)) % NVOTERS;

	if (follower == OBSERVER && zk_leader_of(OBSERVER) >= 0 &&
		zk_leader_of(OBSERVER) != leader && once_in(2))
		follower = zk_leader_of(OBSERVER);

	/* Give it the time to do what has waited. */
	if (!flapping &&
		((f->kind == FAULT_PAUSE_LEADER && just_resumed(leader)) ||
		 (f->kind == FAULT_PAUSE_FOLLOWER && just_resumed(follower))))
	{
		timer_set(TIMER_FAULT + i, now + 2 * race + 2 * dawdle);
		return;
	}
	f->state = ACTIVE;
	fault_count[f->kind]++;
	point_count[f->point]++;
	TRACE("-- %s, at: %s, for %.3f timeouts", fault_name[f->kind], point_name[f->point],
		  (double) f->duration / (double) timeout);
	switch (f->kind)
	{
		case FAULT_PAUSE_LEADER:
			unit_pause(f->a = UNIT_SERVER + leader);
			break;
		case FAULT_PAUSE_FOLLOWER:
			unit_pause(f->a = UNIT_SERVER + follower);
			break;
		case FAULT_PAUSE_PROCESS:
			f->a = c;
			unit_pause(UNIT_LIBRARY + c);
			unit_pause(UNIT_WORKER + c);
			break;
		case FAULT_PAUSE_LIBRARY:
			unit_pause(f->a = UNIT_LIBRARY + c);
			break;
		case FAULT_PAUSE_WORKER:
			unit_pause(f->a = UNIT_WORKER + c);
			break;
		case FAULT_PAUSE_BACKEND:
			unit_pause(f->a = UNIT_BACKEND + c);
			break;
		case FAULT_CUT_FOLLOWER:
		case FAULT_CUT_LEADER:
			f->a = f->kind == FAULT_CUT_LEADER ? leader : follower;
			f->b = (once_in(2) ? NVOTERS : NSERVERS) - 1;
			cut_off(f->a, 0, f->b, false);
			break;
		case FAULT_CUT_CLIENT:
			f->a = NSERVERS + c;
			f->b = NSERVERS - 1;
			cut_off(f->a, 0, f->b, false);
			break;
		case FAULT_ONE_WAY:
			f->a = random_below(NSERVERS);
			f->b = once_in(2) ? NSERVERS + c
							  : (f->a + 1 + random_below(NSERVERS - 1)) % NSERVERS;
			if (once_in(2))
			{
				int swap = f->a;

				f->a = f->b;
				f->b = swap;
			}
			link_cut(f->a, f->b);
			break;
		case FAULT_SLOW:
			f->a = once_in(2) ? NSERVERS + c : random_below(NSERVERS);
			f->extra = MS + random_time(timeout / (1 + random_below(16)));
			for (int n = 0; n < NNODES; n++)
			{
				slow[f->a][n] += f->extra;
				slow[n][f->a] += f->extra;
			}
			break;
		case FAULT_KILL_LEADER:
			zk_kill(f->a = leader, f->duration);
			break;
		case FAULT_KILL_FOLLOWER:
			zk_kill(f->a = follower, f->duration);
			break;
		case FAULT_DISCONNECT:
			if (conn[c].server >= 0)
				zk_disconnect(c);
			break;
		case FAULT_NO_HEARTBEATS:
			quiet[f->a = c]++;
			break;
		case FAULT_WORKER_DIES:
			worker_dies(f->a = c, f->duration);
			break;
		case FAULT_OLD_STATE:
			if (nsessions < MAX_SESSIONS / 2)
				zk_forget(now - random_time(2 * timeout));
			break;
		case NFAULT_KINDS:
			break;
	}
	timer_set(TIMER_FAULT + i, now + f->duration);
}

static void
fault_arm(int i)
{
	Fault *f = &fault[i];

	f->state = ARMED;
	do
		f->kind = (FaultKind) random_below(NFAULT_KINDS);
	while (!(kinds & (1U << f->kind)));
	f->duration = random_duration();
	f->point = (Point) (once_in(3) ? POINT_TIME : random_below(NPOINTS));
	f->countdown = 1 + random_below(once_in(2) ? 2 : 12);
	if (only_point >= 0 && once_in(2))
	{
		f->kind = FAULT_PAUSE_LEADER;
		f->point = (Point) only_point;
		f->countdown = 1;
	}
	timer_set(TIMER_FAULT + i,
			  now + random_time(f->point == POINT_TIME ? timeout : timeout * 2));
}

/* Hit again while things are being put right. */
static void
fault_follow_up(int i)
{
	Fault *f = &fault[i];

	if (f->state == ACTIVE || (pairing != NO_PAIRS && i == 0))
		return;
	fault_arm(i);
	if (pairing != NO_PAIRS)
		f->kind = (FaultKind) pairing;
	f->point = (Point) (1 + random_below(NPOINTS - 2));
	f->countdown = 1 + random_below(3);
	f->duration = timeout / 5 + random_time(timeout / 5 * 3);
}

static void
fault_end(int i)
{
	Fault *f = &fault[i];

	f->state = IDLE;
	TRACE("-- %s no more", fault_name[f->kind]);
	switch (f->kind)
	{
		case FAULT_PAUSE_LEADER:
		case FAULT_PAUSE_FOLLOWER:
		case FAULT_PAUSE_LIBRARY:
		case FAULT_PAUSE_WORKER:
		case FAULT_PAUSE_BACKEND:
			unit_resume(f->a);
			break;
		case FAULT_PAUSE_PROCESS:
			unit_resume(UNIT_LIBRARY + f->a);
			unit_resume(UNIT_WORKER + f->a);
			break;
		case FAULT_CUT_FOLLOWER:
		case FAULT_CUT_LEADER:
		case FAULT_CUT_CLIENT:
			cut_off(f->a, 0, f->b, true);
			break;
		case FAULT_ONE_WAY:
			link_heal(f->a, f->b);
			break;
		case FAULT_SLOW:
			for (int n = 0; n < NNODES; n++)
			{
				slow[f->a][n] -= f->extra;
				slow[n][f->a] -= f->extra;
			}
			break;
		case FAULT_NO_HEARTBEATS:
			quiet[f->a]--;
			break;
		case FAULT_KILL_LEADER:
		case FAULT_KILL_FOLLOWER:
			zk_restart(f->a);
			break;
		case FAULT_WORKER_DIES:
			worker_restarts(f->a);
			break;
		default:
			break;
	}
	point(POINT_RESUMED);

	if (phase == PHASE_FAULTS && (pairing != NO_PAIRS || once_in(3)))
		fault_follow_up((i + 1) % NFAULTS);
}

static void
fault_timer(int i)
{
	switch (fault[i].state)
	{
		case IDLE:
			if (pairing == NO_PAIRS || i == 0)
				fault_arm(i);
			break;
		case ARMED:
			fault_start(i);
			break;
		case ACTIVE:
			fault_end(i);
			timer_set(TIMER_FAULT + i,
					  now + random_time(once_in(2) ? timeout / 50 : timeout * 2));
			break;
	}
}

/* Pauses start here; what changes more does so when the caller is done. */
void
point(Point where)
{
	if (phase != PHASE_FAULTS)
		return;
	for (int i = 0; i < NFAULTS; i++)
	{
		if (fault[i].state != ARMED || fault[i].point != where || --fault[i].countdown > 0)
			continue;
		if (fault[i].kind <= FAULT_PAUSE_BACKEND)
			fault_start(i);
		else
			timer_set(TIMER_FAULT + i, now);
	}
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static Time phase_limit;

static bool
all_well(void)
{
	for (int c = 0; c < NCLIENTS; c++)
		if (!client_has_lease(c))
			return false;
	return zk_quiet();
}

static void
phase_timer(void)
{
	switch (phase)
	{
		case PHASE_FAULTS:
			TRACE("---- faults end");
			phase = PHASE_RECOVERY;
			settling = true;
			for (int i = 0; i < NFAULTS; i++)
			{
				timer_off(TIMER_FAULT + i);
				if (fault[i].state == ACTIVE)
					fault_end(i);
				fault[i].state = IDLE;
			}
			phase_limit = now + 4 * longer_timeout + 2 * sync_limit * tick;
			timer_set(TIMER_PHASE, now + timeout / 4);
			break;
		case PHASE_RECOVERY:
			if (all_well())
			{
				COVER(RECOVERED);
				phase = once_in(4) ? PHASE_SETTLE : PHASE_OVER;
				timer_set(TIMER_PHASE, now + longer_timeout + sync_limit * tick * 5 / 4);
			}
			else if (now > phase_limit)
				fail("no lease again long after the faults");
			else
				timer_set(TIMER_PHASE, now + timeout / 8);
			break;
		case PHASE_SETTLE:
			TRACE("---- calm");
			if (!all_well())
				fail("no lasting recovery");
			phase = PHASE_CALM;
			calm = true;
			timer_set(TIMER_PHASE, now + longer_timeout);
			break;
		default:
			phase = PHASE_OVER;
	}
}

void
play(uint64_t seed)
{
	/* the timeout in ticks, times 2: the least that is allowed, and more */
	static const int more[] = {0, 0, 0, 0, 1, 2, 4, 6, 12};

	random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	tick = (1 + random_below(3)) * 1000 * MS;
	observers = once_in(2) ? NO_OBSERVERS : once_in(3) ? OBSERVERS : OBSERVERS_MASTER;
	if (only_observers >= 0)
		observers = only_observers;
	timeout = tick * (least_ticks[observers] + more[random_below(lengthof(more))]) / 2;
	growing = once_in(4);
	longer_timeout = growing ? timeout + random_time(4 * timeout) : timeout;
	sync_limit = 2 + random_below(4);
	race = once_in(2) ? timeout / 1000 : timeout / 200;
	dawdle = once_in(2) ? race / 2 : timeout / 64; /* thousands of sessions */
	settling = calm = false;
	holder = -1;
	broken_now = false;
	phase = PHASE_FAULTS;

	kinds = 1U << (only >= 0 ? only : random_below(NFAULT_KINDS));
	pairing = NO_PAIRS;
	if (only >= 0 && once_in(2))
		pairing = only;
	else if (only < 0)
		switch (random_below(4))
		{
			case 0: /* some more */
				kinds |= (unsigned) random_bits() & (unsigned) random_bits();
				kinds &= (1U << NFAULT_KINDS) - 1;
				break;
			case 1: /* another, right after it */
				pairing = once_in(3) ? FAULT_PAUSE_FOLLOWER : FAULT_PAUSE_LEADER;
				break;
			default:
				break;
		}
	margin_kind = SEVERAL;
	for (int i = 0; i < NFAULT_KINDS; i++)
		if (kinds == 1U << i && (pairing == NO_PAIRS || pairing == i))
			margin_kind = i;

	time_reset(skew);
	zk_reset();
	client_reset();
	for (int i = 0; i < NFAULTS; i++)
	{
		fault[i].state = IDLE;
		if (i == 0 || once_in(2))
			timer_set(TIMER_FAULT + i, random_time(timeout * 2));
	}
	timer_set(TIMER_PHASE, timeout * 2 + random_time(timeout * 6));
	while (phase != PHASE_OVER)
	{
		int timer = timer_next();

		step_count++;
		if (timer < TIMER_PING)
		{
			Message m = stream_receive(timer);

			if (timer < STREAM_S2C)
				zk_message(timer, &m);
			else
				client_message(timer - STREAM_S2C, &m);
		}
		else if (timer < TIMER_EXPIRY)
			zk_ping_timer(timer - TIMER_PING);
		else if (timer < TIMER_CLOSING)
			zk_expiry_timer(timer - TIMER_EXPIRY);
		else if (timer < TIMER_PEER)
			zk_closing_timer(timer - TIMER_CLOSING);
		else if (timer < TIMER_LIBRARY)
			zk_peer_timer(timer - TIMER_PEER);
		else if (timer < TIMER_WORKER)
			library_timer(timer - TIMER_LIBRARY);
		else if (timer < TIMER_BACKEND)
			worker_timer(timer - TIMER_WORKER);
		else if (timer < TIMER_FAULT)
			backend_timer(timer - TIMER_BACKEND);
		else if (timer < TIMER_PHASE)
			fault_timer(timer - TIMER_FAULT);
		else
			phase_timer();
	}
	if (broken_now)
		broken++;
}

static int
report(void)
{
	int missing = 0;

	printf("# smallest margin between the end of a lease and its session's expiry:\n");
	for (int i = 0; i <= NFAULT_KINDS; i++)
		if (margin_count[i] > 0)
			printf("# %10.4f timeouts, %-21s (%ld expiries, seed %" PRIu64 ")\n",
				   margin[i], fault_name[i], margin_count[i], margin_seed[i]);
	missing += report_counts("times ", fault_count, fault_name, NFAULT_KINDS);
	missing += report_counts("faults started at: ", point_count, point_name, NPOINTS);
	printf("# smallest lease in calm conditions: %.4f timeouts\n", calm_least);
	if (survey)
		printf("# %ld schedules broke the lease\n", broken);
	return missing;
}

static const Option options[] = {
	{"--skew", "PPM", &skew, 500000},
	{"--survey", NULL, &survey, 1},
	{"--only", "KIND", &only, NFAULT_KINDS - 1},
	{"--at", "POINT", &only_point, NPOINTS - 1},
	{"--flapping", NULL, &flapping, 1},
	{"--observers", "KIND", &only_observers, OBSERVERS_MASTER},
	{"--ticks", "HALF TICKS", &least_ticks[NO_OBSERVERS], 40},
	{"--observed", "HALF TICKS", &least_ticks[OBSERVERS], 40},
	{"--mastered", "HALF TICKS", &least_ticks[OBSERVERS_MASTER], 40},
};

const Simulator simulator = {
	.schedules = "schedules of the lease",
	.step = "event",
	.enough = 50000,
	.options = options,
	.noptions = lengthof(options),
	.ncoverage = NCOVERAGE,
	.report = report,
};
