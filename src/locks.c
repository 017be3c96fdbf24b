/*-------------------------------------------------------------------------
 *
 * locks.c
 *	  SQL-callable functions: arguments in, results out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "common/int.h"
#include "common/string.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "acquire.h"
#include "check.h"
#include "names.h"
#include "arguments.h"
#include "hold.h"
#include "loss.h"
#include "query.h"
#include "room.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_token);
PG_FUNCTION_INFO_V1(zk_assert);
PG_FUNCTION_INFO_V1(zk_lock_session);
PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);

const PGFunction zklock_acknowledging[] = {zk_lock,		  zk_try_lock,	   zk_unlock,
										   zk_unlock_all, zk_lock_session, NULL};

/* ------------------------------------------------------------------------
 * Arguments
 * ------------------------------------------------------------------------
 */

/* How many bytes our namespace takes of each lock name. */
static size_t
namespace_len(void)
{
	size_t len = strlen(zklock_namespace);

	return len > 0 ? len + 1 : 0;
}

bool
zklock_in_namespace(const char *name)
{
	size_t len = (size_t) (zklock_local_name(name) - name);

	return len == namespace_len() &&
		(len == 0 || memcmp(name, zklock_namespace, len - 1) == 0);
}

/* ASCII needs no conversion, and some encodings have none to UTF-8. */
char *
zklock_to_utf8(text *arg)
{
	char *name = text_to_cstring(arg);

	return pg_is_ascii(name) ? name : pg_server_to_any(name, (int) strlen(name), PG_UTF8);
}

/* Elections are the server's and have no namespace. */
void
zklock_get_name(ZkLockKind kind, text *arg, char *buf)
{
	bool election = kind == ZKLOCK_KIND_ELECTION;
	char *utf8 = zklock_to_utf8(arg);
	size_t len = strlen(utf8);
	size_t prefix = election ? 0 : namespace_len();
	int max = ZKLOCK_NAME_MAX - (int) prefix;

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s name must not be empty", election ? "election" : "lock"),
				 errdetail("%s name has 1 to %d bytes in UTF-8.",
						   election ? "An election" : "A lock", ZKLOCK_NAME_MAX)));
	if (len > (size_t) max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s name is too long", election ? "election" : "lock"),
				 errdetail("The name has %zu bytes in UTF-8; %s name has 1 to %d.", len,
						   election ? "an election" : "a lock", max),
				 prefix > 0 ? errhint("The namespace \"%s\" counts, too.", zklock_namespace)
							: 0));
	if (prefix > 0)
	{
		memcpy(buf, zklock_namespace, prefix - 1);
		buf[prefix - 1] = ZKLOCK_NAMESPACE_END;
	}
	memcpy(buf + prefix, utf8, len + 1);
}

static void
get_name(text *arg, char *buf)
{
	zklock_get_name(ZKLOCK_KIND_LOCK, arg, buf);
}

/* Mode and scope stand side by side, and who names one by its place may have taken it
 * for the other. */
static const char *const modes[] =
	{[ZKLOCK_EXCLUSIVE] = "exclusive", [ZKLOCK_SHARED] = "shared"};
static const char *const scopes[] =
	{[ZKLOCK_TRANSACTION] = "transaction", [ZKLOCK_SESSION] = "session"};

/* Which of two words; -1: neither. */
static int
which(const char *word, const char *const words[2])
{
	return strcmp(word, words[0]) == 0 ? 0 : strcmp(word, words[1]) == 0 ? 1 : -1;
}

static ZkLockMode
get_mode(text *arg, bool takes_scope)
{
	char *word = text_to_cstring(arg);
	int mode = which(word, modes);

	if (mode < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized lock mode \"%s\"", word),
				 takes_scope && which(word, scopes) >= 0
					 ? errhint("This is a scope: write scope => '%s'.", word)
					 : errhint("Allowed modes are \"exclusive\" and \"shared\".")));
	return (ZkLockMode) mode;
}

