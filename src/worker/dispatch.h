/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Between the lock table and the session: events in, actions out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DISPATCH_H
#define ZKLOCK_DISPATCH_H

#include "agent.h"

/* Of all that has a lock queue.  It has the replies and watches that are no other
 * agent's. */
extern const ZkAgent zklock_lock_agent;

/* A contender is about to be deleted by order of an administrator.  If it is ours, its
 * grant is lost, and its queue sees to it that it goes. */
extern void zklock_dispatch_removal(ZkLockKind kind, const char *name, const char *child);

/* Does any backend of this server still hold a lock, or require a leadership? */
extern bool zklock_dispatch_holds(void);

/* The same without jobs that sessions have left to the server (zklock_proclock_set_run). */
extern bool zklock_dispatch_sessions_hold(void);

/* Has the session contenders, or may it have some, but for candidates? */
extern bool zklock_dispatch_contends(void);

#endif /* ZKLOCK_DISPATCH_H */
