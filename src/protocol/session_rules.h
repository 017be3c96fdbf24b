/*-------------------------------------------------------------------------
 *
 * session_rules.h
 *	  Decides when the worker opens, resumes, gives up and closes its ZooKeeper session.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  The worker (session.c)
 * tells zklock_course_step() each event, and performs the actions that it returns.  The
 * simulator (test/sim/session_sim.c) links the same object file and plays it against a
 * model of an ensemble.
 *
 * The course belongs to one process.  Shared memory has the data that outlive the
 * process, above all the session's id, and each event says what is there.  A file has
 * the data that outlive the server.  In short:
 *
 *	 state         moves on to
 *	 NONE          STALE: the file names a session of a life before; MEND: the ensemble
 *	               went back; else FIRST
 *	 NAMES         the same, as soon as names stand for addresses
 *	 STALE         NONE: closed, expired or refused, or kept beside our own
 *	 MEND          MENDING: connected
 *	 MENDING       NONE: mended, or the connection is lost
 *	 FIRST, AGAIN  FIRST_HELD, AGAIN_HELD: connected, but not to be used yet; UP;
 *	               NONE: expired, refused, or another handle is to try
 *	 .._HELD       UP; FIRST, AGAIN: the connection is lost
 *	 UP            AGAIN: the connection is lost; ANEW: a successor is to resume the
 *	               session; NONE: expired, refused, given up, closed
 *
 * FIRST resumes the session that shared memory has, if there is one, and otherwise
 * opens a new one.  In UP the agents may ask.  The connection is shown as up only after
 * an admission (ensemble.c), or when the worker has found that there is no root.
 *
 * Two more sessions may end beside this one.  The session before this one is closed
 * when this one has come to a write, or at once; then this one may wait for its end
 * (ZkSessionClosing).  The session of a life before is kept while runs of jobs that
 * hang on it are settled (ZkSessionLeft).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_RULES_H
#define ZKLOCK_SESSION_RULES_H

#include "protocol.h"

/* The state for people, and for a successor; in shared memory. */
typedef enum ZkSessionState
{
	ZKLOCK_SESSION_STARTING,   /* no worker */
	ZKLOCK_SESSION_CONNECTING, /* no session, or not known whether it lives */
	ZKLOCK_SESSION_CONNECTED,
	ZKLOCK_SESSION_RECONNECTING, /* connection lost, session may live */
	ZKLOCK_SESSION_AUTH_FAILED,	 /* credentials refused, session may live */
	ZKLOCK_SESSION_WENT_BACK,	 /* the ensemble has; no session for a while */
	ZKLOCK_SESSION_CLOSING		 /* shutdown: nothing is granted any more */
} ZkSessionState;

typedef enum ZkSessionPhase
{
	ZKLOCK_PHASE_NONE, /* no handle */
	ZKLOCK_PHASE_NAMES, /* no handle yet: for the first time it is asked what names stand for */
	ZKLOCK_PHASE_STALE, /* for a session that a life before has left */
	ZKLOCK_PHASE_MEND, /* for a session that mends what can be mended, and nothing else */
	ZKLOCK_PHASE_MENDING,
	ZKLOCK_PHASE_FIRST,		 /* not connected yet */
	ZKLOCK_PHASE_FIRST_HELD, /* connected, but not used yet */
	ZKLOCK_PHASE_AGAIN,		 /* the connection was lost */
	ZKLOCK_PHASE_AGAIN_HELD,
	ZKLOCK_PHASE_UP,
	ZKLOCK_PHASE_ANEW /* the same, but nothing is received any more */
} ZkSessionPhase;

/* The session before this one. */
typedef enum ZkSessionClosing
{
	ZKLOCK_CLOSING_NOTHING,
	ZKLOCK_CLOSING_LATER,	/* when this one has come to a write */
	ZKLOCK_CLOSING_AWAITED, /* this one waits for its end, but not for long */
	ZKLOCK_CLOSING_BEGUN
} ZkSessionClosing;

/* The session of a life before. */
typedef enum ZkSessionLeft
{
	ZKLOCK_LEFT_GONE,	/* there is none */
	ZKLOCK_LEFT_KEPT,	/* its runs are being settled */
	ZKLOCK_LEFT_SETTLED /* settlers have done what they can: its records are read again */
} ZkSessionLeft;

/* Does the session of a life before have runs of jobs to be settled? */
typedef enum ZkLeftRuns
{
	ZKLOCK_LEFT_UNKNOWN, /* not known yet */
	ZKLOCK_LEFT_NONE,
	ZKLOCK_LEFT_SOME
} ZkLeftRuns;

