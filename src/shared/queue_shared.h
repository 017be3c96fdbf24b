/*-------------------------------------------------------------------------
 *
 * queue_shared.h
 *	  Keeps takes, puts and payloads of queues in shared memory, for backends and the
 *	  worker.
 *
 * A take is one call of zk_queue_take and its outcome.  The backend makes the take and
 * waits; the worker gets it an item (worker/queue_takes.c).  When the transaction that
 * has the item is over, the worker deletes the item or gives it back.  A put is what
 * one transaction puts into one queue.  The backend writes the put before the commit,
 * in chunks, through the worker (worker/queue_puts.c).  The worker settles the put when
 * the transaction is over.
 *
 *	 put          who moves on   to
 *	 FREE         backend        WRITING: chunks are posted
 *	 WRITING      backend        COMMITTED, ABORTED: the transaction is over
 *	 COMMITTED    worker         FREE: the items are in the queue
 *	 ABORTED      worker         FREE: the chunks are gone
 *
 *	 buffer       who moves on   to
 *	 FREE         backend        POSTED: a chunk to be written
 *	              worker         READING: for the payload of a take, which is asked for
 *	 POSTED       worker         SENDING, then FREE
 *	              backend        FREE: it gives up
 *	 READING      worker         FREE: it was not to be had, or was taken too often
 *	              backend        FREE: the take is READ, and the backend has read it or left
 *
 * The mailbox's lock protects all of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_SHARED_H
#define ZKLOCK_QUEUE_SHARED_H

#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "contender.h"
#include "mailbox.h"
#include "queue_put_rules.h"
#include "queue_rules.h"

/* Payloads on their way at a time; further ones wait. */
#define ZKLOCK_QUEUE_BUFFERS 8

/* The most puts that are not settled at a time; further ones wait. */
#define ZKLOCK_QUEUE_PUTS 256

/* The known reason for the loss of a transaction's item. */
typedef enum ZkItemLoss
{
	ZKLOCK_ITEM_KEPT, /* it has not */
	ZKLOCK_ITEM_SESSION_ENDED,
	ZKLOCK_ITEM_TORN,	 /* the marks were not there, on a new connection */
	ZKLOCK_ITEM_UNPROVEN /* the clock said so, and so the client was told */
} ZkItemLoss;

typedef struct ZkQueueTake
{
	ZkTake take;
	int pid;					/* whose */
	int32 waker;				/* the take on whose cv its backend sleeps */
	ZkItemLoss loss;			/* of take.lost */
	TimestampTz unproven_since; /* UNPROVEN */
	uint32 serial;				/* of the take, never 0 */
	int32 next;					/* free list */
	uint64 order; /* takes are served in the order of these; later: when its item was to
				   * be given back, in the same order */
	uint64 puts;  /* "committed", when it began: it sees what was put before */
	ConditionVariable cv;
	bool waits;	  /* if there is none, it waits for one */
	bool none;	  /* there was no item at some moment since it began */
	bool refused; /* by the ensemble: rc.  HELD: a look at the marks */
	int rc;
	bool failing; /* ... it is about the queue of failed items */
	bool pause; /* a refused request is repeated at the next TICK; the worker's, as is: */
	ZkTakeRequest made; /* for this one a directory was missing, and we have made it */
	int buffer;			/* READING, WORN, READ; -1: none */
	int len;			/* of the payload */
	int64 since;		/* ms since 1970: in the queue since then */
	char item[ZKLOCK_ITEM_NAME]; /* its id comes first; from TAKING on */
	char queue[ZKLOCK_NAME_MAX + 1];
} ZkQueueTake;

typedef struct ZkQueuePut
{
	ZkPut put;
	uint32 serial; /* of the put in this life, never 0 */
	int pid;	   /* WRITING: whose */
	uint64 order;  /* COMMITTED: as many had before */
	ConditionVariable cv;
	int rc;		  /* refused by the ensemble; 0: not */
	int64 length; /* of the queue, as the worker saw it before; -1: not yet */
	int limit;	  /* ... and what it may be, before what is put here */
	char queue[ZKLOCK_NAME_MAX + 1];
} ZkQueuePut;

typedef enum ZkBufferState
{
	ZKLOCK_BUFFER_FREE,
	ZKLOCK_BUFFER_POSTED,
	ZKLOCK_BUFFER_SENDING,
	ZKLOCK_BUFFER_READING
} ZkBufferState;

typedef struct ZkQueueBuffer
{
	ZkBufferState state;
	int put; /* POSTED */
	uint32 serial;
	uint32 round;
	uint32 chunk;
	int len;
	char data[ZKLOCK_CHUNK_MAX];
} ZkQueueBuffer;

typedef enum ZkQueueCounter
{
	ZKLOCK_QUEUE_PUT,	   /* items put */
	ZKLOCK_QUEUE_TAKEN,	   /* ... taken */
	ZKLOCK_QUEUE_RETURNED, /* ... given back */
	ZKLOCK_QUEUE_LOST	   /* ... lost */
} ZkQueueCounter;

#define ZKLOCK_QUEUE_COUNTERS (ZKLOCK_QUEUE_LOST + 1)

typedef struct ZkQueueShared
{
	ZkMailbox box;
	uint64 life;			   /* random: of this shared memory */
	bool looked;			   /* the worker's: what lives before it left is settled */
	ConditionVariable room_cv; /* a buffer or a put is free */
	uint64 last_order;
	uint64 committed; /* puts that have, ever */
	int32 free_take;
	int32 takes_high; /* no take from here on was ever in use */
	int32 takes_used;
	int ntakes;
	pg_atomic_uint64 count[ZKLOCK_QUEUE_COUNTERS];
	ZkQueuePut staged[ZKLOCK_QUEUE_PUTS];
	ZkQueueBuffer buffer[ZKLOCK_QUEUE_BUFFERS];
	ZkQueueTake taken[FLEXIBLE_ARRAY_MEMBER];
} ZkQueueShared;

extern ZkQueueShared *zklock_queue_shared;

extern const ZkSharedPart zklock_queue_part;

/*
 * Makes a take for this queue; NULL: there is none left.  "most": attempts, 0: any
 * number.  The others wake its backend, free a take that is over, and free only its
 * buffer.  With the lock.
 */
extern ZkQueueTake *zklock_queue_take_make(const char *queue, bool waits, int most);
extern void zklock_queue_take_wake(const ZkQueueTake *taken);
extern void zklock_queue_take_free(ZkQueueTake *taken);
extern void zklock_queue_take_free_buffer(ZkQueueTake *taken);

/* A free buffer, or NULL.  With the lock. */
extern ZkQueueBuffer *zklock_queue_buffer(void);

/* Finds the session, other than this one, that has most of the puts that are being
 * written, and how many; 0: there is none.  Without the lock. */
extern int zklock_queue_writer(int pid, int *nputs);

/* Has any transaction of this server an item, or has the worker anything to tell the
 * ensemble? */
extern bool zklock_queue_busy(void);

/* Has any transaction an item, or has the worker a commit to tell the ensemble?
 * Rollbacks need no word: items come back with the session's end, and the next life
 * of this server deletes the staged chunks that it finds. */
extern bool zklock_queue_owed(void);

/* Has any transaction an item, or is one about to get it?  The item goes with the
 * session. */
extern bool zklock_queue_has_items(void);

extern void zklock_queue_count(ZkQueueCounter counter, int64 n);
extern void zklock_queue_reset(void);

#endif /* ZKLOCK_QUEUE_SHARED_H */
