/*-------------------------------------------------------------------------
 *
 * ensemble.c
 *	  Checks that the ensemble is the one that this server knows, and that it has
 *	  forgotten nothing.
 *
 * A connection begins with a write of this server's member node and a read of the base,
 * <root>/tokens, with a watch.  The ensemble answers requests in order, so requests for
 * locks and elections may follow at once.  If the ensemble turns out to have gone back,
 * session.c gives up the session before any of these requests is answered.  The watch
 * is enough for the same reason: a server that raises the base does so before the
 * creates that follow, and this server hears of the raise before it gets the replies to
 * its own creates.  From then on, no reply may become a grant until the worker has read
 * the base again.
 *
 * A session for mending begins in the same way, and no other part of the worker sees
 * it.  It sets the base if necessary, on condition that the base still has the version
 * that was read.  Then it is closed.
 *
 * The history is in shared memory, and only the worker reads it.  When a number that
 * must outlive a crash changes, the worker also notes it in the memory of
 * historymemory.h.
 *
 * The next run of this server closes a session that a crash has left.  It first writes
 * the node of that session, to learn what the ensemble remembers.  It writes nothing
 * else: the next session shows the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "ensemble.h"
#include "historyfile.h"
#include "historymemory.h"
#include "member.h"
#include "path.h"
#include "settings.h"
#include "table.h"
#include "tag.h"

/* Time between two attempts to write the file. */
#define SAVE_AGAIN_MS 10000

/* A crash of the machine loses at most the numbers that were seen in this time. */
#define SAVE_TOP_MS (5 * 60 * 1000)

/*
 * ZkRequestTag.uuid of the write that raises the base, and of the write of this
 * server's node in a session that an earlier run has left.  Reads of the base are
 * numbered.
 */
#define TAG_RAISE PG_UINT64_MAX
#define TAG_LEFT  (PG_UINT64_MAX - 1)

static bool admitted;
static bool before;		/* it was, on this connection, and the base is read again */
static bool heard_base; /* by the newest read */
static bool heard_member;
static ZkHistorySight sight; /* zxid 0: no write was acknowledged yet */
static int32 base_version;
static uint64 asked = 0;	  /* number of the newest read */
static bool asking;			  /* its reply is to come */
static int64 raising;		  /* the base that was sent */
static int64 mending_timeout; /* ns: of the session that mends */
static char reason[512] = "";
static int64 save_again_at = 0; /* ns; 0: the file is as it should be */
static int64 saved_top = 0;		/* what it says, or was to say */
static int64 saved_at = 0;		/* ns */
static ZkHistoryMemory noted;	/* what outlives a crash says */
static bool finding = false; /* the ensemble went back, and the file does not say so yet */

static ZkHistory *
history(void)
{
	return &zklock_shared->history;
}

const char *
zklock_ensemble_reason(void)
{
	return reason;
}

bool
zklock_ensemble_admitted(void)
{
	/* nothing is granted while the ensemble may have forgotten what others believe in */
	Assert(!admitted || !history()->found);
	return admitted;
}

int64
zklock_ensemble_token(int64 zxid)
{
	return zklock_history_token(history(), zxid);
}

/* ------------------------------------------------------------------------
 * The file, and the memory that outlives a crash
 * ------------------------------------------------------------------------
 */

/* A crash before the file contains a finding leaves the session, and the session will
 * show the finding again. */
void
zklock_ensemble_note(void)
{
	const ZkSessionShared *s = &zklock_shared->session;

	if (finding)
		return;
	if (s->id.id == 0)
		zklock_history_new_session(history());
	/* a worker that resumes it knows no better yet than its predecessor */
	else if (zklock_member_path()[0] == '\0')
		return;
	zklock_history_note(history(), &noted, s->id.id, zklock_lease_lost_at(&s->lease));
	zklock_history_memory_note(&noted, zklock_member_path());
}

static void
save(void)
{
	saved_top = history()->top;
	saved_at = zklock_clock();
	save_again_at = zklock_history_file_write(history(), false)
		? 0
		: saved_at + SAVE_AGAIN_MS * NS_PER_MS;
}

void
zklock_ensemble_save_again(bool disconnected)
{
	int64 now = zklock_clock();
	int64 pause = disconnected ? SAVE_AGAIN_MS : SAVE_TOP_MS;

	if (save_again_at != 0 ? now >= save_again_at
						   : admitted && history()->top > saved_top &&
				now - saved_at >= pause * NS_PER_MS)
		save();
}

/* Attach the memory in which numbers are noted from now on.  True: save the history,
 * since the file names another memory. */
