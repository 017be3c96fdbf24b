/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Questions to the ensemble on behalf of backends.
 *
 * A backend cannot talk to ZooKeeper.  It puts a question into one of a few
 * slots in shared memory; the worker asks, and passes the answer back through
 * the slot, one page of rows at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUERY_H
#define ZKLOCK_QUERY_H

#include "client.h"
#include "contender.h"

/* bytes of a node's data; what is longer is cut off there */
#define ZKLOCK_QUERY_DATA_MAX 1024

/* Which children of which directory? */
typedef struct ZkQuery
{
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];		 /* directory of that name; "": the one of
										  * all directories of the kind */
	char prefix[ZKLOCK_ENCODED_MAX + 1]; /* children whose names begin so */
	bool contenders;					 /* contenders only, in their order */
	int limit;							 /* so many at most; 0: all */
	int64_t remove;						 /* the child to delete, by its token, and to
										  * tell of none; 0: no such thing */
	bool raise;							 /* no question: raise the base of tokens ... */
	int64_t above;						 /* ... so that all are above this */
} ZkQuery;

/* A child: its name, and what ZooKeeper says of it. */
typedef struct ZkNode
{
	char *name; /* as in ZooKeeper */
	bool name_cut;
	int64_t token;
	int64_t ctime; /* ms since 1970 */
	int64_t ephemeral_owner;
	int nchildren;
	char *data; /* any bytes, and a NUL */
	int datalen;
	bool data_cut;
} ZkNode;

/* For shmem_request_hook and shmem_startup_hook. */
extern void zklock_query_request(void);
extern void zklock_query_startup(void);

/*
 * Ask.  The answer shows the directory as it was at some moment since the call.
 * Returns the number of children, palloc'd to *nodes; -1 if there is no such
 * directory.  Raises 58000 when ZooKeeper is out of reach for
 * zklock.connect_timeout or refuses, and 55000 without a worker.
 */
extern int zklock_query(const ZkQuery *query, ZkNode **nodes);

/*
 * Delete the contender of a lock that has this token, whoever's it is.  If it is
 * this server's, its holders have lost the lock before it goes.  False if there is
 * none.  Raises as zklock_query does.
 */
extern bool zklock_query_remove(const char *name, int64_t token);

/*
 * Raise the base of fencing tokens so that all that are given from now on, on whatever
 * server, are above a number.  Returns the new base; 0 if they are anyway; -1 if there is
 * no room for it.  Raises as zklock_query does.
 */
extern int64_t zklock_query_raise(int64_t above);

/* The worker: look at the slots; take a reply tagged ZKLOCK_TAG_QUERY. */
extern void zklock_query_work(void);
extern void zklock_query_message(const ZkMessage *message);

#endif /* ZKLOCK_QUERY_H */
