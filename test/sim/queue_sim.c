/*-------------------------------------------------------------------------
 *
 * queue_sim.c
 *	  Plays seeded schedules of work that is handed out against
 *	  src/protocol/queue_rules.c.
 *
 * Some servers put items into one queue, and take them, each alone or several in one
 * request, commit or roll back, or leave before they have one.  The ensemble is that of
 *ensemble.h: its servers lag, leaders are deposed, connections break with requests and
 *replies on them, which may have been done, or are done later; sessions expire, and the
 *server hears of it later; workers are exchanged for successors that know no more than
 *what is in shared memory.  The ensemble goes back: items are there again, and others
 *have put some by then whose numbers are those of earlier ones; or it is restored, and
 *knows the sessions, but not all marks, or somebody deletes one while a server has no
 *connection.  Backends are told by the clock that their items are lost, and the session
 *goes on.  Somebody makes nodes below items, and items that are none. Then all is well,
 *and a server takes what is left.
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
 *	   transaction that had committed, or did so before its server had a new connection,
 *or the item was there again.
 *	 - Nobody commits on a connection that began after a mark of his was gone; nor what he
 *	   was told is lost.
 *	 - In the end no mark is left, but on items that are done and cannot be deleted; and
 *	   what was not done is taken, in its order, each with an attempt more than it was
 *	   marked; but for an item of which somebody has deleted the mark in held/, before its
 *	   session expired: the others hear of that with the next change of held/.  What is
 *	   done is not to be had again, if nobody else had it before.
 *	 - An item that was taken too often is moved to another queue, or stays: it is in one
 * of the two, and nobody has it who has not been told.
 *	 - What zklock has not put is handed to nobody, and stands in nobody's way.
 *	 - What is judged to be moved has committed, and what is to be dropped never will.
 *
 * Usage: see harness.h.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ensemble.h"
#include "queue_rules.h"

#define NSERVERS  3
#define NTAKES	  4 /* of a server */
#define MAX_ITEMS 40
#define MAX_MARKS 8	  /* of an item, in held/ */
#define WILD	  600 /* steps */

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
	COVER_PUT,
	COVER_NEXT,
	COVER_GAP,
	COVER_COMING,
	COVER_COMPACT,
	COVER_JOINT,
	COVER_UNDONE,
	COVER_UNDONE_MISSED,
	COVER_AHEAD,
	COVER_AHEAD_IN_VAIN,
	COVER_LOOKED,
	COVER_LOST,
	COVER_WHOSE,
	COVER_EXPIRED,
	COVER_HELD_EXPIRED,
	COVER_TWICE,
	COVER_WENT_BACK,
	COVER_BACK,
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
	COVER_LENT,
	COVER_UNFIT,
	COVER_FAILED,
	COVER_FAILED_UNHEARD,
	COVER_STUCK,
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
											  "items put by servers",
											  "... that need no listing",
											  "... behind another's",
											  "takes that wait for these",
											  "lists of items without what is gone",
											  "takes that ask together",
											  "... and again, for another's sake",
											  "... or look for others' marks first",
											  "items asked for ahead",
											  "... and not had",
											  "items looked at",
											  "connections lost",
											  "marks that might have been ours",
											  "sessions expired",
											  "... with an item",
											  "items done twice",
											  "ensembles that went back",
											  "items done that were there again, and deleted",
											  "items done whose number another has",
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
											  "oldest items that are given back",
											  "items that zklock has not put",
											  "items taken too often and moved",
											  "... of which nobody has heard",
											  "... that could not be",
											  "items done that stay, marked at once",
											  "... by another session",
											  "puts moved",
											  "puts dropped",
											  "puts for later",
											  "puts left to others"};

long coverage[NCOVERAGE];

/* Paths: of this kind; of an item its id's hash, and its number, as its name has them; of
 * others the item's index, and the take. */
enum
{
	ITEMS = 1,
	HELD,
	ITEM,
	CHILD,		  /* items/.../held; its data are the take */
	BELOW,		  /* somebody's node, below an item */
	MARK,		  /* held/... */
	FAILED_ITEMS, /* of the queue of failed ones */
	FAILED		  /* an item there, and the take that has moved it */
};
static const Path root = {0};
static const Path items_dir = {ITEMS, 0, 0};
static const Path held_dir = {HELD, 0, 0};
static const Path failed_dir = {FAILED_ITEMS, 0, 0};

/* What a request is about. */
enum
{
	LIST,
	LIST_HELD,
	LOOK, /* at: an item */
	TAKE, /* who: of these; serial: its id; at: an item; detail: a ZkTakeRequest */
	PUT,  /* at: the first one's id; each op makes one */
	BEGIN /* what a connection begins with */
};

typedef struct Item
{
	bool unfit;	 /* zklock has not put it */
	bool gone;	 /* the ensemble has forgotten it */
	bool back;	 /* it was done, and is there as it was before */
	bool moved;	 /* to the queue of failed ones */
	bool stuck;	 /* it could not be, and a server has set it aside */
	int had;	 /* its creates, as of the take that committed last */
	int creates; /* marks made of it */
	int foreign; /* somebody's nodes, ever made */
	int commits;
	bool excused; /* a session expired that had it, or might have */
	bool unheard; /* a mark went that was not in held/ as well: no watch tells */
	int64_t sequence;
	int64_t hash;  /* of the id in its name */
	int64_t birth; /* czxid */
	char name[ZKLOCK_ITEM_NAME];
} Item;

