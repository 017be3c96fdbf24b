/*-------------------------------------------------------------------------
 *
 * election_sql.c
 *	  SQL functions of elections.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "check.h"
#include "command.h"
#include "drain.h"
#include "election_backend.h"
#include "election_rules.h"
#include "election_sql.h"
#include "election_text.h"
#include "hold.h"
#include "job_runs.h"
#include "limit.h"
#include "names.h"
#include "nodes.h"
#include "query.h"
#include "row.h"

PG_FUNCTION_INFO_V1(zk_is_leader);
PG_FUNCTION_INFO_V1(zk_require_leader);
PG_FUNCTION_INFO_V1(zk_run_as_leader);
PG_FUNCTION_INFO_V1(zk_resign);
PG_FUNCTION_INFO_V1(zk_candidates);

/* How long to wait while nobody is known to lead; the default of zk_is_leader in SQL. */
#define VERDICT_MS 2000

/* ------------------------------------------------------------------------
 * This server
 * ------------------------------------------------------------------------
 */

/* A call site caches its results by the raw argument, so that a million rows need
 * neither conversions nor locks. */
#define NCACHED 256

typedef struct CachedElection
{
	int len; /* of the argument */
	char arg[ZKLOCK_NAME_MAX + 1];
	ZkElectionRef ref;
} CachedElection;

/* zk_is_leader(election text, timeout interval) returns boolean */
Datum
zk_is_leader(PG_FUNCTION_ARGS)
{
	text *arg;
	int len;
	CachedElection **cache = fcinfo->flinfo->fn_extra;
	CachedElection **place = NULL;
	char name[ZKLOCK_NAME_MAX + 1];
	ZkElectionRef ref;
	int64 token;

	ZKLOCK_REFUSE_NULLS("election name", NULL);
	arg = PG_GETARG_TEXT_PP(0);
	len = (int) VARSIZE_ANY_EXHDR(arg);
	if (cache == NULL)
	{
		zklock_check_preloaded();
		cache = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt,
									   NCACHED * sizeof(CachedElection *));
		fcinfo->flinfo->fn_extra = cache;
	}
	if (len <= ZKLOCK_NAME_MAX)
	{
		place = &cache[hash_bytes((unsigned char *) VARDATA_ANY(arg), len) % NCACHED];
		if (*place != NULL && (*place)->len == len &&
			memcmp((*place)->arg, VARDATA_ANY(arg), (size_t) len) == 0 &&
			zklock_election_peek(&(*place)->ref, &token))
		{
			zklock_election_asked(&(*place)->ref);
			PG_RETURN_BOOL(token != 0);
		}
	}

	zklock_get_name(ZKLOCK_KIND_ELECTION, arg, name);
	token = zklock_election_lead(name, zklock_get_timeout(fcinfo, 1), false, &ref);
	if (place != NULL)
	{
		if (*place == NULL)
			*place = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(CachedElection));
		(*place)->len = len;
		memcpy((*place)->arg, VARDATA_ANY(arg), (size_t) len);
		(*place)->ref = ref;
	}
	PG_RETURN_BOOL(token != 0);
}

/* Make the transaction depend on the leadership, if this server has it; "name" has
 * room. */
static bool
guard(text *arg, char *name, int64 *token)
{
	ZkElectionRef ref;

	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_ELECTION, arg, name);
	zklock_hold_end_void();
	if (zklock_held_find(ZKLOCK_KIND_ELECTION, name) == NULL)
	{
		zklock_limit_check(ZKLOCK_LIMIT_LOCKS, zklock_held_names(), 1);
		if (zklock_election_lead(name, VERDICT_MS, true, &ref) == 0)
			return false;
	}
	return zklock_election_guard(name, token);
}

/*
 * An errdetail, if this server leads nowhere because the administrator has drained it.
 */
static int
detail_of_drain(void)
{
	return zklock_draining()
		? errdetail("The server is taken out of service by \"zklock.drain\".")
		: 0;
}

/* zk_require_leader(election text) returns bigint */
Datum
zk_require_leader(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;

	ZKLOCK_REFUSE_NULLS("election name");
	if (!guard(PG_GETARG_TEXT_PP(0), name, &token))
	{
		const char *doubt = zklock_election_doubt(name);

		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("this server is not the leader of election \"%s\"",
						zklock_display_name(name)),
				 doubt != NULL ? errdetail("It could not be found out who is. %s", doubt)
							   : detail_of_drain(),
				 doubt != NULL
					 ? 0
					 : errhint("Retry the transaction on the leader, which zk_candidates(%s) lists first.",
							   quote_literal_cstr(zklock_display_name(name)))));
	}
	PG_RETURN_INT64(token);
}

/* A server that does not lead skips the command.  A server that cannot know who leads
 * skips it, too, and says why. */
