/*-------------------------------------------------------------------------
 *
 * table.c
 *	  Manages the lock table in shared memory.
 *
 * Entries and proclocks are fixed arrays with free lists; buckets chain entries by
 * index.  Everything is addressed by index.  An index with a generation tells a late
 * reply of the ensemble whether its entry is still the one that asked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "postmaster/bgworker.h"

#include "settings.h"
#include "table.h"

ZkLockShared *zklock_shared = NULL;

ZkLockEntry *zklock_entries = NULL;
ZkProcLockPadded *zklock_proclocks = NULL;
static int32 *buckets;
static ZkLockHint *hints; /* one a bucket */
static volatile sig_atomic_t *loss_flags;
static ZkProc *procs;

/* The processes that zklock_entry_unlock wakes. */
static bool worker_due = false;
static ZkLockEntry *broadcast_due = NULL;

#ifdef USE_ASSERT_CHECKING
/* The entry for which a partition is locked, if it is one. */
static ZkLockEntry *locked_entry = NULL;
#endif

#define SESSION_LOCK (&zklock_shared->locks[ZKLOCK_NPARTITIONS].lock)

static int
proclock_count(void)
{
	/* one for each backend, every name once, and room for many readers of few names */
	return zklock_max_locks + 2 * MaxBackends;
}

static int
bucket_count(void)
{
	return (int) pg_nextpower2_32(Max(zklock_max_locks, ZKLOCK_NPARTITIONS));
}

static Size
table_size(void)
{
	Size size = sizeof(ZkLockShared);

	size = add_size(size, mul_size(sizeof(ZkLockEntry), zklock_max_locks));
	size = add_size(size, mul_size(sizeof(ZkProcLockPadded), proclock_count()));
	size = add_size(size, mul_size(sizeof(int32), bucket_count()));
	size = add_size(size, mul_size(sizeof(ZkLockHint), bucket_count()));
	size = add_size(size, MAXALIGN(mul_size(sizeof(sig_atomic_t), MaxBackends)));
	size = add_size(size, mul_size(sizeof(ZkProc), MaxBackends));
	return size;
}

static void
attach(void)
{
	char *p;

	/* shared memory begins at a cache line, and each of these three ends at one */
	Assert(TYPEALIGN(PG_CACHE_LINE_SIZE, (uintptr_t) zklock_shared) ==
		   (uintptr_t) zklock_shared);
	p = (char *) zklock_shared + sizeof(ZkLockShared);
	zklock_entries = (ZkLockEntry *) p;
	p += mul_size(sizeof(ZkLockEntry), zklock_max_locks);
	zklock_proclocks = (ZkProcLockPadded *) p;
	p += mul_size(sizeof(ZkProcLockPadded), proclock_count());
	buckets = (int32 *) p;
	p += mul_size(sizeof(int32), bucket_count());
	hints = (ZkLockHint *) p;
	p += mul_size(sizeof(ZkLockHint), bucket_count());
	loss_flags = (volatile sig_atomic_t *) p;
	p += mul_size(sizeof(sig_atomic_t), MaxBackends);
	procs = (ZkProc *) MAXALIGN(p);
}

