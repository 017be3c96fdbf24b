/*-------------------------------------------------------------------------
 *
 * queue_views.h
 *	  Views of queues of work.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_VIEWS_H
#define ZKLOCK_QUEUE_VIEWS_H

#include "nodes/execnodes.h"

/* Store the rows of views; see views.c. */
extern void zklock_show_queues(ReturnSetInfo *rsinfo);
extern void zklock_show_queue_items(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_QUEUE_VIEWS_H */
