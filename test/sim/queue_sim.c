/*-------------------------------------------------------------------------
 *
 * queue_sim.c
 *	  Plays seeded schedules of work that is handed out against
 *	  src/protocol/queue_rules.c.
 *
 * Some servers take items of one queue, commit or roll back, or leave before they have
 * one.  Requests and replies go through a pipe each, at its own pace; connections break
 * with requests and replies on them, which may have been done; sessions expire, and the
 * server hears of it later; workers are exchanged for successors that know no more than
 * what is in shared memory.  The ensemble goes back, and others have put items by then
 * whose names are those of earlier ones; or it is restored, and knows the sessions, but
 * not all marks, or somebody deletes one while a server has no connection.  Backends are
 * told by the clock that their items are lost, and the session goes on.  Somebody makes
 * nodes below items, and items that are none.  Then all is well, and a server takes what
 * is left.
 *
 * Besides, each schedule has one transaction that puts something, and servers that judge
 * it: itself, after a crash or not; one that was promoted; a copy.
 *
 * Invariants:
 *
 *	 - No two transactions of sessions that live have an item at a time.
 *	 - Marks are deleted by the session that made them, and an item only when a
 *	   transaction that had it has committed.
 *	 - An item is done twice only if a session has expired, or marks were gone of a
 *	   transaction that had committed, or did so before its server had a new connection.
 *	 - Nobody commits on a connection that began after a mark of his was gone; nor what he
 *	   was told is lost.
 *	 - In the end no mark is left, but on items that are done and cannot be deleted; and
 *	   what was not done is taken, in its order, each with an attempt more than it was
 *	   marked; but for an item of which somebody has deleted the mark in held/, before its
 *	   session expired: the others hear of that with the next change of held/.  What is
 *	   done is not to be had again, if nobody else had it before.
 *	 - What zklock has not put is handed to nobody, and stands in nobody's way.
 *	 - What is judged to be moved has committed, and what is to be dropped never will.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "queue_rules.h"

#define NSERVERS  3
#define NTAKES	  4 /* of a server */
#define MAX_ITEMS 24
#define MAX_MARKS 8 /* of an item, in held/ */
#define MAX_PIPE  64
#define WILD	  400  /* steps */
#define FOR_GOOD  (-1) /* no session's */

/* a line of the trace */
#define TRACE(...) TRACE_LINE(__VA_ARGS__)

typedef enum Coverage
{
	COVER_TAKEN,
	COVER_COMMITTED,
	COVER_ROLLED_BACK,
	COVER_LEFT,
	COVER_MISSED,
	COVER_VANISHED,
	COVER_LOOKED,
	COVER_LOST,
	COVER_LOST_DONE,
	COVER_WHOSE,
	COVER_EXPIRED,
	COVER_HELD_EXPIRED,
	COVER_TWICE,
	COVER_WENT_BACK,
	COVER_ANOTHER,
	COVER_RESTORED,
	COVER_DELETED,
	COVER_SEEN,
	COVER_TORN,
	COVER_UNAWARE,
	COVER_REPAIRED,
	COVER_CLEARED,
	COVER_TOLD,
	COVER_TOLD_AND_BACK,
	COVER_SUCCESSOR,
	COVER_NONE,
	COVER_UNFIT,
	COVER_KEPT,
	COVER_BARRED,
	COVER_MOVE,
	COVER_DROP,
	COVER_LATER,
	COVER_LEAVE,
	NCOVERAGE
} Coverage;

const char *const coverage_name[NCOVERAGE] = {"items taken",
											  "... and committed",
											  "... and rolled back",
											  "takes left",
											  "items that somebody else had",
											  "items that were gone",
											  "items looked at",
											  "connections lost",
											  "... with a request that was done",
											  "marks that might have been ours",
											  "sessions expired",
											  "... with an item",
											  "items done twice",
											  "ensembles that went back",
											  "items of a name that was another's",
											  "ensembles restored without marks",
											  "single marks deleted",
											  "marks seen on a new connection",
											  "items lost with their marks",
											  "... and committed before a connection",
											  "marks made again, to be ended",
											  "single marks ended",
											  "items told lost by the clock",
											  "... that were not to be committed",
											  "successors",
											  "queues without a free item",
											  "items that zklock has not put",
											  "items done that stay, marked at once",
											  "... by another session",
											  "puts moved",
											  "puts dropped",
											  "puts for later",
											  "puts left to others"};

long coverage[NCOVERAGE];

