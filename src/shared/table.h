/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Manages the lock table in shared memory, and the data about the ZooKeeper session
 *	  that all processes may read.
 *
 * The table has one entry for each name that somebody on this server holds, keeps or
 * waits for, and for each election in which the server is a candidate; for permits, one
 * for each session that holds, keeps or waits for one (semaphore_shared.h).  Backends
 * state in it what they want and have (want, held).  Only the worker moves the entry's
 * queue and publishes its outcome (grant).  The locks:
 *
 *	 the partition lock (an LWLock, by the name's hash) protects an entry's fields, its
 *	 proclocks, and the bucket chains and hints of its partition;
 *	 ZkLockShared.mutex (a spinlock) protects the free lists and how much is in use, the
 *	 list of dirty entries, worker_latch and settle; it is taken inside a partition lock,
 *	 never around one;
 *	 the session lock (an LWLock, the last of ZkLockShared.locks) protects the session's
 *	 fields, except those that only the worker reads;
 *	 lease_end, lost_at and last_write are atomic: the worker writes, anybody reads;
 *	 loss flags are set by the worker and by their backend; only the backend clears them.
 *
 * No process holds an LWLock across a wait, or two at once.  More in src/README, Shared
 * memory and its locks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TABLE_H
#define ZKLOCK_TABLE_H

#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "heartbeat.h"
#include "history.h"
#include "job_rules.h"
#include "lease.h"
#include "part.h"
#include "protocol.h"
#include "session_rules.h"
#include "zk.h"

/* of CLOCK_BOOTTIME */
#define NS_PER_MS INT64CONST(1000000)

/* A hold's scope. */
typedef enum ZkLockScope
{
	ZKLOCK_SCOPE_TRANSACTION,
	ZKLOCK_SCOPE_SESSION
} ZkLockScope;

#define ZKLOCK_NSCOPES 2

typedef enum ZkProcLockState
{
	ZKLOCK_PROCLOCK_LOCAL,	/* waits at level 1, or is about to */
	ZKLOCK_PROCLOCK_WANTED, /* counted in want[]: waits at level 2 */
	ZKLOCK_PROCLOCK_HELD	/* counted in held[], unless lost */
} ZkProcLockState;

/* Why a proclock ends without a hold. */
typedef enum ZkProcLockEnd
{
	ZKLOCK_PROCLOCK_END_CANCELED, /* or its backend ends */
	ZKLOCK_PROCLOCK_END_TIMEOUT,
	ZKLOCK_PROCLOCK_END_DEADLOCK,
	ZKLOCK_PROCLOCK_END_FAILED
} ZkProcLockEnd;

/*
 * One backend's part in one entry, in one mode, as PROCLOCK is in PostgreSQL's lock
 * manager.  It is made before the backend waits and freed when its last hold in the
 * mode ends, so that a grant or release of a lock need not allocate anything.
 */
typedef struct ZkProcLock
{
	int32 next;	 /* of the same entry, or of the free list */
	int32 prev;	 /* of the same entry, -1: the first */
	int32 entry; /* -1: free */
	int pid;	 /* 0: it was left to the server, until "run" is settled */
	int proc_number;
	ZkJobId run;				  /* of a job, which may be committing and is not settled
								   * yet; number 0: none.  See zklock_proclock_set_run */
	uint8 mode;					  /* ZkLockMode */
	uint8 state;				  /* ZkProcLockState */
	uint8 scope;				  /* ZkLockScope waited for */
	bool no_wait;				  /* content to hear that others have the lock */
	bool upgrade;				  /* a reader's who would write, and waits */
	bool lost;					  /* held, and the grant is gone: by the worker, or by its
								   * own backend (zklock_proclock_forfeit) */
	bool heard;					  /* wanted, and the worker has looked since */
	bool blocked;				  /* ... and says that others have it */
	bool failed;				  /* wanted, and refused: the worker says so */
	uint8 failure;				  /* ZkLockFailure, if failed */
	int failure_rc;				  /* ZooKeeper's code, or 0 */
	uint64 set;					  /* number of the set that it is of, 0: none */
	int32 set_next;				  /* another of the set, -1: no more; by the backend */
	bool asked;					  /* wanted for so long that it may be a deadlock ... */
	bool asks;					  /* ... and not looked at since; the worker resets it */
	uint32 count[ZKLOCK_NSCOPES]; /* holds, for zk_locks; by the backend, without
								   * the lock */
	TimestampTz wait_start;		  /* when it was made; 0: it took a hold at once */
	int64 held_since;			  /* if HELD: ns of CLOCK_BOOTTIME */
	/* for zk_locks */
	Oid database;
	Oid role;
	char application[NAMEDATALEN];
	/* for stat.c */
	bool waited;		  /* somebody was in the way when it came */
	uint8 end;			  /* ZkProcLockEnd; by the backend */
	uint32 again;		  /* holds taken while it had one; by the backend, without
						   * the lock */
	uint32 again_counted; /* of these */
} ZkProcLock;

/* In the table, where two backends shall not write the same cache line. */
typedef union ZkProcLockPadded
{
	ZkProcLock proclock;
	char pad[TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(ZkProcLock))];
} ZkProcLockPadded;

