/*-------------------------------------------------------------------------
 *
 * succession.h
 *	  Remembers what the worker knows about the directories of locks that this server
 *	  takes again.
 *
 * An entry of the lock table is freed as soon as nobody needs it.  Where grants are not
 * kept, it pays to remember longer what its queue knew about the directory
 * (ZkLockSuccession in protocol.h): that makes the next lock of the same name cheaper.
 * It is in the worker's own memory, since it is void when the connection is lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SUCCESSION_H
#define ZKLOCK_SUCCESSION_H

#include "protocol.h"

/* Is the name known, or is there room for it?  "name" is in UTF-8, here and below. */
extern bool zklock_succession_room(const char *name);

/* Find what is remembered of the name; ZKLOCK_NO_SUCCESSION if nothing is. */
extern ZkLockSuccession zklock_succession_find(const char *name);

/* Remember what an empty queue knows, if there is room. */
extern void zklock_succession_remember(const char *name,
									   const ZkLockSuccession *succession);

/* The watch on the directory has fired. */
extern void zklock_succession_forget(const char *name);

/* The connection or the session is lost. */
extern void zklock_succession_forget_all(void);

#endif /* ZKLOCK_SUCCESSION_H */