/* What a request is about. */
typedef enum What
{
	LIST,
	LIST_HELD,
	LOOK,
	TAKE,		/* a ZkTakeRequest */
	WATCH,		/* no request: a watch on items/ has fired */
	WATCH_HELD, /* ... on held/ */
} What;

typedef struct Message
{
	What what;
	int take;
	int id; /* of the take */
	ZkTakeRequest request;
	int item;
	/* the reply */
	ZkReply rc;
	int failed;
	bool held;
	int creates;
	int birth;
	bool has[MAX_ITEMS];
} Message;

typedef struct Pipe
{
	Message message[MAX_PIPE];
	int n;
} Pipe;

/* A node that says who has an item. */
typedef struct Mark
{
	int session; /* 0: it is not there; FOR_GOOD: it is nobody's */
	int take;	 /* that it names */
} Mark;

typedef struct Item
{
	bool there;
	bool unfit;	  /* zklock has not put it */
	bool foreign; /* somebody's node is below it */
	int had;	  /* its creates, as of the take that committed last */
	Mark child;	  /* items/.../held */
	Mark held[MAX_MARKS];
	int nheld;
	int birth; /* no other item of this name has it, as with ids */
	int creates;
	int commits;
	bool excused; /* a session expired that had it, or might have */
	bool unheard; /* a mark went that was not in held/ as well: no watch tells */
	char name[ZKLOCK_ITEM_NAME];
} Item;

typedef struct Take
{
	ZkTake take;
	int id; /* no other has it */
	int item;
	int session; /* in which it is held */
	int attempt;
	int birth; /* of the item */
	bool torn; /* a mark was gone before the newest connection began, or will begin */
	bool told; /* that it is lost */
} Take;

typedef struct Server
{
	int session;
	bool alive; /* the ensemble has it still */
	bool connected;
	Pipe out;
	Pipe in;
	ZkItems items;
	ZkItem memory[2][MAX_ITEMS];
	int which;
	bool watches;
	bool watches_held;
	Take take[NTAKES];
} Server;

static Server server[NSERVERS];
static Item item[MAX_ITEMS];
static int nitems;
static int last_session;
static int last_take;
static int last_birth;
static bool calm;

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static void
push(Pipe *pipe, const Message *message)
{
	if (pipe->n == MAX_PIPE)
		fail("a pipe is full");
	pipe->message[pipe->n++] = *message;
}

static Message
pop(Pipe *pipe)
{
	Message first = pipe->message[0];

	memmove(pipe->message, pipe->message + 1, sizeof(Message) * (size_t) --pipe->n);
	return first;
}

static void
fire(bool held)
{
	for (int s = 0; s < NSERVERS; s++)
	{
		Message message = {.what = held ? WATCH_HELD : WATCH};
		bool *watches = held ? &server[s].watches_held : &server[s].watches;

		if (!*watches || !server[s].connected)
			continue;
		*watches = false;
		push(&server[s].in, &message);
	}
}

static void
delete_item(int i)
{
	if (item[i].commits == 0)
		fail("item %d is deleted, and no transaction that had it has committed", i);
	item[i].there = false;
	fire(false);
}

/* Of this take in held/, or NULL. */
static Mark *
find_mark(Item *i, int take)
{
	for (int n = 0; n < i->nheld; n++)
		if (i->held[n].take == take)
			return &i->held[n];
	return NULL;
}

/* Delete it, by this session for this take; 0: as its session ends, or by whomever. */
static void
delete_mark(Item *i, Mark *mark, int session, int take)
{
	if (session != 0 && (mark->session != session || mark->take != take))
		fail("session %d deletes a mark of session %d", session, mark->session);
	if (mark == &i->child)
		*mark = (Mark){0};
	else
	{
		*mark = i->held[--i->nheld];
		fire(true);
	}
}

static void
add_mark(Item *i, int session, int take)
{
	if (i->nheld == MAX_MARKS)
		fail("too many marks");
	i->held[i->nheld++] = (Mark){.session = session, .take = take};
	fire(true);
}

/* What a look at a mark finds. */
static ZkReply
see(const Mark *mark, int session, int take)
{
	if (mark == NULL || mark->session == 0)
		return ZKLOCK_REPLY_NO_NODE;
	return mark->session == session && mark->take == take ? ZKLOCK_REPLY_OK
														  : ZKLOCK_REPLY_EXISTS;
}

/* Items that are done, and that nobody can delete, have a mark that stays. */
static bool
is_for_good(const Item *i)
{
	return i->child.session == FOR_GOOD;
}

