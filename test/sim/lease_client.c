/*-------------------------------------------------------------------------
 *
 * lease_client.c
 *	  A zklock server in the lease's simulator: library, worker, backends.
 *
 * The library and the worker are one thread, but each may be paused here by itself, which
 * is more than there can be.  The library pings after a third of the timeout without
 * anything to send, unless requests are outstanding, gives a connection up after two
 * thirds without anything received, and tries the servers at random.  It stamps what it
 * receives.  The worker is session.c: one heartbeat at a time, stamped when it is handed
 * to the library.
 *
 * A backend reads the end of the lease, may then be paused, reads the clock
 * and claims.  As every end that has been published may be read at any time
 * before that, the claim is tested against the latest of them at the moment of
 * the expiry and whenever one is published after that: claim_published.
 *
 *-------------------------------------------------------------------------
 */
#include "heartbeat.h"
#include "lease_model.h"

#include <string.h>

#define QUEUE 1024
/*
 * What a calm heartbeat leaves: it is the last witness of the one three before it, with
 * up to 17/96 between them: 7/8 - 17/32.  Less the time that messages take: a heartbeat
 * that is acknowledged after more than 1/6 - 1/8 puts off the next one.
 */
#define ROUND_TRIP (160 * MS)
#define ON_THE_WAY(timeout)                                                              \
	((timeout) / 50 +                                                                    \
	 (ROUND_TRIP > (timeout) / 24 ? 3 * (ROUND_TRIP - (timeout) / 24) : 0))
#define CALM_LEFT(timeout) ((timeout) / 32 * 11 - ON_THE_WAY(timeout))
#define CALM_LEAST(timeout)                                                              \
	(CALM_LEFT(timeout) - (timeout) / 96 * 17 - 3 * ON_THE_WAY(timeout))

typedef enum LibraryState
{
	LIB_OFF, /* waits for the worker */
	LIB_DOWN,
	LIB_CONNECTING,
	LIB_UP
} LibraryState;

typedef struct Request
{
	RequestKind kind;
	Time sent;	/* client's clock */
	int serial; /* of the connection that it went out on; -1: not yet */
} Request;

typedef enum NoticeType
{
	N_REPLY,
	N_CONNECTED,
	N_DISCONNECTED,
	N_EXPIRED
} NoticeType;

typedef struct Notice
{
	NoticeType type;
	RequestKind kind;
	bool good;
	bool longer;
	int session;
	Time sent; /* N_CONNECTED: asked for */
	Time received;
} Notice;

typedef struct Client
{
	/* library */
	LibraryState state;
	int serial;
	int session; /* -1: wants a new one */
	bool longer; /* asks for, or has negotiated, longer_timeout */
	Time last_send;
	Time last_receive;
	Time next_try;
	Time asked; /* by the client's clock: not after the connection was asked for */
	int head;	/* requests without a reply */
	int count;
	Request request[QUEUE];

	/* from library to worker */
	int notice_head;
	int notices;
	Notice notice[QUEUE];

	/* worker */
	bool connected;
	Notice arrival;		/* N_CONNECTED of a connection that is not used yet */
	Time arrival_until; /* when it is, by our clock; 0: there is none */
	Time opened;
	Time dead_until; /* the worker has died */
	Time other_at;	 /* next write or read that is not a heartbeat */

	/* shared memory */
	ZkLease lease;
	ZkHeartbeat heartbeat;
	bool needs;		/* somebody holds or wants something */
	Time change_at; /* of that */

	/* a backend */
	bool reading; /* has read the lease, not yet the clock */
	Time read_end;
	int read_session;
} Client;

Time lease_end[NCLIENTS];
int lease_session[NCLIENTS];
bool settling;
bool calm;
double calm_least = 1;

static Client client[NCLIENTS];
static Time other_period; /* of the locks' own writes; 0: none */

/* ------------------------------------------------------------------------
 * Library
 * ------------------------------------------------------------------------
 */

static void
tell_worker(int c, const Notice *notice)
{
	Client *me = &client[c];

	if (me->notices == QUEUE)
		fail("worker of client %d hears nothing", c);
	me->notice[(me->notice_head + me->notices++) % QUEUE] = *notice;
	timer_set(TIMER_WORKER + c, now + random_time(MS / 10));
}

