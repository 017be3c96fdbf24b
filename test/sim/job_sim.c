/*-------------------------------------------------------------------------
 *
 * job_sim.c
 *	  Plays seeded schedules of a job on several servers against src/protocol/job_rules.c.
 *
 * Servers take a job's lock for their backends, one at a time, which read the record,
 * decide, run, commit and write what became of it, each step when its turn comes. Servers
 * pause, crash and start again with what they have committed; connections break, with
 * requests and replies on them, and what was under way may be executed later, while the
 * session lives; sessions expire; contenders are deleted by others; backends end without
 * a word; runs fail; the ensemble's clock is set, and those of the servers, by which they
 * call, are ahead or behind; slots are reset, jobs forgotten, paused and resumed; some
 * run after another job, which does its slots, and has them reset, as it likes; and in
 * some schedules the ensemble goes back to an earlier state, or to nothing.
 *
 * What is taken for granted, since other simulators prove it: the lease is honest
 * (lease_sim), the lock goes to one contender at a time, the oldest (sim), tokens
 * grow, and after the ensemble has gone back nobody is granted anything for a session
 * timeout, in a new session (history_sim).
 *
 * Invariants: those of job_rules.h, by the same numbers, and that each verdict is true
 * when it counts.  Who commits, and when, is written down here by itself (Truth).
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "job_rules.h"

#define NSERVERS	 3
#define ORIGINAL	 1 /* of these two, in some schedules ... */
#define COPY		 2 /* ... this one is a copy, and has its system identifier */
#define NCALLERS	 2
#define SETTLER		 NCALLERS /* one more backend of each server */
#define MAX_SESSIONS 1000
#define MAX_TRUTHS	 1000
#define MAX_PENDING	 32
#define STEPS		 5000
#define TIMEOUT		 INT64_C(8000) /* of sessions, ms */
#define EVERY		 (5 * TIMEOUT + 1)
#define EARLY		 (EVERY / 20)
#define ORIGIN		 (-EVERY / 3)
#define NEVER		 ZKLOCK_JOB_NEVER

/* a line of the trace */
#define TRACE(format, ...) TRACE_LINE("%8.3f " format, (double) now / 1000, ##__VA_ARGS__)

typedef enum Coverage
{
	COVER_RUN,
	COVER_EARLY,
	COVER_TICK,
	COVER_RESET_LATER,
	COVER_NOT_DUE,
	COVER_AHEAD,
	COVER_GIVEN_UP,
	COVER_NO_HOLDER,
	COVER_COMMITTED,
	COVER_DONE_BY_OTHERS,
	COVER_ABORTED,
	COVER_LATE,
	COVER_FAILED,
	COVER_ENDED,
	COVER_RETRIED,
	COVER_SAME_TOKEN,
	COVER_LOST,
	COVER_DOUBT,
	COVER_SKIPPED,
	COVER_DOUBT_COMMITTED,
	COVER_SETTLED_DONE,
	COVER_SETTLED_NOT,
	COVER_TWICE,
	COVER_FAILED_LATER,
	COVER_BAD_VERSION,
	COVER_WRITE_LOST,
	COVER_WRITE_LATE,
	COVER_MINE_AFTER_ALL,
	COVER_OTHER_SESSION,
	COVER_OWN_TABLE,
	COVER_OWN_FORGOTTEN,
	COVER_COPY_DONE,
	COVER_COPY_SILENT,
	COVER_QUIT,
	COVER_LEFT,
	COVER_CRASHED,
	COVER_CRASHED_COMMITTING,
	COVER_KEPT,
	COVER_KEPT_SETTLED,
	COVER_KEPT_EXPIRED,
	COVER_PAUSED,
	COVER_EXPIRED,
	COVER_BROKEN,
	COVER_RESET,
	COVER_RESET_AHEAD,
	COVER_RESET_FAILED,
	COVER_RESET_FAILED_EARLIER,
	COVER_RESET_MORE,
	COVER_RESET_PRESENT,
	COVER_RESET_FULL,
	COVER_RESET_SINCE,
	COVER_FORGOTTEN,
	COVER_JOB_PAUSED,
	COVER_JOB_RESUMED,
	COVER_NOT_PAUSED,
	COVER_PAUSE_PAST,
	COVER_CALL_PAUSED,
	COVER_PAUSE_OVER,
	COVER_PAUSED_MEANWHILE,
	COVER_AFTER,
	COVER_TOO_SOON,
	COVER_TOO_SOON_RESET,
	COVER_CLOCK,
	COVER_WENT_BACK,
	COVER_WIPED,
	COVER_CALM,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] =
	{"runs",
	 "... for a slot that had not begun",
	 "... called for when a clock said that the slot begins",
	 "... for a slot that was reset, after the present one",
	 "calls when nothing was due",
	 "... for a slot ahead of the clock",
	 "calls when no attempt was left",
	 "calls that had lost the lock to another",
	 "runs that committed",
	 "runs aborted since the slot was done meanwhile",
	 "runs aborted since they were taken over",
	 "runs aborted in COMMITTING, the lock lost",
	 "runs that failed",
	 "runs of commands that commit by themselves",
	 "slots run again",
	 "... under the same token",
	 "runs found RUNNING",
	 "runs found in COMMITTING",
	 "... and skipped",
	 "... that committed",
	 "runs in doubt settled as done",
	 "runs in doubt settled as not done",
	 "slots committed twice",
	 "failures recorded after others had taken over",
	 "writes refused for their version",
	 "writes whose reply was lost",
	 "... and that were executed later",
	 "runs whose beginning was found to be written",
	 "versions from another session",
	 "slots known by the own table alone",
	 "runs in the own table that do not count any more",
	 "runs settled as done by a copy of their server",
	 "... that it could not tell of",
	 "backends that ended without a word",
	 "... in COMMITTING, so that their server settles the run",
	 "servers crashed",
	 "... in COMMITTING",
	 "sessions that the next life of a server has kept",
	 "... until it had settled the run",
	 "... and that expired before",
	 "servers paused past their session",
	 "sessions expired",
	 "contenders deleted by others",
	 "slots reset",
	 "... ahead of the clock",
	 "... that had failed, and were not named",
	 "... and a later one was done",
	 "... while others are due again",
	 "... and the present one, which is not known to be done",
	 "resets that there was no room for",
	 "... or that came when the slot had been run since",
	 "jobs forgotten",
	 "jobs paused",
	 "... and resumed",
	 "... or not, as they are already",
	 "pauses that would be over",
	 "calls when the job was paused",
	 "... and when its pause was over",
	 "runs committed while their job was paused",
	 "runs after another job",
	 "calls before that has done the slot",
	 "... which has done it, and is to do it again",
	 "clocks set",
	 "ensembles gone back",
	 "... to nothing",
	 "calm ends"};

long coverage[NCOVERAGE];

/* ------------------------------------------------------------------------
 * The world
 * ------------------------------------------------------------------------
 */

/* What is true of a run, by the commits and not by the record. */
typedef struct Truth
{
	ZkJobId id;
	int64_t slot;
	int server;
	bool copied; /* COPY has its row, too */
	int session; /* of the lock */
	bool begun;
	bool over; /* its transaction, or backend */
	bool committed;
	bool failed;
	int32_t recorded;	/* the record's version that says so; 0: none */
	bool doubt;			/* somebody found it in COMMITTING, or begun */
	bool skipped;		/* ... and counted it as done */
	bool expired;		/* its session */
	bool excused;		/* its server, its session or its backend had gone */
	bool overruled;		/* somebody acted upon its not having committed */
	bool annulled;		/* the slot was reset */
	bool again;			/* ... and is run for that reason */
	bool forgotten;		/* the job was, or by the ensemble */
	int32_t void_since; /* the record's version that says that it does not count; 0: it
						 * does */
	int32_t void_saved; /* what that was in "saved" */
	bool after_void;	/* others did not count when this was decided on */
} Truth;

typedef enum Kind
{
	READ,
	WRITE,
	RESET, /* a write that does this */
	FORGET,
	PAUSE /* ... or resumes */
} Kind;

typedef struct Packet
{
	Kind kind;
	int caller;
	int serial;
	int32_t version;
	bool late;	  /* the connection has broken since */
	int64_t time; /* the ensemble's, when the record was read */
	int64_t slot; /* RESET: this one; PAUSE: until then */
	ZkJob job;
} Packet;

typedef struct Fifo
{
	int n;
	Packet packet[MAX_PENDING];
} Fifo;

typedef enum Reply
{
	NO_REPLY,
	OK,
	BAD_VERSION,
	LOST
} Reply;

