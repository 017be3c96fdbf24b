/*-------------------------------------------------------------------------
 *
 * blocking.c
 *	  zk_blocking and zk_waits: show which session blocks which, across servers.
 *
 * A chain leads from a session that waits to the session that blocks it in the end,
 * which waits for nobody as far as is known.  On this server the current state gives
 * each step.  From a queue in ZooKeeper on, the chain follows the first contender there
 * that has the lock.  The report of that contender's server (report.h) gives the next
 * steps: the session, the sessions that block it on that server, and the queue in which
 * the last of these waits.  So a chain is as old as the reports are, and may have
 * changed between two steps.
 *
 * A step follows one session only: of several readers the one that has had the lock for
 * longest, and of several sessions that PostgreSQL names the first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "arguments.h"
#include "blocking.h"
#include "check.h"
#include "contenders.h"
#include "holder.h"
#include "json.h"
#include "names.h"
#include "row.h"
#include "sessions.h"

PG_FUNCTION_INFO_V1(zk_blocking);

/* Largest number of steps of a chain that are shown: as many as the longest ring that
 * zklock finds has (ZKLOCK_MAX_RING). */
#define MAX_STEPS 64

/* The answers so far: each question is asked once. */
typedef struct Inquiry
{
	bool asked; /* for the servers */
	ZkMembers members;
	List *queues; /* of KnownQueue */
} Inquiry;

typedef struct KnownQueue
{
	ZkLockKind kind;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkContenders contenders;
} KnownQueue;

typedef struct Step
{
	const ZkNode *contender; /* NULL: a session of this server */
	bool ours;
	TimestampTz as_of;		 /* of what follows */
	ZkReportSession session; /* pid 0: none */
	char waits[ZKLOCK_REPORT_NAME];
} Step;

typedef struct Chain
{
	int n;
	Step step[MAX_STEPS];
} Chain;

static ZkMembers *
ask_members(Inquiry *inquiry)
{
	if (!inquiry->asked)
		zklock_members_ask(&inquiry->members);
	inquiry->asked = true;
	return &inquiry->members;
}

static const ZkContenders *
ask_queue(Inquiry *inquiry, ZkLockKind kind, const char *name)
{
	ListCell *cell;
	KnownQueue *known;

	foreach (cell, inquiry->queues)
	{
		known = lfirst(cell);
		if (known->kind == kind && strcmp(known->name, name) == 0)
			return &known->contenders;
	}
	known = palloc(sizeof(*known));
	known->kind = kind;
	strlcpy(known->name, name, sizeof(known->name));
	zklock_contenders_ask(kind, name, &known->contenders);
	inquiry->queues = lappend(inquiry->queues, known);
	return &known->contenders;
}

/* ------------------------------------------------------------------------
 * Chains
 * ------------------------------------------------------------------------
 */

/* Is the session in the chain already?  Then the chain is a ring. */
static bool
has_step(const Chain *chain, const Step *step)
{
	for (int i = 0; i < chain->n; i++)
	{
		const Step *other = &chain->step[i];

		if (step->session.pid != 0 && other->session.pid == step->session.pid &&
			other->ours == step->ours &&
			(step->ours ||
			 other->contender->ephemeral_owner == step->contender->ephemeral_owner))
			return true;
	}
	return false;
}

/* Append a step.  False if the chain ends there. */
static bool
add_step(Chain *chain, const Step *step)
{
	bool ring = has_step(chain, step);

	chain->step[chain->n++] = *step;
	return !ring && chain->n < MAX_STEPS;
}

static void
set_session(Step *step, const ZkReportSession *session)
{
	step->session = *session;
	strlcpy(step->waits, session->waits, sizeof(step->waits));
}

/* Append the sessions of an item, beginning with "first".  False if the chain ends
 * there. */
static bool
add_sessions(Chain *chain, Step *step, const ZkReportItem *item, int first)
{
	for (int i = first; i < item->nsessions; i++)
	{
		set_session(step, &item->session[i]);
		if (!add_step(chain, step))
			return false;
	}
	return true;
}

