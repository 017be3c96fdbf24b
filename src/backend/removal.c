/*-------------------------------------------------------------------------
 *
 * removal.c
 *	  Resigns elections when the extension, or a database that has it, is dropped.
 *
 * Nobody there can ask for an election any more.  At the commit of the DROP, and not
 * before, the server resigns those elections that were asked for nowhere else.
 * (Anybody may commit a prepared DROP EXTENSION, in any session: then they stay.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"

#include "election_shared.h"
#include "removal.h"

static object_access_hook_type prev_object_access = NULL;

/* The database that this transaction has dropped, or whose extension it has dropped,
 * and in which subtransaction; InvalidOid: none. */
static Oid database = InvalidOid;
static int level;

static void
on_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && OidIsValid(database))
		zklock_election_candidacy_leave_database(database);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		database = InvalidOid;
}

static void
on_subtransaction_end(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	int ending = GetCurrentTransactionNestLevel();

	if (!OidIsValid(database) || level < ending)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		level = ending - 1;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		database = InvalidOid;
}

static void
note(Oid dropped)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(on_transaction_end, NULL);
		RegisterSubXactCallback(on_subtransaction_end, NULL);
		registered = true;
	}
	/* no transaction can drop two */
	if (OidIsValid(database))
		return;
	database = dropped;
	level = GetCurrentTransactionNestLevel();
}

static void
on_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
	if (access != OAT_DROP)
		return;
	if (classId == DatabaseRelationId)
		note(objectId);
	else if (classId == ExtensionRelationId)
	{
		const char *name = get_extension_name(objectId);

		if (name != NULL && strcmp(name, "zklock") == 0)
			note(MyDatabaseId);
	}
}

void
zklock_removal_install(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = on_object_access;
}
