/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  zk_fence: the data refuses a holder that is late.
 *
 * Between the last check of a lock, at PRE_COMMIT, and the commit record lies a
 * gap in which the lock can be lost, as with any lock service.  An ordinary row
 * in the database that is written closes it: it remembers the largest token
 * seen for a resource and stays locked until the transaction ends.  The row
 * lock orders the transactions, the token orders the holders.
 *
 * Nothing here needs shared memory or the ensemble: the database that is
 * written may belong to a server without them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "settings.h"

PG_FUNCTION_INFO_V1(zk_fence);

/* bytes in the server encoding; with the namespace it must fit into an index */
#define RESOURCE_MAX 1000

static SPIPlanPtr plan = NULL;
static Oid plan_namespace = InvalidOid;

/*
 * The table lies in the function's own schema, wherever the extension was put.
 * The function is SECURITY DEFINER, so nothing is left to search_path.
 */
static SPIPlanPtr
get_plan(Oid function)
{
	Oid namespace = get_func_namespace(function);
	Oid types[] = {TEXTOID, INT8OID, TEXTOID};
	StringInfoData sql;

	if (plan != NULL && plan_namespace == namespace)
		return plan;
	if (plan != NULL)
	{
		SPI_freeplan(plan);
		plan = NULL;
	}
	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "INSERT INTO %s AS f (resource, token, namespace) VALUES ($1, $2, $3)"
					 " ON CONFLICT (namespace, resource) DO UPDATE SET token = greatest(f.token, excluded.token)"
					 " RETURNING token",
					 quote_qualified_identifier(get_namespace_name(namespace), "zk_fences"));
	plan = SPI_prepare(sql.data, lengthof(types), types);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	plan_namespace = namespace;
	return plan;
}

/* zk_fence(resource text, token bigint) returns void */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	Datum values[] = {PG_GETARG_DATUM(0), PG_GETARG_DATUM(1),
					  CStringGetTextDatum(zklock_namespace)};
	int64 token = PG_GETARG_INT64(1);
	Size resource_len = VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(0));
	int64 largest;
	bool isnull;

	if (resource_len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resource name must not be empty")));
	if (resource_len > RESOURCE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("resource name is too long"),
				 errdetail("The name has %zu bytes; a resource name has 1 to %d.",
						   resource_len, RESOURCE_MAX)));

	SPI_connect();
	if (SPI_execute_plan(get_plan(fcinfo->flinfo->fn_oid), values, NULL, false, 1) !=
			SPI_OK_INSERT_RETURNING ||
		SPI_processed != 1)
		elog(ERROR, "could not update the fence");
	largest = DatumGetInt64(
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();

	if (largest > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("fencing token %lld for resource \"%s\" is too old",
						(long long) token, text_to_cstring(PG_GETARG_TEXT_PP(0))),
				 errdetail("Token %lld has been here: another holder has had the lock since.",
						   (long long) largest),
				 errhint("Acquire the lock anew and retry the transaction.")));
	PG_RETURN_VOID();
}
