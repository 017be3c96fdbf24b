/*-------------------------------------------------------------------------
 *
 * server.h
 *	  One simulated server: its tables, its queues, its worker.
 *
 * The worker here does what dispatch.c and session.c do: it turns messages of
 * the connection and needs of the table into events, and performs the
 * protocol's actions.  On the way it checks what the actions claim.
 *
 * A queue, and the table entry that it belongs to, stands for a lock: then each has a
 * directory of its own.  Or it stands for one session's place among those that have or
 * want permits: then all are of one directory.  What is not the same there is the world's
 * (world.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "local.h"
#include "model.h"
#include "set_rules.h"

#define MAX_QUEUES MAX_DIRS

typedef enum SetState
{
	SET_IDLE,
	SET_QUEUES, /* at level 1, lock by lock */
	SET_WANTS,
	SET_HOLDS
} SetState;

/* A backend that wants several locks in one step: sets.c. */
typedef struct Set
{
	SetState state;
	uint64_t number;
	ZkLockMode mode;
	bool dirs[MAX_DIRS];
	int next;  /* QUEUES: to have level 1 of */
	bool slow; /* ... and to ask the ensemble then */
	bool no_wait;
	bool granted;  /* the worker says so ... */
	int64_t token; /* ... and this is its transaction's number */
	bool sent;	   /* once */
} Set;

typedef struct Server
{
	Conn conn;
	bool lost;				   /* no session at present */
	bool resuming;			   /* new worker, not connected yet */
	bool connected;			   /* as the worker was told */
	ZkLockEventType all_event; /* session event on its way to all queues */
	int all_next;			   /* queue that hears of it next, or -1 */
	bool resume_due;		   /* RESUMED has not reached all queues */
	uint64_t next_uuid;
	int generation[MAX_QUEUES];
	ZkLockQueue queue[MAX_QUEUES];
	Table table[MAX_QUEUES];
	int64_t told[MAX_QUEUES];	/* newest zxid that the queue heard of */
	bool refused[MAX_QUEUES];	/* the ensemble has refused something */
	bool polled[MAX_QUEUES];	/* ... or a name was too long for a watch */
	uint32_t asked[MAX_QUEUES]; /* as in ZkLockHint */
	int64_t denied[MAX_QUEUES]; /* token of a grant that was kept for nobody when a probe
								 * found it */
	int keep_rate;				/* grants may be kept, but for one in so many events;
								 * 0: not at all */
	int alone_rate;				/* ... a first listing watches but for one in so many */
	int recurring_rate;			/* ... a create is not listed but for one in so many */
	bool ancestors_due;			/* they were missing: it makes them */
	bool crowded;				/* too many watches: does without */
	int nwatched;				/* others' contenders that the library watches ... */
	int watched[MAX_WATCHES];	/* ... and has said so on this connection */
	Set set[NSETS];
	uint64_t next_set;
	int nabsent; /* contenders of this server that the leader does not have */
	struct
	{
		uint64_t uuid;
		int64_t sequence;
	} absent[256];
} Server;

extern int nservers;
extern int ndirs;
extern int nqueues; /* of each server */
extern Server servers[MAX_SERVERS];
extern bool faults; /* still happening */
extern bool counter_jumped[MAX_DIRS];
extern bool numbers_repeated[MAX_DIRS];

/* A queue's directory: as many queues as directories, or one directory. */
extern int queue_dir(int queue);

extern void server_init(Server *server);
extern bool server_receive(Server *server);
extern bool server_feed(Server *server);
extern bool server_need(Server *server, int queue);
extern bool server_tick(Server *server);
extern bool server_remove(Server *server, int queue);
extern void server_session_lost(Server *server);
extern bool server_owns(const Server *server, int node);
extern void server_send_set(Server *server, int set);
extern const ZkContender *server_contender(const Server *server, int queue, uint64_t uuid);
extern int server_find(const Server *server, const Node *node); /* queue, or -1 */
extern void server_forget(Server *server, int queue);
extern bool server_counts(const Server *server, int queue, ZkLockMode mode);
extern uint64_t server_session(const Server *server);
extern bool server_knows_all(const Server *server);
extern void servers_show(void);

/* Does anybody wait for what only a tick brings? */
extern bool servers_need_tick(void);

/* Nothing is on its way: nobody keeps for nobody what another one was denied. */
extern void servers_check_denied(void);
extern void check_invariants(void);

/* sets.c: what a set's backend does, and the worker for it.  Whether it did anything. */
extern bool set_start(Server *server);
extern bool set_admit(Server *server);
extern bool set_work(Server *server);
extern bool set_take(Server *server);
extern bool set_release(Server *server);
extern bool set_withdraw(Server *server);
extern bool sets_quiet(void);

/* The worker has told the tables something: a set that fails in one leaves all. */
extern void sets_notice(Server *server);
extern void check_sets(void);

#endif /* SIM_SERVER_H */
