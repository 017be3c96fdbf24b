/*
 * lock.pml - one name's queue, for Spin: src/protocol/protocol.h and src/shared/grant.c
 *
 * Servers take a name in exclusive mode, for backends that come one by one, hand the grant on
 * among these, keep it, and give it back.  The functions are those of protocol.c, by name, as
 * far as they are about this.
 *
 * The ensemble is a history of transactions: contenders that were made, and that have gone.
 * Our server has come to some place in it: what it asks is read there, watches tell of what
 * it passes, and its own writes are answered when it has come to them.  So a server may lag,
 * and a leader that was deposed is one that does not go on.
 *
 * -DSERVERS=N, -DCYCLES=N: holds of each; -DLAST=N: of the last.  -DFAULTS=N: so many in all.
 * -DKEEP=0: grants are not kept.  -DALONE=0: nobody is expected to be alone.
 *
 * Properties: 1 to 6, 8 and 9 of src/README, Invariants.  4, 5 and 6 are that each server comes
 * to its end, with nothing left in the ensemble: Spin reports where one does not.
 */
#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef CYCLES
#define CYCLES 1
#endif
#ifndef LAST
#define LAST CYCLES
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef ALONE
#define ALONE 1
#endif
#define HANDOFFS 1
#define NODES 7

#define FREE 0
#define CREATING 1
#define UNSETTLED 2
#define QUEUED 3
#define WAITING 4
#define GRANTED 5

#define NOT_FOUND 254	/* a listing has not shown it: at the next TICK */
#define LATER 255		/* a listing at the next TICK */

mtype = { CREATE, LIST, OWN, BLOCKER, SECOND, DELETE };

/* The ensemble.  A contender's number is its place in the queue, and its token. */
byte made;					/* contenders */
byte now;					/* transactions */
byte made_at[NODES + 1];
byte gone_at[NODES + 1];	/* 0: it is there */
byte owner_of[NODES + 1];
byte mark_of[NODES + 1];
byte last_token;			/* granted last */
byte last_server;
byte faults = FAULTS;
bool cancelled;				/* a wait was */
bool deposed;				/* a leader was, and somebody was connected to it: once */

typedef Server
{
	/* its connection */
	byte at;				/* transactions that its server of the ensemble has seen */
	bool connected;
	bool stuck;				/* that one is a leader that was deposed, or follows one */
	bool dead;				/* the session has expired; it does not know */
	byte done_at;			/* the leader has seen the first request then, and 1; 0: no */
	byte watched;			/* nodes, a bit each */
	bool dir_watch;
	/* ZkLockQueue */
	bool needed;
	bool dir_watched;
	byte dir_list;
	byte list_sent;
	byte list_answered;
	byte list_synced;
	byte dying;				/* DELETING, a bit each */
	byte delete_sent;
	/* ZkContender: the active one */
	byte state;
	byte node;				/* its number, 0: not known */
	byte mark;				/* uuid_lo */
	bool known;				/* its token is, and so that it is ours */
	bool create_sent;
	byte list_needed;
	bool own_watched;
	bool own_requested;
	byte blocker;
	byte second;
	bool blocker_watched;
	bool blocker_last;
	bool second_gone;
	bool demanded;
	/* the table */
	byte cycles;
	bool want;				/* a backend waits at level 2 */
	bool queued;			/* another one waits at level 1 */
	bool held;
	bool usable;
	bool grant_demanded;
	byte handoffs;
	bool dirty;
	bool over;
};

Server q[SERVERS];
chan request[SERVERS] = [8] of { mtype, byte, bool, bool };

/* within a step */
hidden byte i;
hidden byte k;
hidden byte own;
hidden byte before;
hidden byte before_that;
hidden byte later;
hidden byte synced;
hidden byte wanted;
hidden byte synced_first;
hidden byte watch;
hidden mtype what;
hidden byte arg;
hidden byte flag_sync;
hidden byte flag_watch;
hidden byte event;

#define bit(k) (1 << (k))
#define sees(s, k) (made_at[k] != 0 && made_at[k] <= q[s].at && \
	(gone_at[k] == 0 || gone_at[k] > q[s].at))
#define is_placed(s) (q[s].state >= QUEUED)
#define is_there(k) (made_at[k] != 0 && gone_at[k] == 0)