typedef struct Take
{
	ZkTake take;
	int id; /* no other has it */
	int item;
	int session; /* in which it is held */
	int marked;	 /* the item's creates, with its mark */
	bool torn;	 /* a mark was gone before the newest connection began, or will begin */
	bool told;	 /* that it is lost */
} Take;

typedef struct Server
{
	bool alive; /* the session: the ensemble has it still */
	ZkItems items;
	ZkItem memory[2][MAX_ITEMS];
	int which;
	Take take[NTAKES];
	int puts; /* of which it will hear */
	Conn conn;
} Server;

typedef struct Id
{
	char prefix[ZKLOCK_ITEM_NAME]; /* of a name */
	int64_t hash;
} Id;

static Server server[NSERVERS];
static Item item[MAX_ITEMS];
static int nitems;
static Id id[MAX_ITEMS]; /* of items that are there, or will perhaps */
static int nids;
static int last_take;
static bool calm;

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

static Path
path_of(int kind, int i)
{
	return (Path){kind, item[i].hash, item[i].sequence};
}

static Path
mark_path(int i, int take)
{
	return (Path){MARK, i, take};
}

static bool
is_there(Path path)
{
	return zk_find(path, zk.zxid) != NULL;
}

/* The take that a mark below an item names; 0: none. */
static int
take_of(const Znode *child)
{
	return child == NULL || child->value->len == 0 ? 0 : *(const int *) child->value->data;
}

/* Items that are done, and that nobody can delete, have a mark that stays. */
static bool
is_for_good(int i)
{
	const Znode *child = zk_find(path_of(CHILD, i), zk.zxid);

	return child != NULL && child->owner == NOBODY;
}

/* Has a session this item marked by a node that is not in held/? */
static bool
is_unheard(int i, int session)
{
	const Znode *child = zk_find(path_of(CHILD, i), zk.zxid);

	return child != NULL && child->owner == session &&
		!is_there(mark_path(i, take_of(child)));
}

/* The item that this znode is: it may be there for the second time. */
static Item *
item_born(const Znode *node)
{
	for (int i = 0; i < nitems; i++)
		if (item[i].birth == node->czxid && item[i].hash == node->path.a)
			return &item[i];
	fail("there was no such item");
}

static void
check_deleted(int session, const Packet *p, Path path)
{
	const Znode *node = zk_find(path, zk.zxid - 1);

	if (path.kind == ITEM)
	{
		const Item *i = item_born(node);

		if (p->detail != ZKLOCK_TAKE_FAIL && i->commits == 0)
			fail("item %d is deleted, and no transaction that had it has committed",
				 (int) (i - item));
		if (p->detail == ZKLOCK_TAKE_DELETE && i->back)
			COVER(BACK);
	}
	else if (node->owner != session ||
			 (path.kind == CHILD && take_of(node) != (int) p->serial))
		fail("session %d deletes a mark of session %d", session, node->owner);
}

static void
observe_mark(const Packet *p)
{
	for (int i = 0; calm && i < nitems; i++)
		if (item[i].sequence < item[p->at].sequence && is_there(path_of(ITEM, i)) &&
			!is_there(path_of(CHILD, i)) && !item[i].unfit && !item[i].stuck &&
			!item[i].unheard)
			fail("item %d is taken before item %d", p->at, i);
	item[p->at].creates++;
	for (int s = 0; s < NSERVERS; s++)
		if (server[s].take[p->who].id == (int) p->serial)
			server[s].take[p->who].marked = item[p->at].creates;
}

static void
observe_fail(const Packet *p)
{
	Item *i = &item[p->at];
	bool heard = false;

	if (i->moved)
		fail("item %d is moved twice", p->at);
	i->moved = true;
	COVER(FAILED);
	for (int s = 0; s < NSERVERS; s++)
	{
		const ZkTake *take = &server[s].take[p->who].take;

		if (server[s].take[p->who].id != (int) p->serial)
			continue;
		heard |= take->state == ZKLOCK_TAKE_WORN;
		if (take->most == 0 || i->creates + i->foreign <= take->most)
			fail("item %d is moved, and was taken %d times of %d", p->at, i->creates,
				 take->most);
	}
	if (!heard)
		COVER(FAILED_UNHEARD);
}

/* Is there another item of its number? */
static int
find_another(int i)
{
	for (int j = 0; j < nitems; j++)
		if (j != i && item[j].sequence == item[i].sequence && is_there(path_of(ITEM, j)))
			return j;
	return -1;
}

/* A take's write was done, or refused. */
static void
observe_take(int session, const Packet *p)
{
	if (p->detail == ZKLOCK_TAKE_DELETE && find_another(p->at) >= 0)
		COVER(ANOTHER);
	if (p->rc != ZKLOCK_REPLY_OK)
		return;
	for (int i = 0; i < p->nops; i++)
		if (p->op[i].type == OP_DELETE)
			check_deleted(session, p, p->op[i].path);
		else if (p->op[i].type == OP_CREATE && p->op[i].path.kind == CHILD &&
				 !p->op[i].ephemeral && item[p->at].commits == 0)
			fail("an item is set aside, and nobody has done it");
	if (p->detail == ZKLOCK_TAKE_MARK)
		observe_mark(p);
	else if (p->detail == ZKLOCK_TAKE_FAIL)
		observe_fail(p);
	else if (p->detail == ZKLOCK_TAKE_REPAIR)
		COVER(REPAIRED);
	else if (p->detail == ZKLOCK_TAKE_CLEAR)
		COVER(CLEARED);
	else if (p->detail == ZKLOCK_TAKE_KEEP && item[p->at].foreign == 0)
		fail("item %d is set aside, and nobody has made a node below it", p->at);
}

