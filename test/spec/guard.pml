/*
 * guard.pml - what a backend claims and commits, for Spin: src/README.session, Losses and
 * "What becomes of it"; src/protocol/session_rules.h
 *
 * Each server has a worker, which may die after each of its steps, and a backend, which may
 * be paused between any two.  Shared memory has the session, its lease, the grant, and the
 * backend's hold.  That the lease is honest lease.pml shows: a session expires when its lease
 * is over, and only a session that lives gets one.
 *
 * -DSERVERS=N, -DSESSIONS=N: of each, -DGRANTS=N and -DDEATHS=N in all.
 *
 * Properties: 1 and 19 of src/README, Invariants: no claim is true after its session has
 * expired, tokens of commits grow, and nothing commits after a loss of which its client was
 * told.  A commit counts as of its look at the lease (README).
 */
#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef SESSIONS
#define SESSIONS 3
#endif
#ifndef GRANTS
#define GRANTS 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif

/* the ensemble */
byte holder;			/* server + 1 */
byte token;				/* given last */
byte made[SERVERS];		/* its sessions that there were */
bool alive[SERVERS];	/* the newest of them */

/* shared memory */
byte session[SERVERS];	/* 0: none */
bool lease[SERVERS];
byte grant[SERVERS];	/* token; 0: none */
byte hold[SERVERS];		/* likewise, of the backend */
bool lost[SERVERS];		/* its mark */

bool told[SERVERS];		/* the client was, that its lock is lost */
byte committed;			/* the largest token */
byte deaths = DEATHS;
bool dies[SERVERS];

#define lives(s) (alive[s] && session[s] == made[s])

/* SESSION_LOST: all grants are revoked, and their proclocks marked. */
inline tell(s)
{
	if
	:: hold[s] != 0 -> lost[s] = true
	:: else
	fi;
	grant[s] = 0
}

inline begin(s)
{
	session[s] = made[s];
	lease[s] = alive[s]
}

proctype Worker(byte s)
{
start:
	{
		if
		:: session[s] != 0 /* it resumes that */
		:: session[s] == 0 ->
			/* it opens another; what came before has expired, or expires, or is closed here */
			d_step { made[s] < SESSIONS && !alive[s] -> made[s]++; alive[s] = true };
			/* use */
			d_step { tell(s) };
			d_step { begin(s) }
		fi;
		do
		/* its lock queue is granted the lock, and gives it back */
		:: d_step { lives(s) && holder == 0 && grant[s] == 0 && token < GRANTS ->
			token++;
			holder = s + 1;
			grant[s] = token }
		:: d_step { lives(s) && grant[s] != 0 && hold[s] == 0 -> grant[s] = 0; holder = 0 }
		/* its writes are acknowledged */
		:: d_step { lives(s) && !lease[s] -> lease[s] = true }
		/* expired */
		:: d_step { !lives(s) -> session[s] = 0; lease[s] = false };
			d_step { tell(s) };
			break
		od
	} unless { d_step { dies[s] -> dies[s] = false } };
	goto start
}

proctype Backend(byte s)
{
	bool was_true;

	do
	:: d_step { grant[s] != 0 && lease[s] -> hold[s] = grant[s]; lost[s] = false; told[s] = false };
		/* statements; the alarm may tell of a loss, by the mark or by the clock */
		if
		:: skip
		:: d_step { lost[s] || !lease[s] -> told[s] = true; lost[s] = true }
		fi;
		/* PRE_COMMIT: zklock_loss_await_verdict, zklock_loss_settle */
		if
		:: d_step { lease[s] -> was_true = holder == s + 1 && token == hold[s] }
		:: lost[s]
		fi;
		if
		:: d_step { lost[s] -> hold[s] = 0; lost[s] = false; told[s] = false; was_true = false }
		:: d_step { !lost[s] ->
			/* 1, 19 */
			assert(was_true);
			assert(!told[s]);
			/* a fence that has seen a larger token was asked by who came after this look */
			committed = (hold[s] > committed -> hold[s] : committed);
			hold[s] = 0;
			was_true = false }
		fi
	od
}

proctype Fate(byte s)
{
	do
	/* time passes */
	:: d_step { lease[s] -> lease[s] = false }
	:: d_step { alive[s] && (!lease[s] || session[s] != made[s]) ->
		alive[s] = false;
		if
		:: holder == s + 1 -> holder = 0
		:: else
		fi }
	:: d_step { deaths > 0 && !dies[s] -> deaths--; dies[s] = true }
	od
}

init
{
	atomic {
		run Worker(0);
		run Worker(1);
#if SERVERS > 2
		run Worker(2);
#endif
		run Backend(0);
		run Backend(1);
#if SERVERS > 2
		run Backend(2);
#endif
		run Fate(0);
		run Fate(1);
#if SERVERS > 2
		run Fate(2);
#endif
	}
}
