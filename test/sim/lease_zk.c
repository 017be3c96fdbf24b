/*-------------------------------------------------------------------------
 *
 * lease_zk.c
 *	  The ensemble in the lease's simulator: 3 servers that vote and perhaps an
 *	  observer, as of ZooKeeper 3.8.
 *
 * Who touches a session, from the Java source.  The leader's tracker keeps it
 * in a bucket, which ends at the first multiple of tickTime after the touch
 * plus the timeout (ExpiryQueue).  It is touched there by
 *	 - any request of a client that is connected to the leader itself,
 *	 - a learner's answer to a ping, which names the sessions that have sent it
 *	   anything since its last answer (LearnerSessionTracker.snapshot),
 *	 - revalidation at a reconnect, and the session's creation,
 *	 - a new leader, which gives all sessions their full timeout.
 * A forwarded write does not touch it.  The leader's main loop pings every
 * half tick, waiting that long between two rounds (Leader.lead); the session
 * tracker is another thread, so is the reader of each follower's stream.
 * After a pause they run in any order.
 *
 * A learner is a follower or an observer, which does not vote.  An observer's
 * master is the leader or, with observerMasterPort, a follower, who pings it every
 * half tick by a thread of its own (ObserverMaster.start), and puts what it
 * answers with its own touches (ObserverMaster.touch): two rounds, then.
 *
 * The timeout is that of the connection (ServerCnxn.getSessionTimeout), what the
 * client asked for within the bounds of that server (processConnectRequest), and
 * is not written down.  What a new leader knows is the timeout with which the
 * session was created (FileTxnSnapLog.processTransaction, CreateSessionTxn).
 *
 * The session tracker takes a whole bucket, and then marks one session after the other
 * as closing (SessionTrackerImpl.run).  Until it comes to one, that is touched,
 * revalidated and writes like any other, and is closed all the same.
 *
 * An expiry is taken for done when the leader marks it, though others are granted the
 * locks only when that has been committed.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_model.h"

#include <string.h>

#define PROPOSALS 1024

typedef enum Role
{
	LOOKING,
	FOLLOWING,
	LEADING
} Role;

typedef struct Proposal
{
	RequestKind kind;
	int client;
	int serial;
	int origin;
	int session;
	bool good;
	unsigned acks;
} Proposal;

typedef struct Server
{
	Role role;
	int leader;				 /* as a learner: its master */
	uint32_t touched;		 /* sessions, since the last answer to a ping */
	uint32_t longer_touched; /* ... those of connections with longer_timeout */
	bool longer;			 /* minSessionTimeout is longer_timeout */

	/* as a leader, or an observer's master */
	Time bucket[MAX_SESSIONS]; /* end, by its clock; 0: not tracked */
	uint32_t doomed;		   /* of a bucket that was taken, to be closed */
	uint32_t closing;
	Time next_expiration;
	int64_t ticks;
	bool tick_skip;
	bool learner[NSERVERS];
	int64_t deadline[NSERVERS]; /* tick of the next acknowledgement */
	int64_t proposed;
	int64_t committed;
	Proposal proposal[PROPOSALS];
} Server;

Session session[MAX_SESSIONS];
int nsessions;
Conn conn[NCLIENTS];
int true_leader; /* established last; -1: none yet */
int observers;
bool growing;

static Server server[NSERVERS];

/* ------------------------------------------------------------------------
 * The leader's session tracker
 * ------------------------------------------------------------------------
 */

static Time
round_to_next_interval(Time time)
{
	return (time / tick + 1) * tick;
}

Time
session_timeout(bool longer)
{
	return longer ? longer_timeout : timeout;
}

static void
track(Server *l, int s, bool longer)
{
	l->bucket[s] =
		round_to_next_interval(clock_of((int) (l - server)) + session_timeout(longer));
}

/* False if there is no such session any more. */
static bool
touch(Server *l, int s, bool longer)
{
	if (l->bucket[s] == 0 || (l->closing & (UINT32_C(1) << s)))
		return false;
	track(l, s, longer);
	if (l - server == true_leader && (l->doomed & (UINT32_C(1) << s)))
	{
		COVER(TOUCH_DOOMED);
		point(POINT_DOOMED);
	}
	if (l - server == true_leader)
		point(POINT_TOUCHED);
	return true;
}

/* As a learner. */
static void
remember_touches(Server *me, uint32_t touches, uint32_t longer_touches)
{
	me->touched = (me->touched & ~longer_touches) | touches;
	me->longer_touched = (me->longer_touched & ~touches) | longer_touches;
}