typedef enum Place
{
	IDLE,
	WANT_LOCAL, /* level 1 */
	WANT_GRANT, /* level 2 */
	LOOK_UP,	/* read, and decide */
	DECIDED,	/* ... and written */
	RUNNING,
	COMMITTING,
	LOOK, /* at the lease */
	COMMIT,
	FINISH,
	LET_GO,
	/* of the settler */
	SETTLE,
	SETTLED
} Place;

/* A job after which the others' is to be run: what is true of it. */
typedef struct Earlier
{
	int64_t every; /* 0: slots are given */
	int64_t origin;
	int64_t done;	/* the latest slot that is done */
	int64_t again;	/* a slot that is due again, or NEVER */
	int64_t failed; /* one that has failed, or NEVER */
} Earlier;

typedef struct Caller
{
	Place place;
	ZkJobCall call;
	bool final;	 /* the one call that ends the schedule */
	bool ticked; /* when its server's clock said so */
	Kind what;	 /* WRITE: run the job */
	int64_t paused;
	int locked_in; /* session */
	bool lost;	   /* is told that the lock is */
	ZkJobId id;	   /* the run that it writes, or has; number 0: none */
	Truth *truth;
	ZkJobState end;
	ZkJobDecision decision;
	Truth *overrules;
	int64_t decided; /* the ensemble's time */
	int32_t based;	 /* ... on this version */
	bool again;		 /* by a reset */
	bool raised;	 /* its own table knew more than the record */
	Earlier earlier; /* as of then */
	/* what it knows of the record */
	ZkJob job;
	int32_t version;
	int life; /* ... which are another's if the ensemble has gone back since */
	int session;
	int64_t time;
	bool known;
	/* the request that is out */
	bool waiting;
	bool wrote;
	int serial;
	Reply reply;
	int64_t reset;
} Caller;

typedef struct Server
{
	bool up;
	int64_t paused;
	int session; /* -1: none */
	int before;	 /* that of its life before, which it keeps; -1: none */
	bool connected;
	int64_t lease_end;
	int64_t token; /* of its contender; 0: none */
	bool granted;
	int local;		/* who has level 1; -1: nobody */
	int64_t skew;	/* of its clock */
	int64_t ticked; /* the slot that it has called for by that */
	Fifo requests;
	Fifo late; /* of a connection that broke; may yet be executed */
	Caller caller[NCALLERS + 1];
} Server;

typedef struct Session
{
	bool alive;
	int64_t expires;
} Session;

typedef struct Contender
{
	int session;
	int64_t token;
} Contender;

/* The record, and what is true of it. */
typedef struct Record
{
	ZkJob job;
	int32_t version;
	int32_t void_since; /* runs up to then do not count; 0: all do */
	int64_t void_count; /* so many had begun */
	int64_t floor;		/* ... if their slots are after this, which counts as done; or
						 * NEVER: none */
	int64_t floor_before;
	int64_t paused; /* until then */
	int32_t paused_since;
} Record;

static int64_t now;
static int64_t clock_offset; /* of the ensemble's */
static Record record;
static Record saved;	/* what the ensemble may go back to */
static int64_t embargo; /* nothing is granted until then */
static int lives;		/* times that the ensemble has gone back */
static int64_t zxid;
static int64_t life_began; /* the zxid when the ensemble last went back */
static Session session[MAX_SESSIONS];
static int nsessions;
static Contender queue[NSERVERS * 8];
static int nqueue;
static Server server[NSERVERS];
static Truth truths[MAX_TRUTHS];
static int ntruths;
static int64_t tick; /* the slot of the hour */
static Earlier earlier;
/* Slots that are due again since this version of the record; done since or not. */
static struct Again
{
	int64_t slot;
	int32_t version;
} again[MAX_TRUTHS];
static int nagain;
static bool calm;

/* What a schedule is like. */
static bool goes_back, resets, pauses, follows;
static bool tied; /* versions to their session */
static int form;  /* 0: every, 1: slot, 2: both */
static int skips; /* 0: none, 1: all, 2: some */
static int attempts;
static bool copies; /* one server is a copy of another */
static bool ticks;	/* servers call when a slot begins, and seldom else */
static int pause_every, fail_every, begun_every, break_every;

static int64_t
random_time(int64_t below)
{
	return (int64_t) (random_bits() % (uint64_t) below);
}

static int
number(const Server *s)
{
	return (int) (s - server);
}

static const char *
state_name(ZkJobState state)
{
	static const char *const name[] = {"RUNNING", "COMMITTING", "DONE",
									   "FAILED",  "LOST",		"SKIPPED"};

	return name[state];
}

static Truth *
find_truth(ZkJobId id)
{
	for (int i = ntruths; --i >= 0;)
		if (truths[i].id.token == id.token && truths[i].id.number == id.number)
			return &truths[i];
	return NULL;
}

/* ------------------------------------------------------------------------
 * What must hold
 * ------------------------------------------------------------------------
 */

static bool
counts_as_done(const Truth *t)
{
	return t->committed || t->skipped;
}

/* In which slot lies the time, or just before which? */
static int64_t
present_slot(int64_t time)
{
	int64_t slot = ORIGIN;

	while (slot > time + EARLY)
		slot -= EVERY;
	while (slot + EVERY <= time + EARLY)
		slot += EVERY;
	return slot;
}

/* Has the other job done the slot in which this one begins? */
static bool
has_done(const Earlier *e, int64_t slot)
{
	int64_t its = slot;

	if (e->every > 0)
	{
		its = e->origin;
		while (its > slot)
			its -= e->every;
		while (its + e->every <= slot)
			its += e->every;
	}
	return its <= e->done && its != e->again && its != e->failed;
}

/* Does the record of that version, or any, say that it does not count? */
static bool
is_void(const Truth *t, int32_t version)
{
	return t->void_since > 0 && t->void_since <= version;
}

/* The same of a run whose truth is not known yet, by its number: does what the record is
 * now say so? */
static bool
is_void_now(ZkJobId id, int64_t slot)
{
	return record.void_since > 0 && id.number <= record.void_count &&
		(record.floor == NEVER || slot > record.floor);
}

/* Does its failure count no more since then, though the slot may be done by it? */
static bool
is_marked(const Truth *t, int32_t version)
{
	return record.void_since > 0 && record.void_since <= version &&
		t->id.number <= record.void_count;
}

static bool
later(const Truth *a, const Truth *b)
{
	return a->id.token != b->id.token ? a->id.token > b->id.token
									  : a->id.number > b->id.number;
}

/* A run is to commit. */
static void
check_commit(const Truth *t)
{
	int commits = 1;
	int doubts = t->doubt;

	if (t->overruled && !t->doubt && !t->forgotten)
		fail("run %" PRId64 " commits, and somebody knows that it did not", t->id.number);
	for (int i = 0; i < ntruths; i++)
	{
		const Truth *u = &truths[i];

		if (u == t || u->begun)
			continue;
		if (u->committed && later(u, t) && !t->doubt && !t->forgotten)
			fail("run %" PRId64 " commits after run %" PRId64, t->id.number, u->id.number);
		if (u->slot != t->slot || u->annulled || t->annulled)
			continue;
		/* what was reset, or void, is so no more if the ensemble goes back */
		if (u->committed && u->server == t->server && u->void_since == 0 &&
			!((t->again || t->after_void) && u->forgotten))
			fail("server %d commits a slot twice", t->server);
		/* what does not count may come again: its slot is one of the clock's */
		if (u->forgotten || t->forgotten || u->void_since > 0 || t->void_since > 0)
			continue;
		commits += u->committed;
		doubts += u->doubt;
	}
	if (commits > 1)
	{
		COVER(TWICE);
		if (skips == 1)
			fail("slot %" PRId64 " is committed twice, in spite of skip", t->slot);
		if (commits > 1 + doubts)
			fail("slot %" PRId64 " is committed %d times, with %d doubts", t->slot,
				 commits, doubts);
	}
}

/* The record's version that says that the slot is due again, or 0. */
static int32_t
reset_since(int64_t slot)
{
	for (int i = 0; i < nagain; i++)
		if (again[i].slot == slot)
			return again[i].version;
	return 0;
}

/* Such a slot has not been done since. */
static bool
is_again(const Caller *c, const struct Again *a)
{
	if (a->version > c->based)
		return false;
	for (int i = 0; i < ntruths; i++)
		if (truths[i].slot == a->slot && !truths[i].annulled && counts_as_done(&truths[i]))
			return false;
	return true;
}

