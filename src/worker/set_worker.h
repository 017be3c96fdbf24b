/*-------------------------------------------------------------------------
 *
 * set_worker.h
 *	  Several locks in one step: what becomes of the sets that backends have posted.
 *
 * The worker's part of set_rules.h and set_shared.h.  dispatch.c feeds the queues; here
 * is which sets there are, and what goes into a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SET_WORKER_H
#define ZKLOCK_SET_WORKER_H

#include "client.h"
#include "table.h"

/* An entry that a set is of, or what was asked for one. */
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

/* A queue that is needed by this set has moved; "news": the set's backend should know. */
extern void zklock_set_worker_touch(uint64 set, bool news);

/* A set whose queues are to be fed JOINTLY, and then the transaction to be sent.  Tells
 * those that are granted. */
extern bool zklock_set_worker_next(ZkSetWork *work);

/* What the queues ask for, to be done in one transaction: "path" and "data" are palloc'd,
 * and freed when it is sent.  "data": NULL for a delete. */
extern void zklock_set_worker_add(const ZkSetMember *what, char *path, char *data, int len);

/* ZooKeeper's code, as of the client. */
extern int zklock_set_worker_send(ZkClient *client);

/*
 * The reply to a transaction says this to one after the other of those who asked.  False:
 * there are no more.
 */
extern bool zklock_set_worker_reply(const ZkMessage *message, ZkSetMember *what,
									ZkLockEvent *event);

/* Replies that are still to come are annulled. */
extern void zklock_set_worker_forget(void);

#endif /* ZKLOCK_SET_WORKER_H */