/* Unanswered requests are lost. */
static void
lose_requests(int c)
{
	Client *me = &client[c];

	for (; me->count > 0; me->count--)
	{
		const Request *r = &me->request[me->head];

		if (r->kind != REQUEST_PING)
			tell_worker(c,
						&(Notice){.type = N_REPLY, .kind = r->kind, .session = me->session});
		me->head = (me->head + 1) % QUEUE;
	}
}

static void
library_down(int c)
{
	Client *me = &client[c];

	if (conn[c].server >= 0)
		TRACE("client %d gives up its connection to server %d", c, conn[c].server);
	conn[c].server = -1;
	stream_close(STREAM_C2S + c);
	stream_close(STREAM_S2C + c);
	lose_requests(c);
	if (me->state == LIB_UP)
		tell_worker(c, &(Notice){.type = N_DISCONNECTED});
	me->state = LIB_DOWN;
	me->asked = clock_of(NSERVERS + c);
	timer_set(TIMER_LIBRARY + c, now + random_time(once_in(2) ? 20 * MS : timeout / 8));
}

static void
transmit(int c, RequestKind kind)
{
	Client *me = &client[c];

	stream_send(STREAM_C2S + c,
				&(Message){.type = M_REQUEST, .kind = kind, .client = c, .serial = me->serial});
	me->last_send = now;
}

static void
library_wake(int c)
{
	const Client *me = &client[c];
	Time negotiated = session_timeout(me->longer);
	Time at = me->last_receive + true_span(NSERVERS + c, negotiated / 3 * 2);

	if (me->state == LIB_UP && me->count == 0 &&
		at > me->last_send + true_span(NSERVERS + c, negotiated / 3))
		at = me->last_send + true_span(NSERVERS + c, negotiated / 3);
	timer_set(TIMER_LIBRARY + c, at);
}

static void
library_send(int c, RequestKind kind, Time sent)
{
	Client *me = &client[c];
	Request *r = &me->request[(me->head + me->count) % QUEUE];

	if (me->count == QUEUE)
		fail("too many requests of client %d", c);
	me->count++;
	*r = (Request){kind, sent, -1};
	if (me->state == LIB_UP) /* the library sends it when it runs */
		timer_set(TIMER_LIBRARY + c, now + random_time(MS / 20));
}

/* Whatever has to be done by now. */
void
library_timer(int c)
{
	Client *me = &client[c];
	Time negotiated = session_timeout(me->longer);

	switch (me->state)
	{
		case LIB_OFF:
			return;
		case LIB_DOWN:
		{
			int at = observers != NO_OBSERVERS && once_in(2) ? OBSERVER
															 : random_below(NVOTERS);

			if (conn[c].server >= 0)
				conn[c].server = -1;
			me->state = LIB_CONNECTING;
			me->serial++;
			conn[c] = (Conn){.server = at, .serial = me->serial, .session = me->session};
			stream_open(STREAM_C2S + c, NSERVERS + c, at);
			stream_open(STREAM_S2C + c, at, NSERVERS + c);
			stream_send(STREAM_C2S + c,
						&(Message){.type = M_CONNECT,
								   .client = c,
								   .serial = me->serial,
								   .session = me->session,
								   .longer = me->longer});
			me->next_try = now + true_span(NSERVERS + c, negotiated / 3);
			timer_set(TIMER_LIBRARY + c, me->next_try);
			return;
		}
		case LIB_CONNECTING:
			if (now >= me->next_try)
				library_down(c);
			else
				timer_set(TIMER_LIBRARY + c, me->next_try);
			return;
		case LIB_UP:
			if (now >= me->last_receive + true_span(NSERVERS + c, negotiated / 3 * 2))
			{
				library_down(c);
				return;
			}
			for (int i = 0; i < me->count; i++)
			{
				Request *r = &me->request[(me->head + i) % QUEUE];

				if (r->serial != me->serial)
				{
					r->serial = me->serial;
					transmit(c, r->kind);
				}
			}
			if (me->count == 0 &&
				now >= me->last_send + true_span(NSERVERS + c, negotiated / 3))
			{
				library_send(c, REQUEST_PING, clock_of(NSERVERS + c));
				me->request[me->head].serial = me->serial;
				transmit(c, REQUEST_PING);
			}
			library_wake(c);
			return;
	}
}