static void
tell_skipped(const char *name)
{
	const char *doubt = zklock_election_doubt(name);

	if (doubt != NULL)
		ereport(WARNING,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not find out who leads election \"%s\", skipping",
						zklock_display_name(name)),
				 errdetail("%s", doubt)));
	else
		ereport(NOTICE,
				(errmsg("this server is not the leader of election \"%s\", skipping",
						zklock_display_name(name)),
				 detail_of_drain()));
}

/* Insert the row of the run, if the transaction may write. */
static void
remember_run(Oid function, const char *name, int64 token, TimestampTz started)
{
	ZkRunRow row = {
		.kind = ZKLOCK_KIND_ELECTION,
		.name = name,
		.token = token,
		.started = started,
		.done = true,
	};

	if (!XactReadOnly && !RecoveryInProgress())
		zklock_job_runs_insert(function, &row);
}

/*
 * CALL zk_run_as_leader(election text, command text)
 *
 * The command runs with the rights of the caller, in one transaction.  A command that
 * could end the transaction would also end the dependence on the leadership.
 */
Datum
zk_run_as_leader(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int64 token;
	TimestampTz started;

	ZKLOCK_REFUSE_NULLS("election name", "command");
	if (!guard(PG_GETARG_TEXT_PP(0), name, &token))
	{
		tell_skipped(name);
		PG_RETURN_VOID();
	}

	started = GetCurrentTimestamp();
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	zklock_command_run("zk_run_as_leader", text_to_cstring(PG_GETARG_TEXT_PP(1)));
	SPI_finish();
	remember_run(fcinfo->flinfo->fn_oid, name, token, started);
	PG_RETURN_VOID();
}

/* zk_resign(election text) returns boolean */
Datum
zk_resign(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];

	ZKLOCK_REFUSE_NULLS("election name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_ELECTION, PG_GETARG_TEXT_PP(0), name);
	PG_RETURN_BOOL(zklock_election_resign(name));
}

/* ------------------------------------------------------------------------
 * All servers
 * ------------------------------------------------------------------------
 */

/* A candidate's node contains its server's name, and its priority if that is not the
 * default.  A candidate of another library has the default, too.  The priority in a
 * record of a newer version is not known: NULL. */
static void
put_candidate(ReturnSetInfo *rsinfo, ZkNode *node, bool is_leader)
{
	int len = (int) zklock_candidate_name_len(node->data, (size_t) node->datalen);
	int priority = zklock_candidate_priority(node->data, (size_t) node->datalen);
	ZkRow row = zklock_row_of_set(rsinfo);

	if (priority != ZKLOCK_PRIORITY_UNKNOWN)
		zklock_row_int(&row, "priority", priority);
	node->data_cut &= len == node->datalen;
	node->datalen = len;
	zklock_row_set(&row, "server", TEXTOID, zklock_node_data_datum(node));
	zklock_row_bool(&row, "is_leader", is_leader);
	zklock_row_store(rsinfo, &row);
}

/* zk_candidates(election text) returns setof record */
Datum
zk_candidates(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkQuery query = {.kind = ZKLOCK_KIND_ELECTION, .contenders = true};
	ZkNode *nodes;
	int n;

	ZKLOCK_REFUSE_NULLS("election name");
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_ELECTION, PG_GETARG_TEXT_PP(0), query.name);
	InitMaterializedSRF(fcinfo, 0);
	n = zklock_query(&query, &nodes);
	for (int i = 0; i < n; i++)
		put_candidate(rsinfo, &nodes[i], i == 0);
	return (Datum) 0;
}

/* The view of this server's candidacies, from its own memory. */
void
zklock_show_elections(ReturnSetInfo *rsinfo)
{
	for (int i = 0; i < zklock_entries_end(); i++)
	{
		ZkLockEntry *entry = zklock_entry(i);
		LWLock *lock = zklock_entry_lock(entry, LW_SHARED);
		char name[ZKLOCK_NAME_MAX + 1];
		ZkElection election;
		bool candidate;
		ZkElectionRef ref;
		int64 token;
		ZkRow row;

		if (lock == NULL)
			continue;
		candidate = entry->kind == ZKLOCK_KIND_ELECTION && entry->election.candidate;
		election = entry->election;
		strlcpy(name, entry->name, sizeof(name));
		ref.entry = entry;
		ref.generation = entry->generation;
		(void) zklock_election_peek(&ref, &token);
		zklock_entry_unlock(lock);
		if (!candidate)
			continue;

		row = zklock_row_of_set(rsinfo);
		zklock_row_name(&row, "election", name);
		zklock_row_bool(&row, "is_leader", token != 0);
		if (token != 0)
			zklock_row_bigint(&row, "token", token);
		zklock_row_time(&row, "since", election.since);
		zklock_row_bigint(&row, "changes", election.changes);
		zklock_row_time(&row, "last_asked", election.last_asked);
		zklock_row_store(rsinfo, &row);
	}
}