static bool
attach_memory(void)
{
	int64 before = history()->memory;
	int64 id = 0;

	if (!zklock_history_memory_open(&noted))
	{
		(void) zklock_history_new_memory(history(), 0);
		return before != 0;
	}
	if (zklock_history_remember(history(), &noted))
		return false;
	while (id == 0 && pg_strong_random(&id, sizeof(id)))
		id &= PG_INT64_MAX;
	noted = zklock_history_new_memory(history(), id);
	zklock_history_memory_begin(&noted);
	return true;
}

/* The first worker since the server's start reads the file.  Its successors find
 * everything in shared memory, and do not know whether the file was written. */
void
zklock_ensemble_start(void)
{
	bool first = !zklock_shared->history_read;
	bool to_be_saved;

	if (first)
		(void) zklock_history_file_read(history(), zklock_clock(),
										zklock_session_timeout * NS_PER_MS);
	to_be_saved = attach_memory() || (!first && history()->found);
	zklock_shared->history_read = true;
	/* else the first admission does it */
	if (history()->known && to_be_saved)
		save();
	if (first && history()->found)
		ereport(LOG,
				(errmsg("ZooKeeper ensemble went back to an earlier state before this server started"),
				 errdetail("This server grants nothing for %lld ms.",
						   (long long) (history()->wait / NS_PER_MS))));
}

void
zklock_ensemble_stop(bool closes)
{
	if (closes)
	{
		zklock_history_note(history(), &noted, 0, 0);
		zklock_history_memory_note(&noted, zklock_member_path());
	}
	if (zklock_shared->history_read && history()->known &&
		zklock_history_file_write(history(), true) && noted.session == 0)
		zklock_history_memory_remove();
}

/* ------------------------------------------------------------------------
 * A connection
 * ------------------------------------------------------------------------
 */

void
zklock_ensemble_connected(bool resumed)
{
	admitted = before = heard_base = heard_member = asking = false;
	memset(&sight, 0, sizeof(sight));
	sight.resumed = resumed;
	sight.version = -1;
	if (!resumed)
		zklock_history_new_session(history());
}

void
zklock_ensemble_new_member(void)
{
	history()->version = -1;
	sight.resumed = false;
	zklock_ensemble_note();
}

/*
 * Create the base only if there is reason to think that it is missing: the attempt is a
 * transaction of the ensemble even if the node exists.  At the beginning of a
 * connection it is created with 0, which shows that it was gone.  Later, any connected
 * server restores what was deleted.
 */
void
zklock_ensemble_ask(ZkClient *client)
{
	ZkRequestTag none = {0};
	ZkRequestTag tag = {.kind = ZKLOCK_TAG_ENSEMBLE, .uuid = ++asked};
	char text[32];

	heard_base = false;
	asking = true;
	snprintf(text, sizeof(text), INT64_FORMAT, before ? history()->base : 0);
	if (before || !history()->known || history()->found || zklock_shared->base_missing)
		(void) zklock_client_create(client, zklock_path_tokens(), text,
									(int) strlen(text), ZKLOCK_CREATE_PERSISTENT, &none);
	(void) zklock_client_get(client, zklock_path_tokens(), true, &tag);
}

/* A request may have found no directory.  Its next attempt will succeed, and needs the
 * base then. */
void
zklock_ensemble_make(ZkClient *client)
{
	if (admitted)
		return;
	zklock_shared->base_missing = true;
	zklock_ensemble_ask(client);
}

void
zklock_ensemble_remind(ZkClient *client)
{
	if (!admitted && !asking)
		zklock_ensemble_ask(client);
}

