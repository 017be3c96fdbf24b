/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  Leadership changes reach SQL: NOTIFY zklock, 'election:leader'.
 *
 * The worker has no database, so a process of its own does it (notifier.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTIFY_H
#define ZKLOCK_NOTIFY_H

/* Each time round: start the process if there is something to say. */
extern void zklock_notify_work(void);

#endif /* ZKLOCK_NOTIFY_H */
