/*-------------------------------------------------------------------------
 *
 * job_rules.c
 *	  Decides who runs a job, and keeps the record of the job's runs.
 *
 *-------------------------------------------------------------------------
 */
#include "job_rules.h"

#include <string.h>

void
zklock_job_init(ZkJob *job)
{
	memset(job, 0, sizeof(*job));
	job->origin = ZKLOCK_JOB_ORIGIN;
	job->last_done = ZKLOCK_JOB_NEVER;
	job->paused_until = ZKLOCK_JOB_NEVER;
}

/* ------------------------------------------------------------------------
 * Check of a record that others wrote
 * ------------------------------------------------------------------------
 */

static bool
valid_time(int64_t t)
{
	return t >= ZKLOCK_JOB_TIME_MIN && t <= ZKLOCK_JOB_TIME_MAX;
}

static bool
valid_time_or_never(int64_t t)
{
	return t == ZKLOCK_JOB_NEVER || valid_time(t);
}

static bool
valid_run(const ZkJobRun *run)
{
	bool over = run->state != ZKLOCK_JOB_RUNNING && run->state != ZKLOCK_JOB_COMMITTING;
	bool may_doubt = run->state == ZKLOCK_JOB_LOST || run->state == ZKLOCK_JOB_SKIPPED;

	return run->id.number > 0 && run->state <= ZKLOCK_JOB_SKIPPED &&
		(!run->doubt || may_doubt) && valid_time(run->slot) && valid_time(run->start) &&
		(over ? valid_time(run->end) : run->end == ZKLOCK_JOB_NEVER) && run->attempt > 0 &&
		run->attempt < INT32_MAX && run->failures >= 0 && run->failures < INT32_MAX &&
		memchr(run->server_name, '\0', sizeof(run->server_name)) != NULL &&
		memchr(run->error, '\0', sizeof(run->error)) != NULL;
}

static bool
valid_slots(const ZkJobSlots *slots)
{
	if (slots->n < 0 || slots->n > ZKLOCK_JOB_RESETS)
		return false;
	for (int i = 0; i < slots->n; i++)
		if (!valid_time(slots->slot[i]) || (i > 0 && slots->slot[i] <= slots->slot[i - 1]))
			return false;
	return true;
}

bool
zklock_job_valid(const ZkJob *job)
{
	if (job->count < 0 || job->count >= ZKLOCK_JOB_COUNT_MAX || job->nruns < 0 ||
		job->nruns > ZKLOCK_JOB_RUNS || !valid_time_or_never(job->last_done) ||
		!valid_slots(&job->resets) || job->every < 0 || job->every > ZKLOCK_JOB_TIME_MAX ||
		!valid_time(job->origin) || !valid_time_or_never(job->paused_until) ||
		job->forgotten.number < 0 || job->forgotten.number > job->count)
		return false;
	for (int i = 0; i < job->nruns; i++)
	{
		int64_t newest = i == 0 ? job->count : job->run[i - 1].id.number - 1;

		/* only the newest one goes on */
		if (!valid_run(&job->run[i]) || job->run[i].id.number > newest ||
			(i > 0 && job->run[i].end == ZKLOCK_JOB_NEVER))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Runs
 * ------------------------------------------------------------------------
 */

static int
find(const ZkJob *job, ZkJobId id)
{
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].id.token == id.token && job->run[i].id.number == id.number)
			return i;
	return -1;
}

const ZkJobRun *
zklock_job_find(const ZkJob *job, ZkJobId id)
{
	int i = find(job, id);

	return i < 0 ? NULL : &job->run[i];
}

/* A set of states. */
#define STATE(state) (1u << (state))
#define ANY_STATE	 (~0u)

/* Finds the newest run of the slot that is in one of these states; -1: there is none. */
static int
find_slot(const ZkJob *job, int64_t slot, unsigned states)
{
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].slot == slot && (STATE(job->run[i].state) & states) != 0)
			return i;
	return -1;
}

/* Is a later holder of the lock known? */
static bool
is_late(const ZkJob *job, int64_t token)
{
	return job->forgotten.token > token || (job->nruns > 0 && job->run[0].id.token > token);
}

