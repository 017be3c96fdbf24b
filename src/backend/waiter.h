/*-------------------------------------------------------------------------
 *
 * waiter.h
 *	  The wait loop of a backend: it waits for the worker, the ensemble, or other
 *	  sessions.
 *
 * A wait consists of looks, with sleeps in between.  The caller says how to look, what
 * wakes it, and what else ends the wait.  waiter.c does the rest: interrupts, limits,
 * the connection, the wait event and the context of errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITER_H
#define ZKLOCK_WAITER_H

#include "storage/condition_variable.h"

/* In place of a limit in ms: no limit. */
#define ZKLOCK_WAIT_FOREVER (-1)

typedef struct ZkWait
{
	int64 start;		/* ns of CLOCK_BOOTTIME */
	int64 until;		/* be content with "somebody else has it" from
						 * then on; PG_INT64_MAX: never */
	int64 lock_timeout; /* raise 55P03; PG_INT64_MAX: never.  One for the waits for
						 * room and at both levels: to the user it is one lock */
} ZkWait;

/* Begin a wait, for wait_ms, or ZKLOCK_WAIT_FOREVER. */
extern void zklock_wait_begin(ZkWait *wait, int64 wait_ms);

/* The wait event that PostgreSQL shows in pg_stat_activity. */
typedef struct ZkWaitEvent
{
	const char *name;
	uint32 number; /* 0: not asked for yet */
} ZkWaitEvent;

/* Does wait->until end the wait? */
typedef enum ZkWaitEnd
{
	ZKLOCK_WAIT_ENDS,		  /* yes */
	ZKLOCK_WAIT_ENDS_CURRENT, /* if there is a connection: what is known may be out of date */
	ZKLOCK_WAIT_GOES_ON		  /* no, an answer is on its way */
} ZkWaitEnd;

typedef struct ZkWaiter ZkWaiter;
struct ZkWaiter
{
	/* Is it over, as of now?  Holds no lock when it returns.  It may change what follows. */
	bool (*look)(ZkWaiter *waiter, int64 now);
	/* Adds to the context of errors, or NULL: who calls does. */
	void (*context)(void *arg);
	void *arg;
	const ZkWait *limits;
	ConditionVariable *cv; /* broadcast when a look may find something else; NULL: never */
	ZkWaitEvent *event;
	int longest;   /* ms from one look to the next: a backstop for lost wake-ups */
	bool for_lock; /* others have what it is for: lock_timeout ends it */
	bool connected; /* in vain without the ensemble: fails as zklock_check_connection does */
	ZkWaitEnd end;
	bool granted; /* all is there but the lease, which has to come in connect_timeout */
	int64 wake;	  /* the next look, ns; set before each */

	/* waiter.c's */
	int64 unproven;			/* since when a lease is missing; 0: it is not */
	volatile bool checking; /* an error now is that of the connection */
};

/*
 * Wait until a look says that it is over: true; or until the time is up: false.  Raises
 * 57014 and other errors of interrupts, 55P03 for lock_timeout, and the errors above.
 * When it returns or raises, no sleep is prepared any more.
 *
 * A caller that may find at once what it waits for looks before it calls this.
 */
extern bool zklock_wait_for(ZkWaiter *waiter);

#define ZKLOCK_LOCK_TIMEOUT_MESSAGE "canceling statement due to lock timeout"

#endif /* ZKLOCK_WAITER_H */