/* Returns when it came into this state.  Compare it only with others in the same
 * state: holders and waiters go by different clocks. */
static inline int64
zklock_proclock_since(const volatile ZkProcLock *proclock, ZkProcLockState state)
{
	return state == ZKLOCK_PROCLOCK_HELD ? proclock->held_since : proclock->wait_start;
}

/*
 * The data about a backend that has, or had, a proclock.  The backend writes them, and
 * the names before its first proclock, so that a process that finds the proclock finds
 * the names.
 */
typedef struct ZkProc
{
	int pid;					/* of whom the rest is */
	char database[NAMEDATALEN]; /* UTF-8 */
	char user[NAMEDATALEN];		/* the role that logged in; the same */
	int32 pending;				/* the proclock that it waits with, or -1; read without a
								 * lock, and to be checked then */
	TimestampTz wait_since;		/* since when it waits without a proclock, or 0: */
	ZkLockKind wait_kind;		/* for room in a queue, or for a job to be done */
	char wait_name[ZKLOCK_NAME_MAX + 1]; /* these three by the lock of queue_shared.h */
} ZkProc;

/* The worker's grant, as backends see it. */
typedef struct ZkLockGrant
{
	bool usable;   /* holds may be taken on it.  The worker sets it.  It
					* outlives its last hold while local backends wait ... */
	bool keep;	   /* ... and it may be kept for nobody */
	bool demanded; /* somebody else wants it, or may, for all we know */
	int handoffs;  /* if demanded: holds that may still be taken */
	uint32 holds;  /* taken so far */
	int64 token;
} ZkLockGrant;

/*
 * What the table remembers about a name when its entry is gone: advice, never truth.
 * The partition lock protects it.
 */
typedef struct ZkLockHint
{
	uint32 hash;	/* whose; names that collide share one in turn */
	int32 sequence; /* of our newest contender */
	uint32 asked;	/* ZkLockEvent.asked */
	uint8 streak;	/* contenders that we have had since in a row, with nobody
					 * else's between them */
	bool bounced;	/* a grant was kept, and demanded before that was of use */
	bool blocked;	/* somebody else had the lock when we last looked */
} ZkLockHint;

/* The most databases of an election that are told apart. */
#define ZKLOCK_ELECTION_DATABASES 4

/* This server's part in an election; see election_shared.h. */
typedef struct ZkElection
{
	bool candidate;	 /* a standing wish of the server, which pins the entry */
	bool verdict;	 /* the ensemble says who leads: we, or somebody before us */
	bool failed;	 /* it refused us, and has not granted it since */
	uint8 given_up;	 /* ZkLeaderEnd, of the latest leadership given up */
	int64 undecided; /* ns of CLOCK_BOOTTIME: since when there is no verdict */
	int64 announced; /* token of the leadership in the log, or 0; the worker's */
	int64 changes;	 /* of "announced" */
	int64 look_at; /* ns: while it leads, the worker looks then whether a candidate has a
					* higher priority */
	TimestampTz since;

	/* who wants it: see election_shared.h */
	bool asked;				/* since the worker looked; read and set without the lock */
	TimestampTz last_asked; /* 0: never.  The same */
	int64 idle_since;		/* ns: not asked for since then; the worker's, but at the
							 * beginning */
	Oid role; /* whose session made the candidacy; InvalidOid: the server's own */
	Oid databases[ZKLOCK_ELECTION_DATABASES]; /* in which it was asked for */
	bool crowded;							  /* ... and in others */
	bool abandoned; /* the extension has gone from the last of them */

	pg_atomic_uint64 leader; /* token while this server leads, else 0; good under
							  * the lease only.  Read without the lock */
} ZkElection;

