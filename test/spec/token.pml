/*
 * token.pml - tokens across an ensemble that goes back, for Spin: src/protocol/history.h and
 * src/README.session, "Going back"
 *
 * Servers hold sessions, take one lock by turns, lose connections, and crash, alone or with
 * their machine.  The ensemble is saved once, at any time, and goes back to that: with the
 * numbers of then (as one ZooKeeper does), with larger ones (as several do, which hold an
 * election), or while it runs (which keeps connections, and no watches).
 *
 * A reply that comes late changes nothing but by what its server does not know yet.  So a
 * request and its reply are one step, but for a connection's first write, which gets its
 * verdict when the base is read, and for a base that is read and then set.
 *
 * Time passes in units, TIMEOUT to a session's timeout.  LEASE is for how long a server
 * believes after a write was sent; here it may be the whole timeout.
 *
 * -DSERVERS=N, -DBREAKS=N: connections lost, -DCRASHES=N, -DMACHINES=N: crashes of a server
 * alone and with its machine, -DGRANTS=N: in all, -DBEATS=N: heartbeats of each.
 * -DTAME: the ensemble goes back only when all have had a heartbeat answered just now, and
 * since it was saved, and no connection nor machine fails after that: then nobody has an
 * excuse.
 *
 * Properties: 1, 3 and 24 of src/README, Invariants.
 */
#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef BREAKS
#define BREAKS 1
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef MACHINES
#define MACHINES 0
#endif
#ifndef GRANTS
#define GRANTS 2
#endif
#ifndef BEATS
#define BEATS 1
#endif
#ifdef TAME
#define IS_TAME true
#else
#define IS_TAME false
#endif
#ifndef TIMEOUT
#define TIMEOUT 2
#endif
#ifndef LEASE
#define LEASE TIMEOUT
#endif
#ifndef REACH
#define REACH 1			/* ZKLOCK_HISTORY_REACH */
#endif
#define MARGIN (2 * REACH)
#define EPOCH 30		/* what an election adds */
#define NO_NODE 255

/* What the ensemble knows, and forgets.  Of each server its newest session. */
typedef Ensemble
{
	byte zxid;
	byte base;
	byte base_version;
	byte holder;				/* server + 1 whose contender is first */
	byte number;				/* of the transaction that made it */
	bool alive[SERVERS];
	byte version[SERVERS];		/* of its member's node */
};

Ensemble zk;
Ensemble saved;
bool is_saved;
bool back;					/* it has gone back */

/* what a server asks */
#define NOTHING 0
#define WROTE 1				/* its node; now it reads the base */
#define READ 2				/* the base; now it sets it */

typedef Server
{
	/* ZkHistory */
	bool known;
	byte base;
	byte top;
	byte ceiling;
	byte forgotten;
	byte version;
	bool admitted_once;			/* in this session */
	bool found;
	bool mended;
	byte wait;
	/* the session */
	bool session;
	bool left;					/* ... is one that a crash left */
	bool connected;
	bool mending;
	bool resumed;
	bool admitted;
	byte asks;
	byte age;					/* since it wrote */
	byte sight_zxid;
	byte sight_version;
	byte sight_base;
	byte sight_base_version;
	bool deaf;					/* its watch went with a restore while the ensemble ran */
	bool changed;				/* the watch's event is on its way */
	byte lease;
	byte lost;					/* until lost_at */
	/* the lock */
	byte contender;				/* its number */
	bool holds;
	bool holds_new;				/* it was granted after the ensemble went back */
	/* the file, for crashes of the machine */
	bool file;
	byte file_base;
	byte file_top;
	byte file_ceiling;
	bool file_found;
	bool file_mended;
	/* for the properties */
	byte remembers;				/* the token that it has to remember */
	byte given;					/* the largest that it has seen */
	byte unsure;				/* up to this one it may have seen some, and cannot know */
	byte must_wait;
	byte must_lose;				/* its session cannot end before */
	byte must_know;				/* the version of its node; NO_NODE: none */
	bool passed;				/* nothing told it, after the ensemble went back */
	bool told;					/* something did */
};