/* So many runs of the slot have failed.  "annulled": those that a reset has annulled
 * which the caller did not see count, too. */
static int
failures_of(const Caller *c, int64_t slot, bool annulled)
{
	int failures = 0;

	for (int i = 0; i < ntruths; i++)
	{
		const Truth *t = &truths[i];

		failures += t->slot == slot && t->failed && !is_void(t, c->based) &&
			(!t->annulled || (annulled && (t->forgotten || reset_since(slot) > c->based)));
	}
	return failures;
}

/* The slot that counts as done since a reset ahead of the clock. */
static int64_t
floor_of(const Caller *c)
{
	return record.void_since <= c->based ? record.floor : record.floor_before;
}

/* Is a slot later than all that is done? */
static bool
is_due(const Caller *c, int64_t slot)
{
	if (floor_of(c) != NEVER && floor_of(c) >= slot)
		return false;
	for (int i = 0; i < ntruths; i++)
		if (counts_as_done(&truths[i]) && truths[i].slot >= slot &&
			!is_void(&truths[i], c->based))
			return false;
	return true;
}

/* ... and has it an attempt left? */
static bool
is_left(const Caller *c, int64_t slot)
{
	return c->life == lives && is_due(c, slot) &&
		(!follows || has_done(&c->earlier, slot)) &&
		failures_of(c, slot, true) < c->call.attempts;
}

/* A run is to begin. */
static void
check_run(const Caller *c, const Truth *t)
{
	int failures = 0;

	for (int i = 0; i < ntruths; i++)
	{
		const Truth *u = &truths[i];

		/* its write may have been acknowledged long ago */
		if (u == t || u->annulled || later(u, t) || is_void(u, c->based))
			continue;
		if (!t->again && u->slot >= t->slot)
		{
			/* what was void has come back, perhaps, when t was forgotten */
			if (c->call.every > 0 && u->committed && u->server == t->server && !t->forgotten)
				fail("server %d runs slot %" PRId64 " after slot %" PRId64 " of its own",
					 u->server, t->slot, u->slot);
			if (counts_as_done(u) && (!u->doubt || u->skipped) && !u->forgotten)
				fail("run %" PRId64 " begins, and slot %" PRId64 " is done", t->id.number,
					 u->slot);
		}
		if (u->slot == t->slot && !u->forgotten)
		{
			failures +=
				u->recorded > 0 && u->recorded <= c->based && !is_marked(u, c->based);
			if (u->id.token == t->id.token)
				COVER(SAME_TOKEN);
			COVER(RETRIED);
		}
	}
	if (failures >= c->call.attempts && c->job.nruns < ZKLOCK_JOB_RUNS)
		fail("run %" PRId64 " begins though %d have failed", t->id.number, failures);
	if (c->call.every == 0)
		return;
	if (t->slot > c->decided)
		COVER(EARLY);
	if (c->ticked)
		COVER(TICK);
	if (t->slot == present_slot(c->decided))
		return;
	if (!t->again)
		fail("run %" PRId64 " is for slot %" PRId64 ", which is not the present one",
			 t->id.number, t->slot);
	COVER(RESET_LATER);
	if (is_left(c, present_slot(c->decided)))
		fail("a slot is run again, and the present one waits");
}

/* Nothing is to be run. */
static void
check_not_run(const Caller *c)
{
	const ZkJobDecision *d = &c->decision;
	int64_t slot = c->call.every > 0 ? present_slot(c->decided) : c->call.slot;
	bool ahead = floor_of(c) != NEVER && floor_of(c) > c->decided + EARLY;

	if (c->life != lives)
		return;
	for (int i = 0; i < ntruths; i++)
	{
		const Truth *t = &truths[i];

		if (is_void(t, c->based) || !counts_as_done(t))
			continue;
		if (t->slot > c->decided + EARLY)
			ahead = true;
	}
	if (d->verdict == ZKLOCK_JOB_NOT_DUE)
	{
		bool due = is_due(c, slot);

		for (int i = 0; i < nagain; i++)
			due |= (c->call.every > 0 || again[i].slot == slot) && is_again(c, &again[i]) &&
				failures_of(c, again[i].slot, false) < c->call.attempts;
		if (due)
			fail("slot %" PRId64 " is due, and server %d was told that it is not", slot,
				 c->call.server.timeline - 1);
		if (d->ahead && !ahead)
			fail("no slot is ahead of the clock");
	}
	else if (failures_of(c, d->slot, true) < c->call.attempts)
		fail("slot %" PRId64 " is given up after too few failures", d->slot);
}

/* The job is paused, as far as the caller can know. */
static void
check_paused(const Caller *c)
{
	if (c->life == lives && record.paused_since <= c->based && record.paused <= c->decided)
		fail("the job is not paused");
}

/* Another job has not done the slot; nor has it any other that could be run. */
static void
check_too_soon(const Caller *c)
{
	const ZkJobDecision *d = &c->decision;

	if (!follows || d->after != 1 || has_done(&c->earlier, d->slot))
		fail("the other job has done slot %" PRId64, d->slot);
	if (c->earlier.again != NEVER && d->slot <= c->earlier.done)
		COVER(TOO_SOON_RESET);
	for (int i = 0; c->life == lives && c->call.every > 0 && i < nagain; i++)
		if (is_again(c, &again[i]) && has_done(&c->earlier, again[i].slot) &&
			failures_of(c, again[i].slot, false) < c->call.attempts)
			fail("slot %" PRId64 " could be run, and waits for slot %" PRId64,
				 again[i].slot, d->slot);
}

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static bool
is_queued(int64_t token)
{
	for (int i = 0; i < nqueue; i++)
		if (queue[i].token == token)
			return true;
	return false;
}

static void
excuse(int64_t token)
{
	for (int i = 0; i < ntruths; i++)
		if (truths[i].id.token == token)
			truths[i].excused = true;
}

static void
leave_queue(int64_t token)
{
	for (int i = 0; i < nqueue; i++)
		if (queue[i].token == token)
		{
			nqueue--;
			memmove(queue + i, queue + i + 1, sizeof(*queue) * (size_t) (nqueue - i));
			return;
		}
}

/* One that its server closes is no reason for a doubt. */
static void
close_session(int id)
{
	session[id].alive = false;
	for (int i = nqueue; --i >= 0;)
		if (queue[i].session == id)
			leave_queue(queue[i].token);
}

static void
end_session(int id)
{
	for (int i = 0; i < nqueue; i++)
		if (queue[i].session == id)
			excuse(queue[i].token);
	close_session(id);
}

/* Is, or may there be, something done at a slot ahead of the clock that made it? */
static bool
was_ahead(const ZkJob *job, int64_t time)
{
	int64_t latest = time + EARLY;
	bool ahead = job->last_done > latest;

	for (int i = 0; i < job->nruns; i++)
	{
		const Truth *t = find_truth(job->run[i].id);

		ahead |= job->run[i].slot > latest &&
			(job->run[i].end == NEVER || job->run[i].doubt) &&
			(t == NULL ? !is_void_now(job->run[i].id, job->run[i].slot)
					   : t->void_since == 0);
	}
	return ahead && job->every > 0;
}

static void
set_again(int64_t slot)
{
	int i = 0;

	while (i < nagain && again[i].slot != slot)
		i++;
	if (i == nagain)
		nagain++;
	again[i] = (struct Again){.slot = slot, .version = record.version + 1};
}

/*
 * The present slot is due, too, when another one is reset and what was done at slots
 * ahead counts no more; unless it is done, as far as that can be known.
 */
static void
observe_present(const ZkJob *before, const Packet *p)
{
	int64_t present = present_slot(p->time);
	bool done = false;

	if (p->slot == present)
		return;
	for (int i = 0; i < ntruths; i++)
	{
		Truth *t = &truths[i];
		const ZkJobRun *run = zklock_job_find(before, t->id);
		bool open = run != NULL && run->state != ZKLOCK_JOB_DONE &&
			run->state != ZKLOCK_JOB_SKIPPED;

		if (t->slot != present || !counts_as_done(t) || t->annulled || open)
			continue;
		if (run != NULL && zklock_job_counts(before, t->id))
			done = true;
		else
			t->annulled = true; /* nobody knows any more */
	}
	if (done && zklock_job_is_reset(&p->job, present) &&
		!zklock_job_is_reset(before, present))
		fail("the present slot is done, and due again");
	if (done)
		return;
	COVER(RESET_PRESENT);
	set_again(present);
}