/* ---- the table ---- */

/* zklock_grant_settle */
inline settle(s)
{
	if
	:: q[s].usable && !q[s].held && !(KEEP && !q[s].grant_demanded) &&
		!(q[s].handoffs > 0 && (q[s].want || q[s].queued)) ->
		q[s].usable = false;
		q[s].handoffs = 0;
		q[s].dirty = true
	:: else
	fi
}

inline apply_granted(s, others)
{
	assert(!q[s].usable && !q[s].held);
	q[s].grant_demanded = others || !KEEP;
	q[s].handoffs = HANDOFFS + 1;
	q[s].usable = q[s].want || (KEEP && !q[s].grant_demanded);
	settle(s);
	if
	:: !q[s].usable -> q[s].dirty = true
	:: else
	fi
}

inline apply_demanded(s)
{
	if
	:: !q[s].grant_demanded -> q[s].handoffs = HANDOFFS
	:: else
	fi;
	q[s].grant_demanded = true;
	settle(s);
	if
	:: !q[s].usable -> q[s].dirty = true
	:: else
	fi
}

/* ---- one lock queue ---- */

inline forget_blocker(s)
{
	q[s].blocker = 0;
	q[s].second = 0;
	q[s].blocker_watched = false;
	q[s].blocker_last = false;
	q[s].second_gone = false
}

inline set_free(s)
{
	q[s].state = FREE;
	q[s].node = 0;
	q[s].known = false;
	q[s].create_sent = false;
	q[s].list_needed = 0;
	q[s].own_watched = false;
	q[s].own_requested = false;
	q[s].demanded = false;
	forget_blocker(s)
}

inline set_queued(s)
{
	q[s].state = QUEUED;
	forget_blocker(s);
	q[s].list_needed = 0
}

inline set_creating(s)
{
	set_free(s);
	q[s].state = CREATING;
	q[s].mark++
}

inline set_deleting(s)
{
	/* 9: not while it is in use */
	assert(!q[s].held);
	q[s].dying = q[s].dying | bit(q[s].node);
	set_free(s)
}

/* A grant is lost.  The backend's transaction fails. */
inline revoke(s)
{
	if
	:: q[s].state == GRANTED ->
		q[s].usable = false;
		q[s].handoffs = 0;
		q[s].needed = false;
		if
		:: q[s].held -> q[s].held = false; q[s].cycles--
		:: else
		fi;
		q[s].dirty = true
	:: else
	fi
}

inline vanished(s)
{
	revoke(s);
	set_free(s)
}

inline vanished_unproven(s, when)
{
	revoke(s);
	q[s].state = UNSETTLED;
	forget_blocker(s);
	q[s].list_needed = when
}

inline set_granted(s, others)
{
	/* 2: our own contender is there as far as anybody could tell us, and nobody before it */
	assert(q[s].needed && q[s].connected && q[s].known && sees(s, q[s].node));
	k = 1;
	do
	:: k < q[s].node ->
		assert(!is_there(k) || owner_of[k] == s || !is_there(q[s].node));
		k++
	:: else -> break
	od;
	/* 1 */
	k = 0;
	do
	:: k < SERVERS ->
		assert(k == s || q[k].state != GRANTED || q[k].dead || !is_there(q[k].node) ||
			!is_there(q[s].node));
		k++
	:: else -> break
	od;
	k = 0;
	/* 3 */
	assert(last_server == s + 1 || q[s].node > last_token || !is_there(q[s].node));
	last_token = q[s].node;
	last_server = s + 1;
	q[s].state = GRANTED;
	forget_blocker(s);
	q[s].demanded = others;
	apply_granted(s, others)
}

inline set_demanded(s)
{
	q[s].demanded = true;
	apply_demanded(s)
}

inline watch_own(s)
{
	if
	:: !q[s].own_watched && !q[s].own_requested ->
		request[s]!OWN, q[s].node, false, false;
		q[s].own_requested = true
	:: else
	fi
}

/* A listing that can show the contender is under way, or is wanted. */
inline want_listing(s)
{
	if
	:: q[s].list_needed <= q[s].list_answered ->
		q[s].list_needed = q[s].list_sent + 1;
		wanted = true
	:: else
	fi
}

