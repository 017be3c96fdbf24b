/*-------------------------------------------------------------------------
 *
 * unknown.h
 *	  Requests that a server does not know.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_UNKNOWN_H
#define ZKLOCK_UNKNOWN_H

#include "client.h"

/* There is another connection. */
extern void zklock_unknown_connected(void);

/* ... which is closed since its data are damaged: that is no sign. */
extern void zklock_unknown_damaged(void);

/* Any message. */
extern void zklock_unknown_look(const ZkMessage *message);

/* Is there one that it most likely does not know?  Then those who wait are told that,
 * also while there is a connection: it will not last. */
extern bool zklock_unknown_accuses(void);

/* ... of one without which each connection breaks?  Containers can be done without. */
extern bool zklock_unknown_breaks(void);

/* How directories are to be made that the ensemble may remove when they are empty. */
extern ZkCreateMode zklock_unknown_container(void);

#endif /* ZKLOCK_UNKNOWN_H */