static void
mark_for_good(Item *i)
{
	if (i->commits == 0)
		fail("an item is set aside, and nobody has done it");
	i->child = (Mark){.session = FOR_GOOD};
}

/* Both of them, or none. */
static bool
end_marks(Item *i, int session, int take)
{
	Mark *mark = find_mark(i, take);

	if (mark == NULL || i->child.session == 0)
		return false;
	delete_mark(i, mark, session, take);
	delete_mark(i, &i->child, session, take);
	return true;
}

/* The one in held/ alone: make it, or delete it. */
static ZkReply
repair(Item *i, int session, int take)
{
	if (find_mark(i, take) != NULL)
		return ZKLOCK_REPLY_EXISTS;
	COVER(REPAIRED);
	add_mark(i, session, take);
	return ZKLOCK_REPLY_OK;
}

static ZkReply
clear(Item *i, int session, int take)
{
	Mark *mark = find_mark(i, take);

	if (mark == NULL)
		return ZKLOCK_REPLY_NO_NODE;
	COVER(CLEARED);
	delete_mark(i, mark, session, take);
	return ZKLOCK_REPLY_OK;
}

static void
do_take(Server *s, Message *m)
{
	Item *i = &item[m->item];

	m->rc = ZKLOCK_REPLY_OK;
	m->failed = -1;
	switch (m->request)
	{
		case ZKLOCK_TAKE_NOTHING:
			break;
		case ZKLOCK_TAKE_MARK:
			m->failed = 0;
			if (!i->there)
				m->rc = ZKLOCK_REPLY_NO_NODE;
			else if (i->child.session != 0 || find_mark(i, m->id) != NULL)
				m->rc = ZKLOCK_REPLY_EXISTS;
			else
			{
				for (int older = 0; calm && older < m->item; older++)
					if (item[older].there && item[older].child.session == 0 &&
						!item[older].unfit && !item[older].unheard)
						fail("item %d is taken before item %d", m->item, older);
				i->child = (Mark){.session = s->session, .take = m->id};
				i->creates++;
				add_mark(i, s->session, m->id);
			}
			break;
		case ZKLOCK_TAKE_WHOSE:
			if (find_mark(i, m->id) == NULL)
				m->rc = ZKLOCK_REPLY_NO_NODE;
			break;
		case ZKLOCK_TAKE_SEE:
			m->rc = see(find_mark(i, m->id), s->session, m->id);
			break;
		case ZKLOCK_TAKE_SEE_IT:
			m->rc = see(&i->child, s->session, m->id);
			break;
		case ZKLOCK_TAKE_REPAIR:
			m->rc = repair(i, s->session, m->id);
			break;
		case ZKLOCK_TAKE_CLEAR:
			m->rc = clear(i, s->session, m->id);
			break;
		case ZKLOCK_TAKE_READ_IT:
		case ZKLOCK_TAKE_COMPARE:
			if (!i->there)
				m->rc = ZKLOCK_REPLY_NO_NODE;
			else if (i->unfit && m->request == ZKLOCK_TAKE_READ_IT)
				m->rc = ZKLOCK_REPLY_EXISTS;
			m->creates = i->creates;
			m->birth = i->birth;
			break;
		case ZKLOCK_TAKE_FINISH:
		case ZKLOCK_TAKE_GIVE:
		case ZKLOCK_TAKE_KEEP:
			if (m->request == ZKLOCK_TAKE_FINISH && i->foreign &&
				find_mark(i, m->id) != NULL && i->child.session != 0)
			{
				m->rc = ZKLOCK_REPLY_NOT_EMPTY;
				break;
			}
			if (!end_marks(i, s->session, m->id))
			{
				m->rc = ZKLOCK_REPLY_NO_NODE;
				break;
			}
			if (m->request == ZKLOCK_TAKE_FINISH)
				delete_item(m->item);
			else if (m->request == ZKLOCK_TAKE_KEEP)
				mark_for_good(i);
			break;
		case ZKLOCK_TAKE_BAR:
			if (!i->there)
				m->rc = ZKLOCK_REPLY_NO_NODE;
			else if (i->child.session != 0)
				m->rc = ZKLOCK_REPLY_EXISTS;
			else
				mark_for_good(i);
			break;
		case ZKLOCK_TAKE_DELETE:
			if (!i->there)
				m->rc = ZKLOCK_REPLY_NO_NODE;
			else if (i->child.session != 0 || i->foreign)
				m->rc = ZKLOCK_REPLY_NOT_EMPTY;
			else
				delete_item(m->item);
			break;
	}
}

