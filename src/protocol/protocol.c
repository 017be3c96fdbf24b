/*-------------------------------------------------------------------------
 *
 * protocol.c
 *	  The lock protocol as a pure function: zklock_step(state, event).
 *
 * An event first changes what the state says (one function per event below).  Then
 * decide() compares that with what is needed, and sends the requests that bring the two
 * together.  So a fact that arrives late, twice or after its cause is gone needs no
 * special case: it changes the state or it does not.  Outside decide() only the event's
 * own requests are sent: watches on children that a listing names, the listing with
 * which a new worker starts, an orphan's delete.
 *
 * Requests are pipelined, and this is correct because the ensemble executes a session's
 * requests in order.  A listing sent right behind a create shows the queue as of that
 * create or later.  So it contains every contender before us.  A contender that it
 * shows may be gone by the time we watch it; then the read that was to set the watch
 * says so.
 *
 * The ensemble knows a contender by its name alone.  So replies and events are matched
 * by uuid (our contenders) or by the name's hash (others'), never by index only: an
 * index is used again.  But anybody can delete a node of ours and make another of the
 * same name.  A node is ours if our session has made it, in the transaction that is the
 * token.
 *
 *-------------------------------------------------------------------------
 */
#include "protocol.h"
#include "semaphore_rules.h"

#include <assert.h>
#include <string.h>

/* Creates in a row that may find no directory before we give up. */
#define MAX_ATTEMPTS	 16
#define ATTEMPTS_REFUSED UINT8_MAX

/* list_needed: no listing before the next connection or TICK. */
#define LIST_LATER UINT64_MAX

/*
 * list_needed of an UNSETTLED contender that no listing shows.  The contender stays
 * known until the next TICK; unless the contender that takes its place is made at once,
 * and then settled on the same terms.  Only a deposed leader can have hidden it.  In
 * that case the connection ends without a write, and the next one lists again.
 */
#define LIST_NOT_FOUND (UINT64_MAX - 1)

static ZkLockAction *
add_action(ZkLockActions *actions, ZkLockActionType type, const ZkLockQueue *queue,
		   const ZkContender *c)
{
	ZkLockAction *a;

	assert(actions->n < ZKLOCK_MAX_ACTIONS);
	assert(queue->connected || !zklock_action_is_request(type));
	a = &actions->action[actions->n++];
	memset(a, 0, sizeof(*a));
	a->type = type;
	a->index = -1;
	a->sequence = -1;
	if (c != NULL)
	{
		a->index = (int) (c - queue->contender);
		a->uuid = c->uuid;
		a->mode = (ZkLockMode) c->mode;
		a->sequence = c->sequence;
		a->token = c->token;
		a->demanded = c->demanded;
		a->permits = c->permits;
	}
	return a;
}

/* Does the contender exist in the ensemble, as far as we know, and may stay? */
static bool
is_placed(const ZkContender *c)
{
	return c->state == ZKLOCK_QUEUED || c->state == ZKLOCK_WAITING ||
		c->state == ZKLOCK_GRANTED;
}

static bool
is_active(const ZkContender *c)
{
	return c->state != ZKLOCK_FREE && c->state != ZKLOCK_DELETING;
}

static ZkContender *
find_contender(ZkLockQueue *queue, uint64_t uuid)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state != ZKLOCK_FREE && c->uuid == uuid)
			return c;
	}
	return NULL;
}

/* Forgets everything about a contender except its state. */
static void
reset(ZkContender *c)
{
	uint8_t state = c->state;

	memset(c, 0, sizeof(*c));
	c->state = state;
	c->sequence = -1;
}

/* The only way a contender's state changes: along the edges of src/README.locks. */
static void
set_state(ZkContender *c, ZkContenderState state)
{
#define TO(state) (1 << ZKLOCK_##state)
	/* the session's end frees them all */
	static const uint16_t edges[] = {
		[ZKLOCK_FREE] = TO(PROBING) | TO(READY) | TO(CREATING) | TO(DELETING),
		[ZKLOCK_PROBING] = TO(FREE) | TO(PROBING) | TO(BLOCKED) | TO(READY) | TO(CREATING),
		[ZKLOCK_BLOCKED] = TO(FREE) | TO(PROBING) | TO(READY) | TO(CREATING),
		[ZKLOCK_READY] = TO(FREE) | TO(PROBING) | TO(READY) | TO(CREATING),
		[ZKLOCK_CREATING] = TO(FREE) | TO(READY) | TO(UNSETTLED) | TO(QUEUED),
		[ZKLOCK_UNSETTLED] = TO(FREE) | TO(CREATING) | TO(QUEUED),
		[ZKLOCK_QUEUED] = TO(FREE) | TO(UNSETTLED) | TO(QUEUED) | TO(WAITING) |
			TO(GRANTED) | TO(DELETING),
		[ZKLOCK_WAITING] =
			TO(FREE) | TO(UNSETTLED) | TO(QUEUED) | TO(GRANTED) | TO(DELETING),
		[ZKLOCK_GRANTED] = TO(FREE) | TO(UNSETTLED) | TO(DELETING),
		[ZKLOCK_DELETING] = TO(FREE),
	};
#undef TO

	(void) edges;
	assert((edges[c->state] & (1 << state)) != 0);
	c->state = (uint8_t) state;
	if (state != ZKLOCK_WAITING)
	{
		c->led = c->first = false;
		c->lacks = 0;
	}
}

static void
set_free(ZkContender *c)
{
	set_state(c, ZKLOCK_FREE);
	reset(c);
}

/* The contender waits for no blocker any more. */
static void
forget_blocker(ZkContender *c)
{
	c->blocker = 0;
	c->blocker_watched = false;
	c->blocker_last = false;
	c->second = 0;
	c->second_gone = false;
	c->polled = false;
	c->led = c->first = false;
	c->lacks = 0;
}

/* The position is not known any more: ask for a new listing. */
static void
set_queued(ZkContender *c)
{
	set_state(c, ZKLOCK_QUEUED);
	forget_blocker(c);
	c->list_needed = 0;
}

/* There may be nobody before the blocker now: decide() asks for a listing. */
static void
set_second_gone(ZkContender *c)
{
	c->second = 0;
	c->second_gone = true;
}

/* The contender gets a name that was not used before. */
static void
set_begun(const ZkLockQueue *queue, ZkContender *c, ZkContenderState state,
		  ZkLockMode mode, const ZkLockEvent *event)
{
	set_state(c, state);
	reset(c);
	c->mode = (uint8_t) mode;
	c->permits = queue->permits;
	c->uuid = event->fresh_uuid + (uint64_t) (c - queue->contender);
}

/* The create goes out from decide(). */
static void
set_creating(const ZkLockQueue *queue, ZkContender *c, ZkLockMode mode,
			 const ZkLockEvent *event)
{
	set_begun(queue, c, ZKLOCK_CREATING, mode, event);
}

/* A set's contender, to be made with the others.  The creates that found no directory
 * still count. */
static void
set_ready(const ZkLockQueue *queue, ZkContender *c, ZkLockMode mode,
		  const ZkLockEvent *event)
{
	uint8_t attempts = c->mode == mode && c->set == queue->set[mode] ? c->attempts : 0;

	set_begun(queue, c, ZKLOCK_READY, mode, event);
	c->set = queue->set[mode];
	c->attempts = attempts;
}

/* A set's create was not done.  A contender that others here need begins again. */
static void
set_undone(const ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event)
{
	if (queue->needed[c->mode] && c->set == queue->set[c->mode])
		set_ready(queue, c, (ZkLockMode) c->mode, event);
	else
		set_free(c);
}

/* The first step for a mode that is needed. */
static void
set_started(const ZkLockQueue *queue, ZkContender *c, ZkLockMode mode,
			const ZkLockEvent *event)
{
	if (queue->set[mode] != 0)
		set_ready(queue, c, mode, event);
	else
		set_begun(queue, c, queue->probe[mode] ? ZKLOCK_PROBING : ZKLOCK_CREATING, mode,
				  event);
}

static void
set_granted(ZkLockQueue *queue, ZkContender *c, bool demanded, ZkLockActions *actions)
{
	assert(queue->connected && queue->needed[c->mode] && c->token > 0);
	set_state(c, ZKLOCK_GRANTED);
	forget_blocker(c);
	c->demanded = demanded;
	if (queue->succession.watched && c->mode == ZKLOCK_EXCLUSIVE)
		queue->succession.last = c->sequence;
	add_action(actions, ZKLOCK_ACT_GRANTED, queue, c);
}

/* A grant that others want ends with its last hold. */
static void
set_demanded(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	assert(c->state == ZKLOCK_GRANTED && !c->demanded);
	c->demanded = true;
	add_action(actions, ZKLOCK_ACT_DEMANDED, queue, c);
}

/*
 * The directory has changed since our node was made, or may have changed.  So another
 * node may have the name by now.  If so, decide() sets a watch on our node, which
 * tells.
 */
static bool
may_be_remade(const ZkContender *c, const ZkLockEvent *event)
{
	return event->changed > c->token;
}

/* Do readers here wait to share the grant? */
static bool
is_joined(const ZkLockQueue *queue, const ZkContender *c)
{
	return c->state == ZKLOCK_GRANTED && c->mode == ZKLOCK_SHARED && queue->joins;
}