static bool
counts(const ZkJob *job, ZkJobId id)
{
	ZkJobId last = job->forgotten;

	if (last.token == ZKLOCK_JOB_NEVER)
		return false;
	return id.token > last.token || (id.token == last.token && id.number > last.number);
}

/* Slots come again if the clock was ahead: runs that are forgotten have not failed. */
static int
failures(const ZkJob *job, int64_t slot)
{
	int i = find_slot(job, slot, ANY_STATE);

	return i < 0 || !counts(job, job->run[i].id) ? 0 : job->run[i].failures;
}

/* Is the slot known to be done?  A run must count that came after the slot's last
 * reset. */
static bool
is_done(const ZkJob *job, int64_t slot)
{
	for (int i = 0; i < job->nruns; i++)
	{
		const ZkJobRun *run = &job->run[i];

		if (run->slot == slot && !run->reset && counts(job, run->id) &&
			(run->state == ZKLOCK_JOB_DONE || run->state == ZKLOCK_JOB_SKIPPED))
			return true;
	}
	return false;
}

bool
zklock_job_counts(const ZkJob *job, ZkJobId id)
{
	return counts(job, id);
}

static bool
is_open(const ZkJobRun *run)
{
	return run->state == ZKLOCK_JOB_COMMITTING || run->doubt;
}

int
zklock_job_open(const ZkJob *job, const ZkJobServer *server, int from)
{
	for (int i = from; i < job->nruns; i++)
		if (is_open(&job->run[i]) && job->run[i].server == server->system &&
			job->run[i].database == server->database)
			return i;
	return -1;
}

bool
zklock_job_is_own(const ZkJobRun *run, const ZkJobServer *server)
{
	return run->server == server->system && run->database == server->database &&
		run->timeline == server->timeline && strcmp(run->server_name, server->name) == 0;
}

bool
zklock_job_left(const ZkJob *job, const ZkJobServer *server)
{
	const ZkJobRun *run = &job->run[0];

	return job->nruns > 0 && run->state == ZKLOCK_JOB_COMMITTING &&
		run->server == server->system && strcmp(run->server_name, server->name) == 0;
}

/* Returns the slot's index among the slots that are due again, or the index for it to
 * get. */
static int
find_reset(const ZkJob *job, int64_t slot)
{
	int i = 0;

	while (i < job->resets.n && job->resets.slot[i] < slot)
		i++;
	return i;
}

bool
zklock_job_is_reset(const ZkJob *job, int64_t slot)
{
	int i = find_reset(job, slot);

	return i < job->resets.n && job->resets.slot[i] == slot;
}

static void
drop_reset(ZkJob *job, int i)
{
	int64_t *slot = &job->resets.slot[i];

	job->resets.n--;
	memmove(slot, slot + 1, sizeof(*slot) * (size_t) (job->resets.n - i));
}

/* The caller has made sure that there is room. */
static void
add_reset(ZkJob *job, int64_t slot)
{
	int i = find_reset(job, slot);
	int64_t *there = &job->resets.slot[i];

	if (zklock_job_is_reset(job, slot))
		return;
	memmove(there + 1, there, sizeof(*there) * (size_t) (job->resets.n - i));
	*there = slot;
	job->resets.n++;
}

static void
count_as_done(ZkJob *job, const ZkJobRun *run)
{
	if (run->slot > job->last_done && counts(job, run->id))
		job->last_done = run->slot;
	if (zklock_job_is_reset(job, run->slot) && !run->reset)
		drop_reset(job, find_reset(job, run->slot));
}

/* Counts one more failure of the slot.  The slot's later runs did not know of it. */
static void
count_failure(ZkJob *job, int i)
{
	if (job->run[i].reset)
		return;
	for (int j = i; j >= 0; j--)
		if (job->run[j].slot == job->run[i].slot && job->run[j].failures < INT32_MAX - 1)
			job->run[j].failures++;
}

/* Another backend has the lock now.  The backend that ran has lost it, or has ended
 * without a word. */
