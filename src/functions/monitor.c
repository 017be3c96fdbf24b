/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  SQL functions for administrators: what this server and the ensemble say of the
 *	  locks, the removal of a contender, the base of fencing tokens, and statistics.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "arguments.h"
#include "check.h"
#include "contenders.h"
#include "drain.h"
#include "history.h"
#include "hold.h"
#include "monitor.h"
#include "names.h"
#include "nodes.h"
#include "parties.h"
#include "protocol.h"
#include "query.h"
#include "settings.h"
#include "sessions.h"
#include "stat.h"
#include "work.h"

PG_FUNCTION_INFO_V1(zk_locks);
PG_FUNCTION_INFO_V1(zk_session);
PG_FUNCTION_INFO_V1(zk_servers);
PG_FUNCTION_INFO_V1(zk_contenders);
PG_FUNCTION_INFO_V1(zk_lock_dirs);
PG_FUNCTION_INFO_V1(zk_break);
PG_FUNCTION_INFO_V1(zk_raise_tokens);
PG_FUNCTION_INFO_V1(zk_stat);
PG_FUNCTION_INFO_V1(zk_stat_locks);
PG_FUNCTION_INFO_V1(zk_stat_reset);

/* ------------------------------------------------------------------------
 * This server
 * ------------------------------------------------------------------------
 */

/* One proclock as zk_locks shows it, or a grant that is kept for nobody (pid 0). */
typedef struct LockRow
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkLockKind kind;
	int slots; /* of that kind */
	ZkProcLock proclock;
	ZkLockGrant grant;
} LockRow;

/* What is to become of it: for holders of the grant, for waiters of the wish. */
static const char *
lock_row_state(const LockRow *row)
{
	if (row->proclock.pid == 0)
		return "kept";
	if (row->proclock.state == ZKLOCK_PROCLOCK_LOCAL)
		return "waiting";
	if (row->proclock.state == ZKLOCK_PROCLOCK_WANTED)
		return "queued";
	if (row->proclock.lost)
		return "lost";
	if (!row->grant.usable)
		return "releasing";
	return row->grant.demanded ? "demanded" : "held";
}

/*
 * The backends of this server whose holds must end before one that is queued can have
 * its turn: it would share their grant, which goes when the last of them does; or has
 * level 1, which they have lost.  NULL if there is none.  The rows of its name are
 * neighbours.
 */
