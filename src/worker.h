/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background worker, which owns the ZooKeeper session.
 *
 * worker.c is the process: its start, loop, signals and end.  session.c opens,
 * resumes, loses and closes the session.  dispatch.c carries protocol events
 * and actions between the lock table and the session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_H
#define ZKLOCK_WORKER_H

#include "lib/stringinfo.h"

#include "client.h"
#include "protocol.h"
#include "table.h"

/* worker.c */
extern void zklock_worker_register(void);
extern PGDLLEXPORT void zklock_worker_main(Datum arg);

/* session.c */

/* Open the session, or resume the one in shared memory, unless it is open. */
extern void zklock_session_open(void);

/*
 * After a reload: the setting, or "..." for several, that calls for a new handle
 * and so for a new process; NULL if there is none.  Who waits to try again does so
 * at once.
 */
extern const char *zklock_session_reload(void);

/* A setting that a session keeps has a new value: say when that takes effect. */
extern void zklock_session_keeps(const char *setting);

/* Handle what the client has received. */
extern void zklock_session_receive(void);

/* No connection for so long that a new process should try.  Says so in the log. */
extern bool zklock_session_stuck(void);

/* So many requests on one handle that their numbers would soon wrap around. */
extern bool zklock_session_worn(void);

/* Readable while messages wait; -1 while there is no client.  It changes when
 * the session is opened anew: zklock_session_opened() counts that. */
extern int zklock_session_fd(void);
extern int zklock_session_opened(void);

/* ms until zklock_session_open should be called (again). */
extern long zklock_session_retry_in(void);

/* Send a heartbeat if one is due.  ms until the next, -1 if not connected. */
extern long zklock_session_heartbeat(void);

/* Publish how many requests are without a reply. */
extern void zklock_session_count_requests(void);

/* The server stops: nobody gets a new hold from here on. */
extern void zklock_session_drain(void);

/* End of the server: delete our contenders by closing the session. */
extern void zklock_session_close(void);

/* The client when requests may be sent, else NULL. */
extern ZkClient *zklock_session_client(void);

/* Make <root>/locks, <root>/elections and their ancestors, persistent.  What exists
 * stays as it is. */
extern void zklock_session_make_directories(void);

/* <root>/locks or <root>/elections of the session. */
extern const char *zklock_session_directory(ZkLockKind kind);

/* ZkRequestTag.kind of query.c; smaller ones are dispatch.c's, 0 is nobody's, or a
 * heartbeat's. */
#define ZKLOCK_TAG_QUERY	100
#define ZKLOCK_TAG_ORPHANS	101 /* orphans.c's */
#define ZKLOCK_TAG_ENSEMBLE 102 /* ensemble.c's */

/* Remember, and log, something that went wrong.  Shown in zk_session. */
extern void zklock_session_error(const char *fmt, ...) pg_attribute_printf(1, 2);

/* A request that nobody waits for was refused: once, say so. */
extern void zklock_session_refused(const ZkMessage *message);

/* dispatch.c */

/*
 * Look at every entry that backends have changed.  Some are left if too many
 * requests are open; replies will wake us.
 */
extern void zklock_dispatch_dirty(void);

/* Feed a session event to every entry in use; zklock_dispatch_dirty goes on
 * with it if that would open too many requests at once. */
extern void zklock_dispatch_all(ZkLockEventType type);

/* A reply or a watch event. */
extern void zklock_dispatch_message(const ZkMessage *message);

/* A contender is about to be deleted by order of an administrator.  If it is ours, its
 * grant is lost. */
extern void zklock_dispatch_removal(ZkLockKind kind, const char *name, const char *child);

/* JSON for people who look into the ensemble: who made this node?  "pid" is the
 * backend's or the postmaster's. */
extern void zklock_describe_server(StringInfo buf, int pid);

/* Does any backend of this server still hold a lock? */
extern bool zklock_dispatch_holds(void);

/* orphans.c: a new connection; a heartbeat was acknowledged; a reply that is tagged
 * ZKLOCK_TAG_ORPHANS. */
extern void zklock_orphans_start(void);
extern void zklock_orphans_work(void);
extern void zklock_orphans_message(const ZkMessage *message);

#endif /* ZKLOCK_WORKER_H */