static bool
is_learner_of(int learner, int master)
{
	return server[master].learner[learner] && server[learner].role == FOLLOWING &&
		server[learner].leader == master;
}

static void
apply(int at, const Proposal *p)
{
	Conn *c = &conn[p->client];
	Message reply = {.type = M_REPLY, .good = p->good, .session = p->session};

	if (p->kind == REQUEST_CLOSE)
	{
		if (c->server == at && c->attached && c->session == p->session)
			zk_disconnect(p->client);
		return;
	}
	if (p->kind == REQUEST_CREATE && !session[p->session].made)
	{
		session[p->session].made = true;
		session[p->session].made_at = now;
	}
	if (p->origin != at || c->server != at || c->serial != p->serial)
		return;
	reply.serial = c->serial;
	if (p->kind == REQUEST_CREATE)
	{
		c->attached = true;
		c->session = p->session;
		reply.type = M_CONNECTED;
		reply.longer = c->longer;
		stream_send(STREAM_S2C + p->client, &reply);
		return;
	}
	/* The write, and the reads and pings that waited behind it. */
	do
	{
		reply.kind = c->queue[c->head];
		c->head = (c->head + 1) % CONN_QUEUE;
		c->count--;
		stream_send(STREAM_S2C + p->client, &reply);
		reply.good = true;
	} while (c->count > 0 && c->queue[c->head] <= REQUEST_PING);
}

static void
try_commit(int at)
{
	Server *l = &server[at];

	while (l->role == LEADING && l->committed < l->proposed)
	{
		Proposal *p = &l->proposal[l->committed % PROPOSALS];
		Message commit = {.type = M_COMMIT, .kind = p->kind, .client = p->client};

		if (__builtin_popcount(p->acks) < QUORUM)
			break;
		l->committed++;
		commit.serial = p->serial;
		commit.origin = p->origin;
		commit.session = p->session;
		commit.good = p->good;
		for (int i = 0; i < NSERVERS; i++)
			if (l->learner[i])
				stream_send(STREAM_PEER(at, i), &commit);
		apply(at, p);
		if (p->kind != REQUEST_CLOSE)
			point(POINT_COMMIT);
	}
}

/* PrepRequestProcessor and what follows it. */
static void
propose(int at, RequestKind kind, int client, int serial, int origin, int s)
{
	Server *l = &server[at];
	Proposal *p = &l->proposal[l->proposed % PROPOSALS];
	Message m = {.type = M_PROPOSAL, .proposal = l->proposed};

	if (l->proposed - l->committed == PROPOSALS)
		fail("too many proposals");
	*p = (Proposal){kind, client, serial, origin, s, true, 1U << at};
	if (kind == REQUEST_CREATE)
		track(l, s, session[s].longer);
	else if (kind != REQUEST_CLOSE &&
			 (l->bucket[s] == 0 || (l->closing & (UINT32_C(1) << s))))
	{
		p->good = false;
		COVER(WRITE_REFUSED);
	}
	else if (kind != REQUEST_CLOSE && (l->doomed & (UINT32_C(1) << s)))
		COVER(WRITE_DOOMED);
	l->proposed++;
	for (int i = 0; i < NVOTERS; i++)
		if (l->learner[i])
			stream_send(STREAM_PEER(at, i), &m);
	if (kind != REQUEST_CLOSE)
		point(POINT_PROPOSED);
}

static void
close_session(int at, int s)
{
	Server *l = &server[at];

	TRACE("server %d expires session %d%s", at, s, at == true_leader ? "" : ", deposed");
	l->doomed &= ~(UINT32_C(1) << s);
	l->closing |= UINT32_C(1) << s;
	propose(at, REQUEST_CLOSE, session[s].client, 0, at, s);
	if (at == true_leader)
	{
		const Conn *c = &conn[session[s].client];

		if (now < resumed[UNIT_SERVER + at] + 2 * race)
			COVER(EXPIRED_RACE);
		if (c->server >= 0 && c->session == s &&
			((server[c->server].touched | server[c->server].longer_touched) &
			 (UINT32_C(1) << s)))
			COVER(TOUCH_SWALLOWED);
		session[s].expired = now;
		session_expired(s);
	}
	else
		COVER(EXPIRED_BY_DEPOSED);
}