/* What one of several has asked for. */
static Packet
part_of(const Packet *p, int n)
{
	Packet part = *p;

	part.who = p->part[n].who;
	part.at = p->part[n].at;
	part.serial = p->part[n].serial;
	part.nops = p->nops / p->nparts;
	memmove(part.op, p->op + n * part.nops, sizeof(Op) * (size_t) part.nops);
	return part;
}

static void add_item(int id, int64_t sequence);

/* A write was done, or refused. */
static void
observe(int session, const Packet *p)
{
	for (int i = 0; i < p->nops && p->what == PUT && p->rc == ZKLOCK_REPLY_OK; i++)
		add_item(p->at + i, p->op[i].path.b);
	for (int i = 0; i < p->nparts; i++)
	{
		Packet part = part_of(p, i);

		observe_take(session, &part);
	}
	if (p->what == TAKE && p->nparts == 0)
		observe_take(session, p);
}

static void
expire(Server *s)
{
	COVER(EXPIRED);
	TRACE("session %d expires", s->conn.session);
	s->alive = false;
	for (int i = 0; i < nitems; i++)
		item[i].unheard |= is_unheard(i, s->conn.session);
	zk_end_session(s->conn.session);
	/* what it had may be done twice */
	for (int t = 0; t < NTAKES; t++)
		if (s->take[t].take.state >= ZKLOCK_TAKE_HELD)
			item[s->take[t].item].excused = true;
}

static void disconnect(Server *s);

/* All servers of the ensemble start again, with nothing under way. */
static void
restart(void)
{
	zk.floor = zk.zxid;
	for (int s = 0; s < NSERVERS; s++)
	{
		if (server[s].conn.up)
			disconnect(&server[s]);
		server[s].conn.nzombies = 0;
	}
}

static int
make_id(void)
{
	Id *i = &id[nids];
	char text[ZKLOCK_ITEM_ID];
	char name[ZKLOCK_ITEM_NAME];
	ZkItemName parsed;

	zklock_item_make_id(text, nids, (uint64_t) nids << 32);
	zklock_item_prefix(i->prefix, text);
	snprintf(name, sizeof(name), "%.37s%010d", i->prefix, 0);
	if (!zklock_item_parse(name, &parsed))
		fail("\"%s\" is no item", name);
	i->hash = (int64_t) zklock_hash_child(parsed.id);
	return nids++;
}

/* An item was made, and has this number. */
static void
add_item(int of, int64_t sequence)
{
	Item *i = &item[nitems++];
	ZkItemName name;

	memset(i, 0, sizeof(*i));
	snprintf(i->name, sizeof(i->name), "%.37s%010d", id[of].prefix, (int) sequence);
	if (!zklock_item_parse(i->name, &name) || name.sequence != sequence)
		fail("\"%s\" is no item", i->name);
	i->sequence = sequence;
	i->hash = id[of].hash;
	i->birth = zk.zxid;
}

static void
make_item(int64_t sequence)
{
	int of = make_id();

	zk_make((Path){ITEM, id[of].hash, sequence}, items_dir);
	add_item(of, sequence);
}

/* The ensemble has an item as it was before it was taken, or not at all. */
static void
take_back(int i, bool there)
{
	zk_delete(path_of(ITEM, i));
	item[i].creates = item[i].had = item[i].foreign = 0;
	item[i].moved = item[i].stuck = false;
	item[i].gone = !there;
	if (!there)
		return;
	item[i].back |= item[i].commits > 0;
	item[i].excused |= item[i].back;
	zk_make(path_of(ITEM, i), items_dir);
	item[i].birth = zk.zxid;
}

/*
 * It has forgotten all sessions, and what became of some items, or these.  Others have
 * their numbers, put by a server that has not noticed.
 */
static void
go_back(void)
{
	int before = nitems;
	int64_t next = zk_find(items_dir, zk.zxid)->next;

	COVER(WENT_BACK);
	TRACE("the ensemble goes back");
	for (int s = 0; s < NSERVERS; s++)
		if (server[s].alive)
			expire(&server[s]);
	restart();
	for (int i = 0; i < before; i++)
	{
		bool there = once_in(2);
		int another = find_another(i);

		if (!once_in(3))
			continue;
		if (another >= 0)
			take_back(another, false);
		take_back(i, there);
		if (!there && nids < MAX_ITEMS)
			make_item(item[i].sequence);
	}
	zk_find(items_dir, zk.zxid)->next = next;
	zk.floor = zk.zxid;
}

/* Marks of this take go, one of them or both; its server has no connection. */
static void
lose_marks(Take *take, bool both)
{
	int i = take->item;
	/* others can have the item without this one, and before it is moved they seldom have */
	bool child = both || take->take.state < ZKLOCK_TAKE_READ || once_in(2);

	/* in doubt whether they were made one does not ask for the one below the item */
	if (take->take.state < ZKLOCK_TAKE_READING || !is_there(mark_path(i, take->id)) ||
		take_of(zk_find(path_of(CHILD, i), zk.zxid)) != take->id)
		return;
	take->torn = true;
	/* that it is deleted is not known yet, and whoever comes next may have it, too */
	if (take->take.state == ZKLOCK_TAKE_DONE)
		item[i].excused = true;
	if (child)
		zk_delete(path_of(CHILD, i));
	if (both || !child)
		zk_delete(mark_path(i, take->id));
}

