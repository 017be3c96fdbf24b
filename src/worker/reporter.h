/*-------------------------------------------------------------------------
 *
 * reporter.h
 *	  Tells other servers whose our contenders are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REPORTER_H
#define ZKLOCK_REPORTER_H

#include "table.h"

/* A step of the entry's queue is done.  With the entry locked. */
extern void zklock_reporter_note(const ZkLockEntry *entry);

/* The report as of now, which goes into our node under <root>/servers: text, palloc'd. */
extern char *zklock_reporter_write(void);

#endif /* ZKLOCK_REPORTER_H */
