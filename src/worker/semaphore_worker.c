/*-------------------------------------------------------------------------
 *
 * semaphore_worker.c
 *	  The places of a semaphore on this server: tells them about each other
 *	  (semaphore_siblings.h), and about events in the directory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "semaphore_shared.h"
#include "semaphore_worker.h"

void
zklock_semaphore_note(const ZkFeeder *feeder, const ZkLockEntry *entry,
					  const ZkLockQueue *before, const ZkLockActions *actions,
					  ZkPlaceNews *news)
{
	ZkLockEntry *first = zklock_semaphore_place_first(entry);
	int ended;

	if (first == NULL || first == entry || !feeder->has_heard(first))
		return;
	ended =
		zklock_semaphore_siblings_ended(before, &entry->queue, actions,
										zklock_semaphore_siblings_waiting(&first->queue));
	if (ended > 0 || zklock_semaphore_siblings_is_led(&first->queue))
		*news = (ZkPlaceNews){
			.first = first,
			.generation = first->generation,
			.ended = ended,
		};
}

void
zklock_semaphore_tell(const ZkFeeder *feeder, const ZkPlaceNews *news)
{
	ZkLockEvent event = {.type = ZKLOCK_EV_BESIDE, .ended = news->ended};

	if (news->first != NULL)
		feeder->step(news->first, news->generation, &event);
}

typedef struct Sibling
{
	uint64 uuid;
	bool leaves;
} Sibling;

static int
compare_siblings(const void *a, const void *b)
{
	uint64 x = ((const Sibling *) a)->uuid;
	uint64 y = ((const Sibling *) b)->uuid;

	return (x > y) - (x < y);
}

/* Mark the children that belong to other places of this server.  Any other child of
 * this session is this place's, or an orphan. */
static void
mark_siblings(const ZkFeeder *feeder, const ZkLockEntry *entry, const char *name,
			  ZkLockChild *children, int n)
{
	const int32 *places;
	int nplaces = zklock_semaphore_places(name, &places);
	Sibling *siblings = palloc(sizeof(Sibling) * ZKLOCK_NCONTENDERS * ((Size) nplaces + 1));
	size_t nsiblings = 0;

	for (int i = 0; i < nplaces; i++)
	{
		const ZkLockEntry *place = zklock_entry(places[i]);

		for (int j = 0; j < ZKLOCK_NCONTENDERS && place != entry; j++)
		{
			const ZkContender *c = &place->queue.contender[j];

			/* a delete that a predecessor of this process has sent tells nothing */
			if (c->state != ZKLOCK_FREE)
				siblings[nsiblings++] = (Sibling){
					.uuid = c->uuid,
					.leaves =
						feeder->has_heard(place) && zklock_semaphore_siblings_leaves(c),
				};
		}
	}
	qsort(siblings, nsiblings, sizeof(Sibling), compare_siblings);
	for (int i = 0; i < n; i++)
	{
		Sibling key = {.uuid = children[i].uuid_lo};
		const Sibling *sibling = NULL;

		if (children[i].uuid_hi == zklock_shared->session.uuid_hi)
			sibling = bsearch(&key, siblings, nsiblings, sizeof(Sibling), compare_siblings);
		children[i].sibling = sibling != NULL;
		children[i].leaving = sibling != NULL && sibling->leaves;
	}
	pfree(siblings);
}

/* The place of this name that waits first, or NULL. */
static ZkLockEntry *
first_that_waits(const char *name, uint32 *generation)
{
	LWLock *lock;
	ZkLockEntry *any =
		zklock_entry_find(ZKLOCK_KIND_SEMAPHORE, name, false, LW_SHARED, &lock);
	ZkLockEntry *first;

	if (any == NULL)
		return NULL;
	first = zklock_semaphore_place_first(any);
	if (first != NULL)
		*generation = first->generation;
	zklock_entry_unlock(lock);
	return first;
}

/*
 * Show a listing that a place has asked for to the place that waits first, too, and to
 * the next one if that place gets a permit.  Then tell the place that is now the first
 * one.
 */
static void
show_listing(const ZkFeeder *feeder, const char *name, ZkLockEntry *asker,
			 const ZkLockEvent *event, ZkLockChild *children)
{
	ZkLockEntry *shown = asker;
	ZkLockEntry *first;
	uint32 generation;

	while ((first = first_that_waits(name, &generation)) != NULL && first != shown &&
		   feeder->has_heard(first))
	{
		ZkLockEvent seen = {
			.type = event->rc == ZKLOCK_RC_OK ? ZKLOCK_EV_SEEN : ZKLOCK_EV_BESIDE,
			.children = children,
			.nchildren = event->nchildren,
			.next_number = event->next_number,
			.changed = event->changed,
			.ended = ZKLOCK_ENDED_UNKNOWN, /* for BESIDE */
		};

		mark_siblings(feeder, first, name, children, event->nchildren);
		feeder->step(first, generation, &seen);
		shown = first;
	}
}

void
zklock_semaphore_listed(const ZkFeeder *feeder, ZkLockEntry *entry, uint32 generation,
						ZkLockEvent *event, ZkLockChild *children)
{
	char name[ZKLOCK_NAME_MAX + 1];

	/* who has a request out stays, and so does its name */
	strlcpy(name, entry->name, sizeof(name));
	mark_siblings(feeder, entry, name, children, event->nchildren);
	feeder->step(entry, generation, event);
	show_listing(feeder, name, entry, event, children);
}

/* Does an event of the directory, or with "hash" of a child, concern the queue? */
static bool
is_concerned(const ZkLockQueue *queue, uint64 hash, uint64 uuid)
{
	if (hash == 0 && (queue->dir_watched || queue->dir_list != 0))
		return true;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &queue->contender[i];

		if (c->state != ZKLOCK_FREE &&
			(hash == 0
				 ? c->first
				 : c->blocker == hash || c->lacks > 0 || (uuid != 0 && c->uuid == uuid)))
			return true;
	}
	return false;
}

void
zklock_semaphore_changed(const ZkFeeder *feeder, const char *name, const ZkLockEvent *event)
{
	const int32 *places;
	int n = zklock_semaphore_places(name, &places);
	int32 *indexes = palloc(sizeof(int32) * ((Size) n + 1));

	memcpy(indexes, places, sizeof(int32) * (Size) n);
	for (int i = 0; i < n; i++)
	{
		ZkLockEntry *entry = zklock_entry(indexes[i]);
		ZkLockEvent copy = *event;

		/* queues are ours alone to change; one that is empty is not concerned */
		if (is_concerned(&entry->queue, event->hash, event->uuid))
			feeder->step(entry, 0, &copy);
	}
	pfree(indexes);
}