/* Somebody makes a node below an item, or takes it away. */
static void
make_below(void)
{
	int i = random_below(nitems);

	if (is_there(path_of(BELOW, i)))
		zk_delete(path_of(BELOW, i));
	else if (is_there(path_of(ITEM, i)))
	{
		zk_make(path_of(BELOW, i), path_of(ITEM, i));
		item[i].foreign++;
	}
}

/* It comes back with what it had at some time before: it knows the sessions. */
static void
restore(void)
{
	COVER(RESTORED);
	TRACE("the ensemble is restored");
	restart();
	for (int s = 0; s < NSERVERS; s++)
		for (int t = 0; server[s].alive && t < NTAKES; t++)
			if (once_in(2))
				lose_marks(&server[s].take[t], true);
	zk.floor = zk.zxid;
}

static bool
is_of(const Packet *p, int take)
{
	for (int i = 0; i < p->nparts; i++)
		if (p->part[i].serial == (uint64_t) take)
			return true;
	return p->serial == (uint64_t) take;
}

/*
 * Somebody deletes a mark of a server that has no connection.  But for one whose take's
 * end is under way: that names the mark below the item by its path, which may be the next
 * take's by then, and no rule can help it.
 */
static void
interfere(Server *s)
{
	Take *take = &s->take[random_below(NTAKES)];

	if (s->conn.up || !s->alive)
		return;
	/* it is seldom at that */
	for (int t = 0; t < NTAKES; t++)
		if (s->take[t].take.state == ZKLOCK_TAKE_WORN ||
			(s->take[t].take.state == ZKLOCK_TAKE_READING && s->take[t].take.most > 0))
			take = &s->take[t];
	for (int i = 0; i < s->conn.nzombies; i++)
	{
		const Packet *p = &s->conn.zombie[i];

		if (p->what == TAKE && p->op[0].type == OP_DELETE && is_of(p, take->id))
			return;
	}
	COVER(DELETED);
	TRACE("somebody deletes a mark of session %d", s->conn.session);
	lose_marks(take, false);
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
				take->session != server[s].conn.session || !server[s].alive || take->torn)
				continue;
			if (take_of(zk_find(path_of(CHILD, take->item), zk.zxid)) != take->id)
				fail("server %d has item %d without a mark", s, take->item);
			if (holder[take->item]++)
				fail("two transactions have item %d", take->item);
		}
	}
}

static void
send_read(Server *s, int what, PacketType type, Path path, int i)
{
	Packet p = {.type = type, .what = what, .path = path, .at = i};

	p.watch = what != LOOK;
	if (what == LIST)
		conn_send(&s->conn, &(Packet){.type = SYNC, .what = BEGIN});
	conn_send(&s->conn, &p);
}

static void
add_op(Packet *p, OpType type, Path path, Path parent)
{
	p->op[p->nops++] =
		(Op){.type = type, .path = path, .parent = parent, .ephemeral = true};
}

/* Make the marks of a take, or delete them, perhaps with the item, or so that one stays. */
static void
add_ops(Packet *p, Path mark)
{
	Path it = path_of(ITEM, p->at);
	Path child = path_of(CHILD, p->at);
	int id = (int) p->serial;

	if (p->detail == ZKLOCK_TAKE_MARK)
	{
		add_op(p, OP_CREATE, child, it);
		p->op[0].data = zk_keep(&id, sizeof(id));
		p->op[0].len = sizeof(id);
		add_op(p, OP_CREATE, mark, held_dir);
		return;
	}
	add_op(p, OP_DELETE, mark, held_dir);
	add_op(p, OP_DELETE, child, it);
	if (p->detail == ZKLOCK_TAKE_FINISH || p->detail == ZKLOCK_TAKE_FAIL)
		add_op(p, OP_DELETE, it, items_dir);
	if (p->detail == ZKLOCK_TAKE_FAIL)
	{
		add_op(p, OP_CREATE, (Path){FAILED, p->at, id}, failed_dir);
		p->op[3].ephemeral = false;
		return;
	}
	if (p->detail == ZKLOCK_TAKE_KEEP)
		add_op(p, OP_CREATE, child, it);
	p->op[p->nops - 1].ephemeral = p->detail != ZKLOCK_TAKE_KEEP;
}

/* The request of a take; NOTHING: it has none. */
static Packet
take_packet(Server *s, int t)
{
	Take *take = &s->take[t];
	ZkTakeRequest request = zklock_take_request(&take->take);
	Path it = path_of(ITEM, take->item);
	Path child = path_of(CHILD, take->item);
	Path mark = mark_path(take->item, take->id);
	Packet p = {.type = WRITE, .what = TAKE, .who = t, .at = take->item};

	p.serial = (uint64_t) take->id;
	p.detail = (int) request;
	switch (request)
	{
		case ZKLOCK_TAKE_NOTHING:
			break;
		case ZKLOCK_TAKE_MARK:
		case ZKLOCK_TAKE_FINISH:
		case ZKLOCK_TAKE_GIVE:
		case ZKLOCK_TAKE_KEEP:
		case ZKLOCK_TAKE_FAIL:
			add_ops(&p, mark);
			break;
		case ZKLOCK_TAKE_BAR:
			add_op(&p, OP_CREATE, child, it);
			p.op[0].ephemeral = false;
			break;
		case ZKLOCK_TAKE_DELETE:
			add_op(&p, OP_DELETE, it, items_dir);
			break;
		case ZKLOCK_TAKE_REPAIR:
			add_op(&p, OP_CREATE, mark, held_dir);
			break;
		case ZKLOCK_TAKE_CLEAR:
			add_op(&p, OP_DELETE, mark, held_dir);
			break;
		case ZKLOCK_TAKE_WHOSE:
		case ZKLOCK_TAKE_SEE:
			p.type = READ;
			p.path = mark;
			break;
		case ZKLOCK_TAKE_SEE_IT:
			p.type = READ;
			p.path = child;
			break;
		case ZKLOCK_TAKE_READ_IT:
			p.type = READ;
			p.path = it;
			break;
	}
	return p;
}