/* The verdict says that the ensemble has gone back: remember the reason. */
static ZkEnsembleNews
went_back(ZkHistoryVerdict verdict)
{
	const ZkHistory *h = history();

	finding = true;
	switch (verdict)
	{
		case ZKLOCK_HISTORY_GOOD:
		case ZKLOCK_HISTORY_TOO_SOON:
			break;
		case ZKLOCK_HISTORY_BEHIND:
			snprintf(reason, sizeof(reason),
					 "Its newest transaction makes fencing token %lld, and token %lld may have been given before",
					 (long long) (sight.base + sight.zxid), (long long) h->top);
			break;
		case ZKLOCK_HISTORY_FELL:
			snprintf(reason, sizeof(reason),
					 "The base of fencing tokens, in znode \"%s\", is %lld, and was %lld",
					 zklock_path_tokens(), (long long) sight.base, (long long) h->base);
			break;
		case ZKLOCK_HISTORY_RAISED:
			if (h->known)
				snprintf(reason, sizeof(reason),
						 "The base of fencing tokens, in znode \"%s\", was raised from %lld to %lld: another server has noticed, or zk_raise_tokens was called",
						 zklock_path_tokens(), (long long) h->base, (long long) sight.base);
			else
				snprintf(reason, sizeof(reason),
						 "The base of fencing tokens, in znode \"%s\", is %lld, and this server does not remember since when",
						 zklock_path_tokens(), (long long) sight.base);
			break;
		case ZKLOCK_HISTORY_UNDONE:
			if (sight.version < 0)
				snprintf(reason, sizeof(reason),
						 "The znode under \"%s/servers\" that this server's ZooKeeper session had made is missing",
						 zklock_shared->session.root);
			else
				snprintf(reason, sizeof(reason),
						 "The znode under \"%s/servers\" that this server's ZooKeeper session had made has version %d, after version %d",
						 zklock_shared->session.root, sight.version, h->version);
			break;
	}
	return ZKLOCK_ENSEMBLE_WENT_BACK;
}

/* The base has the right value.  The ensemble has answered a few requests by now, so
 * the worker believes the session timeout that it has set. */
static ZkEnsembleNews
mended(int64 base, int64 zxid)
{
	zklock_history_mend(history(), base, zxid);
	zklock_ensemble_note();
	zklock_history_extend(history(), mending_timeout);
	save();
	return ZKLOCK_ENSEMBLE_MENDED;
}

/* Raise the base as far as necessary, or find that it is high enough. */
static ZkEnsembleNews
mend(ZkClient *client)
{
	ZkRequestTag tag = {.kind = ZKLOCK_TAG_ENSEMBLE, .uuid = TAG_RAISE};
	char text[32];

	raising = zklock_history_raise(history(), sight.base, sight.zxid);
	if (raising > ZKLOCK_BASE_MAX)
	{
		snprintf(reason, sizeof(reason),
				 "the base of fencing tokens in znode \"%s\" cannot be raised beyond %lld",
				 zklock_path_tokens(), (long long) ZKLOCK_BASE_MAX);
		return ZKLOCK_ENSEMBLE_UNKNOWN;
	}
	if (raising == sight.base)
	{
		return mended(sight.base, sight.zxid);
	}
	snprintf(text, sizeof(text), INT64_FORMAT, raising);
	(void) zklock_client_set(client, zklock_path_tokens(), text, (int) strlen(text),
							 base_version, &tag);
	return ZKLOCK_ENSEMBLE_NOTHING;
}

/* Decide as soon as both are known: the number of a write, and the base. */
static ZkEnsembleNews
decide(ZkClient *client)
{
	ZkHistoryVerdict verdict;
	bool to_be_saved;

	if (!heard_base || sight.zxid == 0)
		return ZKLOCK_ENSEMBLE_NOTHING;
	if (history()->found)
		return mend(client);
	verdict = zklock_history_check(history(), &sight);
	if (verdict != ZKLOCK_HISTORY_GOOD)
		return went_back(verdict);
	admitted = true;
	to_be_saved = zklock_history_admit(history(), &sight);
	zklock_ensemble_note();
	if (to_be_saved)
		save();
	return ZKLOCK_ENSEMBLE_ADMITTED;
}

static ZkEnsembleNews
unknown(const char *what)
{
	snprintf(reason, sizeof(reason),
			 "could not read the base of fencing tokens from znode \"%s\": %s",
			 zklock_path_tokens(), what);
	return ZKLOCK_ENSEMBLE_UNKNOWN;
}

/* Take the reply to a read of the base. */
static ZkEnsembleNews
take_base(ZkClient *client, const ZkMessage *message)
{
	if (message->tag.uuid != asked || message->rc == ZKLOCK_ZCONNECTIONLOSS)
		return ZKLOCK_ENSEMBLE_NOTHING;
	asking = false;
	if (message->rc == ZKLOCK_ZOPERATIONTIMEOUT)
		return ZKLOCK_ENSEMBLE_NOTHING; /* the next heartbeat asks again */
	if (message->rc == ZKLOCK_ZNONODE && !zklock_shared->base_missing)
	{
		/* also for a successor, should a reply come that cannot wait for the base */
		zklock_shared->base_missing = true;
		zklock_ensemble_ask(client);
		return ZKLOCK_ENSEMBLE_NOTHING;
	}
	/* the root is missing, or whoever made it lets us make nothing in it */
	if (message->rc == ZKLOCK_ZNONODE && sight.zxid == 0)
		return ZKLOCK_ENSEMBLE_NOTHING;
	if (message->rc != ZKLOCK_ZOK)
		return unknown(zklock_rc_text(message->rc));
	if (!zklock_history_parse_base(message->data, (size_t) message->datalen, &sight.base))
		return unknown("it is not a number");
	base_version = message->version;
	heard_base = true;
	zklock_shared->base_missing = false;
	if (before)
		/* whoever touched it did so after all that we know */
		sight.zxid = Max(message->zxid, 0);
	return decide(client);
}