/*
 * Does somebody here need this contender?  A set needs a contender that was made with
 * its others, and no older one, which would stand before the set's place.
 */
static bool
is_needed(const ZkLockQueue *queue, const ZkContender *c)
{
	uint64_t set = queue->set[c->mode];

	return queue->needed[c->mode] && (set == 0 || c->set == set);
}

/* Tell the waiters; a node in the ensemble must go. */
static void
fail(ZkLockQueue *queue, ZkContender *c, ZkLockFailure failure, ZkLockActions *actions)
{
	assert(c->state != ZKLOCK_GRANTED);
	queue->needed[c->mode] = false;
	add_action(actions, ZKLOCK_ACT_FAILED, queue, c)->failure = failure;
	if (is_placed(c))
		set_state(c, ZKLOCK_DELETING);
	else
		set_free(c);
}

/* A grant is lost.  Its holders are no reason to acquire it again. */
static void
revoke(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (c->state != ZKLOCK_GRANTED)
		return;
	add_action(actions, ZKLOCK_ACT_REVOKED, queue, c);
	queue->needed[c->mode] = false;
}

/* There is no node of this name.  Another node with its mark is looked for, as an
 * orphan. */
static void
set_gone(ZkLockQueue *queue, ZkContender *c)
{
	queue->orphans_left |= c->alike;
	set_free(c);
}

/* Our node is gone, and not by our doing.  A waiter loses its place and queues again. */
static void
vanished(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	revoke(queue, c, actions);
	set_gone(queue, c);
}

/*
 * The same, but the server that says so may be behind all that our predecessor saw.
 * Holders are told, because it may be true.  The contender stays known until a listing,
 * now or at a TICK, has shown whether its node is there.
 */
static void
vanished_unproven(ZkLockQueue *queue, ZkContender *c, uint64_t list_needed,
				  ZkLockActions *actions)
{
	revoke(queue, c, actions);
	set_state(c, ZKLOCK_UNSETTLED);
	c->list_needed = list_needed;
}

/*
 * With the connection, its watches and positions are lost.  The library sets watches
 * again on the next connection, and the server fires those whose node has changed
 * meanwhile.  We rely on that for directories only: there an event too many does no
 * harm.
 */
static void
forget_connection(ZkLockQueue *queue)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		c->own_watched = false;
		c->own_requested = false;
		c->watch_later = false;
		if (c->state == ZKLOCK_WAITING || c->state == ZKLOCK_QUEUED)
			set_queued(c);
		else if (c->state == ZKLOCK_UNSETTLED)
			c->list_needed = 0;
		else if (c->state == ZKLOCK_GRANTED)
		{
			c->blocker = 0;
			if (c->list_needed == LIST_LATER)
				c->list_needed = 0;
		}
		if (c->delete_refused)
			c->delete_sent = c->delete_refused = false;
		if (c->mark_refused)
			c->mark_sent = c->mark_refused = false;
	}
	queue->dir_list = 0;
	queue->succession = ZKLOCK_NO_SUCCESSION;
}

/* ------------------------------------------------------------------------
 * Events
 * ------------------------------------------------------------------------
 */

/*
 * Readers wait to share a grant that takes no more holds.  The demander may have gone:
 * decide() asks, if nothing watches that, or if a reader would not wait.  The other
 * readers get the known answer.
 */
static void
on_joined(ZkLockQueue *queue, ZkContender *c, bool asks, ZkLockActions *actions)
{
	if (asks)
	{
		c->blocker = 0;
		c->list_needed = 0;
		c->list_synced = true;
	}
	else if (c->blocker != 0)
		add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c);
	else if (c->list_needed == LIST_LATER)
		c->list_needed = 0;
}

static void
on_need(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	queue->joins = event->joins;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		queue->needed[mode] = event->needed[mode];
		queue->probe[mode] = event->probe[mode];
		queue->set[mode] = event->set[mode];
	}

	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		/* A grant that has served is given up, no matter who waits. */
		if (c->state == ZKLOCK_GRANTED && event->spent[c->mode])
			set_state(c, ZKLOCK_DELETING);

		/* An answer is for those who asked before it, no others. */
		if (c->state == ZKLOCK_PROBING || c->state == ZKLOCK_BLOCKED ||
			c->state == ZKLOCK_READY)
			set_started(queue, c, (ZkLockMode) c->mode, event);
		else if (is_joined(queue, c))
			on_joined(queue, c, event->asks[c->mode], actions);
		else if (event->asks[c->mode] && is_active(c) && c->state != ZKLOCK_GRANTED &&
				 c->list_needed != LIST_NOT_FOUND)
		{
			if (c->state == ZKLOCK_WAITING)
				set_queued(c);
			c->list_needed = 0;
			c->list_synced = true;
		}
	}
}

/*
 * All contenders of a set are READY; or they are in their queues and have to be made
 * again, because not all of them are.  A grant among these helps nobody but the set.
 */
static void
on_jointly(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	ZkLockMode mode = event->mode;
	ZkContender *vacant = NULL;

	assert(queue->set[mode] != 0 && queue->needed[mode] && queue->connected);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_FREE)
			vacant = c;
		if (!is_active(c) || c->mode != mode || c->set != queue->set[mode])
			continue;
		if (c->state == ZKLOCK_READY)
		{
			set_state(c, ZKLOCK_CREATING);
			return;
		}
		assert(is_placed(c));
		if (c->state == ZKLOCK_GRANTED)
			add_action(actions, ZKLOCK_ACT_REVOKED, queue, c);
		set_state(c, ZKLOCK_DELETING);
	}
	assert(vacant != NULL);
	set_ready(queue, vacant, mode, event);
	set_state(vacant, ZKLOCK_CREATING);
}

/*
 * Somebody here removes the contender (zk_break).  Holders are told before anybody else
 * can have the lock; the node stays known until it is gone.
 */
static void
on_remove(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (!is_placed(c))
		return;
	revoke(queue, c, actions);
	set_state(c, ZKLOCK_DELETING);
}

static void
on_session_lost(ZkLockQueue *queue, ZkLockActions *actions)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state != ZKLOCK_FREE)
			vanished(queue, &queue->contender[i], actions);
	}
	queue->list_answered = queue->list_sent;
	queue->list_synced = 0;
	queue->dir_watched = false;
	queue->dir_list = 0;
	queue->orphans_left = queue->orphans_refused = false;
	queue->succession = ZKLOCK_NO_SUCCESSION;
	queue->connected = false;
}

/*
 * A new process owns the session and has seen no zxid.  So the server that it reached
 * may be behind all that its predecessor saw, our own nodes included.  The process
 * starts with a sync and a listing.  If the connection is lost before they are
 * answered, the next connection has to start with them again.
 */
static void
start_synced(ZkLockQueue *queue, ZkLockActions *actions)
{
	ZkLockAction *list = NULL;

	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (is_placed(c) || c->state == ZKLOCK_UNSETTLED)
		{
			if (list == NULL)
			{
				list = add_action(actions, ZKLOCK_ACT_LIST, queue, NULL);
				list->list = ++queue->list_sent;
				list->sync = true;
			}
			c->list_needed = list->list;
			if (c->state == ZKLOCK_GRANTED && !c->demanded && !list->watch)
			{
				list->watch = true;
				queue->dir_list = list->list;
			}
		}
	}
	queue->list_synced = list != NULL ? list->list : 0;
}

static void
on_connected(ZkLockQueue *queue, ZkLockActions *actions)
{
	forget_connection(queue);
	queue->connected = true;
	if (queue->list_synced != 0)
		start_synced(queue, actions);
}

static void
on_resumed(ZkLockQueue *queue, ZkLockActions *actions)
{
	forget_connection(queue);
	queue->connected = true;
	queue->list_answered = queue->list_sent;
	queue->dir_watched = false; /* it went with the process */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		c->delete_sent = c->mark_sent = false;
		if (c->state == ZKLOCK_CREATING && c->create_sent)
		{
			set_state(c, ZKLOCK_UNSETTLED);
			c->create_sent = false;
		}
	}
	start_synced(queue, actions);
}

static void
on_tick(ZkLockQueue *queue)
{
	queue->orphans_refused = false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->delete_refused)
			c->delete_sent = c->delete_refused = false;
		if (c->mark_refused)
			c->mark_sent = c->mark_refused = false;
		if (c->list_needed == LIST_LATER)
			c->list_needed = 0;
		else if (c->list_needed == LIST_NOT_FOUND)
			set_free(c);
		if (c->state == ZKLOCK_WAITING && c->polled)
			set_queued(c);
		c->watch_later = false;
	}
}

/*
 * A directory numbers its contenders one by one.  If our contender's number follows
 * that of our last exclusive grant in the same directory, nobody has come in between;
 * and all contenders before that one were gone when it was granted the lock.
 */
static bool
succeeds(const ZkLockQueue *queue, const ZkContender *c)
{
	const ZkLockSuccession *succession = &queue->succession;

	return succession->watched && succession->last >= 0 && c->mode == ZKLOCK_EXCLUSIVE &&
		c->sequence == succession->last + 1 && c->sequence <= ZKLOCK_SEQUENCE_LIMIT;
}