void
client_message(int c, const Message *m)
{
	Client *me = &client[c];
	Request r;

	if (m->serial != me->serial || me->state < LIB_CONNECTING)
		return;
	me->last_receive = now;
	switch (m->type)
	{
		case M_EOF:
			library_down(c);
			return;
		case M_CONNECTED:
			TRACE("client %d connected to server %d, session %d", c, conn[c].server,
				  m->session);
			me->state = LIB_UP;
			me->session = m->session;
			me->longer = m->longer;
			tell_worker(c,
						&(Notice){.type = N_CONNECTED,
								  .session = m->session,
								  .longer = m->longer,
								  .sent = me->asked,
								  .received = clock_of(NSERVERS + c)});
			break;
		case M_EXPIRED:
			TRACE("client %d hears that session %d has expired", c, me->session);
			lose_requests(c);
			tell_worker(c, &(Notice){.type = N_EXPIRED, .session = me->session});
			conn[c].server = -1;
			me->state = LIB_OFF;
			return;
		case M_REPLY:
			if (me->count == 0)
				fail("reply to nothing");
			r = me->request[me->head];
			me->head = (me->head + 1) % QUEUE;
			me->count--;
			if (r.kind != m->kind)
				fail("reply %d to request %d", m->kind, r.kind);
			if (r.kind != REQUEST_PING)
				tell_worker(c,
							&(Notice){.type = N_REPLY,
									  .kind = r.kind,
									  .good = m->good,
									  .session = me->session,
									  .sent = r.sent,
									  .received = clock_of(NSERVERS + c)});
			if (r.kind >= REQUEST_WRITE && m->good)
				point(POINT_WRITE_ACKED);
			break;
		default:
			fail("client: message %d", m->type);
	}
	timer_set(TIMER_LIBRARY + c, now); /* what has waited for the connection */
}

/* ------------------------------------------------------------------------
 * Worker
 * ------------------------------------------------------------------------
 */

static void
publish(int c)
{
	Client *me = &client[c];
	Time end = zklock_lease_end(&me->lease);
	int s = lease_session[c];

	if (lease_end[c] == end)
		return;
	if (end > lease_end[c] && lease_end[c] <= clock_of(NSERVERS + c) && lease_end[c] > 0)
		COVER(LEASE_BACK);
	lease_end[c] = end;
	if (end == 0)
		return;
	COVER(LEASE_PROVEN);
	TRACE("client %d: lease ends in %.3f timeouts", c,
		  (double) (end - clock_of(NSERVERS + c)) / (double) timeout);
	if (end <= clock_of(NSERVERS + c))
		COVER(LEASE_LATE); /* nobody can claim by that one */
	else
	{
		if (end > session[s].claim_end)
			session[s].claim_end = end;
		claim_published(s);
	}
	point(POINT_PUBLISHED);
}

/* At that time so much of the lease must be left. */
static void
calm_check(int c, Time at, Time least)
{
	Time left = zklock_lease_end(&client[c].lease) - at;

	if ((double) left / (double) timeout < calm_least)
		calm_least = (double) left / (double) timeout;
	if (left < least)
		fail("in calm conditions only %.3f timeouts of client %d's lease are left",
			 (double) left / (double) timeout, c);
}

static void
open_session(int c)
{
	Client *me = &client[c];

	zklock_lease_init(&me->lease);
	publish(c);
	lease_session[c] = -1;
	me->session = -1;
	me->longer = false;
	me->opened = me->asked = clock_of(NSERVERS + c);
	me->state = LIB_DOWN;
	timer_set(TIMER_LIBRARY + c, now);
}