static void
observe_reset(const ZkJob *before, const Packet *p)
{
	int64_t present = present_slot(p->time);

	COVER(RESET);
	if (before->resets.n > 0 && !zklock_job_is_reset(before, p->slot))
		COVER(RESET_MORE);
	for (int i = 0; i < p->job.resets.n; i++)
		if (form == 0 && p->job.resets.slot[i] > p->time + EARLY)
			fail("a slot ahead of the clock is due again");
	/* what is ahead comes in its time */
	for (int i = nagain; --i >= 0;)
		if (before->every > 0 && again[i].slot > present)
			again[i] = again[--nagain];
	set_again(p->slot);
	if (record.void_since == record.version + 1)
		observe_present(before, p);
}

/* A run begins when the job is not paused, and what is paused stays so. */
static void
observe_pause(const ZkJob *before, const Packet *p)
{
	const ZkJobRun *run = &p->job.run[0];

	if (p->job.nruns > 0 && zklock_job_find(before, run->id) == NULL)
	{
		if (p->time < record.paused)
			fail("run %" PRId64 " begins, and the job is paused", run->id.number);
		if (record.paused != NEVER)
			COVER(PAUSE_OVER);
	}
	if (p->kind == PAUSE)
	{
		coverage[p->slot == NEVER ? COVER_JOB_RESUMED : COVER_JOB_PAUSED]++;
		record.paused = p->slot;
		record.paused_since = record.version + 1;
	}
	if (p->job.paused_until != record.paused)
		fail("the record does not say until when the job is paused");
}

/* A write changes the record: what does it say of each run? */
static void
observe(const ZkJob *before, const Packet *p)
{
	const ZkJob *after = &p->job;

	if (!zklock_job_valid(after))
		fail("the record is none");
	observe_pause(before, p);
	if (after->forgotten.token != before->forgotten.token &&
		after->forgotten.token != NEVER && after->forgotten.token <= life_began)
		fail("runs are forgotten up to a token of before the ensemble went back");
	for (int i = 0; i < after->nruns; i++)
	{
		const ZkJobRun *run = &after->run[i];
		const ZkJobRun *was = zklock_job_find(before, run->id);
		Truth *t = find_truth(run->id);

		if (t == NULL || was == NULL || was->state == run->state)
			continue;
		if (run->state == ZKLOCK_JOB_FAILED)
		{
			t->recorded = record.version + 1;
			if (was->state == ZKLOCK_JOB_LOST)
				COVER(FAILED_LATER);
		}
		if (was->state == ZKLOCK_JOB_RUNNING && run->state == ZKLOCK_JOB_LOST)
			COVER(LOST);
		if (run->state == ZKLOCK_JOB_COMMITTING && before->last_done >= run->slot &&
			!zklock_job_is_reset(before, run->slot))
			fail("run %" PRId64 " goes on, and its slot is done", run->id.number);
		if (run->doubt && !was->doubt)
		{
			COVER(DOUBT);
			t->doubt = true;
			t->skipped = run->state == ZKLOCK_JOB_SKIPPED;
			if (t->skipped)
				COVER(SKIPPED);
			if (t->committed)
				COVER(DOUBT_COMMITTED);
			if (!t->excused && !t->forgotten)
				fail("run %" PRId64 " is in doubt without a reason", run->id.number);
		}
		if (was->doubt && !run->doubt)
			coverage[run->state == ZKLOCK_JOB_DONE ? COVER_SETTLED_DONE : COVER_SETTLED_NOT]++;
	}
	if (p->kind == FORGET || (p->kind == RESET && was_ahead(before, p->time)))
	{
		record.void_since = record.version + 1;
		record.void_count = before->count;
		record.floor_before = record.floor;
		record.floor = p->kind == RESET ? present_slot(p->time) : NEVER;
		if (p->kind == RESET)
			COVER(RESET_AHEAD);
	}
	for (int i = 0; i < ntruths; i++)
	{
		if (p->kind == RESET && truths[i].slot == p->slot)
			truths[i].annulled = true;
		if (p->kind == FORGET)
			truths[i].forgotten = true;
		if (record.void_since == record.version + 1 && truths[i].void_since == 0 &&
			(record.floor == NEVER || truths[i].slot > record.floor))
			truths[i].void_since = record.void_since;
	}
	if (p->kind == RESET)
		observe_reset(before, p);
	if (p->kind == FORGET)
	{
		COVER(FORGOTTEN);
		nagain = 0;
	}
}

static void
execute(Server *s, const Packet *p, bool hears)
{
	Caller *c = &s->caller[p->caller];
	bool good = p->kind == READ || p->version == record.version;

	session[s->session].expires = now + TIMEOUT;
	if (p->kind != READ && good)
	{
		if (p->late)
			COVER(WRITE_LATE);
		observe(&record.job, p);
		record.job = p->job;
		record.job.changed = false;
		record.version++;
		TRACE("   version %d by %d.%d: run %" PRId64 " %s%s, last done %" PRId64,
			  record.version, number(s), p->caller,
			  record.job.nruns > 0 ? record.job.run[0].id.number : 0,
			  record.job.nruns > 0 ? state_name(record.job.run[0].state) : "none",
			  record.job.nruns > 0 && record.job.run[0].doubt ? " (doubt)" : "",
			  record.job.last_done == NEVER ? -1 : record.job.last_done);
	}
	if (!hears || !c->waiting || c->serial != p->serial)
		return;
	if (!good)
		COVER(BAD_VERSION);
	c->reply = good ? OK : BAD_VERSION;
	c->session = s->session;
	c->life = lives;
	if (p->kind == READ)
	{
		c->job = record.job;
		c->version = record.version;
		c->time = now + clock_offset;
	}
	else
		c->version = record.version;
}

/* Executes the first n. */
static void
execute_first(Server *s, Fifo *fifo, int n, bool hears)
{
	for (int i = 0; i < n; i++)
		execute(s, &fifo->packet[i], hears);
	fifo->n -= n;
	memmove(fifo->packet, fifo->packet + n, sizeof(Packet) * (size_t) fifo->n);
}

/* ------------------------------------------------------------------------
 * The worker of a server
 * ------------------------------------------------------------------------
 */

static void
disconnect(Server *s)
{
	s->connected = false;
	s->late = s->requests;
	s->requests.n = 0;
	for (int i = 0; i < s->late.n; i++)
		s->late.packet[i].late = true;
	for (int i = 0; i <= NCALLERS; i++)
		if (s->caller[i].waiting && (s->caller[i].reply == NO_REPLY || once_in(2)))
			s->caller[i].reply = LOST;
}

static void
lose_lock(Server *s)
{
	s->token = 0;
	s->granted = false;
	for (int i = 0; i < NCALLERS; i++)
		if (s->caller[i].place > WANT_GRANT)
			s->caller[i].lost = true;
}

static void
lose_session(Server *s)
{
	COVER(EXPIRED);
	TRACE("%d hears that its session has expired", number(s));
	disconnect(s);
	s->late.n = 0;
	s->lease_end = 0;
	lose_lock(s);
	s->session = -1;
}

static void
connect_server(Server *s)
{
	if (s->session >= 0 && !session[s->session].alive)
	{
		lose_session(s);
		return;
	}
	if (s->session < 0)
	{
		if (nsessions == MAX_SESSIONS)
			fail("too many sessions");
		s->session = nsessions++;
		session[s->session].alive = true;
	}
	/* The session moves: the old connection is good for nothing any more. */
	execute_first(s, &s->late, random_below(s->late.n + 1), false);
	s->late.n = 0;
	session[s->session].expires = now + TIMEOUT;
	s->lease_end = now + TIMEOUT / 8 * 7;
	s->connected = true;
}

static bool
is_wanted(const Server *s)
{
	return s->local >= 0 && s->caller[s->local].place == WANT_GRANT;
}

static ZkJobServer
identity(const Server *s)
{
	return (ZkJobServer){.system = (uint64_t) (copies && number(s) == COPY ? ORIGINAL
																		   : number(s)),
						 .timeline = 1 + number(s),
						 .name = "server"};
}

/* The session of the life before goes when there is nothing to be settled any more. */
static void
look_at_before(Server *s)
{
	ZkJobServer self = identity(s);

	if (s->before < 0 || (session[s->before].alive && zklock_job_left(&record.job, &self)))
		return;
	if (session[s->before].alive)
	{
		COVER(KEPT_SETTLED);
		close_session(s->before);
	}
	else
		COVER(KEPT_EXPIRED);
	s->before = -1;
}

