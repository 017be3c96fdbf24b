/*-------------------------------------------------------------------------
 *
 * views.h
 *	  zk_rows, the function under all views.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VIEWS_H
#define ZKLOCK_VIEWS_H

#include "fmgr.h"

/* This function only looks; see statement.h. */
extern PGDLLEXPORT Datum zk_rows(PG_FUNCTION_ARGS);

#endif /* ZKLOCK_VIEWS_H */
