/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  Looks for contenders of our session that nobody here knows of.
 *
 * A create that a deposed leader hid may turn up when its lock has long been
 * forgotten here (see src/README, section 6, "Doubt").  Where the lock is in use,
 * the queue's own listings show it.  Elsewhere nobody would look, and a session
 * that lives for months never sheds it.  So after each new connection, and every hour,
 * the worker lists all directories, a few with each heartbeat.
 *
 * What bears our session's mark and is in no queue when the listing arrives is an
 * orphan: a uuid is in the table before its create is sent, and stays there until
 * its delete is confirmed, which is after any listing that still shows it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "utils/memutils.h"

#include "orphans.h"
#include "path.h"
#include "place.h"
#include "session.h"
#include "table.h"
#include "tag.h"

/* Directories listed with each heartbeat. */
#define BATCH	 16

#define NS_PER_S INT64CONST(1000000000)
#define INTERVAL (3600 * NS_PER_S)

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

static void
take_directory(const ZkMessage *message)
{
	ZkLockKind of_kind = (ZkLockKind) message->tag.entry;
	const char *directory = names[message->tag.hash];
	ZkRequestTag tag = {0};

	Assert(message->tag.hash < (uint64) nnames);
	for (int i = 0; i < message->nchildren; i++)
	{
		ZkLockChild child;
		char *path;

		if (!zklock_parse_child(message->children[i], &child) ||
			child.uuid_hi != zklock_shared->session.uuid_hi ||
			is_known(of_kind, directory, child.uuid_lo))
			continue;
		path = psprintf("%s/%s/%s", zklock_path_directory(of_kind), directory, child.name);
		ereport(LOG, (errmsg("deleting orphaned contender \"%s\"", path)));
		if (zklock_session_client() != NULL)
			(void) zklock_client_delete(zklock_session_client(), path, &tag);
		pfree(path);
	}
}

void
zklock_orphans_message(const ZkMessage *message)
{
	if (message->tag.generation != (uint32) round_number)
		return;
	if (message->tag.hash == ROOT)
		take_root(message);
	else if (message->rc == ZKLOCK_ZOK)
		take_directory(message);
}
