/*-------------------------------------------------------------------------
 *
 * tag.h
 *	  What the worker's requests to the ensemble are for: ZkRequestTag.kind.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAG_H
#define ZKLOCK_TAG_H

#include "client.h"

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
	ZKLOCK_TAG_DELETE,
	/* of the files of these names */
	ZKLOCK_TAG_ANSWER,
	ZKLOCK_TAG_ORPHANS,
	ZKLOCK_TAG_NAMESAKES,
	ZKLOCK_TAG_RINGS,
	ZKLOCK_TAG_ENSEMBLE
} ZkTagKind;

/* Of a request whose reply nobody waits for. */
static const ZkRequestTag zklock_no_tag = {.kind = ZKLOCK_TAG_NONE};

/* Does the protocol of a queue wait for the reply? */
static inline bool
zklock_tag_is_queue(uint32 kind)
{
	return kind >= ZKLOCK_TAG_MAKE_DIR && kind <= ZKLOCK_TAG_DELETE;
}

#endif /* ZKLOCK_TAG_H */
