/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  SQL-callable functions for administrators: what the ensemble says of the
 *	  locks, the removal of a contender, the base of fencing tokens, and statistics.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "check.h"
#include "names.h"
#include "arguments.h"
#include "hold.h"
#include "query.h"
#include "settings.h"
#include "stat.h"

PG_FUNCTION_INFO_V1(zk_contenders);
PG_FUNCTION_INFO_V1(zk_lock_dirs);
PG_FUNCTION_INFO_V1(zk_break);
PG_FUNCTION_INFO_V1(zk_raise_tokens);
PG_FUNCTION_INFO_V1(zk_stat);
PG_FUNCTION_INFO_V1(zk_stat_locks);
PG_FUNCTION_INFO_V1(zk_stat_reset);

/* ZooKeeper's time, ms since 1970. */
static TimestampTz
node_time(int64 ms)
{
	return (ms -
			(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * INT64CONST(1000)) *
		1000;
}

/* A node of a queue, and what its name says. */
typedef struct Contender
{
	const ZkNode *node;
	ZkLockChild child;
	bool granted;
} Contender;

/*
 * Everybody in the queue of a name (UTF-8), in order.  Who has the lock is a question
 * of order: nobody before an exclusive contender, and nobody exclusive before a shared
 * one; contenders of one session do not stand in each other's way.
 */
static int
ask_queue(const char *name, Contender **queue)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_LOCK, .contenders = true};
	ZkNode *nodes;
	int n;
	uint64 first[ZKLOCK_NMODES] = {0, 0}; /* session of the first in this mode ... */
	bool any[ZKLOCK_NMODES] = {false, false};
	bool several[ZKLOCK_NMODES] = {false, false}; /* ... and there are others */

	strlcpy(query.name, name, sizeof(query.name));
	n = zklock_query(&query, &nodes);
	if (n <= 0)
		return 0;
	*queue = palloc_extended(sizeof(Contender) * (Size) n, MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
	{
		Contender *c = &(*queue)[i];
		bool blocked = false;

		c->node = &nodes[i];
		memset(&c->child, 0, sizeof(c->child));
		c->child.mode = ZKLOCK_EXCLUSIVE;
		(void) zklock_parse_child(nodes[i].name, &c->child);
		for (int mode = 0; mode < ZKLOCK_NMODES; mode++)
		{
			if (mode == ZKLOCK_SHARED && c->child.mode == ZKLOCK_SHARED)
				continue;
			blocked |= any[mode] &&
				(several[mode] || c->child.uuid_hi == 0 || first[mode] != c->child.uuid_hi);
		}
		c->granted = !blocked;
		if (any[c->child.mode] &&
			(c->child.uuid_hi == 0 || first[c->child.mode] != c->child.uuid_hi))
			several[c->child.mode] = true;
		else
			first[c->child.mode] = c->child.uuid_hi;
		any[c->child.mode] = true;
	}
	return n;
}

/* zk_contenders(name text) returns setof record */
Datum
zk_contenders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkSessionShared s;
	Contender *queue;
	int n;

	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	InitMaterializedSRF(fcinfo, 0);
	n = ask_queue(name, &queue);
	zklock_session_read(&s);

	for (int i = 0; i < n; i++)
	{
		const Contender *c = &queue[i];
		const ZkNode *node = c->node;
		char *server = palloc((Size) node->datalen + 1);
		Datum values[10];
		bool nulls[10] = {0};

		values[0] = Int32GetDatum(i + 1);
		nulls[1] = !zklock_parse_server(node->data, (size_t) node->datalen, server);
		if (!nulls[1])
			values[1] = CStringGetTextDatum(
				zklock_display_bytes(server, (int) strlen(server), false));
		values[2] = CStringGetTextDatum(c->child.mode == ZKLOCK_EXCLUSIVE ? "exclusive"
																		  : "shared");
		values[3] = BoolGetDatum(c->granted);
		values[4] = Int64GetDatum(node->token);
		nulls[5] = node->ephemeral_owner == 0;
		if (!nulls[5])
			values[5] = CStringGetTextDatum(
				psprintf("0x%llx", (unsigned long long) node->ephemeral_owner));
		values[6] = BoolGetDatum(s.id.id != 0 && node->ephemeral_owner == s.id.id);
		values[7] = TimestampTzGetDatum(node_time(node->ctime));
		values[8] = CStringGetTextDatum(
			zklock_display_bytes(node->data, node->datalen, node->data_cut));
		values[9] = CStringGetTextDatum(
			zklock_display_bytes(node->name, (int) strlen(node->name), node->name_cut));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		pfree(server);
	}
	return (Datum) 0;
}

/*
 * zk_lock_dirs(prefix text) returns setof record
 *
 * Only where there are several children it takes a look at each.
 */
Datum
zk_lock_dirs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkQuery query = {.kind = ZKLOCK_KIND_LOCK};
	char *prefix = zklock_to_utf8(PG_GETARG_TEXT_PP(0));
	ZkNode *nodes;
	int n;

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
		Contender *queue = NULL;
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

			contenders = ask_queue(name, &queue);
			for (int j = 0; j < contenders; j++)
			{
				if (queue[j].granted)
					continue;
				if (waiting++ == 0)
					values[3] = TimestampTzGetDatum(node_time(queue[j].node->ctime));
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

/* zk_break(name text, token bigint) returns boolean */
Datum
zk_break(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token = PG_GETARG_INT64(1);
	bool removed;

	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_LOCK, PG_GETARG_TEXT_PP(0), name);
	removed = zklock_query_remove(name, token);
	if (removed)
		ereport(LOG,
				(errmsg("zk_break removed the contender with token %lld from the queue of lock \"%s\"",
						(long long) token, zklock_display_name(name))));
	PG_RETURN_BOOL(removed);
}

/* zk_raise_tokens(above bigint) returns bigint */
Datum
zk_raise_tokens(PG_FUNCTION_ARGS)
{
	int64 above = PG_GETARG_INT64(0);
	int64 base;

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
	Datum values[ZKLOCK_NSTATS + 1];
	bool nulls[ZKLOCK_NSTATS + 1] = {0};

	zklock_check_callable();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	zklock_stat_server(n, &since);
	put_counters(values, n);
	values[ZKLOCK_NSTATS] = TimestampTzGetDatum(since);
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
		Datum values[ZKLOCK_NSTATS + 2];
		bool nulls[ZKLOCK_NSTATS + 2] = {0};

		if (!zklock_in_namespace(rows[i].name))
			continue;
		values[0] = CStringGetTextDatum(zklock_display_name(rows[i].name));
		put_counters(&values[1], rows[i].n);
		values[ZKLOCK_NSTATS + 1] = TimestampTzGetDatum(rows[i].used);
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
	PG_RETURN_VOID();
}