/* Contenders come and go in the order of the requests. */
static void
work(Server *s)
{
	look_at_before(s);
	if (!s->connected)
	{
		if (s->late.n > 0 && session[s->session].alive && once_in(4))
			execute_first(s, &s->late, 1, false);
		else if (once_in(4))
			connect_server(s);
		return;
	}
	if (!session[s->session].alive)
	{
		lose_session(s);
		return;
	}
	switch (random_below(4))
	{
		case 0:
			session[s->session].expires = now + TIMEOUT;
			s->lease_end = now + TIMEOUT / 8 * 7;
			break;
		case 1:
			if (s->requests.n > 0)
				execute_first(s, &s->requests, 1, true);
			break;
		case 2:
			/* What the watches say, and say late. */
			if (s->token > 0 && !is_queued(s->token))
			{
				TRACE("%d hears that its contender is gone", number(s));
				lose_lock(s);
			}
			else if (s->token > 0 && queue[0].token == s->token && now >= embargo)
				s->granted = true;
			break;
		default:
			if (s->token == 0 && is_wanted(s))
			{
				execute_first(s, &s->requests, s->requests.n, true);
				zxid += 1 + random_below(3);
				s->token = zxid;
				queue[nqueue++] = (Contender){.session = s->session, .token = zxid};
			}
			else if (s->token > 0 && s->local < 0 && (nqueue > 1 || calm || once_in(8)))
			{
				execute_first(s, &s->requests, s->requests.n, true);
				leave_queue(s->token);
				s->token = 0;
				s->granted = false;
			}
	}
}

/* ------------------------------------------------------------------------
 * A backend
 * ------------------------------------------------------------------------
 */

static int
index_of(const Server *s, const Caller *c)
{
	return (int) (c - s->caller);
}

static void
send_request(Server *s, Caller *c, Kind kind)
{
	Packet *p = &s->requests.packet[s->requests.n];

	/* A change that does not go out is none. */
	if (kind != READ)
		c->known = false;
	if (!s->connected || s->requests.n == MAX_PENDING)
		return;
	p->kind = kind;
	p->caller = index_of(s, c);
	p->serial = ++c->serial;
	p->version = c->version;
	p->late = false;
	p->time = c->time;
	p->slot = c->reset;
	if (kind != READ)
		p->job = c->job;
	s->requests.n++;
	c->waiting = true;
	c->wrote = kind != READ;
	c->reply = NO_REPLY;
}

/*
 * Waits for the reply to what is out.  True: there is nothing out, and "known" says
 * whether the record is; *wrote: a write was acknowledged.
 */
static bool
have_reply(Caller *c, bool *wrote)
{
	*wrote = false;
	if (!c->waiting)
		return true;
	if (c->reply == NO_REPLY)
		return false;
	c->waiting = false;
	if (c->wrote && c->reply == LOST)
		COVER(WRITE_LOST);
	c->known = c->reply == OK;
	*wrote = c->wrote && c->known;
	return true;
}

/* Is the record known as of this session?  Else it is read. */
static bool
have_record(Server *s, Caller *c)
{
	if (c->known && c->session != s->session)
	{
		COVER(OTHER_SESSION);
		if (tied)
			c->known = false;
	}
	if (!c->known)
		send_request(s, c, READ);
	return c->known;
}

static bool
has_lock(const Server *s, const Caller *c)
{
	return !c->lost && now < s->lease_end;
}

static void
over(Caller *c)
{
	if (c->truth != NULL)
		c->truth->over = true;
	c->truth = NULL;
	c->id.number = 0;
	c->waiting = c->known = false;
	c->lost = false;
	c->place = IDLE;
}

static void
let_go(Server *s, Caller *c)
{
	if (s->local == index_of(s, c))
		s->local = -1;
	over(c);
}

static void
finish(Server *s, Caller *c, ZkJobState end)
{
	TRACE("%d.%d ends run %" PRId64 ": %s", number(s), index_of(s, c), c->id.number,
		  state_name(end));
	c->truth->over = true;
	if (end == ZKLOCK_JOB_FAILED)
	{
		COVER(FAILED);
		c->truth->failed = true;
	}
	c->end = end;
	c->place = FINISH;
}

static void
commit(Server *s, Caller *c)
{
	Truth *t = c->truth;

	TRACE("%d.%d commits run %" PRId64 ", slot %" PRId64, number(s), index_of(s, c),
		  t->id.number, t->slot);
	if (now + clock_offset < record.paused)
		COVER(PAUSED_MEANWHILE);
	if (!t->begun)
		check_commit(t);
	t->committed = t->over = true;
	coverage[t->begun ? COVER_ENDED : COVER_COMMITTED]++;
}

/* Has a server a row of that run in its own table? */
static bool
has_row(const Server *s, const Truth *t)
{
	return t != NULL && t->committed &&
		(t->server == number(s) || (t->copied && number(s) == COPY));
}

/* What a server's own table has. */
static int64_t
own_done(const Server *s, const ZkJob *job)
{
	int64_t latest = NEVER;

	for (int i = 0; i < ntruths; i++)
	{
		if (!has_row(s, &truths[i]))
			continue;
		if (!zklock_job_counts(job, truths[i].id))
			COVER(OWN_FORGOTTEN);
		else if (truths[i].slot > latest)
			latest = truths[i].slot;
	}
	return latest;
}

/* May one of its backends come to that run's end yet? */
static bool
goes_on(const Server *s, ZkJobId id)
{
	for (int i = 0; i < NCALLERS; i++)
		if (s->caller[i].id.token == id.token && s->caller[i].id.number == id.number &&
			(s->caller[i].truth == NULL || !s->caller[i].truth->over))
			return true;
	return false;
}

static void
settle(Server *s, Caller *c)
{
	ZkJobServer self = identity(s);
	int i = -1;

	while ((i = zklock_job_open(&c->job, &self, i + 1)) >= 0)
	{
		ZkJobId id = c->job.run[i].id;
		const Truth *t = find_truth(id);

		if (t != NULL && t->server != number(s))
			coverage[has_row(s, t) ? COVER_COPY_DONE : COVER_COPY_SILENT]++;
		if (!goes_on(s, id))
			zklock_job_settle(&c->job, id, &self, has_row(s, t), c->time);
	}
}

static void
start_call(Server *s, Caller *c)
{
	c->what = resets && !calm && once_in(40) ? FORGET : WRITE;
	c->call = (ZkJobCall){.attempts = attempts,
						  .skip = skips == 1 || (skips == 2 && once_in(2)),
						  .begun = begun_every > 0 && once_in(begun_every),
						  .server = identity(s)};
	if (form == 1 || (form == 2 && once_in(2)))
		c->call.slot = tick - (once_in(8) ? 1 : 0);
	else
	{
		c->call.every = EVERY;
		c->call.origin = ORIGIN;
	}
	c->place = WANT_LOCAL;
}

static void
start_run(Server *s, Caller *c)
{
	const ZkJobRun *run = zklock_job_find(&c->job, c->id);
	Truth *t = &truths[ntruths];

	if (ntruths == MAX_TRUTHS)
		fail("too many runs");
	ntruths++;
	*t = (Truth){.id = c->id,
				 .slot = run->slot,
				 .server = number(s),
				 .session = c->locked_in,
				 .begun = run->begun};
	c->truth = t;
	TRACE("%d.%d runs number %" PRId64 " by token %" PRId64 ", slot %" PRId64
		  ", attempt %d, failures %d",
		  number(s), index_of(s, c), t->id.number, t->id.token, t->slot, run->attempt,
		  run->failures);
	/* What has become of it by the time that the write is acknowledged. */
	t->excused = !is_queued(t->id.token);
	run = zklock_job_find(&record.job, c->id);
	t->forgotten = run == NULL;
	t->doubt = run != NULL && run->doubt;
	t->annulled = run != NULL && run->reset;
	t->again = c->again;
	t->after_void = record.void_since > 0;
	t->void_since = is_void_now(t->id, t->slot) ? record.void_since : 0;
	COVER(RUN);
	if (follows)
	{
		COVER(AFTER);
		if (!has_done(&c->earlier, t->slot))
			fail("run %" PRId64 " is for slot %" PRId64 ", which another job has not done",
				 t->id.number, t->slot);
	}
	check_run(c, t);
	c->place = RUNNING;
	if (t->begun && !has_lock(s, c))
		finish(s, c, ZKLOCK_JOB_LOST);
}