/* Adds what a take asks for to what others ask for.  False: it is something else. */
static bool
join(Packet *all, const Packet *p)
{
	Part part = {.who = p->who, .at = p->at, .serial = p->serial};

	if (zklock_take_joint_ops((ZkTakeRequest) p->detail) == 0)
		return false;
	if (all->nparts == 0)
		*all = *p;
	else if (all->detail != p->detail || all->nparts == MAX_JOINT)
		return false;
	else
	{
		memcpy(all->op + all->nops, p->op, sizeof(Op) * (size_t) p->nops);
		all->nops += p->nops;
	}
	all->part[all->nparts++] = part;
	return true;
}

/* Asks for an item at once, behind its marks. */
static void
send_ahead(Server *s, const Packet *mark, int t)
{
	Take *take = &s->take[t];
	Packet p = {.type = READ, .what = TAKE, .who = t, .at = take->item};

	if (mark->detail != ZKLOCK_TAKE_MARK || once_in(2))
		return;
	COVER(AHEAD);
	zklock_take_ahead(&take->take);
	p.detail = ZKLOCK_TAKE_READ_IT;
	p.serial = (uint64_t) take->id;
	p.path = path_of(ITEM, take->item);
	conn_send(&s->conn, &p);
}

/* As worker/queue_takes.c does. */
static void
send_take(Server *s, int t, Packet *all)
{
	Packet p = take_packet(s, t);

	if (p.detail == ZKLOCK_TAKE_NOTHING || (once_in(2) && join(all, &p)))
		return;
	conn_send(&s->conn, &p);
	send_ahead(s, &p, t);
}

static void
send_all(Server *s, Packet *all)
{
	if (all->nparts > 1)
		COVER(JOINT);
	if (all->nparts > 0)
		conn_send(&s->conn, all);
	for (int i = 0; i < all->nparts; i++)
		send_ahead(s, all, all->part[i].who);
}

/* Some are put when all is well. */
static bool
may_put(void)
{
	return nids < (calm ? MAX_ITEMS : MAX_ITEMS - 10);
}

/* Transactions have put some items, and they are moved into the queue. */
static void
send_put(Server *s)
{
	Packet p = {.type = WRITE, .what = PUT, .at = nids};

	for (int n = 1 + random_below(3); n > 0 && may_put(); n--)
	{
		int of = make_id();

		add_op(&p, OP_CREATE, (Path){ITEM, id[of].hash, 0}, items_dir);
		p.op[p.nops - 1].sequential = true;
		p.op[p.nops - 1].ephemeral = false;
	}
	if (p.nops == 0)
		return;
	s->puts++;
	conn_send(&s->conn, &p);
}

static int
item_of(const char *name)
{
	for (int i = nitems; --i >= 0;)
		if (strcmp(item[i].name, name) == 0)
			return i;
	fail("\"%s\" is no item", name);
}

/* As worker/queue_takes.c does.  Was a take told that there is no item? */
static bool
work(Server *s)
{
	int which[ZKLOCK_ITEMS_WINDOW];
	int n;
	int listed;
	bool none = false;
	Packet all = {0};
	ZkChoice choice;

	if (!s->conn.up || s->conn.nc2s > MAX_WIRE / 4)
		return false;
	s->items.coming = s->puts > 0;
	for (int t = 0; t < NTAKES; t++)
	{
		Take *take = &s->take[t];

		send_take(s, t, &all);
		if (take->take.state != ZKLOCK_TAKE_WANTED)
			continue;
		listed = s->items.n;
		choice = zklock_items_choose(&s->items, which, &n);
		if (s->items.n < listed)
			COVER(COMPACT);
		switch (choice)
		{
			case ZKLOCK_CHOOSE_TAKE:
				take->item = item_of(s->items.item[which[0]].name);
				take->take.state = ZKLOCK_TAKE_TAKING;
				send_take(s, t, &all);
				break;
			case ZKLOCK_CHOOSE_LOOK:
				for (int i = 0; i < n; i++)
				{
					int at = item_of(s->items.item[which[i]].name);

					send_read(s, LOOK, CHILDREN, path_of(ITEM, at), at);
				}
				COVER(LOOKED);
				break;
			case ZKLOCK_CHOOSE_LIST:
				send_read(s, LIST, CHILDREN, items_dir, 0);
				break;
			case ZKLOCK_CHOOSE_LIST_HELD:
				send_read(s, LIST_HELD, CHILDREN, held_dir, 0);
				break;
			case ZKLOCK_CHOOSE_WAIT:
				if (s->items.coming)
					COVER(COMING);
				break;
			case ZKLOCK_CHOOSE_NONE:
				none = true;
				COVER(NONE);
				break;
		}
	}
	send_all(s, &all);
	return none;
}

