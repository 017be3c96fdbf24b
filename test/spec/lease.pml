/*
 * lease.pml - a session and its lease, for Spin: src/protocol/lease.h
 *
 * One session is enough: if none expires while its server believes in it, no two servers
 * believe.  The ensemble is its leader, whose tracker ends sessions, and the server to which
 * ours is connected; with -DMASTER that is an observer, and a follower is its master.  The
 * streams between them are in order, and take any time.
 *
 * The rule holds for each write m by itself.  So a search begins as one is sent, or a connection
 * asked for, and the leader's tracker may be in any state; it ends when the lease of m does.
 * On another connection m is forgotten.
 *
 * -DU=N: a timeout has 16 N units of time.  -DHALF=N: half a tick of the ensemble, in units.
 * -DCONNECTS: m is a connection.  -DPAUSES=N: how often the leader is paused.  -DSKEW=N: so many
 * units our clock may lose, or win, in all.  -DLONGER: the connection has a longer timeout.
 *
 * Property: 1 of src/README, Invariants: no claim is true after its session has expired.
 */
#ifndef U
#define U 1
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef SKEW
#define SKEW 0
#endif
#define TIMEOUT (16 * U)
#define LONGER_TIMEOUT (32 * U)
#ifndef HALF
#define HALF U
#endif
#define LEASE (timeout_of_lease / 8 * 7)
#define timeout_of_lease TIMEOUT
#define WITNESSES 4				/* of a lease that has lapsed */
#define WITNESSES_OF_GOOD 3
#define GAP_1 (TIMEOUT / 8)
#define GAP_2 (TIMEOUT / 8)
#define GAP_3 (TIMEOUT / 16)
#define GAP_4 (TIMEOUT / 16)

mtype = { WRITE, COMMIT, PING, TOUCH, ASK, GOOD, EXPIRED };

/* the leader */
byte left = TIMEOUT;		/* until the session is due to expire */
byte ping = HALF;			/* until the next one is due */
bool doomed;				/* its bucket is taken */
bool closed;				/* expired: others get its locks */
bool paused;
bool fresh;					/* was paused, and has not done all that waited */
bool ping_is_last;			/* of what is on its way to our server */
bool longer;				/* the connection's touches count for longer */

/* between the leader and our server, or the observer's master */
chan to_leader = [4] of { mtype };
chan from_leader = [4] of { mtype };
bool touched;				/* there, since its last answer */
#ifdef MASTER
chan to_master = [4] of { mtype };
chan from_master = [4] of { mtype };
bool touched_here;			/* at the observer */
byte master_ping = HALF;
#define TO to_master
#define FROM from_master
#define TOUCHED touched_here
#else
#define TO to_leader
#define FROM from_leader
#define TOUCHED touched
#endif

/* zklock's server */
mtype request;				/* on its way to the ensemble: 0, WRITE or ASK */
mtype reply;				/* on its way back: 0, COMMIT, GOOD or EXPIRED */
bool cut;					/* this connection is to a leader that is deposed */
bool busy;					/* a request has no reply */
byte loses;					/* its clock will, so many units */
byte wins;

#define M_NONE 0
#define M_SENT 1
#define M_ACKED 2
byte m;						/* the write that is looked at */
byte age;					/* since it was sent, by its clock */
byte next;					/* until the next witness may be sent */
byte witnesses;
bool counts;				/* the write under way is a witness */
byte lease;					/* until it ends, by our clock */

byte pauses = PAUSES;
bool elected;				/* there was another leader */

#define DUE (ping == 0 || (left == 0 && !doomed && !closed) || doomed)

inline forget_m()
{
	m = M_NONE;
	age = 0;
	next = 0;
	witnesses = 0;
	counts = false
}

/* zklock_lease_end is m's send time and 7/8 of the timeout. */
inline prove()
{
	if
	:: age + lease < LEASE -> lease = LEASE - age
	:: else
	fi;
	forget_m();
	assert(!closed || lease == 0)
}

inline touch()
{
	if
	:: !closed && longer -> left = LONGER_TIMEOUT
	:: !closed && !longer -> left = TIMEOUT
	:: else
	fi
}

/* zklock_lease_write: an acknowledged write */
inline acknowledged()
{
	busy = false;
	if
	:: m == M_SENT ->
		m = M_ACKED;
		next = GAP_1
	:: m == M_ACKED && counts ->
		counts = false;
		witnesses++;
		if
		:: witnesses >= (lease > 0 -> WITNESSES_OF_GOOD : WITNESSES) -> prove()
		:: else ->
			if
			:: witnesses == 1 -> next = GAP_2
			:: witnesses == 2 -> next = GAP_3
			:: else -> next = GAP_4
			fi
		fi
	:: else
	fi
}

/* zklock_lease_new_connection: it was asked for "age" ago */
inline answered()
{
	busy = false;
	m = M_ACKED;
	if
	:: lease > 0 -> witnesses = WITNESSES - 1; next = 0
	:: else -> witnesses = WITNESSES - 2; next = GAP_4
	fi
}

proctype Us()
{
	do
	/* other writes are no witnesses, and do no harm */
	:: d_step { !busy && m == M_ACKED && next == 0 ->
		busy = true; request = WRITE; counts = true }
	:: d_step { reply == COMMIT -> reply = 0; acknowledged() }
	:: d_step { reply == GOOD && m == M_SENT -> reply = 0; answered() }
	:: d_step { reply == GOOD && m != M_SENT -> reply = 0; busy = false }
	:: d_step { reply == EXPIRED -> reply = 0; forget_m() }
	od
}

