/*-------------------------------------------------------------------------
 *
 * hosts.h
 *	  Keeps the connect string, and the latest answers of the hosts in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOSTS_H
#define ZKLOCK_HOSTS_H

#include "tries.h"

/* The connect string to use.  A chroot is part of every path, so it belongs to the
 * session, as the root does: a session that lives keeps its chroot. */
extern void zklock_hosts_effective(char *buf, size_t size);

/*
 * Does it differ from the connect string in use?  Logs it if a new chroot has to wait.
 */
extern bool zklock_hosts_changed(void);

/*
 * The connect string to use, palloc'd, with addresses in place of the names that are
 * known.  NULL, with errno set: there is none, and "error" says why.  EAGAIN: the
 * answer of the name service is not there yet.  This function asks for the addresses as
 * long as nothing is known.
 */
extern char *zklock_hosts_addresses(const char *hosts, char *error, size_t errlen);

/* Ask again for the addresses of the names.  Returns whether an answer is awaited. */
extern void zklock_hosts_ask(void);
extern bool zklock_hosts_asking(void);

/*
 * A descriptor that is readable when there is an answer, until zklock_hosts_hear; -1:
 * none will come.  Hearing returns true if there are addresses now, and there were none
 * when the worker needed them.
 */
extern int zklock_hosts_fd(void);
extern bool zklock_hosts_hear(void);

/* A line of the library's log while there is no connection.  It may contain a host's
 * answer. */
extern void zklock_hosts_heard(const char *line);

/* There is a connection: forget the answers of the hosts. */
extern void zklock_hosts_reached(void);

/* A host has sent damaged data on a connection, which is closed for that.  Log it, once
 * until a write is acknowledged (zklock_hosts_proven). */
extern void zklock_hosts_damaged(const char *host, const char *why);
extern void zklock_hosts_proven(void);

/* The record of tries at the hosts, for the choice of the next one by
 * zklock_client_hosts. */
extern ZkTries *zklock_hosts_tries(void);

#endif /* ZKLOCK_HOSTS_H */
