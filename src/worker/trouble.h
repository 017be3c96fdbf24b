/*-------------------------------------------------------------------------
 *
 * trouble.h
 *	  What went wrong with the session, for people.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TROUBLE_H
#define ZKLOCK_TROUBLE_H

#include "client.h"

/* Remember, and log, something that went wrong.  Shown in zk_session. */
extern void zklock_trouble(const char *fmt, ...) pg_attribute_printf(1, 2);

/* The same, logged only if "log": not where somebody else logs it, nor each time that a
 * trouble comes again.  It is remembered each time, since another may have come between. */
extern void zklock_trouble_again(bool log, const char *fmt, ...) pg_attribute_printf(2, 3);

/* A request that nobody waits for was refused: the log is told once; and who waits for
 * ZooKeeper, if the server is too old. */
extern void zklock_trouble_refused(const ZkMessage *message);

/* A request of this client could not be sent, unless rc says that it was, or the
 * connection is lost, on whose next one it is made again: an ERROR, 58000. */
extern void zklock_trouble_sending(ZkClient *client, int rc);

/* For who waits for too long: what each host answered. */
extern void zklock_trouble_attempts(const char *text);

/* ... or what is wrong otherwise. */
extern void zklock_trouble_connecting(const char *text);

#endif /* ZKLOCK_TROUBLE_H */