static void
on_created(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		   ZkLockActions *actions)
{
	if (c->state != ZKLOCK_CREATING)
		return;
	c->create_sent = false;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			set_state(c, ZKLOCK_QUEUED);
			c->sequence = event->sequence;
			c->token = event->token;
			c->attempts = 0;
			if (c->list_needed == 0 && c->token != 0 && is_needed(queue, c) &&
				succeeds(queue, c))
			{
				/* who comes after us we are not told */
				set_granted(queue, c, true, actions);
				c->watch_later = true;
			}
			break;

		case ZKLOCK_RC_NO_NODE:
			/* The ensemble reaps empty lock directories at any time. */
			if (c->attempts == ATTEMPTS_REFUSED)
				fail(queue, c, ZKLOCK_FAIL_REFUSED, actions);
			else if (++c->attempts > MAX_ATTEMPTS)
				fail(queue, c, ZKLOCK_FAIL_NO_DIRECTORY, actions);
			else if (c->set != 0)
				set_undone(queue, c, event);
			break;

		case ZKLOCK_RC_LOST:
			set_state(c, ZKLOCK_UNSETTLED);
			c->list_needed = 0;
			break;

		case ZKLOCK_RC_UNDONE:
			set_undone(queue, c, event);
			break;

		case ZKLOCK_RC_EXISTS:
			/* only a counter that is stuck at its end makes a name twice */
			fail(queue, c, ZKLOCK_FAIL_SEQUENCE, actions);
			break;

		case ZKLOCK_RC_ERROR:
			fail(queue, c, ZKLOCK_FAIL_REFUSED, actions);
			break;
	}
}

static void
watch_own(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (c->own_watched || c->own_requested)
		return;
	add_action(actions, ZKLOCK_ACT_WATCH_OWN, queue, c);
	c->own_requested = true;
}

static void
mark_own(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (c->mark_sent)
		return;
	add_action(actions, ZKLOCK_ACT_MARK, queue, c);
	c->mark_sent = true;
}

/*
 * Is it worth a watch on the directory to know whether others want the grant?  It is if
 * the grant may be kept, and if readers may join one another on it.
 */
static bool
watches_dir(const ZkContender *c, const ZkLockEvent *event)
{
	return (event->keep || c->mode == ZKLOCK_SHARED) && !event->spare_watches;
}

/*
 * Do we have to wait for "child", or it for us?  Our own contenders never stand in our
 * way: the table excludes local backends from each other.  For a permit everybody
 * counts.
 */
static bool
conflicts(ZkLockQueue *queue, const ZkContender *c, const ZkLockChild *child,
		  const ZkLockEvent *event)
{
	if (queue->permits > 0)
		return child->uuid_hi != event->session || child->uuid_lo != c->uuid;
	if (child->uuid_hi == event->session && find_contender(queue, child->uuid_lo) != NULL)
		return false;
	return zklock_modes_conflict((ZkLockMode) c->mode, child->mode);
}

/*
 * Compares by number.  A child that has our number and not our UUID was made without
 * the sequence flag, perhaps before us.
 */
static bool
comes_before(const ZkContender *c, const ZkLockChild *child)
{
	return child->sequence <= c->sequence;
}

/* Returns the last of the other contenders, or NULL.  Our own orphans are about to go. */
static const ZkLockChild *
find_other(ZkLockQueue *queue, const ZkContender *c, const ZkLockEvent *event)
{
	const ZkLockChild *last = NULL;

	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (child->uuid_hi != event->session && conflicts(queue, c, child, event) &&
			(last == NULL || child->sequence > last->sequence))
			last = child;
	}
	return last;
}

/*
 * Has anybody come since "c" was made?  He may have left again, before a watch could tell
 * us of him.  His server believes that we know of him (end_probe).
 */
static bool
was_followed(const ZkLockQueue *queue, const ZkContender *c, const ZkLockEvent *event)
{
	return queue->permits == 0 && c->mode == ZKLOCK_EXCLUSIVE &&
		event->next_number > c->sequence + 1;
}

static bool
may_watch(const ZkLockChild *child)
{
	return strlen(child->name) <= ZKLOCK_WATCHED_MAX;
}

static void
watch_child(ZkLockQueue *queue, ZkContender *c, const char *name, uint64_t hash,
			ZkLockActions *actions)
{
	ZkLockAction *watch = add_action(actions, ZKLOCK_ACT_WATCH, queue, c);

	assert(strlen(name) <= ZKLOCK_WATCHED_MAX);
	watch->name = name;
	watch->hash = hash;
}

/*
 * "c" waits for its blocker, and "second" is the next one down.  Contenders mostly
 * leave in their order: when "second" has gone, the blocker is the last.  If a listing
 * says so in time, the blocker's deletion is the grant.
 */
static void
watch_second(ZkLockQueue *queue, ZkContender *c, const ZkLockChild *second,
			 const ZkLockEvent *event, ZkLockActions *actions)
{
	if (second == NULL || event->spare_watches || !may_watch(second))
		return;
	c->second = second->hash;
	watch_child(queue, c, second->name, second->hash, actions);
}

/*
 * Readers here may not share the grant, because of "other"; NULL: because of something
 * that we cannot see.  They may when it has gone and nobody else has come.
 */
static void
set_joiners_blocked(ZkLockQueue *queue, ZkContender *c, const ZkLockChild *other,
					const ZkLockEvent *event, ZkLockActions *actions)
{
	add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c);
	if (other != NULL && !event->spare_watches && may_watch(other))
	{
		c->blocker = other->hash;
		watch_child(queue, c, other->name, other->hash, actions);
	}
	else
		c->list_needed = LIST_LATER;
}

/* The listing is recent enough for "c", which is GRANTED: does anybody want the grant, or
 * did since "c" was made? */
static void
look_for_demand(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
				ZkLockActions *actions)
{
	const ZkLockChild *other = find_other(queue, c, event);

	c->list_synced = false; /* answered, not lost with a connection */
	if ((other != NULL || was_followed(queue, c, event)) && !c->demanded)
		set_demanded(queue, c, actions);
	if (!is_joined(queue, c))
		return;
	if (other != NULL)
		set_joiners_blocked(queue, c, other, event, actions);
	else if (c->demanded)
	{
		c->demanded = false;
		add_action(actions, ZKLOCK_ACT_UNDEMANDED, queue, c);
	}
}

/* The contender before the blocker has gone.  Looks who is left. */
static void
look_ahead(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		   ZkLockActions *actions)
{
	const ZkLockChild *second = NULL;
	bool present = false;

	c->second_gone = false;
	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (!comes_before(c, child) || !conflicts(queue, c, child, event))
			continue;
		if (child->hash == c->blocker)
			present = true;
		else if (second == NULL || child->sequence > second->sequence)
			second = child;
	}
	if (!present)
		return; /* we are about to hear of it */
	c->blocker_last = second == NULL;
	watch_second(queue, c, second, event, actions);
}

/*
 * Do the numbers in a listing say where "c" stands?  If not, "c" is given up, or makes
 * room for a new contender.
 */
static bool
numbers_tell(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			 ZkLockActions *actions)
{
	bool shared = false;

	if (event->next_number > ZKLOCK_SEQUENCE_LIMIT)
	{
		fail(queue, c, ZKLOCK_FAIL_SEQUENCE, actions);
		return false;
	}
	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (!conflicts(queue, c, child, event))
			continue;

		/*
		 * Made without the sequence flag, by a program that may well have the lock:
		 * its number does not say when it came.
		 */
		if (child->sequence < 0 || child->sequence >= event->next_number)
		{
			fail(queue, c, ZKLOCK_FAIL_NUMBER, actions);
			return false;
		}

		/* A number is a place only if nobody shares it.  The next one is ours alone. */
		shared |= comes_before(c, child) && child->sequence == c->sequence;
	}
	if (shared)
		set_state(c, ZKLOCK_DELETING);
	return !shared;
}

/* Does another place of this server wait before "c"? */
static bool
is_led(const ZkContender *c, const ZkLockEvent *event)
{
	return event->leader < c->sequence;
}

/* "c" is behind another place of this server, which waits for both. */
static void
set_led(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (c->state != ZKLOCK_WAITING)
		set_state(c, ZKLOCK_WAITING);
	forget_blocker(c);
	c->waited = c->led = true;
	c->watch_later = false;
	add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c);
}

/* May we watch all contenders before "c", except siblings?  Their names together have the
 * room of one. */
static bool
may_watch_all(const ZkContender *c, const ZkLockEvent *event)
{
	size_t len = 0;

	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (comes_before(c, child) && !child->sibling)
			len += strlen(child->name);
	}
	return len <= ZKLOCK_WATCHED_MAX && !c->unreadable && !event->spare_watches;
}

/* "c" waits for a permit, and is the first of this server to wait.  Sets the watches
 * that tell it when to look. */
