/*-------------------------------------------------------------------------
 *
 * contender.h
 *	  Encodes and decodes names on the wire: lock directories, contenders, sequence
 *	  numbers.
 *
 * Everything here is pure: no postgres.h, no zookeeper.h, no allocation, no clock.  The
 * worker, the backends and the simulator link the same object.
 *
 * A name is 1 to ZKLOCK_NAME_MAX bytes of UTF-8.  Each kind of name has a directory,
 * and the children of a directory are contenders:
 *
 *	 lock       <root>/locks/<encoded name>, with the contenders
 *	            _c_<uuid>-lock-<sequence> (exclusive) and
 *	            _c_<uuid>-read-lock-<sequence> (shared)
 *	 election   <root>/elections/<encoded name>, with _c_<uuid>-latch-<sequence>
 *	 job        <root>/jobs/<encoded name>, with contenders named as an exclusive lock's
 *	 permits    <root>/semaphores/<encoded name>, with _c_<uuid>-permit<N>-<sequence>;
 *	            N is the number of permits (semaphore_rules.h)
 *
 * The high half of the UUID is the session's, the low half the contender's.  So a
 * listing shows which contenders are ours.
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
 * zklock refuses a directory whose counter comes near the end of its 31 bits: at
 * 2^31 - 1 the server hands out duplicates (src/README.locks).
 */
#define ZKLOCK_SEQUENCE_LIMIT (INT64_C(2147483648) - (1 << 20))

/* The kinds of names.  Each kind has its own names and its own directory. */
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
 * The message for the loss of something of a kind.  The texts have these words in
 * braces: {name}, as an SQL literal; {mode} and {permits}, as held; {holder}, the
 * transaction or this session; {times} and {once}, if there are several holds.
 */
typedef struct ZkKindLoss
{
	const char *when;	/* it happened */
	const char *by_now; /* who may have it */
	const char *retry;	/* the hint, if the transaction is to be done again ... */
	const char *ways;	/* ... or if the session is to acknowledge it: by which calls */
	bool never_warns;	/* it is an error, whatever zklock.on_loss says */
} ZkKindLoss;

/* How a kind differs from the others. */
typedef struct ZkKind
{
	/* Messages, and texts that servers write for each other, put this before a name
	 * of the kind.  With an "s" it is the directory under the root. */
	const char *name;

	/* What a session has of a name of this kind, and may lose: as it stands before
	 * the name, and by itself.  NULL: nothing. */
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

/* Do these modes exclude each other? */
static inline bool
zklock_modes_conflict(ZkLockMode a, ZkLockMode b)
{
	return a == ZKLOCK_EXCLUSIVE || b == ZKLOCK_EXCLUSIVE;
}

/* The parts of a child's name in a lock directory. */
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
 * Are these bytes, which anybody may have written, UTF-8 by PostgreSQL's rules: without
 * surrogates and without a NUL?
 */
extern bool zklock_is_utf8(const char *bytes, size_t len);

/*
 * Returns how many bytes are left without the beginning of a character that was cut off
 * at the end.  Returns all of them if the bytes are no UTF-8.
 */
extern size_t zklock_clip_utf8(const char *bytes, size_t len);

/*
 * Reads a number in a name: "min" to "max" digits of the base, 10 or 16, in lower case.
 * Returns what follows them; NULL if there are fewer than "min".
 */
extern const char *zklock_read_digits(const char *text, int base, int min, int max,
									  uint64_t *value);

/*
 * A UUID as text: ZKLOCK_UUID_LEN characters in lower case, without a NUL.  Both
 * functions return what follows it; NULL if there is none.
 */
extern char *zklock_write_uuid(char *out, uint64_t hi, uint64_t lo);
extern const char *zklock_read_uuid(const char *text, uint64_t *hi, uint64_t *lo);

/*
 * Percent-encodes any bytes into text: '/', '%', every character that ZooKeeper refuses
 * in a path, every byte that is not UTF-8, and with "ascii" everything that is not
 * ASCII.  The rest stays readable.  "buf" has room for 3 * len bytes and a NUL.
 * Returns the length.
 */
extern size_t zklock_escape(const char *bytes, size_t len, bool ascii, char *buf);

/*
 * Percent-encodes a lock name into a path element, as zklock_escape does without
 * "ascii"; the names "." and ".." are encoded as a whole.  "buf" has room for
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

/* The same for a contender for one of "permits" permits: "_c_<uuid>-permit<N>-". */
extern void zklock_format_permit(char *buf, uint64_t uuid_hi, uint64_t uuid_lo,
								 int permits);

/*
 * Splits a child's name into its parts.  False: it does not end in a sequence number,
 * and is no contender.
 */
extern bool zklock_parse_child(const char *name, ZkLockChild *child);

/* A 64-bit hash (FNV-1a) of a child's name; never 0. */
extern uint64_t zklock_hash_child(const char *name);

#endif /* ZKLOCK_CONTENDER_H */
