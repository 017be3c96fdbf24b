/*-------------------------------------------------------------------------
 *
 * member.c
 *	  This server's own znode under <root>/servers, and the heartbeats.
 *
 * The node is ephemeral.  It shows which servers there are (zk_servers): two servers of
 * the same name have a node each.  The heartbeats are writes of this node.  An
 * acknowledged write proves that this server's ZooKeeper server reaches a quorum, which
 * no read and no ping proves.  The content of a heartbeat tells whose this server's
 * contenders are (reporter.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"

#include "contender.h"
#include "drain.h"
#include "member.h"
#include "names.h"
#include "path.h"
#include "reporter.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"

/* Time between two checks for something to report. */
#define LOOK_NS INT64CONST(1000000000)

/* The tag of a heartbeat without a report. */
#define BRIEF 1
static const ZkRequestTag brief_tag = {.kind = ZKLOCK_TAG_NONE, .uuid = BRIEF};

static char member_path[ZKLOCK_MEMBER_PATH_SIZE]; /* our node under <root>/servers */
static uint64 told_text = 0; /* hash of what the newest heartbeat says */
static int64 look_at = 0;	 /* ns: whether that has changed, while none is sent */
static int missing = 0;		 /* times in a row that it was not there */

void
zklock_member_set_name(void)
{
	char name[256];
	char encoded[ZKLOCK_ENCODED_MAX + 1];

	zklock_effective_server_name(name, sizeof(name));
	zklock_encode_name(name, encoded);
	snprintf(member_path, sizeof(member_path), "%s/%s-%016llx", zklock_path_servers(),
			 encoded, (unsigned long long) zklock_shared->session.uuid_hi);
	strlcpy(zklock_shared->member, member_path, sizeof(zklock_shared->member));
}

bool
zklock_member_resume(void)
{
	const char *path = zklock_shared->member;
	size_t len = strlen(path);
	char mark[ZKLOCK_MARK_LEN + 2];

	snprintf(mark, sizeof(mark), "-%016llx",
			 (unsigned long long) zklock_shared->session.uuid_hi);
	if (len < strlen(mark) || strcmp(path + len - strlen(mark), mark) != 0)
		return false;
	strlcpy(member_path, path, sizeof(member_path));
	return true;
}

const char *
zklock_member_path(void)
{
	return member_path;
}

const char *
zklock_member_namesake(const char *child)
{
	const char *own = member_path + strlen(zklock_path_servers()) + 1;
	size_t len = strlen(own) - ZKLOCK_MARK_LEN;

	if (strncmp(child, own, len) != 0 || strlen(child + len) != ZKLOCK_MARK_LEN ||
		strspn(child + len, "0123456789abcdef") != ZKLOCK_MARK_LEN ||
		strcmp(child, own) == 0)
		return NULL;
	return child + len;
}

/* "reports": with the report; else the text is as long as the one before, if it can */
static void
describe(StringInfo data, bool reports)
{
	static ZkDrain told = ZKLOCK_DRAIN_OFF;
	ZkDrain drain = zklock_drain_state();
	char *report;

	if (drain == ZKLOCK_DRAIN_DONE && told != drain)
		ereport(LOG,
				(errmsg("this server is drained: it holds no lock and leads no election")));
	told = drain;
	zklock_describe_member(data, zklock_shared->elections_led,
						   pg_atomic_read_u32(&zklock_shared->njobs),
						   zklock_drain_name(drain));
	if (!reports)
	{
		appendStringInfo(data, "%*s", Max(zklock_shared->member_len - data->len, 1), "}");
		return;
	}
	report = zklock_reporter_write();
	appendStringInfo(data, ", %s}", report);
	pfree(report);
}

int
zklock_member_write_left(ZkClient *client, const char *path, const ZkRequestTag *tag)
{
	StringInfoData data;
	int rc;

	/* "drained" would say that this session has nothing */
	zklock_describe_member(&data, 0, 0,
						   zklock_drain_name(zklock_draining() ? ZKLOCK_DRAIN_ON
															   : ZKLOCK_DRAIN_OFF));
	appendStringInfoChar(&data, '}');
	rc = zklock_client_set(client, path, data.data, data.len, -1, tag);
	pfree(data.data);
	return rc;
}