static void
watch_for_permit(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
				 const ZkSemaphorePlace *place, ZkLockActions *actions)
{
	const ZkLockChild *far = place->far;

	c->watch_later = true; /* mostly it is over before */
	c->blocker = far != NULL ? far->hash : place->before->hash;
	c->polled = event->no_watches;
	if (c->polled)
		return;
	if (far != NULL && far->permits > 0 && !c->unreadable)
	{
		c->polled = !may_watch(far) || c->marked == c->blocker;
		if (!c->polled)
			watch_child(queue, c, far->name, far->hash, actions);
	}
	else if (far != NULL || place->nothers > ZKLOCK_SEMAPHORE_WATCHED ||
			 !may_watch_all(c, event))
		c->first = c->wants_dir = true; /* decide() watches the directory */
	else
	{
		c->lacks = place->lacks;
		for (int i = 0; i < event->nchildren; i++)
		{
			const ZkLockChild *child = &event->children[i];

			if (!conflicts(queue, c, child, event) || !comes_before(c, child) ||
				child->sibling)
				continue;
			watch_child(queue, c, child->name, child->hash, actions);
			actions->action[actions->n - 1].once = true; /* for whoever waits first here */
		}
	}
}

/*
 * Does what find_place does, for one of several permits (semaphore_rules.h).  A
 * contender behind us may have seen us wait, in an earlier listing, and waits to hear
 * that we do no more.
 */
static void
find_permit(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			ZkLockActions *actions)
{
	ZkSemaphorePlace place =
		zklock_semaphore_find_place(event->children, event->nchildren, c->sequence,
									queue->permits, event->session);

	/* one of its own is on its way, which answers more */
	if (!place.granted && event->type == ZKLOCK_EV_SEEN && c->state == ZKLOCK_QUEUED)
		return;
	c->list_synced = false; /* answered, not lost with a connection */
	if (!numbers_tell(queue, c, event, actions))
		return;
	queue->other_permits = place.other;
	if (place.granted)
	{
		set_granted(queue, c,
					place.contended || find_other(queue, c, event) != NULL ||
						(!queue->dir_watched && !watches_dir(c, event)),
					actions);
		c->doubted = may_be_remade(c, event);
		c->mark_due = place.followed;
		c->watch_later = true; /* most are given back before */
		return;
	}
	c->waited = true;
	c->wants_dir = false;
	if (is_led(c, event))
	{
		set_led(queue, c, actions);
		return;
	}
	if (place.lacks == 0)
	{
		set_queued(c); /* for a listing behind the deletes that are on their way */
		return;
	}
	if (c->state != ZKLOCK_WAITING)
		set_state(c, ZKLOCK_WAITING);
	forget_blocker(c);
	add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c);
	watch_for_permit(queue, c, event, &place, actions);
}

/*
 * The listing is recent enough for "c", which is QUEUED with its sequence number and
 * token known: finds its place.
 */
static void
find_place(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		   ZkLockActions *actions)
{
	const ZkLockChild *blocker = NULL;
	const ZkLockChild *second = NULL;
	const ZkContender *shared = NULL;
	bool deadlock = false;
	bool demanded =
		(!queue->dir_watched && !watches_dir(c, event)) || was_followed(queue, c, event);

	c->list_synced = false; /* answered, not lost with a connection */

	if (c->mode == ZKLOCK_EXCLUSIVE && event->held[ZKLOCK_SHARED])
		shared = zklock_lock_queue_grant(queue, ZKLOCK_SHARED);

	if (!numbers_tell(queue, c, event, actions))
		return;
	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (!conflicts(queue, c, child, event))
			continue;
		if (!comes_before(c, child))
		{
			demanded = true;
			continue;
		}

		/*
		 * The backend that asks for "c" holds "shared".  An exclusive
		 * contender between the two waits for it, and we would wait for that
		 * contender.
		 */
		if (shared != NULL && child->mode == ZKLOCK_EXCLUSIVE &&
			!comes_before(shared, child))
			deadlock = true;

		if (blocker == NULL || child->sequence > blocker->sequence)
		{
			second = blocker;
			blocker = child;
		}
		else if (second == NULL || child->sequence > second->sequence)
			second = child;
	}

	if (deadlock)
		fail(queue, c, ZKLOCK_FAIL_DEADLOCK, actions);
	else if (blocker == NULL)
	{
		set_granted(queue, c, demanded, actions);
		c->doubted = may_be_remade(c, event);
	}
	else
	{
		set_state(c, ZKLOCK_WAITING);
		c->blocker = blocker->hash;
		c->blocker_watched = false;
		c->blocker_last = second == NULL;
		/* if it waits itself, behind "second", ours may go before it has heard of ours */
		add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c)->hash =
			second == NULL ? blocker->hash : 0;
		c->polled = event->no_watches || !may_watch(blocker);
		if (c->polled)
			return;

		/*
		 * The watch on our own node goes first: if it is silent when the
		 * blocker's deletion arrives, our node was there at that moment.
		 */
		watch_own(queue, c, actions);
		watch_child(queue, c, blocker->name, blocker->hash, actions);
		watch_second(queue, c, second, event, actions);
	}
}

/* Finds a free contender for an orphan, if the modes that have no contender now leave
 * one. */
static ZkContender *
vacant_for_orphan(ZkLockQueue *queue)
{
	ZkContender *vacant = NULL;
	int spare = -ZKLOCK_NMODES;

	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_FREE)
			vacant = c;
		if (c->state == ZKLOCK_FREE || is_active(c))
			spare++;
	}
	return spare > 0 ? vacant : NULL;
}

/* If there is no room for it, another listing follows when there is. */
static void
take_orphan(ZkLockQueue *queue, const ZkLockChild *child)
{
	ZkContender *vacant = vacant_for_orphan(queue);

	if (vacant == NULL)
	{
		queue->orphans_left = true;
		return;
	}
	set_state(vacant, ZKLOCK_DELETING);
	vacant->mode = (uint8_t) child->mode;
	vacant->permits = child->permits;
	vacant->uuid = child->uuid_lo;
	vacant->sequence = child->sequence;
}

/* Does the listing show where "c" stands?  An older one is from before its node. */
static bool
shows(const ZkLockEvent *event, const ZkContender *c)
{
	return c->list_needed != 0 && c->list_needed <= event->list;
}

/* The ensemble refuses the listing in which "c" had to see something. */
static void
on_list_refused(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
				ZkLockActions *actions)
{
	if (c->state == ZKLOCK_UNSETTLED)
		c->list_needed = LIST_LATER;
	else if (c->state == ZKLOCK_QUEUED || c->state == ZKLOCK_PROBING)
		fail(queue, c, ZKLOCK_FAIL_REFUSED, actions);
	else if (c->state == ZKLOCK_WAITING)
	{
		c->second_gone = false;
		c->polled |= c->first;
	}
	else if (c->state == ZKLOCK_GRANTED)
	{
		/* we cannot see who comes, nor who goes */
		if (!c->demanded)
			set_demanded(queue, c, actions);
		if (is_joined(queue, c))
			set_joiners_blocked(queue, c, NULL, event, actions);
	}
}

/* Does the server of "other" know that we want the lock?  It may keep it for nobody, and
 * gives it up only for a contender that it hears of.  Who has it in shared mode, or a
 * permit, looks later who came, when ours may have gone. */
static bool
knows_of_us(const ZkLockQueue *queue, const ZkLockChild *other, const ZkLockEvent *event)
{
	return queue->permits == 0 && other->mode == ZKLOCK_EXCLUSIVE &&
		(uint32_t) other->hash == event->asked;
}

/* The listing is recent enough for "c", which has no node: is a node worth it? */
static void
end_probe(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		  ZkLockActions *actions)
{
	const ZkLockChild *other = find_other(queue, c, event);
	bool blocked = queue->permits > 0
		? !zklock_semaphore_find_place(event->children, event->nchildren, INT64_MAX,
									   queue->permits, event->session)
			   .granted
		: other != NULL;

	if (blocked && (other == NULL || knows_of_us(queue, other, event)))
	{
		set_state(c, ZKLOCK_BLOCKED);
		add_action(actions, ZKLOCK_ACT_BLOCKED, queue, c);
	}
	else
		set_creating(queue, c, (ZkLockMode) c->mode, event);
}

/* Returns the child that has our contender's name, or NULL.  A listing cannot tell
 * whether we have made that node. */
static const ZkLockChild *
find_own(const ZkContender *c, const ZkLockEvent *event)
{
	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];

		if (child->uuid_hi == event->session && child->uuid_lo == c->uuid &&
			child->sequence >= 0 && (c->token == 0 || child->sequence == c->sequence))
			return child;
	}
	return NULL;
}

/* Takes our create's number from a listing, if the node is ours.  Token and owner
 * come from the leader (on_confirmed). */
static void
adopt(ZkContender *c, const ZkLockChild *own)
{
	if (c->token != 0 || c->sequence == own->sequence)
		return;
	c->alike |= c->sequence >= 0;
	c->sequence = own->sequence;
	c->mark_sent = false;
}

/* The listing is recent enough for "c": is its node there? */
static void
look_for_own(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event, bool synced,
			 ZkLockActions *actions)
{
	const ZkLockChild *own = find_own(c, event);

	if (c->state == ZKLOCK_UNSETTLED)
	{
		if (own != NULL)
		{
			adopt(c, own);
			set_queued(c);
		}
		else
			c->list_needed = LIST_NOT_FOUND;
	}
	else if (own != NULL)
	{
		adopt(c, own);
		if (c->state != ZKLOCK_GRANTED)
			return;
		c->doubted |= may_be_remade(c, event);
		look_for_demand(queue, c, event, actions);
	}
	else if (synced)
		vanished_unproven(queue, c, LIST_NOT_FOUND, actions);
	else
		vanished(queue, c, actions);
}

