/*-------------------------------------------------------------------------
 *
 * settler.h
 *	  The processes that settle runs of jobs; see settle.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTLER_H
#define ZKLOCK_SETTLER_H

#include "postgres.h"

extern PGDLLEXPORT void zklock_settle_main(Datum arg);

#endif /* ZKLOCK_SETTLER_H */
