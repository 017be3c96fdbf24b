/*
 * job.pml - the record of a job, for Spin: src/protocol/job_rules.h
 *
 * Each server calls for each slot until it hears that the slot is done.  It takes the lock,
 * reads the record, decides, runs, writes COMMITTING, looks at its lease, commits, and writes
 * the end.  Each of these is a step of its own, and anything may come between two of them:
 * another server's step, the end of a session, a contender that somebody deletes, a crash, an
 * end of the caller, a reply that is lost, a settler's write, and once an ensemble that
 * forgets the record.
 *
 * -DSERVERS=N, -DFAULTS=N (so many in all), -DSKIP=1: a run in doubt counts as done.
 *
 * Properties: 25 and 26 of src/README, Invariants; "guarantee" is one of job_rules.h.
 */
#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef SKIP
#define SKIP 0
#endif
#define SLOTS 2
/* Each run more than one for each slot is for a fault, or as another was in doubt. */
#define RUNS (FAULTS + 3)

/* a run's state; the last bit of what is lost or skipped: nobody knows yet */
#define NONE 0
#define RUNNING 1
#define COMMITTING 2
#define DONE 3
#define LOST 4
#define LOST_DOUBT 5
#define SKIPPED 6
#define SKIPPED_DOUBT 7

#define goes_on(state) (state == RUNNING || state == COMMITTING)
#define is_open(state) (state == COMMITTING || state == LOST_DOUBT || state == SKIPPED_DOUBT)

typedef Record
{
	byte version;
	byte last_done;		/* slot */
	byte newest;		/* run */
	byte state[RUNS + 1];
};

/* the ensemble's */
Record record;
byte owner;				/* server + 1 whose contender is first, 0: none */
byte tokens;			/* so many were given */
byte present = 1;		/* slot */

/* Who runs what; a run's number here is one in all lives of the record, in no order. */
byte slot_of[RUNS + 1];
byte server_of[RUNS + 1];
byte token_of[RUNS + 1];
bool committed[RUNS + 1];	/* its row is in the table of its server */
/* What was made of it, for the properties */
bool relied[RUNS + 1];		/* somebody has written that it did not commit */
bool doubted[RUNS + 1];
bool skipped[RUNS + 1];
bool excused[RUNS + 1];		/* its server's session ended, or its contender was deleted */

/* of each server */
Record copy[SERVERS];		/* what it has read, and what it makes of it */
byte run_of[SERVERS];		/* its transaction that is not over */
byte token[SERVERS];
bool lease[SERVERS];
bool expired[SERVERS];		/* the session of its lock */
bool moved[SERVERS];		/* it has another session than that in which it has read */
bool crashed[SERVERS];
byte faults = FAULTS;
bool forgot;
bool through[SERVERS];
byte ended;

/* Indices and flags within a step; 0 between two steps */
hidden byte i;
hidden byte n;
hidden byte d;

inline copy_record(to, from)
{
	to.version = from.version;
	to.last_done = from.last_done;
	to.newest = from.newest;
	i = 0;
	do
	:: i <= RUNS -> to.state[i] = from.state[i]; i++
	:: else -> break
	od;
	i = 0
}

inline count_as_done(c, r)
{
	if
	:: slot_of[r] > c.last_done -> c.last_done = slot_of[r]
	:: else
	fi
}

/* zklock_job_finish */
inline finish_run(c, r, end, changed)
{
	if
	:: c.state[r] == NONE || c.state[r] == DONE
	:: !goes_on(c.state[r]) && !is_open(c.state[r]) && end == LOST
	:: else ->
		if
		:: c.state[r] == SKIPPED && end != DONE
		:: c.state[r] == SKIPPED_DOUBT && end != DONE -> c.state[r] = SKIPPED; changed = true
		:: else ->
			c.state[r] = end;
			changed = true;
			if
			:: end == DONE -> count_as_done(c, r)
			:: else
			fi
		fi
	fi
}

