/*-------------------------------------------------------------------------
 *
 * contender.h
 *	  Names on the wire: lock directories, contenders, sequence numbers.
 *
 * Everything here is pure: no postgres.h, no zookeeper.h, no allocation, no
 * clock.  The worker, the backends and the simulator link the same object.
 *
 * A name is 1 to ZKLOCK_NAME_MAX bytes of UTF-8.  A lock's queue is the
 * directory <root>/locks/<encoded name>; a contender is a child of it, named
 * _c_<uuid>-lock-<sequence> (exclusive) or _c_<uuid>-read-lock-<sequence>
 * (shared).  An election's is <root>/elections/<encoded name>, its contenders
 * are named _c_<uuid>-latch-<sequence>.  A job's is <root>/jobs/<encoded name>, with
 * contenders named as those of an exclusive lock.  Permits (semaphore_rules.h) are asked
 * for in <root>/semaphores/<encoded name>, by contenders named
 * _c_<uuid>-permit<N>-<sequence>, where N is the number of permits.  The high half of the
 * UUID is the session's, the low half the contender's, so that a listing tells our own
 * from everybody else's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZKLOCK_NAME_MAX 255 /* bytes of UTF-8, without the NUL */
/*
 * A name in a namespace is "<namespace>\377<name>".  No UTF-8 has that byte, so it
 * is no name in another namespace, nor in none.
 */
#define ZKLOCK_NAMESPACE_END '\377'

#define ZKLOCK_ENCODED_MAX	 (3 * ZKLOCK_NAME_MAX) /* without the NUL */
#define ZKLOCK_UUID_LEN		 36					   /* text form, without the NUL */
#define ZKLOCK_CONTENDER_LEN                                                             \
	64 /* of our own names without the sequence                                          \
		* number, with the NUL */

/*
 * A directory whose counter comes near the end of its 31 bits is refused:
 * at 2^31 - 1 the server hands out duplicates (src/README.locks).
 */
#define ZKLOCK_SEQUENCE_LIMIT (INT64_C(2147483648) - (1 << 20))

/* What a name names.  Each kind has names, and a directory, of its own. */
typedef enum ZkLockKind
{
	ZKLOCK_KIND_LOCK,
	ZKLOCK_KIND_ELECTION,  /* exclusive only */
	ZKLOCK_KIND_JOB,	   /* the same; see job_rules.h */
	ZKLOCK_KIND_BARRIER,   /* no lock: names and a directory; see barrier_rules.h */
	ZKLOCK_KIND_SEMAPHORE, /* exclusive only; see semaphore_rules.h */
	ZKLOCK_KIND_QUEUE,	   /* of work, and no lock: see queue_rules.h */
	ZKLOCK_NKINDS
} ZkLockKind;

/*
 * What is said when something of a kind is lost.  The texts have these words in braces:
 * {name}, as a literal of SQL; {mode} and {permits}, as held; {holder}, which is the
 * transaction or this session; {times} and {once}, where there are several holds.
 */
typedef struct ZkKindLoss
{
	const char *when;	/* it happened */
	const char *by_now; /* who may have it */
	const char *retry;	/* the hint, if the transaction is to be done again ... */
	const char *ways;	/* ... or if the session is to acknowledge it: by which calls */
	bool never_warns;	/* it is an error, whatever zklock.on_loss says */
} ZkKindLoss;

/* What distinguishes a kind from others, wherever no more than that matters. */
typedef struct ZkKind
{
	/* What stands before a name of it in messages, and in texts that servers write for
	 * each other; with an "s", the directory under the root. */
	const char *name;

	/* What a session has of a name of it, and may lose, as it stands before the name; and
	 * by itself.  NULL: nothing. */
	const char *held;
	const char *thing;
	ZkKindLoss loss;

	bool namespaced; /* zklock.namespace goes before its names */
	bool modes;		 /* it can be had in shared mode, too */
	bool by_server;	 /* the server has it, for all of its backends together */
	bool by_session; /* each session has an entry and a contender of its own: a place */
	bool unlocked;	 /* by zk_unlock_all, and so by what takes advisory locks away;
					  * zk_contenders, zk_lock_dirs and zk_break know it */
	bool kept;		 /* a grant may stay when nobody has it */
	bool shown;		 /* in zk_locks, and counted in zk_stat and zk_stat_locks */
	bool in_waits;	 /* in zk_waits */
	bool record;	 /* its directory has a record, and stays */
} ZkKind;