void
zklock_member_make(ZkClient *client)
{
	StringInfoData data;

	describe(&data, true);
	(void) zklock_client_create(client, member_path, data.data, data.len,
								ZKLOCK_CREATE_EPHEMERAL, &zklock_no_tag);
	pfree(data.data);
}

static ZkHeartbeat *
heartbeat(void)
{
	return &zklock_shared->session.heartbeat;
}

static uint64
hash_text(const char *text)
{
	return hash_bytes_extended((const unsigned char *) text, (int) strlen(text), 0);
}

static int
write_node(ZkClient *client, const ZkRequestTag *tag, bool reports)
{
	StringInfoData data;
	int rc;

	Assert(zklock_unlocked());
	describe(&data, reports);
	told_text = hash_text(data.data);
	rc = zklock_client_set(client, member_path, data.data, data.len, -1, tag);
	pfree(data.data);
	return rc;
}

int
zklock_member_touch(ZkClient *client, const ZkRequestTag *tag)
{
	return write_node(client, tag, true);
}

void
zklock_member_op(ZkOp *op)
{
	StringInfoData data;

	describe(&data, true);
	*op = (ZkOp){
		.type = ZKLOCK_OP_SET,
		.path = member_path,
		.data = data.data,
		.datalen = data.len,
		.version = -1,
	};
}

static void
send_heartbeat(ZkClient *client, int64 now, bool reports)
{
	if (write_node(client, reports ? &zklock_no_tag : &brief_tag, reports) == ZKLOCK_ZOK)
		zklock_heartbeat_sent(heartbeat(), now);
}

/* A quota of bytes lets a text pass that is as long as the one before; and only a write
 * that is not refused shows whether the ensemble has gone back (ensemble.c). */
void
zklock_member_start(ZkClient *client)
{
	int64 now = zklock_clock();

	zklock_heartbeat_connected(heartbeat(), now);
	send_heartbeat(client, now, !zklock_shared->quota_refused);
}

long
zklock_member_heartbeat(ZkClient *client)
{
	const ZkLease *lease = &zklock_shared->session.lease;
	int64 now = zklock_clock();
	int64 due = zklock_heartbeat_due(heartbeat(), lease, now);

	if (pg_atomic_exchange_u32(&zklock_shared->write_wanted, 0) != 0 || now >= due)
	{
		send_heartbeat(client, now, true);
		due = zklock_heartbeat_due(heartbeat(), lease, now);
	}
	else if (heartbeat()->resting && now >= look_at)
	{
		look_at = now + LOOK_NS;
		zklock_member_look(client);
	}
	/* a kept grant may be taken without a word as long as there is a lease */
	if (heartbeat()->resting && zklock_lease_valid())
		due = Min(due, now + lease->timeout / 16);
	return due == ZKLOCK_NO_HEARTBEAT ? -1 : (long) (Max(due - now, 0) / NS_PER_MS + 1);
}

void
zklock_member_look(ZkClient *client)
{
	StringInfoData data;

	describe(&data, true);
	if (hash_text(data.data) != told_text && !heartbeat()->open)
		send_heartbeat(client, zklock_clock(), true);
	pfree(data.data);
}

void
zklock_member_answer(const ZkMessage *message)
{
	zklock_heartbeat_answered(heartbeat());
	if (message->tag.uuid != BRIEF &&
		(message->rc == ZKLOCK_ZOK || message->rc == ZKLOCK_ZQUOTAEXCEEDED))
		zklock_shared->quota_refused = message->rc == ZKLOCK_ZQUOTAEXCEEDED;
	if (message->rc == ZKLOCK_ZOK)
	{
		missing = 0;
		zklock_shared->member_len = message->datalen;
	}
	else if (message->rc == ZKLOCK_ZNONODE && ++missing >= ZKLOCK_TIMES_MISSING)
		zklock_trouble_again(missing == ZKLOCK_TIMES_MISSING,
							 "could not create znode \"%s\": a chroot path in \"zklock.hosts\" must exist",
							 member_path);
}

int
zklock_member_times_missing(void)
{
	return missing;
}