/* Append the holder of the lock for which the last session waits.  The session's own
 * contender does not block it.  False if the chain ends there. */
static bool
add_holder(Chain *chain, Inquiry *inquiry, const ZkReportSession *waiter)
{
	const ZkContenders *queue = ask_queue(inquiry, waiter->kind, waiter->name);
	ZkMembers *members = ask_members(inquiry);

	for (int i = 0; i < queue->n && queue->holds[i]; i++)
	{
		Step step = {.contender = &queue->nodes[i]};
		ZkOwner owner;
		bool known =
			zklock_members_owner(members, waiter->kind, waiter->name, queue, i, &owner);

		step.ours =
			members->session != 0 && queue->nodes[i].ephemeral_owner == members->session;
		if (known && owner.item.nsessions > 0 && owner.item.session[0].pid == waiter->pid &&
			chain->n > 0 && step.ours == chain->step[chain->n - 1].ours)
			continue; /* an upgrade: its own hold */
		if (known)
		{
			step.as_of = owner.as_of;
			if (owner.item.nsessions > 0)
				return add_sessions(chain, &step, &owner.item, 0);
			snprintf(step.waits, sizeof(step.waits), "(%s)",
					 zklock_report_state_name(owner.item.state));
		}
		(void) add_step(chain, &step);
		return false;
	}
	return false;
}

/* Follow the chain from its last step. */
static void
follow(Chain *chain, Inquiry *inquiry)
{
	for (;;)
	{
		const Step *last = &chain->step[chain->n - 1];
		ZkReportSession session = last->session;

		if (session.pid != 0 && session.name[0] != '\0')
		{
			if (!add_holder(chain, inquiry, &session))
				return;
		}
		else if (session.pid != 0 && last->ours)
		{
			/* there may be more of them than an item has */
			Step step = {.ours = true, .as_of = GetCurrentTimestamp()};
			ZkReportItem item;

			zklock_holder_session(session.pid, &item);
			if (item.nsessions > 0)
				set_session(&chain->step[chain->n - 1], &item.session[0]);
			if (item.nsessions < 2 || !add_sessions(chain, &step, &item, 1))
				return;
		}
		else
			return;
	}
}

/* The chain of a session of this server; empty if it does not wait. */
static void
follow_session(Chain *chain, Inquiry *inquiry, int pid)
{
	Step step = {.ours = true, .as_of = GetCurrentTimestamp()};
	ZkReportItem item;

	chain->n = 0;
	zklock_holder_session(pid, &item);
	if (item.nsessions == 0 || (item.nsessions == 1 && item.session[0].name[0] == '\0'))
		return;
	if (add_sessions(chain, &step, &item, 0))
		follow(chain, inquiry);
}

/* ------------------------------------------------------------------------
 * Rows
 * ------------------------------------------------------------------------
 */

static void
put_server(ZkRow *row, const char *column, const Step *step)
{
	const ZkNode *node = step->contender;
	char own[256];

	if (step->ours)
	{
		zklock_effective_server_name(own, sizeof(own));
		zklock_row_bytes(row, column, own);
	}
	else if (node != NULL)
	{
		char *server = palloc((Size) node->datalen + 1);

		if (zklock_json_field(node->data, (size_t) node->datalen, "server", server))
			zklock_row_bytes(row, column, server);
	}
}

/* Set the lock for which a step waits: its name, if it is a zklock lock of the user's
 * namespace. */
static void
put_waits(ZkRow *row, const char *column, const Step *step)
{
	const ZkReportSession *session = &step->session;
	const char *kind = zklock_kinds[session->kind].name;

	if (session->name[0] == '\0')
		zklock_row_bytes(row, column, step->waits);
	else if (!zklock_in_namespace(session->name))
		zklock_row_text(row, column, kind);
	else
		zklock_row_text(row, column,
						psprintf("%s \"%s\"", kind, zklock_display_name(session->name)));
}

