/*-------------------------------------------------------------------------
 *
 * notifier.h
 *	  The process that notifies changes of leadership, and ends of runs.
 *
 * Short-lived: it has the database that the worker has not, the one that
 * "zklock.notify_database" names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTIFIER_H
#define ZKLOCK_NOTIFIER_H


extern PGDLLEXPORT void zklock_notify_main(Datum arg);

#endif /* ZKLOCK_NOTIFIER_H */