/* Who is before our contender in what the listing shows? */
inline look_before(s)
{
	before = 0;
	before_that = 0;
	later = false;
	k = 1;
	do
	:: k <= NODES ->
		if
		:: sees(s, k) && owner_of[k] != s && k < q[s].node -> before_that = before; before = k
		:: sees(s, k) && owner_of[k] != s && k > q[s].node -> later = true
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0
}

inline find_place(s)
{
	look_before(s);
	if
	:: before == 0 -> set_granted(s, later || (!q[s].dir_watched && !KEEP))
	:: else ->
		q[s].state = WAITING;
		q[s].blocker = before;
		q[s].blocker_watched = false;
		q[s].blocker_last = before_that == 0;
		/* ours goes first: if it is silent when the blocker goes, ours was there */
		watch_own(s);
		request[s]!BLOCKER, before, false, false;
		if
		:: before_that != 0 ->
			q[s].second = before_that;
			request[s]!SECOND, before_that, false, false
		:: else
		fi
	fi;
	before = 0;
	before_that = 0;
	later = false
}

/* The one before the blocker has gone: who is left? */
inline look_ahead(s)
{
	q[s].second_gone = false;
	if
	:: sees(s, q[s].blocker) ->
		k = q[s].blocker - 1;
		do
		:: k > 0 && !(sees(s, k) && owner_of[k] != s) -> k--
		:: else -> break
		od;
		q[s].blocker_last = k == 0;
		if
		:: k != 0 ->
			q[s].second = k;
			request[s]!SECOND, k, false, false
		:: else
		fi;
		k = 0
	:: else
	fi
}

inline decide(s)
{
	wanted = false;
	synced_first = false;
	watch = false;
	/* drop_unneeded, start_needed */
	if
	:: q[s].state == UNSETTLED && q[s].list_needed == NOT_FOUND && q[s].needed -> set_creating(s)
	:: !q[s].needed && is_placed(s) -> set_deleting(s)
	:: !q[s].needed && q[s].state == CREATING && !q[s].create_sent -> set_free(s)
	:: else
	fi;
	if
	:: q[s].needed && q[s].state == FREE -> set_creating(s)
	:: else
	fi;
	if
	:: q[s].connected ->
		/* send_deletes */
		k = 1;
		do
		:: k <= NODES ->
			if
			:: (q[s].dying & bit(k)) && !(q[s].delete_sent & bit(k)) ->
				request[s]!DELETE, k, false, false;
				q[s].delete_sent = q[s].delete_sent | bit(k);
				q[s].dir_watched = false
			:: else
			fi;
			k++
		:: else -> break
		od;
		k = 0;
		/* pursue */
		if
		:: q[s].state == CREATING && !q[s].create_sent ->
			request[s]!CREATE, q[s].mark, false, false;
			q[s].create_sent = true;
			q[s].list_needed = q[s].list_sent + 1;
			wanted = true;
			watch = ALONE && !q[s].dir_watched && q[s].dir_list == 0
		:: q[s].state == UNSETTLED ->
			want_listing(s);
			synced_first = true
		:: q[s].state == QUEUED ->
			if
			:: !q[s].known -> watch_own(s)
			:: else
			fi;
			want_listing(s)
		:: q[s].state == GRANTED ->
			if
			:: !q[s].demanded && !q[s].dir_watched && q[s].dir_list == 0 && KEEP ->
				q[s].list_needed = q[s].list_sent + 1;
				wanted = true;
				watch = true
			:: !q[s].demanded && !q[s].dir_watched && q[s].dir_list == 0 && !KEEP ->
				set_demanded(s)
			:: else
			fi;
			if
			:: q[s].demanded -> watch_own(s)
			:: else
			fi
		:: q[s].state == WAITING ->
			watch_own(s);
			if
			:: q[s].second_gone -> want_listing(s)
			:: else
			fi
		:: else
		fi;
		if
		:: wanted ->
			q[s].list_sent++;
			request[s]!LIST, q[s].list_sent, synced_first, watch;
			if
			:: synced_first && q[s].list_synced > q[s].list_answered -> q[s].list_synced = q[s].list_sent
			:: else
			fi;
			if
			:: watch -> q[s].dir_list = q[s].list_sent
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	/* numbers of listings begin again when none is out */
	if
	:: q[s].list_sent == q[s].list_answered ->
		q[s].list_sent = 1;
		q[s].list_answered = 1;
		if
		:: q[s].list_needed != 0 && q[s].list_needed < NOT_FOUND -> q[s].list_needed = 1
		:: else
		fi
	:: else
	fi;
	wanted = false;
	synced_first = false;
	watch = false
}

