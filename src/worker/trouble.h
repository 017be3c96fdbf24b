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

/* The same without the log, where somebody else says so. */
extern void zklock_trouble_remember(const char *text);

/* A request that nobody waits for was refused: once, say so. */
extern void zklock_trouble_refused(const ZkMessage *message);

/* What each host answered, or what is wrong otherwise: for who waits for too long. */
extern void zklock_trouble_connecting(const char *text);

#endif /* ZKLOCK_TROUBLE_H */