/* Whoever waits with his first write may lose neither his lease by that, nor his grants. */
static void
pause_check(int c, Time since, Time until)
{
	const ZkLease *lease = &client[c].lease;

	if ((since < zklock_lease_end(lease) && until >= zklock_lease_end(lease)) ||
		(since < zklock_lease_lost_at(lease) && until >= zklock_lease_lost_at(lease)))
		fail("client %d loses what it has by a pause of %.3f timeouts", c,
			 (double) (until - since) / (double) timeout);
}

/* A connection is used from now on. */
static void
arrive(int c, const Notice *n)
{
	Client *me = &client[c];

	me->arrival_until = 0;
	me->connected = true;
	zklock_heartbeat_connected(&me->heartbeat, clock_of(NSERVERS + c));
	if (n->session != lease_session[c])
	{
		COVER(NEW_SESSION);
		lease_session[c] = n->session;
		zklock_lease_new_session(&me->lease, session_timeout(n->longer), me->opened);
	}
	else
	{
		COVER(RECONNECTED);
		zklock_lease_new_connection(&me->lease, session_timeout(n->longer), n->sent,
									n->received);
	}
	publish(c);
}

static void
heed(int c, const Notice *n)
{
	Client *me = &client[c];

	switch (n->type)
	{
		case N_REPLY:
			if (n->kind == REQUEST_HEARTBEAT)
				zklock_heartbeat_answered(&me->heartbeat);
			if (!n->good)
				break;
			if (n->kind < REQUEST_WRITE)
				break;
			if (calm)
				calm_check(c, clock_of(NSERVERS + c), CALM_LEAST(me->lease.timeout));
			if (n->session == lease_session[c])
			{
				zklock_lease_write(&me->lease, n->sent, n->received);
				zklock_heartbeat_written(&me->heartbeat, &me->lease, n->sent, n->received,
										 (uint32_t) random_below(1 << 20));
			}
			publish(c);
			if (calm && n->kind == REQUEST_HEARTBEAT)
			{
				COVER(CALM);
				calm_check(c, n->sent, CALM_LEFT(me->lease.timeout));
			}
			break;
		case N_CONNECTED:
			me->arrival = *n;
			me->arrival_until = n->received;
			if (n->session != lease_session[c])
				break;
			me->arrival_until +=
				zklock_heartbeat_pause(&me->lease, session_timeout(n->longer), n->sent,
									   n->received, (uint32_t) random_below(1 << 20));
			pause_check(c, n->received, me->arrival_until);
			break;
		case N_DISCONNECTED:
			me->connected = false;
			me->arrival_until = 0;
			break;
		case N_EXPIRED:
			me->connected = false;
			me->arrival_until = 0;
			open_session(c);
			break;
	}
}

