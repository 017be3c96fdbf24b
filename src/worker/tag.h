/*-------------------------------------------------------------------------
 *
 * tag.h
 *	  The purposes of the worker's requests to the ensemble (ZkRequestTag.kind), and the
 *	  codes of replies as the protocols see them.
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
	/* of the session, and of those whom it calls itself */
	ZKLOCK_TAG_LEFTRUNS,
	ZKLOCK_TAG_ENSEMBLE,
	ZKLOCK_TAG_SERVERS, /* session.c: how many there are */
	/* this and all others are an agent's, by its place in the list of worker.c */
	ZKLOCK_TAG_AGENTS
} ZkTagKind;

/* The tag of a request whose reply nobody waits for. */
static const ZkRequestTag zklock_no_tag = {.kind = ZKLOCK_TAG_NONE};

/* Does the protocol of a queue wait for the reply? */
static inline bool
zklock_tag_is_lock_queue(uint32 kind)
{
	return kind >= ZKLOCK_TAG_MAKE_DIR && kind <= ZKLOCK_TAG_SET;
}

/* Translate a reply's code for the protocols. */
static inline ZkLockRc
zklock_reply_rc(int rc)
{
	switch (zklock_reply(rc))
	{
		case ZKLOCK_REPLY_OK:
			return ZKLOCK_RC_OK;
		case ZKLOCK_REPLY_NO_NODE:
			return ZKLOCK_RC_NO_NODE;
		case ZKLOCK_REPLY_EXISTS:
			return ZKLOCK_RC_EXISTS;
		case ZKLOCK_REPLY_LOST:
			return ZKLOCK_RC_LOST;
		case ZKLOCK_REPLY_NOT_EMPTY:
		case ZKLOCK_REPLY_BAD_VERSION:
		case ZKLOCK_REPLY_REFUSED:
			break;
	}
	return ZKLOCK_RC_ERROR;
}

#endif /* ZKLOCK_TAG_H */