static ZkLockScope
get_scope(text *arg)
{
	char *word = text_to_cstring(arg);
	int scope = which(word, scopes);

	if (scope < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized lock scope \"%s\"", word),
				 which(word, modes) >= 0
					 ? errhint("This is a mode: write mode => '%s'.", word)
					 : errhint("Allowed scopes are \"transaction\" and \"session\".")));
	return (ZkLockScope) scope;
}

int64
zklock_get_timeout(const Interval *arg, const char *what)
{
	int64 days;
	int64 usecs;

	if (ZKLOCK_INTERVAL_IS_ENDLESS(arg))
		return ZKLOCK_WAIT_FOREVER;
	/* no interval reaches beyond 64 bits of microseconds in days and months */
	days = (int64) arg->month * DAYS_PER_MONTH + arg->day;
	if (ZKLOCK_INTERVAL_IS_MINUS_ENDLESS(arg) ||
		pg_mul_s64_overflow(days, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, arg->time, &usecs) || usecs < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative or out of range", what),
				 errhint("Use an interval of zero or more, such as '5 s'.")));
	/* a century is for ever, and leaves room for the clock */
	if (usecs > INT64CONST(36525) * USECS_PER_DAY)
		return ZKLOCK_WAIT_FOREVER;
	return (usecs + 999) / 1000;
}

Interval *
zklock_make_interval(int64 us)
{
	Interval *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return interval;
}

/* ------------------------------------------------------------------------
 * Functions
 * ------------------------------------------------------------------------
 */

/* zk_lock(name text, mode text, scope text) returns bigint */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	ZkLockScope scope;
	int64 token = 0;

	zklock_check_callable();
	get_name(PG_GETARG_TEXT_PP(0), name);
	mode = get_mode(PG_GETARG_TEXT_PP(1), true);
	scope = get_scope(PG_GETARG_TEXT_PP(2));
	zklock_loss_acknowledge();
	(void) zklock_acquire(name, mode, scope, ZKLOCK_WAIT_FOREVER, &token);
	PG_RETURN_INT64(token);
}

/* zk_try_lock(name text, mode text, scope text, timeout interval) returns boolean */
Datum
zk_try_lock(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	ZkLockScope scope;
	int64 timeout;
	int64 token;

	zklock_check_callable();
	get_name(PG_GETARG_TEXT_PP(0), name);
	mode = get_mode(PG_GETARG_TEXT_PP(1), true);
	scope = get_scope(PG_GETARG_TEXT_PP(2));
	timeout = zklock_get_timeout(PG_GETARG_INTERVAL_P(3), "timeout");
	zklock_loss_acknowledge();
	PG_RETURN_BOOL(zklock_acquire(name, mode, scope, timeout, &token));
}

/* What this backend holds of a name now, or NULL; the name in UTF-8 to "name". */
static ZkHeldLock *
find_held(text *arg, char *name)
{
	zklock_check_callable();
	get_name(arg, name);
	zklock_hold_refresh();
	return zklock_held_find(ZKLOCK_KIND_LOCK, name);
}

/* zk_unlock(name text) returns boolean */
Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	held = find_held(PG_GETARG_TEXT_PP(0), name);
	zklock_loss_acknowledge();
	if (held != NULL && !slist_is_empty(&held->holds[ZKLOCK_SESSION]))
	{
		zklock_loss_tell(held);
		(void) zklock_hold_end_session(held, false);
		PG_RETURN_BOOL(true);
	}

	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("you do not hold lock \"%s\" in session scope",
					zklock_display_name(name)),
			 held != NULL ? errhint("A hold in transaction scope ends with its transaction.")
						  : 0));
	PG_RETURN_BOOL(false);
}

/* zk_unlock_all() returns integer */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	uint64 ended;

	zklock_check_callable();
	zklock_hold_refresh();
	zklock_loss_acknowledge();
	zklock_hold_each_session(zklock_loss_tell);
	ended = zklock_hold_end_all_sessions();
	PG_RETURN_INT32((int32) Min(ended, PG_INT32_MAX));
}

