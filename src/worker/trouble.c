/*-------------------------------------------------------------------------
 *
 * trouble.c
 *	  Reports what went wrong with the session, in the log and in zk_session.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "table.h"
#include "trouble.h"

/*
 * The answer of a server older than 3.5 to "create2", before it closes the connection.
 */
#define ZUNIMPLEMENTED (-6)

static void
tell(bool log, const char *fmt, va_list args)
{
	char text[sizeof(zklock_shared->session.last_error)];
	ZkSessionShared *s;

	vsnprintf(text, sizeof(text), fmt, args);
	if (log)
		ereport(LOG, (errmsg_internal("%s", text)));
	s = zklock_session_lock(LW_EXCLUSIVE);
	strlcpy(s->last_error, text, sizeof(s->last_error));
	s->last_error_at = GetCurrentTimestamp();
	zklock_session_unlock();
}

void
zklock_trouble(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tell(true, fmt, args);
	va_end(args);
}

void
zklock_trouble_again(bool log, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	tell(log, fmt, args);
	va_end(args);
}

void
zklock_trouble_refused(const ZkMessage *message)
{
	static int last_rc = 0;

	zklock_trouble_again(message->rc != last_rc,
						 "ZooKeeper refused a request of the worker%s%s: %s",
						 message->path ? " on " : "", message->path ? message->path : "",
						 zklock_rc_text(message->rc));
	last_rc = message->rc;
	if (message->rc == ZUNIMPLEMENTED)
		zklock_trouble_connecting("the ZooKeeper server is too old: 3.6 or newer is needed");
}

void
zklock_trouble_sending(ZkClient *client, int rc)
{
	if (rc != ZKLOCK_ZOK && zklock_client_connected(client))
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not send a request to ZooKeeper: %s", zklock_rc_text(rc))));
}

static void
show_to_waiters(const char *text, bool other)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	strlcpy(s->attempts, text, sizeof(s->attempts));
	s->other_trouble = other;
	zklock_session_unlock();
}

void
zklock_trouble_attempts(const char *text)
{
	show_to_waiters(text, false);
}

void
zklock_trouble_connecting(const char *text)
{
	show_to_waiters(text, true);
}
