/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  Looks for contenders of our session that nobody here knows of, and for barriers that
 *	  nobody uses.
 *
 * A create that a deposed leader hid may turn up when its lock has long been
 * forgotten here (see src/README, section 6, "Doubt").  Where the lock is in use,
 * the queue's own listings show it.  Elsewhere nobody would look, and a session
 * that lives for months never sheds it.  So after each new connection, and every hour,
 * the worker lists all directories, a few with each heartbeat.
 *
 * What bears our session's mark and is in no queue when the listing arrives is an
 * orphan: a uuid is in the table before its create is sent, and stays there until
 * its delete is confirmed, which is after any listing that still shows it.  So it is with
 * parties of barriers.
 *
 * The directory of a barrier keeps what became of its rounds, so it is no container.  One
 * that is empty, and was not written for a day, is deleted by whoever sees it: nobody who
 * was let go has been on his way for so long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "barrier.h"
#include "orphans.h"
#include "path.h"
#include "rounds.h"
#include "place.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "zktime.h"

/* Directories listed with each heartbeat. */
#define BATCH	 16

#define NS_PER_S INT64CONST(1000000000)
#define INTERVAL (3600 * NS_PER_S)

/* us without a round, after which a barrier's directory goes */
#define UNUSED (24 * USECS_PER_HOUR)

/* The tag of the listing of all directories of a kind; their own are numbered. */
#define ROOT PG_UINT64_MAX

/* What remains to be done of the present round. */
static int round_number = 0;
static int64 due_at = 0; /* ns: not before then */
static ZkLockKind kind = 0;
static bool root_asked = false;
static MemoryContext names_context = NULL;
static char **names = NULL; /* of the kind's directories, as in ZooKeeper */
static int nnames = 0;
static uint64 roots = 0; /* how often these were other ones */
static int next_name = 0;

void
zklock_orphans_start(void)
{
	round_number++; /* replies of an earlier one are void */
	due_at = 0;
	kind = 0;
	root_asked = false;
	nnames = next_name = 0;
}

static void
next_kind(void)
{
	root_asked = false;
	kind = (ZkLockKind) ((kind + 1) % ZKLOCK_NKINDS);
	if (kind == 0)
		due_at = zklock_clock() + INTERVAL;
}

static void
send_list(const char *path, uint64 number)
{
	ZkRequestTag tag = {.kind = ZKLOCK_TAG_ORPHANS,
						.entry = (uint32) kind,
						.generation = (uint32) round_number,
						.hash = number};

	(void) zklock_client_list(zklock_session_client(), path, false, &tag);
}

static char *
directory_path(ZkLockKind of_kind, uint64 number)
{
	return psprintf("%s/%s", zklock_path_directory(of_kind), names[number]);
}

void
zklock_orphans_work(void)
{
	if (zklock_session_client() == NULL || zklock_clock() < due_at)
		return;
	if (!root_asked)
	{
		root_asked = true;
		send_list(zklock_path_directory(kind), ROOT);
		return;
	}
	if (next_name == nnames)
		return; /* the reply is on its way */
	for (int i = 0; i < BATCH && next_name < nnames; i++, next_name++)
	{
		char *path = directory_path(kind, (uint64) next_name);

		send_list(path, (uint64) next_name);
		pfree(path);
	}
	if (next_name == nnames)
		next_kind();
}

/* All listings of the kind before have been answered by now. */
static void
take_root(const ZkMessage *message)
{
	MemoryContext old;

	if (names_context == NULL)
		names_context = AllocSetContextCreate(TopMemoryContext, "zklock directories",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(names_context);
	roots++;
	old = MemoryContextSwitchTo(names_context);
	nnames = next_name = 0;
	if (message->rc == ZKLOCK_ZOK)
	{
		names = palloc_extended(sizeof(char *) * ((Size) message->nchildren + 1),
								MCXT_ALLOC_HUGE);
		for (; nnames < message->nchildren; nnames++)
			names[nnames] = pstrdup(message->children[nnames]);
	}
	MemoryContextSwitchTo(old);
	if (nnames == 0)
		next_kind();
}

static bool
is_known(ZkLockKind of_kind, const char *directory, uint64 uuid)
{
	char name[ZKLOCK_NAME_MAX + 1];
	const ZkLockEntry *entry;

	if (!zklock_decode_name(directory, name))
		return false;
	if (of_kind == ZKLOCK_KIND_SLOT)
		return zklock_places_know(name, uuid);
	/* the worker alone changes queues, and who has one that is not empty stays */
	entry = zklock_table_find(of_kind, name);
	return entry != NULL && zklock_queue_knows(&entry->queue, uuid);
}

/* Is a child one of our session's, and nobody's here? */
static bool
is_orphan(ZkLockKind of_kind, const char *directory, const char *name)
{
	ZkLockChild child;
	ZkPartyNode node;

	if (of_kind == ZKLOCK_KIND_BARRIER)
		return zklock_parse_party(name, &node) &&
			node.session == zklock_shared->session.uuid_hi &&
			!zklock_rounds_knows(node.id);
	return zklock_parse_child(name, &child) &&
		child.uuid_hi == zklock_shared->session.uuid_hi &&
		!is_known(of_kind, directory, child.uuid_lo);
}

static void
take_directory(const ZkMessage *message)
{
	ZkLockKind of_kind = (ZkLockKind) message->tag.entry;
	const char *directory = names[message->tag.hash];
	ZkClient *client = zklock_session_client();

	Assert(message->tag.hash < (uint64) nnames);
	for (int i = 0; i < message->nchildren; i++)
	{
		char *path;

		if (!is_orphan(of_kind, directory, message->children[i]))
			continue;
		path = psprintf("%s/%s/%s", zklock_path_directory(of_kind), directory,
						message->children[i]);
		ereport(LOG, (errmsg("deleting orphaned contender \"%s\"", path)));
		if (client != NULL)
			(void) zklock_client_delete(client, path, &zklock_no_tag);
		pfree(path);
	}
	if (of_kind == ZKLOCK_KIND_BARRIER && message->nchildren == 0 && client != NULL)
	{
		char *path = directory_path(of_kind, message->tag.hash);
		ZkRequestTag tag = message->tag;

		tag.uuid = roots;
		(void) zklock_client_get(client, path, false, &tag);
		pfree(path);
	}
}

/* An empty directory of a barrier.  What has changed since then is left. */
static void
take_unused(const ZkMessage *message)
{
	ZkOp op = {.type = ZKLOCK_OP_DELETE, .version = message->version};
	char *path;

	if (message->rc != ZKLOCK_ZOK || message->tag.uuid != roots || message->nchildren > 0 ||
		zklock_time_of_ms(message->mtime) > GetCurrentTimestamp() - UNUSED ||
		zklock_session_client() == NULL)
		return;
	path = directory_path(ZKLOCK_KIND_BARRIER, message->tag.hash);
	op.path = path;
	(void) zklock_client_multi(zklock_session_client(), &op, 1, &message->tag);
	pfree(path);
}

void
zklock_orphans_message(const ZkMessage *message)
{
	if (message->tag.generation != (uint32) round_number)
		return;
	if (message->type == ZKLOCK_MSG_MULTI)
		return; /* it is gone, or is used again */
	if (message->type == ZKLOCK_MSG_GOT)
		take_unused(message);
	else if (message->tag.hash == ROOT)
		take_root(message);
	else if (message->rc == ZKLOCK_ZOK)
		take_directory(message);
}
