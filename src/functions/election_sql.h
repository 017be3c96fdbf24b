/*-------------------------------------------------------------------------
 *
 * election_sql.h
 *	  The view of elections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_SQL_H
#define ZKLOCK_ELECTION_SQL_H

#include "nodes/execnodes.h"

/* Store the rows of a view; see views.c. */
extern void zklock_show_elections(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_ELECTION_SQL_H */
