/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Defines and checks the zklock.* settings.
 *
 * A setting that only the worker reads can be changed by a reload.  A setting that
 * sizes shared memory needs a restart.  A setting that a waiting backend reads belongs
 * to its user, unless others have to rely on it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <limits.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "contender.h"
#include "election_rules.h"
#include "options.h"
#include "queue_rules.h"
#include "settings.h"

char *zklock_hosts;
char *zklock_root;
char *zklock_server_name;
char *zklock_auth_file;
int zklock_acl;
int zklock_log_min_messages;
char *zklock_tls_ca_file;
char *zklock_tls_cert_file;
char *zklock_tls_key_file;
int zklock_session_timeout;
int zklock_connect_timeout;
int zklock_on_loss;
int zklock_keep_time;
int zklock_handoff_limit;
char *zklock_namespace;
char *zklock_advisory_database;
int zklock_max_locks_per_backend;
int zklock_max_locks;
int zklock_run_history;
int zklock_max_item_size;
int zklock_max_queue_length;
char *zklock_elections;
int zklock_leader_eligible;
char *zklock_notify_database;
int zklock_leader_priority;
int zklock_election_idle_time;
bool zklock_drain;

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

static const struct config_enum_entry acl_options[] = {
	{"auto", ZKLOCK_ACL_AUTO, false},
	{"creator", ZKLOCK_ACL_CREATOR, false},
	{"open", ZKLOCK_ACL_OPEN, false},
	{NULL, 0, false},
};

/* The library's own levels, ZkMessage.level */
static const struct config_enum_entry log_options[] = {
	{"debug", 4, false}, {"info", 3, false}, {"warning", 2, false}, {"error", 1, false},
	{"none", 0, false},	 {"warn", 2, true},	 {NULL, 0, false},
};

static bool
check_hosts(char **newval, void **extra, GucSource source)
{
	const char *bad;
	int bad_len;

	switch (zklock_check_hosts(*newval, &bad, &bad_len))
	{
		case ZKLOCK_HOSTS_OK:
			return true;
		case ZKLOCK_HOSTS_BAD_CHROOT:
			GUC_check_errdetail(
				"The chroot suffix must be an absolute path such as \"/prod\", without a trailing slash.");
			break;
		case ZKLOCK_HOSTS_BAD_HOST:
			GUC_check_errdetail("\"%.*s\" is not of the form host:port.", bad_len, bad);
			GUC_check_errhint(
				"Write host:port[,host:port]...[/chroot], for example \"zk1:2181,zk2:2181,zk3:2181/prod\".");
			break;
		case ZKLOCK_HOSTS_TOO_LONG:
			GUC_check_errdetail("The connect string must be shorter than %d bytes.",
								ZKLOCK_HOSTS_MAX + 1);
			break;
	}
	return false;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	if (!zklock_valid_path(*newval) || strlen(*newval) > 200)
	{
		GUC_check_errdetail(
			"The root must be an absolute path of at most 200 bytes, such as \"/zklock\", without a trailing slash.");
		return false;
	}
	return true;
}

/* The library takes the three names as one, with commas between them. */
static bool
check_tls_file(char **newval, void **extra, GucSource source)
{
	if (strchr(*newval, ',') == NULL && strlen(*newval) < MAXPGPATH)
		return true;
	GUC_check_errdetail("The name must be shorter than %d bytes and have no comma in it.",
						MAXPGPATH);
	return false;
}

static bool
check_namespace(char **newval, void **extra, GucSource source)
{
	if (zklock_valid_namespace(*newval))
		return true;
	GUC_check_errdetail("A namespace has at most %d letters, digits, \"_\", \"-\" and \".\", all ASCII.",
						ZKLOCK_NAMESPACE_MAX);
	return false;
}

/* The name goes into ZooKeeper, where text is UTF-8. */
static bool
check_server_name(char **newval, void **extra, GucSource source)
{
	if (!zklock_is_utf8(*newval, strlen(*newval)))
	{
		GUC_check_errdetail("The server name must be UTF-8.");
		return false;
	}
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
		GUC_check_errdetail("\"%s\" is not a name of 1 to %d bytes of UTF-8.", name,
							ZKLOCK_NAME_MAX);
		ok = false;
		break;
	}
	list_free(names);
	pfree(list);
	return ok;
}

static void
define_connection(void)
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
							   "If empty, it is made of cluster_name, host name and port.",
							   &zklock_server_name, "", PGC_SIGHUP, 0, check_server_name,
							   NULL, NULL);

	DefineCustomEnumVariable("zklock.log_min_messages",
							 "Which messages of the ZooKeeper library are written to the server log.",
							 "Each level includes those that follow it.",
							 &zklock_log_min_messages, 0, log_options, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.session_timeout",
							"ZooKeeper session timeout to ask for.",
							"The ensemble limits it, usually to between 2 and 20 of its ticks.",
							&zklock_session_timeout, 10000, 100, 3600 * 1000, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.connect_timeout",
							"Longest time to wait for a connection to ZooKeeper before a call fails.",
							NULL, &zklock_connect_timeout, 10000, 1, INT_MAX, PGC_USERSET,
							GUC_UNIT_MS, NULL, NULL, NULL);
}

