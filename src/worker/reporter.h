/*-------------------------------------------------------------------------
 *
 * reporter.h
 *	  Tells other servers whose this server's contenders are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REPORTER_H
#define ZKLOCK_REPORTER_H

#include "table.h"

/* A step of the entry's queue is done.  The entry is locked. */
extern void zklock_reporter_note(const ZkLockEntry *entry);

/* Write the current report, as palloc'd text, for this server's node under
 * <root>/servers. */
extern char *zklock_reporter_write(void);

#endif /* ZKLOCK_REPORTER_H */