/* The token of a lock that we hold right now, or the error of its loss. */
static int64
claim(ZkHeldLock *held)
{
	if (zklock_loss_settle(held))
		zklock_loss_raise(held);
	return held->request[ZKLOCK_EXCLUSIVE] >= 0 ? held->token[ZKLOCK_EXCLUSIVE]
												: held->token[ZKLOCK_SHARED];
}

/* zk_token(name text) returns bigint */
Datum
zk_token(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	held = find_held(PG_GETARG_TEXT_PP(0), name);
	if (held == NULL)
		PG_RETURN_NULL();
	PG_RETURN_INT64(claim(held));
}

/*
 * Is our contender still there?  We hear of its deletion by a watch; but not always at once
 * (protocol.h, watch_later), and not at all where there are too many watches (watches.h).
 */
static void
prove_contender(ZkHeldLock *held)
{
	ZkLockMode mode =
		held->request[ZKLOCK_EXCLUSIVE] >= 0 ? ZKLOCK_EXCLUSIVE : ZKLOCK_SHARED;
	ZkLockEntry *entry = zklock_entry(zklock_request(held->request[mode])->entry);
	ZkQuery query = {.kind = ZKLOCK_KIND_LOCK, .contenders = true, .limit = 1};
	ZkSessionShared session;
	ZkNode *nodes;
	LWLock *lock;

	zklock_session_read(&session);
	lock = zklock_entry_lock(entry, LW_SHARED); /* our request pins it */
	for (int i = 0; i < ZKLOCK_NCONTENDERS; i++)
	{
		const ZkContender *contender = &entry->queue.contender[i];

		if (contender->state == ZKLOCK_GRANTED && contender->mode == mode)
			zklock_format_contender(query.prefix, session.uuid_hi, contender->uuid,
									ZKLOCK_KIND_LOCK, mode);
	}
	zklock_entry_unlock(lock);
	strlcpy(query.name, held->name, sizeof(query.name));
	/* without one the worker has said that it is lost */
	if (query.prefix[0] != '\0' && zklock_query(&query, &nodes) <= 0)
		zklock_loss_raise(held);
}

/* zk_assert(name text) returns bigint */
Datum
zk_assert(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHeldLock *held;

	held = find_held(PG_GETARG_TEXT_PP(0), name);
	if (held != NULL)
	{
		zklock_loss_prove();
		prove_contender(held);
		PG_RETURN_INT64(claim(held));
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("you do not hold lock \"%s\"", zklock_display_name(name))));
}

/*
 * CALL zk_lock_session(name text, mode text, timeout interval)
 *
 * Waits without a snapshot, so that whoever holds the lock can run commands
 * that wait for old snapshots to go, such as CREATE INDEX CONCURRENTLY.  That
 * takes a transaction of its own: the one that CALL began is committed first,
 * in which the arguments were evaluated under a snapshot.
 */
Datum
zk_lock_session(PG_FUNCTION_ARGS)
{
	CallContext *call = (CallContext *) fcinfo->context;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockMode mode;
	int64 timeout = ZKLOCK_WAIT_FOREVER;
	int64 token;

	zklock_check_callable();
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null",
						PG_ARGISNULL(0) ? "lock name" : "lock mode")));
	get_name(PG_GETARG_TEXT_PP(0), name);
	mode = get_mode(PG_GETARG_TEXT_PP(1), false);
	if (!PG_ARGISNULL(2))
		timeout = zklock_get_timeout(PG_GETARG_INTERVAL_P(2), "timeout");

	if (call == NULL || !IsA(call, CallContext) || call->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zk_lock_session cannot run inside a transaction block"),
				 errhint("Call it on its own, or use zk_lock(name, mode, 'session').")));
	/* a pipeline's earlier statements must not be committed by ours */
	PreventInTransactionBlock(true, "zk_lock_session");
	/* what a DO block did before can be refused, as in any commit (loss.c) */
	MyXactFlags &= ~XACT_FLAGS_NEEDIMMEDIATECOMMIT;

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	SPI_commit();
	InvalidateCatalogSnapshot();

	if (!zklock_acquire(name, mode, ZKLOCK_SESSION, timeout, &token))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\" within %lld ms",
						zklock_display_name(name), (long long) timeout)));
	SPI_finish();
	PG_RETURN_VOID();
}

