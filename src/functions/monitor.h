/*-------------------------------------------------------------------------
 *
 * monitor.h
 *	  Views for administrators.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MONITOR_H
#define ZKLOCK_MONITOR_H

#include "nodes/execnodes.h"

/* Store the rows of views; see views.c. */
extern void zklock_show_locks(ReturnSetInfo *rsinfo);
extern void zklock_show_session(ReturnSetInfo *rsinfo);
extern void zklock_show_servers(ReturnSetInfo *rsinfo);
extern void zklock_show_stat(ReturnSetInfo *rsinfo);
extern void zklock_show_stat_locks(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_MONITOR_H */
