/*-------------------------------------------------------------------------
 *
 * historymemory.h
 *	  The top of history.h, in memory that outlives this server, but not its machine.
 *
 * So a crash of PostgreSQL forgets no number that was seen, and nobody waits for a disk:
 * each number is new, and the worker must not stand still with the data directory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORYMEMORY_H
#define ZKLOCK_HISTORYMEMORY_H

#include <stdint.h>

/*
 * A worker starts: find the memory of this data directory, or make it.  Returns the top that
 * was noted there last, by whatever run of this server since the machine's start or its last
 * good end; 0: none.  That there is no memory is logged, and then nothing is noted.
 */
extern int64_t zklock_history_memory_open(void);

/* The top is this one now: before anything is granted by it. */
extern void zklock_history_memory_note(int64_t top);

/* The file says as much: the end of the server, in good order. */
extern void zklock_history_memory_remove(void);

#endif /* ZKLOCK_HISTORYMEMORY_H */
