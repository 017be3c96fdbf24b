/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  The lock protocol: what one server does in one lock's queue.
 *
 * zklock_step() is a pure function of the queue's state and an event.  It reads no
 * clock, does no I/O and allocates nothing; it includes neither postgres.h nor
 * zookeeper.h.  The worker (dispatch.c) feeds it and performs its actions; the
 * simulator (test/sim) links the same object file and plays it against a model of
 * ZooKeeper.
 *
 * One ZkLockQueue stands for one name on one server.  It has up to ZKLOCK_NCONTENDERS
 * contenders: one active in each mode (both at once only in an upgrade), and older ones
 * on their way out.  The states of one contender, in short; src/README.locks has all
 * edges, and where the code takes them:
 *
 *	 state      moves on to
 *	 FREE       CREATING: needed; PROBING: needed only by sessions that would not wait;
 *	            READY: needed by a set
 *	 PROBING    BLOCKED: a listing shows somebody; CREATING: it shows nobody, or a
 *	            session has come that would wait
 *	 BLOCKED    PROBING: a session has come that would not wait; CREATING: one that would
 *	 READY      CREATING: all of the set are READY (set_rules.h)
 *	 CREATING   QUEUED: created; UNSETTLED: the reply is lost; FREE: refused; READY: it is
 *	            a set's, and another of the set was refused
 *	 UNSETTLED  QUEUED: a listing shows it; CREATING: no listing does; when that is
 *	            proven, READY, or FREE if not needed
 *	 QUEUED     WAITING: a listing shows somebody before us; GRANTED: it shows nobody;
 *	            FREE: a listing has shown it, and the leader does not have it
 *	 WAITING    GRANTED: the last one before us has gone; QUEUED: nobody knows who is left
 *	 QUEUED, WAITING and GRANTED
 *	            DELETING: not needed any more, refused, or removed by us;
 *	            FREE: somebody has deleted it
 *	 DELETING   FREE: deleted
 *
 * For permits (semaphore_rules.h) one ZkLockQueue is one session's place: a server has
 * one in a directory for each session that holds or wants a permit.  A place asks in
 * exclusive mode.  It has its own rule for who is granted a permit and what a waiter
 * watches.  The first of the places that wait watches for all of them and leads the
 * others.  See semaphore_siblings.h.
 *
 * Each request of the actions gets exactly one reply event, except a watch that is
 * already there.  The reply carries the request's uuid, or a listing's number.  A
 * session's end (ZKLOCK_EV_SESSION_LOST) and a new worker (ZKLOCK_EV_RESUMED) cancel
 * all open requests.  Replies and watch events arrive in wire order.  Replies to
 * requests of a lost connection arrive with ZKLOCK_RC_LOST before the next
 * ZKLOCK_EV_CONNECTED.
 *
 * A wish can belong to a set, whose locks are taken in one step.  Then its contender is
 * made with those of the set's other queues, in one transaction, and never alone.  The
 * contenders that this server had in the queue before are deleted in the same
 * transaction.  See set_rules.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROTOCOL_H
#define ZKLOCK_PROTOCOL_H

#include "contender.h"

#define ZKLOCK_NCONTENDERS 4

/*
 * A child with a longer name, in bytes, is not watched, but looked for at each TICK:
 * the watches of a connection have little room (watches.c).  The first who waits for a
 * permit watches no children that have longer names together.
 */
#ifndef ZKLOCK_WATCHED_MAX
#define ZKLOCK_WATCHED_MAX 32768
#endif

typedef enum ZkContenderState
{
	ZKLOCK_FREE,	  /* not in use */
	ZKLOCK_PROBING,	  /* no node: a listing is to say whether it is worth one */
	ZKLOCK_BLOCKED,	  /* no node: it was not, at that moment */
	ZKLOCK_READY,	  /* no node: it is made when all of the set are ready */
	ZKLOCK_CREATING,  /* create sent, no reply yet */
	ZKLOCK_UNSETTLED, /* create's reply lost: may or may not exist */
	ZKLOCK_QUEUED,	  /* exists; position not known (any more) */
	ZKLOCK_WAITING,	  /* behind "blocker", watched or being so */
	ZKLOCK_GRANTED,	  /* ours */
	ZKLOCK_DELETING	  /* must go; stays until confirmed gone */
} ZkContenderState;

