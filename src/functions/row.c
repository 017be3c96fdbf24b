/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Makes rows of results, by the names of their columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "arguments.h"
#include "names.h"
#include "row.h"

static ZkRow
begin(TupleDesc desc)
{
	ZkRow row = {
		.desc = desc,
		.values = palloc0(sizeof(Datum) * (Size) desc->natts),
		.nulls = palloc(sizeof(bool) * (Size) desc->natts),
	};

	memset(row.nulls, true, sizeof(bool) * (Size) desc->natts);
	return row;
}

ZkRow
zklock_row_of_set(const ReturnSetInfo *rsinfo)
{
	return begin(rsinfo->setDesc);
}

ZkRow
zklock_row_of_function(FunctionCallInfo fcinfo)
{
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return begin(BlessTupleDesc(desc));
}

void
zklock_row_store(const ReturnSetInfo *rsinfo, const ZkRow *row)
{
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
}

Datum
zklock_row_datum(const ZkRow *row)
{
	return HeapTupleGetDatum(heap_form_tuple(row->desc, row->values, row->nulls));
}

static int
find(const ZkRow *row, const char *column)
{
	for (int i = 0; i < row->desc->natts; i++)
	{
		if (strcmp(NameStr(TupleDescAttr(row->desc, i)->attname), column) == 0)
			return i;
	}
	return -1;
}

void
zklock_row_set(ZkRow *row, const char *column, Oid type, Datum value)
{
	int i = find(row, column);
	Oid expected;

	if (i < 0)
		return;
	expected = TupleDescAttr(row->desc, i)->atttypid;
	if (expected != type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s but the query expects %s", column,
						format_type_be(type), format_type_be(expected))));
	row->values[i] = value;
	row->nulls[i] = false;
}

Datum
zklock_uuid_datum(const char *text)
{
	return DirectFunctionCall1(uuid_in, CStringGetDatum(text));
}

void
zklock_row_text(ZkRow *row, const char *column, const char *text)
{
	if (text != NULL)
		zklock_row_set(row, column, TEXTOID, CStringGetTextDatum(text));
}

void
zklock_row_bytes(ZkRow *row, const char *column, const char *bytes)
{
	if (bytes[0] != '\0')
		zklock_row_text(row, column, zklock_display_text(bytes));
}

void
zklock_row_name(ZkRow *row, const char *column, const char *name)
{
	zklock_row_text(row, column, zklock_display_name(name));
}

void
zklock_row_bool(ZkRow *row, const char *column, bool value)
{
	zklock_row_set(row, column, BOOLOID, BoolGetDatum(value));
}

void
zklock_row_int(ZkRow *row, const char *column, int32 value)
{
	zklock_row_set(row, column, INT4OID, Int32GetDatum(value));
}

void
zklock_row_bigint(ZkRow *row, const char *column, int64 value)
{
	zklock_row_set(row, column, INT8OID, Int64GetDatum(value));
}

void
zklock_row_time(ZkRow *row, const char *column, TimestampTz time)
{
	if (time != 0)
		zklock_row_set(row, column, TIMESTAMPTZOID, TimestampTzGetDatum(time));
}

void
zklock_row_interval(ZkRow *row, const char *column, int64 us)
{
	zklock_row_set(row, column, INTERVALOID, IntervalPGetDatum(zklock_make_interval(us)));
}

void
zklock_row_hide_all_but(ZkRow *row, const char *column)
{
	int shown = find(row, column);

	for (int i = 0; i < row->desc->natts; i++)
		row->nulls[i] |= i != shown;
}
