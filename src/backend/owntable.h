/*-------------------------------------------------------------------------
 *
 * owntable.h
 *	  Reads and writes tables of the extension without SQL.
 *
 * A user who may call a function that writes such a table needs no right on the table.
 * So the function uses no SQL, which could be made to mean something else.  It looks up
 * no name except the table's, and that one by the OID of the function's schema.  The
 * table counts only if it belongs to the function's extension.  The function reads and
 * writes the table as PostgreSQL does its catalogs, so it runs no trigger, rule,
 * default, check or expression.  A table that has one of these is refused, and not
 * written without it.  Triggers and checks of the extension's own are allowed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_OWNTABLE_H
#define ZKLOCK_OWNTABLE_H

#include "access/attnum.h"
#include "utils/relcache.h"

typedef struct ZkOwnTable
{
	const char *name;
	const char *has; /* what it is that it remembers, for a hint */
	Relation rel;
} ZkOwnTable;

/* Raise 55000: the table is not as the extension made it.  "why" is a sentence. */
pg_noreturn extern void zklock_own_refuse(const ZkOwnTable *own, const char *why);

/* Open the table for writing until the transaction ends, in the schema of that function
 * of the extension.  zklock_own_close does not unlock it. */
extern void zklock_own_open(ZkOwnTable *own, Oid function);
extern void zklock_own_close(ZkOwnTable *own);

/* Find a column of this type, or refuse the table. */
extern AttrNumber zklock_own_column(const ZkOwnTable *own, const char *name, Oid type);

/* Refuse the table if any other column cannot be null.  A later version may have
 * columns that this version does not know and leaves null. */
extern void zklock_own_check_columns(const ZkOwnTable *own, const AttrNumber *known, int n);

/* Is this a B-tree with exactly these key columns, ascending, in which no two different
 * texts are equal? */
extern bool zklock_own_index_matches(Relation index, const AttrNumber *key, int n);

/* Set a column of a tuple.  "values" are null unless set. */
extern void zklock_own_set(Datum *values, bool *nulls, AttrNumber column, Datum value);

#endif /* ZKLOCK_OWNTABLE_H */