/* zklock_job_settle, for all that the server can tell */
inline settle_runs(c, s, changed)
{
	n = 1;
	do
	:: n <= RUNS ->
		if
		:: is_open(c.state[n]) && server_of[n] == s && n != run_of[s] ->
			if
			:: committed[n] && server_of[n] == s -> finish_run(c, n, DONE, changed)
			:: else -> finish_run(c, n, LOST, changed)
			fi
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* Another backend has the lock. */
inline take_over(c, changed)
{
	if
	:: c.newest != 0 && c.state[c.newest] == RUNNING ->
		c.state[c.newest] = LOST;
		changed = true
	:: c.newest != 0 && c.state[c.newest] == COMMITTING && SKIP ->
		c.state[c.newest] = SKIPPED_DOUBT;
		count_as_done(c, c.newest);
		changed = true
	:: c.newest != 0 && c.state[c.newest] == COMMITTING && !SKIP ->
		c.state[c.newest] = LOST_DOUBT;
		changed = true
	:: else
	fi
}

/* A server does not do again what it has done, whatever the ensemble has forgotten. */
inline count_own(c, s, changed)
{
	n = 1;
	do
	:: n <= RUNS ->
		if
		:: committed[n] && server_of[n] == s && slot_of[n] > c.last_done ->
			c.last_done = slot_of[n];
			changed = true
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* What the write changes, for the properties. */
inline observe_write(c)
{
	n = 1;
	do
	:: n <= RUNS ->
		if
		:: c.state[n] != record.state[n] ->
			if
			:: c.state[n] == LOST || c.state[n] == SKIPPED -> relied[n] = true
			:: c.state[n] == LOST_DOUBT || c.state[n] == SKIPPED_DOUBT ->
				/* guarantee 3: in doubt only for a reason */
				assert(excused[n] || forgot);
				doubted[n] = true;
				skipped[n] = c.state[n] == SKIPPED_DOUBT
			/* 25: it does not begin, nor go on, if its slot is done */
			:: c.state[n] == RUNNING || c.state[n] == COMMITTING ->
				assert(slot_of[n] > record.last_done)
			:: else
			fi
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* The ensemble executes the write of server s: ok if it has that version still. */
inline execute_write(s, ok)
{
	if
	:: copy[s].version == record.version && !moved[s] ->
		observe_write(copy[s]);
		copy[s].version = record.version + 1;
		copy_record(record, copy[s]);
		ok = true
	:: else -> ok = false
	fi
}

/* What was read is of no use any more. */
inline drop_copy(s)
{
	copy[s].version = 0;
	copy[s].last_done = 0;
	copy[s].newest = 0;
	i = 0;
	do
	:: i <= RUNS -> copy[s].state[i] = 0; i++
	:: else -> break
	od;
	i = 0;
	changed = false
}

/* ... and the reply may be lost: then the server reads again. */
#define WRITE(s) \
	if \
	:: d_step { execute_write(s, ok); drop_copy(s) } \
	:: d_step { faults > 0 -> faults--; execute_write(s, ok); ok = false; drop_copy(s) } \
	:: d_step { faults > 0 -> faults--; ok = false; drop_copy(s) } \
	fi

#define READ(s) \
	copy_record(copy[s], record); moved[s] = false

/* The transaction of run r commits.  Guarantees 1, 3, 4 and 8. */
inline commit_run(s, r)
{
	assert(!relied[r] || doubted[r] || forgot);
	committed[r] = true;
	n = 1;
	d = 0;
	do
	:: n <= RUNS ->
		if
		:: n != r && committed[n] && token_of[n] > token_of[r] ->
			assert(doubted[r] || forgot)
		:: else
		fi;
		if
		:: n != r && committed[n] && slot_of[n] == slot_of[r] ->
			/* 25: once; no server twice, whatever the ensemble has forgotten */
			assert(server_of[n] != s);
			assert(forgot || !SKIP);
			assert(forgot || doubted[n] || doubted[r])
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* The lock goes, if it is there. */
inline give_back(s)
{
	if
	:: owner == s + 1 -> owner = 0
	:: else
	fi;
	token[s] = 0;
	lease[s] = false;
	expired[s] = false
}

/* Its contender is gone, and it does not know yet. */
inline excuse_late(s, r)
{
	if
	:: owner != s + 1 -> excused[r] = true
	:: else
	fi
}

proctype Server(byte me)
{
	byte slot = 1;
	byte mine;
	bool ok, changed, due;

call:
	{
	/* the lock; its session is the one in which the server is now */
	atomic {
		owner == 0 ->
		owner = me + 1;
		tokens++;
		token[me] = tokens;
		lease[me] = true;
		slot = present;
	}

decide:
	atomic {
		READ(me);
		if
		:: expired[me] -> d_step { drop_copy(me); give_back(me) }; goto call
		:: copy[me].newest != 0 && copy[me].state[copy[me].newest] == RUNNING &&
			token_of[copy[me].newest] == token[me] ->
			/* its write has come through */
			d_step {
				mine = copy[me].newest;
				run_of[me] = mine;
				excuse_late(me, mine);
				drop_copy(me)
			};
			goto commit
		:: else
		fi;
		if
		:: copy[me].newest != 0 && token_of[copy[me].newest] > token[me] ->
			d_step { drop_copy(me); give_back(me) };
			goto call
		:: else
		fi;
		d_step {
			settle_runs(copy[me], me, changed);
			take_over(copy[me], changed);
			count_own(copy[me], me, changed);
			due = slot > copy[me].last_done;
			if
			:: due ->
				mine = 1;
				do
				:: mine <= RUNS && slot_of[mine] != 0 -> mine++
				:: else -> break
				od;
				assert(mine <= RUNS);
				slot_of[mine] = slot;
				server_of[mine] = me;
				token_of[mine] = token[me];
				copy[me].newest = mine;
				copy[me].state[mine] = RUNNING;
				changed = true
			:: else
			fi
		}
	}
	atomic {
		if
		:: changed -> WRITE(me)
		:: else -> d_step { drop_copy(me); ok = true }
		fi;
		if
		:: ok && due -> due = false; run_of[me] = mine; excuse_late(me, mine)
		:: ok && !due -> goto release
		:: else ->
			d_step {
				/* nobody has seen the number */
				if
				:: due && record.newest != mine ->
					slot_of[mine] = 0; server_of[mine] = 0; token_of[mine] = 0
				:: else
				fi;
				due = false;
				mine = 0
			};
			goto decide
		fi
	}

commit:
	atomic {
		READ(me);
		if
		:: !goes_on(copy[me].state[mine]) -> d_step { drop_copy(me) }; goto abort
		:: slot_of[mine] <= copy[me].last_done -> d_step { drop_copy(me) }; goto abort
		:: else
		fi;
		if
		:: copy[me].state[mine] == COMMITTING -> d_step { drop_copy(me) }; goto look
		:: else -> copy[me].state[mine] = COMMITTING
		fi
	}
	atomic {
		WRITE(me);
		if
		:: ok
		:: else -> goto commit
		fi
	}

look:
	atomic {
		if
		:: lease[me] -> assert(!expired[me])
		:: else -> goto abort
		fi
	}
	if
	:: d_step { commit_run(me, mine) }
	:: atomic { faults > 0 -> faults--; goto abort } /* an error of the commit itself */
	:: atomic { faults > 0 -> faults--; goto left } /* the caller ends, and says nothing */
	fi;
	if
	:: skip
	:: atomic { faults > 0 -> faults--; goto left }
	fi;

finish:
	atomic {
		READ(me);
		finish_run(copy[me], mine, DONE, changed)
	}
	atomic {
		if
		:: changed -> WRITE(me)
		:: else -> d_step { drop_copy(me); ok = true }
		fi;
		if
		:: ok -> goto release
		:: else -> goto finish
		fi
	}

abort:
	atomic {
		READ(me);
		finish_run(copy[me], mine, LOST, changed)
	}
	atomic {
		if
		:: changed -> WRITE(me)
		:: else -> d_step { drop_copy(me); ok = true }
		fi;
		if
		:: ok -> goto release
		:: else -> goto abort
		fi
	}

left:
	/* the job is left to the server, which settles the run, and gives the job back */
	run_of[me] = 0;
settle:
	atomic {
		READ(me);
		settle_runs(copy[me], me, changed)
	}
	atomic {
		if
		:: changed -> WRITE(me)
		:: else -> d_step { drop_copy(me); ok = true }
		fi;
		if
		:: ok
		:: else -> goto settle
		fi
	}

release:
	atomic {
		mine = 0;
		ok = false;
		run_of[me] = 0;
		give_back(me);
		if
		:: slot <= record.last_done && slot == SLOTS -> ended++; through[me] = true; goto over
		:: else
		fi
	}
	if
	:: atomic { slot == SLOTS && slot <= record.last_done -> ended++; through[me] = true; goto over }
	:: slot < SLOTS && present > slot
	:: slot > record.last_done
	fi
	} unless {
		atomic {
			crashed[me] ->
			crashed[me] = false;
			mine = 0;
			run_of[me] = 0;
			ok = false;
			changed = false;
			due = false;
			token[me] = 0;
			lease[me] = false;
			expired[me] = false;
			d_step { READ(me) };
			/* the next life: does a run hang on the session that it has left? */
			if
			:: owner == me + 1 && copy[me].newest != 0 &&
				copy[me].state[copy[me].newest] == COMMITTING &&
				server_of[copy[me].newest] == me
			:: else -> give_back(me)
			fi
		}
		do
		:: d_step {
				READ(me);
				settle_runs(copy[me], me, changed)
			}
			atomic {
				if
				:: changed -> WRITE(me)
				:: else -> d_step { drop_copy(me); ok = true }
				fi;
				if
				:: ok -> ok = false; give_back(me); break
				:: else
				fi
			}
		od
	};
	goto call;
over:
	skip
}

/* A session ends, or its contender does: another one may have the lock. */
inline lose(s)
{
	faults--;
	owner = 0;
	n = 1;
	do
	:: n <= RUNS ->
		if
		:: server_of[n] == s && goes_on(record.state[n]) -> excused[n] = true
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

#define opens(n, s) (is_open(record.state[n]) && server_of[n] == s && n != run_of[s])
#define is_any_open(s) (opens(1, s) || opens(2, s) || opens(3, s) || \
	(RUNS > 3 && opens((RUNS > 3 -> 4 : 0), s)) || (RUNS > 4 && opens((RUNS > 4 -> 5 : 0), s)))

/* What happens to one server */
proctype Fate(byte s)
{
	do
	/* its session ends */
	:: d_step { faults > 0 && owner == s + 1 ->
		lose(s);
		lease[s] = false;
		expired[s] = token[s] != 0;
		moved[s] = true }
	/* somebody deletes its contender, of which it hears later, or not at all */
	:: d_step { faults > 0 && owner == s + 1 && token[s] != 0 -> lose(s) }
	:: d_step { lease[s] && owner != s + 1 -> lease[s] = false }
	:: d_step { faults > 0 && !crashed[s] && !through[s] -> faults--; crashed[s] = true }
	/* a settler of it, beside its callers */
	:: d_step { !crashed[s] && is_any_open(s) ->
		settle_runs(record, s, d);
		record.version++;
		d = 0 }
	:: through[s] -> break
	od
}

/* The ensemble forgets, with all sessions; and time passes. */
proctype World()
{
	do
	:: d_step { present < SLOTS -> present++ }
	:: d_step {
		faults > 0 && !forgot ->
		faults--;
		forgot = true;
		record.version = 0;
		record.last_done = 0;
		record.newest = 0;
		n = 1;
		do
		:: n <= RUNS -> record.state[n] = NONE; n++
		:: else -> break
		od;
		n = 0;
		owner = 0;
		do
		:: n < SERVERS ->
			lease[n] = false; expired[n] = token[n] != 0; moved[n] = true; n++
		:: else -> break
		od;
		n = 0
		}
	:: ended == SERVERS -> break
	od
}

init
{
	atomic {
		run Server(0);
		run Server(1);
#if SERVERS > 2
		run Server(2);
#endif
		run Fate(0);
		run Fate(1);
#if SERVERS > 2
		run Fate(2);
#endif
		run World()
	}
	/* 26 and guarantee 2: in the end each slot is done, and the record tells the truth */
	d_step {
		ended == SERVERS ->
		assert(forgot || record.last_done == SLOTS);
		n = 1;
		do
		:: n <= RUNS ->
			assert(record.state[n] == NONE || record.state[n] == DONE ||
				record.state[n] == LOST || record.state[n] == SKIPPED);
			assert(record.state[n] == NONE || committed[n] == (record.state[n] == DONE));
			assert(!skipped[n] || record.state[n] != LOST);
			n++
		:: else -> break
		od;
		n = 0
	}
}