static void
init(void)
{
	ZkLockShared *s = zklock_shared;

	SpinLockInit(&s->mutex);
	s->locks = GetNamedLWLockTranche("zklock");
	pg_atomic_init_u64(&s->lease_end, 0);
	pg_atomic_init_u64(&s->lost_at, 0);
	pg_atomic_init_u64(&s->last_write, 0);
	pg_atomic_init_u32(&s->njobs, 0);
	pg_atomic_init_u32(&s->nleaving, 0);
	pg_atomic_init_u32(&s->room_wanted, 0);
	pg_atomic_init_u32(&s->write_wanted, 0);
	pg_atomic_init_u32(&s->stands, 0);
	s->settle[0].soon = true; /* runs of before the start */
	pg_atomic_init_u64(&s->write_latency, 0);
	pg_atomic_init_u64(&s->read_latency, 0);
	pg_atomic_init_u32(&s->in_flight, 0);
	pg_atomic_init_u32(&s->abandoned, 0);
	ConditionVariableInit(&s->write_cv);
	s->nprocs = MaxBackends;
	for (int i = 0; i < s->nprocs; i++)
		procs[i].pending = -1;
	s->nentries = zklock_max_locks;
	s->nproclocks = proclock_count();
	s->nbuckets = bucket_count();
	s->first_dirty = s->last_dirty = -1;
	s->free_entry = s->nentries > 0 ? 0 : -1;
	/* those before are the backends' own */
	s->free_proclock = s->nprocs;
	s->session.state = ZKLOCK_SESSION_STARTING;
	s->session.not_connected_since = zklock_clock();
	zklock_history_init(&s->history);
	for (int i = 0; i < s->nentries; i++)
	{
		zklock_entries[i].next = i + 1 < s->nentries ? i + 1 : -1;
		zklock_entries[i].proclocks = -1;
		zklock_entries[i].next_dirty = -1;
		ConditionVariableInit(&zklock_entries[i].cv);
		pg_atomic_init_u64(&zklock_entries[i].election.leader, 0);
	}
	for (int i = 0; i < s->nproclocks; i++)
	{
		zklock_proclock(i)->next = i + 1 < s->nproclocks ? i + 1 : -1;
		zklock_proclock(i)->entry = -1;
	}
	for (int i = 0; i < s->nbuckets; i++)
		buckets[i] = -1;
}

const ZkSharedPart zklock_table_part = {
	.name = "zklock",
	.nlocks = ZKLOCK_NPARTITIONS + 1,
	.size = table_size,
	.memory = (void **) &zklock_shared,
	.attach = attach,
	.init = init,
};

/* ------------------------------------------------------------------------
 * Entries
 * ------------------------------------------------------------------------
 */

static LWLock *
partition_lock(int partition)
{
	Assert(partition >= 0 && partition < ZKLOCK_NPARTITIONS);
	return &zklock_shared->locks[partition].lock;
}

static int
hash_partition(uint32 hash)
{
	return (int) (hash % ZKLOCK_NPARTITIONS);
}

static int32 *
hash_bucket(uint32 hash)
{
	/* a bucket belongs to one partition, as both are powers of 2 */
	return &buckets[hash & (uint32) (zklock_shared->nbuckets - 1)];
}

uint32
zklock_name_hash(ZkLockKind kind, const char *name)
{
	Assert(name[0] != '\0' && strlen(name) <= ZKLOCK_NAME_MAX);
	return hash_bytes((const unsigned char *) name, (int) strlen(name)) ^ (uint32) kind;
}

bool
zklock_unlocked(void)
{
	return !LWLockAnyHeldByMe(&zklock_shared->locks[0].lock, ZKLOCK_NPARTITIONS + 1,
							  sizeof(LWLockPadded));
}

/* ------------------------------------------------------------------------
 * Invariants while nobody has an entry's lock (src/README, Invariants); for tests
 * ------------------------------------------------------------------------
 */

#ifdef USE_ASSERT_CHECKING

bool
zklock_in_worker(void)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_function_name, ZKLOCK_WORKER_MAIN) == 0;
}

bool
zklock_entry_is_locked(const ZkLockEntry *entry)
{
	return LWLockHeldByMeInMode(partition_lock(entry->partition), LW_EXCLUSIVE);
}

/* The counters agree with the proclocks, and nobody holds beside a writer. */
static void
check_proclocks(const ZkLockEntry *entry)
{
	int want[ZKLOCK_NMODES] = {0};
	int held[ZKLOCK_NMODES] = {0};
	int32 prev = -1;
	const ZkProcLock *writer = NULL;

	for (int32 i = entry->proclocks; i >= 0; prev = i, i = zklock_proclock(i)->next)
	{
		const ZkProcLock *proclock = zklock_proclock(i);

		Assert(proclock->entry == zklock_entry_index(entry) && proclock->prev == prev);
		Assert(proclock->pid != 0 || proclock->run.number > 0);
		Assert(zklock_kinds[entry->kind].modes || proclock->mode == ZKLOCK_EXCLUSIVE);
		Assert(!proclock->lost || proclock->state == ZKLOCK_PROCLOCK_HELD);
		if (proclock->state == ZKLOCK_PROCLOCK_WANTED && !proclock->failed)
			want[proclock->mode]++;
		if (proclock->state == ZKLOCK_PROCLOCK_HELD && !proclock->lost)
		{
			held[proclock->mode]++;
			if (proclock->mode == ZKLOCK_EXCLUSIVE)
				writer = proclock;
		}
	}
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		Assert(entry->want[mode] == want[mode] && entry->held[mode] == held[mode]);
	/* a leadership may be required by many */
	if (writer == NULL || zklock_kinds[entry->kind].by_server)
		return;
	Assert(held[ZKLOCK_EXCLUSIVE] == 1);
	zklock_foreach_proclock (proclock, entry)
		Assert(proclock->state != ZKLOCK_PROCLOCK_HELD || proclock->lost ||
			   proclock->pid == writer->pid);
}