/* The ensemble does what comes next.  A session that has expired is told nothing. */
static Message
execute(Server *s)
{
	Message m = pop(&s->out);

	switch (m.what)
	{
		case LIST:
			s->watches = true;
			for (int i = 0; i < nitems; i++)
				m.has[i] = item[i].there;
			break;
		case LIST_HELD:
			s->watches_held = true;
			for (int i = 0; i < nitems; i++)
				m.has[i] = item[i].nheld > 0;
			break;
		case LOOK:
			m.rc = item[m.item].there ? ZKLOCK_REPLY_OK : ZKLOCK_REPLY_NO_NODE;
			m.held = item[m.item].child.session != 0;
			break;
		case TAKE:
			do_take(s, &m);
			break;
		case WATCH:
		case WATCH_HELD:
			break;
	}
	return m;
}

static void
expire(Server *s)
{
	COVER(EXPIRED);
	TRACE("session %d expires", s->session);
	s->alive = s->connected = false;
	s->out.n = s->in.n = 0;
	for (int i = 0; i < nitems; i++)
	{
		if (item[i].child.session == s->session)
		{
			item[i].unheard |= find_mark(&item[i], item[i].child.take) == NULL;
			delete_mark(&item[i], &item[i].child, 0, 0);
		}
		for (int n = item[i].nheld - 1; n >= 0; n--)
			if (item[i].held[n].session == s->session)
				delete_mark(&item[i], &item[i].held[n], 0, 0);
	}
	/* what it had may be done twice */
	for (int t = 0; t < NTAKES; t++)
		if (s->take[t].take.state >= ZKLOCK_TAKE_HELD)
			item[s->take[t].item].excused = true;
}

/* It has forgotten all sessions, and some items.  Others have their names, put by a
 * server that has not noticed. */
static void
go_back(void)
{
	COVER(WENT_BACK);
	TRACE("the ensemble goes back");
	for (int s = 0; s < NSERVERS; s++)
		if (server[s].alive)
			expire(&server[s]);
	for (int i = 0; i < nitems; i++)
	{
		if (!once_in(3))
			continue;
		item[i].there = true;
		if (is_for_good(&item[i]))
			item[i].child = (Mark){0};
		item[i].commits = item[i].creates = item[i].had = 0;
		item[i].excused = false;
		item[i].birth = ++last_birth;
	}
}

/* Marks of this take go, one of them or both; its server has no connection. */
static void
lose_marks(Take *take, bool both)
{
	Item *i = &item[take->item];
	Mark *mark = find_mark(i, take->id);
	bool child = both || once_in(2);

	/* in doubt whether they were made one does not ask for the one below the item */
	if (take->take.state < ZKLOCK_TAKE_READING || mark == NULL || i->child.take != take->id)
		return;
	take->torn = true;
	/* that it is deleted is not known yet, and whoever comes next may have it, too */
	if (take->take.state == ZKLOCK_TAKE_DONE)
		i->excused = true;
	if (child)
		delete_mark(i, &i->child, 0, 0);
	if (both || !child)
		delete_mark(i, mark, 0, 0);
}

/* Somebody makes a node below an item, or takes it away. */
static void
make_below(void)
{
	Item *i = &item[random_below(nitems)];

	i->foreign = i->there && !i->foreign;
}

static void disconnect(Server *s);

/* It comes back with what it had at some time before: it knows the sessions. */
static void
restore(void)
{
	COVER(RESTORED);
	TRACE("the ensemble is restored");
	for (int s = 0; s < NSERVERS; s++)
		if (server[s].connected)
			disconnect(&server[s]);
	for (int s = 0; s < NSERVERS; s++)
		for (int t = 0; server[s].alive && t < NTAKES; t++)
			if (once_in(2))
				lose_marks(&server[s].take[t], true);
}

/* Somebody deletes a mark of a server that has no connection. */
static void
interfere(Server *s)
{
	if (s->connected || !s->alive)
		return;
	COVER(DELETED);
	TRACE("somebody deletes a mark of session %d", s->session);
	lose_marks(&s->take[random_below(NTAKES)], false);
}

/* ------------------------------------------------------------------------
 * Servers
 * ------------------------------------------------------------------------
 */

