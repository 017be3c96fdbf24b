/*-------------------------------------------------------------------------
 *
 * path.h
 *	  The paths in ZooKeeper that the worker's session uses.
 *
 * The root belongs to the session, as the timeout does: a changed setting takes effect
 * with the next session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PATH_H
#define ZKLOCK_PATH_H

#include "client.h"
#include "contender.h"

/* Set the session's root.  Call this before all other functions here. */
extern void zklock_paths_set(const char *root);

/* <root>/locks, /elections, /jobs, /barriers, /semaphores or /queues; <root>/servers,
 * <root>/tokens, <root>/waits. */
extern const char *zklock_path_directory(ZkLockKind kind);
extern const char *zklock_path_servers(void);
extern const char *zklock_path_tokens(void);
extern const char *zklock_path_waits(void);

/*
 * The path of <root>/locks/<encoded name>, or the like for another kind, or of a child
 * of it.  It is palloc'd and never cut off: children of other programs have names of
 * any length.
 */
extern char *zklock_path_name(ZkLockKind kind, const char *name, const char *child);

/*
 * Parse the path of a directory, or of a node in it.  "name" gets the name of the lock
 * or the like, "child" the node's own name; NULL if the path is the directory itself.
 */
extern bool zklock_parse_path(const char *path, ZkLockKind *kind, char *name,
							  const char **child);

/* Create <root>, <root>/servers and the directories of all kinds, persistent.  Existing
 * nodes stay as they are, but a create that finds its node is a transaction, too. */
extern void zklock_paths_make(ZkClient *client);

/*
 * Look at a reply before the sender of the request sees it.  If the reply says that a
 * directory right below the root was missing for a create, this function creates that
 * directory.  A request that the sender repeats after the reply then finds it.
 */
extern void zklock_path_make_missing(ZkClient *client, const ZkMessage *message);

#endif /* ZKLOCK_PATH_H */
