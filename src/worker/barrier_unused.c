/*-------------------------------------------------------------------------
 *
 * barrier_unused.c
 *	  Deletes the directories of barriers that nobody uses any more.
 *
 * The directory of a barrier records the outcome of its rounds, so it is not a
 * container node.  The worker deletes a directory that is empty and that nobody has
 * written for a day: a session that a round released has heard of it by then.
 *
 * Once a day one server looks through all directories.  It is the server that writes
 * <root>/barriers before the others do, after a day without a write to it.  A server
 * that uses no barriers sends no requests for this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "barrier_rules.h"
#include "barrier_unused.h"
#include "path.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "zktime.h"

/* Number of directories that are asked for at a time. */
#define WINDOW 16

/* How often the worker checks whether a look is due. */
#define INTERVAL (3600 * 1000 * NS_PER_MS)

/* us without a write, after which a directory is deleted */
#define UNUSED (24 * USECS_PER_HOUR)

/* ZkRequestTag.hash, unless it is a directory's number. */
#define TAG_TIME PG_UINT64_MAX		 /* a get of <root>/barriers */
#define TAG_TURN (PG_UINT64_MAX - 1) /* ... its write: this is our turn */
#define TAG_LIST (PG_UINT64_MAX - 2)

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static uint32 connection = 0;			 /* replies of an earlier one are void */
static int64 due_at = 0;				 /* ns: not before then */
static bool our_turn = false;
static MemoryContext names_context = NULL;
static char **names = NULL; /* of the directories, as in ZooKeeper */
static int nnames = 0;
static int next_name = 0;
static int ngets = 0; /* replies to come */

static ZkRequestTag
make_tag(uint64 what)
{
	return (ZkRequestTag){.kind = own_tag, .generation = connection, .hash = what};
}

static char *
directory_path(uint64 number)
{
	return psprintf("%s/%s", zklock_path_directory(ZKLOCK_KIND_BARRIER), names[number]);
}

static void
send_list(void)
{
	ZkRequestTag tag = make_tag(TAG_LIST);

	zklock_session_sent(zklock_client_list(zklock_session_client(),
										   zklock_path_directory(ZKLOCK_KIND_BARRIER),
										   false, &tag));
}

static void
start(void)
{
	connection++;
	nnames = next_name = ngets = 0;
	if (our_turn && zklock_session_client() != NULL)
		send_list();
}

static void
look_whether_due(void)
{
	ZkRequestTag tag = make_tag(TAG_TIME);

	if (!zklock_shared->barriers_used || our_turn || zklock_session_client() == NULL ||
		zklock_clock() < due_at)
		return;
	due_at = zklock_clock() + INTERVAL;
	zklock_session_sent(zklock_client_get(zklock_session_client(),
										  zklock_path_directory(ZKLOCK_KIND_BARRIER),
										  false, &tag));
}

static bool
is_old(const ZkMessage *message)
{
	return zklock_time_of_ms(message->mtime) < GetCurrentTimestamp() - UNUSED;
}

static void
take_time(const ZkMessage *message)
{
	ZkRequestTag tag = make_tag(TAG_TURN);

	if (message->rc == ZKLOCK_ZOK && is_old(message))
		zklock_session_sent(zklock_client_set(zklock_session_client(),
											  zklock_path_directory(ZKLOCK_KIND_BARRIER),
											  "", 0, message->version, &tag));
}

/* Send gets of the next directories. */
static void
go_on(void)
{
	while (ngets < WINDOW && next_name < nnames)
	{
		ZkRequestTag tag = make_tag((uint64) next_name);

		ngets++;
		zklock_session_sent(zklock_client_get(zklock_session_client(),
											  directory_path((uint64) next_name++), false,
											  &tag));
	}
	if (ngets > 0)
		return;
	our_turn = false;
	if (names_context != NULL)
		MemoryContextReset(names_context);
	nnames = next_name = 0;
}

static void
take_list(const ZkMessage *message)
{
	MemoryContext save;

	if (names_context == NULL)
		names_context = AllocSetContextCreate(TopMemoryContext, "zklock barriers",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(names_context);
	save = MemoryContextSwitchTo(names_context);
	nnames = next_name = 0;
	if (message->rc == ZKLOCK_ZOK)
	{
		names = palloc_extended(sizeof(char *) * ((Size) message->nchildren + 1),
								MCXT_ALLOC_HUGE);
		for (; nnames < message->nchildren; nnames++)
			names[nnames] = pstrdup(message->children[nnames]);
	}
	MemoryContextSwitchTo(save);
	go_on();
}

/* Handle the reply for a directory.  If the directory changes from now on, it stays:
 * somebody uses it. */
static void
take_directory(const ZkMessage *message)
{
	ZkOp op = {.type = ZKLOCK_OP_DELETE, .version = message->version};
	ZkRequestTag tag = make_tag(message->tag.hash);

	Assert(ngets > 0 && message->tag.hash < (uint64) next_name);
	ngets--;
	if (message->rc == ZKLOCK_ZOK && message->nchildren == 0 && is_old(message))
	{
		op.path = directory_path(message->tag.hash);
		zklock_session_sent(zklock_client_multi(zklock_session_client(), &op, 1, &tag));
	}
	go_on();
}

static void
on_message(const ZkMessage *message)
{
	if (message->tag.generation != connection || zklock_session_client() == NULL)
		return;
	switch (message->type)
	{
		case ZKLOCK_MSG_GOT:
			if (message->tag.hash == TAG_TIME)
				take_time(message);
			else
				take_directory(message);
			break;
		case ZKLOCK_MSG_SET:
			our_turn = message->rc == ZKLOCK_ZOK;
			if (our_turn)
				send_list();
			break;
		case ZKLOCK_MSG_LISTED:
			take_list(message);
			break;
		default: /* a directory is gone, or is used again */
			break;
	}
}

static void
on_event(ZkLockEventType type)
{
	if (type == ZKLOCK_EV_CONNECTED || type == ZKLOCK_EV_RESUMED)
		start();
	else if (type == ZKLOCK_EV_TICK)
		look_whether_due();
}

const ZkAgent zklock_barrier_unused_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
};
