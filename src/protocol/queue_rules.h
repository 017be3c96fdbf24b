/*-------------------------------------------------------------------------
 *
 * queue_rules.h
 *	  Hands out the items of queues, and ends takes and puts.
 *
 * Pure: no postgres.h, no zookeeper.h, no clock, no allocation.  The worker links it,
 * and the simulator (test/sim/queue_sim.c).
 *
 * A queue is a persistent directory <root>/queues/<encoded name>, with
 *
 *	 items/<id>-<sequence>
 *		an item, persistent and sequential; its data are the payload
 *	 items/.../held
 *		ephemeral: a session has taken the item; its data are the name of the other mark.
 *		Persistent: the item is done, and set aside
 *	 held/<item's name>.<take>
 *		a second mark: it names the take, and shows which items are taken without a look
 *		at each; its data name the server and process, for people
 *	 puts/<system>-<life>-<put>-<chunk>
 *		items of a transaction that has not committed yet, as far as the ensemble knows
 *
 * A take makes both marks at once.  The ensemble counts the children ever made of a
 * node, and so the attempts.
 *
 * An item's id is a UUID; the session that puts the item makes it.  So an item has its
 * id before it is in the ensemble, and keeps it everywhere: from its chunk into the
 * queue, to the queue of failed items, and back with a backup.  No two items have the
 * same name, whatever happens to the ensemble; the sequence number alone may be given
 * again.
 *
 * The number is the count of nodes ever made in items/.  A listing says what the next
 * one is.  If the items that a server puts then have the next numbers, nobody has made a
 * node in between, and the server needs no listing to know its items.  Otherwise there
 * may be older ones, and the server lists items/ before it takes them.
 *
 * Puts.  Before the commit the worker writes the items to puts/, in chunks, and the
 * ensemble acknowledges them.  When the transaction is over, the worker deletes each
 * chunk; if it has committed, the worker makes the chunk's items in the same step.  So
 * it can repeat the step until the outcome is known.  A server that finds a chunk that
 * nobody speaks for asks the commit log: zklock_put_judge.
 *
 * On each new connection the worker looks at the marks: an ensemble that was restored
 * may lack them although the session is there, or somebody may have deleted one.  An
 * item is lost unless both are there, and are this take's.
 *
 * The end of a take.  At the commit the worker deletes marks and item in one step,
 * otherwise the marks.  One of the marks has a name that no other take ever gives, and
 * the marks come and go together.  So the worker can repeat that step until it is
 * answered, and does no harm to a take that has the item by then.  If the session is
 * lost after the commit, the worker deletes the item alone.  The ensemble refuses that
 * while anybody has the item: its node has children.  If the marks are not both there,
 * the worker looks at the one below the item.  If that mark is this take's, the worker
 * makes the other one again and ends them together, because others watch held/.
 * Otherwise it deletes the mark in held/.
 *
 * An item was taken too often if the take that meets it says so.  The worker moves it
 * to the queue of failed items: in one step it deletes marks and item, and makes the
 * item there.  This step begins with the mark that no other take ever gives, like the
 * end of a take.  So the item is in one of the two queues, and a take that has it by
 * then is not disturbed.  If the move is refused, or is not known to be done when the
 * connection ends, it is given up: the take gives the item back, and the next take that
 * meets it moves it.
 *
 * Foreign hands.  Nobody gets data that zklock cannot have put, and they block nobody
 * (ZKLOCK_ITEM_ASIDE).  Somebody may make a node below an item.  Then the item can be
 * taken, but not deleted when it is done.  It gets a mark that stays, so that nobody
 * takes it again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_RULES_H
#define ZKLOCK_QUEUE_RULES_H

#include "zk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue_text.h"

/* ------------------------------------------------------------------------
 * The items of a queue, as this server knows them
 * ------------------------------------------------------------------------
 */

