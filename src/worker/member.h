/*-------------------------------------------------------------------------
 *
 * member.h
 *	  This server's own znode under <root>/servers, and the heartbeats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MEMBER_H
#define ZKLOCK_MEMBER_H

#include "client.h"

/* Set the path of the node in a new session: the name of then stays in it, and the data
 * say the present one. */
extern void zklock_member_set_name(void);

/* Take the path over from the worker that has begun this session.  False: it has died
 * before there was one. */
extern bool zklock_member_resume(void);

/* The path of the node, "" before the first call of zklock_member_set_name. */
extern const char *zklock_member_path(void);

/* Does this child have this server's name, but the mark of another session?  Returns
 * that mark, else NULL. */
extern const char *zklock_member_namesake(const char *child);

/* Create the node. */
extern void zklock_member_make(ZkClient *client);

/* Send the first heartbeat of a connection. */
extern void zklock_member_start(ZkClient *client);

/* Send a heartbeat if one is due, or requested.  Returns the ms until the next. */
extern long zklock_member_heartbeat(ZkClient *client);

/* Write the node as a heartbeat does, but for a caller that waits for the reply.
 * Returns the result of zklock_client_set. */
extern int zklock_member_touch(ZkClient *client, const ZkRequestTag *tag);

/* Write the node "path" that a session of this server's previous life left: whose it is,
 * and that it leads and runs nothing.  Returns the result of zklock_client_set. */
extern int zklock_member_write_left(ZkClient *client, const char *path,
									const ZkRequestTag *tag);

/* Another write has replaced a heartbeat: send one anyway if there is something to
 * report. */
extern void zklock_member_look(ZkClient *client);

/* Take the reply to a heartbeat. */
extern void zklock_member_answer(const ZkMessage *message);

/* The number of heartbeats in a row for which the node was missing.  From
 * ZKLOCK_TIMES_MISSING on, the log should say so. */
#define ZKLOCK_TIMES_MISSING 3

extern int zklock_member_times_missing(void);

/* Fill in a write of the node as a part of a transaction; its content is palloc'd. */
extern void zklock_member_op(ZkOp *op);

#endif /* ZKLOCK_MEMBER_H */