/* The verdict counts. */
static void
act_on_verdict(Server *s, Caller *c)
{
	if (c->what != WRITE)
	{
		let_go(s, c);
		return;
	}
	if (c->overrules != NULL)
		c->overrules->overruled = true;
	if (c->raised)
		COVER(OWN_TABLE);
	switch (c->decision.verdict)
	{
		case ZKLOCK_JOB_RUN:
			start_run(s, c);
			return;
		case ZKLOCK_JOB_NOT_DUE:
			COVER(NOT_DUE);
			if (c->decision.ahead)
				COVER(AHEAD);
			check_not_run(c);
			break;
		case ZKLOCK_JOB_GIVEN_UP:
			COVER(GIVEN_UP);
			check_not_run(c);
			break;
		case ZKLOCK_JOB_PAUSED:
			COVER(CALL_PAUSED);
			check_paused(c);
			break;
		case ZKLOCK_JOB_TOO_SOON:
			COVER(TOO_SOON);
			check_too_soon(c);
			break;
		case ZKLOCK_JOB_NO_HOLDER:
			COVER(NO_HOLDER);
			break;
	}
	TRACE("%d.%d: verdict %d, slot %" PRId64, number(s), index_of(s, c),
		  (int) c->decision.verdict, c->decision.slot);
	if (c->final)
		fail("the final call does not run the job: %d", (int) c->decision.verdict);
	let_go(s, c);
}

/* The records of the jobs after which this one is to be run, one of which has done all. */
static const ZkJob *
read_others(void)
{
	static ZkJob other[2];

	zklock_job_init(&other[0]);
	other[0].last_done = ZKLOCK_JOB_TIME_MAX;
	zklock_job_init(&other[1]);
	other[1].last_done = earlier.done;
	other[1].every = earlier.every;
	other[1].origin = earlier.origin;
	other[1].resets.n = earlier.again != NEVER;
	other[1].resets.slot[0] = earlier.again;
	other[1].nruns = earlier.failed != NEVER;
	other[1].run[0] = (ZkJobRun){.id = {.token = 1, .number = 1},
								 .slot = earlier.failed,
								 .state = ZKLOCK_JOB_FAILED};
	return other;
}

static void
decide(Server *s, Caller *c)
{
	const ZkJobRun *mine = zklock_job_find(&c->job, c->id);

	if (c->id.number > 0 && mine != NULL && mine->state == ZKLOCK_JOB_RUNNING)
	{
		COVER(MINE_AFTER_ALL);
		act_on_verdict(s, c);
		return;
	}
	c->id.number = 0;
	c->overrules = NULL;
	c->call.own_done = own_done(s, &c->job);
	c->decided = c->time;
	c->based = c->version;
	c->earlier = earlier;
	if (follows)
	{
		c->call.nafter = 2;
		c->call.after = read_others();
	}
	if (c->job.nruns > 0 && c->job.run[0].state == ZKLOCK_JOB_RUNNING &&
		c->job.run[0].id.token <= c->call.token)
		c->overrules = find_truth(c->job.run[0].id);
	if (c->what == WRITE)
	{
		settle(s, c);
		c->raised = c->call.own_done > c->job.last_done && !c->job.changed;
		c->decision = zklock_job_decide(&c->job, &c->call, c->time);
		if (c->decision.verdict == ZKLOCK_JOB_RUN)
		{
			c->id = c->job.run[0].id;
			c->again = zklock_job_is_reset(&c->job, c->decision.slot);
		}
		else if (c->decision.verdict == ZKLOCK_JOB_NO_HOLDER)
			c->overrules = NULL;
	}
	else
		(void) zklock_job_forget(&c->job, c->call.token);
	if (c->job.changed)
		c->place = DECIDED;
	else
		act_on_verdict(s, c);
}

/* Runs until the command has ended. */
static void
run(Server *s, Caller *c)
{
	if (c->lost && once_in(4))
		finish(s, c, ZKLOCK_JOB_LOST);
	else if (!calm && once_in(fail_every))
		finish(s, c, ZKLOCK_JOB_FAILED);
	else if (once_in(6))
	{
		if (!c->truth->begun)
			c->place = COMMITTING;
		else
		{
			/* Its row is in a transaction of its own. */
			commit(s, c);
			finish(s, c, ZKLOCK_JOB_DONE);
		}
	}
}

static void
mark_committing(Server *s, Caller *c, bool wrote)
{
	if (wrote)
	{
		c->place = LOOK;
		return;
	}
	if (c->lost && once_in(4))
	{
		finish(s, c, ZKLOCK_JOB_LOST);
		return;
	}
	if (!calm && once_in(fail_every * 4))
	{
		finish(s, c, ZKLOCK_JOB_FAILED);
		return;
	}
	if (!have_record(s, c))
		return;
	c->job.changed = false;
	switch (zklock_job_commit(&c->job, c->id, 1))
	{
		case ZKLOCK_JOB_COMMIT:
			if (c->job.changed)
				send_request(s, c, WRITE);
			else
				c->place = LOOK;
			break;
		case ZKLOCK_JOB_ABORT:
			COVER(ABORTED);
			finish(s, c, ZKLOCK_JOB_LOST);
			break;
		case ZKLOCK_JOB_DONE_BY_OTHERS:
			COVER(DONE_BY_OTHERS);
			finish(s, c, ZKLOCK_JOB_LOST);
	}
}

static void
look(Server *s, Caller *c)
{
	if (!has_lock(s, c))
	{
		COVER(LATE);
		finish(s, c, ZKLOCK_JOB_LOST);
	}
	else if (!calm && once_in(fail_every * 4))
		finish(s, c, ZKLOCK_JOB_FAILED); /* a serialization failure */
	else
	{
		if (c->truth->expired)
			fail("run %" PRId64 " is to commit, and its session has expired", c->id.number);
		c->place = COMMIT;
	}
}

static void
record_end(Server *s, Caller *c, bool wrote)
{
	if (!wrote)
	{
		if (!have_record(s, c))
			return;
		c->job.changed = false;
		zklock_job_finish(&c->job, c->id, c->end, "an error", c->time);
		if (c->job.changed)
		{
			send_request(s, c, WRITE);
			return;
		}
	}
	c->place = LET_GO;
}

/* A run that may be in COMMITTING keeps the lock, and its server records the end. */
static void
quit(Server *s, Caller *c)
{
	bool leaves = c->truth != NULL && !c->truth->begun && c->place >= COMMITTING &&
		c->place <= FINISH;

	COVER(QUIT);
	TRACE("%d.%d ends without a word", number(s), index_of(s, c));
	if (leaves)
	{
		COVER(LEFT);
		c->serial++; /* no reply comes to the one who goes on */
		c->waiting = c->known = false;
		finish(s, c, c->truth->committed ? ZKLOCK_JOB_DONE : ZKLOCK_JOB_LOST);
		return;
	}
	if (c->truth != NULL && (c->truth->begun || c->place < COMMITTING))
		c->truth->excused = true;
	let_go(s, c);
}

/* Is it time to call for the job, by the server's clock, or to catch up? */
static bool
wants_to_call(Server *s, Caller *c)
{
	int64_t slot = present_slot(now + clock_offset + s->skew - EARLY);

	c->ticked = ticks && slot != s->ticked;
	s->ticked = slot;
	return c->ticked || once_in(ticks ? 200 : 4);
}

static void
step_caller(Server *s, Caller *c)
{
	bool wrote;

	if (now < c->paused)
		return;
	if (!calm && once_in(pause_every))
	{
		c->paused = now + random_time(2 * TIMEOUT);
		return;
	}
	if (!calm && c->place > WANT_GRANT && once_in(400))
	{
		quit(s, c);
		return;
	}
	if (!have_reply(c, &wrote))
		return;
	switch (c->place)
	{
		case IDLE:
			if (!calm && wants_to_call(s, c))
				start_call(s, c);
			break;
		case WANT_LOCAL:
			if (s->local < 0)
			{
				s->local = index_of(s, c);
				c->place = WANT_GRANT;
			}
			break;
		case WANT_GRANT:
			if (s->granted && has_lock(s, c))
			{
				c->call.token = s->token;
				c->locked_in = s->session;
				c->place = LOOK_UP;
			}
			break;
		case LOOK_UP:
			/* one who has lost it otherwise need not know */
			if (c->lost && (c->locked_in != s->session || once_in(2)))
				let_go(s, c);
			else if (have_record(s, c))
				decide(s, c);
			break;
		case DECIDED:
			if (wrote)
				act_on_verdict(s, c);
			else if (c->known && c->session == s->session)
				send_request(s, c, c->what);
			else
			{
				c->known = false;
				c->place = LOOK_UP;
			}
			break;
		case RUNNING:
			run(s, c);
			break;
		case COMMITTING:
			mark_committing(s, c, wrote);
			break;
		case LOOK:
			look(s, c);
			break;
		case COMMIT:
			commit(s, c);
			finish(s, c, ZKLOCK_JOB_DONE);
			break;
		case FINISH:
			record_end(s, c, wrote);
			break;
		case LET_GO:
			let_go(s, c);
			break;
		case SETTLE:
		case SETTLED:
			break;
	}
}