/* our server, or the observer */
proctype Learner()
{
	do
	:: d_step { request == WRITE && !cut && nfull(TO) ->
		request = 0; TOUCHED = true; TO!WRITE }
	:: d_step { request == ASK && nfull(TO) ->
		request = 0; TO!ASK }
	/* it follows a leader that is deposed, and does not know it: this one answers */
	:: d_step { request == ASK -> request = 0; cut = true; reply = GOOD }
	:: d_step { nempty(FROM) && FROM?[COMMIT] && reply == 0 -> FROM?COMMIT; reply = COMMIT }
	:: d_step { nempty(FROM) && FROM?[GOOD] && reply == 0 -> FROM?GOOD; reply = GOOD }
	:: d_step { nempty(FROM) && FROM?[EXPIRED] && reply == 0 -> FROM?EXPIRED; reply = EXPIRED }
	:: d_step { nempty(FROM) && FROM?[PING] && nfull(TO) ->
		FROM?PING;
		if
		:: TOUCHED -> TO!TOUCH; TOUCHED = false
		:: else
		fi }
	od
}

#ifdef MASTER
/* a follower, by whom the observer hears of the leader */
proctype Master()
{
	mtype what;

	do
	:: d_step { to_master?[TOUCH] -> to_master?TOUCH; touched = true }
	:: d_step { to_master?[WRITE] && nfull(to_leader) -> to_master?WRITE; to_leader!WRITE }
	:: d_step { to_master?[ASK] && nfull(to_leader) -> to_master?ASK; to_leader!ASK }
	:: d_step { from_leader?[PING] && nfull(to_leader) ->
		from_leader?PING;
		if
		:: touched -> to_leader!TOUCH; touched = false
		:: else
		fi }
	:: d_step { nempty(from_leader) && !from_leader?[PING] && nfull(from_master) ->
		from_leader?what; from_master!what; what = 0 }
	:: d_step { master_ping == 0 && nfull(from_master) -> from_master!PING; master_ping = HALF }
	od
}
#endif

proctype Leader()
{
	do
	:: d_step { !paused && to_leader?[WRITE] && nfull(from_leader) ->
		to_leader?WRITE;
		if
		:: !closed -> from_leader!COMMIT; ping_is_last = false
		:: else
		fi }
	:: d_step { !paused && to_leader?[TOUCH] -> to_leader?TOUCH; touch() }
	:: d_step { !paused && to_leader?[ASK] && nfull(from_leader) ->
		to_leader?ASK;
		touch();
		if
		:: !closed -> from_leader!GOOD
		:: else -> from_leader!EXPIRED
		fi;
		ping_is_last = false }
	/* two pings with nothing between them are like one */
	:: d_step { !paused && ping == 0 && nfull(from_leader) ->
		if
		:: ping_is_last && len(from_leader) > 0
		:: else -> from_leader!PING; ping_is_last = true
		fi;
		ping = HALF }
	/* the session tracker, a thread of its own */
	:: d_step { !paused && left == 0 && !doomed && !closed -> doomed = true }
	:: d_step { !paused && doomed -> doomed = false; closed = true; assert(lease == 0) }
	:: d_step { !paused && !fresh && !closed && pauses > 0 -> pauses--; paused = true }
	:: d_step { paused -> paused = false; fresh = true }
	:: d_step { !paused && fresh && !DUE -> fresh = false }
	/* another leader: it gives the session the timeout that it was made with */
	:: d_step { !elected && !cut && !closed ->
		elected = true;
		do
		:: len(to_leader) > 0 -> to_leader?_
		:: else -> break
		od;
		left = TIMEOUT; doomed = false; paused = false; fresh = false; ping = HALF;
		cut = true }
	od
}

inline count(timer)
{
	if
	:: timer > 0 -> timer--
	:: else
	fi
}

/* A unit of our clock */
inline ours()
{
	count(lease);
	count(next);
	if
	:: m != M_NONE -> age++
	:: else
	fi;
	/* what is so old proves nothing */
	if
	:: age >= LEASE -> forget_m()
	:: else
	fi
}

inline theirs()
{
	count(left);
	count(ping)
#ifdef MASTER
	;
	count(master_ping)
#endif
}

/* What is due is done before time goes on. */
#ifdef MASTER
#define may_pass ((paused || !DUE) && master_ping > 0)
#else
#define may_pass (paused || !DUE)
#endif
/* ... until there is nothing more to claim */
#define goes_on (m != M_NONE || lease > 0)

proctype Time()
{
	do
	:: d_step { goes_on && may_pass -> theirs(); ours() }
	/* ... but no pause as a whole */
	:: d_step { goes_on && wins > 0 && next != 1 -> wins--; ours() }
	:: d_step { goes_on && loses > 0 && may_pass -> loses--; theirs() }
	od
}

init
{
	atomic {
		select(left : 0 .. TIMEOUT);
		select(ping : 1 .. HALF);
#ifdef MASTER
		select(master_ping : 1 .. HALF);
#endif
		if
		:: left == 0 -> doomed = true
		:: true
		fi;
		if
		:: pauses > 0 -> pauses--; paused = true
		:: true
		fi;
		if
		:: wins = SKEW
		:: loses = SKEW
		fi;
		busy = true;
#ifdef LONGER
		longer = true;
#endif
#ifdef CONNECTS
		/* the lease of the connection before, if it is good, is not longer than the session's */
		request = ASK;
		m = M_SENT;
		if
		:: left > TIMEOUT / 8 -> lease = left - TIMEOUT / 8; doomed = false
		:: true
		fi;
#else
		/* the lease of an earlier write, if it is good, ends an eighth before the session */
		request = WRITE;
		m = M_SENT;
		if
		:: left > TIMEOUT / 8 -> lease = left - TIMEOUT / 8; doomed = false
		:: true
		fi;
#endif
		run Us();
		run Learner();
#ifdef MASTER
		run Master();
#endif
		run Leader();
		run Time()
	}
}