typedef enum ZkItemState
{
	ZKLOCK_ITEM_NEW,	 /* listed: nobody had it, for all we know */
	ZKLOCK_ITEM_FREE,	 /* looked at: nobody had it */
	ZKLOCK_ITEM_SUSPECT, /* gone, or somebody's, perhaps: to be looked at */
	ZKLOCK_ITEM_ASKED,	 /* is being looked at */
	ZKLOCK_ITEM_HELD,	 /* another server has it */
	ZKLOCK_ITEM_OURS,	 /* a take of this server is at it */
	ZKLOCK_ITEM_ASIDE,	 /* zklock has not put it: nobody is to have it */
	ZKLOCK_ITEM_GONE
} ZkItemState;

typedef struct ZkItem
{
	int64_t sequence;
	uint8_t state;				 /* ZkItemState */
	char name[ZKLOCK_ITEM_NAME]; /* key, with the sequence */
} ZkItem;

typedef struct ZkItems
{
	ZkItem *item; /* in their order; the caller's memory */
	int n;
	int first; /* nothing before it is to be had ... */
	int gone;  /* ... some of them are gone */
	/* those that others have are from here ... */
	int first_held;
	int end_held; /* ... to before this */
	int64_t next; /* all are known that have a smaller number; -1: that is not known */
	bool coming;  /* the caller's: items that this server has put are about to be known */
	bool known;	  /* as of a listing on this connection */
	bool listed;  /* it is all there is, or a watch will tell */
	bool held_known; /* as of a listing of held/, or a watch will tell */
	bool listing;	 /* a listing of items/ is out ... */
	bool listing_held;
	int asked; /* items ASKED */
	int wary;  /* items to be looked at before one tries to take them: others are here */
} ZkItems;

/* So many that are gone may stand among the others. */
#ifndef ZKLOCK_ITEMS_GONE
#define ZKLOCK_ITEMS_GONE 64
#endif

/* How many items are looked at at a time. */
#define ZKLOCK_ITEMS_WINDOW 16

typedef enum ZkChoice
{
	ZKLOCK_CHOOSE_TAKE,		 /* this one */
	ZKLOCK_CHOOSE_LOOK,		 /* look at these first: they are ASKED now */
	ZKLOCK_CHOOSE_LIST,		 /* list items/, with a watch */
	ZKLOCK_CHOOSE_LIST_HELD, /* list held/, with a watch */
	ZKLOCK_CHOOSE_WAIT,		 /* for a reply, or for what is coming */
	ZKLOCK_CHOOSE_NONE		 /* there is none that nobody has */
} ZkChoice;

/*
 * Finds the oldest item that nobody has, or the request that helps to find it.
 * "which": indexes, room ZKLOCK_ITEMS_WINDOW; one for TAKE, which is OURS then, *nwhich
 * for LOOK.
 */
extern ZkChoice zklock_items_choose(ZkItems *items, int *which, int *nwhich);

/*
 * Takes a listing of items/, in any order, and its memory, and sorts it.  What is known
 * about items that were there before stays.  Items that we or others have exist for as
 * long as the listing shows them.  "next": the number of the next node there.
 */
extern void zklock_items_listed(ZkItems *items, ZkItem *item, int n, int64_t next);

/*
 * This server has put an item, and the ensemble has given it this name.  The memory has
 * room for one more.  Call it for each, in their order.
 */
extern void zklock_items_put(ZkItems *items, const char *name);

/* Drops what is gone. */
extern void zklock_items_compact(ZkItems *items);

/* ... of held/; its names in any order.  May sort them. */
extern void zklock_items_listed_held(ZkItems *items, const char **held, int n);

/* A listing was not answered, or refused. */
extern void zklock_items_not_listed(ZkItems *items, bool held);

/* A look at an item, known by its number, was answered: is there a mark below it? */
extern void zklock_items_looked(ZkItems *items, int64_t sequence, ZkReply rc, bool held);

/* A take of ours has met somebody else: the item is theirs, or gone. */
extern void zklock_items_missed(ZkItems *items, const char *name, bool gone);

/* A take of ours has read data that zklock has not put. */
extern void zklock_items_set_aside(ZkItems *items, const char *name);

/* A take of ours is over: the item is gone, or anybody's again. */
extern void zklock_items_left(ZkItems *items, const char *name, bool gone);

/* A watch has fired. */
extern void zklock_items_changed(ZkItems *items, bool held);

/* The connection is lost, and with it watches and replies: only the items of our
 * takes are known for sure. */