static void
check_exclusion(void)
{
	int holder[MAX_ITEMS] = {0};

	for (int s = 0; s < NSERVERS; s++)
	{
		for (int t = 0; t < NTAKES; t++)
		{
			const Take *take = &server[s].take[t];

			if (take->take.state != ZKLOCK_TAKE_HELD ||
				take->session != server[s].session || !server[s].alive || take->torn)
				continue;
			if (item[take->item].child.take != take->id)
				fail("server %d has item %d without a mark", s, take->item);
			if (holder[take->item]++)
				fail("two transactions have item %d", take->item);
		}
	}
}

static void
send(Server *s, What what, int take, ZkTakeRequest request, int i)
{
	Message message = {.what = what,
					   .take = take,
					   .id = s->take[take].id,
					   .request = request,
					   .item = i};

	push(&s->out, &message);
}

static void
send_take(Server *s, int t)
{
	ZkTakeRequest request = zklock_take_request(&s->take[t].take);

	if (request != ZKLOCK_TAKE_NOTHING)
		send(s, TAKE, t, request, s->take[t].item);
}

static int
item_of(const char *name)
{
	ZkItemName parsed;

	if (!zklock_item_parse(name, &parsed))
		fail("\"%s\" is no item", name);
	return (int) parsed.sequence;
}

/* As worker/queue_takes.c does.  Was a take told that there is no item? */
static bool
work(Server *s)
{
	int which[ZKLOCK_ITEMS_WINDOW];
	int n;
	bool none = false;

	if (!s->connected)
		return false;
	for (int t = 0; t < NTAKES; t++)
	{
		Take *take = &s->take[t];

		send_take(s, t);
		if (take->take.state != ZKLOCK_TAKE_WANTED)
			continue;
		switch (zklock_items_choose(&s->items, which, &n))
		{
			case ZKLOCK_CHOOSE_TAKE:
				take->item = item_of(s->items.item[which[0]].name);
				take->take.state = ZKLOCK_TAKE_TAKING;
				send_take(s, t);
				break;
			case ZKLOCK_CHOOSE_LOOK:
				for (int i = 0; i < n; i++)
					send(s, LOOK, 0, ZKLOCK_TAKE_NOTHING,
						 item_of(s->items.item[which[i]].name));
				COVER(LOOKED);
				break;
			case ZKLOCK_CHOOSE_LIST:
				send(s, LIST, 0, ZKLOCK_TAKE_NOTHING, 0);
				break;
			case ZKLOCK_CHOOSE_LIST_HELD:
				send(s, LIST_HELD, 0, ZKLOCK_TAKE_NOTHING, 0);
				break;
			case ZKLOCK_CHOOSE_WAIT:
				break;
			case ZKLOCK_CHOOSE_NONE:
				none = true;
				COVER(NONE);
				break;
		}
	}
	return none;
}

static void
take_reply(Server *s, const Message *m)
{
	Take *take = &s->take[m->take];
	ZkTakeNews news;
	bool was_whose = m->request == ZKLOCK_TAKE_WHOSE;
	ZkReply rc = m->rc;

	if (take->id != m->id || !take->take.open)
		return;
	if (m->request == ZKLOCK_TAKE_COMPARE && rc == ZKLOCK_REPLY_OK &&
		m->birth != take->birth)
	{
		COVER(ANOTHER);
		rc = ZKLOCK_REPLY_EXISTS;
	}
	news = zklock_take_reply(&take->take, m->request, rc, m->failed);
	if (was_whose)
		COVER(WHOSE);
	/* after a session's end they are made anew */
	if (m->request == ZKLOCK_TAKE_MARK && rc == ZKLOCK_REPLY_OK)
		take->torn = false;
	if (m->request == ZKLOCK_TAKE_READ_IT)
	{
		take->attempt = m->creates;
		take->birth = m->birth;
	}
	switch (news)
	{
		case ZKLOCK_TAKE_MISSED:
			COVER(MISSED);
			zklock_items_missed(&s->items, item[take->item].name, false);
			break;
		case ZKLOCK_TAKE_VANISHED:
			COVER(VANISHED);
			zklock_items_missed(&s->items, item[take->item].name, true);
			break;
		case ZKLOCK_TAKE_ENDED:
		case ZKLOCK_TAKE_GIVEN:
			zklock_items_left(&s->items, item[take->item].name, news == ZKLOCK_TAKE_ENDED);
			break;
		case ZKLOCK_TAKE_BARRED:
			if (m->request == ZKLOCK_TAKE_KEEP)
				COVER(KEPT);
			else
				COVER(BARRED);
			zklock_items_left(&s->items, item[take->item].name, false);
			break;
		case ZKLOCK_TAKE_UNFIT:
			COVER(UNFIT);
			zklock_items_set_aside(&s->items, item[take->item].name);
			break;
		case ZKLOCK_TAKE_LOST:
			COVER(TORN);
			if (!take->torn)
				fail("item %d counts as lost, and has its marks", take->item);
			break;
		case ZKLOCK_TAKE_NO_NEWS:
			if (m->request == ZKLOCK_TAKE_SEE_IT)
				COVER(SEEN);
			break;
		case ZKLOCK_TAKE_NO_DIRECTORY:
		case ZKLOCK_TAKE_REFUSED:
			break;
	}
}