/* All times are ns of one clock. */
typedef struct ZkSessionCourse
{
	ZkSessionPhase phase;
	ZkSessionClosing closing;
	ZkSessionLeft left;
	int64_t trying_since; /* since when the handle is there, or its connection lost */
	int64_t retry_at;	  /* no handle before; 0: at once */
	int64_t use_at;		  /* HELD: when the connection is used */
	int64_t ask_until;	  /* the session of a life before is asked at most; 0: not yet */
	int64_t left_until;	  /* ... is kept at most */
} ZkSessionCourse;

typedef enum ZkCourseEventType
{
	/* from the worker */
	ZKLOCK_COURSE_LOOK, /* the main loop */
	ZKLOCK_COURSE_WAIT, /* at: the ensemble went back, and no session is of use before */
	ZKLOCK_COURSE_OPEN, /* yes: there is a session of a life before */
	ZKLOCK_COURSE_OPENED,	 /* phase: the handle is there */
	ZKLOCK_COURSE_NO_HANDLE, /* yes: for want of an answer of the name service */
	ZKLOCK_COURSE_NAMED,	 /* now there is one */
	ZKLOCK_COURSE_LEFT, /* yes: spoilt.  The handle was given up, and not its session */
	ZKLOCK_COURSE_RENEWED,	/* yes: with contenders in the old session.  There is a handle
							 * for a new one, and that of the old one is set aside */
	ZKLOCK_COURSE_CLOSED,	/* the session that is being closed has come to its end */
	ZKLOCK_COURSE_RELOADED, /* settings have changed */
	ZKLOCK_COURSE_STOPPING, /* the server stops */
	ZKLOCK_COURSE_END,		/* it has; yes: leave the session to the next life */
	/* from the handle */
	ZKLOCK_COURSE_CONNECTED, /* known: to the session in shared memory; at: not to be used
							  * before; lasts: its timeout */
	ZKLOCK_COURSE_USE,		 /* the same, of the connection that is held */
	ZKLOCK_COURSE_KEEPER,	 /* the same, and it is ClickHouse Keeper's */
	ZKLOCK_COURSE_DISCONNECTED,
	ZKLOCK_COURSE_EXPIRED, /* yes: too soon, so the ensemble went back */
	ZKLOCK_COURSE_AUTH_FAILED,
	/* what the ensemble says on a connection */
	ZKLOCK_COURSE_ADMITTED,
	ZKLOCK_COURSE_NO_ROOT, /* what comes of the connection are errors, which are wanted */
	ZKLOCK_COURSE_WENT_BACK,
	ZKLOCK_COURSE_MENDED,
	ZKLOCK_COURSE_NOT_MENDED,
	ZKLOCK_COURSE_TOUCHED,		/* the base: resume the session in a new process */
	ZKLOCK_COURSE_UNKNOWN_BASE, /* it cannot be told */
	ZKLOCK_COURSE_BEAT,			/* a heartbeat was acknowledged; yes: and admitted */
	/* of a session that a life before has left */
	ZKLOCK_COURSE_STALE_TOLD, /* it has told what it can of the ensemble */
	ZKLOCK_COURSE_STALE_RUNS, /* runs; lasts: its timeout */
	ZKLOCK_COURSE_LEFT_RUNS, /* runs, of the one that is kept; yes: this server can settle
							  * them; settled: it has done what it can */
	ZKLOCK_COURSE_LEFT_ENDED /* it has expired, or its handle is refused */
} ZkCourseEventType;

typedef struct ZkCourseEvent
{
	ZkCourseEventType type;
	bool yes;
	bool known;
	bool settled;
	ZkLeftRuns runs;
	ZkSessionPhase phase;
	int64_t at;
	int64_t lasts;
	/* always */
	int64_t now;
	/* always, of shared memory: */
	bool session;				/* there is one */
	bool found;					/* the ensemble went back, and that is not over */
	ZkSessionState state;		/* what is shown */
	ZkSessionState pause_state; /* ... in a pause */
	long pause;					/* ms: the latest; 0: all was well since */
	int64_t timeout;			/* of the session, or of the next one */
} ZkCourseEvent;