/* ------------------------------------------------------------------------
 * Views
 * ------------------------------------------------------------------------
 */

/* One request as zk_locks shows it, or a grant that is kept for nobody (pid 0). */
typedef struct LockRow
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockRequest request;
	ZkLockGrant grant;
} LockRow;

/* pg_stat_activity's rule: who may see what a session of this role, or of none, does? */
static bool
may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

/* What is to become of it: for holders of the grant, for waiters of the wish. */
static const char *
lock_row_state(const LockRow *row)
{
	if (row->request.pid == 0)
		return "cached";
	if (row->request.state == ZKLOCK_REQUEST_LOCAL)
		return "waiting";
	if (row->request.state == ZKLOCK_REQUEST_WANTED)
		return "queued";
	if (row->request.lost)
		return "lost";
	if (!row->grant.usable)
		return "releasing";
	return row->grant.demanded ? "demanded" : "held";
}

/*
 * The sessions of this server whose holds must end before one that is queued can have
 * its turn: it would share their grant, which goes when the last of them does; or has
 * level 1, which they have lost.  NULL if there is none.  The rows of its name are
 * neighbours.
 */
static ArrayType *
local_blockers(const LockRow *rows, int nrows, const LockRow *waiter)
{
	const ZkLockRequest *w = &waiter->request;
	const LockRow *first = waiter;
	const LockRow *end = waiter;
	Datum *pids;
	int n = 0;

	if (w->state != ZKLOCK_REQUEST_WANTED)
		return NULL;
	while (first > rows && strcmp(first[-1].name, waiter->name) == 0)
		first--;
	while (end < rows + nrows && strcmp(end->name, waiter->name) == 0)
		end++;
	pids = palloc(sizeof(Datum) * (Size) (end - first));
	for (const LockRow *row = first; row < end; row++)
	{
		const ZkLockRequest *r = &row->request;
		bool shared = w->mode == ZKLOCK_SHARED && r->mode == ZKLOCK_SHARED;

		if (r->pid != 0 && r->pid != w->pid && r->state == ZKLOCK_REQUEST_HELD &&
			!r->lost && !(shared && row->grant.usable))
			pids[n++] = Int32GetDatum(r->pid);
	}
	return n > 0 ? construct_array(pids, n, INT4OID, sizeof(int32), true, TYPALIGN_INT)
				 : NULL;
}

