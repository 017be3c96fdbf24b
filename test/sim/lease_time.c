/*-------------------------------------------------------------------------
 *
 * lease_time.c
 *	  Clocks, timers, pauses and streams of the lease's simulator.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_model.h"

#include <string.h>

#define HELD (NEVER / 2) /* arrival of what meets a cut link */

Time now;
Time tick;
Time timeout;
Time longer_timeout;
int sync_limit;
Time race;
Time dawdle;
Stream stream[NSTREAMS];
int cut[NNODES][NNODES];
Time slow[NNODES][NNODES];
int paused[NUNITS];
Time resumed[NUNITS];
int quiet[NCLIENTS];

static Time delay[NNODES][NNODES];
static Time clock_offset[NNODES];
static int clock_ppm[NNODES];

/* A heap of timers, the earliest on top. */
static Time due[NTIMERS];
static int heap[NTIMERS];
static int place[NTIMERS]; /* in the heap; -1: not set */
static int nheap;
static bool deferred[NTIMERS];
static int owner[NTIMERS]; /* unit; -1: the schedule's own */

Time
random_time(Time below)
{
	return below <= 0 ? 0 : (Time) (random_bits() % (uint64_t) below);
}

void
time_reset(int skew)
{
	now = 0;
	nheap = 0;
	for (int i = 0; i < NTIMERS; i++)
	{
		place[i] = -1;
		owner[i] = -1;
	}
	memset(deferred, 0, sizeof(deferred));
	for (int i = 0; i < NSTREAMS; i++)
	{
		stream[i].open = false;
		stream[i].count = 0;
	}
	memset(cut, 0, sizeof(cut));
	memset(slow, 0, sizeof(slow));
	memset(paused, 0, sizeof(paused));
	for (int i = 0; i < NUNITS; i++)
		resumed[i] = -timeout;
	memset(quiet, 0, sizeof(quiet));

	for (int i = 0; i < NNODES; i++)
	{
		Time base = once_in(8) ? 20 * MS : 2 * MS;

		clock_offset[i] = 1000 * 1000 * MS + random_time(100 * 1000 * MS);
		clock_ppm[i] =
			once_in(2) ? (once_in(2) ? skew : -skew) : random_below(2 * skew + 1) - skew;
		for (int j = 0; j < NNODES; j++)
			delay[i][j] = MS / 20 + random_time(base);
	}
	for (int i = 0; i < NSERVERS; i++)
	{
		owner[TIMER_PING + i] = UNIT_SERVER + i;
		owner[TIMER_EXPIRY + i] = UNIT_SERVER + i;
		owner[TIMER_CLOSING + i] = UNIT_SERVER + i;
		owner[TIMER_PEER + i] = UNIT_SERVER + i;
	}
	for (int i = 0; i < NCLIENTS; i++)
	{
		owner[TIMER_LIBRARY + i] = UNIT_LIBRARY + i;
		owner[TIMER_WORKER + i] = UNIT_WORKER + i;
		owner[TIMER_BACKEND + i] = UNIT_BACKEND + i;
	}
}

/* ------------------------------------------------------------------------
 * Clocks
 * ------------------------------------------------------------------------
 */

Time
clock_of(int node)
{
	return clock_offset[node] + now + now * clock_ppm[node] / 1000000;
}

Time
true_time(int node, Time clock)
{
	return (Time) ((double) (clock - clock_offset[node]) /
				   (1.0 + clock_ppm[node] / 1000000.0)) +
		2;
}

Time
true_span(int node, Time span)
{
	return (Time) ((double) span / (1.0 + clock_ppm[node] / 1000000.0)) + 1;
}

/* ------------------------------------------------------------------------
 * Timers
 * ------------------------------------------------------------------------
 */

static void
heap_put(int at, int timer)
{
	heap[at] = timer;
	place[timer] = at;
}