typedef struct ZkContender
{
	uint8_t state;		  /* ZkContenderState */
	uint8_t mode;		  /* ZkLockMode */
	uint8_t attempts;	  /* creates that met no directory, in a row */
	bool own_watched;	  /* watch on our node confirmed on this
						   * connection */
	bool own_requested;	  /* ... or its reply outstanding, or refused */
	bool blocker_watched; /* watch on blocker confirmed */
	bool blocker_last;	  /* no other blocker is below it */
	bool polled;		  /* WAITING without a watch that it needs: list at
						   * each TICK */
	bool second_gone;	  /* WAITING: list, who is left before the blocker? */
	bool watch_later;	  /* GRANTED: no watch on our node before the next TICK */
	bool doubted;		  /* GRANTED: what has our name may be somebody else's, for all
						   * that a listing can say: only a get of it can tell */
	bool demanded;		  /* GRANTED, and others want it or might, for all we
						   * know: not to be kept for nobody */
	bool create_sent;	  /* create outstanding */
	bool delete_sent;	  /* delete outstanding, or refused */
	bool delete_refused;  /* ... try again at the next TICK */
	bool alike;			  /* without a token, and others in a listing have its mark, too:
						   * ours may be one of them */
	bool list_synced;	  /* the listing is to come after a sync */
	bool waited;		  /* of permits: has been WAITING ... */
	bool led;			  /* ... and is so, behind another place of this server */
	bool first;			  /* ... or watches the directory */
	bool unreadable;	  /* does so as others before it may not be read */
	bool wants_dir;		  /* ... and will again, most likely */
	bool mark_due;		  /* GRANTED: our node is to be written, for whoever waits
						   * behind it */
	bool mark_sent;		  /* ... that is outstanding, or refused; or QUEUED: to hear
						   * whether the leader has it */
	bool mark_refused;	  /* ... try again at the next TICK */
	uint64_t marked;	  /* hash of a blocker that was found written when watched */
	uint64_t list_needed; /* first listing that shows our position; or when there is
						   * to be one, see protocol.c */
	int permits;		  /* of so many, an orphan perhaps of others than its queue */
	int lacks;			  /* WAITING for a permit, and watches all of other sessions that
						   * are before it: so many of all must go before it is its
						   * turn; else 0 */
	int64_t sequence;
	int64_t token;	  /* czxid, 0 while not known */
	uint64_t uuid;	  /* low half; the high half is the session's */
	uint64_t set;	  /* made with those of this set's other locks, 0: alone */
	uint64_t blocker; /* hash of the watched child's name: WAITING, whom we wait for;
					   * GRANTED, somebody who demands it, if readers here want in */
	uint64_t second;  /* the same of the one before it, 0 if not watched */
} ZkContender;

/*
 * The state of the connection's view of the lock's directory itself.  Unlike the rest
 * of a queue it is worth keeping for the next time (succession.c), until the watch
 * fires or the connection is lost.
 */
typedef struct ZkLockSuccession
{
	bool watched;	/* data watch on the directory confirmed, and silent: it is the same
					 * directory all the time */
	bool requested; /* ... or its reply outstanding */
	int64_t last;	/* number of our newest exclusive grant meanwhile, -1: none */
} ZkLockSuccession;

#define ZKLOCK_NO_SUCCESSION ((ZkLockSuccession){.last = -1})

