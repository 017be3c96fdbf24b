/*-------------------------------------------------------------------------
 *
 * member.h
 *	  Our own znode under <root>/servers, and the heartbeats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MEMBER_H
#define ZKLOCK_MEMBER_H

#include "client.h"

/*
 * Find the path of our node, in a session that is new or resumed.  True if it had none of
 * this path before.
 */
extern bool zklock_member_set_name(void);

/* The path, once zklock_member_set_name was called, before that "". */
#define ZKLOCK_MEMBER_PATH_SIZE 1280

extern const char *zklock_member_path(void);

/* Does this child bear our name, but the mark of another session?  Then that mark, else
 * NULL. */
extern const char *zklock_member_namesake(const char *child);

/* Make the node. */
extern void zklock_member_make(ZkClient *client);

/* The first heartbeat of a connection. */
extern void zklock_member_start(ZkClient *client);

/* Send one if it is due, or wanted.  ms until the next. */
extern long zklock_member_heartbeat(ZkClient *client);

/* Write the node as a heartbeat does, but with a reply for somebody else.  Returns what
 * zklock_client_set does. */
extern int zklock_member_touch(ZkClient *client, const ZkRequestTag *tag);

/* Another write has done for a heartbeat: send one all the same if there is something to
 * tell. */
extern void zklock_member_look(ZkClient *client);

/* The reply to a heartbeat. */
extern void zklock_member_answer(const ZkMessage *message);

/* For how many heartbeats in a row has it not been there?  If for so many, people should
 * hear of that. */
#define ZKLOCK_TIMES_MISSING 3

extern int zklock_member_times_missing(void);

/* A write of it that is one of several changes; what it says is palloc'd. */
extern void zklock_member_op(ZkOp *op);

#endif /* ZKLOCK_MEMBER_H */
