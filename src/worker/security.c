/*-------------------------------------------------------------------------
 *
 * security.c
 *	  Credentials, TLS, and the ACLs of the znodes that zklock creates.
 *
 * A connection without the credentials that the administrator has asked for is worse
 * than no connection: if anything is wrong with them, the worker does not connect.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <unistd.h>

#include "lib/stringinfo.h"

#include "authfile.h"
#include "path.h"
#include "security.h"
#include "settings.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"

struct ZkProtection
{
	ZkAuthFile *auth; /* NULL: no credentials */
	ZkSecurity settings;
	char tls[3 * MAXPGPATH + 3];
};

void
zklock_security_free(ZkProtection *security)
{
	if (security->auth != NULL)
		pfree(security->auth);
	pfree(security);
}

ZkProtection *
zklock_security_read(char *error, size_t errlen)
{
	ZkProtection *security = palloc0(sizeof(ZkProtection));
	ZkSecurity *settings = &security->settings;
	bool fine = true;

	if (zklock_auth_file[0] != '\0')
	{
		security->auth = zklock_auth_read(zklock_auth_file, error, errlen);
		fine = security->auth != NULL;
	}
	else if (zklock_acl == ZKLOCK_ACL_CREATOR)
	{
		snprintf(error, errlen,
				 "\"zklock.acl\" is \"creator\", and \"zklock.auth_file\" is not set");
		fine = false;
	}
	if (security->auth != NULL)
	{
		settings->credentials = security->auth->credentials;
		settings->ncredentials = security->auth->ncredentials;
		settings->creator = zklock_acl != ZKLOCK_ACL_OPEN;
	}

	if (fine && zklock_tls_ca_file[0] != '\0')
	{
		if (!zklock_client_has_tls())
		{
			snprintf(error, errlen,
					 "\"zklock.tls_ca_file\" is set, and zklock has no TLS with %s",
					 zklock_client_library());
			fine = false;
		}
		else if (zklock_tls_cert_file[0] == '\0' || zklock_tls_key_file[0] == '\0')
		{
			snprintf(error, errlen,
					 "\"zklock.tls_ca_file\" needs \"zklock.tls_cert_file\" and \"zklock.tls_key_file\" beside it");
			fine = false;
		}
		else if (access(zklock_tls_ca_file, R_OK) != 0)
		{
			snprintf(error, errlen, "could not access file \"%s\": %s",
					 zklock_tls_ca_file, strerror(errno));
			fine = false;
		}
		else if (access(zklock_tls_cert_file, R_OK) != 0)
		{
			snprintf(error, errlen, "could not access file \"%s\": %s",
					 zklock_tls_cert_file, strerror(errno));
			fine = false;
		}
		else
			fine = zklock_check_private_file(zklock_tls_key_file, error, errlen);
		snprintf(security->tls, sizeof(security->tls), "%s,%s,%s", zklock_tls_ca_file,
				 zklock_tls_cert_file, zklock_tls_key_file);
		settings->tls = security->tls;
	}
	else if (fine && (zklock_tls_cert_file[0] != '\0' || zklock_tls_key_file[0] != '\0'))
	{
		snprintf(error, errlen,
				 "\"zklock.tls_cert_file\" and \"zklock.tls_key_file\" need \"zklock.tls_ca_file\" beside them");
		fine = false;
	}
	if (fine)
		return security;
	zklock_security_free(security);
	return NULL;
}

static StringInfo used = NULL;	/* describes what the handle was made with */
static bool protecting = false; /* what we make is to be ours alone */
static int unanswered = 0;		/* questions of zklock_security_check */

const ZkSecurity *
zklock_security_settings(const ZkProtection *security)
{
	return &security->settings;
}

/* Format everything that the handle depends on, for comparison.  The text is never
 * shown. */
static StringInfo
describe(const ZkProtection *security)
{
	const ZkSecurity *settings = &security->settings;
	StringInfo buf = makeStringInfo();

	appendStringInfo(buf, "%d %s\n", settings->creator, settings->tls ? settings->tls : "");
	for (int i = 0; i < settings->ncredentials; i++)
	{
		appendStringInfo(buf, "%s ", settings->credentials[i].scheme);
		appendBinaryStringInfo(buf, settings->credentials[i].data,
							   settings->credentials[i].len);
		appendStringInfoChar(buf, '\n');
	}
	return buf;
}

void
zklock_security_use(const ZkProtection *security)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	StringInfo new = describe(security);
	ZkSessionShared *s;
	bool tell;

	MemoryContextSwitchTo(old);
	if (used != NULL)
	{
		pfree(used->data);
		pfree(used);
	}
	used = new;
	protecting = security->settings.creator;

	/* once, not by each process */
	s = zklock_session_lock(LW_EXCLUSIVE);
	tell = !protecting && !s->open_told;
	s->open_told = !protecting;
	s->looked_open &= protecting;
	zklock_session_unlock();
	if (tell)
		ereport(LOG,
				(errmsg("znodes that zklock makes are open to every client of the ZooKeeper ensemble"),
				 security->auth != NULL
					 ? errdetail("\"zklock.acl\" is \"open\".")
					 : errdetail("\"zklock.auth_file\" names no credentials.")));
}

bool
zklock_security_in_use(const ZkProtection *security)
{
	Assert(used != NULL);
	return strcmp(describe(security)->data, used->data) == 0;
}

bool
zklock_security_used(void)
{
	return used != NULL;
}

/* Tell zk_check whether all nodes were looked at, and which one is open.  NULL leaves
 * that as it was. */
static void
tell_open(bool looked, const char *path)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	s->looked_open = looked && protecting;
	if (path != NULL)
		strlcpy(s->open_node, path, sizeof(s->open_node));
	zklock_session_unlock();
}

static void
ask(ZkClient *client, const char *path)
{
	(void) zklock_client_get_acl(client, path, &zklock_no_tag);
	unanswered++;
}

void
zklock_security_check(ZkClient *client, bool again)
{
	if (again && unanswered == 0)
		return;
	unanswered = 0;
	tell_open(false, "");
	if (!protecting)
		return;
	ask(client, zklock_shared->session.root);
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
		ask(client, zklock_path_directory((ZkLockKind) kind));
	ask(client, zklock_path_servers());
	ask(client, zklock_path_waits());
	ask(client, zklock_path_tokens());
}

void
zklock_security_checked(const ZkMessage *message)
{
	bool first = zklock_shared->session.open_node[0] == '\0';

	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE)
	{
		if (message->rc != ZKLOCK_ZCONNECTIONLOSS)
			zklock_trouble_refused(message);
		return;
	}
	if (message->rc == ZKLOCK_ZOK && message->open)
	{
		/* the first is the highest, and who mends it mends all below */
		if (first)
			tell_open(false, message->path);
		zklock_trouble("znode \"%s\" was made without \"zklock.acl\", and is open to every client",
					   message->path);
	}
	if (--unanswered == 0)
		tell_open(true, NULL);
}