static void
receive(Server *s, const Message *m)
{
	const char *held[MAX_ITEMS];
	ZkItem *memory;
	int n = 0;

	switch (m->what)
	{
		case LIST:
			s->which = 1 - s->which;
			memory = s->memory[s->which];
			for (int i = 0; i < nitems; i++)
			{
				if (!m->has[i])
					continue;
				memory[n].sequence = i;
				strcpy(memory[n++].name, item[i].name);
			}
			zklock_items_listed(&s->items, memory, n);
			break;
		case LIST_HELD:
			for (int i = 0; i < nitems; i++)
				if (m->has[i])
					held[n++] = item[i].name;
			zklock_items_listed_held(&s->items, held, n);
			break;
		case LOOK:
			zklock_items_looked(&s->items, m->item, m->rc, m->held);
			break;
		case TAKE:
			take_reply(s, m);
			break;
		case WATCH:
		case WATCH_HELD:
			zklock_items_changed(&s->items, m->what == WATCH_HELD);
			break;
	}
}

/* A new connection, or a new worker, or a new session. */
static void
start_again(Server *s, bool session_lost)
{
	zklock_items_forget(&s->items);
	for (int t = 0; t < NTAKES; t++)
	{
		Take *take = &s->take[t];

		if (take->take.state == ZKLOCK_TAKE_FREE)
			continue;
		if (!session_lost)
			zklock_take_resumed(&take->take);
		else
		{
			if (zklock_take_session_lost(&take->take))
				COVER(HELD_EXPIRED);
			if (take->take.state != ZKLOCK_TAKE_DONE)
				zklock_items_left(&s->items, item[take->item].name, false);
		}
	}
}

static void
disconnect(Server *s)
{
	TRACE("session %d: connection lost", s->session);
	COVER(LOST);
	/* some of what was on its way is done, and nobody hears of it */
	for (int n = random_below(s->out.n + 1); n > 0; n--)
	{
		(void) execute(s);
		COVER(LOST_DONE);
	}
	s->connected = s->watches = s->watches_held = false;
	s->out.n = s->in.n = 0;
	start_again(s, false);
}

static void
connect_again(Server *s)
{
	if (!s->alive)
	{
		s->session = ++last_session;
		s->alive = true;
		start_again(s, true);
	}
	s->connected = true;
	for (int t = 0; t < NTAKES; t++)
		zklock_take_connected(&s->take[t].take);
}

static void
succeed(Server *s)
{
	if (s->connected)
		disconnect(s);
	COVER(SUCCESSOR);
	memset(&s->items, 0, sizeof(s->items));
}

/* ------------------------------------------------------------------------
 * Backends
 * ------------------------------------------------------------------------
 */

/* PRE_COMMIT has looked at the lease: the ensemble has the session still. */
static bool
may_commit(const Server *s, const Take *take)
{
	return s->alive && !take->take.lost && !take->take.unseen;
}

/* The clock says that all is lost.  The backend goes on with a savepoint, say. */
static void
tell_by_clock(Take *take)
{
	COVER(TOLD);
	TRACE("item %d is told lost", take->item);
	zklock_take_forfeit(&take->take);
	take->told = true;
}

static void
end_take(Server *s, Take *take, bool commit)
{
	Item *i = &item[take->item];

	if (commit && take->told)
		COVER(TOLD_AND_BACK);
	commit = commit && may_commit(s, take);
	TRACE("session %d: item %d %s", s->session, take->item,
		  commit ? "committed" : "rolled back");
	zklock_take_end(&take->take, commit);
	if (!commit)
	{
		COVER(ROLLED_BACK);
		return;
	}
	COVER(COMMITTED);
	if (take->session != s->session)
		fail("item %d is committed, and was lost", take->item);
	if (take->told)
		fail("item %d is committed, and was told lost", take->item);
	if (take->torn && s->connected)
		fail("item %d is committed, and its marks were gone", take->item);
	if (take->torn)
	{
		COVER(UNAWARE);
		i->excused = true;
	}
	i->had = take->attempt;
	if (i->commits++ > 0)
	{
		COVER(TWICE);
		if (!i->excused)
			fail("item %d is done twice", take->item);
	}
}