extern void zklock_items_forget(ZkItems *items);

/* ------------------------------------------------------------------------
 * A take
 * ------------------------------------------------------------------------
 */

typedef enum ZkTakeState
{
	ZKLOCK_TAKE_FREE,
	ZKLOCK_TAKE_WANTED,	 /* it has no item yet */
	ZKLOCK_TAKE_TAKING,	 /* the marks are being made */
	ZKLOCK_TAKE_READING, /* they are made; the payload is not here yet */
	ZKLOCK_TAKE_WORN, /* it is here; the item was taken too often, and is to be moved away */
	ZKLOCK_TAKE_READ,	 /* it is here, and the backend is to fetch it */
	ZKLOCK_TAKE_HELD,	 /* the transaction has it */
	ZKLOCK_TAKE_DONE,	 /* ... and has committed */
	ZKLOCK_TAKE_RETURNED /* ... or not */
} ZkTakeState;

typedef struct ZkTake
{
	uint8_t state; /* ZkTakeState */
	bool leaving;  /* the backend has gone before it had it */
	bool open;	   /* a request is out */
	bool doubt;	   /* marks were asked for, and the reply is lost */
	bool whose;	   /* whose are the marks? */
	bool ahead;	   /* the item is asked for, though the marks may not be made */
	bool alone;	   /* DONE: the item without its marks is to be deleted */
	bool barred;   /* DONE: others have made a node below it, so it cannot be deleted */
	bool lost;	   /* HELD: the transaction has it no more, or was told so */
	bool gone;	   /* ... with the session: there is no mark of it */
	bool unseen; /* the marks were made on an earlier connection: are they there still? */
	bool half;	 /* ... the one in held/ is */
	bool torn;	 /* they are not both there and ours */
	bool ours;	 /* ... the one below the item is */
	bool others; /* ... it is not */
	int most;	 /* an item that was taken more often is moved away; 0: none is */
	int attempt; /* how often the item was taken, with this take; set before it is READ */
} ZkTake;

/* The requests. */
typedef enum ZkTakeRequest
{
	ZKLOCK_TAKE_NOTHING,
	ZKLOCK_TAKE_MARK,	 /* multi: create items/.../held, create held/... */
	ZKLOCK_TAKE_WHOSE,	 /* get held/...: is it there? */
	ZKLOCK_TAKE_SEE,	 /* ... and of our session?  EXISTS: it is not */
	ZKLOCK_TAKE_SEE_IT,	 /* get items/.../held: is it this take's?  EXISTS: it is not */
	ZKLOCK_TAKE_READ_IT, /* get items/... */
	ZKLOCK_TAKE_FAIL,	/* multi: delete held/..., items/.../held, and the item, create it
						 * in the queue of failed ones */
	ZKLOCK_TAKE_FINISH, /* multi: delete held/..., items/.../held, and the item */
	ZKLOCK_TAKE_DELETE, /* delete items/... */
	ZKLOCK_TAKE_KEEP,	/* multi: delete held/..., items/.../held, create that to stay */
	ZKLOCK_TAKE_BAR,  /* create items/.../held to stay.  EXISTS: somebody has the item */
	ZKLOCK_TAKE_GIVE, /* multi: delete held/..., items/.../held */
	ZKLOCK_TAKE_REPAIR, /* create held/... */
	ZKLOCK_TAKE_CLEAR	/* delete held/... */
} ZkTakeRequest;

/* What a reply means for the item. */
typedef enum ZkTakeNews
{
	ZKLOCK_TAKE_NO_NEWS,
	ZKLOCK_TAKE_MISSED,		  /* somebody else has it: another one is to be chosen */
	ZKLOCK_TAKE_VANISHED,	  /* it is gone: likewise */
	ZKLOCK_TAKE_ENDED,		  /* the take is over, and the item gone */
	ZKLOCK_TAKE_GIVEN,		  /* the take is over, and the item anybody's */
	ZKLOCK_TAKE_BARRED,		  /* the take is over, and the item is done and stays */
	ZKLOCK_TAKE_LOST,		  /* the transaction has lost it */
	ZKLOCK_TAKE_UNFIT,		  /* zklock has not put it: another one is to be chosen */
	ZKLOCK_TAKE_FAILED,		  /* it was moved away: likewise */
	ZKLOCK_TAKE_STUCK,		  /* it is to be, and cannot: likewise */
	ZKLOCK_TAKE_NO_DIRECTORY, /* held/ is missing, or after a FAIL where items go: make it */
	ZKLOCK_TAKE_REFUSED		  /* for good; the item is anybody's, or will be */
} ZkTakeNews;