extern const ZkKind zklock_kinds[ZKLOCK_NKINDS];

/* The kind of that name, or -1. */
extern int zklock_kind_find(const char *name, size_t len);

#define ZKLOCK_PERMITS_MAX 1000000 /* of one name */

typedef enum ZkLockMode
{
	ZKLOCK_SHARED,
	ZKLOCK_EXCLUSIVE
} ZkLockMode;

#define ZKLOCK_NMODES 2

/* May two not have a lock in these modes at a time? */
static inline bool
zklock_modes_conflict(ZkLockMode a, ZkLockMode b)
{
	return a == ZKLOCK_EXCLUSIVE || b == ZKLOCK_EXCLUSIVE;
}

/* What a child's name in a lock directory says. */
typedef struct ZkLockChild
{
	const char *name; /* as listed; belongs to the listing */
	uint64_t hash;	  /* zklock_hash_child(name) */
	uint64_t uuid_hi; /* 0 and 0 unless the name has our form */
	uint64_t uuid_lo;
	int64_t sequence; /* negative: the server gives no such number any more */
	ZkLockMode mode;  /* foreign names count as exclusive */
	int permits;	  /* of a contender for one of so many; else 0 */
	bool sibling;	  /* of our session, but of another of its queues (dispatch.c) ... */
	bool leaving;	  /* ... that has sent its delete */
} ZkLockChild;

/* A name without its namespace. */
extern const char *zklock_local_name(const char *name);

/*
 * Bytes that anybody may have written.  Are they UTF-8 as PostgreSQL has it, without
 * surrogates, and without a NUL?
 */
extern bool zklock_is_utf8(const char *bytes, size_t len);

/*
 * How many bytes are left without the beginning of a character at the end, of which
 * the rest has been cut off.  As many as there are, if what is there is no UTF-8.
 */
extern size_t zklock_clip_utf8(const char *bytes, size_t len);

/*
 * The number in a name: digits of the base, 10 or 16, of these "max" at most, in lower
 * case.  Returns what follows them; NULL if they are fewer than "min".
 */
extern const char *zklock_read_digits(const char *text, int base, int min, int max,
									  uint64_t *value);

/*
 * A UUID as text, ZKLOCK_UUID_LEN characters in lower case, without a NUL.  They return
 * what follows it; NULL if there is none.
 */
extern char *zklock_write_uuid(char *out, uint64_t hi, uint64_t lo);
extern const char *zklock_read_uuid(const char *text, uint64_t *hi, uint64_t *lo);

/*
 * Percent-encode any bytes into text.  Encoded are '/', '%', every character that
 * ZooKeeper refuses in a path, all that is not UTF-8, and with "ascii" all that is not
 * ASCII; all else stays readable.  "buf" has room for 3 * len bytes and a NUL.  Returns
 * the length.
 */
extern size_t zklock_escape(const char *bytes, size_t len, bool ascii, char *buf);

/*
 * Percent-encode a lock name into a path element, as zklock_escape does without
 * "ascii", and the names "." and ".." as a whole.  "buf" has room for
 * ZKLOCK_ENCODED_MAX bytes and a NUL.  Returns the length.
 */
extern size_t zklock_encode_name(const char *name, char *buf);

/*
 * The inverse.  False when "encoded" is not what zklock_encode_name makes
 * (somebody else's directory) or the name would exceed ZKLOCK_NAME_MAX.
 * "buf" has room for ZKLOCK_NAME_MAX bytes and a NUL.
 */
extern bool zklock_decode_name(const char *encoded, char *buf);

/*
 * Write "_c_<uuid>-lock-", "_c_<uuid>-read-lock-" or "_c_<uuid>-latch-"; room:
 * ZKLOCK_CONTENDER_LEN.
 */
extern void zklock_format_contender(char *buf, uint64_t uuid_hi, uint64_t uuid_lo,
									ZkLockKind kind, ZkLockMode mode);

/* The same for one of so many permits: "_c_<uuid>-permit<N>-". */
extern void zklock_format_permit(char *buf, uint64_t uuid_hi, uint64_t uuid_lo,
								 int permits);

/*
 * Take a child's name apart.  False when it does not end in a sequence
 * number: no contender.
 */
extern bool zklock_parse_child(const char *name, ZkLockChild *child);

/* A 64-bit hash (FNV-1a) of a child's name; never 0. */
extern uint64_t zklock_hash_child(const char *name);

#endif /* ZKLOCK_CONTENDER_H */