typedef enum ZkCourseActionType
{
	/* handles */
	ZKLOCK_DO_OPEN,	 /* phase; yes: credentials are not needed.  OPENED or NO_HANDLE
					  * comes at once */
	ZKLOCK_DO_DROP,	 /* close the session, if it is connected */
	ZKLOCK_DO_HOSTS, /* the handle chooses among its hosts anew */
	ZKLOCK_DO_BEGIN, /* its session stands in shared memory from now on, and has a lease;
					  * what a connection asks first */
	ZKLOCK_DO_MEND,	 /* ask, for mending */
	ZKLOCK_DO_CLOSE, /* begin to close the session before this one */
	ZKLOCK_DO_AWAIT, /* its end */
	ZKLOCK_DO_STALE, /* ask the session of a life before.  STALE_TOLD comes */
	ZKLOCK_DO_STALE_RUNS,  /* ask it for its runs.  STALE_RUNS comes */
	ZKLOCK_DO_STALE_CLOSE, /* it goes with its handle, which is dropped next */
	ZKLOCK_DO_KEEP,		   /* its handle is put beside ours */
	ZKLOCK_DO_LEFT_RUNS,   /* ask that one for its runs */
	ZKLOCK_DO_LEFT_CLOSE,  /* ... and make it the one that is being closed */
	ZKLOCK_DO_LEFT_LEAVE,  /* ... and leave it to the next life */
	/* shared memory and files */
	ZKLOCK_DO_FORGET, /* the session: nobody shall resume it */
	ZKLOCK_DO_NOTE,	  /* what a crash leaves says what shared memory says */
	ZKLOCK_DO_SAVE,	  /* the history, if it is time */
	ZKLOCK_DO_FOUND,  /* the ensemble went back; lasts: the session's timeout */
	ZKLOCK_DO_STOP,	  /* yes: the session is closed next */
	ZKLOCK_DO_FILE,	  /* write the session's file */
	ZKLOCK_DO_NO_FILE,
	ZKLOCK_DO_PAUSE, /* pause: ms, 0: none; state, is shown meanwhile */
	ZKLOCK_DO_SHOW,	 /* state */
	ZKLOCK_DO_PROVE, /* yes: the connection is good for calls that wait */
	/* agents */
	ZKLOCK_DO_TELL, /* told */
	/* people */
	ZKLOCK_DO_SAY_OPENED,  /* known; resumed */
	ZKLOCK_DO_SAY_TROUBLE, /* event: as it happened */
	ZKLOCK_DO_SAY_WHY,	   /* the same, to who waits */
	ZKLOCK_DO_SAY_STOPPING,
	ZKLOCK_DO_SAY_LEAVING
} ZkCourseActionType;

typedef struct ZkCourseAction
{
	ZkCourseActionType type;
	bool yes;
	bool known;
	bool resumed;
	ZkSessionPhase phase;
	ZkSessionState state;
	ZkLockEventType told;
	ZkCourseEventType event;
	long pause;
	int64_t lasts;
} ZkCourseAction;

#define ZKLOCK_COURSE_ACTIONS 16

typedef struct ZkCourseActions
{
	int n;
	ZkCourseAction action[ZKLOCK_COURSE_ACTIONS];
} ZkCourseActions;

/* Only this function changes a course.  A course begins with all 0.  The function
 * overwrites "actions"; the caller performs them in order. */
extern void zklock_course_step(ZkSessionCourse *course, const ZkCourseEvent *event,
							   ZkCourseActions *actions);

/* Is there a handle?  Is it connected, and used?  By the agents?  Or held? */
extern bool zklock_course_has_handle(const ZkSessionCourse *course);
extern bool zklock_course_connected(const ZkSessionCourse *course);
extern bool zklock_course_usable(const ZkSessionCourse *course);
extern bool zklock_course_held(const ZkSessionCourse *course);

/* Does the handle try to connect?  It has since trying_since. */
extern bool zklock_course_tries(const ZkSessionCourse *course);

/* A session has to be closed: can it be reached after a short wait?  Its connection
 * was lost a moment ago, or its first connection is being tried. */
extern bool zklock_course_returning(const ZkSessionCourse *course, bool session,
									int64_t now);

/*
 * Has the handle tried for long enough?  The library never accepts an ensemble that has
 * seen less than itself, such as one that was restored from a backup; and names may
 * stand for other addresses by now.  A new handle begins with a fresh list and the same
 * session, and has seen nothing.  "unreached": for this long there was no connection
 * that counts.
 */
extern bool zklock_course_gives_up(const ZkSessionCourse *course, int64_t timeout,
								   int64_t unreached, int64_t now);

/* Can another session take the place of this one? */
extern bool zklock_course_renewable(const ZkSessionCourse *course);

/* Does the worker look for the session of a life before? */
extern bool zklock_course_wants_stale(const ZkSessionCourse *course, bool session);

/* Returns when the next LOOK is useful, or the USE of a held connection.  INT64_MAX:
 * no time is known. */
extern int64_t zklock_course_due(const ZkSessionCourse *course);

/* Is a held connection to be used now? */
extern bool zklock_course_use_due(const ZkSessionCourse *course, int64_t now);

#endif /* ZKLOCK_SESSION_RULES_H */
