/*-------------------------------------------------------------------------
 *
 * job_leftruns.c
 *	  Finds runs of jobs that this server's previous life has left to be settled.
 *
 * Only the records tell which runs these are: a crash loses what was in memory.  So the
 * session of the previous life reads all records before it is closed.  When the record
 * of a job with such a run changes, the worker reads it again, until a settler has
 * settled the run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xlog.h"
#include "utils/memutils.h"

#include "job_leftruns.h"
#include "job_text.h"
#include "names.h"
#include "path.h"
#include "tag.h"
#include "trouble.h"

/* Number of first reads that are open at a time. */
#define WINDOW 128

/* The tag of the listing; gets are numbered. */
#define LISTING PG_UINT64_MAX

typedef struct Record
{
	char *node; /* the job's, as in ZooKeeper */
	bool left;	/* it has such a run */
} Record;

static uint32 round_number = 0; /* replies of an earlier one are void */
static MemoryContext context = NULL;
static Record *records = NULL;
static int nrecords = 0;
static int next = 0;  /* to be asked for */
static int nopen = 0; /* first replies to come */
static int nleft = 0; /* that are left */
static bool listed = false;

void
zklock_job_leftruns_forget(void)
{
	round_number++;
	nrecords = next = nopen = nleft = 0;
	listed = false;
	if (context != NULL)
		MemoryContextReset(context);
}

bool
zklock_job_leftruns_own(void)
{
	return GetRecoveryState() != RECOVERY_STATE_ARCHIVE;
}

bool
zklock_job_leftruns_any(void)
{
	return nleft > 0;
}

static ZkRequestTag
make_tag(uint64 what, bool again)
{
	return (ZkRequestTag){.kind = ZKLOCK_TAG_LEFTRUNS,
						  .generation = round_number,
						  .hash = what,
						  .uuid = again};
}

bool
zklock_job_leftruns_ask(ZkClient *client)
{
	ZkRequestTag tag;

	zklock_job_leftruns_forget();
	if (!zklock_job_leftruns_own())
		return false;
	tag = make_tag(LISTING, false);
	/* a settler may have written by another ZooKeeper server */
	zklock_trouble_sending(client,
						   zklock_client_sync(client, zklock_path_directory(ZKLOCK_KIND_JOB),
											  &zklock_no_tag));
	zklock_trouble_sending(client,
						   zklock_client_list(client, zklock_path_directory(ZKLOCK_KIND_JOB),
											  false, &tag));
	return true;
}

static char *
path_of(const Record *record)
{
	return psprintf("%s/%s", zklock_path_directory(ZKLOCK_KIND_JOB), record->node);
}

/* Read a record.  The first read sets no watch, since hardly any record needs one. */
static void
get(ZkClient *client, int i, bool again)
{
	ZkRequestTag tag = make_tag((uint64) i, again);
	char *path = path_of(&records[i]);

	zklock_trouble_sending(client, zklock_client_get(client, path, again, &tag));
	pfree(path);
}

static void
go_on(ZkClient *client)
{
	for (; nopen < WINDOW && next < nrecords; next++, nopen++)
		get(client, next, false);
}

static void
take_listing(ZkClient *client, const ZkMessage *message)
{
	MemoryContext save;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "zklock records",
										ALLOCSET_DEFAULT_SIZES);
	save = MemoryContextSwitchTo(context);
	records =
		palloc_extended(sizeof(Record) * ((Size) message->nchildren + 1), MCXT_ALLOC_HUGE);
	for (nrecords = 0; nrecords < message->nchildren; nrecords++)
		records[nrecords] = (Record){.node = pstrdup(message->children[nrecords])};
	MemoryContextSwitchTo(save);
	listed = true;
	go_on(client);
}

/* Does the record have such a run?  A record that cannot be read, because it is damaged
 * or of a newer version, cannot be settled, either. */
static bool
has_left_run(const ZkMessage *message)
{
	static ZkJob job;
	char name[256];

	if (message->rc != ZKLOCK_ZOK ||
		zklock_job_read(message->data, (size_t) message->datalen, &job) !=
			ZKLOCK_RECORD_GOOD)
		return false;
	zklock_effective_server_name(name, sizeof(name));
	return zklock_job_left(&job,
						   &(ZkJobServer){.system = GetSystemIdentifier(), .name = name});
}

static void
take_record(ZkClient *client, int i, const ZkMessage *message)
{
	Record *record = &records[i];
	bool left = has_left_run(message);

	if (left != record->left)
	{
		record->left = left;
		nleft += left ? 1 : -1;
		if (left)
			get(client, i, true);
	}
	if (message->tag.uuid != 0)
		return;
	nopen--;
	go_on(client);
}

/* The watch on a record has fired. */
static void
take_change(ZkClient *client, const char *path)
{
	for (int i = 0; i < nrecords; i++)
	{
		char *own;

		if (!records[i].left)
			continue;
		own = path_of(&records[i]);
		if (strcmp(own, path) == 0)
			get(client, i, true);
		pfree(own);
	}
}

ZkLeftRuns
zklock_job_leftruns_look(ZkClient *client, const ZkMessage *message)
{
	if (message->type == ZKLOCK_MSG_NODE_CHANGED || message->type == ZKLOCK_MSG_NODE_DELETED)
		take_change(client, message->path);
	else if (message->tag.kind != ZKLOCK_TAG_LEFTRUNS ||
			 message->tag.generation != round_number || zklock_rc_is_lost(message->rc))
		return ZKLOCK_LEFT_UNKNOWN;
	else if (message->tag.hash != LISTING)
		take_record(client, (int) message->tag.hash, message);
	else if (message->rc == ZKLOCK_ZOK)
		take_listing(client, message);
	else
		return ZKLOCK_LEFT_NONE; /* there are no jobs, or none that we may read */
	Assert(nopen >= 0 && nopen <= next && next <= nrecords);
	Assert(nleft >= 0 && nleft <= nrecords);
	if (!listed || nopen > 0)
		return ZKLOCK_LEFT_UNKNOWN;
	return nleft > 0 ? ZKLOCK_LEFT_SOME : ZKLOCK_LEFT_NONE;
}