static void
backend(Server *s)
{
	Take *take = &s->take[random_below(NTAKES)];

	switch ((ZkTakeState) take->take.state)
	{
		case ZKLOCK_TAKE_FREE:
			*take = (Take){.take = {.state = ZKLOCK_TAKE_WANTED}, .id = ++last_take};
			break;
		case ZKLOCK_TAKE_WANTED:
		case ZKLOCK_TAKE_TAKING:
		case ZKLOCK_TAKE_READING:
			if (!take->take.leaving && once_in(4))
			{
				COVER(LEFT);
				zklock_take_leave(&take->take);
			}
			break;
		case ZKLOCK_TAKE_READ:
			if (!s->alive)
				break; /* without a lease nobody believes in it */
			take->take.state = ZKLOCK_TAKE_HELD;
			take->session = s->session;
			COVER(TAKEN);
			TRACE("session %d has item %d", s->session, take->item);
			if (item[take->item].unfit)
				fail("item %d is handed out, and zklock has not put it", take->item);
			if (take->attempt != item[take->item].creates && !take->torn)
				fail("item %d: attempt %d, but %d", take->item, take->attempt,
					 item[take->item].creates);
			break;
		case ZKLOCK_TAKE_HELD:
			if (!s->connected && !take->told && once_in(3))
				tell_by_clock(take);
			else
				end_take(s, take, once_in(2));
			break;
		case ZKLOCK_TAKE_DONE:
		case ZKLOCK_TAKE_RETURNED:
			break;
	}
}

/* ------------------------------------------------------------------------
 * A put and its judges
 * ------------------------------------------------------------------------
 */

static void
judge_put(void)
{
	int record = 1 + random_below(100); /* where it is in the log */
	bool commits = once_in(2);			/* sooner or later */
	int commit = record + 1 + random_below(50);
	int end = record + random_below(100); /* of the log, of the one who put */
	bool lives = once_in(2);			  /* ... who goes on */
	bool committed = commits && commit <= end;
	bool other = once_in(2);		   /* who judges is another server */
	bool copied = other && once_in(2); /* ... by a snapshot of the disks */
	int fork = 1 + random_below(150);  /* where its log leaves ours */
	ZkPutFacts facts = {.recovering = once_in(8)};
	ZkPutVerdict verdict;

	if (fork > end)
		fork = end;
	if (!other)
	{
		facts.own_life = lives;
		facts.own_name = true;
		facts.timeline = facts.history = true;
		facts.in_progress = lives && !committed;
		facts.committed = committed;
		if (!commits && once_in(2))
			facts.in_progress = false;
	}
	else
	{
		facts.timeline = copied;
		facts.own_name = !lives && !copied && once_in(2);
		/* a copy cannot tell: by now its own log may be as long */
		facts.history = copied || record <= fork;
		facts.committed =
			record <= fork && !copied ? commits && commit <= fork : once_in(2);
		facts.in_progress = (record > fork || copied) && once_in(4);
	}
	facts.unknown = once_in(20);
	verdict = zklock_put_judge(&facts);
	if (verdict == ZKLOCK_PUT_MOVE && !committed)
		fail("moved, and has not committed");
	if (verdict == ZKLOCK_PUT_DROP && (committed || (lives && commits)))
		fail("dropped, and has committed, or will");
	if (!other && !facts.recovering && !facts.unknown && !facts.in_progress &&
		verdict != ZKLOCK_PUT_MOVE && verdict != ZKLOCK_PUT_DROP)
		fail("its own server says nothing");
	switch (verdict)
	{
		case ZKLOCK_PUT_MOVE:
			COVER(MOVE);
			break;
		case ZKLOCK_PUT_DROP:
			COVER(DROP);
			break;
		case ZKLOCK_PUT_LATER:
			COVER(LATER);
			break;
		case ZKLOCK_PUT_LEAVE:
			COVER(LEAVE);
			break;
	}
}

/* ------------------------------------------------------------------------
 * A schedule
 * ------------------------------------------------------------------------
 */

static void
put_item(void)
{
	char prefix[ZKLOCK_ITEM_NAME];

	if (nitems == MAX_ITEMS)
		return;
	memset(&item[nitems], 0, sizeof(Item));
	item[nitems].there = true;
	item[nitems].birth = ++last_birth;
	item[nitems].unfit = once_in(10);
	zklock_item_prefix(prefix, 0, 0);
	snprintf(item[nitems].name, sizeof(item[nitems].name), "%.20s%010d", prefix, nitems);
	nitems++;
	fire(false);
}