typedef struct ZkLockEntry
{
	/* of the same bucket, or of the free list.  No cache line has two entries */
	int32 next pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	int partition; /* never changes while in use */
	bool in_use;
	uint32 generation; /* of this entry: a late reply is recognised */
	uint32 hash;
	uint8 kind;				 /* ZkLockKind */
	int32 proclocks;		 /* first ZkProcLock, or -1.  While there is
							  * one, the entry stays */
	int want[ZKLOCK_NMODES]; /* proclocks that are WANTED and have not failed */
	int held[ZKLOCK_NMODES]; /* ... that are HELD and not lost */
	ZkLockGrant grant[ZKLOCK_NMODES];
	ConditionVariable cv; /* broadcast when the grant, the queue, a proclock or
						   * the candidacy has changed for those who wait */
	int64 kept_since;	  /* ns: since when a grant is kept for nobody; 0:
						   * not so.  ZkPartition.nkept counts these */
	bool leaving;		  /* a kept grant was given up, and the entry is
						   * about to go; ZkLockShared.nleaving */
	int last_rc;		  /* newest refusal by the ensemble, or 0; the worker
						   * writes it without the lock */
	int last_pid;		  /* newest wish; goes into the contender's data */
	uint64 blocker;		  /* hash of the child for which a contender of ours
						   * waited last; the worker's, as is: */
	char blocker_server[NAMEDATALEN]; /* whose it is, in UTF-8; "": another program's */
	ZkLockQueue queue;				  /* written by the worker only */
	int stat_row;					/* stat.c: the name's, if its serial number is ... */
	uint32 stat_serial;				/* ... this; 0: not known */
	ZkElection election;			/* of that kind */
	char name[ZKLOCK_NAME_MAX + 1]; /* UTF-8 */

	/* protected by ZkLockShared.mutex */
	bool dirty; /* on the worker's list */
	int32 next_dirty;
} ZkLockEntry;

/*
 * The session.  Only the worker writes it, under the session lock.  The exceptions are
 * next_uuid, lease and heartbeat, which only the worker reads, and worker_started when
 * that becomes 0.
 */
typedef struct ZkSessionShared
{
	ZkSessionState state;
	int worker_pid; /* 0: none */
	ZkSessionId id; /* id.id 0: none to resume */
	int64 before;	/* id of the session of a life before that was kept, 0: none was */
	bool keeps;		/* it still is, with all that it has */
	uint64 uuid_hi; /* of this session's contenders */
	uint64 next_uuid;
	int timeout_ms;			   /* the shortest that was negotiated; see lease.h */
	int64 not_connected_since; /* ns of CLOCK_BOOTTIME; a connection on which no write
								* was acknowledged does not count */
	bool proven;			   /* one was, on this connection */
	int64 last_write;		   /* ns: when the newest heartbeat that was acknowledged was
								* sent, or since then the connection was admitted */
	bool open_told;			   /* the log says that our znodes are everybody's */
	long auth_pause;	 /* ms: the latest pause after refused credentials, or a base
						  * that could not be read; 0: all was well since */
	int64 auth_retry_at; /* ns of CLOCK_BOOTTIME: when it ends */
	ZkSessionState auth_state; /* what is shown in it */
	ZkLease lease;			   /* as published in lease_end and lost_at */
	ZkHeartbeat heartbeat;
	int32 servers;		  /* that were there when the connection began, ours too */
	int64 worker_started; /* the same clock; 0: the next need not pause */
	int64 opened_at;	  /* ... when the session was opened */
	int64 reconnects;	  /* of all sessions since the server's start */
	int64 expiries;
	char server[128]; /* host:port */
	char hosts[1024]; /* connect string in use */
	char names[2048]; /* what names in it stand for: a line "name:port=address:port,..."
					   * or "name:port!error" each.  Read by hosts_backend.c */
	bool looked_open; /* the znodes that were there were looked at, with credentials */
	char open_node[256]; /* a znode that is open to every client, though "zklock.acl" says
						  * otherwise; "": none was found */
	char library[64];	 /* that the worker talks to ZooKeeper with, and its version */
	char root[256];
	char attempts[1024]; /* what each host answered since the connection
						  * was lost, or: */
	bool other_trouble;	 /* ... what else is wrong, which says what to do */
	char last_error[512];
	TimestampTz last_error_at;
} ZkSessionShared;