/* The session tracker goes on with the buckets that it has taken. */
void
zk_closing_timer(int at)
{
	Server *l = &server[at];

	if (l->role != LEADING || l->doomed == 0)
		return;
	close_session(at, __builtin_ctz(l->doomed));
	timer_set(TIMER_CLOSING + at, now + random_time(dawdle));
}

void
zk_expiry_timer(int at)
{
	Server *l = &server[at];

	if (l->role != LEADING)
		return;
	while (l->next_expiration <= clock_of(at))
	{
		Time end = l->next_expiration;

		l->next_expiration += tick;
		for (int s = 0; s < nsessions; s++)
		{
			uint32_t bit = UINT32_C(1) << s;

			if (l->bucket[s] != 0 && l->bucket[s] <= end && !(l->closing & bit))
				l->doomed |= bit;
		}
	}
	if (l->doomed != 0)
		timer_set(TIMER_CLOSING + at, now + (once_in(2) ? 0 : random_time(dawdle)));
	timer_set(TIMER_EXPIRY + at, true_time(at, l->next_expiration));
}

/* ------------------------------------------------------------------------
 * Leaders and followers come and go
 * ------------------------------------------------------------------------
 */

/* The client's server closes its connection. */
void
zk_disconnect(int client)
{
	Message eof = {.type = M_EOF, .serial = conn[client].serial};

	conn[client].server = -1;
	stream_close(STREAM_C2S + client);
	stream_send(STREAM_S2C + client, &eof);
}

static void
close_clients(int at)
{
	for (int c = 0; c < NCLIENTS; c++)
		if (conn[c].server == at)
			zk_disconnect(c);
}

static void
look(int at)
{
	server[at].role = LOOKING;
	close_clients(at);
	timer_off(TIMER_PING + at);
	timer_off(TIMER_EXPIRY + at);
	timer_off(TIMER_CLOSING + at);
	timer_set(TIMER_PEER + at, now + random_time(tick));
}

/* Close the connection to the other server, which learns of it in time. */
static void
hang_up(int at, int other)
{
	Message eof = {.type = M_EOF};

	stream_close(STREAM_PEER(other, at));
	if (once_in(4)) /* a reset, which overtakes what was sent before */
		stream[STREAM_PEER(at, other)].count = 0;
	stream_send(STREAM_PEER(at, other), &eof);
}

static void
drop_learners(int at)
{
	for (int i = 0; i < NSERVERS; i++)
		if (server[at].learner[i])
		{
			server[at].learner[i] = false;
			hang_up(at, i);
		}
}

/* A learner gives up its master. */
static void
leave(int f)
{
	TRACE("server %d leaves server %d", f, server[f].leader);
	COVER(FOLLOWER_LEFT);
	hang_up(f, server[f].leader);
	drop_learners(f);
	look(f);
}

static void
step_down(int at)
{
	TRACE("server %d steps down", at);
	COVER(LEADER_STEPPED_DOWN);
	drop_learners(at);
	look(at);
}

void
zk_kill(int at, Time down)
{
	if (server[at].role == LEADING)
		step_down(at);
	else if (server[at].role == FOLLOWING)
		leave(at);
	timer_set(TIMER_PEER + at, now + down);
	if (growing)
		server[at].longer = once_in(2);
}

/* All servers go down, and have forgotten the sessions made since then. */
void
zk_forget(Time since)
{
	for (int i = 0; i < NSERVERS; i++)
		zk_kill(i, random_time(tick));
	for (int s = 0; s < nsessions; s++)
		if (session[s].made && session[s].expired == NEVER && session[s].made_at >= since)
		{
			TRACE("session %d is forgotten", s);
			COVER(FORGOTTEN);
			session[s].expired = now + session_timeout(session[s].longer);
			session_expired(s);
		}
}

void
zk_restart(int at)
{
	if (server[at].role == LOOKING)
		timer_set(TIMER_PEER + at, now + random_time(tick / 4));
}

static void
follow(int f, int l)
{
	Message m = {.type = M_PROPOSAL};

	server[f].role = FOLLOWING;
	server[f].leader = l;
	server[f].touched = server[f].longer_touched = 0;
	stream_open(STREAM_PEER(f, l), f, l);
	stream_open(STREAM_PEER(l, f), l, f);
	server[l].learner[f] = true;
	server[l].deadline[f] = server[l].ticks + sync_limit;
	if (f == OBSERVER && l != true_leader)
		timer_set(TIMER_PING + l, now + true_span(l, random_time(tick / 2)));
	if (f < NVOTERS)
		for (m.proposal = server[l].committed; m.proposal < server[l].proposed; m.proposal++)
			stream_send(STREAM_PEER(l, f), &m);
	timer_set(TIMER_PEER + f, now + true_span(f, tick * sync_limit));
	TRACE("server %d follows %d", f, l);
}

