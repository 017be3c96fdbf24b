/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  Views and SQL functions for administrators: the state of the locks on this server
 *	  and in the ensemble, the removal of a contender, the base of fencing tokens, and
 *	  statistics.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "barrier_shared.h"
#include "check.h"
#include "contenders.h"
#include "drain.h"
#include "history.h"
#include "hold.h"
#include "monitor.h"
#include "names.h"
#include "nodes.h"
#include "protocol.h"
#include "query.h"
#include "queue_shared.h"
#include "row.h"
#include "sessions.h"
#include "settings.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(zk_contenders);
PG_FUNCTION_INFO_V1(zk_lock_dirs);
PG_FUNCTION_INFO_V1(zk_break);
PG_FUNCTION_INFO_V1(zk_raise_tokens);
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
	int permits; /* of that kind */
	ZkProcLock proclock;
	ZkLockGrant grant;
} LockRow;

/* The state of the grant for a holder, and of the wish for a waiter. */
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
 * The backends of this server whose holds must end before a queued waiter can have its
 * turn.  The waiter would share their grant, which goes when the last of these holds
 * ends; or the waiter has level 1, which these backends have lost.  NULL if there is
 * none.  The rows of the waiter's name are neighbours.
 */
static ArrayType *
local_blockers(const LockRow *rows, int nrows, const LockRow *waiter)
{
	const ZkProcLock *w = &waiter->proclock;
	const LockRow *first = waiter;
	const LockRow *end = waiter;
	Datum *pids;
	int n = 0;

	/* who asks for a permit waits for nobody in particular */
	if (w->state != ZKLOCK_PROCLOCK_WANTED || zklock_kinds[waiter->kind].by_session)
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
	ZkRow out = zklock_row_of_set(rsinfo);

	zklock_row_name(&out, "name", row->name);
	zklock_row_text(&out, "kind", zklock_kinds[row->kind].name);
	if (zklock_kinds[row->kind].modes)
		zklock_row_text(&out, "mode", zklock_modes[proclock->mode]);
	zklock_row_bool(&out, "granted", granted);
	zklock_row_text(&out, "grant_state", lock_row_state(row));
	if (granted && !proclock->lost)
	{
		zklock_row_bigint(&out, "token", row->grant.token);
		zklock_row_interval(&out, "lease_remaining", Max(lease, 0) / 1000);
	}
	if (!granted)
		zklock_row_time(&out, "wait_start", proclock->wait_start);
	if (!kept)
	{
		zklock_row_text(&out, "scope", zklock_scopes[scope]);
		if (granted)
		{
			zklock_row_bigint(&out, "count", (int64) proclock->count[scope]);
			zklock_row_time(&out, "held_since",
							GetCurrentTimestamp() -
								(zklock_clock() - proclock->held_since) / 1000);
		}
		zklock_row_int(&out, "pid", proclock->pid);
		zklock_row_text(&out, "datname", get_database_name(proclock->database));
		zklock_row_text(&out, "usename", GetUserNameFromId(proclock->role, true));
		zklock_row_text(&out, "application_name", proclock->application);
	}
	if (blockers != NULL)
		zklock_row_set(&out, "blocked_by", INT4ARRAYOID, PointerGetDatum(blockers));
	zklock_level1_tag(&tag, row->kind, row->name, proclock->pid);
	zklock_row_set(&out, "classid", OIDOID, ObjectIdGetDatum(tag.locktag_field2));
	zklock_row_set(&out, "objid", OIDOID, ObjectIdGetDatum(tag.locktag_field3));
	zklock_row_set(&out, "objsubid", INT2OID, Int16GetDatum((int16) tag.locktag_field4));
	if (row->permits > 0)
		zklock_row_int(&out, "permits", row->permits);
	if (!kept && !zklock_may_see(proclock->role))
		zklock_row_hide_all_but(&out, "pid");
	zklock_row_store(rsinfo, &out);
}