/* Take the reply to the write that raises the base. */
static ZkEnsembleNews
take_raise(ZkClient *client, const ZkMessage *message)
{
	switch (message->rc)
	{
		case ZKLOCK_ZOK:
			ereport(LOG,
					(errmsg("raised the base of fencing tokens from %lld to %lld",
							(long long) sight.base, (long long) raising)));
			return mended(raising, message->zxid);
		case ZKLOCK_ZBADVERSION:
		case ZKLOCK_ZNONODE:
			zklock_ensemble_ask(client);
			return ZKLOCK_ENSEMBLE_NOTHING;
		case ZKLOCK_ZCONNECTIONLOSS:
			return ZKLOCK_ENSEMBLE_NOTHING;
		default:
			snprintf(reason, sizeof(reason),
					 "could not raise the base of fencing tokens in znode \"%s\": %s",
					 zklock_path_tokens(), zklock_rc_text(message->rc));
			return ZKLOCK_ENSEMBLE_UNKNOWN;
	}
}

/* A write or a read has shown a transaction number. */
static ZkEnsembleNews
take_number(ZkClient *client, const ZkMessage *message)
{
	bool member = message->type == ZKLOCK_MSG_SET && message->tag.kind == ZKLOCK_TAG_NONE;

	if (member && (message->rc == ZKLOCK_ZOK || message->rc == ZKLOCK_ZNONODE))
	{
		int32 version = message->rc == ZKLOCK_ZOK ? message->version : -1;

		if (admitted || before)
		{
			sight.version = version;
			if (zklock_history_wrote(history(), version) != ZKLOCK_HISTORY_GOOD)
				return went_back(ZKLOCK_HISTORY_UNDONE);
			zklock_ensemble_note();
		}
		/* where it was missing it may have been made since, with the root */
		else if (!heard_member || sight.version < 0)
			sight.version = version;
		heard_member = true;
	}
	/* our node is missing: a new one would have a smaller version */
	if (sight.resumed && history()->version >= 0 && heard_member && sight.version < 0 &&
		!admitted)
		return went_back(ZKLOCK_HISTORY_UNDONE);
	if (message->rc != ZKLOCK_ZOK)
		return ZKLOCK_ENSEMBLE_NOTHING;
	if (admitted)
	{
		bool to_be_saved = zklock_history_see(history(), message->zxid);

		zklock_ensemble_note();
		if (to_be_saved && save_again_at == 0)
			save();
	}
	else if (message->type != ZKLOCK_MSG_GOT && sight.zxid == 0)
	{
		sight.zxid = Max(message->zxid, 0); /* there is none below */
		return decide(client);
	}
	return ZKLOCK_ENSEMBLE_NOTHING;
}

ZkEnsembleNews
zklock_ensemble_look(ZkClient *client, const ZkMessage *message)
{
	ZkEnsembleNews news = ZKLOCK_ENSEMBLE_NOTHING;

	switch (message->type)
	{
		case ZKLOCK_MSG_NODE_DELETED:
		case ZKLOCK_MSG_NODE_CHANGED:
			if (message->path == NULL || strcmp(message->path, zklock_path_tokens()) != 0)
				return news;
			if (admitted)
			{
				admitted = false;
				before = true;
				sight.resumed = false;
				sight.version = history()->version;
				sight.zxid = 0;
			}
			heard_base = false;
			/* whoever deletes the root can do so, if there is nothing to lose */
			if (message->type == ZKLOCK_MSG_NODE_CHANGED || history()->base > 0)
				zklock_ensemble_ask(client);
			return news;
		case ZKLOCK_MSG_SET:
		case ZKLOCK_MSG_GOT:
		case ZKLOCK_MSG_CREATED:
			if (message->tag.kind == ZKLOCK_TAG_ENSEMBLE)
				return message->tag.uuid == TAG_RAISE ? take_raise(client, message)
													  : take_base(client, message);
			news = take_number(client, message);
			break;
		case ZKLOCK_MSG_MULTI:
			if (message->zxid > 0)
				news = take_number(client, message);
			break;
		default:
			break;
	}
	/* what would be granted now has a token that nobody knows: a successor finds out */
	if (news == ZKLOCK_ENSEMBLE_NOTHING && !admitted && message->rc == ZKLOCK_ZOK &&
		(message->type == ZKLOCK_MSG_CREATED || message->type == ZKLOCK_MSG_LISTED ||
		 message->type == ZKLOCK_MSG_GOT || message->type == ZKLOCK_MSG_MULTI) &&
		zklock_tag_is_lock_queue(message->tag.kind))
		return ZKLOCK_ENSEMBLE_ANEW;
	return news;
}

