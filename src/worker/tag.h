/*-------------------------------------------------------------------------
 *
 * tag.h
 *	  What the worker's requests to the ensemble are for: ZkRequestTag.kind; and what
 *	  the code of a reply is to those who decide.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAG_H
#define ZKLOCK_TAG_H

#include "client.h"
#include "protocol.h"

typedef enum ZkTagKind
{
	ZKLOCK_TAG_NONE, /* nobody waits for the reply; if it is a SET, a heartbeat */
	/* a queue's, see dispatch.c */
	ZKLOCK_TAG_MAKE_DIR,
	ZKLOCK_TAG_WATCH_DIR,
	ZKLOCK_TAG_CREATE,
	ZKLOCK_TAG_LIST, /* tag.hash is the listing's number */
	ZKLOCK_TAG_WATCH_OWN,
	ZKLOCK_TAG_WATCH,
	ZKLOCK_TAG_MARK,
	ZKLOCK_TAG_DELETE,
	ZKLOCK_TAG_SET, /* of several queues: see set_worker.h */
	/* of the files of these names */
	ZKLOCK_TAG_ANSWER,
	ZKLOCK_TAG_BARRIER_UNUSED,
	ZKLOCK_TAG_NAMESAKES,
	ZKLOCK_TAG_LEFTRUNS,
	ZKLOCK_TAG_DEADLOCK,
	ZKLOCK_TAG_BARRIER,
	ZKLOCK_TAG_QUEUE_TAKES,
	ZKLOCK_TAG_QUEUE_PUTS,
	ZKLOCK_TAG_ENSEMBLE,
	ZKLOCK_TAG_SERVERS /* session.c: how many there are */
} ZkTagKind;

/* Of a request whose reply nobody waits for. */
static const ZkRequestTag zklock_no_tag = {.kind = ZKLOCK_TAG_NONE};

/* Does the protocol of a queue wait for the reply? */
static inline bool
zklock_tag_is_lock_queue(uint32 kind)
{
	return kind >= ZKLOCK_TAG_MAKE_DIR && kind <= ZKLOCK_TAG_SET;
}

/* A reply's code, for the protocols. */
static inline ZkLockRc
zklock_reply_rc(int rc)
{
	if (zklock_rc_is_lost(rc))
		return ZKLOCK_RC_LOST;
	return rc == ZKLOCK_ZOK		   ? ZKLOCK_RC_OK
		: rc == ZKLOCK_ZNONODE	   ? ZKLOCK_RC_NO_NODE
		: rc == ZKLOCK_ZNODEEXISTS ? ZKLOCK_RC_EXISTS
								   : ZKLOCK_RC_ERROR;
}

#endif /* ZKLOCK_TAG_H */