static void
lead(int at)
{
	Server *l = &server[at];
	bool longer = l->longer;

	if (true_leader >= 0)
	{
		COVER(LEADER_CHANGED);
		if (server[true_leader].role == LEADING)
			COVER(LEADER_DEPOSED);
	}
	TRACE("server %d leads", at);
	true_leader = at;
	memset(l, 0, sizeof(*l));
	l->role = LEADING;
	l->longer = longer;
	l->next_expiration = round_to_next_interval(clock_of(at));
	for (int s = 0; s < nsessions; s++)
		if (session[s].made && session[s].expired == NEVER)
		{
			if (conn[session[s].client].session == s && conn[session[s].client].longer &&
				!session[s].longer)
				COVER(CREATED_AGAIN);
			track(l, s, session[s].longer);
		}
	timer_set(TIMER_PING + at, now + true_span(at, tick / 2));
	timer_set(TIMER_EXPIRY + at, true_time(at, l->next_expiration));
	timer_off(TIMER_PEER + at);
}

static bool
reachable(int a, int b)
{
	return cut[a][b] == 0 && cut[b][a] == 0 && paused[UNIT_SERVER + a] == 0 &&
		paused[UNIT_SERVER + b] == 0;
}

/* An observer looks for a master. */
static void
observe(int at)
{
	int master = observers == OBSERVERS_MASTER ? random_below(NVOTERS) : true_leader;

	if (observers == NO_OBSERVERS)
		return;
	if (reachable(at, master) && !server[master].learner[at] &&
		server[master].role == (master == true_leader ? LEADING : FOLLOWING))
		follow(at, master);
	else
		timer_set(TIMER_PEER + at, now + random_time(tick / 2));
}

/* A learner has heard nothing for syncLimit ticks, or a looking server looks. */
void
zk_peer_timer(int at)
{
	bool candidate[NVOTERS];
	int n = 0;
	int chosen;

	if (server[at].role == FOLLOWING)
	{
		if (stream_readable(STREAM_PEER(server[at].leader, at)))
			timer_set(TIMER_PEER + at, now + true_span(at, tick * sync_limit));
		else
			leave(at);
		return;
	}
	if (at == OBSERVER)
	{
		observe(at);
		return;
	}
	if (true_leader >= 0 && server[true_leader].role == LEADING &&
		!server[true_leader].learner[at] && reachable(at, true_leader))
	{
		follow(at, true_leader);
		return;
	}
	for (int i = 0; i < NVOTERS; i++)
	{
		candidate[i] = server[i].role == LOOKING && (i == at || reachable(at, i));
		n += candidate[i];
	}
	if (n < QUORUM)
	{
		timer_set(TIMER_PEER + at, now + tick / 8 + random_time(tick / 2));
		return;
	}
	do
		chosen = random_below(NVOTERS);
	while (!candidate[chosen]);
	lead(chosen);
	for (int i = 0; i < NVOTERS; i++)
		if (candidate[i] && i != chosen)
			follow(i, chosen);
}

/* The leader's main loop, or the thread of an observer's master: every half tick. */
void
zk_ping_timer(int at)
{
	Server *l = &server[at];
	Message ping = {.type = M_PING};
	int synced = 1;

	if (l->role == FOLLOWING && !l->learner[OBSERVER])
		return;
	if (at == true_leader || l->role == FOLLOWING)
		point(POINT_PING_DUE);
	if (paused[UNIT_SERVER + at] > 0) /* just now */
	{
		timer_set(TIMER_PING + at, now);
		return;
	}
	if (!l->tick_skip)
		l->ticks++;
	for (int i = 0; i < NSERVERS; i++)
	{
		if (!l->learner[i])
			continue;
		if (l->ticks <= l->deadline[i])
			synced += i < NVOTERS;
		else if (!stream_readable(STREAM_PEER(i, at)))
		{
			TRACE("server %d drops learner %d", at, i);
			COVER(LEARNER_DROPPED);
			l->learner[i] = false;
			hang_up(at, i);
		}
	}
	if (l->role == LEADING && !l->tick_skip && synced < QUORUM)
	{
		step_down(at);
		return;
	}
	l->tick_skip = !l->tick_skip;
	for (int i = 0; i < NSERVERS; i++)
		if (l->learner[i])
			stream_send(STREAM_PEER(at, i), &ping);
	TRACE("server %d pings", at);
	timer_set(TIMER_PING + at, now + true_span(at, tick / 2) + random_time(2 * MS));
	if (at == true_leader || l->role == FOLLOWING)
		point(POINT_PING_SENT);
}