/* Each hold, and each hold in the past, is on a grant that the queue has. */
static void
check_grants(const ZkLockEntry *entry)
{
	uint64 leader =
		pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &entry->election.leader));

	for (int i = 0; i < ZKLOCK_NMODES; i++)
	{
		ZkLockMode mode = (ZkLockMode) i;
		const ZkLockGrant *grant = &entry->grant[mode];
		const ZkContender *contender = zklock_lock_queue_grant(&entry->queue, mode);

		if (!grant->usable && entry->held[mode] == 0)
			continue;
		Assert(contender != NULL);
		/* a reader may have been given our writer's, which is larger */
		Assert(grant->token == contender->token ||
			   (mode == ZKLOCK_SHARED && grant->token > contender->token));
		Assert(!grant->usable || !grant->demanded || grant->handoffs > 0);
	}
	Assert(leader == 0 ||
		   (entry->kind == ZKLOCK_KIND_ELECTION && entry->election.candidate &&
			entry->grant[ZKLOCK_EXCLUSIVE].usable &&
			entry->grant[ZKLOCK_EXCLUSIVE].token == (int64) leader));
}

static void
check_entry(const ZkLockEntry *entry)
{
	bool usable =
		entry->grant[ZKLOCK_SHARED].usable || entry->grant[ZKLOCK_EXCLUSIVE].usable;

	Assert(entry->kind < ZKLOCK_NKINDS);
	Assert(entry->partition == hash_partition(entry->hash));
	check_proclocks(entry);
	check_grants(entry);
	/* a grant that is kept for nobody is counted */
	Assert((entry->kept_since != 0) ==
		   (usable && entry->proclocks < 0 && zklock_kinds[entry->kind].kept));
	Assert((entry->queue.permits > 0) == zklock_kinds[entry->kind].by_session);
	Assert(!entry->leaving || (entry->proclocks < 0 && entry->kept_since == 0));
}

#endif

LWLock *
zklock_entry_lock(ZkLockEntry *entry, LWLockMode mode)
{
	volatile ZkLockEntry *e = entry;

	Assert(zklock_unlocked());
	while (e->in_use)
	{
		int partition = e->partition;
		LWLock *lock = partition_lock(partition);
		bool in_use;

		LWLockAcquire(lock, mode);
		in_use = e->in_use;
		pg_read_barrier(); /* pairs with make_locked */
		if (in_use && e->partition == partition)
		{
#ifdef USE_ASSERT_CHECKING
			locked_entry = entry;
#endif
			return lock; /* only the lock's owner could free it now */
		}
		/* freed, and perhaps used again for another name, in between */
		zklock_entry_unlock(lock);
	}
	return NULL;
}

static ZkLockEntry *
find_locked(ZkLockKind kind, const char *name, uint32 hash)
{
	for (int32 i = *hash_bucket(hash); i >= 0; i = zklock_entries[i].next)
	{
		if (zklock_entries[i].hash == hash && zklock_entries[i].kind == kind &&
			strcmp(zklock_entries[i].name, name) == 0)
			return &zklock_entries[i];
	}
	return NULL;
}