/*
 * A child with our session's mark and without a contender here is an orphan: the reply
 * to its create was lost, and a deposed leader hid it from the listing that settled the
 * create.  A contender takes it up, to delete it.
 */
static void
take_orphans(ZkLockQueue *queue, const ZkLockEvent *event)
{
	if (event->rc == ZKLOCK_RC_ERROR)
		queue->orphans_refused = queue->orphans_left;
	else
		queue->orphans_left = false;
	for (int i = 0; i < event->nchildren; i++)
	{
		const ZkLockChild *child = &event->children[i];
		ZkContender *c;

		if (child->uuid_hi != event->session || child->sibling)
			continue;
		c = find_contender(queue, child->uuid_lo);
		if (c == NULL)
			take_orphan(queue, child);
		else if (c->token == 0 && c->sequence >= 0 && c->sequence != child->sequence)
			c->alike = true;
	}
}

/* The listing is recent enough for "c", which waits, or has to find out. */
static void
look_for_place(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			   ZkLockActions *actions)
{
	if (c->state == ZKLOCK_WAITING && queue->permits == 0)
	{
		if (c->second_gone)
			look_ahead(queue, c, event, actions);
	}
	else if (c->state == ZKLOCK_WAITING && (c->led || (!c->first && c->lacks == 0)))
		return; /* the one before us is watched, or does that for us */
	else if (!is_needed(queue, c))
		return; /* decide() deletes it */
	else if (c->token == 0)
		c->list_needed = 0;
	else if (queue->permits > 0)
		find_permit(queue, c, event, actions);
	else
		find_place(queue, c, event, actions);
}

/*
 * The leader does not have a contender that a listing has shown: it never had it, or has
 * no more.  A ZooKeeper server that shows it all the same has strayed from the leader.
 * Who waits here looks again; the worker leaves it out of all listings from now on.
 */
static void
set_absent(ZkLockQueue *queue, const ZkContender *absent, ZkLockActions *actions)
{
	add_action(actions, ZKLOCK_ACT_ABSENT, queue, absent);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state == ZKLOCK_WAITING)
			set_queued(&queue->contender[i]);
	}
}

static void
on_listed(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	bool synced;

	if (event->list > queue->list_answered)
		queue->list_answered = event->list;
	if (event->rc == ZKLOCK_RC_LOST)
		return; /* decide() asks again */
	synced = queue->list_synced != 0;
	if (event->list >= queue->list_synced && event->rc != ZKLOCK_RC_ERROR)
		queue->list_synced = 0;
	if (event->list == queue->dir_list)
	{
		queue->dir_list = 0;
		queue->dir_watched = event->rc == ZKLOCK_RC_OK;
	}

	/* No directory (NO_NODE) means no contenders, ours included. */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if ((!is_placed(c) && c->state != ZKLOCK_UNSETTLED && c->state != ZKLOCK_PROBING) ||
			!shows(event, c))
			continue;
		if (event->rc == ZKLOCK_RC_ERROR)
			on_list_refused(queue, c, event, actions);
		else if (c->state == ZKLOCK_PROBING)
			end_probe(queue, c, event, actions);
		else
			look_for_own(queue, c, event, synced, actions);
	}

	take_orphans(queue, event);

	/*
	 * Places come second: whether an upgrade is a deadlock depends on our
	 * shared contender, which may just have turned out to be gone.
	 */
	for (int i = 0; i < ZKLOCK_NCONTENDERS && event->rc != ZKLOCK_RC_ERROR; i++)
	{
		ZkContender *c = &queue->contender[i];

		if ((c->state == ZKLOCK_QUEUED || c->state == ZKLOCK_WAITING) && shows(event, c))
			look_for_place(queue, c, event, actions);
	}
}

/*
 * The same for a listing that another place of this server has asked for.  If it shows
 * our contender, it is recent enough for it.
 */
static void
on_seen(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	assert(queue->permits > 0 && event->rc == ZKLOCK_RC_OK);
	if (!queue->connected || queue->list_synced != 0)
		return; /* it does not trust in what was asked for before */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if ((c->state != ZKLOCK_QUEUED && c->state != ZKLOCK_WAITING) || c->token == 0 ||
			!is_needed(queue, c))
			continue;
		if (find_own(c, event) != NULL)
			find_permit(queue, c, event, actions);
		else if (c->state == ZKLOCK_WAITING)
			set_queued(c); /* an old one, or it has gone */
	}
}

/*
 * "n" of the contenders before this one have gone: ours, or a watched one of another
 * session.  If this one waits for a permit, it counts them.
 */
static void
note_ended(ZkContender *c, int n)
{
	if (c->state != ZKLOCK_WAITING || c->lacks == 0)
		return;
	if (c->lacks <= n)
		set_queued(c);
	else
		c->lacks -= n;
}

static void
on_beside(ZkLockQueue *queue, const ZkLockEvent *event)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS && event->ended > 0; i++)
		note_ended(&queue->contender[i], event->ended);
}

/*
 * Have we made the node that has our contender's name?  A foreigner has made it if it
 * is of another transaction, or of another session.  If a listing has shown it and our
 * create is in doubt, only the session can tell.
 */
static bool
is_ours(const ZkContender *c, const ZkLockEvent *event)
{
	return event->owned && (c->token == 0 || event->token == c->token);
}

/* The server that says so may be behind, before the sync. */
static void
lose_own(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	if (queue->list_synced > queue->list_answered)
		return; /* before the sync it means nothing */
	if (queue->list_synced != 0)
		vanished_unproven(queue, c, LIST_LATER, actions); /* refused */
	else
		vanished(queue, c, actions);
}

/*
 * Another session's node has our contender's name.  It bears our mark, and stands in
 * everybody's way: so it is looked for, as an orphan.
 */
static void
lose_to_other(ZkLockQueue *queue, ZkContender *c, ZkLockActions *actions)
{
	queue->orphans_left = true;
	lose_own(queue, c, actions);
}

static void
on_watched_own(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			   ZkLockActions *actions)
{
	c->own_requested = false;
	if (!is_placed(c))
		return;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			if (!is_ours(c, event))
			{
				lose_to_other(queue, c, actions);
				break;
			}
			c->own_watched = true;
			break;
		case ZKLOCK_RC_NO_NODE:
			lose_own(queue, c, actions);
			break;
		case ZKLOCK_RC_LOST:
			break;
		case ZKLOCK_RC_UNDONE: /* for what changes something */
		case ZKLOCK_RC_EXISTS:
		case ZKLOCK_RC_ERROR:
			/* Not to be had on this connection: we list instead. */
			c->own_requested = true;
			c->polled = c->state == ZKLOCK_WAITING;
			break;
	}
}

/* One of the contenders before the first place here that waits for a permit. */
static void
on_watched_other(ZkContender *c, const ZkLockEvent *event)
{
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			break;
		case ZKLOCK_RC_NO_NODE:
			note_ended(c, 1);
			break;
		case ZKLOCK_RC_LOST:
			set_queued(c);
			break;
		case ZKLOCK_RC_UNDONE: /* for what changes something */
		case ZKLOCK_RC_EXISTS:
		case ZKLOCK_RC_ERROR:
			c->unreadable = true;
			set_queued(c);
			break;
	}
}

static void
on_watched(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		   ZkLockActions *actions)
{
	if (c->state == ZKLOCK_GRANTED && c->blocker == event->hash && event->rc != ZKLOCK_RC_OK)
	{
		c->blocker = 0;
		if (event->rc != ZKLOCK_RC_NO_NODE)
			c->list_needed = LIST_LATER; /* or on the next connection */
	}
	if (c->state != ZKLOCK_WAITING)
		return;
	if (c->second == event->hash && event->rc == ZKLOCK_RC_NO_NODE)
		set_second_gone(c);
	if (c->lacks > 0)
	{
		on_watched_other(c, event);
		return;
	}
	if (c->blocker != event->hash || c->first || c->led)
		return;
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			c->blocker_watched = true;
			if (queue->permits > 0 && event->marked)
			{
				/* it got a permit before we could watch it, as its mark says; believe
				 * that once */
				set_queued(c);
				c->marked = event->hash;
			}
			break;
		case ZKLOCK_RC_NO_NODE:
		case ZKLOCK_RC_LOST:
			set_queued(c);
			break;
		case ZKLOCK_RC_UNDONE: /* for what changes something */
		case ZKLOCK_RC_EXISTS:
		case ZKLOCK_RC_ERROR:
			fail(queue, c, ZKLOCK_FAIL_REFUSED, actions);
			break;
	}
}

static void
on_watched_dir(ZkLockQueue *queue, const ZkLockEvent *event)
{
	queue->succession.requested = false;
	queue->succession.watched = event->rc == ZKLOCK_RC_OK;
}

/*
 * The leader knows our contender, which a listing has shown.  What it does not know is
 * not there, whatever the server shows that we are connected to.
 */
