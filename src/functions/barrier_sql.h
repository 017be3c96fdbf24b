/*-------------------------------------------------------------------------
 *
 * barrier_sql.h
 *	  Views of barriers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BARRIER_SQL_H
#define ZKLOCK_BARRIER_SQL_H

#include "nodes/execnodes.h"

/* Store the rows of views; see views.c. */
extern void zklock_show_barriers(ReturnSetInfo *rsinfo);
extern void zklock_show_stat_barriers(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_BARRIER_SQL_H */