static void
step(void)
{
	Server *s = &server[random_below(NSERVERS)];
	Message m;

	step_count++;
	if (once_in(30))
		put_item();
	switch (random_below(6))
	{
		case 0:
			backend(s);
			break;
		case 1:
			(void) work(s);
			break;
		case 2:
			if (s->connected && s->out.n > 0)
			{
				m = execute(s);
				push(&s->in, &m);
			}
			break;
		case 3:
			if (s->in.n > 0)
			{
				m = pop(&s->in);
				receive(s, &m);
			}
			break;
		case 4:
			if (!s->connected)
				connect_again(s);
			break;
		case 5:
			if (once_in(40) && s->connected)
				disconnect(s);
			else if (once_in(40) && s->alive)
				expire(s);
			else if (once_in(40))
				succeed(s);
			else if (once_in(200))
				go_back();
			else if (once_in(100))
				restore();
			else if (once_in(3))
				interfere(s);
			else if (once_in(10))
				make_below();
			break;
	}
	check_exclusion();
}

/* Nothing is on its way any more. */
static bool
settle(Server *s)
{
	bool none = false;

	for (int round = 0; round < 200; round++)
	{
		Message m;

		none |= work(s);
		if (s->out.n == 0 && s->in.n == 0)
			return none;
		while (s->out.n > 0)
		{
			m = execute(s);
			push(&s->in, &m);
		}
		while (s->in.n > 0)
		{
			m = pop(&s->in);
			receive(s, &m);
			if (once_in(3))
				none |= work(s);
		}
	}
	fail("requests without an end");
}

static void
drain(void)
{
	Server *s = &server[0];
	Take *take = &s->take[0];

	/* everybody is well, and lets go */
	for (int i = 0; i < NSERVERS; i++)
	{
		if (!server[i].connected)
			connect_again(&server[i]);
		for (int t = 0; t < NTAKES; t++)
		{
			ZkTake *of = &server[i].take[t].take;

			if (of->state == ZKLOCK_TAKE_HELD)
				end_take(&server[i], &server[i].take[t], false);
			else if (of->state != ZKLOCK_TAKE_FREE && !of->leaving)
				zklock_take_leave(of);
		}
		(void) settle(&server[i]);
	}
	for (int i = 0; i < NSERVERS; i++)
		(void) settle(&server[i]);
	for (int i = 0; i < nitems; i++)
	{
		if ((item[i].child.session != 0 && !is_for_good(&item[i])) || item[i].nheld != 0)
			fail("item %d is marked by session %d, and nobody has it", i,
				 item[i].child.session);
		if (item[i].there && item[i].commits > 0 && item[i].creates == item[i].had &&
			!is_for_good(&item[i]))
			fail("item %d is done, and can be had again, though nobody else had it", i);
	}
	calm = true;
	for (;;)
	{
		bool none;

		*take = (Take){.take = {.state = ZKLOCK_TAKE_WANTED}, .id = ++last_take};
		none = settle(s);
		if (take->take.state == ZKLOCK_TAKE_WANTED && none)
			break;
		if (take->take.state != ZKLOCK_TAKE_READ)
			fail("a take is in state %d", take->take.state);
		take->take.state = ZKLOCK_TAKE_HELD;
		take->session = s->session;
		if (item[take->item].commits > 0)
			item[take->item].excused = true; /* checked above, where it was committed */
		end_take(s, take, true);
		(void) settle(s);
	}
	for (int i = 0; i < nitems; i++)
	{
		if (item[i].there && !item[i].unfit && !item[i].unheard && !is_for_good(&item[i]))
			fail("item %d is there, and is not taken", i);
		if (!item[i].there && item[i].commits == 0)
			fail("item %d is gone, and nobody has had it", i);
	}
}

void
play(uint64_t seed)
{
	random_state = seed;
	memset(server, 0, sizeof(server));
	nitems = 0;
	last_session = last_take = last_birth = 0;
	calm = false;
	for (int i = random_below(8); i >= 0; i--)
		put_item();
	for (int i = 0; i < WILD; i++)
		step();
	drain();
	judge_put();
}

const Simulator simulator = {
	.schedules = "schedules of work that is handed out",
	.enough = 5000,
	.ncoverage = NCOVERAGE,
};