/* The main loop, once round. */
void
worker_timer(int c)
{
	Client *me = &client[c];
	Time clock = clock_of(NSERVERS + c);
	Time due;
	Time wake;

	if (me->dead_until > now)
	{
		timer_set(TIMER_WORKER + c, me->dead_until);
		return;
	}
	if (me->dead_until != 0)
	{
		/* A successor.  It resumes the session, if there is one. */
		me->dead_until = 0;
		me->session = lease_session[c];
		me->longer = me->session >= 0 && me->lease.timeout > timeout;
		me->opened = me->asked = clock;
		me->state = LIB_DOWN;
		timer_set(TIMER_LIBRARY + c, now);
	}
	if (me->notices > 0)
	{
		Notice n = me->notice[me->notice_head];

		me->notice_head = (me->notice_head + 1) % QUEUE;
		me->notices--;
		heed(c, &n);
	}
	if (me->notices > 0)
	{
		timer_set(TIMER_WORKER + c, now);
		return;
	}
	if (now >= me->change_at)
	{
		me->needs = !me->needs;
		me->change_at = now + random_time(timeout * (once_in(2) ? 8 : 2));
	}
	if (me->arrival_until > clock)
	{
		COVER(PAUSED);
		timer_set(TIMER_WORKER + c, true_time(NSERVERS + c, me->arrival_until) + 1);
		return;
	}
	if (me->arrival_until != 0)
		arrive(c, &me->arrival);
	if (!me->connected)
		return;
	if (me->needs || settling)
	{
		if (zklock_heartbeat_rested(&me->heartbeat, &me->lease, clock))
		{
			COVER(RENEWED);
			library_down(c);
			me->notices = 0;
			me->connected = false;
			memset(&me->heartbeat, 0, sizeof(me->heartbeat));
			open_session(c); /* the old one is left to expire */
			return;
		}
		zklock_heartbeat_need(&me->heartbeat, clock);
	}
	due = zklock_heartbeat_due(&me->heartbeat, &me->lease, clock);
	if (me->heartbeat.resting)
		COVER(RESTED);
	if (clock >= due)
	{
		if (quiet[c] == 0)
		{
			library_send(c, REQUEST_HEARTBEAT, clock);
			if (!client_has_lease(c))
				COVER(HURRIED);
			point(POINT_HEARTBEAT);
		}
		zklock_heartbeat_sent(&me->heartbeat, clock);
		if (quiet[c] > 0)
			zklock_heartbeat_answered(&me->heartbeat);
		due = zklock_heartbeat_due(&me->heartbeat, &me->lease, clock);
	}
	if (other_period != 0 && now >= me->other_at && me->count < QUEUE / 4)
	{
		for (int n = random_below(3); n >= 0; n--)
			library_send(c, once_in(2) ? REQUEST_WRITE : REQUEST_READ, clock);
		me->other_at = now + random_time(2 * other_period);
	}
	wake = now + true_span(NSERVERS + c, me->lease.timeout / 6);
	if (due != ZKLOCK_NO_HEARTBEAT && wake > true_time(NSERVERS + c, due) + 1)
		wake = true_time(NSERVERS + c, due) + 1;
	if (other_period != 0 && wake > me->other_at && me->other_at > now)
		wake = me->other_at;
	timer_set(TIMER_WORKER + c, wake + random_time(MS));
}

/* Its successor resumes the session after a while. */
void
worker_dies(int c, Time down)
{
	Client *me = &client[c];

	TRACE("worker %d dies", c);
	library_down(c);
	timer_off(TIMER_LIBRARY + c);
	me->state = LIB_OFF;
	me->notices = 0;
	me->connected = false;
	me->arrival_until = 0;
	me->dead_until = now + down + 1;
	timer_set(TIMER_WORKER + c, me->dead_until);
}

void
worker_restarts(int c)
{
	if (client[c].dead_until > now)
		client[c].dead_until = now;
	timer_set(TIMER_WORKER + c, now);
}

bool
client_has_lease(int c)
{
	return clock_of(NSERVERS + c) < lease_end[c];
}

/* ------------------------------------------------------------------------
 * Backend
 * ------------------------------------------------------------------------
 */

void
backend_timer(int c)
{
	Client *me = &client[c];

	if (!me->reading)
	{
		me->reading = true;
		me->read_end = lease_end[c];
		me->read_session = lease_session[c];
		timer_set(TIMER_BACKEND + c,
				  now + random_time(once_in(8) ? timeout / 8 : MS / 100));
		return;
	}
	if (me->read_end != lease_end[c])
		COVER(CLAIM_OLD_READ);
	if (me->read_end == 0 || clock_of(NSERVERS + c) >= me->read_end)
		COVER(CLAIM_REFUSED);
	else
	{
		COVER(CLAIM);
		claim_made(me->read_session);
	}
	me->reading = false;
	timer_set(TIMER_BACKEND + c, now + random_time(timeout / 4));
}

void
client_reset(void)
{
	other_period = once_in(2) ? 0 : timeout / (1 + random_below(24));
	for (int c = 0; c < NCLIENTS; c++)
	{
		/* All but the arrays. */
		client[c].state = LIB_OFF;
		client[c].serial = 0;
		client[c].head = client[c].count = 0;
		client[c].notice_head = client[c].notices = 0;
		client[c].connected = false;
		memset(&client[c].heartbeat, 0, sizeof(client[c].heartbeat));
		client[c].needs = !once_in(4);
		client[c].change_at = random_time(timeout * 8);
		client[c].dead_until = 0;
		client[c].other_at = 0;
		client[c].reading = false;
		lease_end[c] = 0;
		open_session(c);
		timer_set(TIMER_BACKEND + c, random_time(timeout));
	}
}