static void
define_security(void)
{
	DefineCustomStringVariable("zklock.auth_file",
							   "File with the credentials by which ZooKeeper knows this server.",
							   "Each line has a scheme and a credential, such as \"digest user:password\".",
							   &zklock_auth_file, "", PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomEnumVariable("zklock.acl",
							 "Who may change what this server makes in ZooKeeper.",
							 "\"creator\" means those with this server's credentials, \"open\" everybody; \"auto\" means \"creator\" if there are credentials.",
							 &zklock_acl, ZKLOCK_ACL_AUTO, acl_options, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("zklock.tls_ca_file",
							   "Certificates of those who may certify ZooKeeper servers.",
							   "If set, connections to ZooKeeper use TLS.",
							   &zklock_tls_ca_file, "", PGC_SIGHUP, 0, check_tls_file,
							   NULL, NULL);

	DefineCustomStringVariable("zklock.tls_cert_file",
							   "Certificate that this server shows to ZooKeeper.", NULL,
							   &zklock_tls_cert_file, "", PGC_SIGHUP, 0, check_tls_file,
							   NULL, NULL);

	DefineCustomStringVariable("zklock.tls_key_file",
							   "Private key of the certificate, without a passphrase.",
							   NULL, &zklock_tls_key_file, "", PGC_SIGHUP, 0,
							   check_tls_file, NULL, NULL);
}

static void
define_locks(void)
{
	/* Not for the owner of a database, who could set it for all who use that one. */
	DefineCustomEnumVariable("zklock.on_loss",
							 "What happens to a transaction or session whose lock is lost.",
							 "\"abort\" raises an error, \"warn\" a warning.",
							 &zklock_on_loss, ZKLOCK_ON_LOSS_ABORT, on_loss_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.keep_time",
							"How long a lock is kept that nobody on this server uses and nobody else asks for.",
							"A kept lock is granted again without asking ZooKeeper. 0 turns that off.",
							&zklock_keep_time, 60 * 1000, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.handoff_limit",
							"How many sessions of this server may have a lock in turn while another server waits for it.",
							NULL, &zklock_handoff_limit, 16, 0, 1000000, PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomStringVariable("zklock.namespace",
							   "Sets the lock names of a role or database apart from all others.",
							   "To be set by ALTER ROLE or ALTER DATABASE.",
							   &zklock_namespace, "", PGC_SUSET, 0, check_namespace, NULL,
							   NULL);

	DefineCustomStringVariable("zklock_advisory.database",
							   "Stands for the database in the names of advisory locks.",
							   "If empty, it is the name of the database.",
							   &zklock_advisory_database, "", PGC_SUSET, 0, NULL, NULL,
							   NULL);

	DefineCustomIntVariable("zklock.max_locks_per_backend",
							"Number of lock names that one session can hold or wait for at a time.",
							"0 means no limit but zklock.max_locks.",
							&zklock_max_locks_per_backend, 0, 0, 10000000, PGC_SUSET, 0,
							NULL, NULL, NULL);
}

static void
define_elections(void)
{
	DefineCustomStringVariable("zklock.elections",
							   "Elections in which this server is a candidate from its start.",
							   "A comma-separated list of names.", &zklock_elections, "",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_elections, NULL, NULL);

	DefineCustomEnumVariable("zklock.leader_eligible",
							 "Which servers may be candidates in elections.",
							 "\"primary\" excludes servers in recovery, \"any\" does not.",
							 &zklock_leader_eligible, ZKLOCK_LEADER_PRIMARY,
							 leader_eligible_options, PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.leader_priority",
							"Which candidates a leader gives way to: those with a higher number.",
							"Candidates with the same number lead in the order in which they came.",
							&zklock_leader_priority, ZKLOCK_PRIORITY_DEFAULT, 0,
							ZKLOCK_PRIORITY_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.election_idle_time",
							"How long this server stays in an election for which nobody asks.",
							"Those in zklock.elections it does not leave. 0 means that it leaves none.",
							&zklock_election_idle_time, 0, 0, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_S, NULL, NULL, NULL);

	DefineCustomStringVariable("zklock.notify_database",
							   "Database in which changes of leadership and ends of jobs' runs are notified.",
							   "If empty, there are no notifications.",
							   &zklock_notify_database, "", PGC_SIGHUP, 0, NULL, NULL,
							   NULL);
}

static void
define_service(void)
{
	DefineCustomBoolVariable("zklock.drain",
							 "Takes this server out of service without stopping it.",
							 "It leads nowhere, and keeps no locks that nobody uses.",
							 &zklock_drain, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
define_jobs(void)
{
	DefineCustomIntVariable("zklock.run_history", "How long rows of zk_runs are kept.",
							"Later runs delete them. -1 keeps them for ever.",
							&zklock_run_history, 90 * 24 * 60, -1, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MIN, NULL, NULL, NULL);
}

static void
define_queues(void)
{
	DefineCustomIntVariable("zklock.max_item_size",
							"Largest item that is put into a queue.", "In bytes of UTF-8.",
							&zklock_max_item_size, ZKLOCK_ITEM_MAX, 0, ZKLOCK_ITEM_MAX,
							PGC_SUSET, GUC_UNIT_BYTE, NULL, NULL, NULL);

	DefineCustomIntVariable("zklock.max_queue_length",
							"Number of items that a queue may have when something is put into it.",
							NULL, &zklock_max_queue_length, 50000, 1, 1000000, PGC_SUSET,
							0, NULL, NULL, NULL);
}

void
zklock_define_settings(bool preloaded)
{
	define_connection();
	define_security();
	define_locks();
	define_elections();
	define_service();
	define_jobs();
	define_queues();

	/* Only the postmaster can define what is fixed at its start. */
	if (!preloaded)
		return;
	DefineCustomIntVariable("zklock.max_locks",
							"Number of lock names that this server can hold or wait for at a time.",
							"It can keep a tenth as many locks that nobody uses, and have a quarter as many queue items.",
							&zklock_max_locks, 10000, 1, 10000000, PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("zklock");
	MarkGUCPrefixReserved("zklock_advisory");
}
