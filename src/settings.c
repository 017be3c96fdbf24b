/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The zklock.* settings: definitions and checks.
 *
 * What only the worker reads can be changed by a reload; what sizes shared
 * memory needs a restart; what a waiting backend reads belongs to its user.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <limits.h>
#include <unistd.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "contender.h"
#include "settings.h"

char *zklock_hosts;
char *zklock_root;
char *zklock_server_name;
int zklock_session_timeout;
int zklock_connect_timeout;
int zklock_on_loss;
int zklock_cache_time;
int zklock_cache_size;
int zklock_handoff_limit;
int zklock_max_locks;
int zklock_log_min_messages;
char *zklock_elections;
int zklock_leader_eligible;
char *zklock_notify_database;

static const struct config_enum_entry on_loss_options[] = {
	{"abort", ZKLOCK_ON_LOSS_ABORT, false},
	{"warn", ZKLOCK_ON_LOSS_WARN, false},
	{NULL, 0, false},
};

static const struct config_enum_entry leader_eligible_options[] = {
	{"primary", ZKLOCK_LEADER_PRIMARY, false},
	{"any", ZKLOCK_LEADER_ANY, false},
	{NULL, 0, false},
};

static const struct config_enum_entry log_level_options[] = {
	{"none", ZKLOCK_LOG_NONE, false},
	{"error", ZKLOCK_LOG_ERROR, false},
	{"warning", ZKLOCK_LOG_WARNING, false},
	{"info", ZKLOCK_LOG_INFO, false},
	{NULL, 0, false},
};

/* A znode path as ZooKeeper takes it: "/a/b", no empty or relative element. */
static bool
valid_path(const char *path)
{
	const char *p = path;

	while (*p == '/')
	{
		size_t len = strcspn(p + 1, "/");

		if (len == 0 || (len == 1 && p[1] == '.') ||
			(len == 2 && p[1] == '.' && p[2] == '.'))
			return false;
		for (size_t i = 1; i <= len; i++)
		{
			if ((unsigned char) p[i] < 0x20 || p[i] == 0x7f)
				return false;
		}
		p += len + 1;
	}
	return p != path && *p == '\0';
}

static bool
check_hosts(char **newval, void **extra, GucSource source)
{
	const char *p = *newval;
	size_t len = strcspn(p, "/");

	if (p[len] == '/' && !valid_path(p + len))
	{
		GUC_check_errdetail(
			"The chroot suffix must be an absolute path such as \"/prod\", without a trailing slash.");
		return false;
	}

	/* host:port[,host:port...]; the last colon counts, for IPv6 */
	do
	{
		size_t n = strcspn(p, ",/");
		const char *colon = NULL;
		long port = 0;
		bool bad = false;

		for (size_t i = 0; i < n; i++)
		{
			if (p[i] == ':')
				colon = p + i;
			else if (isspace((unsigned char) p[i]))
				bad = true;
		}
		if (colon != NULL && colon != p)
		{
			char *end;

			port = isdigit((unsigned char) colon[1]) ? strtol(colon + 1, &end, 10) : 0;
			if (port != 0 && end != p + n)
				port = 0;
		}
		if (bad || port < 1 || port > 65535)
		{
			GUC_check_errdetail("\"%.*s\" is not of the form host:port.", (int) n, p);
			GUC_check_errhint(
				"Write host:port[,host:port]...[/chroot], for example \"zk1:2181,zk2:2181,zk3:2181/prod\".");
			return false;
		}
		p += n;
	} while (*p++ == ',');

	if (strlen(*newval) >= 1024)
	{
		GUC_check_errdetail("The connect string must be shorter than 1024 bytes.");
		return false;
	}
	return true;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	if (!valid_path(*newval) || strlen(*newval) > 200)
	{
		GUC_check_errdetail(
			"The root must be an absolute path of at most 200 bytes, such as \"/zklock\", without a trailing slash.");
		return false;
	}
	return true;
}

static bool
check_server_name(char **newval, void **extra, GucSource source)
{
	for (const char *p = *newval; *p; p++)
	{
		if ((unsigned char) *p < 0x20 || *p == 0x7f)
		{
			GUC_check_errdetail("The server name must not contain control characters.");
			return false;
		}
	}
	return true;
}