static void
take_over(ZkJob *job, bool skip, int64_t now)
{
	ZkJobRun *run = &job->run[0];

	if (job->nruns == 0)
		return;
	if (run->state == ZKLOCK_JOB_RUNNING)
	{
		run->state = ZKLOCK_JOB_LOST;
		run->doubt = run->begun;
	}
	else if (run->state == ZKLOCK_JOB_COMMITTING)
	{
		run->state = skip ? ZKLOCK_JOB_SKIPPED : ZKLOCK_JOB_LOST;
		run->doubt = true;
		if (run->state == ZKLOCK_JOB_SKIPPED)
			count_as_done(job, run);
	}
	else
		return;
	run->end = now;
	job->changed = true;
}

/* ------------------------------------------------------------------------
 * Is it due?
 * ------------------------------------------------------------------------
 */

/* Returns how long before a slot begins a call already counts for it. */
static int64_t
early(int64_t every)
{
	return every / 20 < ZKLOCK_JOB_EARLY ? every / 20 : ZKLOCK_JOB_EARLY;
}

/* As date_bin does.  Times are far from the ends of an int64. */
static int64_t
bin(int64_t every, int64_t origin, int64_t time)
{
	int64_t into = (time - origin) % every;

	return time - (into < 0 ? into + every : into);
}

int64_t
zklock_job_slot(int64_t every, int64_t origin, int64_t now)
{
	int64_t slot = bin(every, origin, now + early(every));

	/* "every" may be what others wrote */
	return slot < ZKLOCK_JOB_TIME_MIN ? ZKLOCK_JOB_TIME_MIN : slot;
}

/* A slot that was left out counts as done when a later one is: nobody calls for it
 * any more.  It does not count if the record knows that a run tried it in vain. */
bool
zklock_job_has_done(const ZkJob *job, int64_t slot)
{
	if (job->every > 0)
		slot = bin(job->every, job->origin, slot);
	if (slot > job->last_done || zklock_job_is_reset(job, slot))
		return false;
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].slot == slot && counts(job, job->run[i].id))
			return is_done(job, slot);
	return true;
}

/* May a slot that is due be run now? *after: the other job that has not done it. */
static ZkJobVerdict
look_at_slot(const ZkJob *job, const ZkJobCall *call, int64_t slot, int *after)
{
	if (failures(job, slot) >= call->attempts)
		return ZKLOCK_JOB_GIVEN_UP;
	for (*after = 0; *after < call->nafter; ++*after)
		if (!zklock_job_has_done(&call->after[*after], slot))
			return ZKLOCK_JOB_TOO_SOON;
	return ZKLOCK_JOB_RUN;
}

/*
 * Finds the slot that the call is for, and whether the caller has to run it.
 *
 * With "every" the present slot comes first, because it passes; slots that were reset
 * stay due.  No slot keeps the job from going on if it has failed, or waits for another
 * job.
 */
static void
find_due(const ZkJob *job, const ZkJobCall *call, int64_t now, ZkJobDecision *decision)
{
	int64_t slot =
		call->every > 0 ? zklock_job_slot(call->every, call->origin, now) : call->slot;
	int nresets = call->every > 0 ? job->resets.n : 0;

	decision->verdict = ZKLOCK_JOB_NOT_DUE;
	decision->slot = slot;
	if (slot > job->last_done || zklock_job_is_reset(job, slot))
		decision->verdict = look_at_slot(job, call, slot, &decision->after);
	for (int i = 0; i < nresets && decision->verdict != ZKLOCK_JOB_RUN; i++)
	{
		int after = 0;
		ZkJobVerdict verdict = look_at_slot(job, call, job->resets.slot[i], &after);

		if (verdict == ZKLOCK_JOB_RUN ||
			(verdict == ZKLOCK_JOB_TOO_SOON && decision->verdict == ZKLOCK_JOB_NOT_DUE))
			*decision = (ZkJobDecision){.verdict = verdict,
										.slot = job->resets.slot[i],
										.run = -1,
										.after = after};
	}
}

