/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Carries events from the session to the lock table, and requests from the lock
 *	  table to the session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DISPATCH_H
#define ZKLOCK_DISPATCH_H

#include "agent.h"

/* The agent of all kinds that have a lock queue.  It gets the replies and watches that
 * belong to no other agent. */
extern const ZkAgent zklock_lock_agent;

/*
 * The worker is about to delete a contender by order of an administrator.  If the
 * contender is this server's, its grant is lost, and its queue makes sure that it goes.
 */
extern void zklock_dispatch_removal(ZkLockKind kind, const char *name, const char *child);

/* Does any backend of this server still hold a lock, or require a leadership? */
extern bool zklock_dispatch_holds(void);

/* The same, without jobs that sessions have left to the server
 * (zklock_proclock_set_run). */
extern bool zklock_dispatch_sessions_hold(void);

/* Does the session have contenders other than candidates, or may it have some? */
extern bool zklock_dispatch_contends(void);

#endif /* ZKLOCK_DISPATCH_H */
