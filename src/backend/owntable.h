/*-------------------------------------------------------------------------
 *
 * owntable.h
 *	  Tables of the extension, read and written without SQL.
 *
 * Whoever may call a function that writes such a table needs no right on it.  So
 * there is no SQL, which could be made to mean something else: no name but the
 * table's own is looked up, that one by the OID of the function's schema, and the
 * table counts only if it belongs to the function's extension.  It is read and
 * written as PostgreSQL does with its catalogs, which runs no trigger, rule, default,
 * check or expression.  A table that has such a thing is refused, rather than written
 * without it; but for triggers and checks of the extension's own.
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

/* It is not as the extension made it: 55000.  "why" is a sentence. */
pg_noreturn extern void zklock_own_refuse(const ZkOwnTable *own, const char *why);

/* Open it for writing until the transaction ends, in the schema of that function of the
 * extension; zklock_own_close does not unlock it. */
extern void zklock_own_open(ZkOwnTable *own, Oid function);
extern void zklock_own_close(ZkOwnTable *own);

/* A column of this type, or refuse. */
extern AttrNumber zklock_own_column(const ZkOwnTable *own, const char *name, Oid type);

/*
 * Refuse if there is a column besides these that cannot be null.  A later version may
 * have columns that we know nothing of and leave null.
 */
extern void zklock_own_check_columns(const ZkOwnTable *own, const AttrNumber *known, int n);

/* Is this a B-tree with these columns for its key, ascending, and nothing else, and no
 * two texts equal? */
extern bool zklock_own_index_matches(Relation index, const AttrNumber *key, int n);

/* A tuple of "values", which are nulls unless set. */
extern void zklock_own_set(Datum *values, bool *nulls, AttrNumber column, Datum value);

#endif /* ZKLOCK_OWNTABLE_H */