/* Says what was done last. */
static void
tell_done(ZkJob *job, const ZkJobCall *call, int64_t now, ZkJobDecision *decision)
{
	decision->slot = job->last_done;
	decision->run =
		find_slot(job, job->last_done, STATE(ZKLOCK_JOB_DONE) | STATE(ZKLOCK_JOB_SKIPPED));
	decision->ahead = call->every > 0 && job->last_done > now + early(call->every);
}

static void
set_every(ZkJob *job, const ZkJobCall *call)
{
	job->every = call->every;
	if (call->every > 0)
		job->origin = call->origin;
}

static void
begin_run(ZkJob *job, const ZkJobCall *call, int64_t slot, int64_t now)
{
	int before = find_slot(job, slot, ANY_STATE);
	ZkJobRun run = {.id = {.token = call->token, .number = ++job->count},
					.slot = slot,
					.state = ZKLOCK_JOB_RUNNING,
					.begun = call->begun,
					.server = call->server.system,
					.database = call->server.database,
					.timeline = call->server.timeline,
					.start = now,
					.end = ZKLOCK_JOB_NEVER,
					.attempt = 1};
	size_t len = strlen(call->server.name);

	if (before >= 0)
	{
		run.attempt = job->run[before].attempt + 1;
		run.failures = failures(job, slot);
	}
	if (len > ZKLOCK_NAME_MAX)
		len = ZKLOCK_NAME_MAX;
	memcpy(run.server_name, call->server.name, len);
	if (job->nruns < ZKLOCK_JOB_RUNS)
		job->nruns++;
	memmove(&job->run[1], &job->run[0], sizeof(run) * (size_t) (job->nruns - 1));
	job->run[0] = run;
	set_every(job, call);
	job->changed = true;
}

ZkJobDecision
zklock_job_decide(ZkJob *job, const ZkJobCall *call, int64_t now)
{
	ZkJobDecision decision = {.verdict = ZKLOCK_JOB_NO_HOLDER, .run = -1};

	if (is_late(job, call->token))
		return decision;
	if (job->forgotten.token == ZKLOCK_JOB_NEVER)
	{
		job->forgotten.token = call->token;
		job->changed = true;
	}
	take_over(job, call->skip, now);
	if (call->own_done > job->last_done)
	{
		job->last_done = call->own_done;
		job->changed = true;
	}

	if (zklock_job_is_paused(job, now))
	{
		decision.verdict = ZKLOCK_JOB_PAUSED;
		decision.slot = job->paused_until;
		return decision;
	}
	find_due(job, call, now, &decision);
	if (decision.verdict == ZKLOCK_JOB_NOT_DUE)
	{
		tell_done(job, call, now, &decision);
		/* a reset goes by it */
		if (call->every > 0 && job->every == 0)
		{
			set_every(job, call);
			job->changed = true;
		}
	}
	else if (decision.verdict == ZKLOCK_JOB_GIVEN_UP)
		decision.run = find_slot(job, decision.slot, STATE(ZKLOCK_JOB_FAILED));
	else if (decision.verdict == ZKLOCK_JOB_RUN)
	{
		begin_run(job, call, decision.slot, now);
		decision.run = 0;
	}
	return decision;
}

int64_t
zklock_job_next_due(const ZkJob *job)
{
	int64_t slot;

	if (job->resets.n > 0)
		return job->resets.slot[0];
	if (job->every == 0 || job->last_done == ZKLOCK_JOB_NEVER)
		return ZKLOCK_JOB_NEVER;
	slot = bin(job->every, job->origin, job->last_done) + job->every;
	return valid_time(slot) ? slot : ZKLOCK_JOB_NEVER;
}

/* ------------------------------------------------------------------------
 * The end of a run
 * ------------------------------------------------------------------------
 */

