/*-------------------------------------------------------------------------
 *
 * notifier.h
 *	  The process that sends notifications of changes of leadership, and of ends of
 *	  runs.
 *
 * It is short-lived.  It connects to the database that "zklock.notify_database" names;
 * the worker has no database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTIFIER_H
#define ZKLOCK_NOTIFIER_H


extern PGDLLEXPORT void zklock_notify_main(Datum arg);

#endif /* ZKLOCK_NOTIFIER_H */