/* ---- replies ---- */

inline on_listed(s, list, with_watch)
{
	if
	:: with_watch -> q[s].dir_watch = true
	:: else
	fi;
	if
	:: list > q[s].list_answered -> q[s].list_answered = list
	:: else
	fi;
	synced = q[s].list_synced != 0;
	if
	:: list >= q[s].list_synced -> q[s].list_synced = 0
	:: else
	fi;
	if
	:: list == q[s].dir_list ->
		q[s].dir_list = 0;
		q[s].dir_watched = true
	:: else
	fi;
	/* look_for_own, take_orphans */
	own = 0;
	k = 1;
	do
	:: k <= NODES ->
		if
		:: sees(s, k) && owner_of[k] == s && q[s].state != FREE && mark_of[k] == q[s].mark ->
			own = k
		:: sees(s, k) && owner_of[k] == s &&
			!(q[s].state != FREE && mark_of[k] == q[s].mark) ->
			q[s].dying = q[s].dying | bit(k)
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0;
	if
	:: (is_placed(s) || q[s].state == UNSETTLED) && q[s].list_needed != 0 &&
		q[s].list_needed <= list ->
		if
		:: q[s].state == UNSETTLED && own != 0 ->
			q[s].node = own;
			set_queued(s)
		:: q[s].state == UNSETTLED && own == 0 -> q[s].list_needed = NOT_FOUND
		:: is_placed(s) && own == 0 && synced -> vanished_unproven(s, NOT_FOUND)
		:: is_placed(s) && own == 0 && !synced -> vanished(s)
		:: q[s].state == GRANTED && own != 0 ->
			look_before(s);
			if
			:: (before != 0 || later) && !q[s].demanded -> set_demanded(s)
			:: else
			fi;
			before = 0;
			before_that = 0;
			later = false
		:: else
		fi
	:: else
	fi;
	/* look_for_place */
	if
	:: (q[s].state == QUEUED || q[s].state == WAITING) && q[s].list_needed != 0 &&
		q[s].list_needed <= list ->
		if
		:: q[s].state == WAITING && q[s].second_gone -> look_ahead(s)
		:: q[s].state == WAITING && !q[s].second_gone
		:: q[s].state == QUEUED && !q[s].needed
		:: q[s].state == QUEUED && q[s].needed && !q[s].known -> q[s].list_needed = 0
		:: q[s].state == QUEUED && q[s].needed && q[s].known -> find_place(s)
		fi
	:: else
	fi;
	own = 0;
	synced = false
}

inline on_watched_own(s, n)
{
	if
	:: sees(s, n) -> q[s].watched = q[s].watched | bit(n)
	:: else
	fi;
	if
	:: is_placed(s) && q[s].node == n ->
		q[s].own_requested = false;
		if
		:: sees(s, n) ->
			q[s].own_watched = true;
			q[s].known = true
		:: !sees(s, n) && q[s].list_synced > q[s].list_answered
		:: !sees(s, n) && q[s].list_synced <= q[s].list_answered && q[s].list_synced != 0 ->
			vanished_unproven(s, LATER)
		:: !sees(s, n) && q[s].list_synced == 0 -> vanished(s)
		fi
	:: else
	fi
}

inline on_watched(s, n)
{
	if
	:: sees(s, n) -> q[s].watched = q[s].watched | bit(n)
	:: else
	fi;
	if
	:: q[s].state == WAITING && q[s].second == n && !sees(s, n) ->
		q[s].second = 0;
		q[s].second_gone = true
	:: else
	fi;
	if
	:: q[s].state == WAITING && q[s].blocker == n && sees(s, n) -> q[s].blocker_watched = true
	:: q[s].state == WAITING && q[s].blocker == n && !sees(s, n) -> set_queued(s)
	:: else
	fi
}

