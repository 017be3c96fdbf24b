/*-------------------------------------------------------------------------
 *
 * contenders.c
 *	  Lists the contenders in the queue of a name, in the whole ensemble, with their
 *	  owners.
 *
 * It asks for the queue, and for the nodes of all servers, with their reports
 * (report.h).  A report is believed only about contenders of the session to which its
 * node belongs, which ZooKeeper guarantees.  This server knows whose its own contenders
 * are better than its latest report does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "datatype/timestamp.h"

#include "contenders.h"
#include "holder.h"
#include "semaphore_rules.h"
#include "table.h"

void
zklock_contenders_ask(ZkLockKind kind, const char *name, ZkContenders *contenders)
{
	ZkQuery query = {.kind = kind, .contenders = true};
	int n;

	memset(contenders, 0, sizeof(*contenders));
	strlcpy(query.name, name, sizeof(query.name));
	n = zklock_query(&query, &contenders->nodes);
	n = Max(n, 0); /* a macro, which would ask twice */
	contenders->n = n;
	contenders->children =
		palloc_extended(sizeof(ZkLockChild) * ((Size) n + 1), MCXT_ALLOC_HUGE);
	contenders->holds = palloc_extended(sizeof(bool) * ((Size) n + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
	{
		ZkLockChild *child = &contenders->children[i];

		memset(child, 0, sizeof(*child));
		child->mode = ZKLOCK_EXCLUSIVE;
		(void) zklock_parse_child(contenders->nodes[i].name, child);
	}
	if (zklock_kinds[kind].by_session)
		zklock_semaphore_find_holders(contenders->children, n, contenders->holds);
	else
		zklock_find_holders(contenders->children, n, contenders->holds);
}

void
zklock_members_ask(ZkMembers *members)
{
	ZkQuery query = {.ask = ZKLOCK_ASK_SERVERS};
	ZkSessionShared s;

	memset(members, 0, sizeof(*members));
	members->n = zklock_query(&query, &members->nodes);
	members->n = Max(members->n, 0);
	members->reports = palloc0(sizeof(ZkReport *) * ((Size) members->n + 1));
	zklock_session_read(&s);
	members->session = s.id.id;
}

/* A server whose name has changed within its session has left a node that it does not
 * write any more. */
static int
find_member(const ZkMembers *members, int64 session)
{
	int found = -1;

	for (int i = 0; i < members->n && session != 0; i++)
	{
		if (members->nodes[i].ephemeral_owner == session &&
			(found < 0 || members->nodes[i].mtime > members->nodes[found].mtime))
			found = i;
	}
	return found;
}

static const ZkReport *
read_report(ZkMembers *members, int m)
{
	if (members->reports[m] == NULL)
	{
		members->reports[m] = palloc(sizeof(ZkReport));
		(void) zklock_report_read(members->nodes[m].data,
								  (size_t) members->nodes[m].datalen, members->reports[m]);
	}
	return members->reports[m];
}

const ZkReport *
zklock_members_report(ZkMembers *members, int i)
{
	int64 session = members->nodes[i].ephemeral_owner;

	if (session == members->session || find_member(members, session) != i)
		return NULL;
	return read_report(members, i);
}

bool
zklock_members_owner(ZkMembers *members, ZkLockKind kind, const char *name,
					 const ZkContenders *contenders, int i, ZkOwner *owner)
{
	const ZkNode *node = &contenders->nodes[i];
	const ZkLockChild *child = &contenders->children[i];
	const ZkReportItem *item;
	int m;

	if (child->uuid_hi == 0)
		return false; /* another program's */
	if (members->session != 0 && node->ephemeral_owner == members->session)
	{
		owner->as_of = GetCurrentTimestamp();
		if (!zklock_holder_lookup(kind, name, child->uuid_lo, &owner->item))
			return false;
		zklock_holder_complete(&owner->item, 1);
		return true;
	}
	m = find_member(members, node->ephemeral_owner);
	if (m < 0)
		return false;
	item = zklock_report_find(read_report(members, m), child->uuid_lo);
	if (item == NULL)
		return false;
	owner->as_of = zklock_time_of_ms(members->nodes[m].mtime);
	owner->item = *item;
	return true;
}