static void
on_confirmed(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			 ZkLockActions *actions)
{
	switch (event->rc)
	{
		case ZKLOCK_RC_OK:
			c->mark_sent = false;
			if (is_ours(c, event))
				c->token = event->token;
			else
				lose_to_other(queue, c, actions);
			break;
		case ZKLOCK_RC_NO_NODE:
			if (!c->alike) /* else it may be an answer for another name */
				set_absent(queue, c, actions);
			vanished(queue, c, actions);
			break;
		case ZKLOCK_RC_LOST:
			c->mark_sent = false;
			break;
		case ZKLOCK_RC_UNDONE:
		case ZKLOCK_RC_EXISTS:
		case ZKLOCK_RC_ERROR:
			fail(queue, c, ZKLOCK_FAIL_REFUSED, actions);
			break;
	}
}

/* A contender that waits behind us hears of it; or of our end. */
static void
on_marked(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		  ZkLockActions *actions)
{
	if (c->state == ZKLOCK_QUEUED && c->token == 0)
		on_confirmed(queue, c, event, actions);
	else if (event->rc == ZKLOCK_RC_OK && c->state == ZKLOCK_GRANTED && !is_ours(c, event))
		lose_to_other(queue, c, actions);
	else if (event->rc == ZKLOCK_RC_OK || event->rc == ZKLOCK_RC_NO_NODE)
		c->mark_due = c->mark_sent = false;
	else if (event->rc == ZKLOCK_RC_LOST)
		c->mark_sent = false;
	else
		c->mark_refused = c->mark_sent;
}

static void
on_deleted(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
		   ZkLockActions *actions)
{
	if (c->state != ZKLOCK_DELETING)
		return;
	if (event->rc == ZKLOCK_RC_NO_NODE && c->token == 0)
		set_absent(queue, c, actions);
	if (event->rc == ZKLOCK_RC_OK || event->rc == ZKLOCK_RC_NO_NODE)
		set_gone(queue, c);
	else if (event->rc == ZKLOCK_RC_LOST || event->rc == ZKLOCK_RC_UNDONE)
		c->delete_sent = false;
	else
		c->delete_refused = true;
}

static void
on_node_deleted(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (event->uuid != 0 && c->uuid == event->uuid && is_placed(c))
		{
			vanished(queue, c, actions);
			continue;
		}
		if (c->state == ZKLOCK_WAITING && c->second == event->hash)
			set_second_gone(c);
		if (c->state == ZKLOCK_GRANTED && c->blocker == event->hash)
			c->blocker = 0; /* decide() looks who is left */
		note_ended(c, 1);	/* rather once too often: then it looks, and waits on */
		if (c->state != ZKLOCK_WAITING || c->blocker != event->hash || c->lacks > 0 ||
			c->first)
			continue;

		/*
		 * Nobody was below the one that went, so nobody is before us, if we
		 * are still in the queue ourselves.
		 */
		if (c->blocker_last && c->blocker_watched && c->own_watched && queue->connected)
			/* who came after us we were not told */
			set_granted(queue, c, true, actions);
		else
			set_queued(c);
	}
}

static void
on_node_changed(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (event->uuid != 0 && c->uuid == event->uuid && is_placed(c))
		{
			c->own_watched = false; /* decide() sets it again */
			c->own_requested = false;
		}
		else if (queue->permits > 0)
		{
			if (c->state != ZKLOCK_WAITING)
				continue;
			/* it may be an orphan of ours: whose place it was, nobody here tells */
			if (c->lacks > 0 && queue->connected)
				watch_child(queue, c, event->name, event->hash, actions);
			/* it is granted a permit, most likely */
			else if (c->lacks == 0 && !c->first && c->blocker == event->hash)
				set_queued(c);
		}
		else if ((c->state == ZKLOCK_WAITING || c->state == ZKLOCK_GRANTED) &&
				 (c->blocker == event->hash || c->second == event->hash))
		{
			if (c->blocker == event->hash)
				c->blocker_watched = false;
			if (queue->connected)
				watch_child(queue, c, event->name, event->hash, actions);
		}
	}
}

/*
 * Any newcomer wants an exclusive grant; we are alone with it, or others were seen
 * before.  Only writers want a shared one: decide() lists again.  It does the same for
 * permits, where this server may have come or gone itself; and for the first contender
 * that waits for a permit.
 */
static void
on_dir_changed(ZkLockQueue *queue, ZkLockActions *actions)
{
	queue->dir_watched = false;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_GRANTED && c->mode == ZKLOCK_EXCLUSIVE && !c->demanded &&
			queue->permits == 0)
			set_demanded(queue, c, actions);
	}
}

static void
on_dir_gone(ZkLockQueue *queue)
{
	queue->succession.watched = false;
	queue->succession.last = -1;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		queue->contender[i].watch_later = false;
}

/* Is it certain that a contender made now would have to wait behind others of ours? */
static bool
waits_beside(const ZkLockQueue *queue, const ZkLockEvent *event)
{
	return queue->permits > 0 &&
		(event->leader != INT64_MAX || event->beside >= queue->permits);
}

/*
 * Sends the create of a contender.  No listing follows if the number is likely to say
 * that nobody is before it; if the number then does not, decide() asks for a listing.
 * None follows either if the contender has to wait for others of this server.  True: a
 * listing must follow at once.
 */
static bool
create(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event, ZkLockActions *actions)
{
	ZkLockSuccession *succession = &queue->succession;
	bool likely = c->attempts == 0 && c->set == 0 && c->mode == ZKLOCK_EXCLUSIVE &&
		event->recurring && !event->spare_watches;
	bool listed = (!likely || !succession->watched || succession->last < 0) &&
		!waits_beside(queue, event);
	ZkLockAction *a;

	if (c->attempts > 0)
		add_action(actions, ZKLOCK_ACT_MAKE_DIR, queue, c);
	else if (likely && !succession->watched && !succession->requested)
	{
		add_action(actions, ZKLOCK_ACT_WATCH_DIR, queue, c);
		succession->requested = true;
	}
	a = add_action(actions, ZKLOCK_ACT_CREATE, queue, c);
	a->jointly = event->type == ZKLOCK_EV_JOINTLY;
	assert(a->jointly == (c->set != 0));
	c->create_sent = true;
	c->list_needed = listed ? queue->list_sent + 1 : 0;
	return listed;
}

/* ------------------------------------------------------------------------
 * Decisions
 * ------------------------------------------------------------------------
 */

/* The listing that the contenders ask for: a single one, behind everything that it
 * has to show. */
typedef struct Listing
{
	bool wanted;
	bool sync;
	bool watch;
} Listing;

/* Deletes nodes that nobody needs.  A node that may exist unseen is settled first. */
static void
drop_unneeded(ZkLockQueue *queue, const ZkLockEvent *event)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->list_needed == LIST_NOT_FOUND && queue->needed[c->mode] &&
			queue->set[c->mode] == 0)
			set_creating(queue, c, (ZkLockMode) c->mode, event);
		else if (!is_needed(queue, c))
		{
			/* a grant goes when nobody here holds it any more */
			if (c->state == ZKLOCK_GRANTED && queue->needed[c->mode])
				continue;
			if (is_placed(c))
				set_state(c, ZKLOCK_DELETING);
			else if ((c->state == ZKLOCK_CREATING && !c->create_sent) ||
					 c->state == ZKLOCK_PROBING || c->state == ZKLOCK_BLOCKED ||
					 c->state == ZKLOCK_READY)
				set_free(c);
		}
	}
}

/* Creates the nodes that are needed and missing. */
static void
start_needed(ZkLockQueue *queue, const ZkLockEvent *event)
{
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		ZkContender *vacant = NULL;
		bool active = false;

		for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		{
			ZkContender *c = &queue->contender[i];

			if (c->state == ZKLOCK_FREE)
				vacant = c;
			else if (is_active(c) && c->mode == mode)
				active = true;
		}
		if (queue->needed[mode] && !active && vacant != NULL)
			set_started(queue, vacant, (ZkLockMode) mode, event);
	}
}

/* Is a contender about to be made with a set's? */
static bool
is_set_ready(const ZkLockQueue *queue)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state == ZKLOCK_READY)
			return true;
	}
	return false;
}

/* A set's contender is about to replace these: they go in its transaction. */
static void
send_deletes(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	if (is_set_ready(queue))
		return;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_DELETING && !c->delete_sent)
		{
			add_action(actions, ZKLOCK_ACT_DELETE, queue, c)->jointly =
				event->type == ZKLOCK_EV_JOINTLY;
			c->delete_sent = true;
			queue->dir_watched = false; /* this will use it up */
		}
	}
}

/* "c" has to be seen in the listing.  False: a listing that can show it is under way. */
static bool
want_listing(ZkLockQueue *queue, ZkContender *c, Listing *listing)
{
	if (c->list_needed > queue->list_answered)
		return false;
	c->list_needed = queue->list_sent + 1;
	listing->wanted = true;
	return true;
}

/* May a listing watch the directory, which no watch covers yet? */
static bool
may_watch_dir(const ZkLockQueue *queue)
{
	return !queue->dir_watched && queue->dir_list == 0;
}

/*
 * "c" is the first one that waits for a permit, as of a listing.  The directory was
 * watched by then, and is silent; or the listing that watches it shows whether "c" is
 * still the first.
 */
static void
pursue_first(ZkLockQueue *queue, ZkContender *c, Listing *listing)
{
	if (queue->dir_watched || c->polled)
		return;
	if (queue->dir_list != 0)
		c->list_needed = queue->dir_list;
	else
	{
		c->list_needed = queue->list_sent + 1;
		listing->wanted = listing->watch = true;
	}
}