typedef struct ZkLockQueue
{
	int permits;	   /* of permits: how many there are; else 0 */
	int other_permits; /* ... another number that somebody named, as of the newest
						* listing; 0: none */
	bool connected;	   /* requests may be sent */
	bool needed[ZKLOCK_NMODES];	 /* what this server needs, last heard */
	bool probe[ZKLOCK_NMODES];	 /* ... by those who will not wait */
	uint64_t set[ZKLOCK_NMODES]; /* ... by this set, 0: by none */
	bool joins;					 /* ... by readers, of a grant that is held and takes no
								  * more holds */
	bool orphans_left;			 /* the newest listing has more than there was room for */
	bool orphans_refused;		 /* ... and another one was refused: at the next TICK */
	bool dir_watched;			 /* watch on the directory's children confirmed; the
								  * library takes it to the next connection */
	uint64_t dir_list;			 /* listing that is to set it, 0 if none is out */
	uint64_t list_sent;			 /* number of the newest listing asked for */
	uint64_t list_answered;		 /* number of the newest one answered */
	uint64_t list_synced;		 /* after RESUMED: no read before this listing's
								  * sync is recent enough; 0 otherwise */
	ZkLockSuccession succession;
	ZkContender contender[ZKLOCK_NCONTENDERS];
} ZkLockQueue;

/* A reply's code, as far as the protocol cares. */
typedef enum ZkLockRc
{
	ZKLOCK_RC_OK,
	ZKLOCK_RC_NO_NODE,
	ZKLOCK_RC_EXISTS,
	ZKLOCK_RC_LOST,	  /* connection lost: done or not, unknown */
	ZKLOCK_RC_UNDONE, /* not done, as something else in its transaction was refused */
	ZKLOCK_RC_ERROR	  /* the ensemble refused (e.g. no permission) */
} ZkLockRc;

typedef enum ZkLockEventType
{
	/* from the table */
	ZKLOCK_EV_NEED,	   /* needed[], spent[], probe[], joins, asks[], set[] */
	ZKLOCK_EV_JOINTLY, /* mode: from a set, see zklock_set_judge.  The queue's part is to
						* be made, again if it is there */
	ZKLOCK_EV_REMOVE,  /* uuid: somebody here takes this contender away */
	/* from the session; sent to every queue */
	ZKLOCK_EV_DISCONNECTED,
	ZKLOCK_EV_CONNECTED,	/* the same session on a new connection, or a
							 * new session after SESSION_LOST */
	ZKLOCK_EV_SESSION_LOST, /* expired or closed: all contenders are gone;
							 * not connected until the next CONNECTED */
	ZKLOCK_EV_RESUMED,		/* new worker, same session, connected */
	ZKLOCK_EV_TICK,			/* now and then, while connected: retry what was
							 * refused, forget what was not found.  Best sent
							 * when a write has been acknowledged: a deposed
							 * leader acknowledges none */
	/* replies; uuid as in the action, rc */
	ZKLOCK_EV_MADE_DIR,
	ZKLOCK_EV_CREATED,	   /* sequence, token */
	ZKLOCK_EV_LISTED,	   /* list, children, nchildren, next_number, changed */
	ZKLOCK_EV_WATCHED_OWN, /* token, owned */
	ZKLOCK_EV_WATCHED,	   /* hash of the child's name; marked */
	ZKLOCK_EV_WATCHED_DIR,
	ZKLOCK_EV_MARKED, /* token, owned */
	ZKLOCK_EV_DELETED,
	/* watch events; on a child: hash; uuid where it is of this session, else 0 */
	ZKLOCK_EV_NODE_DELETED,
	ZKLOCK_EV_NODE_CHANGED, /* any other: the watch is used up; name */
	ZKLOCK_EV_DIR_CHANGED,	/* somebody came or went, or the directory has gone */
	ZKLOCK_EV_DIR_GONE,		/* the directory has gone, or the data watch on it is used
							 * up otherwise */
	/* of permits, from another place of the same name here (semaphore_siblings.h) */
	ZKLOCK_EV_SEEN,	 /* a listing that it has asked for: as LISTED */
	ZKLOCK_EV_BESIDE /* something has become of it: ended */
} ZkLockEventType;

#define ZKLOCK_ENDED_UNKNOWN INT32_MAX /* look anew */

