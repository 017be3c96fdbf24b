/*-------------------------------------------------------------------------
 *
 * job_settler.h
 *	  The settlers: processes that settle runs of jobs; see job_worker.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_JOB_SETTLER_H
#define ZKLOCK_JOB_SETTLER_H

#include "postgres.h"

extern PGDLLEXPORT void zklock_job_settler_main(Datum arg);

#endif /* ZKLOCK_JOB_SETTLER_H */
