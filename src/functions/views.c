/*-------------------------------------------------------------------------
 *
 * views.c
 *	  zk_rows, the function under all views.
 *
 * A view names itself and lists its columns:
 *
 *	 CREATE VIEW zk_session AS SELECT * FROM zk_rows('zk_session') AS (state text, ...)
 *
 * A user who reads a view needs the right to call its functions himself, not only the
 * view's owner.  So everybody may call zk_rows, and zk_rows asks for the right to SELECT
 * from the view.  That right alone is enough, and nothing works without it.
 *
 * Anybody may list other columns.  A column that the library does not know stays NULL,
 *and row.c refuses another type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "barrier_sql.h"
#include "blocking.h"
#include "check.h"
#include "election_sql.h"
#include "job_sql.h"
#include "monitor.h"
#include "queue_views.h"
#include "views.h"

PG_FUNCTION_INFO_V1(zk_rows);

typedef struct View
{
	const char *name;
	void (*show)(ReturnSetInfo *rsinfo);
} View;

static const View views[] = {
	{"zk_barriers", zklock_show_barriers},
	{"zk_elections", zklock_show_elections},
	{"zk_jobs", zklock_show_jobs},
	{"zk_locks", zklock_show_locks},
	{"zk_queue_items", zklock_show_queue_items},
	{"zk_queues", zklock_show_queues},
	{"zk_servers", zklock_show_servers},
	{"zk_session", zklock_show_session},
	{"zk_stat", zklock_show_stat},
	{"zk_stat_barriers", zklock_show_stat_barriers},
	{"zk_stat_locks", zklock_show_stat_locks},
	{"zk_waits", zklock_show_waits},
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

/* May the user read the view of that name in the schema? */
static void
check_rights(const char *name, Oid schema)
{
	Oid view = get_relname_relid(name, schema);
	AclResult result;

	if (!OidIsValid(view))
		raise_unrecognized(name);
	result = pg_class_aclcheck(view, GetUserId(), ACL_SELECT);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_VIEW, name);
}

/* zk_rows(view text) returns setof record */
Datum
zk_rows(PG_FUNCTION_ARGS)
{
	char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const View *view = find_view(name);

	check_rights(name, get_func_namespace(fcinfo->flinfo->fn_oid));
	zklock_check_callable();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	view->show((ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
