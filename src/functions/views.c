/*-------------------------------------------------------------------------
 *
 * views.c
 *	  zk_rows, the function under all views.
 *
 * A view names itself and lists its columns:
 *
 *	 CREATE VIEW zk_session AS SELECT * FROM zk_rows('zk_session') AS (state text, ...)
 *
 * A user who reads a view needs the right to call the view's functions himself; the
 * right of the view's owner is not enough.  So everybody may call zk_rows, and zk_rows
 * checks the right to SELECT from the view.  That right alone is enough, and nothing
 * works without it.  A user who may SELECT some of the view's columns gets these from
 * zk_rows, and NULL for the others, which the view does not show him.
 *
 * zk_check is a function, because it has an argument.  zk_rows makes those of its rows
 * that SQL cannot make, for users who may call zk_check.
 *
 * Any caller may list other columns.  A column that the library does not know stays
 * NULL, and row.c refuses another type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "barrier_sql.h"
#include "blocking.h"
#include "check.h"
#include "check_sql.h"
#include "election_sql.h"
#include "job_sql.h"
#include "monitor.h"
#include "queue_views.h"
#include "views.h"

PG_FUNCTION_INFO_V1(zk_rows);

typedef struct View
{
	ObjectType type; /* whose rows are they, a view's or a function's? */
	const char *name;
	void (*show)(ReturnSetInfo *rsinfo);
} View;

static const View views[] = {
	{OBJECT_VIEW, "zk_barriers", zklock_show_barriers},
	{OBJECT_FUNCTION, "zk_check", zklock_show_check},
	{OBJECT_VIEW, "zk_elections", zklock_show_elections},
	{OBJECT_VIEW, "zk_jobs", zklock_show_jobs},
	{OBJECT_VIEW, "zk_locks", zklock_show_locks},
	{OBJECT_VIEW, "zk_queue_items", zklock_show_queue_items},
	{OBJECT_VIEW, "zk_queues", zklock_show_queues},
	{OBJECT_VIEW, "zk_servers", zklock_show_servers},
	{OBJECT_VIEW, "zk_session", zklock_show_session},
	{OBJECT_VIEW, "zk_stat", zklock_show_stat},
	{OBJECT_VIEW, "zk_stat_barriers", zklock_show_stat_barriers},
	{OBJECT_VIEW, "zk_stat_locks", zklock_show_stat_locks},
	{OBJECT_VIEW, "zk_waits", zklock_show_waits},
};

pg_noreturn static void
raise_unrecognized(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized view \"%s\"", name),
			 errhint("Select from the views of zklock, which call this function.")));
}

static const View *
find_view(const char *name)
{
	for (size_t i = 0; i < lengthof(views); i++)
	{
		if (strcmp(views[i].name, name) == 0)
			return &views[i];
	}
	raise_unrecognized(name);
}

/* May the user call the function of this name in the schema?  Its argument is a role. */
static void
check_function(char *name, Oid schema)
{
	static const Oid arguments[] = {NAMEOID};
	List *names = list_make2(makeString(get_namespace_name(schema)), makeString(name));
	Oid function = LookupFuncName(names, lengthof(arguments), arguments, false);

	if (!DatumGetBool(DirectFunctionCall2(has_function_privilege_id,
										  ObjectIdGetDatum(function),
										  CStringGetTextDatum("EXECUTE"))))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, name);
}

/* May the user read the view of that name in the schema, or some column of it?  If the
 * latter, this takes the names of the other columns from the description of the rows, so
 * that nothing sets these. */
static void
check_view(const char *name, Oid schema, TupleDesc desc)
{
	Oid view = get_relname_relid(name, schema);
	AclResult result;

	if (!OidIsValid(view))
		raise_unrecognized(name);
	result = pg_class_aclcheck(view, GetUserId(), ACL_SELECT);
	if (result == ACLCHECK_OK)
		return;
	result = pg_attribute_aclcheck_all(view, GetUserId(), ACL_SELECT, ACLMASK_ANY);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_VIEW, name);
	for (int i = 0; i < desc->natts; i++)
	{
		NameData *column = &TupleDescAttr(desc, i)->attname;
		AttrNumber number = get_attnum(view, NameStr(*column));

		if (number == InvalidAttrNumber ||
			pg_attribute_aclcheck(view, number, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			namestrcpy(column, "");
	}
}

/* zk_rows(view text) returns setof record */
Datum
zk_rows(PG_FUNCTION_ARGS)
{
	char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const View *view = find_view(name);
	Oid schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (view->type == OBJECT_FUNCTION)
		check_function(name, schema);
	else
	{
		/* of zk_check a row says if zklock cannot be called */
		check_view(name, schema, rsinfo->setDesc);
		zklock_check_callable();
	}
	view->show(rsinfo);
	return (Datum) 0;
}