static void
put_lock_row(ReturnSetInfo *rsinfo, const LockRow *row, ArrayType *blockers,
			 ZkLockScope scope, bool granted)
{
	const ZkLockRequest *request = &row->request;
	bool kept = request->pid == 0;
	int64 lease =
		(int64) pg_atomic_read_u64(&zklock_shared->lease_end) - (int64) zklock_clock();
	LOCKTAG tag;
	char *text;
	Datum values[17];
	bool nulls[17] = {0};

	zklock_level1_tag(&tag, row->name);
	values[0] = CStringGetTextDatum(zklock_display_name(row->name));
	values[1] = CStringGetTextDatum(modes[request->mode]);
	values[2] = CStringGetTextDatum(scope == ZKLOCK_SESSION ? "session" : "transaction");
	nulls[2] = kept;
	values[3] = BoolGetDatum(granted);
	values[4] = CStringGetTextDatum(lock_row_state(row));
	values[5] = Int64GetDatum((int64) request->count[scope]);
	nulls[5] = !granted || kept;
	values[6] = Int64GetDatum(row->grant.token);
	nulls[6] = !granted || request->lost;
	values[7] = IntervalPGetDatum(zklock_make_interval(Max(lease, 0) / 1000));
	nulls[7] = nulls[6];
	values[8] = TimestampTzGetDatum(request->wait_start);
	nulls[8] = granted;
	values[9] = Int32GetDatum(request->pid);
	nulls[9] = kept;
	for (int i = 10; i <= 12; i++)
		nulls[i] = true;
	if (!kept)
	{
		if ((text = get_database_name(request->database)) != NULL)
			values[10] = CStringGetTextDatum(text);
		nulls[10] = text == NULL;
		if ((text = GetUserNameFromId(request->role, true)) != NULL)
			values[11] = CStringGetTextDatum(text);
		nulls[11] = text == NULL;
		values[12] = CStringGetTextDatum(request->application);
		nulls[12] = false;
	}
	values[13] = PointerGetDatum(blockers);
	nulls[13] = blockers == NULL;
	values[14] = ObjectIdGetDatum(tag.locktag_field2);
	values[15] = ObjectIdGetDatum(tag.locktag_field3);
	values[16] = Int16GetDatum((int16) tag.locktag_field4);
	if (!kept && !may_see(request->role))
	{
		for (int i = 0; i < (int) lengthof(nulls); i++)
			nulls[i] = i != 9; /* pid */
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* The rows of an entry, which is locked, as far as there is room; returns how many
 * there are. */
static int
collect_lock_rows(const ZkLockEntry *entry, LockRow *rows, int room)
{
	int n = 0;

	if (entry->kind != ZKLOCK_KIND_LOCK)
		return 0;
	for (int32 r = entry->requests; r >= 0; r = zklock_request(r)->next, n++)
	{
		if (n >= room)
			continue; /* count on */
		rows[n].request = *zklock_request(r);
		rows[n].grant = entry->grant[rows[n].request.mode];
		strlcpy(rows[n].name, entry->name, sizeof(rows->name));
	}
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		if (!entry->grant[mode].usable || entry->held[mode] > 0 || entry->want[mode] > 0)
			continue;
		if (n < room)
		{
			memset(&rows[n].request, 0, sizeof(rows[n].request));
			rows[n].request.mode = (uint8) mode;
			rows[n].grant = entry->grant[mode];
			strlcpy(rows[n].name, entry->name, sizeof(rows->name));
		}
		n++;
	}
	return n;
}

/*
 * zk_locks() returns setof record: this server's holds and waiters, in our
 * namespace.
 *
 * Entries are read one after the other, so the rows of one name fit together
 * and those of two names need not.
 */
Datum
zk_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int room = 64;
	LockRow *rows = palloc(sizeof(LockRow) * (Size) room);
	int nrows = 0;

	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);

	for (int i = 0; i < zklock_shared->nentries; i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		bool fits;

		do
		{
			int n;
			LWLock *lock = zklock_entry_lock(entry, LW_SHARED);

			if (lock == NULL)
				break;
			/* no memory is allocated under the lock */
			n = collect_lock_rows(entry, rows + nrows, room - nrows);
			zklock_entry_unlock(lock);

			fits = nrows + n <= room;
			if (fits)
				nrows += n;
			else
			{
				room = 2 * (nrows + n);
				rows = repalloc_huge(rows, sizeof(LockRow) * (Size) room);
			}
		} while (!fits);
	}

	for (int i = 0; i < nrows; i++)
	{
		const LockRow *row = &rows[i];

		if (!zklock_in_namespace(row->name))
			continue;
		if (row->request.pid == 0)
		{
			/* its name is all there is to hide: no row */
			if (may_see(InvalidOid))
				put_lock_row(rsinfo, row, NULL, ZKLOCK_TRANSACTION, true);
		}
		else if (row->request.state != ZKLOCK_REQUEST_HELD)
			put_lock_row(rsinfo, row, local_blockers(rows, nrows, row),
						 (ZkLockScope) row->request.scope, false);
		else
		{
			for (int scope = 0; scope < ZKLOCK_NSCOPES; scope++)
			{
				if (row->request.count[scope] > 0)
					put_lock_row(rsinfo, row, NULL, (ZkLockScope) scope, true);
			}
		}
	}
	return (Datum) 0;
}

