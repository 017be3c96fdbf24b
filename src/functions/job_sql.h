/*-------------------------------------------------------------------------
 *
 * job_sql.h
 *	  SQL functions of jobs that are special after a loss, and the view of jobs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_SQL_H
#define ZKLOCK_JOB_SQL_H

#include "fmgr.h"
#include "nodes/execnodes.h"

/* This function acknowledges a loss; see statement.h. */
extern PGDLLEXPORT Datum zk_run_end(PG_FUNCTION_ARGS);

/* The functions that ask for a run of a job, or for no run to be there, up to a NULL;
 * see statement.h. */
extern const PGFunction zklock_asking[];

/* Store the rows of a view; see views.c. */
extern void zklock_show_jobs(ReturnSetInfo *rsinfo);

#endif /* ZKLOCK_JOB_SQL_H */