static ZkLockEntry *
make_locked(ZkLockKind kind, const char *name, uint32 hash)
{
	ZkLockEntry *entry;
	int32 index;

	Assert(LWLockHeldByMeInMode(partition_lock(hash_partition(hash)), LW_EXCLUSIVE));
	SpinLockAcquire(&zklock_shared->mutex);
	index = zklock_shared->free_entry;
	if (index >= 0)
	{
		zklock_shared->free_entry = zklock_entries[index].next;
		zklock_shared->entries_used++;
		zklock_shared->entries_end = Max(zklock_shared->entries_end, index + 1);
	}
	SpinLockRelease(&zklock_shared->mutex);
	if (index < 0)
		return NULL;

	entry = &zklock_entries[index];
	Assert(!entry->in_use && !entry->dirty);
	entry->partition = hash_partition(hash);
	entry->generation++;
	entry->hash = hash;
	entry->kind = (uint8) kind;
	entry->proclocks = -1;
	entry->last_rc = 0;
	entry->last_pid = 0;
	entry->blocker = 0;
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		entry->want[mode] = entry->held[mode] = 0;
		memset(&entry->grant[mode], 0, sizeof(entry->grant[mode]));
	}
	entry->kept_since = 0;
	entry->leaving = false;
	entry->stat_serial = 0;
	entry->election.candidate = false;
	entry->election.verdict = false;
	entry->election.failed = false;
	entry->election.given_up = 0;
	entry->election.undecided = 0;
	entry->election.announced = 0;
	entry->election.changes = 0;
	entry->election.since = 0;
	entry->election.asked = false;
	entry->election.last_asked = 0;
	entry->election.abandoned = false;
	Assert(pg_atomic_read_u64(&entry->election.leader) == 0);
	/* the worker says otherwise when it first looks at the entry */
	zklock_lock_queue_init(&entry->queue, false);
	strlcpy(entry->name, name, sizeof(entry->name));
	entry->next = *hash_bucket(hash);
	*hash_bucket(hash) = index;
	pg_write_barrier(); /* pairs with zklock_entry_lock */
	entry->in_use = true;
	return entry;
}

/* Locks the partition that has the entries of this hash. */
static LWLock *
lock_hash(uint32 hash, LWLockMode mode)
{
	LWLock *lock = partition_lock(hash_partition(hash));

	Assert(zklock_unlocked());
	LWLockAcquire(lock, mode);
	return lock;
}

/* Returns the entry, found or made, and locked; or NULL, and not locked. */
static ZkLockEntry *
keep_locked(ZkLockEntry *entry, LWLock *lock)
{
#ifdef USE_ASSERT_CHECKING
	locked_entry = entry;
#endif
	if (entry == NULL)
		zklock_entry_unlock(lock);
	return entry;
}

ZkLockEntry *
zklock_entry_find(ZkLockKind kind, const char *name, bool make, LWLockMode mode,
				  LWLock **lock)
{
	return zklock_entry_find_hashed(kind, name, zklock_name_hash(kind, name), make, mode,
									lock);
}

ZkLockEntry *
zklock_entry_find_hashed(ZkLockKind kind, const char *name, uint32 hash, bool make,
						 LWLockMode mode, LWLock **lock)
{
	ZkLockEntry *entry;

	Assert(!make || mode == LW_EXCLUSIVE);
	Assert(hash == zklock_name_hash(kind, name));
	*lock = lock_hash(hash, mode);
	entry = find_locked(kind, name, hash);
	if (entry == NULL && make)
		entry = make_locked(kind, name, hash);
	return keep_locked(entry, *lock);
}

ZkLockEntry *
zklock_entry_add(ZkLockKind kind, const char *name, int permits, LWLock **lock)
{
	uint32 hash = zklock_name_hash(kind, name);
	ZkLockEntry *entry;

	*lock = lock_hash(hash, LW_EXCLUSIVE);
	entry = make_locked(kind, name, hash);
	if (entry != NULL)
		entry->queue.permits = permits;
	return keep_locked(entry, *lock);
}

ZkLockEntry *
zklock_entry_first(const ZkLockEntry *entry)
{
	Assert(LWLockHeldByMe(partition_lock(entry->partition)));
	return find_locked((ZkLockKind) entry->kind, entry->name, entry->hash);
}

ZkLockEntry *
zklock_entry_namesake(const ZkLockEntry *entry)
{
	Assert(LWLockHeldByMe(partition_lock(entry->partition)));
	for (int32 i = entry->next; i >= 0; i = zklock_entries[i].next)
	{
		if (zklock_entries[i].hash == entry->hash && zklock_entries[i].kind == entry->kind &&
			strcmp(zklock_entries[i].name, entry->name) == 0)
			return &zklock_entries[i];
	}
	return NULL;
}