static const char *
session_state_name(ZkSessionState state)
{
	switch (state)
	{
		case ZKLOCK_SESSION_STARTING:
			return "no worker";
		case ZKLOCK_SESSION_CONNECTING:
			return "connecting";
		case ZKLOCK_SESSION_CONNECTED:
			return "connected";
		case ZKLOCK_SESSION_RECONNECTING:
			return "reconnecting";
		case ZKLOCK_SESSION_AUTH_FAILED:
			return "authentication failed";
		case ZKLOCK_SESSION_WENT_BACK:
			return "went back";
		case ZKLOCK_SESSION_CLOSING:
			return "closing";
	}
	return "unknown";
}

/* Settings, and what others answered, may be any bytes, and cut off where room ended. */
static Datum
bytes_datum(const char *bytes)
{
	return CStringGetTextDatum(zklock_display_text(bytes));
}

/* zk_session() returns record: the state of this server's ZooKeeper session */
Datum
zk_session(PG_FUNCTION_ARGS)
{
	ZkSessionShared s;
	TupleDesc desc;
	int64 now = zklock_clock();
	int64 lease;
	int64 latency;
	int names;
	int requests;
	Datum values[20];
	bool nulls[20] = {0};

	zklock_check_callable();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	zklock_session_read(&s);
	lease = (int64) pg_atomic_read_u64(&zklock_shared->lease_end) - now;

	values[0] = CStringGetTextDatum(session_state_name(s.state));
	values[1] = bytes_datum(s.server);
	nulls[1] = s.server[0] == '\0';
	values[2] = CStringGetTextDatum(psprintf("0x%llx", (unsigned long long) s.id.id));
	nulls[2] = s.id.id == 0;
	values[3] = IntervalPGetDatum(zklock_make_interval((int64) s.timeout_ms * 1000));
	nulls[3] = s.id.id == 0;
	values[4] = bytes_datum(s.last_error);
	nulls[4] = s.last_error[0] == '\0';
	values[5] = TimestampTzGetDatum(s.last_error_at);
	nulls[5] = nulls[4];
	values[6] = Int32GetDatum(s.worker_pid);
	nulls[6] = s.worker_pid == 0;
	values[7] = bytes_datum(s.hosts);
	nulls[7] = s.hosts[0] == '\0';
	values[8] = IntervalPGetDatum(zklock_make_interval(Max(lease, 0) / 1000));
	nulls[8] = s.id.id == 0;
	latency = (int64) pg_atomic_read_u64(&zklock_shared->write_latency);
	values[9] = IntervalPGetDatum(zklock_make_interval(latency / 1000));
	nulls[9] = latency == 0;
	latency = (int64) pg_atomic_read_u64(&zklock_shared->read_latency);
	values[10] = IntervalPGetDatum(zklock_make_interval(latency / 1000));
	nulls[10] = latency == 0;
	values[11] = IntervalPGetDatum(zklock_make_interval((now - s.opened_at) / 1000));
	nulls[11] = s.id.id == 0 || s.opened_at == 0;
	values[12] = IntervalPGetDatum(zklock_make_interval((now - s.worker_started) / 1000));
	nulls[12] = s.worker_pid == 0 || s.worker_started == 0;
	values[13] = Int64GetDatum(s.reconnects);
	values[14] = Int64GetDatum(s.expiries);
	values[15] = Int32GetDatum((int32) pg_atomic_read_u32(&zklock_shared->in_flight));
	zklock_table_use(&names, &requests);
	values[16] = Int32GetDatum(names);
	values[17] = Int32GetDatum(zklock_shared->nentries);
	values[18] = Int32GetDatum(requests);
	values[19] = Int32GetDatum((int32) pg_atomic_read_u32(&zklock_shared->nidle));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
