/*-------------------------------------------------------------------------
 *
 * path.c
 *	  The paths in ZooKeeper that the worker's session uses.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "path.h"
#include "tag.h"

static char directory[ZKLOCK_NKINDS][512];
static char servers[512];
static char tokens[512];
static char waits[512];

void
zklock_paths_set(const char *root)
{
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
		snprintf(directory[kind], sizeof(directory[kind]), "%s/%ss", root,
				 zklock_kinds[kind].name);
	snprintf(servers, sizeof(servers), "%s/servers", root);
	snprintf(tokens, sizeof(tokens), "%s/tokens", root);
	snprintf(waits, sizeof(waits), "%s/waits", root);
}

/* Check that the session's root was set before anybody asks for a path. */
static const char *
known(const char *path)
{
	Assert(path[0] == '/');
	return path;
}

const char *
zklock_path_directory(ZkLockKind kind)
{
	return known(directory[kind]);
}

const char *
zklock_path_servers(void)
{
	return known(servers);
}

const char *
zklock_path_tokens(void)
{
	return known(tokens);
}

const char *
zklock_path_waits(void)
{
	return known(waits);
}

char *
zklock_path_name(ZkLockKind kind, const char *name, const char *child)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];

	zklock_encode_name(name, encoded);
	return psprintf("%s/%s%s%s", directory[kind], encoded, child ? "/" : "",
					child ? child : "");
}

bool
zklock_parse_path(const char *path, ZkLockKind *kind, char *name, const char **child)
{
	char encoded[ZKLOCK_ENCODED_MAX + 1];

	for (int i = 0; i < ZKLOCK_NKINDS; i++)
	{
		const char *in = directory[i];
		size_t len = strlen(in);
		const char *start = path + len + 1;
		size_t encoded_len;

		if (strncmp(path, in, len) != 0 || path[len] != '/')
			continue;
		encoded_len = strcspn(start, "/");
		if (encoded_len >= sizeof(encoded))
			return false;
		strlcpy(encoded, start, encoded_len + 1);
		*child = start[encoded_len] == '/' ? start + encoded_len + 1 : NULL;
		*kind = (ZkLockKind) i;
		return zklock_decode_name(encoded, name);
	}
	return false;
}

/* Create a path and its ancestors. */
static void
make(ZkClient *client, const char *whole)
{
	char path[512];

	for (const char *p = whole; p != NULL;)
	{
		p = strchr(p + 1, '/');
		strlcpy(path, whole, p ? (size_t) (p - whole + 1) : sizeof(path));
		(void) zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_PERSISTENT,
									&zklock_no_tag);
	}
}

void
zklock_paths_make(ZkClient *client)
{
	make(client, servers);
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
		make(client, directory[kind]);
}

static bool
is_child(const char *path, const char *parent)
{
	size_t len = strlen(parent);

	return strncmp(path, parent, len) == 0 && path[len] == '/' &&
		strchr(path + len + 1, '/') == NULL;
}

void
zklock_path_make_missing(ZkClient *client, const ZkMessage *message)
{
	if (message->type != ZKLOCK_MSG_CREATED || message->rc != ZKLOCK_ZNONODE)
		return;
	if (is_child(message->path, waits))
		make(client, waits);
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
	{
		if (is_child(message->path, directory[kind]))
			make(client, directory[kind]);
	}
}
