/*-------------------------------------------------------------------------
 *
 * owntable.c
 *	  Reads and writes tables of the extension without SQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "nodes/nodes.h"
#include "nodes/primnodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "owntable.h"

void
zklock_own_refuse(const ZkOwnTable *own, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" is not as extension \"zklock\" made it", own->name),
			 errdetail("%s", why),
			 errhint("Undo the change. Dropping the extension would forget all %s.",
					 own->has)));
}

/* Triggers that the extension has made itself are for writes by others: see fence.c. */
static bool
has_strange_trigger(Relation rel, Oid extension)
{
	const TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (getExtensionOfObject(ProcedureRelationId, triggers->triggers[i].tgfoid) !=
			extension)
			return true;
	}
	return false;
}

/* A check that only calls a function of the extension counts as the extension's own. */
static bool
has_strange_check(Relation rel, Oid extension)
{
	const TupleConstr *constr = RelationGetDescr(rel)->constr;

	for (int i = 0; constr != NULL && i < constr->num_check; i++)
	{
		Node *check = stringToNode(constr->check[i].ccbin);

		if (!IsA(check, FuncExpr) || ((FuncExpr *) check)->args != NIL ||
			getExtensionOfObject(ProcedureRelationId, ((FuncExpr *) check)->funcid) !=
				extension)
			return true;
	}
	return false;
}

void
zklock_own_open(ZkOwnTable *own, Oid function)
{
	Oid extension = getExtensionOfObject(ProcedureRelationId, function);
	Oid oid = get_relname_relid(own->name, get_func_namespace(function));
	Relation rel = OidIsValid(oid) ? try_table_open(oid, RowExclusiveLock) : NULL;

	if (rel == NULL || !OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, oid) != extension)
		zklock_own_refuse(own,
						  "The extension has no such table in the schema of its functions.");
	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		zklock_own_refuse(own, "It is not an ordinary table.");
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		zklock_own_refuse(own, "It is unlogged, so that a crash empties it.");
	if (has_strange_trigger(rel, extension) || rel->rd_rules != NULL)
		zklock_own_refuse(own, "It has a trigger, a rule or a foreign key.");
	if (has_strange_check(rel, extension))
		zklock_own_refuse(own, "It has a check constraint.");
	own->rel = rel;
}

void
zklock_own_close(ZkOwnTable *own)
{
	table_close(own->rel, NoLock);
}

AttrNumber
zklock_own_column(const ZkOwnTable *own, const char *name, Oid type)
{
	TupleDesc desc = RelationGetDescr(own->rel);
	AttrNumber column = get_attnum(RelationGetRelid(own->rel), name);

	if (column <= 0 || TupleDescAttr(desc, column - 1)->atttypid != type)
		zklock_own_refuse(own, "A column is missing or has another type.");
	return column;
}

void
zklock_own_check_columns(const ZkOwnTable *own, const AttrNumber *known, int n)
{
	TupleDesc desc = RelationGetDescr(own->rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		bool is_known = column->attisdropped;

		for (int j = 0; j < n; j++)
			is_known |= column->attnum == known[j];
		if (!is_known && (column->attnotnull || column->attgenerated != '\0'))
			zklock_own_refuse(own, "It has another column that cannot be null.");
	}
}

bool
zklock_own_index_matches(Relation index, const AttrNumber *key, int n)
{
	if (index->rd_rel->relam != BTREE_AM_OID || index->rd_index->indnkeyatts != n ||
		index->rd_index->indnatts != n || !index->rd_index->indisvalid)
		return false;
	for (int i = 0; i < n; i++)
	{
		Oid collation = index->rd_indcollation[i];

		/* not one that is descending, for those who go by the order, nor one to which two
		 * names may be equal */
		if (index->rd_index->indkey.values[i] != key[i] || index->rd_indoption[i] != 0 ||
			(OidIsValid(collation) && !get_collation_isdeterministic(collation)))
			return false;
	}
	return true;
}

void
zklock_own_set(Datum *values, bool *nulls, AttrNumber column, Datum value)
{
	values[column - 1] = value;
	nulls[column - 1] = false;
}
