/*-------------------------------------------------------------------------
 *
 * watches.h
 *	  Counts the watches that the worker has in the ensemble.
 *
 * It knows how many bytes their paths take, and whether a watch exists.  The meaning of
 * a watch is up to the protocol.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WATCHES_H
#define ZKLOCK_WATCHES_H

/* Count a watch that is about to be set on the path: on its children, or on the node
 * itself.  Returns a hash of path and kind. */
extern uint64 zklock_watch_count(const char *path, bool children);

/* There is a new client, which has no watches. */
extern void zklock_watches_forget_all(void);

/* The watch was not set after all. */
extern void zklock_watch_gone(uint64 hash);

/* A watch has fired.  A deletion fires all watches on the path. */
extern void zklock_watch_fired(const char *path, bool children);

/* A reply says that the watch is set. */
extern void zklock_watch_confirm(uint64 hash);

/* Is there certainly a watch on the path itself, on this connection? */
extern bool zklock_watch_stands(const char *path);

/* There is a new connection.  The library sets all watches again. */
extern void zklock_watches_doubt_all(void);

/* Are there so many watches that a grant should have none? */
extern bool zklock_watches_too_many(void);

/* Are there so many that a waiter should have none, either? */
extern bool zklock_watches_full(void);

#endif /* ZKLOCK_WATCHES_H */