void
zklock_entry_release(ZkLockEntry *entry)
{
	int32 index = zklock_entry_index(entry);
	bool leaving = false;
	bool dirty;
	int32 *link;

	Assert(zklock_entry_is_locked(entry));
	if (!entry->in_use || entry->proclocks >= 0 || entry->election.candidate ||
		!zklock_lock_queue_empty(&entry->queue))
		return;

	for (link = hash_bucket(entry->hash); *link != index; link = &zklock_entries[*link].next)
		;

	SpinLockAcquire(&zklock_shared->mutex);
	dirty = entry->dirty;
	if (!dirty)
	{
		*link = entry->next;
		leaving = entry->leaving;
		Assert(entry->held[ZKLOCK_SHARED] == 0 && entry->held[ZKLOCK_EXCLUSIVE] == 0);
		entry->in_use = false;
		entry->next = zklock_shared->free_entry;
		zklock_shared->free_entry = index;
		zklock_shared->entries_used--;
	}
	SpinLockRelease(&zklock_shared->mutex);
	if (leaving)
		pg_atomic_sub_fetch_u32(&zklock_shared->nleaving, 1);
	/* a dirty one is freed when the worker has looked at it */
}

void
zklock_entry_set_dirty(ZkLockEntry *entry)
{
	Assert(entry->in_use && zklock_entry_is_locked(entry));
	SpinLockAcquire(&zklock_shared->mutex);
	if (!entry->dirty)
	{
		int32 index = zklock_entry_index(entry);

		entry->dirty = true;
		entry->next_dirty = -1;
		if (zklock_shared->last_dirty >= 0)
			zklock_entries[zklock_shared->last_dirty].next_dirty = index;
		else
			zklock_shared->first_dirty = index;
		zklock_shared->last_dirty = index;
	}
	SpinLockRelease(&zklock_shared->mutex);
	worker_due = true;
}

void
zklock_entry_broadcast(ZkLockEntry *entry)
{
	Assert(broadcast_due == NULL || broadcast_due == entry);
	broadcast_due = entry;
}

void
zklock_entry_unlock(LWLock *lock)
{
	ZkLockEntry *entry = broadcast_due;
	bool wake = worker_due;

#ifdef USE_ASSERT_CHECKING
	if (locked_entry != NULL && locked_entry->in_use && zklock_entry_is_locked(locked_entry))
		check_entry(locked_entry);
	locked_entry = NULL;
#endif
	broadcast_due = NULL;
	worker_due = false;
	LWLockRelease(lock);
	/* should it be another's by now, that one wakes for nothing */
	if (entry != NULL)
		ConditionVariableBroadcast(&entry->cv);
	if (wake)
		zklock_worker_wake();
}

int32
zklock_table_next_dirty(void)
{
	int32 index;

	Assert(zklock_in_worker() && zklock_unlocked());
	SpinLockAcquire(&zklock_shared->mutex);
	index = zklock_shared->first_dirty;
	if (index >= 0)
	{
		zklock_shared->first_dirty = zklock_entries[index].next_dirty;
		if (zklock_shared->first_dirty < 0)
			zklock_shared->last_dirty = -1;
		zklock_entries[index].dirty = false;
		zklock_entries[index].next_dirty = -1;
	}
	SpinLockRelease(&zklock_shared->mutex);
	return index;
}

ZkLockEntry *
zklock_table_find(ZkLockKind kind, const char *name)
{
	LWLock *lock;
	ZkLockEntry *entry = zklock_entry_find(kind, name, false, LW_SHARED, &lock);

	Assert(zklock_in_worker());
	if (entry != NULL)
		zklock_entry_unlock(lock);
	return entry;
}

LWLock *
zklock_partition_lock(int partition, LWLockMode mode)
{
	LWLock *lock = partition_lock(partition);

	Assert(zklock_unlocked());
	LWLockAcquire(lock, mode);
	return lock;
}

ZkLockEntry *
zklock_partition_next(int partition, const ZkLockEntry *entry)
{
	int bucket = entry ? (int) (entry->hash & (uint32) (zklock_shared->nbuckets - 1))
					   : partition - ZKLOCK_NPARTITIONS;
	int32 index = entry ? entry->next : -1;

	Assert(LWLockHeldByMe(partition_lock(partition)));
	while (index < 0)
	{
		bucket += ZKLOCK_NPARTITIONS;
		if (bucket >= zklock_shared->nbuckets)
			return NULL;
		index = buckets[bucket];
	}
	return &zklock_entries[index];
}

