/*-------------------------------------------------------------------------
 *
 * zk.h
 *	  Declares what every part needs of ZooKeeper: a session's id, the return codes, and
 *	  the clock for all times.
 *
 * Does not include zookeeper.h, so that backends do not need the library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ZK_H
#define ZKLOCK_ZK_H

#include <stdbool.h>
#include <stdint.h>

#define ZKLOCK_PASSWORD_LEN 16

/* Session id and password: what it takes to resume a session. */
typedef struct ZkSessionId
{
	int64_t id; /* 0: no session */
	char password[ZKLOCK_PASSWORD_LEN];
} ZkSessionId;

/* Did ClickHouse Keeper give the session?  A session has no password there, so it is
 * never resumed.  ZooKeeper's password is random, except for a session that is gone
 * (KeeperTCPHandler.cpp; SessionTracker and ZooKeeperServer.java, generatePasswd). */
extern bool zklock_session_is_of_keeper(const ZkSessionId *id);

/* The return codes that zklock distinguishes; ZooKeeper's own numbers. */
#define ZKLOCK_ZOK				 0
#define ZKLOCK_ZCONNECTIONLOSS	 (-4)
#define ZKLOCK_ZMARSHALLINGERROR (-5)
#define ZKLOCK_ZOPERATIONTIMEOUT (-7)
#define ZKLOCK_ZNONODE			 (-101)
#define ZKLOCK_ZNOAUTH			 (-102)
#define ZKLOCK_ZBADVERSION		 (-103)
#define ZKLOCK_ZNODEEXISTS		 (-110)
#define ZKLOCK_ZNOTEMPTY		 (-111)
#define ZKLOCK_ZNOWATCHER		 (-121)
#define ZKLOCK_ZSESSIONEXPIRED	 (-112)
#define ZKLOCK_ZQUOTAEXCEEDED	 (-125) /* the library does not know it */

/* What a return code says about the request. */
typedef enum ZkReply
{
	ZKLOCK_REPLY_OK,
	ZKLOCK_REPLY_NO_NODE,
	ZKLOCK_REPLY_EXISTS,
	ZKLOCK_REPLY_NOT_EMPTY,
	ZKLOCK_REPLY_BAD_VERSION,
	ZKLOCK_REPLY_LOST, /* done or not, nobody knows: the connection was lost, or the session */
	ZKLOCK_REPLY_REFUSED /* for good: for want of rights, by a quota, or otherwise */
} ZkReply;

extern ZkReply zklock_reply(int rc);

static inline bool
zklock_rc_is_lost(int rc)
{
	return zklock_reply(rc) == ZKLOCK_REPLY_LOST;
}

/* Any return code as text: the library's own, where it has one, see test/client. */
extern const char *zklock_rc_text(int rc);

/* ns of CLOCK_BOOTTIME: runs on while the machine sleeps. */
extern int64_t zklock_clock(void);

#endif /* ZKLOCK_ZK_H */