/* Set the columns of a step, as far as the row has them. */
static void
put_step(ZkRow *row, const char *prefix, const Step *step)
{
	const ZkReportSession *session = &step->session;
	const char *waits_for = psprintf("%swaits_for", prefix);

	put_server(row, psprintf("%sserver", prefix), step);
	zklock_row_time(row, psprintf("%sas_of", prefix), step->as_of);
	if (session->pid == 0)
	{
		zklock_row_bytes(row, waits_for, step->waits);
		return;
	}
	zklock_row_int(row, psprintf("%spid", prefix), session->pid);
	if (!zklock_may_see_session(session->pid, step->ours))
		return;
	zklock_row_bytes(row, psprintf("%sdatname", prefix), session->database);
	zklock_row_bytes(row, psprintf("%susename", prefix), session->user);
	zklock_row_bytes(row, psprintf("%sapplication_name", prefix), session->application);
	if (session->query >= 0)
		zklock_row_time(row, psprintf("%squery_start", prefix),
						step->as_of - session->query * 1000);
	put_waits(row, waits_for, step);
}

/* zk_blocking(pid integer) returns setof record */
Datum
zk_blocking(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Chain *chain = palloc(sizeof(Chain));
	Inquiry inquiry = {0};

	zklock_check_callable();
	InitMaterializedSRF(fcinfo, 0);
	follow_session(chain, &inquiry, PG_GETARG_INT32(0));
	for (int i = 0; i < chain->n; i++)
	{
		ZkRow row = zklock_row_of_set(rsinfo);

		zklock_row_int(&row, "step", i);
		put_step(&row, "", &chain->step[i]);
		zklock_row_store(rsinfo, &row);
	}
	return (Datum) 0;
}

/* ------------------------------------------------------------------------
 * All waits
 * ------------------------------------------------------------------------
 */

/* A wait, and the end of its chain. */
typedef struct WaitRow
{
	ZkLockKind kind;
	const char *name;
	ZkLockMode mode;
	TimestampTz since;
	Step waiter;
	const Step *root; /* NULL: nobody is known */
	int steps;
} WaitRow;

static bool
is_long(TimestampTz since)
{
	return GetCurrentTimestamp() - since >= ZKLOCK_LONG_WAIT;
}

static void
put_wait(ReturnSetInfo *rsinfo, const WaitRow *wait)
{
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_row_text(&row, "kind", zklock_kinds[wait->kind].name);
	zklock_row_name(&row, "name", wait->name);
	if (zklock_kinds[wait->kind].held != NULL)
		zklock_row_text(&row, "mode", zklock_modes[wait->mode]);
	put_step(&row, "", &wait->waiter);
	zklock_row_time(&row, "wait_start", wait->since);
	if (wait->root != NULL)
	{
		put_step(&row, "root_", wait->root);
		zklock_row_int(&row, "steps", wait->steps);
	}
	zklock_row_store(rsinfo, &row);
}

/* Set the end of the chain.  Its first "skip" steps are the waiter itself. */
static void
set_root(WaitRow *row, const Chain *chain, int skip)
{
	row->steps = chain->n - skip;
	row->root = row->steps > 0 ? &chain->step[chain->n - 1] : NULL;
}

/* Store the waits of this server: it knows its sessions at both levels. */
static void
put_own_waits(ReturnSetInfo *rsinfo, Inquiry *inquiry, Chain *chain)
{
	for (int i = 0; i < zklock_shared->nprocs; i++)
	{
		ZkLocalWait wait;
		WaitRow row = {0};

		if (!(zklock_holder_waiter(i, &wait) || zklock_holder_other_waiter(i, &wait)) ||
			!zklock_in_namespace(wait.name) || !is_long(wait.since))
			continue;
		follow_session(chain, inquiry, wait.pid);
		if (chain->n == 0)
			continue; /* it is over */
		row.kind = wait.kind;
		row.name = wait.name;
		row.mode = wait.mode;
		row.since = wait.since;
		row.waiter = chain->step[0];
		set_root(&row, chain, 1);
		put_wait(rsinfo, &row);
	}
}

