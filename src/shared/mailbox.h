/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  Lets backends and the worker leave messages for each other in shared memory, beside
 *	  the lock table.
 *
 * One LWLock protects a mailbox.  A backend that has left something posts the mailbox:
 * the worker wakes, and sees without the lock that there is something.  A backend may
 * go at any time, so each of its things has a serial number; a process that comes late
 * compares it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MAILBOX_H
#define ZKLOCK_MAILBOX_H

#include "part.h"

/* Something is in the mailbox for the worker.  Without the lock. */
extern void zklock_mailbox_post(ZkMailbox *box);

/* Has anything been posted since the last call?  For the worker. */
extern bool zklock_mailbox_posted(ZkMailbox *box);

/* A serial number, never 0.  With the lock. */
extern uint32 zklock_mailbox_serial(ZkMailbox *box);

#endif /* ZKLOCK_MAILBOX_H */