ZkJobCommit
zklock_job_commit(ZkJob *job, ZkJobId id, uint64_t xid)
{
	int i = find(job, id);
	ZkJobRun *run;

	if (i < 0)
		return ZKLOCK_JOB_ABORT;
	run = &job->run[i];
	if (run->end != ZKLOCK_JOB_NEVER)
		return ZKLOCK_JOB_ABORT;
	if (run->slot <= job->last_done && !zklock_job_is_reset(job, run->slot))
		return ZKLOCK_JOB_DONE_BY_OTHERS;
	if (run->state == ZKLOCK_JOB_COMMITTING)
		return ZKLOCK_JOB_COMMIT;
	run->state = ZKLOCK_JOB_COMMITTING;
	run->xid = xid;
	job->changed = true;
	return ZKLOCK_JOB_COMMIT;
}

/* Copies as much as there is room for, without half a character. */
static void
copy_error(char *to, const char *from)
{
	size_t len = strlen(from);

	if (len > ZKLOCK_JOB_ERROR_MAX)
		for (len = ZKLOCK_JOB_ERROR_MAX; len > 0 && (from[len] & 0xC0) == 0x80;)
			len--;
	memcpy(to, from, len);
	to[len] = '\0';
}

void
zklock_job_finish(ZkJob *job, ZkJobId id, ZkJobState end, const char *error, int64_t now)
{
	int i = find(job, id);
	ZkJobRun *run;
	bool goes_on;

	if (i < 0)
		return;
	run = &job->run[i];
	goes_on = run->end == ZKLOCK_JOB_NEVER;
	/* Nothing new, or nothing that may be taken back. */
	if (run->state == ZKLOCK_JOB_DONE || run->state == ZKLOCK_JOB_FAILED ||
		(!goes_on && !run->doubt && end == ZKLOCK_JOB_LOST))
		return;
	/* A slot that was skipped stays so, if nothing was committed for it. */
	if (run->state != ZKLOCK_JOB_SKIPPED || end == ZKLOCK_JOB_DONE)
		run->state = end;
	else if (!run->doubt)
		return;
	run->doubt = false;
	if (goes_on)
		run->end = now;
	if (error != NULL)
		copy_error(run->error, error);
	if (end == ZKLOCK_JOB_DONE)
		count_as_done(job, run);
	else if (end == ZKLOCK_JOB_FAILED)
		count_failure(job, i);
	job->changed = true;
}

void
zklock_job_settle(ZkJob *job, ZkJobId id, const ZkJobServer *server, bool committed,
				  int64_t now)
{
	int i = find(job, id);

	if (i >= 0 && is_open(&job->run[i]) &&
		(committed || zklock_job_is_own(&job->run[i], server)))
		zklock_job_finish(job, id, committed ? ZKLOCK_JOB_DONE : ZKLOCK_JOB_LOST, NULL,
						  now);
}

/* ------------------------------------------------------------------------
 * By hand
 * ------------------------------------------------------------------------
 */

/* Is there a slot ahead of the clock that is done, or may turn out to be? */
static bool
is_ahead(const ZkJob *job, int64_t now)
{
	int64_t latest = now + early(job->every);

	if (job->every == 0)
		return false; /* those who call make the slots */
	if (job->last_done > latest)
		return true;
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].slot > latest &&
			(job->run[i].end == ZKLOCK_JOB_NEVER || job->run[i].doubt) &&
			counts(job, job->run[i].id))
			return true;
	return false;
}

/* Returns the newest slot that has failed and is not done, even if a later one is; or
 * NEVER. */
static int64_t
find_failed(const ZkJob *job)
{
	int64_t newest = ZKLOCK_JOB_NEVER;

	for (int i = 0; i < job->nruns; i++)
	{
		const ZkJobRun *run = &job->run[i];

		if (run->failures > 0 && run->slot > newest && counts(job, run->id) &&
			!is_done(job, run->slot))
			newest = run->slot;
	}
	return newest;
}

/*
 * Returns the slot that a caller means who names none.  The caller may repeat a write
 * that has reached the record: so a slot that was reset, and is not done since, comes
 * before the slot done last.
 */
static int64_t
find_meant(const ZkJob *job, int64_t now)
{
	int64_t failed = find_failed(job);

	if (is_ahead(job, now))
		return zklock_job_slot(job->every, job->origin, now);
	if (failed != ZKLOCK_JOB_NEVER)
		return failed;
	return job->resets.n > 0 ? job->resets.slot[job->resets.n - 1] : job->last_done;
}

