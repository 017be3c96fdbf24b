/*-------------------------------------------------------------------------
 *
 * sessions.c
 *	  Decides what a user may see of sessions in results.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/acl.h"

#include "sessions.h"

bool
zklock_may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

bool
zklock_may_see_session(int pid, bool ours)
{
	const PGPROC *proc = ours ? BackendPidGetProc(pid) : NULL;

	return zklock_may_see(proc != NULL ? proc->roleId : InvalidOid);
}
