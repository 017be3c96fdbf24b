/*-------------------------------------------------------------------------
 *
 * frame.h
 *	  Checks that a ZooKeeper server can have sent what it sends.
 *
 * The ZooKeeper library believes every byte that arrives.  A reply to no request ends
 * the process (an assert).  So does a body of another type than the request's, or one
 * that is cut short: the library then reads memory that it has not written.  A length
 * that memory cannot serve makes the library loop.  So zklock checks each frame before
 * the library gets it.  If a ZooKeeper server cannot have sent the frame, zklock
 * refuses it and ends the connection: the session goes on with the next connection, as
 * after any loss.
 *
 *	  length   of a frame: its type can have it; checked before all of it has arrived
 *	  number   (xid) of a reply: that of the oldest open request.  If the frame is no
 *	           reply, a ping, credentials or watches must be open for it.  Servers answer
 *	           some requests before their turn.  That ends the connection, as it would in
 *	           the library, and is no damage
 *	  header   its code exists; an error, and a reply without a body, ends with it
 *	  body     of the type of the request: strings and lists end within the frame, and the
 *	           frame with them; a multi has a result for each op, of its type
 *	  Stat     its numbers are none below zero, and fit each other, the data and the
 *	           children; none is newer, by far, than the newest transaction that the reply
 *	           knows
 *	  zxid     of a reply: it can follow those before it on the connection.  So no single
 *	           number makes history.h believe in tokens that will not exist for years
 *	  event    its type and state are those of a change of a node
 *	  session  the first answer: the session that was asked for or none, and a timeout;
 *	           or of ClickHouse Keeper, so that zklock recognizes it
 *
 * To know which request is due, zklock also reads what the library sends.
 *
 * If damage turns a frame into another frame that a server could have sent, zklock
 * believes it: a check of one frame cannot find that.  Checksums do: those of TCP, and
 * better those of TLS.
 *
 * Knows no clock and no sockets; allocates memory for the open requests only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FRAME_H
#define ZKLOCK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The most bytes of a frame.  Servers do not limit replies to their jute.maxbuffer: a
 * listing of 100,000 children has some MB.  Memory is taken for the bytes that arrive,
 * not for the bytes that a length announces.
 */
#define ZKLOCK_FRAME_MAX 0x3fffffff

/* The bytes of the length at the beginning of a frame. */
#define ZKLOCK_FRAME_LENGTH 4

/* A request, or one op of a multi; the ops come behind the multi. */
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

/* A connection begins.  "asked": the library has asked for the session, and we have
 * not seen the request. */
extern void zklock_frames_init(ZkFrames *frames, bool asked);
extern void zklock_frames_free(ZkFrames *frames);

/* Returns the size of the frame that begins here, including the length; 0: these are
 * too few bytes to tell. */
extern size_t zklock_frame_whole(const void *data, size_t here);

/* The library sends this whole frame.  False: there is no memory for that. */
extern bool zklock_frames_sent(ZkFrames *frames, const void *frame, size_t size);

/*
 * The server has sent "here" bytes.  Do they begin with a frame that it can have sent?
 * GOOD: the frame has "size" bytes; check the next one next.  LAST: the library must
 * not get it, and the connection has to end.  BAD: the same, and "why" says what is
 * wrong (room ZKLOCK_FRAME_WHY).  After LAST and BAD the caller asks no more.
 */
#define ZKLOCK_FRAME_WHY 160

extern ZkFrameVerdict zklock_frames_look(ZkFrames *frames, const void *data, size_t here,
										 size_t *size, char *why);

#endif /* ZKLOCK_FRAME_H */
