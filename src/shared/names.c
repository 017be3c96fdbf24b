/*-------------------------------------------------------------------------
 *
 * names.c
 *	  Turns names and text from the ensemble into text for people, and names this server.
 *
 * Text in ZooKeeper is UTF-8, if its writers keep to that.  Text from there passes
 * through here before it gets into a row, a message or a notification.  Otherwise text
 * that is not valid in the database's encoding would be refused, or worse, wherever it
 * turns up.  No size here is known beforehand.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"

#include "contender.h"
#include "names.h"
#include "settings.h"

/* Converts from one encoding to another; NULL: the other one does not have all the
 * characters. */
static char *
convert(const char *text, int len, int from, int to)
{
	Oid proc = FindDefaultConversionProc(from, to);
	int size = len * MAX_CONVERSION_GROWTH + 1;
	unsigned char *buf;

	if (!OidIsValid(proc))
		return NULL;
	buf = palloc((Size) size);
	if (pg_do_encoding_conversion_buf(proc, from, to,
									  (unsigned char *) unconstify(char *, text), len,
									  buf, size, true) == len)
		return (char *) buf;
	pfree(buf);
	return NULL;
}

static char *
display(const char *bytes, int len, bool may_convert)
{
	int encoding = GetDatabaseEncoding();
	bool utf8 = encoding == PG_UTF8 || encoding == PG_SQL_ASCII;
	char *text = NULL;

	if (zklock_is_utf8(bytes, (size_t) len))
	{
		text = pnstrdup(bytes, (Size) len);
		if (utf8 || pg_is_ascii(text))
			return text;
		text = may_convert ? convert(text, len, PG_UTF8, encoding) : NULL;
	}
	if (text == NULL)
	{
		text = palloc(3 * (Size) len + 1);
		(void) zklock_escape(bytes, (size_t) len, !utf8, text);
	}
	return text;
}

char *
zklock_display_bytes(const char *bytes, int len, bool cut)
{
	char *text;

	if (cut)
		len = (int) zklock_clip_utf8(bytes, (size_t) len);
	text = display(bytes, len, IsTransactionState());
	return cut ? psprintf("%s...", text) : text;
}

char *
zklock_bytes_to_utf8(const char *text)
{
	size_t len = strlen(text);
	int encoding = GetDatabaseEncoding();
	bool utf8 = encoding == PG_UTF8 || encoding == PG_SQL_ASCII;
	char *result = NULL;

	if (pg_is_ascii(text) || (utf8 && zklock_is_utf8(text, len)))
		return pstrdup(text);
	if (!utf8 && IsTransactionState())
		result = convert(text, (int) len, encoding, PG_UTF8);
	if (result == NULL)
	{
		result = palloc(3 * len + 1);
		(void) zklock_escape(text, len, true, result);
	}
	return result;
}

char *
zklock_display_text(const char *text)
{
	return zklock_display_bytes(text, (int) zklock_clip_utf8(text, strlen(text)), false);
}

char *
zklock_display_name(const char *name)
{
	name = zklock_local_name(name);
	return zklock_display_bytes(name, (int) strlen(name), false);
}

char *
zklock_plain_name(const char *name)
{
	name = zklock_local_name(name);
	return display(name, (int) strlen(name), false);
}

bool
zklock_in_namespace(const char *name)
{
	size_t len = (size_t) (zklock_local_name(name) - name);
	size_t ours = strlen(zklock_namespace);

	return len == (ours > 0 ? ours + 1 : 0) && memcmp(name, zklock_namespace, ours) == 0;
}

char *
zklock_plain_text(const char *text)
{
	return display(text, (int) strlen(text), false);
}

const char *
zklock_client_text(const char *text, bool catalogs)
{
	int client = pg_get_client_encoding();
	size_t len = strlen(text);
	char *escaped;

	if (client == GetDatabaseEncoding() || client == PG_UTF8 || client == PG_SQL_ASCII ||
		pg_is_ascii(text) ||
		(catalogs && IsTransactionState() &&
		 convert(text, (int) len, GetDatabaseEncoding(), client) != NULL))
		return text;
	escaped = palloc(3 * len + 1);
	(void) zklock_escape(text, len, true, escaped);
	return escaped;
}

const char *
zklock_log_name(const char *name, char *buf)
{
	if (zklock_local_name(name) == name)
		return name;
	zklock_encode_name(name, buf);
	return buf;
}

/* ------------------------------------------------------------------------
 * This server
 * ------------------------------------------------------------------------
 */

/*
 * Debian sets cluster_name to <major>/<name>, such as 15/main, which is the same on
 * most hosts.  Nobody has chosen that to tell servers apart.
 */
static bool
is_everywhere(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits > 0 && name[digits] == '/' && name[digits + 1] != '\0';
}

/* The host name when it was first asked for, or "". */
static const char *
host_name(void)
{
	static char host[256] = "";

	if (host[0] == '\0' && gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	return host;
}

void
zklock_effective_server_name(char *buf, size_t size)
{
	const char *name = zklock_server_name[0] != '\0' ? zklock_server_name : cluster_name;

	if (name[0] != '\0' && (name == zklock_server_name || !is_everywhere(name)))
	{
		if (strlcpy(buf, name, size) >= size)
			buf[zklock_clip_utf8(buf, size - 1)] = '\0';
	}
	else
	{
		const char *host = host_name();

		snprintf(buf, size, "%s%s%s:%d", name, name[0] != '\0' ? "@" : "",
				 host[0] != '\0' ? host : "unknown", PostPortNumber);
	}
}

/* Everything except the end. */
static void
begin_description(StringInfo buf, int pid)
{
	char server[256];

	zklock_effective_server_name(server, sizeof(server));
	initStringInfo(buf);
	appendStringInfoString(buf, "{\"server\": ");
	escape_json(buf, server);
	appendStringInfoString(buf, ", \"host\": ");
	escape_json(buf, host_name());
	appendStringInfo(buf, ", \"pid\": %d", pid);
}

void
zklock_describe_server(StringInfo buf, int pid)
{
	begin_description(buf, pid);
	appendStringInfoChar(buf, '}');
}

void
zklock_describe_member(StringInfo buf, uint32 elections, uint32 jobs, const char *drain)
{
	const char *postgres = GetConfigOption("server_version", false, false);

	begin_description(buf, PostmasterPid);
	/* without what a distribution has put behind it */
	appendStringInfo(buf, ", \"zklock\": \"%s\", \"postgres\": \"%.*s\"", ZKLOCK_VERSION,
					 (int) strcspn(postgres, " "), postgres);
	appendStringInfo(buf, ", \"elections\": %u, \"jobs\": %u, \"drain\": \"%s\"",
					 elections, jobs, drain);
}