/* Store the sessions of another server that wait without a contender of their own. */
static void
put_reported_waits(ReturnSetInfo *rsinfo, Inquiry *inquiry, Chain *chain, int member)
{
	ZkMembers *members = ask_members(inquiry);
	const ZkReport *report = zklock_members_report(members, member);

	for (int i = 0; report != NULL && i < report->nitems; i++)
	{
		const ZkReportItem *item = &report->item[i];
		Step step = {
			.contender = &members->nodes[member],
			.as_of = zklock_time_of_ms(members->nodes[member].mtime),
		};
		WaitRow row = {.mode = item->mode};

		if (item->contender != 0 || item->nsessions == 0 ||
			item->session[0].name[0] == '\0' || !zklock_in_namespace(item->session[0].name))
			continue;
		chain->n = 0;
		if (add_sessions(chain, &step, item, 0))
			follow(chain, inquiry);
		row.kind = item->session[0].kind;
		row.name = item->session[0].name;
		row.since = step.as_of - Max(item->age, 0) * 1000;
		row.waiter = chain->step[0];
		set_root(&row, chain, 1);
		put_wait(rsinfo, &row);
	}
}

/* Store a waiting contender of another server or program. */
static void
put_contender(ReturnSetInfo *rsinfo, Inquiry *inquiry, const Chain *chain,
			  ZkLockKind kind, const char *name, const ZkContenders *queue, int i)
{
	ZkOwner owner;
	WaitRow row = {
		.kind = kind,
		.name = name,
		.mode = queue->children[i].mode,
		.since = zklock_time_of_ms(queue->nodes[i].ctime),
		.waiter.contender = &queue->nodes[i],
	};

	if (zklock_members_owner(ask_members(inquiry), kind, name, queue, i, &owner))
	{
		row.waiter.as_of = owner.as_of;
		if (owner.item.nsessions > 0)
			row.waiter.session = owner.item.session[0];
		if (owner.item.age >= 0)
			row.since = zklock_owner_time(&owner, owner.item.age);
	}
	set_root(&row, chain, 0);
	if (is_long(row.since))
		put_wait(rsinfo, &row);
}

static void
put_queue(ReturnSetInfo *rsinfo, Inquiry *inquiry, Chain *chain, ZkLockKind kind,
		  const char *name)
{
	const ZkContenders *queue = ask_queue(inquiry, kind, name);
	ZkMembers *members = ask_members(inquiry);
	ZkReportSession anybody = {.kind = kind};

	/* the chain is the same for all of them */
	strlcpy(anybody.name, name, sizeof(anybody.name));
	chain->n = 0;
	if (add_holder(chain, inquiry, &anybody))
		follow(chain, inquiry);
	for (int i = 0; i < queue->n; i++)
	{
		bool ours =
			members->session != 0 && queue->nodes[i].ephemeral_owner == members->session;

		if (!queue->holds[i] && !ours)
			put_contender(rsinfo, inquiry, chain, kind, name, queue, i);
	}
}

void
zklock_show_waits(ReturnSetInfo *rsinfo)
{
	Chain *chain = palloc(sizeof(Chain));
	Inquiry inquiry = {0};

	put_own_waits(rsinfo, &inquiry, chain);
	for (int k = 0; k < ZKLOCK_NKINDS; k++)
	{
		ZkQuery query = {.kind = (ZkLockKind) k};
		ZkNode *nodes;
		int n = zklock_kinds[k].in_waits ? zklock_query(&query, &nodes) : 0;

		for (int i = 0; i < n; i++)
		{
			char name[ZKLOCK_NAME_MAX + 1];

			if (nodes[i].nchildren > 1 && zklock_decode_name(nodes[i].name, name) &&
				zklock_in_namespace(name))
				put_queue(rsinfo, &inquiry, chain, (ZkLockKind) k, name);
		}
	}
	for (int i = 0; i < ask_members(&inquiry)->n; i++)
		put_reported_waits(rsinfo, &inquiry, chain, i);
}