/* May the slot be done, as far as the record knows? */
static bool
is_done_in(const ZkJob *job, int64_t slot)
{
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].slot == slot &&
			(job->run[i].state == ZKLOCK_JOB_DONE ||
			 job->run[i].state == ZKLOCK_JOB_SKIPPED))
			return true;
	return false;
}

/* Whoever resets a job and names no slot means one that has failed, if there is one. */
static void
check_reset(const Caller *c, const ZkJob *before)
{
	bool any = false;
	bool meant = false;
	bool earlier = false;

	/* a slot ahead of the clock is the present one */
	if (c->life != lives || (before->every > 0 && c->reset == present_slot(c->time)))
		return;
	for (int i = 0; i < ntruths; i++)
	{
		const Truth *t = &truths[i];

		if (!t->failed)
			continue;
		meant |= t->slot == c->reset;
		if (t->recorded > 0 && t->recorded <= c->version && !t->annulled &&
			!t->forgotten && !is_marked(t, c->version) &&
			zklock_job_find(before, t->id) != NULL && !is_done_in(before, t->slot))
		{
			any = true;
			earlier |= t->slot < before->last_done;
		}
	}
	if (any)
		COVER(RESET_FAILED);
	if (earlier)
		COVER(RESET_FAILED_EARLIER);
	if (any && !meant)
		fail("slot %" PRId64 " is reset, and another has failed", c->reset);
}

/* A slot was reset since this run of it had failed: it is not done by a later one. */
static void
check_since(const Caller *c, const ZkJob *before, const ZkJobRun *run)
{
	for (int i = 0; i < ntruths; i++)
	{
		const Truth *t = &truths[i];
		const ZkJobRun *since = zklock_job_find(before, t->id);

		if (c->life == lives && t->slot == run->slot && t->committed && since != NULL &&
			since->state == ZKLOCK_JOB_DONE && since->id.number > run->id.number)
			fail("slot %" PRId64 " is reset, and done since it has failed", run->slot);
	}
}

static void
reset(Caller *c)
{
	ZkJob before = c->job;
	const ZkJobRun *named =
		before.nruns > 0 && once_in(2) ? &before.run[random_below(before.nruns)] : NULL;
	int attempt = named != NULL && named->failures > 0 && once_in(2) ? named->attempt : 0;

	c->reset = named != NULL ? named->slot : NEVER;
	switch (zklock_job_reset(&c->job, &c->reset, attempt, c->time))
	{
		case ZKLOCK_JOB_RESET:
			if (named == NULL)
				check_reset(c, &before);
			else if (attempt > 0)
				check_since(c, &before, named);
			break;
		case ZKLOCK_JOB_NOTHING:
			break;
		case ZKLOCK_JOB_FULL:
			COVER(RESET_FULL);
			if (c->job.changed)
				fail("a reset that there is no room for changes the record");
			break;
		case ZKLOCK_JOB_SINCE:
			COVER(RESET_SINCE);
			if (c->job.changed)
				fail("a reset that comes late changes the record");
			break;
	}
}

/* For some time, or for ever, or no more. */
static void
pause_job(Caller *c)
{
	c->reset = once_in(3) ? NEVER
		: once_in(8)	  ? ZKLOCK_JOB_FOREVER
						  : c->time + random_time(EVERY) - EVERY / 8;
	switch (zklock_job_pause(&c->job, c->reset, c->time))
	{
		case ZKLOCK_JOB_CHANGED:
			break;
		case ZKLOCK_JOB_UNCHANGED:
			COVER(NOT_PAUSED);
			if (c->life == lives && record.paused_since <= c->version &&
				(c->reset == NEVER ? c->time < record.paused : c->reset != record.paused))
				fail("the job is said to be paused, or not, as it is to be");
			break;
		case ZKLOCK_JOB_PAST:
			COVER(PAUSE_PAST);
			break;
	}
}

/* Looks now and then what its server can tell, resets a slot, or pauses the job; has no
 * lock. */
static void
step_settler(Server *s, Caller *c)
{
	bool wrote;

	if (!have_reply(c, &wrote))
		return;
	if (c->place == IDLE && once_in(calm ? 2 : 30))
	{
		c->place = SETTLE;
		c->what = calm || !once_in(4) ? WRITE : resets ? RESET : pauses ? PAUSE : WRITE;
		if (c->what == RESET && pauses && once_in(2))
			c->what = PAUSE;
	}
	if (c->place != SETTLE)
		return;
	if (!wrote)
	{
		if (!have_record(s, c))
			return;
		c->job.changed = false;
		if (c->what == WRITE)
			settle(s, c);
		else if (c->what == RESET)
			reset(c);
		else
			pause_job(c);
		if (c->job.changed)
		{
			send_request(s, c, c->what);
			return;
		}
	}
	c->known = false;
	c->place = calm ? SETTLED : IDLE;
}

/* ------------------------------------------------------------------------
 * Faults
 * ------------------------------------------------------------------------
 */

static void
crash(Server *s)
{
	COVER(CRASHED);
	TRACE("%d crashes", number(s));
	disconnect(s);
	for (int i = 0; i <= NCALLERS; i++)
	{
		Caller *c = &s->caller[i];
		int serial = c->serial;

		if (c->truth != NULL)
		{
			c->truth->over = true;
			if (c->truth->begun)
				c->truth->excused = true;
			if (c->place == LOOK || c->place == COMMIT || c->place == FINISH)
				COVER(CRASHED_COMMITTING);
		}
		memset(c, 0, sizeof(*c));
		c->serial = serial;
	}
	s->up = s->granted = false;
	s->token = 0;
	s->local = -1;
}

/*
 * The session of the life before, if it is known, is closed; or kept, if that has left a
 * run to be settled, for as long as it lasts by itself.
 */
static void
start_server(Server *s)
{
	ZkJobServer self = identity(s);

	s->up = true;
	s->before = -1;
	/* What the old session has under way may be executed until it ends. */
	if (s->session >= 0 && session[s->session].alive && once_in(2))
	{
		execute_first(s, &s->late, random_below(s->late.n + 1), false);
		session[s->session].expires = now + TIMEOUT;
		if (zklock_job_left(&record.job, &self))
		{
			COVER(KEPT);
			TRACE("%d keeps its session of before", number(s));
			s->before = s->session;
		}
		else
			close_session(s->session);
	}
	s->late.n = 0;
	s->session = -1;
	s->lease_end = 0;
}

static void
init_record(void)
{
	memset(&record, 0, sizeof(record));
	zklock_job_init(&record.job);
	record.floor = record.floor_before = NEVER;
	record.paused = NEVER;
}

static void
copy_rows(void)
{
	for (int i = 0; i < ntruths; i++)
		truths[i].copied |= truths[i].server == ORIGINAL && truths[i].committed;
}

static void
go_back(void)
{
	bool wiped = once_in(4);

	COVER(WENT_BACK);
	lives++;
	life_began = zxid;
	TRACE("-- the ensemble goes back");
	for (int i = 0; i < NSERVERS; i++)
	{
		disconnect(&server[i]);
		server[i].late.n = 0;
	}
	for (int i = 0; i < nsessions; i++)
		if (session[i].alive)
			end_session(i);
	if (wiped)
	{
		COVER(WIPED);
		init_record();
	}
	else
		record = saved;
	for (int i = 0; i < ntruths; i++)
	{
		Truth *t = &truths[i];

		t->forgotten = true;
		t->void_since = wiped ? 0 : t->void_saved;
		/* a mark that waits for its token: nothing counts that was run by now */
		if (record.job.forgotten.token == NEVER && t->slot > record.floor)
			t->void_since = record.void_since;
	}
	nagain = 0;
	embargo = now + TIMEOUT;
}

/* The other job does the slot of the present, or one that it is to do again, or is to do
 * one again, or fails. */
static void
step_earlier(void)
{
	int64_t latest = earlier.every > 0 ? now + clock_offset : tick;

	if (once_in(3))
		earlier.again = NEVER;
	else if (once_in(4))
		earlier.again = earlier.done;
	else if (once_in(4))
		earlier.failed = once_in(2) ? earlier.done : NEVER;
	else if (latest > earlier.done)
	{
		while (earlier.every > 0 && earlier.done + earlier.every <= latest)
			earlier.done += earlier.every;
		if (earlier.every == 0)
			earlier.done = latest;
	}
}

