/*-------------------------------------------------------------------------
 *
 * set_worker.h
 *	  The worker's part in sets, which acquire several locks in one step: handles the
 *	  sets that backends have posted.
 *
 * This is the worker's part of set_rules.h and set_shared.h.  dispatch.c feeds the
 * queues.  This file keeps the list of sets, and collects the operations of a
 * transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_WORKER_H
#define ZKLOCK_SET_WORKER_H

#include "client.h"
#include "table.h"

/* An entry that belongs to a set, or a request for such an entry. */
typedef struct ZkSetMember
{
	int32 entry;
	uint32 generation;
	uint64 uuid;
	bool creates; /* else it deletes */
} ZkSetMember;

typedef struct ZkSetWork
{
	ZkLockMode mode;
	int n;
	const ZkSetMember *member; /* good until the next call here */
} ZkSetWork;

/* A queue of this set has changed.  "news": the set's backend should know. */
extern void zklock_set_worker_touch(uint64 set, bool news);

/* Find the next set whose queues are to be fed JOINTLY before its transaction is sent.
 * Tells the backends of sets that are granted. */
extern bool zklock_set_worker_next(ZkSetWork *work);

/* Add an operation that a queue asks for to the transaction.  "path" and "data" are
 * palloc'd, and are freed when the transaction is sent.  "data": NULL for a delete. */
extern void zklock_set_worker_add(const ZkSetMember *what, char *path, char *data, int len);

/* Send the transaction.  Returns ZooKeeper's code, as the client's functions do. */
extern int zklock_set_worker_send(ZkClient *client);

/* Read the reply to a transaction: each call returns the event for the next member that
 * has asked.  False: there are no more. */
extern bool zklock_set_worker_reply(const ZkMessage *message, ZkSetMember *what,
									ZkLockEvent *event);

/* Forget all transactions without a reply: they are annulled. */
extern void zklock_set_worker_forget(void);

#endif /* ZKLOCK_SET_WORKER_H */
