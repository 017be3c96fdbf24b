/*-------------------------------------------------------------------------
 *
 * deadlock_text.h
 *	  What a server says of its waits: the text of its znode under <root>/waits.
 *
 * An edge says that a grant of this server ends only when one of its backends has waited
 * enough: the backend that has the grant is that backend, or waits for it in PostgreSQL's
 * lock manager, directly or by others.  deadlock_rules.h has what is made of edges.
 *
 * Pure.  Whoever can reach the ensemble may have written the text: it is read with care,
 * and what has another form is skipped, edge by edge.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_TEXT_H
#define ZKLOCK_DEADLOCK_TEXT_H

#include "contender.h"

/* Bytes of what is said of local waits between the two backends; more is cut off. */
#define ZKLOCK_VIA_MAX 400

/* Edges that a server publishes; those beyond have to wait for room. */
#ifndef ZKLOCK_MAX_EDGES
#define ZKLOCK_MAX_EDGES 256
#endif

typedef struct ZkWaitEdge
{
	uint64_t number;	/* the server gives no number to two edges */
	int64_t stamp;		/* zxid of the write that made it known; 0: of this text's */
	uint64_t grant;		/* contender: low half of its UUID */
	uint64_t contender; /* the one that waits; of "joins" the grant that it would join */
	bool joins;			/* waits for the end of a spent grant of its own server */
	ZkLockKind kind;	/* of what is waited for */
	char name[ZKLOCK_NAME_MAX + 1];
	int holder;					  /* process that has the grant */
	int waiter;					  /* ... that waits for "name" */
	char via[ZKLOCK_VIA_MAX + 1]; /* UTF-8: local waits from the one to the other */
} ZkWaitEdge;

/* Any number of edges up to ZKLOCK_MAX_EDGES fits. */
#define ZKLOCK_WAITS_TEXT_MAX                                                            \
	(4 * ZKLOCK_NAME_MAX +                                                               \
	 ZKLOCK_MAX_EDGES * (300 + 3 * ZKLOCK_NAME_MAX + 2 * ZKLOCK_VIA_MAX))

/*
 * Write a text into "buf", which has room for ZKLOCK_WAITS_TEXT_MAX bytes and a NUL:
 * first this, with the server's name in UTF-8, then an edge at a time.  Each returns
 * where the next one goes.
 */
extern char *zklock_deadlock_waits_begin(char *buf, const char *server);
extern char *zklock_deadlock_waits_add(char *buf, const ZkWaitEdge *edge);

typedef struct ZkWaitsReader
{
	const char *p;
	const char *end;
	char server[ZKLOCK_NAME_MAX + 1];
} ZkWaitsReader;

/* The inverse.  False if the text is none; one edge at a time, false if there are no
 * more. */
extern bool zklock_deadlock_waits_open(ZkWaitsReader *reader, const char *text, size_t len);
extern bool zklock_deadlock_waits_next(ZkWaitsReader *reader, ZkWaitEdge *edge);

#endif /* ZKLOCK_DEADLOCK_TEXT_H */