/* May this server be a candidate now?  See "zklock.leader_eligible". */
typedef enum ZkEligibility
{
	ZKLOCK_ELIGIBLE_UNKNOWN, /* no worker yet */
	ZKLOCK_ELIGIBLE_NO,
	ZKLOCK_ELIGIBLE_YES
} ZkEligibility;

#define ZKLOCK_NPARTITIONS 16

/*
 * A database that may have runs of jobs to be settled.  The first one is InvalidOid:
 * the settler has to find out which databases have some.  Of the others, InvalidOid is
 * free.
 */
typedef struct ZkSettle
{
	Oid database;
	bool soon;	/* there are new ones */
	bool later; /* ... and some that could not be settled */
} ZkSettle;

#define ZKLOCK_NSETTLE 16

/* How much a partition has.  Its lock protects this; who makes a sum takes no lock. */
typedef struct ZkPartition
{
	/* proclocks of its entries */
	uint32 nproclocks pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	uint32 nkept; /* entries with a grant that is kept for nobody */
} ZkPartition;

/* Of the path of a server's node under <root>/servers. */
#define ZKLOCK_MEMBER_PATH_SIZE 1280

/*
 * Fields that each take of a kept lock reads have cache lines of their own, which only
 * the worker writes.  Such a take writes the name's entry, its partition and the
 * backend's own proclock, and each of these has lines of its own, too.
 */
typedef struct ZkLockShared
{
	slock_t mutex;
	int32 free_entry;
	int32 free_proclock;
	int32 first_dirty;
	int32 last_dirty;
	Latch *worker_latch; /* NULL: no worker */
	ZkSettle settle[ZKLOCK_NSETTLE];
	int entries_used;
	int entries_end; /* those from this index on were never in use */

	/* ns of CLOCK_BOOTTIME; see lease.h.  A claim is good before lease_end */
	pg_atomic_uint64 lease_end pg_attribute_aligned(PG_CACHE_LINE_SIZE);
	pg_atomic_uint64 lost_at;	 /* holds are lost from then on */
	pg_atomic_uint64 last_write; /* send time of the newest acknowledged write */
	bool stopping;				 /* no new holds: the server stops */
	LWLockPadded *locks;		 /* ZKLOCK_NPARTITIONS, then the session's */
	int nprocs;
	int nentries;
	int nproclocks;
	int nbuckets; /* a power of 2 */

	ZkPartition partition[ZKLOCK_NPARTITIONS];

	ConditionVariable write_cv;	  /* broadcast when a heartbeat was acknowledged */
	pg_atomic_uint32 njobs;		  /* jobs that sessions have: the holds that count */
	pg_atomic_uint32 nleaving;	  /* entries with one that has just been given up */
	pg_atomic_uint32 room_wanted; /* a backend found the table full of them */
	/* for zk_session; by the worker */
	pg_atomic_uint64 write_latency; /* ns: of the newest reply; 0: none yet */
	pg_atomic_uint64 read_latency;
	pg_atomic_uint32 stands;	  /* there is a new candidacy; the worker resets it */
	pg_atomic_uint32 in_flight;	  /* requests to the ensemble without a reply */
	pg_atomic_uint32 look_wanted; /* a proclock asks; the worker resets it */

	pg_atomic_uint32 write_wanted; /* a backend wants a write now: the worker
									* resets it when it sends one */

	ZkSessionShared session;

	/* the worker's alone */
	ZkHistory history;
	bool history_read;	  /* from its file */
	bool base_missing;	  /* <root>/tokens was not there */
	uint32 elections_led; /* announced, that is */
	int priority_told;	  /* zklock.leader_priority that our candidates' nodes say, and 1;
						   * 0: there are none yet */
	bool barriers_used;	  /* by sessions of this server */
	char member[ZKLOCK_MEMBER_PATH_SIZE]; /* the session's node under <root>/servers */
	int member_len;		 /* of the text that this node has, as far as we know */
	uint64 namesakes_of; /* hash of the path without the mark, if others were looked for */
	bool quota_refused;	 /* a quota refused the newest heartbeat that had a report */

	pg_atomic_uint32 abandoned; /* there are elections of that kind */
	bool draining;				/* zklock.drain: by the worker, read without lock */
	ZkEligibility eligible;		/* for leadership: by the worker, read without lock */

	/* entries, proclocks, bucket heads, as many hints, loss flags and backends follow */
} ZkLockShared;

