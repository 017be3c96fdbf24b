/*-------------------------------------------------------------------------
 *
 * contenders.h
 *	  Who is in the queue of a name, in the whole ensemble, and whose each contender is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDERS_H
#define ZKLOCK_CONTENDERS_H

#include "utils/timestamp.h"

#include "query.h"
#include "report.h"

/* A queue, in its order: nodes, what their names say, and who has the lock. */
typedef struct ZkContenders
{
	int n;
	ZkNode *nodes;
	ZkLockChild *children;
	bool *holds;
} ZkContenders;

/* Whose a contender is, according to its server. */
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

/*
 * Ask for a queue; for all servers.  Raise as zklock_query does.
 */
extern void zklock_contenders_ask(ZkLockKind kind, const char *name,
								  ZkContenders *contenders);
extern void zklock_members_ask(ZkMembers *members);
/* What another server reports, NULL if "i" has none, or is this server's or an old node
 * of a server that has got another name.  What it says is as of the node's mtime. */
extern const ZkReport *zklock_members_report(ZkMembers *members, int i);
/* Whose is the contender "i" of a name's queue?  False if its server does not say. */
extern bool zklock_members_owner(ZkMembers *members, ZkLockKind kind, const char *name,
								 const ZkContenders *contenders, int i, ZkOwner *owner);

/* When was it "age" ms old at the time of the report? */
static inline TimestampTz
zklock_owner_time(const ZkOwner *owner, int64 age)
{
	return owner->as_of - age * 1000;
}

#endif /* ZKLOCK_CONTENDERS_H */