Server s[SERVERS];
byte breaks = BREAKS;
byte crashes = CRASHES;
byte machines = MACHINES;
byte grants = GRANTS;
byte beats[SERVERS];
byte largest;				/* token that was granted */
bool remembered = true;		/* somebody remembers it who was here since the ensemble went back */

/* within a step */
hidden byte i;
hidden byte raised;
hidden byte most;
hidden byte bad;

#define larger(a, b) ((a) > (b) -> (a) : (b))
#define believes(i) (s[i].holds && s[i].lease > 0)
#define is_there(n) (zk.holder == n + 1 && zk.number == s[n].contender)

/*
 * 1.  Excused, where the ensemble has gone back between the two grants: by the newer one, if
 * nothing has told its server; by the older one, if its server was here since, and nothing
 * told it.
 */
inline check_exclusion(n)
{
	i = 0;
	do
	:: i < SERVERS ->
		assert(i == n || !believes(n) || !believes(i) ||
			(!IS_TAME && s[i].holds_new != s[n].holds_new &&
			(s[n].holds_new -> !s[n].told || (s[i].passed && !s[i].told) :
				!s[i].told || (s[n].passed && !s[n].told))));
		i++
	:: else -> break
	od;
	i = 0
}

/* ---- what a server remembers ---- */

inline write_file(n)
{
	if
	:: MACHINES > 0 ->
		s[n].file = true;
		s[n].file_base = s[n].base;
		s[n].file_top = s[n].top;
		s[n].ceiling = larger(s[n].top + (s[n].found -> 0 : REACH), s[n].forgotten);
		s[n].file_ceiling = s[n].ceiling;
		s[n].file_found = s[n].found;
		s[n].file_mended = s[n].mended
	:: else
	fi
}

/* zklock_history_see */
inline see(n, seen)
{
	s[n].top = larger(s[n].top, s[n].base + seen);
	s[n].remembers = larger(s[n].remembers, s[n].base + seen);
	if
	:: MACHINES > 0 -> s[n].given = larger(s[n].given, s[n].remembers)
	:: else
	fi;
	if
	:: s[n].top > s[n].ceiling -> write_file(n)
	:: else
	fi
}

/* Somebody is here who remembers this token. */
inline vouch(token)
{
	if
	:: back && token >= largest -> remembered = true
	:: else
	fi
}

/* A write that was sent so long ago was acknowledged. */
inline live(n, ago)
{
	s[n].lease = larger(s[n].lease, (ago < LEASE -> LEASE - ago : 0));
	s[n].lost = larger(s[n].lost, TIMEOUT - ago);
	s[n].must_lose = s[n].lost
}

/* ---- the session ---- */

/* The ensemble ends its newest session.  What a session does that nobody uses any more is of
 * no interest. */
inline end_session(n)
{
	zk.alive[n] = false;
	zk.version[n] = 0;
	if
	:: zk.holder == n + 1 -> zk.holder = 0; zk.number = 0
	:: else
	fi
}

inline forget_session(n)
{
	end_session(n);
	saved.alive[n] = false;
	saved.version[n] = 0;
	if
	:: saved.holder == n + 1 -> saved.holder = 0; saved.number = 0
	:: else
	fi;
	s[n].session = false;
	s[n].left = false;
	s[n].version = NO_NODE;
	s[n].must_know = NO_NODE;
	s[n].admitted_once = false;
	s[n].contender = 0;
	s[n].holds = false;
	s[n].holds_new = false;
	s[n].lease = 0;
	s[n].lost = 0;
	s[n].must_lose = 0
}