/* What a read has shown of a take's mark, or of its item. */
static ZkReply
read_node(const Server *s, Take *take, const Packet *p)
{
	const Znode *node = zk_find(p->path, p->view);

	if (p->type != READ || p->rc != ZKLOCK_REPLY_OK || p->detail == ZKLOCK_TAKE_WHOSE)
		return p->rc;
	switch (p->detail)
	{
		case ZKLOCK_TAKE_SEE:
			return node->owner == s->conn.session ? ZKLOCK_REPLY_OK : ZKLOCK_REPLY_EXISTS;
		case ZKLOCK_TAKE_SEE_IT:
			return node->owner == s->conn.session && take_of(node) == take->id
				? ZKLOCK_REPLY_OK
				: ZKLOCK_REPLY_EXISTS;
		case ZKLOCK_TAKE_READ_IT:
			take->take.attempt = (int) zk_children_made(node, p->view);
			return item[p->at].unfit ? ZKLOCK_REPLY_EXISTS : ZKLOCK_REPLY_OK;
		default:
			return p->rc;
	}
}

/* Does the take wait for this reply? */
static bool
is_awaited(const Take *take, const Packet *m)
{
	bool awaited = take->id == (int) m->serial &&
		zklock_take_expects(&take->take, (ZkTakeRequest) m->detail);

	if (!awaited && m->detail == ZKLOCK_TAKE_READ_IT && m->rc == ZKLOCK_REPLY_OK)
		COVER(AHEAD_IN_VAIN);
	return awaited;
}

static void
take_reply(Server *s, const Packet *m)
{
	Take *take = &s->take[m->who];
	ZkTakeRequest request = (ZkTakeRequest) m->detail;
	ZkTakeNews news;
	bool was_whose = request == ZKLOCK_TAKE_WHOSE;

	if (!is_awaited(take, m))
		return;
	if (m->failed <= ZKLOCK_TAKE_UNDONE)
	{
		news = zklock_take_undone(&take->take, m->failed == ZKLOCK_TAKE_BEHIND);
		if (news == ZKLOCK_TAKE_MISSED)
			zklock_items_missed(&s->items, item[take->item].name, false);
		if (news == ZKLOCK_TAKE_MISSED)
			COVER(UNDONE_MISSED);
		else
			COVER(UNDONE);
		return;
	}
	news = zklock_take_reply(&take->take, request, read_node(s, take, m), m->failed);
	if (was_whose)
		COVER(WHOSE);
	/* after a session's end they are made anew */
	if (request == ZKLOCK_TAKE_MARK && m->rc == ZKLOCK_REPLY_OK)
		take->torn = false;
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
			if (request == ZKLOCK_TAKE_KEEP)
				COVER(KEPT);
			else
				COVER(BARRED);
			zklock_items_left(&s->items, item[take->item].name, false);
			break;
		case ZKLOCK_TAKE_FAILED:
			zklock_items_left(&s->items, item[take->item].name, true);
			break;
		case ZKLOCK_TAKE_STUCK:
			COVER(STUCK);
			item[take->item].stuck = true;
			zklock_items_set_aside(&s->items, item[take->item].name);
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
			if (request == ZKLOCK_TAKE_SEE_IT)
				COVER(SEEN);
			break;
		case ZKLOCK_TAKE_NO_DIRECTORY:
			if (request == ZKLOCK_TAKE_FAIL && !is_there(failed_dir))
				zk_make(failed_dir, root);
			break;
		case ZKLOCK_TAKE_REFUSED:
			break;
	}
}

static void
take_listing(Server *s, int64_t view)
{
	ZkItem *memory = s->memory[s->which = 1 - s->which];
	int n = 0;

	for (int i = 0; i < nitems; i++)
	{
		if (zk_find(path_of(ITEM, i), view) == NULL)
			continue;
		memory[n].sequence = item[i].sequence;
		strcpy(memory[n++].name, item[i].name);
	}
	zklock_items_listed(&s->items, memory, n,
						zk_children_made(zk_find(items_dir, view), view));
}

/* Several takes have asked together. */
static void
joint_reply(Server *s, const Packet *p)
{
	for (int i = 0; i < p->nparts; i++)
	{
		Packet part = part_of(p, i);

		part.failed =
			zklock_take_joint_failed((ZkTakeRequest) p->detail, p->rc, p->failed, i);
		take_reply(s, &part);
	}
}

/* Items were put: these are their names. */
static void
take_names(Server *s, const Packet *p)
{
	s->puts--;
	for (int i = 0; i < p->nops && p->rc == ZKLOCK_REPLY_OK; i++)
	{
		char name[ZKLOCK_ITEM_NAME];
		int n = s->items.n;

		COVER(PUT);
		snprintf(name, sizeof(name), "%.37s%010d", id[p->at + i].prefix,
				 (int) p->op[i].path.b);
		if (s->items.next >= 0 && p->op[i].path.b > s->items.next)
			COVER(GAP);
		zklock_items_put(&s->items, name);
		if (s->items.n > n)
			COVER(NEXT);
	}
}

