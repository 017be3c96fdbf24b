/*-------------------------------------------------------------------------
 *
 * hosts.c
 *	  Keeps the connect string, and the latest answers of the hosts in it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "storage/fd.h"

#include "hosts.h"
#include "liblog.h"
#include "lookup.h"
#include "settings.h"
#include "table.h"
#include "trouble.h"

/* The latest answer of each host, for the error that a waiter gets. */
#define MAX_ATTEMPTS 12

static ZkLogAnswer attempts[MAX_ATTEMPTS];
static int nattempts = 0;

/* Hosts whose damaged data was logged in this outage.  The data itself may differ with
 * each attempt. */
static char rubbish_of[MAX_ATTEMPTS][sizeof(attempts[0].host)];
static int nrubbish = 0;

/* The addresses of the names in one connect string without its chroot, since another
 * connect string takes another process.  NULL: no connection was tried yet. */
static ZkLookup *lookup = NULL;
static bool wanting = false; /* addresses were wanted, and there were none */

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
				(errmsg("the new chroot path in \"%s\" takes effect after a restart, or after a loss of the ZooKeeper session",
						"zklock.hosts")));
	return strcmp(hosts, zklock_shared->session.hosts) != 0;
}

/* Publish the addresses of the names for backends. */
static void
show_names(void)
{
	char *names = zklock_lookup_names(lookup);
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);
	size_t len = strlcpy(s->names, names != NULL ? names : "", sizeof(s->names));

	/* whole lines: a part of an address is another one */
	if (len >= sizeof(s->names))
	{
		char *end = strrchr(s->names, '\n');

		*(end != NULL ? end + 1 : s->names) = '\0';
	}
	zklock_session_unlock();
	free(names);
}

static bool
make_lookup(const char *hosts, char *error, size_t errlen)
{
	char *copy = pnstrdup(hosts, strcspn(hosts, "/"));

	Assert(lookup == NULL); /* its descriptor would be lost */
	lookup = zklock_lookup_make(copy, error, (int) errlen);
	pfree(copy);
	if (lookup == NULL)
	{
		int save_errno = errno;

		if (error[0] == '\0')
			strlcpy(error, strerror(save_errno), errlen);
		errno = save_errno;
		return false;
	}
	ReserveExternalFD();
	show_names(); /* not those of a process before */
	zklock_lookup_ask(lookup);
	return true;
}

/* Log once what is wrong with a name. */
static void
tell_unresolved(const char *error)
{
	static char told[320];

	if (error[0] != '\0' && strcmp(error, told) != 0)
		zklock_trouble("%s", error);
	strlcpy(told, error, sizeof(told));
}

char *
zklock_hosts_addresses(const char *hosts, char *error, size_t errlen)
{
	char *known;
	char *all;
	bool awaited;

	if (lookup == NULL && !make_lookup(hosts, error, errlen))
		return NULL;
	known = zklock_lookup_addresses(lookup, error, (int) errlen);
	wanting = known == NULL;
	if (known != NULL)
	{
		tell_unresolved(error);
		all = psprintf("%s%s", known, hosts + strcspn(hosts, "/"));
		free(known);
		return all;
	}
	awaited = error[0] == '\0';
	if (awaited)
		strlcpy(error, "the name service has not answered yet", errlen);
	zklock_lookup_ask(lookup);
	errno = awaited ? EAGAIN : ENOENT;
	return NULL;
}

void
zklock_hosts_ask(void)
{
	if (lookup != NULL)
		zklock_lookup_ask(lookup);
}

bool
zklock_hosts_asking(void)
{
	return lookup != NULL && zklock_lookup_asking(lookup);
}

int
zklock_hosts_fd(void)
{
	return lookup != NULL ? zklock_lookup_fd(lookup) : -1;
}

bool
zklock_hosts_hear(void)
{
	char error[320];
	char *known;
	bool found;

	if (zklock_hosts_fd() < 0)
		return false;
	zklock_lookup_hear(lookup);
	show_names();
	if (!wanting)
		return false;
	known = zklock_lookup_addresses(lookup, error, sizeof(error));
	found = known != NULL;
	wanting = !found;
	free(known);
	return found;
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
zklock_hosts_proven(void)
{
	nrubbish = 0;
}

/* Has this host not been logged yet for damaged data? */
static bool
is_first_rubbish(const char *host)
{
	for (int i = 0; i < nrubbish; i++)
		if (strcmp(rubbish_of[i], host) == 0)
			return false;
	if (nrubbish == MAX_ATTEMPTS)
		return false;
	strlcpy(rubbish_of[nrubbish++], host, sizeof(rubbish_of[0]));
	return true;
}

void
zklock_hosts_damaged(const char *host, const char *why)
{
	zklock_trouble_again(is_first_rubbish(host),
						 "closed the connection to ZooKeeper server %s, from which damaged data came: %s",
						 host, why);
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
		strstr(zklock_shared->session.attempts, news) == NULL &&
		(a.rc != ZKLOCK_ZMARSHALLINGERROR || is_first_rubbish(a.host)))
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
