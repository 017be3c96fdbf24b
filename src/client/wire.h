/*-------------------------------------------------------------------------
 *
 * wire.h
 *	  A connection, between its socket and the ZooKeeper library.
 *
 * The library has one end of a pair of sockets in the place of its own socket, and all
 * that goes either way goes through here.  What comes is given to it frame by frame, each
 * when all of it has arrived and frame.h has found nothing wrong with it.  Nothing here
 * waits.  Only client.c includes this.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WIRE_H
#define ZKLOCK_WIRE_H

#include "frame.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes on their way: those up to "start" have gone. */
typedef struct ZkWireBytes
{
	char *data;
	size_t start;
	size_t len;
	size_t room;
} ZkWireBytes;

typedef struct ZkWire
{
	int socket; /* to the server; -1: closed */
	int pair;	/* our end of what the library reads and writes */
	ZkWireBytes in;
	ZkWireBytes out;
	size_t out_seen; /* bytes of "out" that frame.h has seen, which may go */
	size_t passing;	 /* bytes of "in" that the library is to get */
	bool ended;		 /* the server sends no more */
	bool reset;		 /* ... which was no orderly end */
	bool deaf;		 /* ... nor does it hear */
	ZkFrames frames;
} ZkWire;

typedef enum ZkWireNews
{
	ZKLOCK_WIRE_NOTHING, /* there is no whole frame */
	ZKLOCK_WIRE_FRAME,	 /* pass it */
	ZKLOCK_WIRE_DAMAGED, /* "why" says what is wrong; it has ended */
	ZKLOCK_WIRE_END		 /* there are no more */
} ZkWireNews;

/* Closed. */
extern void zklock_wire_init(ZkWire *wire);

/*
 * Take the place of the library at its socket, and leave it a pair's end under the same
 * number.  "asked": the session has been asked for on it.  False with errno: the socket
 * is the library's still.
 */
extern bool zklock_wire_open(ZkWire *wire, int library_socket, bool asked);
extern void zklock_wire_close(ZkWire *wire);

static inline bool
zklock_wire_is_open(const ZkWire *wire)
{
	return wire->socket >= 0;
}

/* Send on what the library has sent.  True: it may have more to send. */
extern bool zklock_wire_send(ZkWire *wire);

/* Does the socket have to take more? */
static inline bool
zklock_wire_is_sending(const ZkWire *wire)
{
	return wire->out_seen > wire->out.start && !wire->deaf;
}

/* Is there more to be received, by what has been read already? */
static inline bool
zklock_wire_holds(const ZkWire *wire)
{
	return wire->in.len > wire->in.start || wire->ended;
}

/* "why" has room for ZKLOCK_FRAME_WHY. */
extern ZkWireNews zklock_wire_receive(ZkWire *wire, char *why);

/* Give the library what it can take of the frame, which it is to read at once.  False:
 * it has all of it now. */
extern bool zklock_wire_pass(ZkWire *wire);

/* Closed, but leave the socket, our end of the pair, and what is to be sent yet. */
extern void zklock_wire_leave(ZkWire *wire, int *socket, int *pair, char **unsent,
							  size_t *len);

/* Let it find the end. */
extern void zklock_wire_end(ZkWire *wire, int library_socket);

#endif /* ZKLOCK_WIRE_H */
