/*-------------------------------------------------------------------------
 *
 * historymemory.h
 *	  Keeps a part of the history (history.h) in memory that outlives this server, but
 *	  not its machine.
 *
 * A crash of PostgreSQL then loses neither a number that the worker has seen, nor what
 * the session would have told.  The worker never waits for a disk for this: it notes a
 * new number often, and must not stand still when the data directory does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORYMEMORY_H
#define ZKLOCK_HISTORYMEMORY_H

#include "history.h"

/*
 * A worker starts: attach the memory of this data directory.  "found" gets its content,
 * from any run of this server since the machine's start or since the last end in good
 * order; all 0: nothing.  False: the memory cannot be attached.  That is logged, and
 * nothing is noted then.
 */
extern bool zklock_history_memory_open(ZkHistoryMemory *found);

/* Set the content of the memory. */
extern void zklock_history_memory_begin(const ZkHistoryMemory *kept);

/*
 * Note the current top and session; "member" is the path of this server's node in the
 * session.  A process may end at any point of this: the content never mixes two
 * sessions.
 */
extern void zklock_history_memory_note(const ZkHistoryMemory *kept, const char *member);

/* The path of this server's node in the session that the memory contains. */
extern const char *zklock_history_memory_member(void);

/* Remove the memory: at an end in good order the file contains the same. */
extern void zklock_history_memory_remove(void);

#endif /* ZKLOCK_HISTORYMEMORY_H */
