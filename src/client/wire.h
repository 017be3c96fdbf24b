/*-------------------------------------------------------------------------
 *
 * wire.h
 *	  Passes bytes between a connection's socket and the ZooKeeper library.
 *
 * The library has one end of a pair of sockets in the place of its own socket.  All
 * bytes in both directions go through here.  The library gets the server's bytes frame
 * by frame: each frame when all of it has arrived and frame.h has found nothing wrong
 * with it.  Nothing here waits.  Only client.c includes this.
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
	bool drained;	 /* the socket had no more when it was read; until the next wait */
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
 * Takes the place of the library at its socket, and leaves it a pair's end under the
 * same number.  "asked": the library has asked for the session on it.  False with
 * errno: the socket is still the library's.
 */
extern bool zklock_wire_open(ZkWire *wire, int library_socket, bool asked);
extern void zklock_wire_close(ZkWire *wire);

static inline bool
zklock_wire_is_open(const ZkWire *wire)
{
	return wire->socket >= 0;
}

/* Passes on what the library has sent.  True: the library may have more to send. */
extern bool zklock_wire_send(ZkWire *wire);

/* Does the socket still have to take bytes? */
static inline bool
zklock_wire_is_sending(const ZkWire *wire)
{
	return wire->out_seen > wire->out.start && !wire->deaf;
}

/* The caller is about to wait until the socket has something: then it is read again. */
static inline void
zklock_wire_wait(ZkWire *wire)
{
	wire->drained = false;
}

/* Can the caller receive more, from bytes that were read already? */
static inline bool
zklock_wire_holds(const ZkWire *wire)
{
	return wire->in.len > wire->in.start || wire->ended;
}

/* "why" has room for ZKLOCK_FRAME_WHY. */
extern ZkWireNews zklock_wire_receive(ZkWire *wire, char *why);

/* Gives the library the part of the frame that it can take; the library has to read
 * it at once.  False: it has all of the frame now. */
extern bool zklock_wire_pass(ZkWire *wire);

/* Closes the wire, but hands over the socket, our end of the pair, and the bytes that
 * are not sent yet. */
extern void zklock_wire_leave(ZkWire *wire, int *socket, int *pair, char **unsent,
							  size_t *len);

/* Lets the library find the end. */
extern void zklock_wire_end(ZkWire *wire, int library_socket);

#endif /* ZKLOCK_WIRE_H */