static void
put_entry(LockRow *row, const ZkLockEntry *entry, int mode)
{
	row->kind = (ZkLockKind) entry->kind;
	row->permits = entry->queue.permits;
	row->grant = entry->grant[mode];
	strlcpy(row->name, entry->name, sizeof(row->name));
}

/* Collect the rows of an entry, as far as there is room.  Returns how many rows there
 * are.  The entry is locked. */
static int
collect_lock_rows(const ZkLockEntry *entry, LockRow *rows, int room)
{
	int n = 0;

	if (!zklock_kinds[entry->kind].shown)
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
 * The view of this server's holds and waiters, in our namespace.
 *
 * It reads the entries one after the other.  So the rows of one name are consistent,
 * and those of two names need not be.
 */
void
zklock_show_locks(ReturnSetInfo *rsinfo)
{
	int room = 64;
	LockRow *rows = palloc(sizeof(LockRow) * (Size) room);
	int nrows = 0;

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

void
zklock_show_session(ReturnSetInfo *rsinfo)
{
	ZkSessionShared s;
	ZkRow row = zklock_row_of_set(rsinfo);
	int64 now = zklock_clock();
	int64 latency;

	zklock_session_read(&s);
	zklock_row_text(&row, "state", session_state_name(s.state));
	zklock_row_bytes(&row, "connected_to", s.server);
	if (s.id.id != 0)
	{
		int64 lease = (int64) pg_atomic_read_u64(&zklock_shared->lease_end) - now;

		zklock_row_session(&row, "session_id", s.id.id);
		zklock_row_interval(&row, "session_timeout", (int64) s.timeout_ms * 1000);
		zklock_row_interval(&row, "lease_remaining", Max(lease, 0) / 1000);
		if (s.opened_at != 0)
			zklock_row_interval(&row, "session_uptime", (now - s.opened_at) / 1000);
	}
	if (s.last_error[0] != '\0')
	{
		zklock_row_bytes(&row, "last_error", s.last_error);
		zklock_row_time(&row, "last_error_time", s.last_error_at);
	}
	if (s.worker_pid != 0)
	{
		zklock_row_int(&row, "worker_pid", s.worker_pid);
		if (s.worker_started != 0)
			zklock_row_interval(&row, "worker_uptime", (now - s.worker_started) / 1000);
	}
	zklock_row_bytes(&row, "hosts", s.hosts);
	zklock_row_bytes(&row, "library", s.library);
	latency = (int64) pg_atomic_read_u64(&zklock_shared->write_latency);
	if (latency != 0)
		zklock_row_interval(&row, "write_latency", latency / 1000);
	latency = (int64) pg_atomic_read_u64(&zklock_shared->read_latency);
	if (latency != 0)
		zklock_row_interval(&row, "read_latency", latency / 1000);
	zklock_row_bigint(&row, "reconnects", s.reconnects);
	zklock_row_bigint(&row, "expiries", s.expiries);
	zklock_row_int(&row, "in_flight",
				   (int32) pg_atomic_read_u32(&zklock_shared->in_flight));
	zklock_row_int(&row, "names", zklock_table_entries());
	zklock_row_int(&row, "max_names", zklock_shared->nentries);
	zklock_row_int(&row, "locks", zklock_table_proclocks());
	zklock_row_int(&row, "kept", (int32) zklock_table_kept());
	zklock_row_text(&row, "drain", zklock_drain_name(zklock_drain_state()));
	zklock_row_store(rsinfo, &row);
}

/* ------------------------------------------------------------------------
 * The ensemble
 * ------------------------------------------------------------------------
 */

/* The view of the servers that have a node under <root>/servers. */
void
zklock_show_servers(ReturnSetInfo *rsinfo)
{
	ZkQuery query = {.ask = ZKLOCK_ASK_SERVERS};
	ZkSessionShared s;
	ZkNode *nodes;
	int n;

	n = zklock_query(&query, &nodes);
	zklock_session_read(&s);

	for (int i = 0; i < n; i++)
	{
		const ZkNode *node = &nodes[i];
		ZkRow row = zklock_row_of_set(rsinfo);

		zklock_row_node(&row, node);
		zklock_row_field(&row, "server", node, "server");
		zklock_row_field(&row, "host", node, "host");
		zklock_row_number(&row, "postmaster_pid", node, "pid");
		zklock_row_field(&row, "zklock_version", node, "zklock");
		zklock_row_field(&row, "postgres_version", node, "postgres");
		if (!zklock_node_unread(node))
		{
			zklock_row_time(&row, "since", zklock_time_of_ms(node->ctime));
			zklock_row_time(&row, "heartbeat", zklock_time_of_ms(node->mtime));
		}
		zklock_row_number(&row, "elections", node, "elections");
		zklock_row_number(&row, "jobs", node, "jobs");
		zklock_row_field(&row, "drain", node, "drain");
		zklock_row_bool(&row, "ours", s.id.id != 0 && node->ephemeral_owner == s.id.id);
		zklock_row_store(rsinfo, &row);
	}
}

/* Set the columns that come from a report. */
static void
put_owner(ZkRow *row, const ZkOwner *owner, bool ours)
{
	const ZkReportItem *item = &owner->item;
	const ZkReportSession *session = &item->session[0];

	zklock_row_text(row, "state", zklock_report_state_name(item->state));
	zklock_row_time(row, "as_of", owner->as_of);
	if (item->nsessions > 0)
	{
		zklock_row_int(row, "pid", session->pid);
		if (!zklock_may_see_session(session->pid, ours))
			return;
		zklock_row_bytes(row, "datname", session->database);
		zklock_row_bytes(row, "usename", session->user);
		zklock_row_bytes(row, "application_name", session->application);
	}
	if (item->age >= 0)
		zklock_row_time(row, "state_since", zklock_owner_time(owner, item->age));
}

/* Is there a contender of another server?  Then the reports are needed. */
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

/* Store the contenders of one kind, in the order of the queue.  "members": without nodes
 * until the reports are needed. */
static void
put_contenders(ReturnSetInfo *rsinfo, ZkLockKind kind, const char *name, ZkMembers *members)
{
	ZkContenders queue;

	zklock_contenders_ask(kind, name, &queue);
	if (members->n == 0 && has_others(&queue, members->session))
		zklock_members_ask(members);

	for (int i = 0; i < queue.n; i++)
	{
		const ZkNode *node = &queue.nodes[i];
		bool ours = members->session != 0 && node->ephemeral_owner == members->session;
		ZkOwner owner;
		ZkRow row = zklock_row_of_set(rsinfo);

		zklock_row_text(&row, "kind", zklock_kinds[kind].name);
		zklock_row_int(&row, "position", i + 1);
		zklock_row_node(&row, node);
		if (zklock_kinds[kind].modes)
			zklock_row_text(&row, "mode", zklock_modes[queue.children[i].mode]);
		zklock_row_bool(&row, "granted", queue.holds[i]);
		zklock_row_bigint(&row, "token", node->token);
		zklock_row_bool(&row, "ours", ours);
		zklock_row_time(&row, "since", zklock_time_of_ms(node->ctime));
		if (zklock_members_owner(members, kind, name, &queue, i, &owner))
			put_owner(&row, &owner, ours);
		zklock_row_set(&row, "data", TEXTOID, zklock_node_data_datum(node));
		if (queue.children[i].permits > 0)
			zklock_row_int(&row, "permits", queue.children[i].permits);
		zklock_row_store(rsinfo, &row);
	}
}

/* zk_contenders(name text) returns setof record */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkMembers members = {0};
	ZkSessionShared s;

	ZKLOCK_REFUSE_NULLS("lock name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	InitMaterializedSRF(fcinfo, 0);
	zklock_session_read(&s);
	members.session = s.id.id;
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
	{
		if (zklock_kinds[kind].unlocked)
			put_contenders(rsinfo, (ZkLockKind) kind, name, &members);
	}
	return (Datum) 0;
}

/* Store the directories of one kind.  Only a directory with several children needs a
 * look at each child. */
static void
put_lock_dirs(ReturnSetInfo *rsinfo, ZkLockKind kind, const char *prefix)
{
	ZkQuery query = {.kind = kind};
	ZkNode *nodes;
	int n;

	/* as a whole these two are encoded, and else they are not */
	if (strcmp(prefix, ".") != 0 && strcmp(prefix, "..") != 0)
		zklock_encode_name(prefix, query.prefix);

	n = zklock_query(&query, &nodes);
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];
		int contenders = nodes[i].nchildren;
		int waiting = 0;
		TimestampTz oldest = 0;
		ZkRow row;

		if (contenders == 0 || !zklock_decode_name(nodes[i].name, name) ||
			strncmp(name, prefix, strlen(prefix)) != 0 || !zklock_in_namespace(name))
			continue;
		if (contenders > 1)
		{
			MemoryContext context =
				AllocSetContextCreate(CurrentMemoryContext, "zklock queue",
									  ALLOCSET_DEFAULT_SIZES);
			MemoryContext save = MemoryContextSwitchTo(context);
			ZkContenders queue;

			zklock_contenders_ask(kind, name, &queue);
			contenders = queue.n;
			for (int j = 0; j < queue.n; j++)
			{
				if (queue.holds[j])
					continue;
				if (waiting++ == 0)
					oldest = zklock_time_of_ms(queue.nodes[j].ctime);
			}
			MemoryContextSwitchTo(save);
			MemoryContextDelete(context);
			if (contenders == 0)
				continue;
		}
		row = zklock_row_of_set(rsinfo);
		zklock_row_text(&row, "kind", zklock_kinds[kind].name);
		zklock_row_name(&row, "name", name);
		zklock_row_int(&row, "contenders", contenders);
		zklock_row_int(&row, "waiting", waiting);
		zklock_row_time(&row, "oldest_waiter", oldest);
		zklock_row_store(rsinfo, &row);
	}
}

