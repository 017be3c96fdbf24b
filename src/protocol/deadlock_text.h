/*-------------------------------------------------------------------------
 *
 * deadlock_text.h
 *	  Reads and writes the text of a server's znode under <root>/waits, which lists its
 *	  waits.
 *
 * An edge says that a grant of this server ends only after the wait of one of its
 * backends.  That backend has the grant itself; or the backend that has the grant waits
 * for it in PostgreSQL's lock manager, directly or through others. deadlock_rules.h
 * says how the search uses edges.
 *
 * Pure.  Any client of the ensemble may have written the text.  So the reader is
 * careful, and skips each edge that has another form.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_TEXT_H
#define ZKLOCK_DEADLOCK_TEXT_H

#include "contender.h"

/* Bytes of the description of local waits between the two backends; the rest is cut
 * off. */
#define ZKLOCK_VIA_MAX 400

/* Edges that a server publishes.  Further edges wait until there is room. */
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
 * Writes a text into "buf", which has room for ZKLOCK_WAITS_TEXT_MAX bytes and a NUL:
 * first the beginning, with the server's name in UTF-8, then one edge at a time.  Each
 * function returns where the next one writes.
 */
extern char *zklock_deadlock_waits_begin(char *buf, const char *server);
extern char *zklock_deadlock_waits_add(char *buf, const ZkWaitEdge *edge);

typedef struct ZkWaitsReader
{
	const char *p;
	const char *end;
	char server[ZKLOCK_NAME_MAX + 1];
} ZkWaitsReader;

/* The inverse. open: false if the text has another form.  The edges follow one at a
 * time; false: there are no more. */
extern bool zklock_deadlock_waits_open(ZkWaitsReader *reader, const char *text, size_t len);
extern bool zklock_deadlock_waits_next(ZkWaitsReader *reader, ZkWaitEdge *edge);

#endif /* ZKLOCK_DEADLOCK_TEXT_H */
