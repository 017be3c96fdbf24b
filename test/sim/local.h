/*-------------------------------------------------------------------------
 *
 * local.h
 *	  One server's lock table and backends, for the simulator.
 *
 * This stands for proclock.c and the backends: a few backends a name that want,
 * hold, upgrade, release and give up, excluded from each other as level 1
 * (PostgreSQL's lock manager) does it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_LOCAL_H
#define SIM_LOCAL_H

#include "protocol.h"

#define NBACKENDS 3
#define NSETS	  2 /* backends that want several locks in one step ... */
#define NPARTS	  (NBACKENDS + NSETS) /* ... and stand behind the others in each table */

typedef enum BackendState
{
	BACKEND_IDLE,
	BACKEND_QUEUES,			/* for "mode", at level 1 */
	BACKEND_WANTS,			/* "mode" */
	BACKEND_HOLDS,			/* "mode" */
	BACKEND_UPGRADE_QUEUES, /* holds shared, queues for exclusive at level 1 */
	BACKEND_UPGRADES,		/* holds shared, wants exclusive */
	BACKEND_HOLDS_BOTH,
	BACKEND_ADMITTED /* a set's: has level 1, and looks for it elsewhere */
} BackendState;

typedef struct Backend
{
	BackendState state;
	ZkLockMode mode;
	bool must_release; /* its upgrade met a deadlock */
	bool no_wait;	   /* leaves when it hears that others have the lock */
	int64_t asked_at;  /* zxid when it began to want */
	bool heard;		   /* the worker has looked since */
	bool blocked;	   /* ... and said that others have it */
	uint64_t set;	   /* a set's: its number */
	bool alone;		   /* ... it lets nobody else have level 1 beside it */
} Backend;

typedef struct Table
{
	Backend backend[NPARTS];
	bool usable[ZKLOCK_NMODES];	  /* holds may be taken on the grant */
	bool keep[ZKLOCK_NMODES];	  /* ... and it may be kept for nobody */
	bool demanded[ZKLOCK_NMODES]; /* somebody else wants it */
	int handoffs[ZKLOCK_NMODES];  /* then: holds that may still be taken */
	int64_t token[ZKLOCK_NMODES]; /* of the newest grant */
	int node[ZKLOCK_NMODES];	  /* ... and its node in the model */
	bool dirty;					  /* the worker has not looked yet */
	int handoff_limit;			  /* holds of local waiters after a demand */
} Table;

extern int table_want(const Table *table, ZkLockMode mode);
extern int table_held(const Table *table, ZkLockMode mode);
extern bool table_quiet(const Table *table);

/* Does a reader wait to share a grant that others here hold? */
extern bool table_joins(const Table *table);

/* What backends do.  False when it is not possible now. */
extern bool table_start(Table *table, int backend, ZkLockMode mode, bool no_wait);
extern bool table_admit(Table *table, int backend);
extern bool table_upgrade(Table *table, int backend);
extern bool table_take(Table *table, int backend);
extern bool table_withdraw(Table *table, int backend);
extern bool table_release(Table *table, int backend, bool all);

/*
 * The part of a set, of number NBACKENDS or more.  It begins; has level 1; takes the
 * grant if there is one with this token, or with 0 one that nobody demands; states its
 * wish, or takes it back; goes.
 */
extern void table_set_begin(Table *table, int backend, ZkLockMode mode, uint64_t set,
							bool no_wait, bool alone);
extern bool table_set_admit(Table *table, int backend);
extern bool table_set_take(Table *table, int backend, int64_t token);
extern void table_set_want(Table *table, int backend);
extern void table_set_leave(Table *table, int backend);

/* What the worker does. */
extern void table_need(Table *table, const ZkLockQueue *queue, ZkLockEvent *event);
extern void table_granted(Table *table, ZkLockMode mode, int64_t token, int node,
						  bool keep, bool demanded);
extern void table_demanded(Table *table, ZkLockMode mode);
extern void table_undemanded(Table *table, ZkLockMode mode);
extern void table_blocked(Table *table, ZkLockMode mode);
extern bool table_evict(Table *table);
extern void table_revoked(Table *table, ZkLockMode mode);
extern void table_failed(Table *table, ZkLockMode mode, ZkLockFailure failure);

#endif /* SIM_LOCAL_H */
