/*-------------------------------------------------------------------------
 *
 * contenders.h
 *	  Lists the contenders in the queue of a name, in the whole ensemble, with their
 *	  owners.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDERS_H
#define ZKLOCK_CONTENDERS_H

#include "utils/timestamp.h"

#include "query.h"
#include "report.h"

/* A queue, in its order: the nodes, the parts of their names, and who has the lock. */
typedef struct ZkContenders
{
	int n;
	ZkNode *nodes;
	ZkLockChild *children;
	bool *holds;
} ZkContenders;

/* The owner of a contender, according to the contender's server. */
typedef struct ZkOwner
{
	TimestampTz as_of; /* of the report; of now if it is this server's */
	ZkReportItem item;
} ZkOwner;

/* All servers with their reports. */
typedef struct ZkMembers
{
	int n;
	ZkNode *nodes;
	ZkReport **reports; /* NULL: not read yet */
	int64 session;		/* of this server; 0: none */
} ZkMembers;

/* Ask for a queue, or for all servers.  Both raise as zklock_query does. */
extern void zklock_contenders_ask(ZkLockKind kind, const char *name,
								  ZkContenders *contenders);
extern void zklock_members_ask(ZkMembers *members);
/*
 * The report of another server.  NULL if "i" has none, is this server's, or is an old
 * node of a server whose name has changed.  The report is as old as the node's mtime.
 */
extern const ZkReport *zklock_members_report(ZkMembers *members, int i);
/*
 * Find the owner of contender "i" of a name's queue.  False if its server does not say.
 */
extern bool zklock_members_owner(ZkMembers *members, ZkLockKind kind, const char *name,
								 const ZkContenders *contenders, int i, ZkOwner *owner);

/* The time of an event that was "age" ms old when the report was made. */
static inline TimestampTz
zklock_owner_time(const ZkOwner *owner, int64 age)
{
	return owner->as_of - age * 1000;
}

#endif /* ZKLOCK_CONTENDERS_H */
