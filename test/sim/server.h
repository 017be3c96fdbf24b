/*-------------------------------------------------------------------------
 *
 * server.h
 *	  One simulated server: its table, its queues, its worker.
 *
 * The worker here does what dispatch.c and session.c do: it turns messages of
 * the connection and needs of the table into events, and performs the
 * protocol's actions.  On the way it checks what the actions claim.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "local.h"
#include "model.h"

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
	int generation[MAX_DIRS];
	ZkLockQueue queue[MAX_DIRS];
	Table table[MAX_DIRS];
	int64_t told[MAX_DIRS]; /* newest zxid that the queue heard of */
	bool refused[MAX_DIRS]; /* the ensemble has refused something */
	bool polled[MAX_DIRS];	/* ... or a name was too long for a watch */
	int keep_rate;			/* grants may be kept, but for one in so many events;
							 * 0: not at all */
	int alone_rate;			/* ... a first listing watches but for one in so many */
	int recurring_rate;		/* ... a create is not listed but for one in so many */
	bool crowded;			/* too many watches: does without */
} Server;

extern int nservers;
extern int ndirs;
extern Server servers[MAX_SERVERS];
extern bool faults; /* still happening */
extern bool counter_jumped[MAX_DIRS];
extern bool numbers_repeated[MAX_DIRS];

extern void server_init(Server *server);
extern bool server_receive(Server *server);
extern bool server_feed(Server *server);
extern bool server_need(Server *server, int dir);
extern void server_tick(Server *server);
extern void server_session_lost(Server *server);
extern bool server_owns(const Server *server, int node);
extern void check_invariants(void);
extern void reset_tokens(void);

#endif /* SIM_SERVER_H */
