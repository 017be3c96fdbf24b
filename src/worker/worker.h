/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background worker, which owns the ZooKeeper session.
 *
 * This is the process: its start, loop, signals and end.  It also passes the session's
 * events and messages on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_H
#define ZKLOCK_WORKER_H

extern void zklock_worker_register(void);
extern PGDLLEXPORT void zklock_worker_main(Datum arg);

#endif /* ZKLOCK_WORKER_H */
