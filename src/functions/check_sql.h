/*-------------------------------------------------------------------------
 *
 * check_sql.h
 *	  The rows of zk_check about this server and the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_SQL_H
#define ZKLOCK_CHECK_SQL_H

#include "nodes/execnodes.h"

/* Store these rows; see views.c. */
extern void zklock_show_check(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_CHECK_SQL_H */
