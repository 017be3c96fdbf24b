/*-------------------------------------------------------------------------
 *
 * row.h
 *	  Makes rows of results, by the names of their columns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROW_H
#define ZKLOCK_ROW_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/timestamp.h"

typedef struct ZkRow
{
	TupleDesc desc;
	Datum *values;
	bool *nulls;
} ZkRow;

/* A row with all columns NULL: for the set, or for the one row that the function
 * returns. */
extern ZkRow zklock_row_of_set(const ReturnSetInfo *rsinfo);
extern ZkRow zklock_row_of_function(FunctionCallInfo fcinfo);

/* Add the row to the set, or return it. */
extern void zklock_row_store(const ReturnSetInfo *rsinfo, const ZkRow *row);
extern Datum zklock_row_datum(const ZkRow *row);

/* --- columns ------------------------------------------------------------------ */

/* Set a column if the row has it: the caller of zk_rows lists the columns.  Raises
 * 42804 for a column of another type. */
extern void zklock_row_set(ZkRow *row, const char *column, Oid type, Datum value);

/* A value for that function, from the usual text of a uuid. */
extern Datum zklock_uuid_datum(const char *text);

/* Text in the encoding of the database; NULL if there is none. */
extern void zklock_row_text(ZkRow *row, const char *column, const char *text);

/* Set a text that others wrote, or a setting, which may contain any bytes.  NULL if it
 * is empty. */
extern void zklock_row_bytes(ZkRow *row, const char *column, const char *bytes);

/* Set a name, in the form in which users pass it. */
extern void zklock_row_name(ZkRow *row, const char *column, const char *name);

extern void zklock_row_bool(ZkRow *row, const char *column, bool value);
extern void zklock_row_int(ZkRow *row, const char *column, int32 value);
extern void zklock_row_bigint(ZkRow *row, const char *column, int64 value);

/* Set a time; NULL if it is 0. */
extern void zklock_row_time(ZkRow *row, const char *column, TimestampTz time);

/* Set an interval of "us" microseconds. */
extern void zklock_row_interval(ZkRow *row, const char *column, int64 us);

/* Hide all columns except this one, since the user may not see them. */
extern void zklock_row_hide_all_but(ZkRow *row, const char *column);

#endif /* ZKLOCK_ROW_H */