static bool
check_elections(char **newval, void **extra, GucSource source)
{
	char *list = pstrdup(*newval);
	List *names;
	ListCell *cell;
	bool ok = SplitGUCList(list, ',', &names);

	if (!ok)
		GUC_check_errdetail("List syntax is invalid.");
	foreach (cell, names)
	{
		const char *name = lfirst(cell);
		int len = (int) strlen(name);

		if (len >= 1 && len <= ZKLOCK_NAME_MAX &&
			pg_encoding_verifymbstr(PG_UTF8, name, len) == len)
			continue;
		GUC_check_errdetail("\"%s\" is no name of 1 to %d bytes of UTF-8.", name,
							ZKLOCK_NAME_MAX);
		ok = false;
		break;
	}
	list_free(names);
	pfree(list);
	return ok;
}

void
zklock_define_settings(bool preloaded)
{
	DefineCustomStringVariable("zklock.hosts", "ZooKeeper servers to connect to.",
							   "A comma-separated list of host:port, with an optional chroot path behind it.",
							   &zklock_hosts, "localhost:2181", PGC_SIGHUP, 0,
							   check_hosts, NULL, NULL);

	DefineCustomStringVariable("zklock.root", "Znode under which all locks live.",
							   "Servers that share locks must agree on it. It is created if missing.",
							   &zklock_root, "/zklock", PGC_SIGHUP, 0, check_root, NULL,
							   NULL);

	DefineCustomStringVariable("zklock.server_name",
							   "Name of this server for people who look into ZooKeeper.",
							   "If empty, cluster_name is used, or else host name and port.",
							   &zklock_server_name, "", PGC_SIGHUP, 0, check_server_name,
							   NULL, NULL);

	DefineCustomIntVariable("zklock.session_timeout",
							"ZooKeeper session timeout to ask for.",
							"The ensemble limits it, usually to between 2 and 20 of its ticks.",
							&zklock_session_timeout, 10000, 100, 3600 * 1000, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to ZooKeeper before a lock request fails.",
							NULL, &zklock_connect_timeout, 10000, 1, INT_MAX, PGC_USERSET,
							GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomEnumVariable("zklock.on_loss",
							 "What happens to a transaction or session whose lock is lost.",
							 "\"abort\" raises an error, \"warn\" a warning.",
							 &zklock_on_loss, ZKLOCK_ON_LOSS_ABORT, on_loss_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.cache_time",
							"How long a lock is kept that nobody on this server uses and nobody else asks for.",
							"A kept lock is granted again without asking ZooKeeper. 0 turns that off.",
							&zklock_cache_time, 60 * 1000, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.cache_size",
							"Number of locks that are kept while nobody on this server uses them.",
							"Those that have not been used for longest are given up first.",
							&zklock_cache_size, 1000, 0, 10000000, PGC_SIGHUP, 0, NULL,
							NULL, NULL);

	DefineCustomIntVariable("zklock.handoff_limit",
							"How many sessions of this server may have a lock in turn while another server waits for it.",
							NULL, &zklock_handoff_limit, 16, 0, 1000000, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.elections",
							   "Elections in which this server is a candidate from its start.",
							   "A comma-separated list of names.", &zklock_elections, "",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_elections, NULL, NULL);

	DefineCustomEnumVariable("zklock.leader_eligible",
							 "Which servers may be candidates in elections.",
							 "\"primary\" excludes servers in recovery, \"any\" does not.",
							 &zklock_leader_eligible, ZKLOCK_LEADER_PRIMARY,
							 leader_eligible_options, PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomStringVariable("zklock.notify_database",
							   "Database in which changes of leadership are notified.",
							   "If empty, there are no notifications.",
							   &zklock_notify_database, "", PGC_SIGHUP, 0, NULL, NULL,
							   NULL);

	DefineCustomEnumVariable("zklock.log_min_messages",
							 "Which messages of the ZooKeeper library go into the server log.",
							 "What matters of them the worker says in its own words, whatever is set here.",
							 &zklock_log_min_messages, ZKLOCK_LOG_NONE, log_level_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	/* Only the postmaster can define what is fixed at its start. */
	if (!preloaded)
		return;
	DefineCustomIntVariable("zklock.max_locks",
							"Number of lock names that this server can hold or wait for at a time.",
							NULL, &zklock_max_locks, 10000, 1, 10000000, PGC_POSTMASTER,
							0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("zklock");
}

void
zklock_effective_server_name(char *buf, size_t size)
{
	if (zklock_server_name[0] != '\0')
		strlcpy(buf, zklock_server_name, size);
	else if (cluster_name[0] != '\0')
		strlcpy(buf, cluster_name, size);
	else
	{
		char host[256];

		if (gethostname(host, sizeof(host)) != 0)
			strlcpy(host, "unknown", sizeof(host));
		host[sizeof(host) - 1] = '\0';
		snprintf(buf, size, "%s:%d", host, PostPortNumber);
	}
}
