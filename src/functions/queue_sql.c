/*-------------------------------------------------------------------------
 *
 * queue_sql.c
 *	  SQL functions of queues of work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "arguments.h"
#include "callbacks.h"
#include "check.h"
#include "loss.h"
#include "names.h"
#include "query.h"
#include "queue_backend.h"
#include "row.h"
#include "table.h"

PG_FUNCTION_INFO_V1(zk_queue_put);
PG_FUNCTION_INFO_V1(zk_queue_take);
PG_FUNCTION_INFO_V1(zk_queue_purge);

/* zk_queue_put(queue text, payload text) returns uuid */
Datum
zk_queue_put(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	char id[ZKLOCK_ITEM_ID];
	char *payload;

	ZKLOCK_REFUSE_NULLS("queue name", "payload");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	payload = zklock_to_utf8(PG_GETARG_TEXT_PP(1));
	zklock_introduce(); /* the commit may wait */
	zklock_callbacks_begin();
	zklock_queue_put(name, payload, (int) strlen(payload), id);
	PG_RETURN_DATUM(zklock_uuid_datum(id));
}

/* A payload is the user's, so it is returned as it was put, or not at all.  It is valid
 * UTF-8 (queue_takes.c, deliver), but this database may lack a character. */
static Datum
payload_datum(const ZkHandout *handout)
{
	return CStringGetTextDatum(pg_any_to_server(handout->payload, handout->len, PG_UTF8));
}

/* Largest number of items that one call takes.  The worker looks for each of them among
 * all takes. */
#define COUNT_MAX 100

static int
get_count(int32 arg)
{
	if (arg < 1 || arg > COUNT_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("count must be between 1 and %d", COUNT_MAX)));
	return arg;
}

static int
get_attempts(int32 arg)
{
	if (arg < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempts must be at least 1")));
	return arg;
}

/* Failed items go to a queue with a longer name: check its length. */
static void
check_name_of_failed(const char *name)
{
	if (strlen(name) + strlen(ZKLOCK_FAILED) > ZKLOCK_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue name is too long for \"attempts\""),
				 errdetail("Items that have failed go to the queue \"%s%s\", and a name has %d bytes in UTF-8 at most.",
						   zklock_display_name(name), ZKLOCK_FAILED, ZKLOCK_NAME_MAX)));
}

static void
put_handout(ReturnSetInfo *rsinfo, const ZkHandout *handout)
{
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_row_set(&row, "id", UUIDOID, zklock_uuid_datum(handout->item.id));
	zklock_row_set(&row, "payload", TEXTOID, payload_datum(handout));
	zklock_row_int(&row, "attempt", handout->attempt);
	zklock_row_time(&row, "since", zklock_time_of_ms(handout->since));
	zklock_row_store(rsinfo, &row);
}

/* zk_queue_take(queue text, timeout interval, count integer, attempts integer) returns
 * setof record */
Datum
zk_queue_take(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkHandout *handouts;
	int64 timeout;
	int count;
	int most;
	int n;

	ZKLOCK_REFUSE_NULLS("queue name", NULL, "count", NULL);
	count = get_count(PG_GETARG_INT32(2));
	most = PG_ARGISNULL(3) ? 0 : get_attempts(PG_GETARG_INT32(3));
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_QUEUE, PG_GETARG_TEXT_PP(0), name);
	if (most > 0)
		check_name_of_failed(name);
	timeout = zklock_get_timeout(fcinfo, 1);
	InitMaterializedSRF(fcinfo, 0);
	zklock_callbacks_begin();
	n = zklock_queue_take(name, timeout, count, most, &handouts);
	for (int i = 0; i < n; i++)
		put_handout(rsinfo, &handouts[i]);
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
