/*-------------------------------------------------------------------------
 *
 * path.h
 *	  Where in ZooKeeper the worker's session has what.
 *
 * The root belongs to the session, like the timeout: a setting that has changed counts
 * when there is another session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PATH_H
#define ZKLOCK_PATH_H

#include "client.h"
#include "contender.h"

/* The session's root: to be called before all else here. */
extern void zklock_paths_set(const char *root);

/* <root>/locks, /elections, /jobs, /barriers, /semaphores or /queues; <root>/servers,
 * <root>/tokens, <root>/waits. */
extern const char *zklock_path_directory(ZkLockKind kind);
extern const char *zklock_path_servers(void);
extern const char *zklock_path_tokens(void);
extern const char *zklock_path_waits(void);

/*
 * <root>/locks/<encoded name> or the like of an election or a job, or that and a child.
 * Whole, palloc'd: others' children have names of any length.
 */
extern char *zklock_path_name(ZkLockKind kind, const char *name, const char *child);

/*
 * Whose directory is it, or whose is it in?  The name of the lock or the like goes to
 * "name", the node's own to "child", NULL if it is the directory itself.
 */
extern bool zklock_parse_path(const char *path, ZkLockKind *kind, char *name,
							  const char **child);

/* Make <root>, <root>/servers and the directories of all kinds, persistent.  What exists
 * stays as it is; a create that finds its node is a transaction, too. */
extern void zklock_paths_make(ZkClient *client);

/*
 * A reply that whoever asked has not seen yet: if it says that a directory right below
 * the root is missing, since something was to be made in it, it is made.  What is asked
 * again after the reply finds it.
 */
extern void zklock_path_make_missing(ZkClient *client, const ZkMessage *message);

#endif /* ZKLOCK_PATH_H */
