/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Asks questions of the ensemble for backends.
 *
 * A backend cannot talk to ZooKeeper.  It posts a question (question.h), and the worker
 * asks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUERY_H
#define ZKLOCK_QUERY_H

#include "question.h"
#include "zktime.h"

/* A child: its name, and its data and facts in ZooKeeper. */
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

/* May this server not read the node?  Then only its name is known. */
static inline bool
zklock_node_unread(const ZkNode *node)
{
	return node->ctime == 0;
}

/*
 * Ask.  The answer shows the directory as it was at some moment since the call.
 * Returns the number of children, palloc'd to *nodes; -1 if there is no such directory.
 * Raises 58000 when ZooKeeper is out of reach for zklock.connect_timeout or refuses,
 * 55000 without a worker, and 57P01 while the server stops.
 */
extern int zklock_query(const ZkQuery *query, ZkNode **nodes);

/* The same, but it returns -1 without an error, unless cancelled, if there is no
 * connection, or no answer by "until" (ns of CLOCK_BOOTTIME). */
extern int zklock_query_until(const ZkQuery *query, int64 until, ZkNode **nodes);

/*
 * Is there no connection, though there was one some seconds ago?  Then a worker is being
 * replaced, or the connection moves.  The other function waits while it is so, until
 * "until" (ns of CLOCK_BOOTTIME) at most, and raises only what interrupts raise.
 */
extern bool zklock_query_moves(void);
extern void zklock_query_await_move(int64 until);

/*
 * Delete the contender of a lock or a permit that has this token, of any server.  If it
 * is this server's, its holders have lost the lock before it goes.  False if there is
 * no such contender.  Raises as zklock_query does.
 */
extern bool zklock_query_remove(ZkLockKind kind, const char *name, int64_t token);

/*
 * Raise the base of fencing tokens, so that all tokens given from now on, on any
 * server, are above the number.  Returns the new base; 0 if they are above it without
 * that; -1 if there is no room for it.  Raises as zklock_query does.
 */
extern int64_t zklock_query_raise(int64_t above);

/* Delete the children of a part of a queue of work, except those that have children
 * themselves.  Returns the number of deleted children.  Raises as zklock_query does. */
extern int64_t zklock_query_purge(const char *name, const char *part);

/* A job's record, or the content of a semaphore's directory, with the time and the
 * session of the read. */
typedef struct ZkRecord
{
	bool exists;
	ZkNode node; /* if it exists */
	int64_t now; /* ms since 1970, by the ensemble's clock */
	int64 session;
	int rc; /* ZooKeeper's code */
} ZkRecord;

/*
 * Read the record of a job, no older than the call.  If "until" is 0 it raises as
 * zklock_query does; else it returns false and raises no error, as zklock_query_until
 * does.
 */
extern bool zklock_query_record(ZkLockKind kind, const char *name, int64 until,
								ZkRecord *record);

/* Read the records of all jobs; returns their number.  Raises likewise. */
extern int zklock_query_records(ZkNode **nodes, int64_t *now);

/*
 * Write the record of a job if it has not changed since it was read.  False: it has, or
 * nobody knows the outcome of the write; then read the record again.  Raises likewise.
 */
extern bool zklock_query_write(ZkLockKind kind, const char *name, int64 until,
							   const ZkRecord *record, const char *data, int len);

#endif /* ZKLOCK_QUERY_H */
