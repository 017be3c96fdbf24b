/*-------------------------------------------------------------------------
 *
 * member.c
 *	  Our own znode under <root>/servers, and the heartbeats.
 *
 * It is ephemeral.  It tells people which servers there are (zk_servers): two servers
 * of one name have a node each.  And it takes the heartbeats.  A heartbeat is a
 * write: its acknowledgement proves that our server reaches a quorum, which no read
 * and no ping does. What it writes says whose our contenders are (reporter.c).
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

static char member_path[1280]; /* our node under <root>/servers */
static int heartbeats_open;	   /* replies outstanding */
static int missing = 0;		   /* times in a row that it was not there */
static int64 heartbeat_at;	   /* ns: when the next one is due */

bool
zklock_member_set_name(void)
{
	char name[256];
	char encoded[ZKLOCK_ENCODED_MAX + 1];
	uint64 before = zklock_shared->member;

	zklock_effective_server_name(name, sizeof(name));
	zklock_encode_name(name, encoded);
	snprintf(member_path, sizeof(member_path), "%s/%s-%016llx", zklock_path_servers(),
			 encoded, (unsigned long long) zklock_shared->session.uuid_hi);
	zklock_shared->member = hash_bytes_extended((const unsigned char *) member_path,
												(int) strlen(member_path), 0);
	return zklock_shared->member != before;
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

static void
describe(StringInfo data)
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
	report = zklock_reporter_write();
	appendStringInfo(data, ", %s}", report);
	pfree(report);
}

void
zklock_member_make(ZkClient *client)
{
	StringInfoData data;

	describe(&data);
	(void) zklock_client_create(client, member_path, data.data, data.len,
								ZKLOCK_CREATE_EPHEMERAL, &zklock_no_tag);
	pfree(data.data);
}

/* ns */
static int64
heartbeat_interval(void)
{
	int64 interval =
		NS_PER_MS * zklock_heartbeat_interval(zklock_shared->session.timeout_ms);

	/* the lease takes four writes with pauses between them to come back */
	return zklock_lease_valid() ? interval : Max(interval / 6, NS_PER_MS);
}

int
zklock_member_touch(ZkClient *client, const ZkRequestTag *tag)
{
	StringInfoData data;
	int rc;

	Assert(zklock_unlocked());
	describe(&data);
	rc = zklock_client_set(client, member_path, data.data, data.len, -1, tag);
	pfree(data.data);
	return rc;
}

void
zklock_member_op(ZkOp *op)
{
	StringInfoData data;

	describe(&data);
	*op = (ZkOp){
		.type = ZKLOCK_OP_SET,
		.path = member_path,
		.data = data.data,
		.datalen = data.len,
		.version = -1,
	};
}

static void
send_heartbeat(ZkClient *client, int64 now)
{
	if (zklock_member_touch(client, &zklock_no_tag) == ZKLOCK_ZOK)
		heartbeats_open++;
	heartbeat_at = now + heartbeat_interval();
}

void
zklock_member_start(ZkClient *client)
{
	heartbeats_open = 0;
	send_heartbeat(client, zklock_clock());
}

long
zklock_member_heartbeat(ZkClient *client)
{
	int64 now = zklock_clock();

	if ((now >= heartbeat_at && heartbeats_open == 0) ||
		pg_atomic_exchange_u32(&zklock_shared->write_wanted, 0) != 0)
		send_heartbeat(client, now);
	return now >= heartbeat_at ? (long) (heartbeat_interval() / NS_PER_MS)
							   : (long) ((heartbeat_at - now) / NS_PER_MS + 1);
}

void
zklock_member_answer(const ZkMessage *message)
{
	if (heartbeats_open > 0)
		heartbeats_open--;
	if (message->rc == ZKLOCK_ZOK)
	{
		missing = 0;
		/* sooner, the next would be no witness for this one */
		if (zklock_lease_valid())
			heartbeat_at = Max(heartbeat_at,
							   zklock_lease_next_witness(&zklock_shared->session.lease));
	}
	else if (message->rc == ZKLOCK_ZNONODE && ++missing == ZKLOCK_TIMES_MISSING)
		zklock_trouble("could not create znode \"%s\": a chroot path in \"zklock.hosts\" must exist",
					   member_path);
}

int
zklock_member_times_missing(void)
{
	return missing;
}
