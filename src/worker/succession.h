/*-------------------------------------------------------------------------
 *
 * succession.h
 *	  What the worker knows of the directories of locks that come back.
 *
 * An entry of the lock table is gone as soon as nobody needs it; what its queue knew of
 * the directory (ZkLockSuccession in protocol.h) is worth more than that where grants
 * are not kept: it makes the next one of the same name cheaper.  In the worker's own
 * memory, since it dies with the connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SUCCESSION_H
#define ZKLOCK_SUCCESSION_H

#include "protocol.h"

/* Is it known, or is there room for it?  "name" in UTF-8, here and below. */
extern bool zklock_succession_room(const char *name);

/* What is remembered; ZKLOCK_NO_SUCCESSION if nothing is. */
extern ZkLockSuccession zklock_succession_find(const char *name);

/* Remember what an empty queue knows, if there is room for it. */
extern void zklock_succession_remember(const char *name,
									   const ZkLockSuccession *succession);

/* The watch on the directory has fired. */
extern void zklock_succession_forget(const char *name);

/* The connection is lost, or the session. */
extern void zklock_succession_forget_all(void);

#endif /* ZKLOCK_SUCCESSION_H */