/* NULL when not preloaded. */
extern PGDLLIMPORT ZkLockShared *zklock_shared;

extern const ZkSharedPart zklock_table_part;

/* The worker's entry point.  A process knows by it that it is the worker. */
#define ZKLOCK_WORKER_MAIN "zklock_worker_main"

/* Has this process neither a partition lock nor the session lock?  It must have
 * neither before it takes one, waits, or sends. */
extern bool zklock_unlocked(void);

/* --- for assertions --------------------------------------------------------- */

#ifdef USE_ASSERT_CHECKING

/* Is this process the worker? */
extern bool zklock_in_worker(void);

/* Does it have the entry's lock, exclusively? */
extern bool zklock_entry_is_locked(const ZkLockEntry *entry);

#endif

/* --- entries ------------------------------------------------------------ */

/* Arrays in shared memory. */
extern ZkLockEntry *zklock_entries;
extern ZkProcLockPadded *zklock_proclocks;

static inline ZkLockEntry *
zklock_entry(int32 index)
{
	Assert(index >= 0 && index < zklock_shared->nentries);
	return &zklock_entries[index];
}

/* For a process that looks at all entries: none from this index on is in use.  Read
 * without the mutex.  An entry that comes into use meanwhile may be missed, as it
 * would if its place was passed already. */
static inline int32
zklock_entries_end(void)
{
	return zklock_shared->entries_end;
}

static inline int32
zklock_entry_index(const ZkLockEntry *entry)
{
	Assert(entry >= zklock_entries && entry < zklock_entries + zklock_shared->nentries);
	return (int32) (entry - zklock_entries);
}

static inline ZkProcLock *
zklock_proclock(int32 index)
{
	Assert(index >= 0 && index < zklock_shared->nproclocks);
	return &zklock_proclocks[index].proclock;
}

static inline int32
zklock_proclock_index(const ZkProcLock *proclock)
{
	return (int32) ((const ZkProcLockPadded *) proclock - zklock_proclocks);
}

/* The proclocks of an entry, which is locked. */
static inline ZkProcLock *
zklock_next_proclock(int32 index)
{
	return index >= 0 ? zklock_proclock(index) : NULL;
}

#define zklock_foreach_proclock(proclock, entry)                                         \
	for (ZkProcLock *proclock = zklock_next_proclock((entry)->proclocks);                \
		 proclock != NULL; proclock = zklock_next_proclock(proclock->next))

/*
 * Locks an entry that may be freed and used again at any time.  Returns the lock, to be
 * released by zklock_entry_unlock; NULL: the entry is not in use.  A process that frees
 * the entry must not look at it again: it may belong to another partition.
 */
extern LWLock *zklock_entry_lock(ZkLockEntry *entry, LWLockMode mode);

/*
 * Finds the entry of a name, or if "make" makes one, with its lock in the given mode;
 * to make one, the mode is exclusive.  NULL, and no lock: there is none, or no room.
 */
extern ZkLockEntry *zklock_entry_find(ZkLockKind kind, const char *name, bool make,
									  LWLockMode mode, LWLock **lock);

/* The same for a caller that knows the name's hash. */
extern uint32 zklock_name_hash(ZkLockKind kind, const char *name);
extern ZkLockEntry *zklock_entry_find_hashed(ZkLockKind kind, const char *name, uint32 hash,
											 bool make, LWLockMode mode, LWLock **lock);

/*
 * Places (semaphore_shared.h).  Makes an entry of a kind and name that may have
 * several, with its lock, for one of "permits" permits; NULL, and no lock: there is no
 * room.  With an entry locked: returns the first of its kind and name, and the next
 * one, or NULL.
 */
extern ZkLockEntry *zklock_entry_add(ZkLockKind kind, const char *name, int permits,
									 LWLock **lock);
