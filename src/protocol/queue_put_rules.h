/*-------------------------------------------------------------------------
 *
 * queue_put_rules.h
 *	  Moves what a transaction puts into a queue, chunk by chunk.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  Backends and the
 * worker link it, and the simulator (test/sim/queue_put_sim.c).
 *
 * Before the commit the backend posts all chunks, and the worker creates them under
 * puts/.  That is one round.  If a reply is lost, or the directory is missing, the
 * backend posts all of them in another round: a chunk that is there by then is as good
 * as one that was created.  Replies of an earlier round do not count, since they may be
 * about a chunk that this round has not posted yet.
 *
 * When the transaction is over, the worker settles one chunk after the other.  After a
 * rollback it deletes the chunk.  After a commit it deletes the chunk and makes its
 * items, in one transaction of the ensemble.  Before that it reads the chunk, unless it
 * has written the chunk itself and still knows what it wrote: nobody writes a chunk
 * twice.  Each request can be repeated until its outcome is known: a chunk that is not
 * there was settled before.  But a read may come from a server that lags behind.  So it
 * proves that the chunk is not there only when a write was acknowledged on the same
 * connection.
 *
 * The items of one queue are made in the order of the commits.  What is known could
 * overtake what is read first.  So behind a put that is being read the worker reads,
 * too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_PUT_RULES_H
#define ZKLOCK_QUEUE_PUT_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "queue_rules.h"

typedef enum ZkPutState
{
	ZKLOCK_PUT_FREE,
	ZKLOCK_PUT_WRITING,	  /* the transaction goes on */
	ZKLOCK_PUT_COMMITTED, /* the items are to be made */
	ZKLOCK_PUT_ABORTED	  /* the chunks are to be deleted */
} ZkPutState;

/* What one transaction puts into one queue. */
typedef struct ZkPut
{
	uint8_t state;	/* ZkPutState */
	bool again;		/* WRITING: another round is needed */
	bool open;		/* over: a request is out */
	bool reading;	/* ... a READ */
	bool pause;		/* one was refused: again at the next TICK */
	bool stuck;		/* ... since the last chunk that was settled: nobody waits for it */
	uint32_t round; /* of posting */
	int nchunks;	/* posted */
	int acked;		/* ... in this round, and known to be there */
	int settled;	/* ... when the transaction is over */
} ZkPut;

/* The backend begins. */
extern void zklock_put_begin(ZkPut *put);

/* The backend has posted this chunk.  The first one is 0. */
extern void zklock_put_posted(ZkPut *put, int chunk);

/* The backend begins another round. */
extern void zklock_put_repeat(ZkPut *put);

/*
 * The ensemble has answered the worker's create of a chunk that was posted in this
 * round.  True: the directory is missing, and the worker has to make it.  A refusal
 * (REFUSED) is for the backend.
 */
extern bool zklock_put_created(ZkPut *put, uint32_t round, ZkReply rc);

/* The worker could not send, or will get no reply any more. */
extern void zklock_put_lost(ZkPut *put);

/* Are all chunks there?  Ask only when the backend has posted all. */
extern bool zklock_put_is_written(const ZkPut *put);

/* The transaction is over. */
extern void zklock_put_end(ZkPut *put, bool committed);

/* The next request, about chunk "settled". */
typedef enum ZkPutRequest
{
	ZKLOCK_SETTLE_NOTHING,
	ZKLOCK_SETTLE_READ,
	ZKLOCK_SETTLE_MOVE, /* multi: delete the chunk, create its items */
	ZKLOCK_SETTLE_DROP,
	ZKLOCK_SETTLE_FREE /* nothing is left to be done: the put is FREE now */
} ZkPutRequest;

/*
 * Returns the next request.  It counts as sent.
 *
 *	known	the caller knows what the chunk says: it has written it
 *	behind	a put that has committed before is being read; the caller asks in the order
 *			of the commits, and begins with false
 */
extern ZkPutRequest zklock_put_request(ZkPut *put, bool known, bool *behind);

/*
 * The request was answered.
 *
 *	failed	of a MOVE that was refused: which of its parts; 0 is the chunk
 *	proven	a write was acknowledged on this connection before
 *
 * The data of a READ may be no chunk: EXISTS.  Returns MOVE if the chunk that was read
 * has to be moved, else NOTHING.
 */
extern ZkPutRequest zklock_put_reply(ZkPut *put, ZkPutRequest request, ZkReply rc,
									 int failed, bool proven);

/* A heartbeat was acknowledged: a refused request may be sent again. */
extern void zklock_put_tick(ZkPut *put);

/* The connection or the worker is a new one: no request is open any more. */
extern void zklock_put_connection(ZkPut *put);

#endif /* ZKLOCK_QUEUE_PUT_RULES_H */