static void
pursue_granted(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event,
			   Listing *listing, ZkLockActions *actions)
{
	/*
	 * The watch on the directory tells of demands and of our own loss;
	 * where a demand is known, the watch on our node does.  So it does where another
	 * node may have our name.
	 */
	if (!c->demanded && !queue->dir_watched && queue->dir_list == 0)
	{
		if (watches_dir(c, event))
		{
			c->list_needed = queue->list_sent + 1;
			listing->wanted = listing->watch = true;
		}
		else
			set_demanded(queue, c, actions);
	}
	if (c->demanded && is_joined(queue, c) && c->blocker == 0 &&
		want_listing(queue, c, listing))
		listing->sync |= c->list_synced;
	if (c->mark_due)
		mark_own(queue, c, actions); /* ahead of the watch, which it would use up */
	if ((c->demanded || c->doubted) && !event->spare_watches && !c->watch_later)
		watch_own(queue, c, actions);
}

/* Sends the requests that "c" needs to go on. */
static void
pursue(ZkLockQueue *queue, ZkContender *c, const ZkLockEvent *event, Listing *listing,
	   ZkLockActions *actions)
{
	switch ((ZkContenderState) c->state)
	{
		case ZKLOCK_CREATING:
			if (c->create_sent || !create(queue, c, event, actions))
				break;
			listing->wanted = true;
			listing->watch |= event->alone && !event->spare_watches && may_watch_dir(queue);
			break;

		case ZKLOCK_PROBING:
		case ZKLOCK_UNSETTLED:
		case ZKLOCK_QUEUED:
			if (c->state == ZKLOCK_QUEUED && c->token == 0)
				mark_own(queue, c, actions);
			/* a probe must see what was released before it */
			if (want_listing(queue, c, listing))
				listing->sync |= c->state != ZKLOCK_QUEUED || c->list_synced;
			/* who has waited for a permit with a watch on the directory may go on so */
			listing->watch |= listing->wanted && c->wants_dir &&
				c->state == ZKLOCK_QUEUED && may_watch_dir(queue) && !event->no_watches;
			break;

		case ZKLOCK_GRANTED:
			pursue_granted(queue, c, event, listing, actions);
			break;

		case ZKLOCK_WAITING:
			if (c->first)
				pursue_first(queue, c, listing);
			else if (!c->polled && !c->led && !c->watch_later)
				watch_own(queue, c, actions);
			if (c->second_gone)
				(void) want_listing(queue, c, listing);
			break;

		case ZKLOCK_FREE:
		case ZKLOCK_BLOCKED:
		case ZKLOCK_READY:
		case ZKLOCK_DELETING:
			break;
	}
}

/* A contender that waits behind another place of this server asks for nothing; one
 * that does no more does. */
static void
follow(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_WAITING && c->led && !is_led(c, event))
			set_queued(c);
		else if (c->state == ZKLOCK_QUEUED && c->token != 0 && !c->list_synced &&
				 c->list_needed == 0 && is_led(c, event))
			set_led(queue, c, actions);
	}
}

static void
send_listing(ZkLockQueue *queue, const Listing *listing, ZkLockActions *actions)
{
	ZkLockAction *a = add_action(actions, ZKLOCK_ACT_LIST, queue, NULL);

	a->list = ++queue->list_sent;
	a->sync = listing->sync;
	a->watch = listing->watch;
	/* it is the first for contenders that the answer under way does not serve */
	if (a->sync && queue->list_synced > queue->list_answered)
		queue->list_synced = a->list;
	if (a->watch)
		queue->dir_list = a->list;
}

static void
decide(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	Listing listing = {0};

	drop_unneeded(queue, event);
	start_needed(queue, event);
	if (!queue->connected)
		return;
	if (queue->permits > 0)
		follow(queue, event, actions);
	send_deletes(queue, event, actions); /* first: somebody may be waiting for them */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		pursue(queue, &queue->contender[i], event, &listing, actions);
	/* orphans that there was no room for; a listing under way may show them */
	if (queue->orphans_left && !queue->orphans_refused &&
		queue->list_sent == queue->list_answered && vacant_for_orphan(queue) != NULL)
		listing.wanted = true;
	if (listing.wanted)
		send_listing(queue, &listing, actions);
}

static void
take_event(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
	ZkContender *c = NULL;

	switch (event->type)
	{
		case ZKLOCK_EV_NEED:
			on_need(queue, event, actions);
			break;
		case ZKLOCK_EV_JOINTLY:
			on_jointly(queue, event, actions);
			break;
		case ZKLOCK_EV_DISCONNECTED:
			forget_connection(queue);
			queue->connected = false;
			break;
		case ZKLOCK_EV_CONNECTED:
			on_connected(queue, actions);
			break;
		case ZKLOCK_EV_SESSION_LOST:
			on_session_lost(queue, actions);
			break;
		case ZKLOCK_EV_RESUMED:
			on_resumed(queue, actions);
			break;
		case ZKLOCK_EV_TICK:
			on_tick(queue);
			break;
		case ZKLOCK_EV_LISTED:
			on_listed(queue, event, actions);
			break;
		case ZKLOCK_EV_NODE_DELETED:
			on_node_deleted(queue, event, actions);
			break;
		case ZKLOCK_EV_NODE_CHANGED:
			on_node_changed(queue, event, actions);
			break;
		case ZKLOCK_EV_DIR_CHANGED:
			on_dir_changed(queue, actions);
			break;
		case ZKLOCK_EV_DIR_GONE:
			on_dir_gone(queue);
			break;
		case ZKLOCK_EV_WATCHED_DIR:
			on_watched_dir(queue, event);
			break;
		case ZKLOCK_EV_SEEN:
			on_seen(queue, event, actions);
			break;
		case ZKLOCK_EV_BESIDE:
			on_beside(queue, event);
			break;

		case ZKLOCK_EV_REMOVE:
		case ZKLOCK_EV_MADE_DIR:
		case ZKLOCK_EV_CREATED:
		case ZKLOCK_EV_WATCHED_OWN:
		case ZKLOCK_EV_WATCHED:
		case ZKLOCK_EV_MARKED:
		case ZKLOCK_EV_DELETED:
			c = find_contender(queue, event->uuid);
			if (c == NULL)
				break; /* its contender is history */
			if (event->type == ZKLOCK_EV_REMOVE)
				on_remove(queue, c, actions);
			else if (event->type == ZKLOCK_EV_MADE_DIR)
			{
				/* The create behind it says the rest. */
				if (event->rc == ZKLOCK_RC_ERROR && c->state == ZKLOCK_CREATING)
					c->attempts = ATTEMPTS_REFUSED;
			}
			else if (event->type == ZKLOCK_EV_CREATED)
				on_created(queue, c, event, actions);
			else if (event->type == ZKLOCK_EV_WATCHED_OWN)
				on_watched_own(queue, c, event, actions);
			else if (event->type == ZKLOCK_EV_WATCHED)
				on_watched(queue, c, event, actions);
			else if (event->type == ZKLOCK_EV_MARKED)
				on_marked(queue, c, event, actions);
			else
				on_deleted(queue, c, event, actions);
			break;
	}
}

/* ------------------------------------------------------------------------
 * Invariants before and after each step (src/README, Invariants); for tests
 * ------------------------------------------------------------------------
 */

#ifndef NDEBUG

/* The worker's data about its server agree with the queue, and with each other. */
static void
check_event(const ZkLockQueue *queue, const ZkLockEvent *event)
{
	assert(event->nchildren == 0 || event->children != NULL);
	assert(event->list <= queue->list_sent);
	/* what the ensemble says, it says on the connection that it was asked on */
	assert(queue->connected || event->rc == ZKLOCK_RC_LOST ||
		   event->type < ZKLOCK_EV_MADE_DIR || event->type > ZKLOCK_EV_DELETED);
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		/* who holds, holds a grant of ours */
		assert(!event->held[mode] ||
			   zklock_lock_queue_grant(queue, (ZkLockMode) mode) != NULL);
		if (event->type != ZKLOCK_EV_NEED)
			continue;
		assert(!event->held[mode] || (event->needed[mode] && !event->spent[mode]));
		assert(event->needed[mode] ||
			   !(event->probe[mode] || event->asks[mode] || event->set[mode] != 0));
	}
	assert(event->type != ZKLOCK_EV_NEED || !event->joins || event->held[ZKLOCK_SHARED]);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		/* a uuid is used once; somebody else may have given our mark to what is DELETING */
		assert(!is_active(&queue->contender[i]) ||
			   queue->contender[i].uuid - event->fresh_uuid >= ZKLOCK_NCONTENDERS);
	}
}

/* Is a listing on its way, or put off, that will show "c" its place? */
static bool
is_listing(const ZkLockQueue *queue, const ZkContender *c)
{
	return c->list_needed > queue->list_answered &&
		(c->list_needed <= queue->list_sent || c->list_needed >= LIST_NOT_FOUND);
}

