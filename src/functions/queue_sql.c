/*-------------------------------------------------------------------------
 *
 * queue_sql.c
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

#include "acquire.h"
#include "arguments.h"
#include "callbacks.h"
#include "check.h"
#include "drain.h"
#include "loss.h"
#include "names.h"
#include "query.h"
#include "queue_backend.h"
#include "row.h"
#include "table.h"

PG_FUNCTION_INFO_V1(zk_queue_put);
PG_FUNCTION_INFO_V1(zk_queue_take);
PG_FUNCTION_INFO_V1(zk_queue_purge);

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
	zklock_queue_put(name, payload, (int) strlen(payload));
	PG_RETURN_VOID();
}

/*
 * A payload is the user's: it comes as it was put, or not at all.  It is valid UTF-8
 * (queue_takes.c, deliver); but this database may lack a character.
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
	ZkRow row;

	ZKLOCK_REFUSE_NULLS("queue name", NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	timeout = zklock_get_timeout(fcinfo, 1);
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
	if (!zklock_queue_take(name, timeout, &handout))
		return (Datum) 0;
	row = zklock_row_of_set(rsinfo);
	zklock_row_bigint(&row, "id", handout.id);
	zklock_row_set(&row, "payload", payload_datum(&handout));
	zklock_row_int(&row, "attempt", handout.attempt);
	zklock_row_time(&row, "since", zklock_time_of_ms(handout.since));
	zklock_row_store(rsinfo, &row);
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
