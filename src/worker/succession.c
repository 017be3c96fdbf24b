/*-------------------------------------------------------------------------
 *
 * succession.c
 *	  Remembers what the worker knows about the directories of locks that this server
 *	  takes again.
 *
 * The key is the name itself and not a hash of it, since a grant may depend on the
 * result.  When the ensemble deletes a directory that stays empty, the watch on it
 * fires, and there is room for another directory.  A directory that is not deleted is
 * forgotten with the connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/hsearch.h"

#include "succession.h"

/* Number of names, each of which has a watch.  A lock beyond these costs as much as
 * without a succession. */
#define MAX_SUCCESSIONS 1024

typedef struct KnownDirectory
{
	char name[ZKLOCK_NAME_MAX + 1]; /* key */
	ZkLockSuccession succession;
} KnownDirectory;

static HTAB *known = NULL;

bool
zklock_succession_room(const char *name)
{
	return known == NULL || hash_get_num_entries(known) < MAX_SUCCESSIONS ||
		hash_search(known, name, HASH_FIND, NULL) != NULL;
}

ZkLockSuccession
zklock_succession_find(const char *name)
{
	KnownDirectory *d = known ? hash_search(known, name, HASH_FIND, NULL) : NULL;

	return d ? d->succession : ZKLOCK_NO_SUCCESSION;
}

void
zklock_succession_remember(const char *name, const ZkLockSuccession *succession)
{
	KnownDirectory *d;

	Assert(succession->watched && !succession->requested);
	if (known == NULL)
	{
		HASHCTL ctl = {.keysize = ZKLOCK_NAME_MAX + 1, .entrysize = sizeof(KnownDirectory)};

		known = hash_create("zklock successions", 64, &ctl, HASH_ELEM | HASH_STRINGS);
	}
	if (!zklock_succession_room(name))
		return;
	d = hash_search(known, name, HASH_ENTER, NULL);
	d->succession = *succession;
}

void
zklock_succession_forget(const char *name)
{
	if (known != NULL)
		(void) hash_search(known, name, HASH_REMOVE, NULL);
}

void
zklock_succession_forget_all(void)
{
	if (known != NULL)
		hash_destroy(known);
	known = NULL;
}