inline disconnect(n)
{
	s[n].connected = false;
	s[n].resumed = false;
	s[n].admitted = false;
	s[n].asks = NOTHING;
	s[n].age = 0;
	s[n].sight_zxid = 0;
	s[n].sight_version = 0;
	s[n].sight_base = 0;
	s[n].sight_base_version = 0;
	s[n].deaf = false;
	s[n].changed = false;
	if
	:: s[n].mending -> s[n].mending = false; forget_session(n)
	:: else
	fi
}

inline close_session(n)
{
	disconnect(n);
	forget_session(n)
}

/* zklock_history_found */
inline find_out(n)
{
	/* nobody finds that it has gone back before it has */
	assert(back);
	s[n].found = true;
	s[n].mended = false;
	s[n].wait = TIMEOUT;
	write_file(n);
	close_session(n);
	s[n].must_wait = TIMEOUT;
	s[n].passed = false;
	s[n].told = true
}

/* zklock_history_check */
inline check(n)
{
	bad = false;
	if
	:: s[n].resumed && s[n].version != NO_NODE && s[n].sight_version <= s[n].version ->
		bad = true /* UNDONE */
	:: else
	fi;
	if
	:: s[n].known && s[n].sight_base + s[n].sight_zxid <= s[n].top -> bad = true /* BEHIND */
	:: else
	fi;
	if
	:: s[n].sight_base < s[n].base -> bad = true /* FELL */
	:: else
	fi;
	if
	:: s[n].sight_base > s[n].base -> bad = true /* RAISED */
	:: else
	fi
}

/* 24: what nothing tells */
inline check_sight(n)
{
	assert(s[n].sight_base == s[n].base);
	assert(!s[n].known || s[n].sight_base + s[n].sight_zxid > s[n].remembers);
	assert(!s[n].resumed || s[n].must_know == NO_NODE || s[n].sight_version > s[n].must_know)
}

inline granted(n)
{
	/* 3: it is larger, unless nobody who was here since it went back remembers */
	assert(s[n].base + s[n].contender > largest || !remembered || s[n].deaf);
	if
	:: s[n].base + s[n].contender > largest ->
		largest = s[n].base + s[n].contender;
		remembered = true
	:: else
	fi;
	s[n].holds = true;
	s[n].holds_new = back
}

inline admit(n)
{
	check_sight(n);
	assert(s[n].must_wait == 0);
	vouch(s[n].remembers);
	s[n].passed = back && !s[n].told;
	s[n].version = s[n].sight_version;
	s[n].must_know = s[n].version;
	s[n].admitted = true;
	s[n].admitted_once = true;
	if
	:: !s[n].known -> s[n].known = true; s[n].ceiling = 0
	:: else
	fi;
	see(n, s[n].sight_zxid);
	live(n, s[n].age);
	/* it lists the lock's queue */
	if
	:: s[n].contender != 0 && !is_there(n) ->
		s[n].contender = 0;
		s[n].holds = false;
		s[n].holds_new = false
	:: s[n].contender != 0 && is_there(n) && !s[n].holds -> granted(n)
	:: s[n].contender != 0 && is_there(n) && s[n].holds ->
		s[n].holds_new = back
	:: else
	fi;
	check_exclusion(n)
}

/* zklock_history_raise */
inline raise(n)
{
	most = larger(s[n].top, s[n].forgotten);
	raised = larger(s[n].sight_base, s[n].base);
	if
	:: raised + s[n].sight_zxid >= most
	:: else -> raised = larger(raised, s[n].top + MARGIN - s[n].sight_zxid)
	fi;
	most = 0
}

/* zklock_history_mend */
inline mend(n, to, at)
{
	most = larger(s[n].remembers, s[n].given);
	vouch(most);
	most = 0;
	s[n].mended = true;
	s[n].known = true;
	s[n].base = to;
	see(n, at);
	write_file(n);
	close_session(n)
}

/* ---- its steps ---- */

