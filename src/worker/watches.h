/*-------------------------------------------------------------------------
 *
 * watches.h
 *	  The worker's account of the watches that it has in the ensemble.
 *
 * How many bytes their paths take, and whether there is one; what they mean is the
 * protocol's business.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WATCHES_H
#define ZKLOCK_WATCHES_H

/*
 * Count a watch that is about to be set on the path: on its children, or on itself.
 * Returns a hash of this.
 */
extern uint64 zklock_watch_count(const char *path, bool children);

/* There is a new client, and so there are no watches. */
extern void zklock_watches_forget_all(void);

/* It was not set after all. */
extern void zklock_watch_gone(uint64 hash);

/* A watch has fired; on a deletion all do that are on the path. */
extern void zklock_watch_fired(const char *path, bool children);

/* A reply says that the watch is set. */
extern void zklock_watch_confirm(uint64 hash);

/* Is the path itself watched for certain, on this connection? */
extern bool zklock_watch_stands(const char *path);

/* The connection is another one.  The library sets all watches again. */
extern void zklock_watches_doubt_all(void);

/* Are there so many that a grant had better do without? */
extern bool zklock_watches_too_many(void);

/* ... and a waiter, too? */
extern bool zklock_watches_full(void);

#endif /* ZKLOCK_WATCHES_H */
