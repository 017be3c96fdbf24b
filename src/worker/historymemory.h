/*-------------------------------------------------------------------------
 *
 * historymemory.h
 *	  What history.h remembers, in memory that outlives this server, but not its machine.
 *
 * So a crash of PostgreSQL forgets no number that was seen, nor what the session would
 * have told, and nobody waits for a disk: each number is new, and the worker must not
 * stand still with the data directory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORYMEMORY_H
#define ZKLOCK_HISTORYMEMORY_H

#include "history.h"

/*
 * A worker starts: attach the memory of this data directory.  "found" is what it says, by
 * whatever run of this server since the machine's start or its last good end; all 0:
 * nothing. False: there is none to be had, which is logged, and then nothing is noted.
 */
extern bool zklock_history_memory_open(ZkHistoryMemory *found);

/* It says this from now on. */
extern void zklock_history_memory_begin(const ZkHistoryMemory *kept);

/*
 * It says this of the top and the session now; "member" is the path of our node in the
 * session.  A process may end at any point of this: what is left is never of two sessions.
 */
extern void zklock_history_memory_note(const ZkHistoryMemory *kept, const char *member);

/* The path of our node in the session that it has. */
extern const char *zklock_history_memory_member(void);

/* The file says as much: the end of the server, in good order. */
extern void zklock_history_memory_remove(void);

#endif /* ZKLOCK_HISTORYMEMORY_H */