inline write_node(n)
{
	zk.zxid++;
	zk.version[n]++;
	s[n].sight_zxid = zk.zxid;
	s[n].sight_version = zk.version[n];
	s[n].asks = WROTE;
	s[n].age = 0;
	s[n].connected = true
}

/* A connection, to the session that there is, or to a new one; and its first write. */
inline connect(n)
{
	if
	:: s[n].found && s[n].mended ->
		/* zklock_history_end */
		assert(s[n].must_wait == 0);
		s[n].found = false;
		s[n].mended = false;
		write_file(n)
	:: else
	fi;
	if
	:: s[n].session && !zk.alive[n] ->
		if
		:: s[n].admitted_once && s[n].lost > 0 -> find_out(n) /* TOO_SOON */
		:: else ->
			assert(s[n].must_lose == 0);
			forget_session(n)
		fi
	:: s[n].session && zk.alive[n] && s[n].left && (!s[n].admitted_once || s[n].version == NO_NODE) ->
		/* it has nothing to tell */
		assert(s[n].must_know == NO_NODE);
		forget_session(n)
	:: s[n].session && zk.alive[n] && !(s[n].left && (!s[n].admitted_once || s[n].version == NO_NODE)) ->
		s[n].resumed = true;
		write_node(n)
	:: !s[n].session ->
		s[n].session = true;
		s[n].mending = s[n].found;
		zk.alive[n] = true;
		write_node(n);
		if
		:: !s[n].mending -> live(n, 0); s[n].must_lose = 0
		:: else
		fi
	fi
}

inline read_base(n)
{
	s[n].sight_base = zk.base;
	s[n].sight_base_version = zk.base_version;
	s[n].asks = NOTHING
}

/* It hears what it wrote, and the base. */
inline answer(n)
{
	if
	:: s[n].left ->
		s[n].sight_base = s[n].base;
		check(n);
		if
		:: bad -> find_out(n)
		:: else ->
			check_sight(n);
			close_session(n)
		fi
	:: !s[n].left && s[n].mending ->
		read_base(n);
		raise(n);
		if
		:: raised == s[n].sight_base -> mend(n, raised, s[n].sight_zxid)
		:: else ->
			/* it costs everybody his session: only if it has to be */
			assert(larger(s[n].base, s[n].sight_base) + s[n].sight_zxid <
				larger(larger(s[n].remembers, s[n].given), s[n].unsure) ||
				raised == larger(s[n].base, s[n].sight_base));
			s[n].asks = READ;
			s[n].age = 0
		fi;
		raised = 0
	:: !s[n].left && !s[n].mending ->
		read_base(n);
		check(n);
		if
		:: bad -> find_out(n)
		:: else ->
			admit(n);
			s[n].age = 0;
			s[n].sight_zxid = 0;
			s[n].sight_version = 0;
			s[n].sight_base = 0;
			s[n].sight_base_version = 0
		fi
	fi;
	bad = false
}

/* By comparing and setting */
inline set_base(n)
{
	if
	:: s[n].sight_base_version == zk.base_version ->
		raise(n);
		/* 3: the base never falls */
		assert(raised >= zk.base);
		zk.zxid++;
		zk.base = raised;
		zk.base_version++;
		i = 0;
		do
		:: i < SERVERS ->
			if
			:: s[i].admitted && !s[i].deaf -> s[i].changed = true
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		mend(n, raised, zk.zxid);
		raised = 0
	:: else ->
		s[n].asks = WROTE;
		s[n].sight_base = 0;
		s[n].sight_base_version = 0
	fi
}

/* The watch of the base has fired: it reads the base again. */
inline look_again(n)
{
	s[n].changed = false;
	s[n].resumed = false;
	s[n].sight_zxid = zk.zxid;
	s[n].sight_base = zk.base;
	check(n);
	if
	:: bad -> find_out(n)
	:: else ->
		check_sight(n);
		see(n, s[n].sight_zxid);
		s[n].sight_zxid = 0;
		s[n].sight_base = 0
	fi;
	bad = false
}