/* Adds the slots to those that are due again, and drops none.  False: there is no
 * room. */
static bool
add_resets(ZkJob *job, int64_t slot, int64_t other)
{
	int more = !zklock_job_is_reset(job, slot);

	if (other != slot && !zklock_job_is_reset(job, other))
		more++;
	if (job->resets.n + more > ZKLOCK_JOB_RESETS)
		return false;
	add_reset(job, slot);
	add_reset(job, other);
	return true;
}

/* No earlier run counts any more.  But the present slot and those before it stay
 * done, as far as they are known to be. */
static void
forget_ahead(ZkJob *job, int64_t present)
{
	job->last_done = present;
	job->forgotten = (ZkJobId){.token = ZKLOCK_JOB_NEVER, .number = job->count};
}

/* Is the slot done, or being run, since this attempt of it? */
static bool
is_run_since(const ZkJob *job, int64_t slot, int attempt)
{
	int i = find_slot(job, slot,
					  STATE(ZKLOCK_JOB_RUNNING) | STATE(ZKLOCK_JOB_COMMITTING) |
						  STATE(ZKLOCK_JOB_DONE) | STATE(ZKLOCK_JOB_SKIPPED));

	return i >= 0 && job->run[i].attempt > attempt;
}

ZkJobReset
zklock_job_reset(ZkJob *job, int64_t *slot, int attempt, int64_t now)
{
	int64_t present = now;
	int64_t other;
	bool ahead = is_ahead(job, now);

	if (attempt > 0 && is_run_since(job, *slot, attempt))
		return ZKLOCK_JOB_SINCE;
	if (*slot == ZKLOCK_JOB_NEVER)
		*slot = find_meant(job, now);
	if (*slot == ZKLOCK_JOB_NEVER)
		return ZKLOCK_JOB_NOTHING;
	/* those who call make the slots, and this one has not been called for */
	if (job->every == 0 && *slot > job->last_done && find_slot(job, *slot, ANY_STATE) < 0)
		return ZKLOCK_JOB_NOTHING;
	if (job->every > 0)
	{
		present = zklock_job_slot(job->every, job->origin, now);
		if (*slot > now + early(job->every))
			*slot = present;
		/* those are due when they come, as nothing there counts as done */
		while (job->resets.n > 0 &&
			   job->resets.slot[job->resets.n - 1] > now + early(job->every))
			drop_reset(job, job->resets.n - 1);
	}
	other = ahead && !is_done(job, present) ? present : *slot;
	if (!add_resets(job, *slot, other))
		return ZKLOCK_JOB_FULL;
	if (ahead)
		forget_ahead(job, present);
	for (int i = 0; i < job->nruns; i++)
		if (job->run[i].slot == *slot)
		{
			job->run[i].reset = true;
			job->run[i].failures = 0;
		}
	job->changed = true;
	return ZKLOCK_JOB_RESET;
}

bool
zklock_job_is_paused(const ZkJob *job, int64_t now)
{
	return now < job->paused_until;
}

ZkJobPause
zklock_job_pause(ZkJob *job, int64_t until, int64_t now)
{
	bool paused = zklock_job_is_paused(job, now);

	if (until != ZKLOCK_JOB_NEVER && until <= now)
		return ZKLOCK_JOB_PAST;
	if (until == ZKLOCK_JOB_NEVER ? !paused : job->paused_until == until)
		return ZKLOCK_JOB_UNCHANGED;
	job->paused_until = until;
	job->changed = true;
	return ZKLOCK_JOB_CHANGED;
}

bool
zklock_job_forget(ZkJob *job, int64_t token)
{
	int64_t count = job->count;
	int64_t paused_until = job->paused_until;

	if (is_late(job, token))
		return false;
	zklock_job_init(job);
	/* so that no run is like one before */
	job->count = count;
	job->paused_until = paused_until;
	job->forgotten = (ZkJobId){.token = token, .number = job->count};
	job->changed = true;
	return true;
}