typedef struct ZkLockEvent
{
	ZkLockEventType type;
	bool needed[ZKLOCK_NMODES];	 /* NEED: somebody holds or waits, or the grant
								  * is kept for the next one */
	bool spent[ZKLOCK_NMODES];	 /* NEED: the present grant has served, and nobody holds
								  * it; it must be given up even if others wait */
	bool probe[ZKLOCK_NMODES];	 /* NEED: nobody would wait, and the lock was
								  * somebody else's when we last looked */
	bool joins;					 /* NEED: a reader waits to share the present grant, which
								  * is held and takes no more holds */
	bool asks[ZKLOCK_NMODES];	 /* NEED: one of those who would not wait has come
								  * since the last; no answer before is his */
	uint64_t set[ZKLOCK_NMODES]; /* NEED: the wish is of this set; nobody else here
								  * wants the lock or has it */
	ZkLockMode mode;			 /* JOINTLY */
	ZkLockRc rc;
	uint64_t uuid;
	uint64_t hash;
	const char *name; /* NODE_CHANGED: the child */
	int64_t sequence;
	int64_t token;
	uint64_t list;				 /* number of the listing answered */
	const ZkLockChild *children; /* contenders only, in any order */
	int nchildren;
	bool marked;			  /* WATCHED: the node was written since it was made */
	bool owned;				  /* WATCHED_OWN, MARKED: the node is our session's */
	int64_t next_number;	  /* LISTED: that the directory will give to the next
							   * contender */
	int64_t changed;		  /* LISTED: token of the newest transaction that made or
							   * deleted a child: the directory's pzxid */
	bool held[ZKLOCK_NMODES]; /* always: backends hold the grant */
	bool keep;				  /* always: a grant may be kept for the next one here
							   * while nobody else wants it */
	bool alone;				  /* always: nobody else is expected in the queue, so
							   * that a contender's first listing may watch the
							   * directory, too */
	bool recurring;			  /* always: this server comes back to the lock again and
							   * again, nobody else does, and grants are not kept */
	bool spare_watches;		  /* always: too many paths are watched; do without
							   * on grants, whose loss is then noticed later */
	bool no_watches;		  /* always: far too many; waiters do without, too */
	int ended;				  /* BESIDE: so many of ours that were before us have gone,
							   * or their deletes are on their way; or _UNKNOWN */
	int64_t leader;			  /* always, of permits: the lowest number of the contenders
							   * of other places here that wait, INT64_MAX: none; or
							   * somebody wants an answer of his own */
	int beside;				  /* always, of permits: contenders of other places here that
							   * are before one that would be made now; 0, if somebody
							   * wants an answer of his own */
	uint32_t asked;			  /* always: hash of the contender that was alone before one
							   * of ours: it has heard that we want the lock.  0: none */
	uint64_t session;		  /* always: high half of our UUIDs */
	uint64_t fresh_uuid;	  /* always: fresh_uuid .. + ZKLOCK_NCONTENDERS - 1
							   * were never used in this session */
} ZkLockEvent;

typedef enum ZkLockActionType
{
	ZKLOCK_ACT_MAKE_DIR,   /* index, uuid */
	ZKLOCK_ACT_WATCH_DIR,  /* index, uuid: get of the directory with a watch */
	ZKLOCK_ACT_CREATE,	   /* index, uuid, mode */
	ZKLOCK_ACT_LIST,	   /* list, sync: sync first, pipelined; watch: on
							* the directory's children */
	ZKLOCK_ACT_WATCH_OWN,  /* index, uuid: get with a watch */
	ZKLOCK_ACT_WATCH,	   /* index, uuid, name, hash: get with a watch; once: not if
							* there is one, as a reply on this connection said */
	ZKLOCK_ACT_MARK,	   /* index, uuid: write our node, for those behind it, or to
							* hear whether the leader has it */
	ZKLOCK_ACT_DELETE,	   /* index, uuid; jointly, as a CREATE: in the set's
							* transaction, which is answered for each as if it had
							* been asked for alone */
	ZKLOCK_ACT_GRANTED,	   /* mode, token, demanded: tell the table */
	ZKLOCK_ACT_BLOCKED,	   /* mode: somebody else has it; hash: of the contender that is
							* alone before ours, or 0 */
	ZKLOCK_ACT_DEMANDED,   /* mode: somebody else wants what we were granted */
	ZKLOCK_ACT_UNDEMANDED, /* mode: nobody does any more */
	ZKLOCK_ACT_REVOKED,	   /* mode: a grant is lost; its holders are
							* no need any more.  needed[mode] is false
							* until the next NEED, to be sent at once if
							* others wait */
	ZKLOCK_ACT_FAILED,	   /* mode, failure: tell all waiters of the mode.
							* needed[mode] is false until the next NEED */
	ZKLOCK_ACT_ABSENT	   /* uuid, sequence: the leader does not have this contender of
							* ours.  Listings of this connection are to be without it */
} ZkLockActionType;