/* The event that "c" waits for is on its way: no wake-up is lost. */
static void
check_pursued(const ZkLockQueue *queue, const ZkContender *c, const ZkLockEvent *event)
{
	switch ((ZkContenderState) c->state)
	{
		case ZKLOCK_FREE:
		case ZKLOCK_BLOCKED:
		case ZKLOCK_READY:
			break;
		case ZKLOCK_CREATING:
			assert(c->create_sent);
			break;
		case ZKLOCK_PROBING:
		case ZKLOCK_UNSETTLED:
		case ZKLOCK_QUEUED:
			assert(is_listing(queue, c));
			break;
		case ZKLOCK_WAITING:
			assert(c->polled || c->first || c->led || c->watch_later || c->own_watched ||
				   c->own_requested);
			assert(!c->first || c->polled || queue->dir_watched || queue->dir_list != 0);
			/* another does the waiting */
			assert(!c->led || is_led(c, event));
			assert(!c->second_gone || is_listing(queue, c));
			break;
		case ZKLOCK_GRANTED:
			/* who demands it is told by a watch, or it is demanded as it is */
			assert(c->demanded || queue->dir_watched || queue->dir_list != 0);
			/* ... and its loss by another, unless there are too many */
			assert(!(c->demanded || c->doubted) || c->own_watched || c->own_requested ||
				   c->watch_later || event->spare_watches);
			assert(!c->mark_due || c->mark_sent);
			break;
		case ZKLOCK_DELETING:
			assert(c->delete_sent || is_set_ready(queue));
			break;
	}
}

static void
check_contender(const ZkLockQueue *queue, const ZkContender *c, const ZkLockEvent *event)
{
	assert(c->mode < ZKLOCK_NMODES);
	assert(!c->create_sent || c->state == ZKLOCK_CREATING);
	assert(!c->delete_sent || c->state == ZKLOCK_DELETING);
	assert(!c->delete_refused || c->delete_sent);
	assert((!c->first && !c->led && c->lacks == 0) || c->state == ZKLOCK_WAITING);
	assert(c->first + c->led + (c->lacks > 0) <= 1 && c->lacks >= 0);
	assert(queue->permits > 0 || (!c->waited && !c->mark_due));
	switch ((ZkContenderState) c->state)
	{
		case ZKLOCK_FREE:
			assert(c->uuid == 0 && c->token == 0 && c->list_needed == 0);
			break;
		case ZKLOCK_PROBING:
		case ZKLOCK_BLOCKED:
			assert(queue->needed[c->mode] && c->set == 0);
			break;
		case ZKLOCK_READY:
			assert(is_needed(queue, c) && c->set != 0);
			break;
		case ZKLOCK_CREATING:
			/* what may exist unseen is settled first, needed or not */
			assert(queue->needed[c->mode] || c->create_sent);
			break;
		case ZKLOCK_UNSETTLED:
		case ZKLOCK_DELETING:
			break;
		case ZKLOCK_QUEUED:
			assert(is_needed(queue, c));
			assert(c->blocker == 0 && c->second == 0 && !c->polled);
			break;
		case ZKLOCK_WAITING:
			assert(is_needed(queue, c));
			assert(c->token > 0 && (c->blocker != 0 || c->led));
			break;
		case ZKLOCK_GRANTED:
			assert(queue->needed[c->mode]);
			assert(c->token > 0);
			assert(c->second == 0 && !c->polled);
			break;
	}
	/* what the connection carried went with it */
	assert(queue->connected || (!c->own_watched && !c->own_requested));
	if (queue->connected)
		check_pursued(queue, c, event);
}

static void
check_queue(const ZkLockQueue *queue, const ZkLockEvent *event)
{
	assert(queue->list_answered <= queue->list_sent);
	assert(queue->dir_list <= queue->list_sent && queue->list_synced <= queue->list_sent);
	assert(queue->succession.last < 0 || queue->succession.watched);
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &queue->contender[i];

		check_contender(queue, c, event);
		for (int j = 0; j < i && is_active(c); j++)
		{
			const ZkContender *other = &queue->contender[j];

			/* one active contender in each mode, each with a name of its own */
			assert(!is_active(other) || (other->mode != c->mode && other->uuid != c->uuid));
		}
	}
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		bool active = false;
		bool vacant = false;

		for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		{
			vacant |= queue->contender[i].state == ZKLOCK_FREE;
			active |= is_active(&queue->contender[i]) && queue->contender[i].mode == mode;
		}
		assert(!queue->needed[mode] || active || !vacant);
	}
}

static bool
has_action(const ZkLockActions *actions, ZkLockActionType type, uint64_t uuid)
{
	for (int i = 0; i < actions->n; i++)
	{
		if (actions->action[i].type == type && actions->action[i].uuid == uuid)
			return true;
	}
	return false;
}

/* The table hears of every grant that came or went.  A held grant goes only if it is
 * lost. */
static void
check_changes(const ZkLockQueue *before, const ZkLockQueue *queue,
			  const ZkLockEvent *event, const ZkLockActions *actions)
{
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		const ZkContender *old = zklock_lock_queue_grant(before, (ZkLockMode) mode);
		const ZkContender *new = zklock_lock_queue_grant(queue, (ZkLockMode) mode);
		bool kept = old != NULL && new != NULL && old->uuid == new->uuid;

		assert(kept || old == NULL || !event->held[mode] ||
			   has_action(actions, ZKLOCK_ACT_REVOKED, old->uuid));
		assert(kept || new == NULL || has_action(actions, ZKLOCK_ACT_GRANTED, new->uuid));
		assert(!kept || (old->token == new->token && old->sequence == new->sequence));
	}
}

#endif

void
zklock_step(ZkLockQueue *queue, const ZkLockEvent *event, ZkLockActions *actions)
{
#ifndef NDEBUG
	ZkLockQueue before = *queue;

	check_event(queue, event);
#endif
	actions->n = 0;
	take_event(queue, event, actions);
	decide(queue, event, actions);
#ifndef NDEBUG
	check_queue(queue, event);
	check_changes(&before, queue, event, actions);
#endif
}


void
zklock_lock_queue_init(ZkLockQueue *queue, bool connected)
{
	memset(queue, 0, sizeof(*queue));
	queue->connected = connected;
	queue->succession = ZKLOCK_NO_SUCCESSION;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
		reset(&queue->contender[i]);
}

bool
zklock_lock_queue_empty(const ZkLockQueue *queue)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].state != ZKLOCK_FREE)
			return false;
	}
	return !queue->orphans_left && !queue->needed[ZKLOCK_SHARED] &&
		!queue->needed[ZKLOCK_EXCLUSIVE];
}

ZkLockPart
zklock_lock_queue_part(const ZkLockQueue *queue, ZkLockMode mode, uint64_t set, bool *fixed)
{
	ZkLockPart part = ZKLOCK_PART_UNREADY;

	*fixed = true;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_FREE)
			*fixed = false;
		if (!is_active(c) || c->mode != mode || queue->set[mode] != set ||
			!is_needed(queue, c))
			continue;
		if (c->state == ZKLOCK_CREATING || c->state == ZKLOCK_UNSETTLED)
			part = ZKLOCK_PART_SENT;
		else if (queue->connected && c->state == ZKLOCK_READY)
			part = ZKLOCK_PART_READY;
		else if (queue->connected)
			part = c->state == ZKLOCK_GRANTED ? ZKLOCK_PART_GRANTED : ZKLOCK_PART_QUEUED;
	}
	return part;
}

bool
zklock_lock_queue_wants_proof(const ZkLockQueue *queue)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		if (queue->contender[i].list_needed == LIST_NOT_FOUND)
			return true;
	}
	return false;
}

bool
zklock_lock_queue_wants_tick(const ZkLockQueue *queue)
{
	if (queue->orphans_refused)
		return true;
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &queue->contender[i];

		if (c->delete_refused || c->mark_refused || c->watch_later ||
			(c->state == ZKLOCK_WAITING && c->polled) || c->list_needed == LIST_LATER ||
			c->list_needed == LIST_NOT_FOUND)
			return true;
	}
	return false;
}

const ZkContender *
zklock_lock_queue_grant(const ZkLockQueue *queue, ZkLockMode mode)
{
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *c = &queue->contender[i];

		if (c->state == ZKLOCK_GRANTED && c->mode == mode)
			return c;
	}
	return NULL;
}

/* Contenders of one mode that stand before another. */
typedef struct Before
{
	bool any;
	uint64_t session; /* of the first ... */
	bool several;	  /* ... and there are those of others */
} Before;

/* Is it a contender of this session?  A name of another form is of none. */
static bool
is_of(const ZkLockChild *child, uint64_t session)
{
	return child->uuid_hi != 0 && child->uuid_hi == session;
}

void
zklock_find_holders(const ZkLockChild *queue, int n, bool *holds)
{
	Before before[ZKLOCK_NMODES] = {{0}};

	for (int i = 0; i < n; i++)
	{
		const ZkLockChild *child = &queue[i];
		Before *same = &before[child->mode];

		holds[i] = true;
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			const Before *b = &before[mode];

			if (b->any && zklock_modes_conflict(child->mode, (ZkLockMode) mode) &&
				(b->several || !is_of(child, b->session)))
				holds[i] = false;
		}
		if (!same->any)
			same->session = child->uuid_hi;
		else if (!is_of(child, same->session))
			same->several = true;
		same->any = true;
	}
}
