/*-------------------------------------------------------------------------
 *
 * blocking.h
 *	  zk_waits: shows which session blocks which, across servers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BLOCKING_H
#define ZKLOCK_BLOCKING_H

#include "nodes/execnodes.h"

/* Store the rows of a view; see views.c. */
extern void zklock_show_waits(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_BLOCKING_H */