static void
take_listing_of_held(Server *s, int64_t view)
{
	const char *held[MAX_ITEMS * MAX_MARKS];
	const Znode *c = zk_child(zk_find(held_dir, view), view);
	int n = 0;

	for (; c != NULL; c = zk_next(c, view))
	{
		if (n == MAX_ITEMS * MAX_MARKS)
			fail("too many marks");
		held[n++] = item[c->path.a].name;
	}
	zklock_items_listed_held(&s->items, held, n);
}

static void
receive(Server *s, const Packet *p)
{
	if (p->type == EVENT)
		zklock_items_changed(&s->items, p->path.kind == HELD);
	else if (p->what == PUT)
		take_names(s, p);
	else if (p->nparts > 0)
		joint_reply(s, p);
	else if (p->what == TAKE)
		take_reply(s, p);
	else if (p->rc == ZKLOCK_REPLY_LOST)
		return; /* all of this is forgotten */
	else if (p->what == LIST)
		take_listing(s, p->view);
	else if (p->what == LIST_HELD)
		take_listing_of_held(s, p->view);
	else if (p->what == LOOK)
		zklock_items_looked(&s->items, item[p->at].sequence, p->rc,
							zk_find(path_of(CHILD, p->at), p->view) != NULL);
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
			if (take->take.state == ZKLOCK_TAKE_FREE && !take->take.leaving)
				fail("take %d is over, and its backend waits", take->id);
			if (take->take.state != ZKLOCK_TAKE_DONE)
				zklock_items_left(&s->items, item[take->item].name, false);
		}
	}
}

/* A successor hears nothing of what was under way. */
static void
lose_connection(Server *s, bool successor)
{
	Packet p;

	TRACE("session %d: connection lost", s->conn.session);
	COVER(LOST);
	conn_break(&s->conn);
	if (successor)
		conn_succeed(&s->conn);
	while (conn_receive(&s->conn, &p))
		receive(s, &p);
	s->puts = 0;
	/* the end of a session comes without that of a connection */
	if (s->alive)
		start_again(s, false);
}

static void
disconnect(Server *s)
{
	lose_connection(s, false);
}

/* It begins with a write, so that whatever follows is of a leader. */
static void
connect_again(Server *s)
{
	if (s->alive)
		conn_reconnect(&s->conn);
	else
	{
		conn_open(&s->conn);
		s->alive = true;
		start_again(s, true);
	}
	conn_send(&s->conn, &(Packet){.type = SYNC, .what = BEGIN});
	conn_send(&s->conn, &(Packet){.type = WRITE, .what = BEGIN});
	for (int t = 0; t < NTAKES; t++)
		zklock_take_connected(&s->take[t].take);
}

static void
succeed(Server *s)
{
	if (s->conn.up)
		lose_connection(s, true);
	else
		conn_succeed(&s->conn);
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
	TRACE("session %d: item %d %s", s->conn.session, take->item,
		  commit ? "committed" : "rolled back");
	zklock_take_end(&take->take, commit);
	if (!commit)
	{
		COVER(ROLLED_BACK);
		return;
	}
	COVER(COMMITTED);
	if (take->session != s->conn.session)
		fail("item %d is committed, and was lost", take->item);
	if (take->told)
		fail("item %d is committed, and was told lost", take->item);
	if (take->torn && s->conn.up)
		fail("item %d is committed, and its marks were gone", take->item);
	if (take->torn)
	{
		COVER(UNAWARE);
		i->excused = true;
	}
	i->had = take->marked;
	i->back = false;
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
			if (once_in(2))
				take->take.most = 1 + random_below(2);
			break;
		case ZKLOCK_TAKE_WANTED:
		case ZKLOCK_TAKE_TAKING:
		case ZKLOCK_TAKE_READING:
		case ZKLOCK_TAKE_WORN:
			/* a move takes long */
			if (!take->take.leaving && once_in(take->take.most > 0 ? 30 : 4))
			{
				COVER(LEFT);
				zklock_take_leave(&take->take);
			}
			break;
		case ZKLOCK_TAKE_READ:
			if (!s->alive)
				break; /* without a lease nobody believes in it */
			take->take.state = ZKLOCK_TAKE_HELD;
			take->session = s->conn.session;
			COVER(TAKEN);
			TRACE("session %d has item %d", s->conn.session, take->item);
			if (item[take->item].unfit)
				fail("item %d is handed out, and zklock has not put it", take->item);
			if ((take->take.attempt < item[take->item].creates ||
				 take->take.attempt > item[take->item].creates + item[take->item].foreign) &&
				!take->torn)
				fail("item %d: attempt %d, but %d", take->item, take->take.attempt,
					 item[take->item].creates);
			break;
		case ZKLOCK_TAKE_HELD:
			if (!s->conn.up && !take->told && once_in(3))
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
	int i = nitems;

	if (!may_put())
		return;
	make_item(zk_find(items_dir, zk.zxid)->next);
	item[i].unfit = once_in(10);
	for (int n = random_below(3); n > 0; n--) /* it was taken before */
	{
		zk_make(path_of(CHILD, i), path_of(ITEM, i));
		zk_delete(path_of(CHILD, i));
		item[i].creates++;
	}
}