/* ------------------------------------------------------------------------
 * Messages
 * ------------------------------------------------------------------------
 */

static void
peer_message(int at, int from, const Message *m)
{
	Server *me = &server[at];
	Message answer = *m;

	bool master = me->role == FOLLOWING && from == me->leader;

	if (master)
		timer_set(TIMER_PEER + at, now + true_span(at, tick * sync_limit));
	else if (me->learner[from])
		me->deadline[from] = me->ticks + sync_limit;
	else
		return;

	switch (m->type)
	{
		case M_EOF:
			if (!master)
			{
				me->learner[from] = false;
				stream_close(STREAM_PEER(from, at));
				stream_close(STREAM_PEER(at, from));
			}
			else
				leave(at);
			break;
		case M_PING:
			answer.type = M_TOUCHES;
			answer.touches = me->touched;
			answer.longer_touches = me->longer_touched;
			me->touched = me->longer_touched = 0;
			stream_send(STREAM_PEER(at, from), &answer);
			if (conn[0].server == at || me->learner[OBSERVER])
				point(POINT_PING_ANSWERED);
			break;
		case M_TOUCHES:
			if (me->role == FOLLOWING)
			{
				TRACE("server %d hears the touches of observer %d", at, from);
				COVER(TOUCH_RELAYED);
				remember_touches(me, m->touches, m->longer_touches);
				break;
			}
			for (int s = 0; s < nsessions; s++)
				if ((m->touches | m->longer_touches) & (UINT32_C(1) << s))
				{
					bool good = touch(me, s, (m->longer_touches >> s) & 1);

					TRACE("leader %d: touch of session %d%s", at, s,
						  good ? "" : " comes too late");
				}
			break;
		case M_PROPOSAL:
			answer.type = M_ACK;
			stream_send(STREAM_PEER(at, from), &answer);
			break;
		case M_ACK:
			if (m->proposal >= me->committed && m->proposal < me->proposed)
			{
				me->proposal[m->proposal % PROPOSALS].acks |= 1U << from;
				try_commit(at);
			}
			break;
		case M_COMMIT:
			apply(at,
				  &(Proposal){m->kind, m->client, m->serial, m->origin, m->session,
							  m->good, 0});
			if (is_learner_of(OBSERVER, at))
				stream_send(STREAM_PEER(at, OBSERVER), m);
			break;
		case M_FORWARD:
			if (me->role == FOLLOWING)
				stream_send(STREAM_PEER(at, me->leader), m);
			else
				propose(at, m->kind, m->client, m->serial, m->origin, m->session);
			break;
		case M_REVALIDATE:
			if (me->role == FOLLOWING)
			{
				stream_send(STREAM_PEER(at, me->leader), m);
				break;
			}
			answer.type = M_REVALIDATED;
			if (me->doomed & (UINT32_C(1) << m->session))
				COVER(REVALIDATED_DOOMED);
			answer.good = touch(me, m->session, m->longer);
			stream_send(STREAM_PEER(at, from), &answer);
			break;
		case M_REVALIDATED:
			if (m->origin != at)
			{
				if (m->good)
					remember_touches(me, m->longer ? 0 : UINT32_C(1) << m->session,
									 m->longer ? UINT32_C(1) << m->session : 0);
				if (is_learner_of(OBSERVER, at))
					stream_send(STREAM_PEER(at, OBSERVER), m);
				break;
			}
			if (conn[m->client].server != at || conn[m->client].serial != m->serial)
				break;
			conn[m->client].attached = m->good;
			answer.type = m->good ? M_CONNECTED : M_EXPIRED;
			stream_send(STREAM_S2C + m->client, &answer);
			break;
		default:
			fail("server %d: message %d", at, m->type);
	}
}

