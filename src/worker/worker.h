/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background worker, which owns the ZooKeeper session.
 *
 * The process: its start, loop, signals and end, and who hears what the session has to
 * say.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_H
#define ZKLOCK_WORKER_H

extern void zklock_worker_register(void);
extern PGDLLEXPORT void zklock_worker_main(Datum arg);

#endif /* ZKLOCK_WORKER_H */