inline on_created(s, m)
{
	if
	:: q[s].state == CREATING && q[s].mark == m ->
		k = 1;
		do
		:: !(owner_of[k] == s && mark_of[k] == m) -> k++
		:: else -> break
		od;
		q[s].create_sent = false;
		q[s].state = QUEUED;
		q[s].node = k;
		q[s].known = true;
		k = 0
	:: else
	fi
}

inline on_node_deleted(s, n)
{
	if
	:: is_placed(s) && q[s].node == n -> vanished(s)
	:: else ->
		if
		:: q[s].state == WAITING && q[s].second == n ->
			q[s].second = 0;
			q[s].second_gone = true
		:: else
		fi;
		if
		:: q[s].state == WAITING && q[s].blocker == n ->
			if
			:: q[s].blocker_last && q[s].blocker_watched && q[s].own_watched && q[s].connected ->
				set_granted(s, true)
			:: else -> set_queued(s)
			fi
		:: else
		fi
	fi
}

inline on_dir_changed(s)
{
	q[s].dir_watched = false;
	if
	:: q[s].state == GRANTED && !q[s].demanded -> set_demanded(s)
	:: else
	fi
}

/* ---- the session ---- */

inline forget_connection(s)
{
	q[s].own_watched = false;
	q[s].own_requested = false;
	if
	:: q[s].state == WAITING || q[s].state == QUEUED -> set_queued(s)
	:: q[s].state == UNSETTLED -> q[s].list_needed = 0
	:: q[s].state == GRANTED && q[s].list_needed == LATER -> q[s].list_needed = 0
	:: else
	fi;
	q[s].dir_list = 0
}

/* What was under way is answered: nobody knows. */
inline on_lost(s)
{
	do
	:: len(request[s]) > 0 ->
		request[s]?what, arg, flag_sync, flag_watch;
		if
		:: what == CREATE && q[s].state == CREATING && q[s].mark == arg ->
			q[s].state = UNSETTLED;
			q[s].list_needed = 0;
			q[s].create_sent = false
		:: what == LIST && arg > q[s].list_answered -> q[s].list_answered = arg
		:: what == DELETE -> q[s].delete_sent = q[s].delete_sent & ~bit(arg)
		:: else
		fi
	:: else -> break
	od;
	what = 0;
	arg = 0;
	flag_sync = false;
	flag_watch = false;
	q[s].done_at = 0
}

inline start_synced(s)
{
	if
	:: is_placed(s) || q[s].state == UNSETTLED ->
		q[s].list_sent++;
		watch = q[s].state == GRANTED && !q[s].demanded;
		request[s]!LIST, q[s].list_sent, true, watch;
		if
		:: watch -> q[s].dir_list = q[s].list_sent
		:: else
		fi;
		watch = false;
		q[s].list_needed = q[s].list_sent;
		q[s].list_synced = q[s].list_sent
	:: else -> q[s].list_synced = 0
	fi
}

inline on_connected(s)
{
	forget_connection(s);
	q[s].connected = true;
	if
	:: q[s].list_synced != 0 -> start_synced(s)
	:: else
	fi
}

/* A new worker knows what is in shared memory, and has seen nothing of the ensemble. */
inline on_resumed(s)
{
	q[s].watched = 0;
	q[s].dir_watch = false;
	q[s].at = 0;
	do
	:: len(request[s]) > 0 -> request[s]?_, _, _, _
	:: else -> break
	od;
	q[s].done_at = 0;
	forget_connection(s);
	q[s].connected = true;
	q[s].list_answered = q[s].list_sent;
	q[s].dir_watched = false;
	q[s].delete_sent = 0;
	if
	:: q[s].state == CREATING && q[s].create_sent ->
		q[s].state = UNSETTLED;
		q[s].create_sent = false
	:: else
	fi;
	start_synced(s)
}

inline on_session_lost(s)
{
	do
	:: len(request[s]) > 0 -> request[s]?_, _, _, _
	:: else -> break
	od;
	vanished(s);
	q[s].dying = 0;
	q[s].delete_sent = 0;
	q[s].list_sent = 1;
	q[s].list_answered = 1;
	q[s].list_synced = 0;
	q[s].dir_watched = false;
	q[s].dir_list = 0;
	q[s].done_at = 0;
	q[s].watched = 0;
	q[s].dir_watch = false;
	q[s].stuck = false;
	/* the creation of the next session is a transaction, and it has seen that */
	q[s].at = now;
	q[s].dead = false;
	q[s].connected = true
}

