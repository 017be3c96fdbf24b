/*-------------------------------------------------------------------------
 *
 * agent.h
 *	  Agents: the parts of the worker, each of which has one task.
 *
 * worker.c has the list of agents.  It calls each in turn, and treats all of them
 * alike.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AGENT_H
#define ZKLOCK_AGENT_H

#include "client.h"
#include "protocol.h"

/* A watch that has fired, on a directory (path.h) or on a child of one. */
typedef struct ZkWatch
{
	ZkLockKind kind;
	const char *name;	   /* of the directory */
	const char *child;	   /* NULL: on the directory itself */
	ZkMessageType message; /* a deletion uses up both watches that there can be on a path: */
	bool children;		   /* that on the children */
	bool data;			   /* that on the node itself */
} ZkWatch;

/* The questions that an agent may be asked about itself.  An answer may be a moment
 * old. */
typedef enum ZkAgentAsk
{
	ZKLOCK_AGENT_WANTS, /* somebody has something by the lease, or waits for it */
	ZKLOCK_AGENT_BOUND, /* others go by something that ends with this ZooKeeper session */
	ZKLOCK_AGENT_HOLDS, /* somebody has something that ends with this ZooKeeper session */
	ZKLOCK_AGENT_TICKS, /* it goes on at the next TICK */
	ZKLOCK_AGENT_OWES, /* the ensemble is to be told something before the server ends ... */
	ZKLOCK_AGENT_BUSY /* ... or better is: it finds out by itself */
} ZkAgentAsk;

/* An agent leaves the functions that it does not need NULL. */
typedef struct ZkAgent
{
	/* As ZkSessionListener has it. */
	void (*event)(ZkLockEventType type);

	/* Replies to its requests, which have this tag; set before all else is called.  NULL:
	 * to those of lock queues (tag.h). */
	uint32 *tag;
	void (*message)(const ZkMessage *message);

	/* True: the watch was its own. */
	bool (*watch)(const ZkWatch *watch);

	/* Each time round: do what is to be done.  ms until this should be called again, -1:
	 * no hurry. */
	long (*work)(void);

	bool (*ask)(ZkAgentAsk what);

	/* At the start, and after a reload of the settings. */
	void (*reload)(void);

	/* The server stops. */
	void (*stop)(void);
} ZkAgent;

#endif /* ZKLOCK_AGENT_H */
