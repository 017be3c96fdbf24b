/*-------------------------------------------------------------------------
 *
 * queues.c
 *	  SQL functions of work that is handed out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "acquire.h"
#include "arguments.h"
#include "callbacks.h"
#include "check.h"
#include "drain.h"
#include "handout.h"
#include "loss.h"
#include "names.h"
#include "query.h"
#include "table.h"

PG_FUNCTION_INFO_V1(zk_queue_put);
PG_FUNCTION_INFO_V1(zk_queue_take);
PG_FUNCTION_INFO_V1(zk_queue_purge);
PG_FUNCTION_INFO_V1(zk_queues);

/* zk_queue_put(queue text, payload text) returns void */
Datum
zk_queue_put(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	char *payload;

	ZKLOCK_REFUSE_NULLS("queue name", "payload");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	payload = zklock_to_utf8(PG_GETARG_TEXT_PP(1));
	zklock_introduce(); /* the commit may wait */
	zklock_callbacks_begin();
	zklock_handout_put(name, payload, (int) strlen(payload));
	PG_RETURN_VOID();
}

/*
 * A payload is the user's: it comes as it was put, or not at all.  It is valid UTF-8
 * (takes.c, deliver); but this database may lack a character.
 */
static Datum
payload_datum(const ZkHandout *handout)
{
	return CStringGetTextDatum(pg_any_to_server(handout->payload, handout->len, PG_UTF8));
}

/* zk_queue_take(queue text, timeout interval) returns setof record */
Datum
zk_queue_take(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char name[ZKLOCK_NAME_MAX + 1];
	int64 timeout;
	ZkHandout handout;
	Datum values[4];
	bool nulls[4] = {0};

	ZKLOCK_REFUSE_NULLS("queue name", "timeout");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	timeout = zklock_get_timeout(PG_GETARG_INTERVAL_P(1), "timeout");
	InitMaterializedSRF(fcinfo, 0);
	if (zklock_draining())
	{
		ereport(NOTICE,
				(errmsg("no item of queue \"%s\" is taken by this server",
						zklock_display_name(name)),
				 errdetail("The server is taken out of service by \"zklock.drain\".")));
		return (Datum) 0;
	}
	zklock_callbacks_begin();
	if (!zklock_handout_take(name, timeout, &handout))
		return (Datum) 0;
	values[0] = Int64GetDatum(handout.id);
	values[1] = payload_datum(&handout);
	values[2] = Int32GetDatum(handout.attempt);
	values[3] = TimestampTzGetDatum(zklock_time_of_ms(handout.since));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* zk_queue_purge(queue text) returns bigint */
Datum
zk_queue_purge(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("queue name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	PG_RETURN_INT64(zklock_query_purge(name, "items"));
}

/* Since when the oldest item is there; false: there is none. */
static bool
find_oldest(const char *name, TimestampTz *since)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE,
					 .part = "items",
					 .contenders = true,
					 .limit = 1};
	ZkNode *nodes;

	strlcpy(query.name, name, sizeof(query.name));
	if (zklock_query(&query, &nodes) <= 0)
		return false;
	*since = zklock_time_of_ms(nodes[0].ctime);
	return true;
}

/* zk_queues() returns setof record */
Datum
zk_queues(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkQuery all = {.kind = ZKLOCK_KIND_QUEUE};
	ZkNode *queues;
	int nqueues;

	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	nqueues = zklock_query(&all, &queues);
	for (int i = 0; i < nqueues; i++)
	{
		ZkQuery query = {.kind = ZKLOCK_KIND_QUEUE};
		Datum values[5] = {0, Int64GetDatum(0), Int64GetDatum(0), Int64GetDatum(0), 0};
		bool nulls[5] = {0};
		TimestampTz oldest = 0;
		ZkNode *parts;
		int nparts;

		if (queues[i].name_cut || !zklock_decode_name(queues[i].name, query.name) ||
			!zklock_in_namespace(query.name))
			continue;
		values[0] = CStringGetTextDatum(zklock_display_name(query.name));
		nparts = zklock_query(&query, &parts);
		for (int j = 0; j < nparts; j++)
		{
			int column = strcmp(parts[j].name, "items") == 0 ? 1
				: strcmp(parts[j].name, "held") == 0		 ? 2
				: strcmp(parts[j].name, "puts") == 0		 ? 3
															 : 0;

			if (column > 0)
				values[column] = Int64GetDatum(parts[j].nchildren);
		}
		nulls[4] = DatumGetInt64(values[1]) == 0 || !find_oldest(query.name, &oldest);
		values[4] = TimestampTzGetDatum(oldest);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
