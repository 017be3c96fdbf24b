/*-------------------------------------------------------------------------
 *
 * unknown.c
 *	  Requests that a server does not know.
 *
 * A server that meets a request which is newer than itself does not answer: it hangs up,
 * or is silent until the library does.  (Old servers of ZooKeeper do so, and of
 * ClickHouse Keeper.)  All that can be seen is that connections are lost, one after the
 * other, with a request of one and the same kind open, and that none of that kind is
 * answered in between.  After three of them people are told.
 *
 * A server that does not know containers can be lived with: directories are made
 * persistent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "table.h"
#include "trouble.h"
#include "unknown.h"

/* Connections in a row that are no accident. */
#define SUSPICIOUS 3

typedef enum RequestKind
{
	KIND_OTHER, /* which every server knows */
	KIND_CREATE2,
	KIND_CONTAINER,
	KIND_MULTI,
	KIND_UNWATCH
} RequestKind;

static const char *const kind_names[] = {
	[KIND_CREATE2] = "create2",
	[KIND_CONTAINER] = "createContainer",
	[KIND_MULTI] = "multi",
	[KIND_UNWATCH] = "removeWatches",
};

#define NKINDS ((int) lengthof(kind_names))

static int times[NKINDS];	 /* connections lost with one open, since one was answered */
static bool counted[NKINDS]; /* ... the present one */
static bool no_containers = false;

static RequestKind
kind_of(const ZkMessage *message)
{
	switch (message->type)
	{
		case ZKLOCK_MSG_CREATED:
			return message->container ? KIND_CONTAINER : KIND_CREATE2;
		case ZKLOCK_MSG_MULTI:
			return KIND_MULTI;
		case ZKLOCK_MSG_UNWATCHED:
			return KIND_UNWATCH;
		default:
			return KIND_OTHER;
	}
}

/* What is most likely not to be known; KIND_OTHER: nothing. */
static RequestKind
accused(void)
{
	for (int kind = KIND_CREATE2; kind < NKINDS; kind++)
	{
		if (times[kind] >= SUSPICIOUS)
			return (RequestKind) kind;
	}
	return KIND_OTHER;
}

bool
zklock_unknown_accuses(void)
{
	return accused() != KIND_OTHER;
}

bool
zklock_unknown_breaks(void)
{
	RequestKind kind = accused();

	return kind != KIND_OTHER && kind != KIND_CONTAINER;
}

/* For who waits for a connection, as long as it is so. */
static void
tell_waiters(void)
{
	char text[sizeof(zklock_shared->session.attempts)];
	RequestKind kind = accused();

	if (kind == KIND_OTHER)
		return;
	snprintf(text, sizeof(text),
			 "%d connections in a row were lost while a request \"%s\" waited for an answer: the ZooKeeper server seems not to know it",
			 times[kind], kind_names[kind]);
	zklock_trouble_connecting(text);
}

void
zklock_unknown_connected(void)
{
	memset(counted, 0, sizeof(counted));
	tell_waiters();
}

void
zklock_unknown_damaged(void)
{
	memset(counted, true, sizeof(counted));
}

static void
count_lost(RequestKind kind)
{
	RequestKind before = accused();

	if (counted[kind])
		return;
	counted[kind] = true;
	times[kind]++;
	tell_waiters();
	if (accused() != kind || before == kind)
		return;
	no_containers |= kind == KIND_CONTAINER;
	zklock_trouble("lost %d connections in a row while a request \"%s\" waited for an answer: the ZooKeeper server seems not to know it%s",
				   times[kind], kind_names[kind],
				   kind == KIND_CONTAINER
					   ? "; lock directories are made persistent, and stay when they are empty"
					   : "");
}

void
zklock_unknown_look(const ZkMessage *message)
{
	RequestKind kind = zklock_is_reply(message) ? kind_of(message) : KIND_OTHER;

	if (kind == KIND_OTHER)
		return;
	if (zklock_rc_is_lost(message->rc))
		count_lost(kind);
	else
		times[kind] = 0;
}

ZkCreateMode
zklock_unknown_container(void)
{
	return no_containers ? ZKLOCK_CREATE_PERSISTENT : ZKLOCK_CREATE_CONTAINER;
}
