/*-------------------------------------------------------------------------
 *
 * watches.c
 *	  Counts how much of a connection the watches take.
 *
 * On a new connection the library sets all watches in one packet, and the ensemble
 * drops a connection that sends more than jute.maxbuffer (1 MB).  The worker would then
 * reconnect for ever.  So this file counts the bytes of watched paths.  Beyond TOO_MANY
 * bytes, grants get no watch, which leaves the rest to waiters.  Beyond FULL bytes,
 * waiters get none, either, and look now and then instead.  The watches that one step
 * adds after it has asked fit into the room that is left: two paths below TOO_MANY, one
 * below FULL, each of ZKLOCK_WATCHED_MAX bytes plus those of the directory, and this
 * server's own node.  The many names before one who waits for a permit, below TOO_MANY,
 * have no more bytes together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"

#include "watches.h"

#define TOO_MANY (512 * 1024)
#define FULL	 (896 * 1024)

/* The watches of the current client, by a hash of path and kind.  NULL: there are none
 * yet. */
static HTAB *watched = NULL;
static size_t watched_bytes;
static uint32 connection = 1; /* counts them */

typedef struct Watch
{
	uint64 hash; /* key */
	size_t bytes;
	uint32 confirmed; /* on this connection, 0: on none yet */
} Watch;

static uint64
hash_watch(const char *path, bool children)
{
	return hash_bytes_extended((const unsigned char *) path, (int) strlen(path),
							   children ? 1 : 0);
}

void
zklock_watches_forget_all(void)
{
	if (watched != NULL)
		hash_destroy(watched);
	watched = NULL;
	watched_bytes = 0;
}

uint64
zklock_watch_count(const char *path, bool children)
{
	uint64 hash = hash_watch(path, children);
	Watch *w;
	bool found;

	if (watched == NULL)
	{
		HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(Watch)};

		watched = hash_create("zklock watches", 1024, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	w = hash_search(watched, &hash, HASH_ENTER, &found);
	if (!found)
	{
		w->confirmed = 0;
		w->bytes = strlen(path) + 4; /* as serialized */
		watched_bytes += w->bytes;
	}
	return hash;
}

void
zklock_watch_gone(uint64 hash)
{
	Watch *w;

	if (watched == NULL)
		return;
	w = hash_search(watched, &hash, HASH_FIND, NULL);
	if (w != NULL)
	{
		Assert(w->bytes <= watched_bytes);
		watched_bytes -= w->bytes;
		hash_search(watched, &hash, HASH_REMOVE, NULL);
	}
}

void
zklock_watch_fired(const char *path, bool children)
{
	zklock_watch_gone(hash_watch(path, children));
}

void
zklock_watch_confirm(uint64 hash)
{
	Watch *w = watched != NULL ? hash_search(watched, &hash, HASH_FIND, NULL) : NULL;

	if (w != NULL)
		w->confirmed = connection;
}

bool
zklock_watch_stands(const char *path)
{
	uint64 hash = hash_watch(path, false);
	const Watch *w = watched != NULL ? hash_search(watched, &hash, HASH_FIND, NULL) : NULL;

	return w != NULL && w->confirmed == connection;
}

void
zklock_watches_doubt_all(void)
{
	connection++;
}

bool
zklock_watches_too_many(void)
{
	return watched_bytes > TOO_MANY;
}

bool
zklock_watches_full(void)
{
	return watched_bytes > FULL;
}
