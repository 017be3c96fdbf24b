/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  Mailboxes: what backends and the worker leave for each other in shared memory,
 *	  beside the lock table.
 *
 * One LWLock protects all that is in a mailbox.  A backend that has left something posts
 * it: the worker wakes, and sees without the lock that there is something.  What belongs
 * to a backend, which may go at any time, has a serial number; whoever comes late
 * compares it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MAILBOX_H
#define ZKLOCK_MAILBOX_H

#include "part.h"

/* Something is in the mailbox for the worker.  Without the lock. */
extern void zklock_mailbox_post(ZkMailbox *box);

/* Has anything been posted since this was called last?  For the worker. */
extern bool zklock_mailbox_posted(ZkMailbox *box);

/* A serial number, never 0.  With the lock. */
extern uint32 zklock_mailbox_serial(ZkMailbox *box);

#endif /* ZKLOCK_MAILBOX_H */