/* zk_lock_dirs(prefix text) returns setof record */
Datum
zk_lock_dirs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char *prefix;

	ZKLOCK_REFUSE_NULLS("prefix");
	prefix = zklock_to_utf8(PG_GETARG_TEXT_PP(0));
	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	if (zklock_namespace[0] != '\0')
		prefix = psprintf("%s%c%s", zklock_namespace, ZKLOCK_NAMESPACE_END, prefix);
	for (int kind = 0; kind < ZKLOCK_NKINDS && strlen(prefix) <= ZKLOCK_NAME_MAX; kind++)
	{
		if (zklock_kinds[kind].unlocked)
			put_lock_dirs(rsinfo, (ZkLockKind) kind, prefix);
	}
	return (Datum) 0;
}

/* A sentence for the log about the owner of the contender with this token, if it is
 * known. */
static const char *
describe_owner(ZkLockKind kind, const char *name, int64 token)
{
	ZkContenders queue;
	ZkMembers members;
	ZkOwner owner;
	StringInfoData buf;
	const ZkNode *node;
	int i = 0;

	zklock_contenders_ask(kind, name, &queue);
	while (i < queue.n && queue.nodes[i].token != token)
		i++;
	if (i == queue.n)
		return NULL;
	node = &queue.nodes[i];
	initStringInfo(&buf);
	appendStringInfo(&buf, "It was made with \"%s\"",
					 zklock_display_bytes(node->data, node->datalen, node->data_cut));
	zklock_members_ask(&members);
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

/* Remove the contender of that kind, if there is one. */
static bool
break_contender(ZkLockKind kind, const char *name, int64 token)
{
	/* afterwards nobody can tell */
	const char *owner = token > 0 ? describe_owner(kind, name, token) : NULL;
	bool removed = zklock_query_remove(kind, name, token);

	if (removed)
		ereport(LOG,
				(errmsg("zk_break removed the contender with token %lld from the queue of %s \"%s\"",
						(long long) token, zklock_kinds[kind].name,
						zklock_display_name(name)),
				 owner != NULL ? errdetail_log("%s", owner) : 0));
	return removed;
}

/* zk_break(name text, token bigint) returns boolean */
Datum
zk_break(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;
	bool removed = false;

	ZKLOCK_REFUSE_NULLS("lock name", "fencing token");
	token = PG_GETARG_INT64(1);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	/* no token is given twice, whatever the kind */
	for (int kind = 0; kind < ZKLOCK_NKINDS && !removed; kind++)
		removed = zklock_kinds[kind].unlocked &&
			break_contender((ZkLockKind) kind, name, token);
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

static const char *const counter_columns[] = {
	[ZKLOCK_STAT_LOCAL] = "acquired_local",
	[ZKLOCK_STAT_KEPT] = "acquired_kept",
	[ZKLOCK_STAT_COLD] = "acquired_cold",
	[ZKLOCK_STAT_WAITS] = "waits",
	[ZKLOCK_STAT_WAIT_US] = "total_wait",
	[ZKLOCK_STAT_LONGEST_WAIT_US] = "longest_wait",
	[ZKLOCK_STAT_HOLD_US] = "total_hold",
	[ZKLOCK_STAT_LONGEST_HOLD_US] = "longest_hold",
	[ZKLOCK_STAT_TIMEOUTS] = "timeouts",
	[ZKLOCK_STAT_CANCELS] = "cancels",
	[ZKLOCK_STAT_DEADLOCKS] = "deadlocks",
	[ZKLOCK_STAT_FAILURES] = "failures",
	[ZKLOCK_STAT_LOSSES] = "losses",
	[ZKLOCK_STAT_DEMANDS] = "demands",
	[ZKLOCK_STAT_HANDOVERS] = "handovers",
};

static void
put_counters(ZkRow *row, const int64 *n)
{
	for (int i = 0; i < ZKLOCK_NSTATS; i++)
	{
		if (i == ZKLOCK_STAT_WAIT_US || i == ZKLOCK_STAT_HOLD_US ||
			zklock_stat_is_maximum(i))
			zklock_row_interval(row, counter_columns[i], n[i]);
		else
			zklock_row_bigint(row, counter_columns[i], n[i]);
	}
}

void
zklock_show_stat(ReturnSetInfo *rsinfo)
{
	static const char *const item_columns[] = {
		[ZKLOCK_QUEUE_PUT] = "items_put",
		[ZKLOCK_QUEUE_TAKEN] = "items_taken",
		[ZKLOCK_QUEUE_RETURNED] = "items_returned",
		[ZKLOCK_QUEUE_LOST] = "items_lost",
	};
	int64 n[ZKLOCK_NSTATS];
	TimestampTz since;
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_stat_server(n, &since);
	put_counters(&row, n);
	for (int i = 0; i < ZKLOCK_QUEUE_COUNTERS; i++)
		zklock_row_bigint(&row, item_columns[i],
						  (int64) pg_atomic_read_u64(&zklock_queue_shared->count[i]));
	zklock_row_time(&row, "stats_reset", since);
	zklock_row_store(rsinfo, &row);
}

void
zklock_show_stat_locks(ReturnSetInfo *rsinfo)
{
	ZkStatRow *rows;
	int n;

	rows = palloc(sizeof(ZkStatRow) * ZKLOCK_STAT_NAMES);
	n = zklock_stat_names(rows);
	for (int i = 0; i < n; i++)
	{
		ZkRow row;

		if (!zklock_in_namespace(rows[i].name))
			continue;
		row = zklock_row_of_set(rsinfo);
		zklock_row_name(&row, "name", rows[i].name);
		zklock_row_text(&row, "kind", zklock_kinds[rows[i].kind].name);
		put_counters(&row, rows[i].n);
		zklock_row_time(&row, "last_call", rows[i].used);
		zklock_row_store(rsinfo, &row);
	}
}

/* zk_stat_reset() returns void */
Datum
zk_stat_reset(PG_FUNCTION_ARGS)
{
	zklock_check_callable();
	zklock_stat_reset();
	zklock_barrier_stats_reset();
	zklock_queue_reset();
	PG_RETURN_VOID();
}
