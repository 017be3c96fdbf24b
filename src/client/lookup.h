/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  Names that are looked up while others do their work.
 *
 * A resolver may take minutes, or never answer.  So each name in a connect string has a
 * thread of its own while it is looked up, which calls getaddrinfo and nothing of ours,
 * and takes no signal.  What the names stand for by the latest answers can be asked at
 * any time.  A name that is being looked up is not looked up again, so there are never
 * more threads than names; where one of them has no answer yet, exit() ends the process
 * without a wait for it, and without what is left to be done at its end (on_exit).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOOKUP_H
#define ZKLOCK_LOOKUP_H

#include <stdbool.h>

typedef struct ZkLookup ZkLookup;

/*
 * The hosts of "host:port,...", and what they stand for.  It lives as long as the
 * process. Nothing is looked up yet.  NULL with errno set: the string is unusable, or
 * something that it takes cannot be had; "error" (room errlen) says what.
 */
extern ZkLookup *zklock_lookup_make(const char *hosts, char *error, int errlen);

/* Look all names up, or again, but for those that are being looked up. */
extern void zklock_lookup_ask(ZkLookup *lookup);

/* Readable when there is an answer that was not heard; -1: there are no names. */
extern int zklock_lookup_fd(ZkLookup *lookup);

/* Hear of answers: the descriptor is not readable any more. */
extern void zklock_lookup_hear(ZkLookup *lookup);

/* Is a name being looked up? */
extern bool zklock_lookup_asking(ZkLookup *lookup);

/*
 * The addresses that are known, "address:port,...", each once, allocated; NULL: none is.
 * A name that does not resolve any more stands for what it stood for before.  "error"
 * (room errlen): what is wrong with a name; "" if nothing is, by the answers so far.
 */
extern char *zklock_lookup_addresses(ZkLookup *lookup, char *error, int errlen);

/* What each name stands for, allocated; a line "host:port=address:port,..." for each, or
 * "host:port!what is wrong" if it never resolved; none if there is no answer yet. */
extern char *zklock_lookup_names(ZkLookup *lookup);

#endif /* ZKLOCK_LOOKUP_H */
