/*-------------------------------------------------------------------------
 *
 * wire.c
 *	  Passes bytes between a connection's socket and the ZooKeeper library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes to read at a time at least, and to keep memory for. */
#define PIECE 65536
#define KEPT  (4 * PIECE)

/*
 * The library stops sending when the pair is full.  Many small pieces fill the pair
 * long before they have this many bytes, because the kernel counts a cost for each.  It
 * cannot be full with less than this.
 */
#define FULL 1024

void
zklock_wire_init(ZkWire *wire)
{
	memset(wire, 0, sizeof(ZkWire));
	wire->socket = wire->pair = -1;
}

bool
zklock_wire_open(ZkWire *wire, int library_socket, bool asked)
{
	int pair[2];
	int socket = fcntl(library_socket, F_DUPFD_CLOEXEC, 0);

	if (socket < 0)
		return false;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
	{
		close(socket);
		return false;
	}
	if (dup3(pair[0], library_socket, O_CLOEXEC) < 0)
	{
		close(socket);
		close(pair[0]);
		close(pair[1]);
		return false;
	}
	close(pair[0]);
	zklock_wire_init(wire);
	wire->socket = socket;
	wire->pair = pair[1];
	zklock_frames_init(&wire->frames, asked);
	return true;
}

void
zklock_wire_close(ZkWire *wire)
{
	if (wire->socket >= 0)
		close(wire->socket);
	if (wire->pair >= 0)
		close(wire->pair);
	free(wire->in.data);
	free(wire->out.data);
	zklock_frames_free(&wire->frames);
	zklock_wire_init(wire);
}

void
zklock_wire_leave(ZkWire *wire, int *socket, int *pair, char **unsent, size_t *len)
{
	ZkWireBytes *out = &wire->out;

	*socket = wire->socket;
	*pair = wire->pair;
	*unsent = out->data;
	*len = out->len - out->start;
	if (*len > 0)
		memmove(out->data, out->data + out->start, *len);
	out->data = NULL;
	wire->socket = wire->pair = -1;
	zklock_wire_close(wire);
}

/* Room for PIECE more bytes; false: no memory. */
static bool
make_room(ZkWireBytes *bytes)
{
	size_t held = bytes->len - bytes->start;

	if (held == 0)
		bytes->start = bytes->len = 0;
	if (held == 0 && bytes->room > KEPT)
	{
		free(bytes->data);
		bytes->data = NULL;
		bytes->room = 0;
	}
	if (bytes->room - bytes->len >= PIECE)
		return true;
	if (bytes->start > 0)
	{
		memmove(bytes->data, bytes->data + bytes->start, held);
		bytes->start = 0;
		bytes->len = held;
	}
	/* not more than half full, so that a large frame is not moved about too often */
	if (bytes->room - held < PIECE || held > bytes->room / 2)
	{
		size_t room = 2 * (held + PIECE);
		char *grown = realloc(bytes->data, room);

		if (grown == NULL)
			return false;
		bytes->data = grown;
		bytes->room = room;
	}
	return true;
}

/* The connection is useless from now on. */
static void
give_up(ZkWire *wire)
{
	wire->ended = wire->reset = wire->deaf = true;
	wire->in.start = wire->in.len;
}

static void
send_seen(ZkWire *wire)
{
	while (zklock_wire_is_sending(wire))
	{
		ssize_t n = send(wire->socket, wire->out.data + wire->out.start,
						 wire->out_seen - wire->out.start, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			wire->out.start += (size_t) n;
		else if (errno != EINTR)
		{
			/* what the server has said before is read yet, and then the end */
			wire->deaf = errno != EAGAIN;
			return;
		}
	}
}

bool
zklock_wire_send(ZkWire *wire)
{
	bool more = false;

	for (;;)
	{
		ZkWireBytes *out = &wire->out;
		size_t before = out->start;
		size_t size;
		ssize_t n;

		if (!make_room(out))
		{
			give_up(wire);
			return false;
		}
		wire->out_seen -= before - out->start;
		n = recv(wire->pair, out->data + out->len, out->room - out->len, MSG_DONTWAIT);
		if (n <= 0)
			break;
		out->len += (size_t) n;
		more = more || n >= FULL;
		while ((size = zklock_frame_whole(out->data + wire->out_seen,
										  out->len - wire->out_seen)) > 0)
		{
			if (!zklock_frames_sent(&wire->frames, out->data + wire->out_seen, size))
			{
				give_up(wire);
				return false;
			}
			wire->out_seen += size;
		}
		if (out->len < out->room)
			break;
	}
	send_seen(wire);
	return more;
}

ZkWireNews
zklock_wire_receive(ZkWire *wire, char *why)
{
	ZkWireBytes *in = &wire->in;

	for (;;)
	{
		ssize_t n;

		ZkFrameVerdict verdict = ZKLOCK_FRAME_PART;

		if (in->len > in->start)
			verdict = zklock_frames_look(&wire->frames, in->data + in->start,
										 in->len - in->start, &wire->passing, why);
		if (verdict == ZKLOCK_FRAME_GOOD)
			return ZKLOCK_WIRE_FRAME;
		if (verdict == ZKLOCK_FRAME_BAD || verdict == ZKLOCK_FRAME_LAST)
		{
			give_up(wire);
			wire->reset = false;
			return verdict == ZKLOCK_FRAME_BAD ? ZKLOCK_WIRE_DAMAGED : ZKLOCK_WIRE_END;
		}
		if (wire->ended)
			return ZKLOCK_WIRE_END;
		if (wire->drained)
			return ZKLOCK_WIRE_NOTHING;
		if (!make_room(in))
		{
			give_up(wire);
			return ZKLOCK_WIRE_END;
		}
		n = recv(wire->socket, in->data + in->len, in->room - in->len, MSG_DONTWAIT);
		wire->drained = n > 0 && (size_t) n < in->room - in->len;
		if (n > 0)
			in->len += (size_t) n;
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return ZKLOCK_WIRE_NOTHING;
		else
		{
			wire->ended = true;
			wire->reset = n < 0 || wire->deaf;
		}
	}
}

bool
zklock_wire_pass(ZkWire *wire)
{
	ssize_t n = send(wire->pair, wire->in.data + wire->in.start, wire->passing,
					 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0)
	{
		wire->in.start += (size_t) n;
		wire->passing -= (size_t) n;
	}
	return wire->passing > 0;
}

/*
 * A pair's end reads a reset if the other end is closed with unread bytes, and
 * otherwise an orderly end: so the library logs the right one.
 */
void
zklock_wire_end(ZkWire *wire, int library_socket)
{
	if (wire->reset)
		(void) send(library_socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	else
		while (recv(wire->pair, wire->out.data, wire->out.room, MSG_DONTWAIT) > 0)
			;
	close(wire->pair);
	wire->pair = -1;
}