static void
set_clock(void)
{
	COVER(CLOCK);
	clock_offset += random_time(4 * EVERY) - 2 * EVERY;
	TRACE("-- the clock is set to %" PRId64, now + clock_offset);
}

static void
break_lock(void)
{
	int i = random_below(nqueue + 1);

	if (i == nqueue)
		return;
	COVER(BROKEN);
	TRACE("-- somebody deletes contender %" PRId64, queue[i].token);
	excuse(queue[i].token);
	leave_queue(queue[i].token);
}

static void
fault(void)
{
	Server *s = &server[random_below(NSERVERS)];

	switch (random_below(12))
	{
		case 0:
			if (s->up)
				crash(s);
			break;
		case 1:
			if (s->up && now >= s->paused)
			{
				s->paused = now + random_time(3 * TIMEOUT);
				if (s->paused > now + TIMEOUT)
					COVER(PAUSED);
			}
			break;
		case 2:
		case 3:
		case 4:
			if (s->connected)
				disconnect(s);
			break;
		case 5:
			if (once_in(6))
				set_clock();
			break;
		case 6:
			saved = record;
			for (int i = 0; i < ntruths; i++)
				truths[i].void_saved = truths[i].void_since;
			break;
		case 7:
			if (goes_back && once_in(2))
				go_back();
			break;
		case 8:
			if (once_in(break_every))
				break_lock();
			break;
		case 9:
			tick++;
			if (copies && once_in(2))
				copy_rows();
			step_earlier();
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
expire(void)
{
	for (int i = 0; i < nsessions; i++)
	{
		if (!session[i].alive || now < session[i].expires)
			continue;
		for (int j = 0; j < ntruths; j++)
			if (truths[j].session == i)
				truths[j].expired = true;
		for (int j = 0; j < NSERVERS; j++)
		{
			Server *s = &server[j];

			if (s->session != i)
				continue;
			/* what came in time */
			execute_first(s, &s->late, random_below(s->late.n + 1), false);
			s->late.n = 0;
			/* what stands in a broken connection has not come */
			s->requests.n = 0;
		}
		end_session(i);
	}
}

/* Invariant 6. */
static void
check_record(void)
{
	const ZkJob *job = &record.job;

	for (int i = 0; i < job->nruns; i++)
	{
		const ZkJobRun *r = &job->run[i];
		const Truth *t = find_truth(r->id);
		bool committed = t != NULL && t->committed;

		if (t != NULL && t->forgotten)
			continue;
		if (r->state == ZKLOCK_JOB_RUNNING || r->state == ZKLOCK_JOB_COMMITTING)
			fail("run %" PRId64 " is %s in the end", r->id.number, state_name(r->state));
		if (r->doubt)
			fail("run %" PRId64 " is in doubt in the end", r->id.number);
		if (committed != (r->state == ZKLOCK_JOB_DONE))
			fail("run %" PRId64 " is %s in the record, and has %scommitted", r->id.number,
				 state_name(r->state), committed ? "" : "not ");
		if (r->state == ZKLOCK_JOB_FAILED && (t == NULL || !t->failed))
			fail("run %" PRId64 " has not failed", r->id.number);
		if (t != NULL && t->skipped && !committed && r->state != ZKLOCK_JOB_SKIPPED)
			fail("run %" PRId64 " was skipped", r->id.number);
	}
	for (int i = 0; i < ntruths; i++)
	{
		const Truth *t = &truths[i];

		if (t->forgotten || t->void_since > 0 || !counts_as_done(t) ||
			t->slot <= job->last_done)
			continue;
		if (!t->doubt || zklock_job_find(job, t->id) != NULL)
			fail("slot %" PRId64 " is done, and the record does not know it", t->slot);
	}
}

static bool
all_idle(void)
{
	for (int i = 0; i < NSERVERS; i++)
		for (int j = 0; j < NCALLERS; j++)
			if (server[i].caller[j].place != IDLE)
				return false;
	return true;
}

static bool
all_settled(void)
{
	for (int i = 0; i < NSERVERS; i++)
		if (server[i].caller[SETTLER].place != SETTLED)
			return false;
	return true;
}

static void
step(int64_t pace)
{
	Server *s = &server[random_below(NSERVERS)];
	int who = random_below(NCALLERS + 3);

	step_count++;
	if (step_count > 20 * STEPS)
		fail("something is not over long after all is calm");
	if (once_in(3))
		now += random_time(pace);
	expire();
	if (!s->up || now < s->paused)
		return;
	if (who < NCALLERS)
		step_caller(s, &s->caller[who]);
	else if (who == SETTLER)
		step_settler(s, &s->caller[who]);
	else
		work(s);
}

static void
begin_world(uint64_t seed)
{
	random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	now = 1000 * 1000;
	clock_offset = embargo = zxid = life_began = 0;
	init_record();
	saved = record;
	nsessions = nqueue = ntruths = lives = 0;
	tick = 1;
	nagain = 0;
	calm = false;
	goes_back = once_in(3);
	resets = once_in(3);
	pauses = once_in(6);
	follows = once_in(6);
	copies = once_in(4);
	tied = goes_back || once_in(2);
	form = random_below(8) / 3;
	ticks = form == 0 && once_in(2);
	earlier = (Earlier){.every = form == 0 ? EVERY * (1 + random_below(3)) / 2 : 0,
						.origin = ORIGIN + random_time(EVERY),
						.again = NEVER,
						.failed = NEVER};
	earlier.done = earlier.every > 0 ? earlier.origin : 0;
	skips = random_below(3);
	attempts = 1 + random_below(3);
	pause_every = 20 + random_below(400);
	fail_every = 4 + random_below(100);
	begun_every = once_in(4) ? 1 + random_below(3) : 0;
	break_every = 1 + random_below(8);
	for (int i = 0; i < NSERVERS; i++)
	{
		Server *s = &server[i];

		s->up = true;
		s->connected = s->granted = false;
		s->paused = s->lease_end = s->token = 0;
		s->skew = random_time(2 * EARLY) - EARLY;
		s->ticked = NEVER;
		s->session = s->before = s->local = -1;
		s->requests.n = s->late.n = 0;
		memset(s->caller, 0, sizeof(s->caller));
	}
}

/* Everybody says what he knows. */
static void
settle_all(void)
{
	for (int i = 0; i < NSERVERS; i++)
		if (server[i].caller[SETTLER].place == SETTLED)
			server[i].caller[SETTLER].place = IDLE;
	while (!all_settled())
		step(TIMEOUT / 200);
}

void
play(uint64_t seed)
{
	int64_t pace;
	int wild;
	Server *s;
	const Truth *t;

	begin_world(seed);
	pace = TIMEOUT / (10 + random_below(100));
	wild = 10 + random_below(150);
	while (step_count < STEPS)
	{
		if (once_in(wild))
			fault();
		step(pace);
	}

	TRACE("---- calm");
	calm = true;
	for (int i = 0; i < NSERVERS; i++)
	{
		if (!server[i].up)
			start_server(&server[i]);
		server[i].paused = 0;
		for (int j = 0; j < NCALLERS; j++)
			server[i].caller[j].paused = 0;
	}
	while (!all_idle())
		step(TIMEOUT / 200);

	/* Everybody hears of what he has lost. */
	for (int i = 0; i < NSERVERS; i++)
		if (server[i].token > 0 && !is_queued(server[i].token))
			lose_lock(&server[i]);
	settle_all();

	/* A slot after all others is run, and once. */
	for (int i = 0; i < ntruths; i++)
		if (truths[i].slot >= now + clock_offset - EVERY)
			clock_offset = truths[i].slot + EVERY - now;
	if (record.floor >= now + clock_offset - EVERY)
		clock_offset = record.floor + EVERY - now;
	tick += INT64_C(1) << 40;
	earlier.done = ZKLOCK_JOB_TIME_MAX;
	earlier.again = earlier.failed = NEVER;
	record.paused = record.job.paused_until = NEVER;
	record.version++;
	s = &server[random_below(NSERVERS)];
	start_call(s, &s->caller[0]);
	s->caller[0].final = true;
	while (!all_idle())
		step(TIMEOUT / 200);
	s->caller[0].final = false;
	t = &truths[ntruths - 1];
	if (!t->committed)
		fail("the final run does not commit");

	settle_all();
	check_record();
	COVER(CALM);
}

const Simulator simulator = {
	.schedules = "schedules of a job",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