/* Returns the request to send, if there is a connection.  It counts as sent. */
extern ZkTakeRequest zklock_take_request(ZkTake *take);

/*
 * A READ_IT is sent behind the MARK that was sent, on the same connection.  So it shows
 * the item with the marks, if they are made; otherwise its reply is nobody's.
 */
extern void zklock_take_ahead(ZkTake *take);

/* Does the take wait for the reply to this request? */
extern bool zklock_take_expects(const ZkTake *take, ZkTakeRequest request);

/*
 * Takes may make some requests together: one multi has the ops of each, one after the
 * other.  Returns how many ops such a request has; 0: it is none.
 */
extern int zklock_take_joint_ops(ZkTakeRequest request);

/*
 * The request of several takes was answered.  Returns "failed" as zklock_take_reply wants
 * it for the n-th of them, or one of these: another one's part was refused, and so
 * nothing was done.  BEHIND: that one has met somebody, or its item is gone, and the n-th
 * comes behind it.
 */
#define ZKLOCK_TAKE_UNDONE (-2)
#define ZKLOCK_TAKE_BEHIND (-3)

extern int zklock_take_joint_failed(ZkTakeRequest request, ZkReply rc, int failed, int n);

/*
 * ... then this is the reply.  Mostly the take asks again.  But MISSED: whoever has the
 * one item may have the next ones, too, and each would cost a step that is refused.  A
 * look at them costs less.  So it does for an item that no backend waits for.
 */
extern ZkTakeNews zklock_take_undone(ZkTake *take, bool behind);

/*
 * The request was answered.  "failed": the op of a multi that was refused.  EXISTS, of
 * a mark that was read: it is another's; of a READ_IT: zklock has not put the data.
 */
extern ZkTakeNews zklock_take_reply(ZkTake *take, ZkTakeRequest request, ZkReply rc,
									int failed);

/* The session goes on, on another connection: the open request is lost. */
extern void zklock_take_resumed(ZkTake *take);

/* Another session has begun: the worker has to look at marks that are there.  No
 * request is open. */
extern void zklock_take_connected(ZkTake *take);

/* The transaction is told that the item is lost, as far as is known.  From then on it
 * is, whatever turns out. */
extern void zklock_take_forfeit(ZkTake *take);

/* The session is lost.  Returns whether the transaction has lost the item by that. */
extern bool zklock_take_session_lost(ZkTake *take);

/* The backend goes before it has the item: an item that is there is given back. */
extern void zklock_take_leave(ZkTake *take);

/* The transaction that has the item ends. */
extern void zklock_take_end(ZkTake *take, bool committed);

/* ------------------------------------------------------------------------
 * A put
 * ------------------------------------------------------------------------
 */

/* The facts about a chunk that nobody in shared memory speaks for. */
typedef struct ZkPutFacts
{
	bool recovering;  /* we replay somebody's log */
	bool own_life;	  /* it was made since our shared memory is there */
	bool own_name;	  /* by a server of our name, and no other that lives has it */
	bool timeline;	  /* on our timeline */
	bool history;	  /* the record of its transaction is in our log */
	bool in_progress; /* the transaction, here */
	bool unknown;	  /* it is too old for the commit log */
	bool committed;
} ZkPutFacts;

typedef enum ZkPutVerdict
{
	ZKLOCK_PUT_MOVE,  /* it has committed: into the queue */
	ZKLOCK_PUT_DROP,  /* it never will */
	ZKLOCK_PUT_LATER, /* look again */
	ZKLOCK_PUT_LEAVE  /* it is not for us to say */
} ZkPutVerdict;

extern ZkPutVerdict zklock_put_judge(const ZkPutFacts *facts);

#endif /* ZKLOCK_QUEUE_RULES_H */