/* ---- the ensemble ---- */

inline execute(s)
{
	if
	:: what == CREATE ->
		made++;
		assert(made <= NODES);
		now++;
		made_at[made] = now;
		owner_of[made] = s;
		mark_of[made] = arg
	:: what == DELETE && gone_at[arg] == 0 ->
		now++;
		gone_at[arg] = now
	:: else
	fi
}

/* The connection is lost, and the ensemble has got all that was sent, or the rest of it not. */
inline execute_all(s)
{
	i = len(request[s]);
	do
	:: i > 0 ->
		request[s]?what, arg, flag_sync, flag_watch;
		if
		:: q[s].done_at == 0 -> execute(s)
		:: else -> q[s].done_at = 0
		fi;
		request[s]!what, arg, flag_sync, flag_watch;
		i--
	:: else -> break
	od;
	what = 0;
	arg = 0;
	flag_sync = false;
	flag_watch = false
}

inline expire(s)
{
	now++;
	k = 1;
	do
	:: k <= NODES ->
		if
		:: is_there(k) && owner_of[k] == s -> gone_at[k] = now
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0;
	q[s].dead = true
}

/* The connection's server comes to the next transaction, and watches tell of it. */
inline advance(s)
{
	q[s].at++;
	event = 1;
	do
	:: event <= NODES ->
		if
		:: gone_at[event] == q[s].at && (q[s].watched & bit(event)) ->
			q[s].watched = q[s].watched & ~bit(event);
			on_node_deleted(s, event)
		:: else
		fi;
		event++
	:: else -> break
	od;
	event = 0;
	if
	:: q[s].dir_watch ->
		q[s].dir_watch = false;
		on_dir_changed(s)
	:: else
	fi;
	decide(s)
}

inline answer(s)
{
	request[s]?what, arg, flag_sync, flag_watch;
	if
	:: what == CREATE -> on_created(s, arg)
	:: what == DELETE ->
		q[s].dying = q[s].dying & ~bit(arg);
		q[s].delete_sent = q[s].delete_sent & ~bit(arg)
	:: what == LIST -> on_listed(s, arg, flag_watch)
	:: what == OWN -> on_watched_own(s, arg)
	:: what == BLOCKER || what == SECOND -> on_watched(s, arg)
	fi;
	what = 0;
	arg = 0;
	flag_sync = false;
	flag_watch = false;
	q[s].done_at = 0;
	decide(s)
}

/* what the leader has to see: a write, and a sync before a listing */
#define is_led(s) (request[s]?[CREATE, _, _, _] || request[s]?[DELETE, _, _, _] || \
	request[s]?[LIST, _, true, _])
#define is_listing(s) request[s]?[LIST, _, _, _]
#define lives(s) (q[s].connected && !q[s].dead)

/* Does nobody else want it?  Then what is kept may go by its time. */
#if SERVERS == 2
#define nobody_wants (!q[0].want && !q[1].want)
#else
#define nobody_wants (!q[0].want && !q[1].want && !q[2].want)
#endif

