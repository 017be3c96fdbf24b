/*-------------------------------------------------------------------------
 *
 * semaphore_backend.c
 *	  Finds the number of the permit that this backend has.
 *
 * The queue's directory says which contender has which number (semaphore_rules.h).  The
 * backend reads it, lists the queue, and chooses a number that no contender there has.
 * It writes the number if nobody else has written meanwhile; else it begins again.  A
 * number goes with its contender, so nothing has to be given back, however the hold
 * ends.  The next backend that chooses a number ignores contenders that are gone.  If
 * the reply to the write is lost, the next read shows the result.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "miscadmin.h"

#include "loss.h"
#include "names.h"
#include "query.h"
#include "question.h"
#include "semaphore_backend.h"
#include "semaphore_rules.h"
#include "waiter.h"

StaticAssertDecl(ZKLOCK_SEMAPHORE_TEXT_MAX <= ZKLOCK_RECORD_MAX, "numbers fit");

/* ms between two attempts, when something is about to change */
#define PAUSE 50

static ZkWaitEvent wait_event_number = {.name = "ZkLockPermitNumber"};

/* Find the UUID of the contender that has the permit.  False: the contender is lost, as
 * this backend will hear soon. */
static bool
find_contender(const ZkHeldLock *held, uint64 *hi, uint64 *lo)
{
	ZkLockEntry *entry =
		zklock_entry(zklock_proclock(held->proclock[ZKLOCK_EXCLUSIVE])->entry);
	ZkSessionShared session;
	LWLock *lock;
	const ZkContender *contender;

	zklock_session_read(&session);
	*hi = session.uuid_hi;
	lock = zklock_entry_lock(entry, LW_SHARED); /* our proclock pins it */
	contender = zklock_lock_queue_grant(&entry->queue, ZKLOCK_EXCLUSIVE);
	if (contender != NULL)
		*lo = contender->uuid;
	zklock_entry_unlock(lock);
	return contender != NULL;
}

/* List the queue; returns the number of children. */
static int
list_queue(const char *name, ZkLockChild **children)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_SEMAPHORE, .contenders = true};
	ZkNode *nodes;
	int n;
	int found = 0;

	strlcpy(query.name, name, sizeof(query.name));
	n = zklock_query(&query, &nodes);
	*children = palloc_extended(sizeof(ZkLockChild) * ((Size) n + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
		found += zklock_parse_child(nodes[i].name, &(*children)[found]);
	return found;
}

/* Make one attempt.  Returns the number, or 0: try again. */
static int
try_number(const ZkHeldLock *held)
{
	static char text[ZKLOCK_SEMAPHORE_TEXT_MAX];
	ZkRecord record;
	ZkLockChild *children;
	int n;
	uint64 hi;
	uint64 lo;
	size_t len;
	int number;

	if (!find_contender(held, &hi, &lo))
		return 0;
	(void) zklock_query_record(ZKLOCK_KIND_SEMAPHORE, held->name, 0, &record);
	if (!record.exists)
		return 0;
	n = list_queue(held->name, &children);
	number = zklock_semaphore_find_number(record.node.data, (size_t) record.node.datalen,
										  children, n, hi, lo, held->permits, text, &len);
	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many holders of semaphore \"%s\" have asked for the numbers of their permits",
						zklock_display_name(held->name)),
				 errdetail("The semaphore's znode has room for about %d.",
						   ZKLOCK_SEMAPHORE_TEXT_MAX / 40)));
	if (number == 0 || len == 0)
		return number;
	return zklock_query_write(ZKLOCK_KIND_SEMAPHORE, held->name, 0, &record, text, (int) len)
		? number
		: 0;
}

static bool
look_for_number(ZkHeldLock *held, MemoryContext context)
{
	MemoryContext save = MemoryContextSwitchTo(context);
	int number = try_number(held);

	MemoryContextSwitchTo(save);
	MemoryContextReset(context);
	(void) zklock_loss_claim(held);
	held->number = number;
	return number != 0;
}

typedef struct Wait
{
	ZkHeldLock *held;
	MemoryContext context;
} Wait;

static bool
look_again(ZkWaiter *waiter, int64 now)
{
	const Wait *wait = waiter->arg;

	return look_for_number(wait->held, wait->context);
}

static void
on_error(void *arg)
{
	errcontext("while waiting for the number of a permit of semaphore \"%s\"",
			   zklock_plain_name(((const Wait *) arg)->held->name));
}

int
zklock_semaphore_number(ZkHeldLock *held)
{
	Wait wait = {.held = held};
	ZkWait limits;
	ZkWaiter waiter = {
		.look = look_again,
		.context = on_error,
		.arg = &wait,
		.limits = &limits,
		.event = &wait_event_number,
		.longest = PAUSE,
	};

	(void) zklock_loss_claim(held);
	if (held->number != 0)
		return held->number;
	wait.context = AllocSetContextCreate(CurrentMemoryContext, "zklock permit",
										 ALLOCSET_DEFAULT_SIZES);
	zklock_wait_begin(&limits, ZKLOCK_WAIT_FOREVER);
	if (!look_for_number(held, wait.context))
		(void) zklock_wait_for(&waiter);
	MemoryContextDelete(wait.context);
	return held->number;
}
