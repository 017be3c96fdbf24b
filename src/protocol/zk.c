/*-------------------------------------------------------------------------
 *
 * zk.c
 *	  Finds out whether ZooKeeper or ClickHouse Keeper gave a session, turns return codes
 *	  into text, and reads the clock.
 *
 *-------------------------------------------------------------------------
 */
#include "zk.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

bool
zklock_session_is_of_keeper(const ZkSessionId *id)
{
	static const char none[ZKLOCK_PASSWORD_LEN] = {0};

	return id->id != 0 && memcmp(id->password, none, sizeof(none)) == 0;
}

ZkReply
zklock_reply(int rc)
{
	switch (rc)
	{
		case ZKLOCK_ZOK:
			return ZKLOCK_REPLY_OK;
		case ZKLOCK_ZNONODE:
			return ZKLOCK_REPLY_NO_NODE;
		case ZKLOCK_ZNODEEXISTS:
			return ZKLOCK_REPLY_EXISTS;
		case ZKLOCK_ZNOTEMPTY:
			return ZKLOCK_REPLY_NOT_EMPTY;
		case ZKLOCK_ZBADVERSION:
			return ZKLOCK_REPLY_BAD_VERSION;
		case ZKLOCK_ZCONNECTIONLOSS:
		case ZKLOCK_ZOPERATIONTIMEOUT:
		case ZKLOCK_ZSESSIONEXPIRED:
			return ZKLOCK_REPLY_LOST;
		default:
			return ZKLOCK_REPLY_REFUSED;
	}
}

static const struct
{
	int rc;
	const char *text;
} texts[] = {
	{0, "ok"},
	{-1, "system error"},
	{-2, "run time inconsistency"},
	{-3, "data inconsistency"},
	{-4, "connection loss"},
	{-5, "marshalling error"},
	{-6, "unimplemented"},
	{-7, "operation timeout"},
	{-8, "bad arguments"},
	{-9, "invalid zhandle state"},
	{-13,
	 "no quorum of new config is connected and up-to-date with the leader of last committed config - try invoking reconfiguration after new servers are connected and synced"},
	{-14,
	 "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)"},
	{-100, "api error"},
	{-101, "no node"},
	{-102, "not authenticated"},
	{-103, "bad version"},
	{-108, "no children for ephemerals"},
	{-110, "node exists"},
	{-111, "not empty"},
	{-112, "session expired"},
	{-113, "invalid callback"},
	{-114, "invalid acl"},
	{-115, "authentication failed"},
	{-116, "zookeeper is closing"},
	{-117, "(not error) no server responses to process"},
	{-118, "session moved to another server, so operation is ignored"},
	{-119, "state-changing request is passed to read-only server"},
	{-120, "attempt to create ephemeral node on a local session"},
	{-121, "the watcher couldn't be found"},
	{-123,
	 "attempts to perform a reconfiguration operation when reconfiguration feature is disable"},
	{-124, "session closed by server because client is required to do SASL authentication"},
	{ZKLOCK_ZQUOTAEXCEEDED, "quota exceeded"},
	{-127, "Operation was throttled due to high load"},
};

const char *
zklock_rc_text(int rc)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
	{
		if (texts[i].rc == rc)
			return texts[i].text;
	}
	return "unknown error";
}

int64_t
zklock_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}