/* A heartbeat of an admitted connection: zklock_history_wrote */
inline beat(n)
{
	zk.zxid++;
	zk.version[n]++;
	if
	:: zk.version[n] <= s[n].version -> find_out(n)
	:: else ->
		assert(zk.version[n] > s[n].must_know);
		s[n].version = zk.version[n];
		s[n].must_know = s[n].version;
		s[n].passed = back && !s[n].told;
		see(n, zk.zxid);
		live(n, 0);
		check_exclusion(n)
	fi
}

inline contend(n)
{
	zk.zxid++;
	zk.holder = n + 1;
	zk.number = zk.zxid;
	s[n].contender = zk.zxid
}

inline release(n)
{
	s[n].contender = 0;
	s[n].holds = false;
	s[n].holds_new = false;
	if
	:: zk.holder == n + 1 -> zk.holder = 0; zk.number = 0
	:: else
	fi
}

/* A server crashes.  Its session is left, and what memory and file remember. */
inline crash(n)
{
	disconnect(n);
	s[n].left = s[n].session;
	s[n].contender = 0;
	s[n].holds = false;
	s[n].holds_new = false;
	s[n].lease = 0;
	if
	:: s[n].found -> s[n].wait = TIMEOUT; s[n].must_wait = TIMEOUT
	:: else
	fi
}

/* ... with its machine: only the file is left.  zklock_history_parse */
inline crash_machine(n)
{
	disconnect(n);
	forget_session(n);
	s[n].known = s[n].file;
	s[n].base = s[n].file_base;
	s[n].top = s[n].file_top;
	s[n].ceiling = s[n].file_ceiling;
	s[n].forgotten = s[n].file_ceiling;
	s[n].found = s[n].file_found;
	s[n].mended = s[n].file_mended;
	s[n].wait = 0;
	s[n].remembers = s[n].file_top;
	s[n].unsure = s[n].file_ceiling;
	if
	:: s[n].found -> s[n].wait = TIMEOUT; s[n].must_wait = TIMEOUT
	:: else
	fi
}

#define calm (IS_TAME && back)
#define uses(n) (s[n].connected && zk.alive[n] && s[n].admitted)

/* All know nothing in the beginning, so it does not matter who comes first. */
#define is_come(n) (n == 0 || s[(n > 0 -> n - 1 : 0)].known)

proctype Life(byte n)
{
	do
	:: d_step { !s[n].connected && (!s[n].found || !s[n].mended || s[n].wait == 0) && is_come(n) ->
		connect(n) }
	/* the ensemble has forgotten its session */
	:: d_step { s[n].connected && !zk.alive[n] -> disconnect(n) }
	:: d_step { s[n].asks == WROTE && zk.alive[n] -> answer(n) }
	:: d_step { s[n].asks == READ && zk.alive[n] -> set_base(n) }
	:: d_step { s[n].changed -> look_again(n) }
	:: d_step { uses(n) && !s[n].changed && beats[n] < BEATS -> beats[n]++; beat(n) }
	:: d_step { uses(n) && s[n].contender == 0 && zk.holder == 0 && grants > 0 ->
		grants--;
		contend(n);
		if
		/* a token that cannot be told: a successor begins with the base */
		:: s[n].changed -> disconnect(n)
		:: else ->
			granted(n);
			see(n, zk.number);
			check_exclusion(n)
		fi }
	:: d_step { uses(n) && !s[n].changed && (s[n].holds || (s[n].contender == 0 && zk.holder == n + 1)) ->
		release(n) }
	:: d_step { s[n].connected && breaks > 0 && !calm -> breaks--; disconnect(n) }
	/* ... and with it a reply */
	:: d_step { uses(n) && s[n].contender == 0 && zk.holder == 0 && grants > 0 && breaks > 0 && !calm ->
		grants--;
		breaks--;
		contend(n);
		disconnect(n) }
	:: d_step { uses(n) && beats[n] < BEATS && breaks > 0 && !calm ->
		beats[n]++;
		breaks--;
		zk.zxid++;
		zk.version[n]++;
		disconnect(n) }
	:: d_step { crashes > 0 && !s[n].left -> crashes--; crash(n) }
	:: d_step { machines > 0 && !calm -> machines--; crash_machine(n) }
	/* the ensemble's: a session that it has not heard of for so long */
	:: d_step { !s[n].connected && zk.alive[n] && s[n].must_lose == 0 -> end_session(n) }
	od
}

