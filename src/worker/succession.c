/*-------------------------------------------------------------------------
 *
 * succession.c
 *	  What the worker knows of the directories of locks that come back.
 *
 * By the name itself, not by a hash of it: a grant may rest on what is found here.
 * The ensemble reaps a directory that stays empty, the watch on it fires, and there is
 * room for another; one that nobody reaps is forgotten with the connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/hsearch.h"

#include "succession.h"

/* Names; each has a watch.  Beyond them a lock costs what it does without. */
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
