/*-------------------------------------------------------------------------
 *
 * frame.h
 *	  Is what a ZooKeeper server sends what it can send?
 *
 * The ZooKeeper library believes in every byte that arrives.  A reply that nobody has
 * asked for ends the process (an assert), and so does a body that is not of the type that
 * was asked for, or that is cut short (it reads what it has not written); a length that
 * memory cannot serve has it turn round and round.  So each frame is looked at before the
 * library gets it.  What a server of ZooKeeper's cannot have sent is refused, and with it
 * the connection: the session goes on with the next one, as after any loss.
 *
 *	  length   of a frame: what its type can have, also before all of it has arrived
 *	  number   (xid) of a reply: that of the oldest request that is open.  Of what is no
 *	           reply: a ping, credentials or watches must be open for it.  Servers answer
 *	           some requests before their turn.  That ends the connection, as it would in
 *	           the library, and is no damage
 *	  header   a code that is one; an error, and what has no body, ends with it
 *	  body     of the type of the request: strings and lists end within the frame, and the
 *	           frame with them; a multi has a result for each op, of its type
 *	  Stat     its numbers are none below zero, fit each other, the data and the children,
 *	           and none is newer, by far, than the newest transaction that the reply knows of
 *	  zxid     of a reply: one that can come after those before on the connection.  So no
 *	           single number has history.h believe in tokens that will not be there for years
 *	  event    its type and state are those of a change of a node
 *	  session  the first answer: the one that was asked for or none, and a timeout; or of
 *	           ClickHouse Keeper, that it may be known
 *
 * To know which request is due, what the library sends is looked at, too.
 *
 * What is changed into something that a server could have sent is believed: no look at
 * one frame can tell.  That is what checksums are for, of TCP and, better, of TLS.
 *
 * Knows no clock, no sockets; allocates memory for the open requests alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FRAME_H
#define ZKLOCK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Bytes that a frame can have.  Servers do not hold replies to their jute.maxbuffer: a
 * listing of 100,000 children has some MB.  Memory is taken for what arrives, and not for
 * what a length says.
 */
#define ZKLOCK_FRAME_MAX 0x3fffffff

/* The length that a frame begins with. */
#define ZKLOCK_FRAME_LENGTH 4

/* What was asked, or one op of a multi, which come behind it. */
typedef struct ZkFrameRequest
{
	int32_t xid;
	int32_t op;
	uint32_t most; /* bytes that its body can have */
	uint32_t nops;
} ZkFrameRequest;

/* One connection. */
typedef struct ZkFrames
{
	bool asked; /* for the session, which comes first in both directions */
	bool answered;
	bool knows;		 /* which session was asked for: */
	int64_t session; /* 0: a new one */
	int32_t timeout_ms;
	uint32_t pings; /* open ones */
	uint32_t credentials;
	uint32_t watches;
	ZkFrameRequest *ring; /* open requests and ops, oldest first */
	size_t size;		  /* a power of two, or 0 */
	size_t first;
	size_t n;
	int64_t zxid;	   /* of the newest reply; 0: none yet */
	size_t look_again; /* how much of a frame must have arrived to look at it once more */
} ZkFrames;

typedef enum ZkFrameVerdict
{
	ZKLOCK_FRAME_PART, /* more has to arrive */
	ZKLOCK_FRAME_GOOD,
	ZKLOCK_FRAME_LAST, /* a server may send it, but nothing can come of the connection */
	ZKLOCK_FRAME_BAD
} ZkFrameVerdict;

/* A connection begins.  "asked": the session has been asked for, and we have not seen it. */
extern void zklock_frames_init(ZkFrames *frames, bool asked);
extern void zklock_frames_free(ZkFrames *frames);

/* The length of the frame that begins here, with the length; 0: there are no such many
 * bytes yet. */
extern size_t zklock_frame_whole(const void *data, size_t here);

/* The library sends this whole frame.  False: there is no memory for that. */
extern bool zklock_frames_sent(ZkFrames *frames, const void *frame, size_t size);

/*
 * The server has sent "here" bytes: is what they begin with a frame, as it can be sent?
 * GOOD: it has "size" bytes; the next one is looked at next.  LAST: it is not for the
 * library, and the connection is to end.  BAD: so it is, and "why" says what is wrong
 * (room ZKLOCK_FRAME_WHY).  After these two nothing is asked any more.
 */
#define ZKLOCK_FRAME_WHY 160

extern ZkFrameVerdict zklock_frames_look(ZkFrames *frames, const void *data, size_t here,
										 size_t *size, char *why);

#endif /* ZKLOCK_FRAME_H */