proctype Life(byte s)
{
	do
	/* backends */
	:: d_step { q[s].cycles > 0 && !q[s].want && !q[s].held ->
		q[s].want = true; q[s].queued = false; q[s].dirty = true }
	:: d_step { q[s].cycles > 1 && (q[s].want || q[s].held) && !q[s].queued -> q[s].queued = true }
	:: d_step { q[s].want && q[s].usable && !q[s].dead ->
		/* 8 */
		assert(q[s].state == GRANTED);
		q[s].want = false;
		q[s].held = true;
		if
		:: q[s].grant_demanded ->
			q[s].handoffs--;
			q[s].usable = q[s].handoffs > 0
		:: else
		fi }
	/* a wait is cancelled: once, or no wake-up would be missed */
	:: d_step { !cancelled && q[s].want && !q[s].usable ->
		cancelled = true;
		q[s].want = false;
		q[s].cycles--;
		q[s].dirty = true }
	:: d_step { q[s].held ->
		q[s].held = false;
		q[s].cycles--;
		settle(s);
		q[s].dirty = true }
	:: d_step { q[s].usable && !q[s].held && !q[s].want && !q[s].queued && nobody_wants ->
		q[s].usable = false; q[s].handoffs = 0; q[s].dirty = true }

	/* the worker */
	:: d_step { q[s].dirty ->
		q[s].dirty = false;
		q[s].needed = q[s].want || q[s].held || q[s].usable;
		if
		:: q[s].state == GRANTED && !q[s].held && !q[s].usable -> set_deleting(s)
		:: else
		fi;
		decide(s) }
	:: d_step { lives(s) && !q[s].stuck && q[s].at == now && empty(request[s]) &&
		(q[s].list_needed == NOT_FOUND || q[s].list_needed == LATER) ->
		/* TICK */
		if
		:: q[s].list_needed == NOT_FOUND -> set_free(s)
		:: else -> q[s].list_needed = 0
		fi;
		decide(s) }

	/* the connection */
	:: d_step { lives(s) && !q[s].stuck && is_led(s) && q[s].done_at == 0 ->
		request[s]?<what, arg, _, _>;
		execute(s);
		what = 0;
		arg = 0;
		q[s].done_at = now + 1 }
	:: d_step { lives(s) && !q[s].stuck && q[s].at < now -> advance(s) }
	:: d_step { lives(s) && is_led(s) && q[s].done_at != 0 && q[s].at + 1 >= q[s].done_at ->
		answer(s) }
	:: d_step { lives(s) && nempty(request[s]) && (!is_led(s) || (q[s].stuck && is_listing(s))) ->
		answer(s) }

	/* faults */
	:: d_step { faults > 0 && lives(s) ->
		faults--;
		on_lost(s);
		forget_connection(s);
		q[s].connected = false;
		q[s].stuck = false;
		decide(s) }
	:: d_step { faults > 0 && lives(s) && !q[s].stuck && nempty(request[s]) ->
		faults--;
		execute_all(s);
		on_lost(s);
		forget_connection(s);
		q[s].connected = false;
		decide(s) }
	:: d_step { !q[s].connected && !q[s].dead -> on_connected(s); decide(s) }
	:: d_step { !deposed && !q[s].connected && !q[s].dead ->
		deposed = true;
		q[s].stuck = true;
		on_connected(s);
		decide(s) }
	:: d_step { q[s].stuck && !q[s].dead ->
		on_lost(s);
		forget_connection(s);
		q[s].connected = false;
		q[s].stuck = false;
		decide(s) }
	/* a worker dies; its successor's server may be one that lags, or a deposed leader's */
	:: d_step { faults > 0 && !q[s].dead -> faults--; on_resumed(s); decide(s) }
	:: d_step { faults > 0 && lives(s) && nempty(request[s]) && !q[s].stuck ->
		faults--; execute_all(s); on_resumed(s); decide(s) }
	/* the session: the lease is over before */
	:: d_step { faults > 0 && !q[s].dead -> faults--; expire(s) }
	:: d_step { q[s].dead -> on_session_lost(s); decide(s) }

	:: d_step { q[s].cycles == 0 && q[s].state == FREE && q[s].dying == 0 && !q[s].dirty &&
		empty(request[s]) && !q[s].dead ->
		k = 1;
		do
		:: k <= NODES ->
			/* 4, 5 */
			assert(!is_there(k) || owner_of[k] != s);
			k++
		:: else -> break
		od;
		k = 0;
		q[s].over = true } -> break
	od
}

/* Somebody deletes a contender. */
proctype Others()
{
	byte n = 1;

	do
	:: d_step { faults > 0 && n <= made && is_there(n) -> faults--; now++; gone_at[n] = now }
	:: d_step { n < made -> n++ }
	:: n >= made && q[0].over && q[1].over -> break
	:: faults == 0 -> break
	od
}

init
{
	atomic {
		i = 0;
		do
		:: i < SERVERS ->
			q[i].list_sent = 1;
			q[i].list_answered = 1;
			q[i].connected = true;
			q[i].cycles = CYCLES;
			i++
		:: else -> break
		od;
		q[SERVERS - 1].cycles = LAST;
		i = 0;
		run Life(0);
		run Life(1);
#if SERVERS > 2
		run Life(2);
#endif
		run Others()
	}
}
