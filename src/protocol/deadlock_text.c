/*-------------------------------------------------------------------------
 *
 * deadlock_text.c
 *	  Reads and writes the text of a server's znode under <root>/waits, which lists its
 *	  waits.
 *
 * The text consists of records, each on its line: the server's name, then the edges.
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_text.h"

#include <string.h>

#include "record.h"

static const ZkField edge_fields[] = {
	{ZKLOCK_FIELD("number", UINT64, ZkWaitEdge, number), .needed = true},
	{ZKLOCK_FIELD("stamp", INT, ZkWaitEdge, stamp), .needed = true, .max = INT64_MAX},
	{ZKLOCK_FIELD("grant", UINT64, ZkWaitEdge, grant), .needed = true},
	{ZKLOCK_FIELD("contender", UINT64, ZkWaitEdge, contender), .needed = true},
	{ZKLOCK_FIELD("joins", BOOL, ZkWaitEdge, joins)},
	{ZKLOCK_FIELD("kind", KIND, ZkWaitEdge, kind), .needed = true},
	{ZKLOCK_FIELD("name", NAME, ZkWaitEdge, name), .needed = true},
	{ZKLOCK_FIELD("holder", INT, ZkWaitEdge, holder), .needed = true, .max = INT32_MAX},
	{ZKLOCK_FIELD("waiter", INT, ZkWaitEdge, waiter), .needed = true, .max = INT32_MAX},
	{ZKLOCK_FIELD("via", TEXT, ZkWaitEdge, via)},
};

static const ZkShape edge_shape = {ZKLOCK_SHAPE(edge_fields, ZkWaitEdge)};

static const ZkField server_fields[] = {
	{ZKLOCK_FIELD("server", TEXT, ZkWaitsReader, server), .needed = true},
};

static const ZkShape server_shape = {ZKLOCK_SHAPE(server_fields, ZkWaitsReader),
									 .version = 1};

static char *
end_line(char *buf)
{
	*buf++ = '\n';
	*buf = '\0';
	return buf;
}

char *
zklock_deadlock_waits_begin(char *buf, const char *server)
{
	ZkWaitsReader head = {0};

	strncpy(head.server, server, sizeof(head.server) - 1);
	return end_line(zklock_record_write(&server_shape, &head, buf));
}

char *
zklock_deadlock_waits_add(char *buf, const ZkWaitEdge *edge)
{
	return end_line(zklock_record_write(&edge_shape, edge, buf));
}

bool
zklock_deadlock_waits_open(ZkWaitsReader *reader, const char *text, size_t len)
{
	const char *end = text + len;
	bool good = zklock_record_line(&server_shape, &text, end, reader) == ZKLOCK_RECORD_GOOD;

	reader->p = text;
	reader->end = end;
	return good;
}

bool
zklock_deadlock_waits_next(ZkWaitsReader *reader, ZkWaitEdge *edge)
{
	while (reader->p != NULL)
	{
		if (zklock_record_line(&edge_shape, &reader->p, reader->end, edge) ==
			ZKLOCK_RECORD_GOOD)
			return true;
	}
	return false;
}