static void
step(void)
{
	Server *s = &server[random_below(NSERVERS)];
	Packet p;

	step_count++;
	if (once_in(60))
		put_item();
	else if (once_in(60) && s->conn.up && s->conn.nc2s < MAX_WIRE / 4)
		send_put(s);
	switch (random_below(6))
	{
		case 0:
			backend(s);
			break;
		case 1:
			(void) work(s);
			break;
		case 2:
			if (!conn_apply(&s->conn) && once_in(3))
				(void) conn_apply_zombie(&s->conn);
			break;
		case 3:
			if (conn_receive(&s->conn, &p))
				receive(s, &p);
			break;
		case 4:
			if (s->conn.cut || (s->conn.deposed && once_in(5)))
				disconnect(s);
			else if (!s->conn.up)
				connect_again(s);
			else
				(void) conn_catch_up(&s->conn);
			break;
		case 5:
			if (once_in(40) && s->conn.up)
				disconnect(s);
			else if (once_in(40) && s->alive)
				expire(s);
			else if (once_in(40))
				succeed(s);
			else if (zk.deposes && once_in(80))
				conn_depose(&s->conn);
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
		Packet p;

		while (conn_catch_up(&s->conn))
			;
		none |= work(s);
		if (s->conn.nc2s == 0 && s->conn.ns2c == 0)
			return none;
		while (conn_apply(&s->conn))
			;
		while (conn_receive(&s->conn, &p))
		{
			receive(s, &p);
			if (once_in(3))
				none |= work(s);
		}
	}
	fail("requests without an end");
}

/* Everybody is well, and has let go. */
static void
check_marks(void)
{
	for (int i = 0; i < nitems; i++)
	{
		const Znode *child = zk_find(path_of(CHILD, i), zk.zxid);

		if (child != NULL && !is_for_good(i))
			fail("item %d is marked by session %d, and nobody has it", i, child->owner);
		if (is_there(path_of(ITEM, i)) && item[i].commits > 0 &&
			item[i].creates == item[i].had && child == NULL && !item[i].back)
			fail("item %d is done, and can be had again, though nobody else had it", i);
	}
	if (zk_find(held_dir, zk.zxid)->nchildren > 0)
		fail("a mark is in held/, and nobody has the item");
}

/* Another server takes the oldest item that is to be had.  Returns it; -1: there is none. */
static int
lend(void)
{
	int oldest = -1;

	for (int i = 0; i < nitems; i++)
		if (is_there(path_of(ITEM, i)) && !is_there(path_of(CHILD, i)) &&
			!item[i].unfit && (oldest < 0 || item[i].sequence < item[oldest].sequence))
			oldest = i;
	if (oldest < 0)
		return -1;
	COVER(LENT);
	zk_make(path_of(CHILD, oldest), path_of(ITEM, oldest));
	zk_make(mark_path(oldest, 0), held_dir);
	item[oldest].creates++;
	return oldest;
}

/* ... and gives it back, of which the server hears. */
static int
give_back(Server *s, int i)
{
	if (i >= 0)
	{
		zk_delete(path_of(CHILD, i));
		zk_delete(mark_path(i, 0));
		(void) settle(s);
	}
	return -1;
}

static void
drain(void)
{
	Server *s = &server[0];
	Take *take = &s->take[0];
	int lent = -1;

	/* everybody is well, and lets go */
	zk.lags = zk.deposes = false;
	zk.lose_every = 0;
	for (int i = 0; i < NSERVERS; i++)
	{
		if (server[i].conn.up && (server[i].conn.deposed || !server[i].alive))
			disconnect(&server[i]);
		if (!server[i].conn.up)
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
	check_marks();
	calm = true;
	for (;;)
	{
		bool none;

		*take = (Take){.take = {.state = ZKLOCK_TAKE_WANTED}, .id = ++last_take};
		take->take.most = once_in(3);
		if (once_in(2))
			send_put(s);
		if (once_in(3))
			put_item();
		if (once_in(3))
			lent = give_back(s, lent);
		else if (lent < 0 && once_in(2))
			lent = lend();
		none = settle(s);
		if (take->take.state == ZKLOCK_TAKE_WANTED && none && lent < 0)
			break;
		if (take->take.state == ZKLOCK_TAKE_WANTED && none)
		{
			zklock_take_leave(&take->take);
			lent = give_back(s, lent);
			continue;
		}
		if (take->take.state != ZKLOCK_TAKE_READ)
			fail("a take is in state %d", take->take.state);
		take->take.state = ZKLOCK_TAKE_HELD;
		take->session = s->conn.session;
		if (item[take->item].commits > 0)
			item[take->item].excused = true; /* checked above, where it was committed */
		end_take(s, take, true);
		(void) settle(s);
	}
	for (int i = 0; i < nitems; i++)
	{
		bool there = is_there(path_of(ITEM, i));

		if (there && !item[i].unfit && !item[i].stuck && !item[i].unheard && !is_for_good(i))
			fail("item %d is there, and is not taken", i);
		if (there && item[i].moved)
			fail("item %d is there, and was moved away", i);
		if (!there && item[i].commits == 0 && !item[i].moved && !item[i].gone)
			fail("item %d is gone, and nobody has had it", i);
	}
}

void
play(uint64_t seed)
{
	random_state = seed;
	nitems = nids = last_take = 0;
	calm = false;
	zk_reset();
	zk.observe = observe;
	zk.lags = true;
	zk.lose_every = 40;
	zk.deposes = once_in(2);
	zk_make(items_dir, root);
	zk_make(held_dir, root);
	for (int s = 0; s < NSERVERS; s++)
	{
		memset(&server[s], 0, offsetof(Server, conn));
		server[s].conn.up = server[s].conn.cut = false;
		server[s].conn.nc2s = server[s].conn.ns2c = server[s].conn.nzombies = 0;
	}
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
	.report = zk_report,
};
