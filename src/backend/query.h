/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Questions to the ensemble on behalf of backends.
 *
 * A backend cannot talk to ZooKeeper: it has the worker ask, by a question
 * (question.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUERY_H
#define ZKLOCK_QUERY_H

#include "question.h"
#include "zktime.h"

/* A child: its name, and what ZooKeeper says of it. */
typedef struct ZkNode
{
	char *name; /* as in ZooKeeper */
	bool name_cut;
	int64_t token;
	int64_t czxid;
	int64_t ctime; /* ms since 1970 */
	int64_t mtime;
	int64_t ephemeral_owner;
	int nchildren;
	uint32 ncreated; /* children that it ever had */
	bool marked;	 /* it has a child of the query's mark */
	int32 version;	 /* times that the data were written */
	char *data;		 /* any bytes, and a NUL */
	int datalen;
	bool data_cut; /* they are longer, or may not be read */
} ZkNode;

/* It may not be read: nothing is known but its name. */
static inline bool
zklock_node_unread(const ZkNode *node)
{
	return node->ctime == 0;
}

/*
 * Ask.  The answer shows the directory as it was at some moment since the call.
 * Returns the number of children, palloc'd to *nodes; -1 if there is no such
 * directory.  Raises 58000 when ZooKeeper is out of reach for
 * zklock.connect_timeout or refuses, and 55000 without a worker and while the server
 * stops.
 */
extern int zklock_query(const ZkQuery *query, ZkNode **nodes);

/* The same, but -1 and no error, unless canceled, if there is no answer by then (ns of
 * CLOCK_BOOTTIME), or no connection. */
extern int zklock_query_until(const ZkQuery *query, int64 until, ZkNode **nodes);

/*
 * Delete the contender of a lock or a permit that has this token, whoever's it is.  If it
 * is this server's, its holders have lost the lock before it goes.  False if there is
 * none.  Raises as zklock_query does.
 */
extern bool zklock_query_remove(ZkLockKind kind, const char *name, int64_t token);

/*
 * Raise the base of fencing tokens so that all that are given from now on, on whatever
 * server, are above a number.  Returns the new base; 0 if they are anyway; -1 if there is
 * no room for it.  Raises as zklock_query does.
 */
extern int64_t zklock_query_raise(int64_t above);

/*
 * Delete the children of a part of a queue of work, but for those that have children.
 * Returns how many were deleted.  Raises as zklock_query does.
 */
extern int64_t zklock_query_purge(const char *name, const char *part);

/* A job's record, or what the directory of a semaphore says, and when and where it was
 * so. */
typedef struct ZkRecord
{
	bool exists;
	ZkNode node; /* if it exists */
	int64_t now; /* ms since 1970, by the ensemble's clock */
	int64 session;
} ZkRecord;

/*
 * The record of a job, no older than the call.  Raises as zklock_query does, if "until"
 * is 0; else false and no error, as with zklock_query_until.
 */
extern bool zklock_query_record(ZkLockKind kind, const char *name, int64 until,
								ZkRecord *record);

/* Those of all jobs; returns how many.  Raises likewise. */
extern int zklock_query_records(ZkNode **nodes, int64_t *now);

/*
 * Write the record of a job, if it is as it was read.  False: it is not, or nobody knows
 * what came of it, so it is to be read again.  Raises likewise.
 */
extern bool zklock_query_write(ZkLockKind kind, const char *name, int64 until,
							   const ZkRecord *record, const char *data, int len);

#endif /* ZKLOCK_QUERY_H */
