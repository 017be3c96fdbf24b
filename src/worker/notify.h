/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  Starts the process that sends leadership changes: NOTIFY zklock,
 *	  'election:leader'.
 *
 * The worker has no database, so a separate process sends them (notifier.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTIFY_H
#define ZKLOCK_NOTIFY_H

/* Start the process if there is anything to send.  To be called each time round. */
extern void zklock_notify_work(void);

#endif /* ZKLOCK_NOTIFY_H */
