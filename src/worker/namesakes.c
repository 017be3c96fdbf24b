/*-------------------------------------------------------------------------
 *
 * namesakes.c
 *	  Looks for other servers that have this server's name.
 *
 * Two servers of the same name work, but users cannot tell them apart.  So on its first
 * connection under a name, the worker lists <root>/servers after it has created its own
 * node: of two servers, the later one sees the node of the earlier one.  The worker
 * does not do this on each connection: the list has a line for each server of the
 * fleet.
 *
 * A node of this server's name may also be its own, from a session before this one that
 * has not expired yet.  Nobody writes that node any more, and it goes when a session
 * timeout is over.  A live server writes its node with each heartbeat, unless its
 * session rests, and its node stays.  So the worker warns of a node that is written,
 * and of a node that stays for longer than a session timeout.  It looks again with each
 * of its own heartbeats, until it has decided about each node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/hashfn.h"

#include "json.h"
#include "member.h"
#include "names.h"
#include "namesakes.h"
#include "path.h"
#include "session.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"

/* More servers do not have the same name by mistake. */
#define MAX_NAMESAKES 16

/* Length of the part of a field of a namesake's data that a message shows. */
#define FIELD_MAX 100

/* The tag of the listing; gets are numbered. */
#define LISTING PG_UINT64_MAX

typedef struct Namesake
{
	char mark[ZKLOCK_MARK_LEN + 1];
	int32 version; /* -1: not known yet */
	bool asked;	   /* the reply is to come */
} Namesake;

static uint32 own_tag = ZKLOCK_TAG_NONE; /* set by worker.c */
static uint32 round_number = 0;
static int64 listed_at; /* ns */
static Namesake namesakes[MAX_NAMESAKES];
static int nnamesakes = 0;
static int64 told = 0; /* czxid of the node of whom the log tells */

static ZkRequestTag
make_tag(uint64 what)
{
	ZkRequestTag tag = {.kind = own_tag, .generation = round_number, .hash = what};

	return tag;
}

/* The length of the path of this server's node without its mark. */
static int
prefix_len(void)
{
	return (int) strlen(zklock_member_path()) - ZKLOCK_MARK_LEN;
}

/* The value of a key in the node's data, for a message; "?": there is none. */
static const char *
field(const ZkMessage *message, const char *key)
{
	char *text = palloc((Size) message->datalen + 1);

	if (!zklock_json_field(message->data, (size_t) message->datalen, key, text))
		return "?";
	return zklock_display_bytes(text, Min((int) strlen(text), FIELD_MAX),
								strlen(text) > FIELD_MAX);
}

/* Warn of a namesake.  The message has the name of this server's node; the setting may
 * have changed since. */
static void
tell(const ZkMessage *message)
{
	const char *host = field(message, "host");
	const char *pid = field(message, "pid");
	const char *start = zklock_member_path() + strlen(zklock_path_servers()) + 1;
	char encoded[ZKLOCK_ENCODED_MAX + 1];
	char name[ZKLOCK_NAME_MAX + 1];

	strlcpy(encoded, start, strlen(start) - ZKLOCK_MARK_LEN);
	if (!zklock_decode_name(encoded, name))
		name[0] = '\0';
	ereport(WARNING,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("another live server has the name \"%s\", too", name),
			 errdetail("It runs on host \"%s\", as process %s.", host, pid),
			 errhint("Set \"zklock.server_name\" on one of them to another name.")));
	zklock_trouble_again(false,
						 "another live server has the name \"%s\", too: host \"%s\", process %s",
						 name, host, pid);
}

/* A hash of the path that this server's nodes have in all sessions. */
static uint64
hash_of_name(void)
{
	return hash_bytes_extended((const unsigned char *) zklock_member_path(), prefix_len(),
							   0);
}

/* If all namesakes are settled, remember that: neither this worker nor a successor does
 * this again. */
static void
settle(void)
{
	for (int i = 0; i < nnamesakes; i++)
	{
		if (namesakes[i].mark[0] != '\0')
			return;
	}
	zklock_shared->namesakes_of = hash_of_name();
}

static void
start(void)
{
	ZkRequestTag tag;

	if (zklock_shared->namesakes_of == hash_of_name())
		return;
	round_number++; /* replies of an earlier one are void */
	nnamesakes = 0;
	tag = make_tag(LISTING);
	if (zklock_session_client() != NULL)
		(void) zklock_client_list(zklock_session_client(), zklock_path_servers(), false,
								  &tag);
}

static void
ask_for_nodes(void)
{
	for (int i = 0; i < nnamesakes && zklock_session_client() != NULL; i++)
	{
		ZkRequestTag tag = make_tag((uint64) i);
		char *path;

		if (namesakes[i].mark[0] == '\0' || namesakes[i].asked)
			continue;
		path = psprintf("%.*s%s", prefix_len(), zklock_member_path(), namesakes[i].mark);
		namesakes[i].asked =
			zklock_client_get(zklock_session_client(), path, false, &tag) == ZKLOCK_ZOK;
		pfree(path);
	}
}

static void
take_listing(const ZkMessage *message)
{
	for (int i = 0; i < message->nchildren && nnamesakes < MAX_NAMESAKES; i++)
	{
		const char *mark = zklock_member_namesake(message->children[i]);
		Namesake *n = &namesakes[nnamesakes];

		if (mark == NULL)
			continue;
		strlcpy(n->mark, mark, sizeof(n->mark));
		n->version = -1;
		n->asked = false;
		nnamesakes++;
	}
	listed_at = message->received_at;
	settle();
	ask_for_nodes();
}

static void
take_node(Namesake *n, const ZkMessage *message)
{
	Assert(n < &namesakes[nnamesakes] && n->asked);
	n->asked = false;
	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE)
		return; /* no answer: it is asked for again */
	if (message->rc == ZKLOCK_ZNONODE || message->ephemeral_owner == 0 ||
		message->ephemeral_owner == zklock_shared->session.id.id ||
		message->ephemeral_owner == zklock_shared->session.before)
	{
		/* gone, or no server's, or what this session was called before */
		n->mark[0] = '\0';
		return;
	}
	if (n->version < 0)
		n->version = message->version;
	if (n->version == message->version &&
		message->sent_at - listed_at <= NS_PER_MS * zklock_shared->session.timeout_ms)
		return;
	n->mark[0] = '\0';
	if (message->czxid == told)
		return;
	told = message->czxid;
	tell(message);
}

static void
on_message(const ZkMessage *message)
{
	if (message->tag.generation != round_number)
		return;
	if (message->tag.hash != LISTING)
	{
		take_node(&namesakes[message->tag.hash], message);
		settle();
	}
	else if (message->rc == ZKLOCK_ZOK)
		take_listing(message);
}

static void
on_event(ZkLockEventType type)
{
	if (type == ZKLOCK_EV_CONNECTED || type == ZKLOCK_EV_RESUMED)
		start();
	else if (type == ZKLOCK_EV_TICK)
		ask_for_nodes();
}

const ZkAgent zklock_namesakes_agent = {
	.event = on_event,
	.tag = &own_tag,
	.message = on_message,
};