/* Is it a request to the ensemble?  Otherwise it is a message to the table. */
static inline bool
zklock_action_is_request(ZkLockActionType type)
{
	return type < ZKLOCK_ACT_GRANTED;
}

typedef enum ZkLockFailure
{
	ZKLOCK_FAIL_DEADLOCK,	  /* upgrade behind another exclusive contender */
	ZKLOCK_FAIL_SEQUENCE,	  /* counter of the directory near its end */
	ZKLOCK_FAIL_NUMBER,		  /* a contender has a number that was not given yet */
	ZKLOCK_FAIL_NO_DIRECTORY, /* could not be made, or vanishes for ever */
	ZKLOCK_FAIL_REFUSED,	  /* ensemble refused: see the worker's last error */
	ZKLOCK_FAIL_RING /* deadlock_rules.h says so, not zklock_step: several locks wait for
					  * each other */
} ZkLockFailure;

typedef struct ZkLockAction
{
	ZkLockActionType type;
	int index;
	uint64_t uuid;
	ZkLockMode mode;
	int permits; /* in the contender's name; 0: a lock's */
	bool sync;
	bool watch;
	bool demanded;
	bool jointly;
	bool once;
	uint64_t list;
	const char *name; /* belongs to the event */
	uint64_t hash;
	int64_t sequence; /* DELETE, WATCH_OWN, MARK: where known, else -1 */
	int64_t token;
	ZkLockFailure failure;
} ZkLockAction;

#define ZKLOCK_MAX_ACTIONS 64

typedef struct ZkLockActions
{
	int n;
	ZkLockAction action[ZKLOCK_MAX_ACTIONS];
} ZkLockActions;

/* All contenders free, not connected, nothing needed. */
extern void zklock_lock_queue_init(ZkLockQueue *queue, bool connected);

/*
 * Only this function changes a queue.  It overwrites "actions"; the caller performs
 * them in order.
 */
extern void zklock_step(ZkLockQueue *queue, const ZkLockEvent *event,
						ZkLockActions *actions);

/* No contender, no need: the queue may be forgotten. */
extern bool zklock_lock_queue_empty(const ZkLockQueue *queue);

/* The state of a queue for a set that needs it. */
typedef enum ZkLockPart
{
	ZKLOCK_PART_UNREADY, /* something is to be settled first */
	ZKLOCK_PART_READY,	 /* no contender, and one can be made */
	ZKLOCK_PART_SENT,	 /* being made, or nobody knows whether it was */
	ZKLOCK_PART_QUEUED,	 /* in the queue */
	ZKLOCK_PART_GRANTED
} ZkLockPart;

/* "fixed": there is no room to make a new contender beside the present one. */
extern ZkLockPart zklock_lock_queue_part(const ZkLockQueue *queue, ZkLockMode mode,
										 uint64_t set, bool *fixed);

/* Is there a contender that no listing shows, and that a TICK would settle? */
extern bool zklock_lock_queue_wants_proof(const ZkLockQueue *queue);

/* Would a TICK do anything? */
extern bool zklock_lock_queue_wants_tick(const ZkLockQueue *queue);

/*
 * Finds the contenders of a queue that have the lock.  "queue" is all of it, in the
 * order of the numbers.  Nobody stands before an exclusive holder, and nobody exclusive
 * before a shared one; contenders of one session do not stand in each other's way.
 */
extern void zklock_find_holders(const ZkLockChild *queue, int n, bool *holds);

/* The granted contender of this mode, or NULL. */
extern const ZkContender *zklock_lock_queue_grant(const ZkLockQueue *queue,
												  ZkLockMode mode);

#endif /* ZKLOCK_PROTOCOL_H */