static void
heap_fix(int at)
{
	int timer = heap[at];

	while (at > 0 && due[timer] < due[heap[(at - 1) / 2]])
	{
		heap_put(at, heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (;;)
	{
		int child = 2 * at + 1;

		if (child >= nheap)
			break;
		if (child + 1 < nheap && due[heap[child + 1]] < due[heap[child]])
			child++;
		if (due[timer] <= due[heap[child]])
			break;
		heap_put(at, heap[child]);
		at = child;
	}
	heap_put(at, timer);
}

void
timer_set(int timer, Time at)
{
	deferred[timer] = false;
	due[timer] = at < now ? now : at;
	if (place[timer] < 0)
		heap_put(nheap++, timer);
	heap_fix(place[timer]);
}

void
timer_off(int timer)
{
	int at = place[timer];

	deferred[timer] = false;
	if (at < 0)
		return;
	place[timer] = -1;
	if (at != --nheap)
	{
		heap_put(at, heap[nheap]);
		heap_fix(at);
	}
}

/* The next timer that fires; its time has come. */
int
timer_next(void)
{
	for (;;)
	{
		int timer = heap[0];

		now = due[timer];
		timer_off(timer);
		if (owner[timer] < 0 || paused[owner[timer]] == 0)
			return timer;
		deferred[timer] = true;
	}
}

void
unit_pause(int unit)
{
	paused[unit]++;
}

void
unit_resume(int unit)
{
	if (--paused[unit] > 0)
		return;
	resumed[unit] = now;
	for (int i = 0; i < NTIMERS; i++)
		if (owner[i] == unit && deferred[i])
			timer_set(i, now + random_time(race));
}

/* ------------------------------------------------------------------------
 * Streams
 * ------------------------------------------------------------------------
 */

static void
stream_arm(int id)
{
	Stream *s = &stream[id];

	if (s->open && s->count > 0)
	{
		if (!deferred[TIMER_STREAM + id])
			timer_set(TIMER_STREAM + id, s->ring[s->head].arrival);
	}
	else
		timer_off(TIMER_STREAM + id);
}

void
stream_open(int id, int from, int to)
{
	Stream *s = &stream[id];

	s->open = true;
	s->from = from;
	s->to = to;
	s->head = 0;
	s->count = 0;
	s->last = 0;
	owner[TIMER_STREAM + id] =
		to < NSERVERS ? UNIT_SERVER + to : UNIT_LIBRARY + to - NSERVERS;
	timer_off(TIMER_STREAM + id);
}

void
stream_close(int id)
{
	stream[id].open = false;
	stream[id].count = 0;
	timer_off(TIMER_STREAM + id);
}

void
stream_send(int id, const Message *message)
{
	Stream *s = &stream[id];
	Message *m;
	Time at = now + random_time(MS / 10);

	if (!s->open)
		return;
	if (s->count == STREAM_MAX)
		fail("stream %d is full", id);
	at += delay[s->from][s->to];
	if (slow[s->from][s->to] != 0)
		at += random_time(slow[s->from][s->to]);
	if (at < s->last)
		at = s->last;
	if (cut[s->from][s->to] > 0)
		at = HELD;
	else
		s->last = at;
	m = &s->ring[(s->head + s->count++) % STREAM_MAX];
	*m = *message;
	m->arrival = at;
	if (s->count == 1)
		stream_arm(id);
}

/* Is there anything in the reader's buffer? */
bool
stream_readable(int id)
{
	const Stream *s = &stream[id];

	return s->open && s->count > 0 && s->ring[s->head].arrival <= now;
}

/* Its timer has fired. */
Message
stream_receive(int id)
{
	Stream *s = &stream[id];
	Message message = s->ring[s->head];

	s->head = (s->head + 1) % STREAM_MAX;
	if (--s->count == 0)
		s->head = 0; /* be kind to the processor's cache */
	stream_arm(id);
	return message;
}

/* What has not arrived on the link shall arrive then. */
static void
link_reschedule(int from, int to, Time arrival)
{
	for (int i = 0; i < NSTREAMS; i++)
	{
		Stream *s = &stream[i];

		if (!s->open || s->from != from || s->to != to)
			continue;
		for (int j = 0; j < s->count; j++)
		{
			Message *m = &s->ring[(s->head + j) % STREAM_MAX];

			if (m->arrival > now)
				m->arrival = arrival;
		}
		s->last = arrival;
		stream_arm(i);
	}
}

/* What has arrived is in the reader's buffer; the rest waits for link_heal. */
void
link_cut(int from, int to)
{
	if (cut[from][to]++ == 0)
		link_reschedule(from, to, HELD);
}

/* TCP notices when it next sends again what was lost. */
void
link_heal(int from, int to)
{
	Time again = now + random_time(once_in(2) ? 10 * MS : timeout / 10);

	if (--cut[from][to] == 0)
		link_reschedule(from, to, again);
}
