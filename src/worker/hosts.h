/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  The connect string, and what the hosts in it have answered.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOSTS_H
#define ZKLOCK_HOSTS_H

#include "tries.h"

/*
 * The connect string to use.  A chroot is part of every path, so like the root
 * it belongs to the session: one that lives keeps it.
 */
extern void zklock_hosts_effective(char *buf, size_t size);

/* Is it another than the one in use?  Says so in the log if a chroot has to wait. */
extern bool zklock_hosts_changed(void);

/*
 * The connect string to use, with addresses for names as far as they are known, palloc'd.
 * NULL, with errno set: there is none, and "error" says why.  EAGAIN: the answer is
 * awaited. To ask is up to this, as long as nothing is known.
 */
extern char *zklock_hosts_addresses(const char *hosts, char *error, size_t errlen);

/* Ask anew what names stand for.  Is an answer awaited? */
extern void zklock_hosts_ask(void);
extern bool zklock_hosts_asking(void);

/* Readable when there is an answer, until it is heard; -1: none comes.  Hear of it: true
 * if there are addresses now, where there were none when they were wanted. */
extern int zklock_hosts_fd(void);
extern bool zklock_hosts_hear(void);

/* A line of the library's log while there is no connection: what a host answered,
 * perhaps. */
extern void zklock_hosts_heard(const char *line);

/* There is a connection: forget the answers. */
extern void zklock_hosts_reached(void);

/* A host has sent rubbish on a connection, which is closed for that.  Log it, once until
 * a write is acknowledged (zklock_hosts_proven). */
extern void zklock_hosts_damaged(const char *host, const char *why);
extern void zklock_hosts_proven(void);

/* What is known of the hosts, for the choice of the next one: for zklock_client_hosts. */
extern ZkTries *zklock_hosts_tries(void);

#endif /* ZKLOCK_HOSTS_H */