bool
zklock_table_hope(void)
{
	if (zklock_table_kept() > 0)
		return true;
	pg_read_barrier(); /* pairs with the atomic add in zklock_grant_update_kept */
	return pg_atomic_read_u32(&zklock_shared->nleaving) > 0;
}

bool
zklock_table_any(bool (*what)(const ZkLockEntry *entry))
{
	for (int i = 0; i < zklock_entries_end(); i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		bool is;

		if (lock == NULL)
			continue;
		is = what(entry);
		zklock_entry_unlock(lock);
		if (is)
			return true;
	}
	return false;
}

int
zklock_table_entries(void)
{
	int n;

	SpinLockAcquire(&zklock_shared->mutex);
	n = zklock_shared->entries_used;
	SpinLockRelease(&zklock_shared->mutex);
	return n;
}

int
zklock_table_proclocks(void)
{
	uint32 n = 0;

	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
		n += zklock_shared->partition[i].nproclocks;
	return (int) n;
}

uint32
zklock_table_kept(void)
{
	uint32 n = 0;

	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
		n += zklock_shared->partition[i].nkept;
	return n;
}

ZkLockHint *
zklock_entry_hint(const ZkLockEntry *entry)
{
	/* a bucket's partition is its entries' */
	ZkLockHint *hint = &hints[entry->hash & (uint32) (zklock_shared->nbuckets - 1)];

	Assert(zklock_entry_is_locked(entry));
	if (hint->hash != entry->hash)
	{
		memset(hint, 0, sizeof(*hint));
		hint->hash = entry->hash;
		hint->sequence = -1;
	}
	return hint;
}

void
zklock_table_set_stopping(void)
{
	Assert(zklock_in_worker() && zklock_unlocked());
	zklock_shared->stopping = true;
	/* every backend that has looked at it before is done */
	for (int i = 0; i < ZKLOCK_NPARTITIONS; i++)
	{
		LWLockAcquire(partition_lock(i), LW_EXCLUSIVE);
		LWLockRelease(partition_lock(i));
	}
}

volatile sig_atomic_t *
zklock_loss_flag(int proc_number)
{
	Assert(proc_number >= 0 && proc_number < zklock_shared->nprocs);
	return &loss_flags[proc_number];
}

ZkProc *
zklock_proc(int proc_number)
{
	Assert(proc_number >= 0 && proc_number < zklock_shared->nprocs);
	return &procs[proc_number];
}

/* ------------------------------------------------------------------------
 * The session
 * ------------------------------------------------------------------------
 */

ZkSessionShared *
zklock_session_lock(LWLockMode mode)
{
	Assert(zklock_unlocked());
	Assert(mode == LW_SHARED || zklock_in_worker());
	LWLockAcquire(SESSION_LOCK, mode);
	return &zklock_shared->session;
}

void
zklock_session_unlock(void)
{
	LWLockRelease(SESSION_LOCK);
}

void
zklock_session_read(ZkSessionShared *copy)
{
	*copy = *zklock_session_lock(LW_SHARED);
	zklock_session_unlock();
}

void
zklock_job_want_settler(Oid database, bool soon)
{
	int to = 0;

	SpinLockAcquire(&zklock_shared->mutex);
	for (int i = 1; i < ZKLOCK_NSETTLE && OidIsValid(database); i++)
	{
		if (zklock_shared->settle[i].database == database)
		{
			to = i;
			break;
		}
		if (to == 0 && !OidIsValid(zklock_shared->settle[i].database))
			to = i;
	}
	if (to > 0)
		zklock_shared->settle[to].database = database;
	if (soon)
		zklock_shared->settle[to].soon = true;
	else
		zklock_shared->settle[to].later = true;
	SpinLockRelease(&zklock_shared->mutex);
	zklock_worker_wake();
}

void
zklock_worker_wake(void)
{
	Latch *latch;

	SpinLockAcquire(&zklock_shared->mutex);
	latch = zklock_shared->worker_latch;
	SpinLockRelease(&zklock_shared->mutex);
	if (latch != NULL)
		SetLatch(latch);
}
