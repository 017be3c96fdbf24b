/*-------------------------------------------------------------------------
 *
 * hosts.c
 *	  The connect string, and what the hosts in it have answered.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "hosts.h"
#include "liblog.h"
#include "settings.h"
#include "table.h"
#include "trouble.h"

/* What each host answered last; for the error that a waiter gets. */
#define MAX_ATTEMPTS 12

static ZkLogAnswer attempts[MAX_ATTEMPTS];
static int nattempts = 0;

void
zklock_hosts_effective(char *buf, size_t size)
{
	const ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */
	size_t len = strcspn(zklock_hosts, "/");

	strlcpy(buf, zklock_hosts, size);
	if (s->id.id != 0 && strcmp(buf + len, s->hosts + strcspn(s->hosts, "/")) != 0)
		snprintf(buf, size, "%.*s%s", (int) len, zklock_hosts,
				 s->hosts + strcspn(s->hosts, "/"));
}

bool
zklock_hosts_changed(void)
{
	char hosts[sizeof(zklock_shared->session.hosts)];

	zklock_hosts_effective(hosts, sizeof(hosts));
	if (strcmp(hosts, zklock_hosts) != 0)
		ereport(LOG,
				(errmsg("the new chroot path in \"%s\" takes effect with the next ZooKeeper session",
						"zklock.hosts")));
	return strcmp(hosts, zklock_shared->session.hosts) != 0;
}

ZkTries *
zklock_hosts_tries(void)
{
	static ZkTries tries;

	return &tries;
}

void
zklock_hosts_reached(void)
{
	nattempts = 0;
}

void
zklock_hosts_heard(const char *line)
{
	int i;
	ZkLogAnswer a;
	char news[sizeof(a.host) + sizeof(a.answer) + 2];
	char all[sizeof(zklock_shared->session.attempts)];
	char *to = all;
	size_t room = sizeof(all);

	/* a session's expiry is reported as such */
	if (!zklock_liblog_answer(line, &a) || a.rc == ZKLOCK_ZSESSIONEXPIRED)
		return;

	for (i = 0; i < nattempts && strcmp(attempts[i].host, a.host) != 0; i++)
		;
	if (i == MAX_ATTEMPTS)
		return;
	snprintf(news, sizeof(news), "%s: %s", a.host, a.answer);
	if ((i == nattempts || strcmp(attempts[i].answer, a.answer) != 0) &&
		strstr(zklock_shared->session.attempts, news) == NULL)
		zklock_trouble("could not connect to ZooKeeper server %s", news);
	attempts[i] = a;
	nattempts = Max(nattempts, i + 1);

	for (i = 0; i < nattempts && room > 1; i++)
	{
		int n = snprintf(to, room, "%s%s: %s", i ? "; " : "", attempts[i].host,
						 attempts[i].answer);

		n = Min(n, (int) room - 1);
		to += n;
		room -= (size_t) n;
	}
	zklock_trouble_attempts(all);
}