static void
client_request(int at, int client, const Message *m)
{
	Server *me = &server[at];
	Conn *c = &conn[client];
	Message answer = *m;

	answer.origin = at;
	if (me->role == LOOKING)
	{
		zk_disconnect(client);
		return;
	}
	if (m->type == M_CONNECT)
	{
		c->session = m->session;
		c->longer = answer.longer = m->longer || me->longer;
		if (at == OBSERVER && observers == OBSERVERS_MASTER)
			COVER(OBSERVED_BY_MASTER);
		else if (at == OBSERVER)
			COVER(OBSERVED);
		if (me->role == LEADING)
			COVER(DIRECT);
		if (me->role == LEADING && at != true_leader)
			COVER(RECONNECTED_DEPOSED);
		if (m->session < 0)
		{
			if (nsessions == MAX_SESSIONS)
			{
				zk_disconnect(client);
				return;
			}
			answer.session = nsessions++;
			session[answer.session] = (Session){.client = client, .expired = NEVER};
			session[answer.session].longer = c->longer;
			if (c->longer)
				COVER(LONGER_CREATED);
			answer.kind = REQUEST_CREATE;
			answer.type = M_FORWARD;
			if (me->role == LEADING)
				propose(at, REQUEST_CREATE, client, m->serial, at, answer.session);
			else
				stream_send(STREAM_PEER(at, me->leader), &answer);
		}
		else if (me->role == LEADING)
		{
			c->attached = touch(me, m->session, c->longer);
			answer.type = c->attached ? M_CONNECTED : M_EXPIRED;
			stream_send(STREAM_S2C + client, &answer);
		}
		else
		{
			answer.type = M_REVALIDATE;
			stream_send(STREAM_PEER(at, me->leader), &answer);
		}
		if (m->session >= 0 && c->longer && !session[m->session].longer)
			COVER(LONGER_NEGOTIATED);
		return;
	}

	if (me->role == LEADING)
	{
		if (!touch(me, c->session, c->longer))
			return; /* MissingSessionException: dropped */
	}
	else if (c->longer)
		remember_touches(me, 0, UINT32_C(1) << c->session);
	else
		remember_touches(me, UINT32_C(1) << c->session, 0);
	if (m->kind <= REQUEST_PING)
	{
		if (me->role == LEADING && at != true_leader)
			COVER(READ_DEPOSED);
		else if (me->role == FOLLOWING && cut[at][me->leader] > 0)
			COVER(READ_CUT_OFF);
		if (session[c->session].expired != NEVER)
			COVER(READ_EXPIRED);
		if (c->count == 0)
		{
			answer.type = M_REPLY;
			answer.good = true;
			stream_send(STREAM_S2C + client, &answer);
			return;
		}
	}
	if (c->count == CONN_QUEUE)
		fail("too many requests at server %d", at);
	c->queue[(c->head + c->count++) % CONN_QUEUE] = m->kind;
	if (m->kind <= REQUEST_PING)
		return;
	if (me->role == LEADING)
		propose(at, m->kind, client, c->serial, at, c->session);
	else
	{
		answer.type = M_FORWARD;
		answer.session = c->session;
		stream_send(STREAM_PEER(at, me->leader), &answer);
		point(POINT_FORWARDED);
	}
}

/* A message for a server. */
void
zk_message(int id, const Message *m)
{
	if (id < STREAM_C2S)
		peer_message(id % NSERVERS, id / NSERVERS, m);
	else if (conn[id - STREAM_C2S].server >= 0 && conn[id - STREAM_C2S].serial == m->serial)
		client_request(conn[id - STREAM_C2S].server, id - STREAM_C2S, m);
}

int
zk_leader_of(int at)
{
	return server[at].role == LEADING  ? at
		: server[at].role == FOLLOWING ? server[at].leader
									   : -1;
}

/* One leader, whom all follow. */
bool
zk_quiet(void)
{
	for (int i = 0; i < NVOTERS; i++)
		if (zk_leader_of(i) != true_leader)
			return false;
	return observers == NO_OBSERVERS || server[OBSERVER].role == FOLLOWING;
}

void
zk_reset(void)
{
	int first = random_below(NVOTERS);

	nsessions = 0;
	true_leader = -1;
	memset(server, 0, sizeof(server));
	for (int c = 0; c < NCLIENTS; c++)
		conn[c] = (Conn){.server = -1};
	for (int i = 0; i < NSERVERS; i++)
		server[i].longer = growing && once_in(4);
	lead(first);
	for (int i = 0; i < NVOTERS; i++)
		if (i != first)
			follow(i, first);
	observe(OBSERVER);
}