/* ---- the world ---- */

inline save()
{
	is_saved = true;
	saved.zxid = zk.zxid;
	saved.base = zk.base;
	saved.base_version = zk.base_version;
	saved.holder = zk.holder;
	saved.number = zk.number;
	i = 0;
	do
	:: i < SERVERS ->
		saved.alive[i] = zk.alive[i];
		saved.version[i] = zk.version[i];
		i++
	:: else -> break
	od;
	i = 0
}

#define OLD_NUMBERS 0
#define ELECTION 1
#define RUNNING 2

inline go_back(how)
{
	back = true;
	remembered = largest == 0;
	if
	:: how == OLD_NUMBERS -> zk.zxid = saved.zxid
	:: how == ELECTION -> zk.zxid = zk.zxid + EPOCH
	:: how == RUNNING
	fi;
	zk.base = saved.base;
	zk.base_version = saved.base_version;
	zk.holder = saved.holder;
	zk.number = saved.number;
	i = 0;
	do
	:: i < SERVERS ->
		zk.alive[i] = saved.alive[i];
		zk.version[i] = saved.version[i];
		if
		:: how == RUNNING && s[i].admitted && !s[i].changed -> s[i].deaf = true
		:: how == RUNNING && !(s[i].admitted && !s[i].changed)
		:: how != RUNNING -> disconnect(i)
		fi;
		saved.alive[i] = false;
		saved.version[i] = 0;
		i++
	:: else -> break
	od;
	i = 0;
	saved.zxid = 0;
	saved.base = 0;
	saved.base_version = 0;
	saved.holder = 0;
	saved.number = 0
}

/* It has had a heartbeat answered since it was saved, and just now. */
#define has_written(n) ((s[n].admitted || s[n].left) && zk.alive[n] && s[n].lost >= LEASE && \
	s[n].version != NO_NODE && (!saved.alive[n] || s[n].version > saved.version[n]))
#if SERVERS == 1
#define ready (!IS_TAME || has_written(0))
#elif SERVERS == 2
#define ready (!IS_TAME || (has_written(0) && has_written(1)))
#else
#define ready (!IS_TAME || (has_written(0) && has_written(1) && has_written(2)))
#endif

inline count(timer)
{
	if
	:: timer > 0 -> timer--
	:: else
	fi
}

active proctype World()
{
	atomic {
		i = 0;
		do
		:: i < SERVERS -> s[i].version = NO_NODE; s[i].must_know = NO_NODE; i++
		:: else -> break
		od;
		i = 0;
		run Life(0);
#if SERVERS > 1
		run Life(1);
#endif
#if SERVERS > 2
		run Life(2);
#endif
	}
	do
	:: d_step { !is_saved -> save() }
	:: d_step { is_saved && !back && ready -> go_back(OLD_NUMBERS) }
	:: d_step { is_saved && !back && ready -> go_back(ELECTION) }
	:: d_step { is_saved && !back && !IS_TAME -> go_back(RUNNING) }
	:: d_step {
		i = 0;
		do
		:: i < SERVERS ->
			count(s[i].lease);
			count(s[i].lost);
			count(s[i].wait);
			count(s[i].must_wait);
			count(s[i].must_lose);
			if
			:: s[i].asks == WROTE && s[i].age < TIMEOUT -> s[i].age++
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0 }
	od
}
