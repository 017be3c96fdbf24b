/*-------------------------------------------------------------------------
 *
 * trouble.h
 *	  Reports what went wrong with the session, in the log and in zk_session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TROUBLE_H
#define ZKLOCK_TROUBLE_H

#include "client.h"

/* Log something that went wrong, and remember it for zk_session. */
extern void zklock_trouble(const char *fmt, ...) pg_attribute_printf(1, 2);

/*
 * The same, logged only if "log" is true: not if other code logs it, and not each time
 * that a trouble comes again.  It is remembered each time, since there may have been
 * another trouble in between.
 */
extern void zklock_trouble_again(bool log, const char *fmt, ...) pg_attribute_printf(2, 3);

/* A request that nobody waits for was refused.  Log it once.  If the server is too old,
 * also tell the backends that wait for ZooKeeper. */
extern void zklock_trouble_refused(const ZkMessage *message);

/*
 * Raise an ERROR (58000) if the client could not send a request.  "rc" may say that the
 * request was sent, or that the connection is lost; then the request is made again on
 * the next connection.
 */
extern void zklock_trouble_sending(ZkClient *client, int rc);

/* Set each host's answer, for a backend that has waited for too long. */
extern void zklock_trouble_attempts(const char *text);

/* Set what else is wrong, for such a backend. */
extern void zklock_trouble_connecting(const char *text);

#endif /* ZKLOCK_TROUBLE_H */