static ArrayType *
local_blockers(const LockRow *rows, int nrows, const LockRow *waiter)
{
	const ZkProcLock *w = &waiter->proclock;
	const LockRow *first = waiter;
	const LockRow *end = waiter;
	Datum *pids;
	int n = 0;

	/* who asks for a slot waits for nobody in particular */
	if (w->state != ZKLOCK_PROCLOCK_WANTED || waiter->kind != ZKLOCK_KIND_LOCK)
		return NULL;
	while (first > rows && first[-1].kind == waiter->kind &&
		   strcmp(first[-1].name, waiter->name) == 0)
		first--;
	while (end < rows + nrows && end->kind == waiter->kind &&
		   strcmp(end->name, waiter->name) == 0)
		end++;
	pids = palloc(sizeof(Datum) * (Size) (end - first));
	for (const LockRow *row = first; row < end; row++)
	{
		const ZkProcLock *r = &row->proclock;
		bool shared = w->mode == ZKLOCK_SHARED && r->mode == ZKLOCK_SHARED;

		if (r->pid != 0 && r->pid != w->pid && r->state == ZKLOCK_PROCLOCK_HELD &&
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
	const ZkProcLock *proclock = &row->proclock;
	bool kept = proclock->pid == 0;
	int64 lease =
		(int64) pg_atomic_read_u64(&zklock_shared->lease_end) - (int64) zklock_clock();
	LOCKTAG tag;
	char *text;
	Datum values[19];
	bool nulls[19] = {0};

	zklock_level1_tag(&tag, row->kind, row->name, proclock->pid);
	values[0] = CStringGetTextDatum(zklock_display_name(row->name));
	values[1] = CStringGetTextDatum(zklock_modes[proclock->mode]);
	values[2] = CStringGetTextDatum(zklock_scopes[scope]);
	nulls[1] = row->kind != ZKLOCK_KIND_LOCK;
	nulls[2] = kept;
	values[3] = BoolGetDatum(granted);
	values[4] = CStringGetTextDatum(lock_row_state(row));
	values[5] = Int64GetDatum((int64) proclock->count[scope]);
	nulls[5] = !granted || kept;
	values[6] = Int64GetDatum(row->grant.token);
	nulls[6] = !granted || proclock->lost;
	values[7] = IntervalPGetDatum(zklock_make_interval(Max(lease, 0) / 1000));
	nulls[7] = nulls[6];
	values[8] = TimestampTzGetDatum(proclock->wait_start);
	nulls[8] = granted;
	values[9] = Int32GetDatum(proclock->pid);
	nulls[9] = kept;
	for (int i = 10; i <= 12; i++)
		nulls[i] = true;
	if (!kept)
	{
		if ((text = get_database_name(proclock->database)) != NULL)
			values[10] = CStringGetTextDatum(text);
		nulls[10] = text == NULL;
		if ((text = GetUserNameFromId(proclock->role, true)) != NULL)
			values[11] = CStringGetTextDatum(text);
		nulls[11] = text == NULL;
		values[12] = CStringGetTextDatum(proclock->application);
		nulls[12] = false;
	}
	values[13] = PointerGetDatum(blockers);
	nulls[13] = blockers == NULL;
	values[14] = ObjectIdGetDatum(tag.locktag_field2);
	values[15] = ObjectIdGetDatum(tag.locktag_field3);
	values[16] = Int16GetDatum((int16) tag.locktag_field4);
	values[17] = CStringGetTextDatum(zklock_kind_names[row->kind]);
	values[18] = Int32GetDatum(row->slots);
	nulls[18] = row->slots == 0;
	if (!kept && !zklock_may_see(proclock->role))
	{
		for (int i = 0; i < (int) lengthof(nulls); i++)
			nulls[i] = i != 9; /* pid */
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_entry(LockRow *row, const ZkLockEntry *entry, int mode)
{
	row->kind = (ZkLockKind) entry->kind;
	row->slots = entry->queue.slots;
	row->grant = entry->grant[mode];
	strlcpy(row->name, entry->name, sizeof(row->name));
}

/* The rows of an entry, which is locked, as far as there is room; returns how many
 * there are. */
static int
collect_lock_rows(const ZkLockEntry *entry, LockRow *rows, int room)
{
	int n = 0;

	if (!zklock_kind_is_kept((ZkLockKind) entry->kind))
		return 0;
	zklock_foreach_proclock (proclock, entry)
	{
		if (n < room)
		{
			rows[n].proclock = *proclock;
			put_entry(&rows[n], entry, proclock->mode);
		}
		n++; /* count on */
	}
	for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
	{
		if (!entry->grant[mode].usable || entry->held[mode] > 0 || entry->want[mode] > 0)
			continue;
		if (n < room)
		{
			memset(&rows[n].proclock, 0, sizeof(rows[n].proclock));
			rows[n].proclock.mode = (uint8) mode;
			put_entry(&rows[n], entry, mode);
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

	for (int i = 0; i < zklock_entries_end(); i++)
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
		if (row->proclock.pid == 0)
		{
			/* its name is all there is to hide: no row */
			if (zklock_may_see(InvalidOid))
				put_lock_row(rsinfo, row, NULL, ZKLOCK_SCOPE_TRANSACTION, true);
		}
		else if (row->proclock.state != ZKLOCK_PROCLOCK_HELD)
			put_lock_row(rsinfo, row, local_blockers(rows, nrows, row),
						 (ZkLockScope) row->proclock.scope, false);
		else
		{
			for (int scope = 0; scope < ZKLOCK_NSCOPES; scope++)
			{
				if (row->proclock.count[scope] > 0)
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
	int proclocks;
	Datum values[22];
	bool nulls[22] = {0};

	zklock_check_callable();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	zklock_session_read(&s);
	lease = (int64) pg_atomic_read_u64(&zklock_shared->lease_end) - now;

	values[0] = CStringGetTextDatum(session_state_name(s.state));
	values[1] = bytes_datum(s.server);
	nulls[1] = s.server[0] == '\0';
	values[2] = zklock_session_datum(s.id.id);
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
	values[8] = bytes_datum(s.library);
	nulls[8] = s.library[0] == '\0';
	values[9] = IntervalPGetDatum(zklock_make_interval(Max(lease, 0) / 1000));
	nulls[9] = s.id.id == 0;
	latency = (int64) pg_atomic_read_u64(&zklock_shared->write_latency);
	values[10] = IntervalPGetDatum(zklock_make_interval(latency / 1000));
	nulls[10] = latency == 0;
	latency = (int64) pg_atomic_read_u64(&zklock_shared->read_latency);
	values[11] = IntervalPGetDatum(zklock_make_interval(latency / 1000));
	nulls[11] = latency == 0;
	values[12] = IntervalPGetDatum(zklock_make_interval((now - s.opened_at) / 1000));
	nulls[12] = s.id.id == 0 || s.opened_at == 0;
	values[13] = IntervalPGetDatum(zklock_make_interval((now - s.worker_started) / 1000));
	nulls[13] = s.worker_pid == 0 || s.worker_started == 0;
	values[14] = Int64GetDatum(s.reconnects);
	values[15] = Int64GetDatum(s.expiries);
	values[16] = Int32GetDatum((int32) pg_atomic_read_u32(&zklock_shared->in_flight));
	zklock_table_use(&names, &proclocks);
	values[17] = Int32GetDatum(names);
	values[18] = Int32GetDatum(zklock_shared->nentries);
	values[19] = Int32GetDatum(proclocks);
	values[20] = Int32GetDatum((int32) pg_atomic_read_u32(&zklock_shared->nkept));
	values[21] = CStringGetTextDatum(zklock_drain_name(zklock_drain_state()));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

/* zk_servers() returns setof record: who has a node under <root>/servers */
Datum
zk_servers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkQuery query = {.ask = ZKLOCK_ASK_SERVERS};
	ZkSessionShared s;
	ZkNode *nodes;
	int n;

	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	n = zklock_query(&query, &nodes);
	zklock_session_read(&s);

	for (int i = 0; i < n; i++)
	{
		const ZkNode *node = &nodes[i];
		Datum values[13];
		bool nulls[13] = {0};

		zklock_put_field(node, "server", &values[0], &nulls[0]);
		zklock_put_field(node, "host", &values[1], &nulls[1]);
		zklock_put_number(node, "pid", &values[2], &nulls[2]);
		zklock_put_field(node, "zklock", &values[3], &nulls[3]);
		zklock_put_field(node, "postgres", &values[4], &nulls[4]);
		values[5] = TimestampTzGetDatum(zklock_time_of_ms(node->ctime));
		values[6] = TimestampTzGetDatum(zklock_time_of_ms(node->mtime));
		nulls[5] = nulls[6] = zklock_node_unread(node);
		zklock_put_number(node, "elections", &values[7], &nulls[7]);
		zklock_put_number(node, "jobs", &values[8], &nulls[8]);
		zklock_put_field(node, "drain", &values[9], &nulls[9]);
		values[10] = BoolGetDatum(s.id.id != 0 && node->ephemeral_owner == s.id.id);
		zklock_put_session(node, &values[11], &nulls[11]);
		values[12] = zklock_node_name_datum(node);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Seven columns: state, pid, database, username, application, state_since, as_of. */
static void
put_owner(const ZkOwner *owner, bool ours, Datum *values, bool *nulls)
{
	const ZkReportItem *item = &owner->item;
	const ZkReportSession *session = &item->session[0];
	bool any = item->nsessions > 0;

	for (int i = 1; i < 6; i++)
		nulls[i] = true;
	values[0] = CStringGetTextDatum(zklock_report_state_name(item->state));
	values[6] = TimestampTzGetDatum(owner->as_of);
	if (any)
	{
		values[1] = Int32GetDatum(session->pid);
		nulls[1] = false;
	}
	if (any && !zklock_may_see_session(session->pid, ours))
		return;
	if (any)
	{
		zklock_put_text(session->database, &values[2], &nulls[2]);
		zklock_put_text(session->user, &values[3], &nulls[3]);
		zklock_put_text(session->application, &values[4], &nulls[4]);
	}
	nulls[5] = item->age < 0;
	values[5] = TimestampTzGetDatum(zklock_owner_time(owner, item->age));
}

/* Is there a contender of another server?  Then its report is wanted. */
static bool
has_others(const ZkContenders *queue, int64 session)
{
	for (int i = 0; i < queue->n; i++)
	{
		if (queue->children[i].uuid_hi != 0 && queue->nodes[i].ephemeral_owner != session)
			return true;
	}
	return false;
}

/* zk_contenders(name text, kind text) returns setof record */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkSessionShared s;
	ZkContenders queue;
	ZkMembers members = {0};

	ZKLOCK_REFUSE_NULLS("name", "kind");
	kind = zklock_get_kind(PG_GETARG_TEXT_PP(1));
	zklock_check_callable();
	zklock_get_name(kind, PG_GETARG_TEXT_PP(0), name);
	InitMaterializedSRF(fcinfo, 0);
	zklock_contenders_ask(kind, name, 0, 0, &queue);
	zklock_session_read(&s);
	members.session = s.id.id;
	if (has_others(&queue, s.id.id))
		zklock_members_ask(0, &members);

	for (int i = 0; i < queue.n; i++)
	{
		const ZkNode *node = &queue.nodes[i];
		bool ours = members.session != 0 && node->ephemeral_owner == members.session;
		ZkOwner owner;
		Datum values[18];
		bool nulls[18] = {0};

		values[0] = Int32GetDatum(i + 1);
		zklock_put_server(node, &values[1], &nulls[1]);
		values[2] = CStringGetTextDatum(zklock_modes[queue.children[i].mode]);
		nulls[2] = kind != ZKLOCK_KIND_LOCK;
		values[3] = BoolGetDatum(queue.holds[i]);
		values[4] = Int64GetDatum(node->token);
		zklock_put_session(node, &values[5], &nulls[5]);
		values[6] = BoolGetDatum(ours);
		values[7] = TimestampTzGetDatum(zklock_time_of_ms(node->ctime));
		if (zklock_members_owner(&members, kind, name, &queue, i, &owner))
			put_owner(&owner, ours, &values[8], &nulls[8]);
		else
			memset(&nulls[8], true, 7);
		values[15] = zklock_node_data_datum(node);
		values[16] = zklock_node_name_datum(node);
		values[17] = Int32GetDatum(queue.children[i].slots);
		nulls[17] = queue.children[i].slots == 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * zk_lock_dirs(prefix text, kind text) returns setof record
 *
 * Only where there are several children it takes a look at each.
 */
Datum
zk_lock_dirs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockKind kind;
	ZkQuery query = {0};
	char *prefix;
	ZkNode *nodes;
	int n;

	ZKLOCK_REFUSE_NULLS("prefix", "kind");
	query.kind = kind = zklock_get_kind(PG_GETARG_TEXT_PP(1));
	prefix = zklock_to_utf8(PG_GETARG_TEXT_PP(0));
	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	if (zklock_namespace[0] != '\0')
		prefix = psprintf("%s%c%s", zklock_namespace, ZKLOCK_NAMESPACE_END, prefix);
	if (strlen(prefix) > ZKLOCK_NAME_MAX)
		return (Datum) 0;
	/* as a whole these two are encoded, and else they are not */
	if (strcmp(prefix, ".") != 0 && strcmp(prefix, "..") != 0)
		zklock_encode_name(prefix, query.prefix);

	n = zklock_query(&query, &nodes);
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		int contenders = nodes[i].nchildren;
		int waiting = 0;
		Datum values[4];
		bool nulls[4] = {0};

		if (contenders == 0 || !zklock_decode_name(nodes[i].name, name) ||
			strncmp(name, prefix, strlen(prefix)) != 0 || !zklock_in_namespace(name))
			continue;
		nulls[3] = true;
		if (contenders > 1)
		{
			MemoryContext context =
				AllocSetContextCreate(CurrentMemoryContext, "zklock queue",
									  ALLOCSET_DEFAULT_SIZES);
			MemoryContext save = MemoryContextSwitchTo(context);
			ZkContenders queue;

			zklock_contenders_ask(kind, name, 0, 0, &queue);
			contenders = queue.n;
			for (int j = 0; j < queue.n; j++)
			{
				if (queue.holds[j])
					continue;
				if (waiting++ == 0)
					values[3] =
						TimestampTzGetDatum(zklock_time_of_ms(queue.nodes[j].ctime));
				nulls[3] = false;
			}
			MemoryContextSwitchTo(save);
			MemoryContextDelete(context);
			if (contenders == 0)
				continue;
		}
		values[0] = CStringGetTextDatum(zklock_display_name(name));
		values[1] = Int32GetDatum(contenders);
		values[2] = Int32GetDatum(waiting);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* A sentence for the log: whose is the contender with this token, as far as is known? */
static const char *
describe_owner(ZkLockKind kind, const char *name, int64 token)
{
	ZkContenders queue;
	ZkMembers members;
	ZkOwner owner;
	StringInfoData buf;
	const ZkNode *node;
	int i = 0;

	zklock_contenders_ask(kind, name, 0, 0, &queue);
	while (i < queue.n && queue.nodes[i].token != token)
		i++;
	if (i == queue.n)
		return NULL;
	node = &queue.nodes[i];
	initStringInfo(&buf);
	appendStringInfo(&buf, "It was made with \"%s\"",
					 zklock_display_bytes(node->data, node->datalen, node->data_cut));
	zklock_members_ask(0, &members);
	if (zklock_members_owner(&members, kind, name, &queue, i, &owner))
	{
		const ZkReportItem *item = &owner.item;

		appendStringInfo(&buf, ", and its state was \"%s\"",
						 zklock_report_state_name(item->state));
		if (item->age >= 0)
			appendStringInfo(&buf, " since %s",
							 timestamptz_to_str(zklock_owner_time(&owner, item->age)));
		if (item->nsessions > 0)
			appendStringInfo(&buf,
							 ", by process %d, database \"%s\", user \"%s\", application \"%s\"",
							 item->session[0].pid,
							 zklock_display_text(item->session[0].database),
							 zklock_display_text(item->session[0].user),
							 zklock_display_text(item->session[0].application));
		appendStringInfo(&buf, ", as of %s", timestamptz_to_str(owner.as_of));
	}
	appendStringInfoChar(&buf, '.');
	return buf.data;
}

/* zk_break(name text, token bigint, kind text) returns boolean */
Datum
zk_break(PG_FUNCTION_ARGS)
{
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;
	const char *owner;
	bool removed;

	ZKLOCK_REFUSE_NULLS("name", "fencing token", "kind");
	kind = zklock_get_kind(PG_GETARG_TEXT_PP(2));
	token = PG_GETARG_INT64(1);
	zklock_check_callable();
	zklock_get_name(kind, PG_GETARG_TEXT_PP(0), name);
	/* afterwards nobody can tell */
	owner = token > 0 ? describe_owner(kind, name, token) : NULL;
	removed = zklock_query_remove(kind, name, token);
	if (removed)
		ereport(LOG,
				(errmsg("zk_break removed the contender with token %lld from the queue of %s \"%s\"",
						(long long) token, zklock_kind_names[kind],
						zklock_display_name(name)),
				 owner != NULL ? errdetail_log("%s", owner) : 0));
	PG_RETURN_BOOL(removed);
}

/* zk_raise_tokens(above bigint) returns bigint */
Datum
zk_raise_tokens(PG_FUNCTION_ARGS)
{
	int64 above;
	int64 base;

	ZKLOCK_REFUSE_NULLS("fencing token");
	above = PG_GETARG_INT64(0);
	zklock_check_callable();
	base = above > 0 ? zklock_query_raise(above) : 0;
	if (base == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing tokens are above %lld already", (long long) above),
				 errdetail("They can be raised, but not lowered.")));
	if (base < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fencing tokens cannot be raised above %lld", (long long) above),
				 errdetail("No more than %lld can be asked for.",
						   (long long) ZKLOCK_ABOVE_MAX)));
	ereport(LOG,
			(errmsg("zk_raise_tokens raised the base of fencing tokens to %lld",
					(long long) base)));
	PG_RETURN_INT64(base);
}

/* ------------------------------------------------------------------------
 * Statistics
 * ------------------------------------------------------------------------
 */

/* Columns, in the order of ZkStatCounter. */
static void
put_counters(Datum *values, const int64 *n)
{
	for (int i = 0; i < ZKLOCK_NSTATS; i++)
	{
		if (i == ZKLOCK_STAT_WAIT_US || i == ZKLOCK_STAT_LONGEST_US)
			values[i] = IntervalPGetDatum(zklock_make_interval(n[i]));
		else
			values[i] = Int64GetDatum(n[i]);
	}
}

/* zk_stat() returns record */
Datum
zk_stat(PG_FUNCTION_ARGS)
{
	TupleDesc desc;
	int64 n[ZKLOCK_NSTATS];
	TimestampTz since;
	Datum values[ZKLOCK_NSTATS + ZKLOCK_WORK_COUNTERS + 1];
	bool nulls[ZKLOCK_NSTATS + ZKLOCK_WORK_COUNTERS + 1] = {0};

	zklock_check_callable();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	zklock_stat_server(n, &since);
	put_counters(values, n);
	for (int i = 0; i < ZKLOCK_WORK_COUNTERS; i++)
		values[ZKLOCK_NSTATS + i] =
			Int64GetDatum((int64) pg_atomic_read_u64(&zklock_work->count[i]));
	values[ZKLOCK_NSTATS + ZKLOCK_WORK_COUNTERS] = TimestampTzGetDatum(since);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* zk_stat_locks() returns setof record */
Datum
zk_stat_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkStatRow *rows;
	int n;

	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	rows = palloc(sizeof(ZkStatRow) * ZKLOCK_STAT_NAMES);
	n = zklock_stat_names(rows);
	for (int i = 0; i < n; i++)
	{
		Datum values[ZKLOCK_NSTATS + 3];
		bool nulls[ZKLOCK_NSTATS + 3] = {0};

		if (!zklock_in_namespace(rows[i].name))
			continue;
		values[0] = CStringGetTextDatum(zklock_display_name(rows[i].name));
		put_counters(&values[1], rows[i].n);
		values[ZKLOCK_NSTATS + 1] = TimestampTzGetDatum(rows[i].used);
		values[ZKLOCK_NSTATS + 2] = CStringGetTextDatum(zklock_kind_names[rows[i].kind]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* zk_stat_reset() returns void */
Datum
zk_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_check_callable();
	zklock_stat_reset();
	zklock_party_stats_reset();
	zklock_work_reset();
	PG_RETURN_VOID();
}
