/*-------------------------------------------------------------------------
 *
 * lookup.h
 *	  Looks names up on threads, while the caller goes on.
 *
 * A resolver may take minutes, or never answer.  So each name in a connect string has
 * its own thread while it is looked up.  The thread calls getaddrinfo and nothing of
 * ours, and takes no signal.  The caller can ask at any time which addresses the names
 * have by the latest answers.  A name that is being looked up is not looked up again,
 * so there are never more threads than names.  If a thread has no answer yet, exit()
 * ends the process without waiting for it, and without the rest of the work at its end
 * (on_exit).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOOKUP_H
#define ZKLOCK_LOOKUP_H

#include <stdbool.h>

typedef struct ZkLookup ZkLookup;

/*
 * The hosts of "host:port,...", and their addresses.  It lives as long as the process.
 * Nothing is looked up yet.  NULL with errno set: the string is unusable, or a resource
 * is missing; "error" (room errlen) says which.
 */
extern ZkLookup *zklock_lookup_make(const char *hosts, char *error, int errlen);

/* Looks all names up, or again, except those that are being looked up. */
extern void zklock_lookup_ask(ZkLookup *lookup);

/* Readable when there is an answer that the caller has not heard; -1: there are no
 * names. */
extern int zklock_lookup_fd(ZkLookup *lookup);

/* Takes the answers: the descriptor is not readable any more. */
extern void zklock_lookup_hear(ZkLookup *lookup);

/* Is a name being looked up? */
extern bool zklock_lookup_asking(ZkLookup *lookup);

/*
 * Returns the known addresses, "address:port,...", each once, allocated; NULL: none is
 * known.  A name that does not resolve any more keeps its old addresses.  "error" (room
 * errlen): what is wrong with a name; "" if nothing is, by the answers so far.
 */
extern char *zklock_lookup_addresses(ZkLookup *lookup, char *error, int errlen);

/* Returns what each name stands for, allocated: a line "host:port=address:port,..."
 * for each name, or "host:port!what is wrong" if it never resolved; no line if there
 * is no answer yet. */
extern char *zklock_lookup_names(ZkLookup *lookup);

#endif /* ZKLOCK_LOOKUP_H */
