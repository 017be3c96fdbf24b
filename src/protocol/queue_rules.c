/*-------------------------------------------------------------------------
 *
 * queue_rules.c
 *	  Hands out the items of queues, and ends takes and puts.
 *
 *-------------------------------------------------------------------------
 */
#include "queue_rules.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Successful takes in a row before items are taken unseen again. */
#define WARY 64

/* ------------------------------------------------------------------------
 * The items of a queue
 * ------------------------------------------------------------------------
 */

static int
compare_items(const ZkItem *a, int64_t sequence, const char *name)
{
	if (a->sequence != sequence)
		return a->sequence < sequence ? -1 : 1;
	return strcmp(a->name, name);
}

/* The first item that is not before this one. */
static int
find(const ZkItems *items, int64_t sequence, const char *name)
{
	int low = 0;
	int high = items->n;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (compare_items(&items->item[middle], sequence, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Finds an item by its name; -1: it is not known (any more). */
static int
find_named(const ZkItems *items, const char *name)
{
	ZkItemName parsed;
	int i;

	if (!zklock_item_parse(name, &parsed))
		return -1;
	i = find(items, parsed.sequence, name);
	return i < items->n && strcmp(items->item[i].name, name) == 0 ? i : -1;
}

static void
set_state(ZkItems *items, int i, ZkItemState state)
{
	ZkItem *item = &items->item[i];

	items->asked -= item->state == ZKLOCK_ITEM_ASKED;
	items->gone -= item->state == ZKLOCK_ITEM_GONE;
	item->state = (uint8_t) state;
	items->asked += state == ZKLOCK_ITEM_ASKED;
	items->gone += state == ZKLOCK_ITEM_GONE;
	if (i < items->first)
		items->first = i;
	if (state == ZKLOCK_ITEM_HELD && i < items->first_held)
		items->first_held = i;
	if (state == ZKLOCK_ITEM_HELD && i >= items->end_held)
		items->end_held = i + 1;
	assert(items->asked >= 0 && items->gone >= 0);
}

/* Is the item to be had, for all we know, or is it being looked at? */
static bool
is_candidate(const ZkItems *items, int i)
{
	switch ((ZkItemState) items->item[i].state)
	{
		case ZKLOCK_ITEM_NEW:
		case ZKLOCK_ITEM_FREE:
		case ZKLOCK_ITEM_SUSPECT:
		case ZKLOCK_ITEM_ASKED:
			return true;
		case ZKLOCK_ITEM_HELD:
		case ZKLOCK_ITEM_OURS:
		case ZKLOCK_ITEM_ASIDE:
		case ZKLOCK_ITEM_GONE:
			break;
	}
	return false;
}

/* Has another server an item that is older than this one? */
static bool
is_held_before(ZkItems *items, int i)
{
	while (items->first_held < items->end_held &&
		   items->item[items->first_held].state != ZKLOCK_ITEM_HELD)
		items->first_held++;
	return items->first_held < items->end_held && items->first_held < i;
}

/* Count all anew: the items are others than before. */
static void
recount(ZkItems *items)
{
	items->asked = items->gone = items->first = items->end_held = 0;
	items->first_held = items->n;
	for (int i = 0; i < items->n; i++)
	{
		ZkItemState state = (ZkItemState) items->item[i].state;

		items->asked += state == ZKLOCK_ITEM_ASKED;
		items->gone += state == ZKLOCK_ITEM_GONE;
		if (state != ZKLOCK_ITEM_HELD)
			continue;
		if (items->end_held == 0)
			items->first_held = i;
		items->end_held = i + 1;
	}
}

void
zklock_items_compact(ZkItems *items)
{
	int n = 0;

	for (int i = 0; i < items->n; i++)
	{
		if (items->item[i].state != ZKLOCK_ITEM_GONE)
			items->item[n++] = items->item[i];
	}
	items->n = n;
	recount(items);
}

/* Looks at the item and at the next few. */
static ZkChoice
choose_to_look(ZkItems *items, int *which, int *nwhich)
{
	for (int i = items->first; i < items->n && *nwhich < ZKLOCK_ITEMS_WINDOW; i++)
	{
		ZkItemState state = (ZkItemState) items->item[i].state;

		if (state != ZKLOCK_ITEM_NEW && state != ZKLOCK_ITEM_SUSPECT)
			continue;
		set_state(items, i, ZKLOCK_ITEM_ASKED);
		which[(*nwhich)++] = i;
	}
	return ZKLOCK_CHOOSE_LOOK;
}

ZkChoice
zklock_items_choose(ZkItems *items, int *which, int *nwhich)
{
	ZkItemState state;

	*nwhich = 0;
	if (items->listing || items->listing_held)
		return ZKLOCK_CHOOSE_WAIT;
	if (!items->known)
	{
		items->listing = items->listed = true;
		return ZKLOCK_CHOOSE_LIST;
	}
	if (items->gone > ZKLOCK_ITEMS_GONE && items->gone > items->n / 2)
		zklock_items_compact(items);
	while (items->first < items->n && !is_candidate(items, items->first))
		items->first++;
	state = items->first < items->n ? (ZkItemState) items->item[items->first].state
									: ZKLOCK_ITEM_GONE;
	if (state == ZKLOCK_ITEM_ASKED)
		return ZKLOCK_CHOOSE_WAIT;
	/* the next one is known without a listing, unless the numbers have a gap */
	if (state == ZKLOCK_ITEM_GONE && items->coming && items->next >= 0)
		return ZKLOCK_CHOOSE_WAIT;
	/* an older item that somebody had may have been given back */
	if (!items->held_known && is_held_before(items, items->first))
	{
		items->listing_held = items->held_known = true;
		return ZKLOCK_CHOOSE_LIST_HELD;
	}
	if (state == ZKLOCK_ITEM_FREE || (state == ZKLOCK_ITEM_NEW && items->wary == 0))
	{
		which[0] = items->first;
		*nwhich = 1;
		set_state(items, items->first, ZKLOCK_ITEM_OURS);
		if (items->wary > 0)
			items->wary--;
		return ZKLOCK_CHOOSE_TAKE;
	}
	if (state != ZKLOCK_ITEM_GONE)
		return choose_to_look(items, which, nwhich);
	if (!items->listed)
	{
		items->listing = items->listed = true;
		return ZKLOCK_CHOOSE_LIST;
	}
	return ZKLOCK_CHOOSE_NONE;
}

static int
compare_listed(const void *a, const void *b)
{
	const ZkItem *item = b;

	return compare_items(a, item->sequence, item->name);
}

void
zklock_items_listed(ZkItems *items, ZkItem *item, int n, int64_t next)
{
	int old = 0;

	if (n > 0)
		qsort(item, (size_t) n, sizeof(*item), compare_listed);
	for (int i = 0; i < n; i++)
	{
		while (old < items->n &&
			   compare_items(&items->item[old], item[i].sequence, item[i].name) < 0)
			old++;
		/* what the listing shows may be over by now, and we know it */
		item[i].state = old < items->n &&
				compare_items(&items->item[old], item[i].sequence, item[i].name) == 0
			? items->item[old].state
			: ZKLOCK_ITEM_NEW;
	}
	items->item = item;
	items->n = n;
	items->next = next;
	recount(items);
	items->known = true;
	items->listing = false;
}

void
zklock_items_put(ZkItems *items, const char *name)
{
	ZkItemName parsed;
	ZkItem *item;

	if (!items->known || !zklock_item_parse(name, &parsed) || parsed.sequence != items->next)
	{
		/* somebody has made another one before it, or all is new there */
		items->next = -1;
		return;
	}
	item = &items->item[items->n++];
	item->sequence = parsed.sequence;
	item->state = ZKLOCK_ITEM_NEW;
	strcpy(item->name, name);
	items->next++;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

void
zklock_items_listed_held(ZkItems *items, const char **held, int n)
{
	items->listing_held = false;
	if (n > 0)
		qsort(held, (size_t) n, sizeof(*held), compare_names);
	for (int i = items->first_held; i < items->end_held; i++)
	{
		const char *name = items->item[i].name;
		bool is_held = n > 0 &&
			bsearch(&name, held, (size_t) n, sizeof(*held), compare_names) != NULL;

		if (items->item[i].state == ZKLOCK_ITEM_HELD && !is_held)
			set_state(items, i, ZKLOCK_ITEM_SUSPECT);
	}
	for (int i = 0; i < n; i++)
	{
		int at = find_named(items, held[i]);

		/* one that is being looked at is told by that */
		if (at >= 0 && is_candidate(items, at) && items->item[at].state != ZKLOCK_ITEM_ASKED)
			set_state(items, at, ZKLOCK_ITEM_HELD);
	}
}

void
zklock_items_not_listed(ZkItems *items, bool held)
{
	if (held)
		items->listing_held = items->held_known = false;
	else
		items->listing = items->listed = false;
}

void
zklock_items_looked(ZkItems *items, int64_t sequence, ZkReply rc, bool held)
{
	int i = find(items, sequence, "");

	/* a number is given once: two that have it were not made by zklock */
	while (i < items->n && items->item[i].sequence == sequence &&
		   items->item[i].state != ZKLOCK_ITEM_ASKED)
		i++;
	if (i == items->n || items->item[i].sequence != sequence)
		return;
	if (rc == ZKLOCK_REPLY_NO_NODE)
		set_state(items, i, ZKLOCK_ITEM_GONE);
	else if (rc == ZKLOCK_REPLY_OK && !held)
		set_state(items, i, ZKLOCK_ITEM_FREE);
	else if (rc == ZKLOCK_REPLY_LOST)
		set_state(items, i, ZKLOCK_ITEM_SUSPECT);
	else
		/* when it is given back, the watch on held/ tells */
		set_state(items, i, ZKLOCK_ITEM_HELD);
}

void
zklock_items_missed(ZkItems *items, const char *name, bool gone)
{
	int i = find_named(items, name);

	items->wary = WARY;
	if (i < 0)
		return;
	/* he may have given it back since then: a look will tell */
	set_state(items, i, gone ? ZKLOCK_ITEM_GONE : ZKLOCK_ITEM_SUSPECT);
}

void
zklock_items_set_aside(ZkItems *items, const char *name)
{
	int i = find_named(items, name);

	if (i >= 0)
		set_state(items, i, ZKLOCK_ITEM_ASIDE);
}

void
zklock_items_left(ZkItems *items, const char *name, bool gone)
{
	int i = find_named(items, name);

	if (i >= 0 && (gone || items->item[i].state != ZKLOCK_ITEM_ASIDE))
		set_state(items, i, gone ? ZKLOCK_ITEM_GONE : ZKLOCK_ITEM_SUSPECT);
}

void
zklock_items_changed(ZkItems *items, bool held)
{
	if (held)
		items->held_known = false;
	else
		items->listed = false;
}

void
zklock_items_forget(ZkItems *items)
{
	int n = 0;

	items->known = items->listed = items->held_known = false;
	items->listing = items->listing_held = false;
	/* what is gone may be there again: the ensemble may have gone back */
	for (int i = 0; i < items->n; i++)
	{
		if (items->item[i].state == ZKLOCK_ITEM_OURS)
			items->item[n++] = items->item[i];
	}
	items->n = n;
	recount(items);
	items->wary = WARY;
}

/* ------------------------------------------------------------------------
 * A take
 * ------------------------------------------------------------------------
 */

/* The request, or the step, that comes before the marks are ended together. */
static ZkTakeRequest
request_about_marks(const ZkTake *take)
{
	if (take->unseen)
		return take->half ? ZKLOCK_TAKE_SEE_IT : ZKLOCK_TAKE_SEE;
	if (!take->torn || take->state == ZKLOCK_TAKE_HELD)
		return ZKLOCK_TAKE_NOTHING;
	return take->ours  ? ZKLOCK_TAKE_REPAIR
		: take->others ? ZKLOCK_TAKE_CLEAR
					   : ZKLOCK_TAKE_SEE_IT;
}

ZkTakeRequest
zklock_take_request(ZkTake *take)
{
	ZkTakeRequest request = ZKLOCK_TAKE_NOTHING;

	if (take->open)
		return request;
	switch ((ZkTakeState) take->state)
	{
		case ZKLOCK_TAKE_FREE:
		case ZKLOCK_TAKE_WANTED:
		case ZKLOCK_TAKE_READ:
			break;
		case ZKLOCK_TAKE_HELD:
			request = request_about_marks(take);
			break;
		case ZKLOCK_TAKE_TAKING:
			request = take->whose ? ZKLOCK_TAKE_WHOSE : ZKLOCK_TAKE_MARK;
			break;
		case ZKLOCK_TAKE_READING:
			request = ZKLOCK_TAKE_READ_IT;
			break;
		case ZKLOCK_TAKE_WORN:
			request = ZKLOCK_TAKE_FAIL;
			break;
		case ZKLOCK_TAKE_DONE:
			request = request_about_marks(take);
			if (request != ZKLOCK_TAKE_NOTHING)
				break;
			if (take->barred)
				request = take->alone ? ZKLOCK_TAKE_BAR : ZKLOCK_TAKE_KEEP;
			else
				request = take->alone ? ZKLOCK_TAKE_DELETE : ZKLOCK_TAKE_FINISH;
			break;
		case ZKLOCK_TAKE_RETURNED:
			request = request_about_marks(take);
			if (request == ZKLOCK_TAKE_NOTHING)
				request = ZKLOCK_TAKE_GIVE;
			break;
	}
	take->open = request != ZKLOCK_TAKE_NOTHING;
	return request;
}

void
zklock_take_ahead(ZkTake *take)
{
	assert(take->state == ZKLOCK_TAKE_TAKING && take->open && !take->whose);
	take->ahead = true;
}

bool
zklock_take_expects(const ZkTake *take, ZkTakeRequest request)
{
	/* what was read ahead may have come, and the marks not */
	return take->open &&
		(request != ZKLOCK_TAKE_READ_IT || take->state == ZKLOCK_TAKE_READING);
}

/* There are no marks to look at. */
static void
forget_marks(ZkTake *take)
{
	take->unseen = take->half = take->torn = take->ours = take->others = false;
}

static void
start_over(ZkTake *take)
{
	take->state = take->leaving ? ZKLOCK_TAKE_FREE : ZKLOCK_TAKE_WANTED;
	take->open = take->doubt = take->whose = take->ahead = take->barred = false;
	forget_marks(take);
}

/* The marks are ours. */
static void
marked(ZkTake *take)
{
	take->state = take->leaving ? ZKLOCK_TAKE_RETURNED : ZKLOCK_TAKE_READING;
	/* nobody waits for the item if the backend has gone */
	take->open = take->ahead && !take->leaving;
	take->doubt = take->whose = take->ahead = false;
}

static ZkTakeNews
reply_mark(ZkTake *take, ZkReply rc, int failed)
{
	/* the reply to what was asked for ahead comes next, and is nobody's */
	if (rc != ZKLOCK_REPLY_OK)
		take->ahead = false;
	switch (rc)
	{
		case ZKLOCK_REPLY_OK:
			marked(take);
			return ZKLOCK_TAKE_NO_NEWS;
		case ZKLOCK_REPLY_EXISTS:
			/* somebody's, or our own, and we have not heard of it */
			if (take->doubt)
			{
				take->whose = true;
				return ZKLOCK_TAKE_NO_NEWS;
			}
			start_over(take);
			return ZKLOCK_TAKE_MISSED;
		case ZKLOCK_REPLY_NO_NODE:
			if (failed == 1)
				return ZKLOCK_TAKE_NO_DIRECTORY;
			start_over(take);
			return ZKLOCK_TAKE_VANISHED;
		case ZKLOCK_REPLY_LOST:
		case ZKLOCK_REPLY_NOT_EMPTY:
		case ZKLOCK_REPLY_BAD_VERSION:
		case ZKLOCK_REPLY_REFUSED:
			break;
	}
	start_over(take);
	return ZKLOCK_TAKE_REFUSED;
}

static ZkTakeNews
reply_whose(ZkTake *take, ZkReply rc)
{
	if (rc == ZKLOCK_REPLY_OK)
	{
		marked(take);
		take->unseen = true; /* the one below the item is not seen yet */
		return ZKLOCK_TAKE_NO_NEWS;
	}
	start_over(take);
	return rc == ZKLOCK_REPLY_NO_NODE ? ZKLOCK_TAKE_MISSED : ZKLOCK_TAKE_REFUSED;
}

static ZkTakeNews
reply_read(ZkTake *take, ZkReply rc)
{
	if (take->leaving)
	{
		take->state = ZKLOCK_TAKE_RETURNED;
		return ZKLOCK_TAKE_NO_NEWS;
	}
	if (rc == ZKLOCK_REPLY_OK && (take->most == 0 || take->attempt <= take->most))
		take->state = ZKLOCK_TAKE_READ;
	else if (rc == ZKLOCK_REPLY_OK)
		/* the marks are to be looked at first */
		take->state = take->unseen ? ZKLOCK_TAKE_RETURNED : ZKLOCK_TAKE_WORN;
	else
	{
		take->state = ZKLOCK_TAKE_RETURNED;
		if (rc == ZKLOCK_REPLY_EXISTS)
			return ZKLOCK_TAKE_UNFIT;
		/* it is gone, but for the mark in held/: then another one is chosen */
		if (rc != ZKLOCK_REPLY_NO_NODE)
			return ZKLOCK_TAKE_REFUSED;
	}
	return ZKLOCK_TAKE_NO_NEWS;
}

static ZkTakeNews
over(ZkTake *take, ZkTakeNews news)
{
	/* a refused take still belongs to its backend */
	start_over(take);
	return news;
}

/* The marks are not both there. */
static void
tear(ZkTake *take)
{
	forget_marks(take);
	take->torn = true;
}

/* The worker asked to move the item away.  If the move is not known to be done, the
 * item is given back. */
static ZkTakeNews
reply_fail(ZkTake *take, ZkReply rc, int failed)
{
	if (rc == ZKLOCK_REPLY_OK)
		return over(take, ZKLOCK_TAKE_FAILED);
	take->state = ZKLOCK_TAKE_RETURNED;
	/* it was, though we did not hear of it; or somebody has deleted a mark */
	if (rc == ZKLOCK_REPLY_NO_NODE && failed < 3)
		tear(take);
	else if (rc == ZKLOCK_REPLY_NO_NODE)
		return ZKLOCK_TAKE_NO_DIRECTORY;
	else if (rc == ZKLOCK_REPLY_NOT_EMPTY)
		return ZKLOCK_TAKE_STUCK;
	else if (!take->leaving)
		return ZKLOCK_TAKE_REFUSED;
	return ZKLOCK_TAKE_NO_NEWS;
}

/* The ensemble has answered a look at a mark. */
static ZkTakeNews
reply_see(ZkTake *take, ZkTakeRequest request, ZkReply rc)
{
	bool ours = rc == ZKLOCK_REPLY_OK;

	if (!ours && rc != ZKLOCK_REPLY_NO_NODE && rc != ZKLOCK_REPLY_EXISTS)
		return ZKLOCK_TAKE_NO_NEWS; /* again, then */
	if (take->torn)
	{
		take->ours = ours;
		take->others = !ours;
		return ZKLOCK_TAKE_NO_NEWS;
	}
	if (ours)
	{
		take->half = request == ZKLOCK_TAKE_SEE;
		take->unseen = take->half;
		return ZKLOCK_TAKE_NO_NEWS;
	}
	tear(take);
	if (take->state != ZKLOCK_TAKE_HELD)
		return ZKLOCK_TAKE_NO_NEWS;
	take->lost = true;
	return ZKLOCK_TAKE_LOST;
}

/* The mark in held/ is there again. */
static ZkTakeNews
reply_repair(ZkTake *take, ZkReply rc)
{
	if (rc == ZKLOCK_REPLY_OK || rc == ZKLOCK_REPLY_EXISTS)
		forget_marks(take);
	return rc == ZKLOCK_REPLY_NO_NODE ? ZKLOCK_TAKE_NO_DIRECTORY : ZKLOCK_TAKE_NO_NEWS;
}

/* The mark in held/ was deleted, or was not there: we have no mark left. */
static ZkTakeNews
reply_clear(ZkTake *take, ZkReply rc)
{
	if (rc != ZKLOCK_REPLY_OK && rc != ZKLOCK_REPLY_NO_NODE)
		return ZKLOCK_TAKE_NO_NEWS;
	forget_marks(take);
	if (take->state != ZKLOCK_TAKE_DONE)
		return over(take, ZKLOCK_TAKE_GIVEN);
	take->alone = true;
	return ZKLOCK_TAKE_NO_NEWS;
}

/* The ensemble has answered the request to end the marks together; "news", if it did. */
static ZkTakeNews
reply_end(ZkTake *take, ZkReply rc, ZkTakeNews news)
{
	if (rc == ZKLOCK_REPLY_OK)
		return over(take, news);
	/* done before, though we did not hear of it; or somebody has deleted a mark */
	if (rc == ZKLOCK_REPLY_NO_NODE)
		tear(take);
	if (rc == ZKLOCK_REPLY_NOT_EMPTY)
		take->barred = true;
	return ZKLOCK_TAKE_NO_NEWS;
}

/* The ensemble has answered the request to end the item without its marks. */
static ZkTakeNews
reply_alone(ZkTake *take, ZkTakeRequest request, ZkReply rc)
{
	if (rc == ZKLOCK_REPLY_NO_NODE)
		return over(take, ZKLOCK_TAKE_ENDED);
	/* somebody else has it: a second time, then */
	if (rc == ZKLOCK_REPLY_EXISTS)
		return over(take, ZKLOCK_TAKE_GIVEN);
	if (rc == ZKLOCK_REPLY_OK)
		return over(take,
					request == ZKLOCK_TAKE_BAR ? ZKLOCK_TAKE_BARRED : ZKLOCK_TAKE_ENDED);
	/* somebody else has it, or has made a node below it */
	if (rc == ZKLOCK_REPLY_NOT_EMPTY)
		take->barred = true;
	return ZKLOCK_TAKE_NO_NEWS;
}

ZkTakeNews
zklock_take_reply(ZkTake *take, ZkTakeRequest request, ZkReply rc, int failed)
{
	assert(zklock_take_expects(take, request));
	take->open = false;
	if (rc == ZKLOCK_REPLY_LOST)
	{
		/* all of these can be asked for again */
		if (request == ZKLOCK_TAKE_MARK)
			take->doubt = true;
		take->ahead = false;
		return ZKLOCK_TAKE_NO_NEWS;
	}
	switch (request)
	{
		case ZKLOCK_TAKE_NOTHING:
			break;
		case ZKLOCK_TAKE_MARK:
			return reply_mark(take, rc, failed);
		case ZKLOCK_TAKE_WHOSE:
			return reply_whose(take, rc);
		case ZKLOCK_TAKE_READ_IT:
			return reply_read(take, rc);
		case ZKLOCK_TAKE_FAIL:
			return reply_fail(take, rc, failed);
		case ZKLOCK_TAKE_FINISH:
			return reply_end(take, rc, ZKLOCK_TAKE_ENDED);
		case ZKLOCK_TAKE_KEEP:
			return reply_end(take, rc, ZKLOCK_TAKE_BARRED);
		case ZKLOCK_TAKE_GIVE:
			return reply_end(take, rc, ZKLOCK_TAKE_GIVEN);
		case ZKLOCK_TAKE_DELETE:
		case ZKLOCK_TAKE_BAR:
			return reply_alone(take, request, rc);
		case ZKLOCK_TAKE_SEE:
		case ZKLOCK_TAKE_SEE_IT:
			return reply_see(take, request, rc);
		case ZKLOCK_TAKE_REPAIR:
			return reply_repair(take, rc);
		case ZKLOCK_TAKE_CLEAR:
			return reply_clear(take, rc);
	}
	return ZKLOCK_TAKE_NO_NEWS;
}

int
zklock_take_joint_ops(ZkTakeRequest request)
{
	if (request == ZKLOCK_TAKE_FINISH)
		return 3;
	return request == ZKLOCK_TAKE_MARK || request == ZKLOCK_TAKE_GIVE ? 2 : 0;
}

int
zklock_take_joint_failed(ZkTakeRequest request, ZkReply rc, int failed, int n)
{
	int nops = zklock_take_joint_ops(request);

	/* this is the reply for all of them */
	if (rc == ZKLOCK_REPLY_OK || rc == ZKLOCK_REPLY_LOST || failed < 0)
		return -1;
	if (failed / nops == n)
		return failed % nops;
	return failed / nops < n && failed % nops == 0 &&
			(rc == ZKLOCK_REPLY_EXISTS || rc == ZKLOCK_REPLY_NO_NODE)
		? ZKLOCK_TAKE_BEHIND
		: ZKLOCK_TAKE_UNDONE;
}

ZkTakeNews
zklock_take_undone(ZkTake *take, bool behind)
{
	assert(take->open);
	/* and asks again */
	take->open = false;
	take->ahead = false;
	/* in doubt the marks may be there */
	if (take->state != ZKLOCK_TAKE_TAKING || take->doubt || !(behind || take->leaving))
		return ZKLOCK_TAKE_NO_NEWS;
	start_over(take);
	return ZKLOCK_TAKE_MISSED;
}

void
zklock_take_resumed(ZkTake *take)
{
	if (take->open && take->state == ZKLOCK_TAKE_TAKING && !take->whose)
		take->doubt = true;
	/* the marks are to be looked at first */
	if (take->state == ZKLOCK_TAKE_WORN)
		take->state = ZKLOCK_TAKE_RETURNED;
	/* the ensemble may have gone back meanwhile */
	take->open = take->ahead = take->barred = take->ours = take->others = false;
}

void
zklock_take_connected(ZkTake *take)
{
	assert(!take->open);
	switch ((ZkTakeState) take->state)
	{
		case ZKLOCK_TAKE_FREE:
		case ZKLOCK_TAKE_WANTED:
		case ZKLOCK_TAKE_TAKING:
			break;
		case ZKLOCK_TAKE_READING:
		case ZKLOCK_TAKE_WORN:
		case ZKLOCK_TAKE_READ:
		case ZKLOCK_TAKE_HELD:
		case ZKLOCK_TAKE_DONE:
		case ZKLOCK_TAKE_RETURNED:
			take->unseen = !take->torn && !take->alone && !take->gone;
			take->half = false;
			break;
	}
}

void
zklock_take_forfeit(ZkTake *take)
{
	assert(take->state == ZKLOCK_TAKE_HELD);
	take->lost = true; /* but not gone: the marks may be there */
}

bool
zklock_take_session_lost(ZkTake *take)
{
	bool told;

	take->open = take->barred = false;
	switch ((ZkTakeState) take->state)
	{
		case ZKLOCK_TAKE_FREE:
		case ZKLOCK_TAKE_WANTED:
			break;
		case ZKLOCK_TAKE_TAKING:
		case ZKLOCK_TAKE_READING:
		case ZKLOCK_TAKE_WORN:
		case ZKLOCK_TAKE_READ:
			start_over(take);
			break;
		case ZKLOCK_TAKE_HELD:
			take->lost = take->gone = true;
			told = take->torn;
			forget_marks(take);
			return !told;
		case ZKLOCK_TAKE_DONE:
			/* marks that are there are another's */
			forget_marks(take);
			take->alone = true;
			break;
		case ZKLOCK_TAKE_RETURNED:
			/* its backend may be there still, and wait for another item */
			start_over(take);
			break;
	}
	return false;
}

void
zklock_take_leave(ZkTake *take)
{
	assert(take->state != ZKLOCK_TAKE_FREE && take->state != ZKLOCK_TAKE_HELD &&
		   !take->leaving);
	take->leaving = true;
	if (take->state == ZKLOCK_TAKE_WANTED)
		take->state = ZKLOCK_TAKE_FREE;
	else if (take->state == ZKLOCK_TAKE_READ ||
			 ((take->state == ZKLOCK_TAKE_READING || take->state == ZKLOCK_TAKE_WORN) &&
			  !take->open))
		take->state = ZKLOCK_TAKE_RETURNED;
}

void
zklock_take_end(ZkTake *take, bool committed)
{
	/* the marks may be looked at */
	assert(take->state == ZKLOCK_TAKE_HELD && (!take->open || take->unseen));
	take->leaving = true;
	if (committed)
	{
		take->state = ZKLOCK_TAKE_DONE;
		take->alone = take->gone;
	}
	else
		take->state = take->gone ? ZKLOCK_TAKE_FREE : ZKLOCK_TAKE_RETURNED;
}

/* ------------------------------------------------------------------------
 * A put
 * ------------------------------------------------------------------------
 */

ZkPutVerdict
zklock_put_judge(const ZkPutFacts *facts)
{
	bool own = facts->own_life || (facts->own_name && facts->timeline);

	/* before the end of the log, a server knows only the commits that it has read */
	if (facts->recovering)
		return ZKLOCK_PUT_LATER;
	/* its number is another transaction's here, or will be */
	if (!facts->history)
		return ZKLOCK_PUT_LEAVE;

	/*
	 * A copy of the disks may go on on the same timeline, and the log does not tell it
	 * from us: so the chunk must bear our name, too.  What the log says about the time
	 * before a switch of timelines is true, no matter which server wrote the chunk.
	 */
	if (facts->timeline && !own)
		return ZKLOCK_PUT_LEAVE;
	if (facts->in_progress)
		return ZKLOCK_PUT_LATER;
	if (facts->unknown)
		return ZKLOCK_PUT_LEAVE;
	if (facts->committed)
		return ZKLOCK_PUT_MOVE;
	/* that it has not committed here says nothing of the server that goes on there */
	return own ? ZKLOCK_PUT_DROP : ZKLOCK_PUT_LEAVE;
}
