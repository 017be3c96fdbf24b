/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Between the lock table and the session: events in, actions out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DISPATCH_H
#define ZKLOCK_DISPATCH_H

#include "client.h"
#include "protocol.h"

/*
 * Look at every entry that backends have changed.  Some are left if too many
 * requests are open; replies will wake us.
 */
extern void zklock_dispatch_dirty(void);

/* See to the sets that backends wait for; to be called behind it. */
extern void zklock_dispatch_sets(void);

/* Feed a session event to every entry in use; zklock_dispatch_dirty goes on
 * with it if that would open too many requests at once. */
extern void zklock_dispatch_all(ZkLockEventType type);

/* Is there anything that a TICK would move? */
extern bool zklock_dispatch_wants_tick(void);

/* A reply or a watch event. */
extern void zklock_dispatch_message(const ZkMessage *message);

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
