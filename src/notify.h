/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  Leadership changes reach SQL: NOTIFY zklock, 'election:leader'.
 *
 * The worker has no database, so a short-lived process does it in the one that
 * "zklock.notify_database" names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTIFY_H
#define ZKLOCK_NOTIFY_H

/* For shmem_request_hook and shmem_startup_hook. */
extern void zklock_notify_request(void);
extern void zklock_notify_startup(void);

/* The worker: this server has become the leader, or has ceased to be. */
extern void zklock_notify_add(const char *election, bool leader);

/* The worker, each time round: start the process if there is something to say. */
extern void zklock_notify_work(void);

extern PGDLLEXPORT void zklock_notify_main(Datum arg);

#endif /* ZKLOCK_NOTIFY_H */