ZkEnsembleNews
zklock_ensemble_expired(int64 told)
{
	const ZkSessionShared *s = &zklock_shared->session;
	bool left = s->id.id == 0;
	int64 session = left ? noted.session : s->id.id;
	int64 lost_at = left ? noted.lost_at : zklock_lease_lost_at(&s->lease);

	if (zklock_history_expired(history(), told, lost_at) == ZKLOCK_HISTORY_GOOD)
		return ZKLOCK_ENSEMBLE_NOTHING;
	snprintf(reason, sizeof(reason),
			 "It does not know ZooKeeper session 0x%llx any more, which was to live for another %lld ms",
			 (unsigned long long) session, (long long) ((lost_at - told) / NS_PER_MS));
	return went_back(ZKLOCK_HISTORY_TOO_SOON);
}

/* ------------------------------------------------------------------------
 * A session that was left
 * ------------------------------------------------------------------------
 */

/* Does the session have anything to tell? */
static bool
resume(int64 session)
{
	return zklock_history_resume(history(), &noted, session) && history()->version >= 0;
}

void
zklock_ensemble_resume(int64 session)
{
	(void) resume(session);
}

bool
zklock_ensemble_ask_left(ZkClient *client, int64 session)
{
	ZkRequestTag tag = {.kind = ZKLOCK_TAG_ENSEMBLE, .uuid = TAG_LEFT};

	return resume(session) &&
		zklock_member_write_left(client, zklock_history_memory_member(), &tag) ==
		ZKLOCK_ZOK;
}

ZkEnsembleNews
zklock_ensemble_look_left(const ZkMessage *message)
{
	ZkHistoryVerdict verdict;

	if (message->tag.kind != ZKLOCK_TAG_ENSEMBLE || message->tag.uuid != TAG_LEFT ||
		zklock_rc_is_lost(message->rc))
		return ZKLOCK_ENSEMBLE_NOTHING;
	/* we may not write it any more */
	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE)
		return ZKLOCK_ENSEMBLE_ADMITTED;
	sight = (ZkHistorySight){
		.base = history()->base,
		.zxid = message->rc == ZKLOCK_ZOK ? message->zxid : 0,
		.resumed = true,
		.version = message->rc == ZKLOCK_ZOK ? message->version : -1,
	};
	verdict = zklock_history_check(history(), &sight);
	return verdict == ZKLOCK_HISTORY_GOOD ? ZKLOCK_ENSEMBLE_ADMITTED : went_back(verdict);
}

/* ------------------------------------------------------------------------
 * The wait
 * ------------------------------------------------------------------------
 */

void
zklock_ensemble_found(int timeout_ms)
{
	int64 wait_ms = Max(timeout_ms, zklock_session_timeout);

	admitted = false;
	zklock_history_found(history(), zklock_clock(), wait_ms * NS_PER_MS);
	ereport(WARNING,
			(errmsg("ZooKeeper ensemble went back to an earlier state"),
			 errdetail("%s. This server grants nothing for %lld ms, because other servers may still rely on locks that the ensemble has forgotten.",
					   reason, (long long) wait_ms)));
	save();
	finding = false;
	zklock_ensemble_note();
}

bool
zklock_ensemble_waiting(void)
{
	return history()->found;
}

long
zklock_ensemble_open_in(void)
{
	ZkHistory *h = history();
	int64 now = zklock_clock();

	if (!h->found || !h->mended)
		return 0;
	if (!zklock_history_over(h, now))
		return (long) ((h->until - now) / NS_PER_MS + 1);
	ereport(LOG,
			(errmsg("locks are granted again after ZooKeeper ensemble went back to an earlier state"),
			 errdetail("The next fencing tokens are larger than %lld.",
					   (long long) h->top)));
	zklock_history_end(h);
	save();
	return 0;
}

void
zklock_ensemble_extend(int timeout_ms)
{
	mending_timeout = timeout_ms * NS_PER_MS;
}