extern ZkLockEntry *zklock_entry_first(const ZkLockEntry *entry);
extern ZkLockEntry *zklock_entry_namesake(const ZkLockEntry *entry);

/* Locks a partition; zklock_entry_unlock releases it. */
extern LWLock *zklock_partition_lock(int partition, LWLockMode mode);

/* Returns the next entry of a partition, which is locked, or with NULL the first.
 * NULL: there is none. */
extern ZkLockEntry *zklock_partition_next(int partition, const ZkLockEntry *entry);

/*
 * Are there names that are kept for nobody, or on their way out?  If so, a failed
 * attempt to make an entry may be repeated.  Ask before the attempt, because an entry
 * that becomes free in between does not count any more.
 */
extern bool zklock_table_hope(void);

/* Is that true of an entry in use?  The function calls "what" with the entry locked. */
extern bool zklock_table_any(bool (*what)(const ZkLockEntry *entry));

/* How full is the table?  Entries and proclocks in use, and entries whose grant is kept
 * for nobody. */
extern int zklock_table_entries(void);
extern int zklock_table_proclocks(void);
extern uint32 zklock_table_kept(void);

/* The partition of an entry, which is locked. */
static inline ZkPartition *
zklock_partition(const ZkLockEntry *entry)
{
	return &zklock_shared->partition[entry->partition];
}

/*
 * With the entry locked: puts it on the worker's list; wakes the processes that sleep
 * on its "cv".  They wake when it is unlocked, because otherwise they would run into
 * the lock.
 */
extern void zklock_entry_set_dirty(ZkLockEntry *entry);
extern void zklock_entry_broadcast(ZkLockEntry *entry);

/* Releases the lock that one of the above has taken, and wakes the processes that
 * have to know. */
extern void zklock_entry_unlock(LWLock *lock);

/* --- for the worker ------------------------------------------------------ */

/* Take one entry off the list of dirty ones; -1 if there is none. */
extern int32 zklock_table_next_dirty(void);

/* Finds the entry of a name, or NULL.  The entry is not locked: only the worker moves
 * its queue, and while the queue is not empty the entry stays. */
extern ZkLockEntry *zklock_table_find(ZkLockKind kind, const char *name);

/* Free the entry if nothing refers to it any more.  With the entry locked. */
extern void zklock_entry_release(ZkLockEntry *entry);

/* The hint of the entry's name.  Locked. */
extern ZkLockHint *zklock_entry_hint(const ZkLockEntry *entry);

/* From here on no backend takes a hold. */
extern void zklock_table_set_stopping(void);

/* --- the lease ------------------------------------------------------------ */

/* May this server believe in its grants?  The answer holds for an instant: ask at the
 * moment of the claim. */
static inline bool
zklock_lease_valid_at(int64 now)
{
	return (uint64) now < pg_atomic_read_u64(&zklock_shared->lease_end);
}

static inline bool
zklock_lease_valid(void)
{
	return zklock_lease_valid_at(zklock_clock());
}

/* Has no write been acknowledged for a whole session timeout? */
static inline bool
zklock_lost_by(int64 now)
{
	return (uint64) now >= pg_atomic_read_u64(&zklock_shared->lost_at);
}

static inline bool
zklock_lease_lost(void)
{
	return zklock_lost_by(zklock_clock());
}

/*
 * A flag for each backend, by proc number.  The worker sets it when it marks one of the
 * backend's proclocks lost.  The backend clears it when it holds nothing, or nothing
 * that is lost, and sets it while it does.  A signal handler can read it.
 */
extern volatile sig_atomic_t *zklock_loss_flag(int proc_number);

/* Returns the data about a backend, by proc number. */
extern ZkProc *zklock_proc(int proc_number);

/* --- the session ---------------------------------------------------------- */

extern void zklock_session_read(ZkSessionShared *copy);
/* This database may have runs of jobs whose end only this server can tell, and has
 * not told.  InvalidOid: any database may.  "soon": without a pause since the attempt
 * before. */
extern void zklock_job_want_settler(Oid database, bool soon);
/* Wake the worker, if there is one. */
extern void zklock_worker_wake(void);

extern ZkSessionShared *zklock_session_lock(LWLockMode mode);
extern void zklock_session_unlock(void);

#endif /* ZKLOCK_TABLE_H */
