/*-------------------------------------------------------------------------
 *
 * barrier_sql.c
 *	  SQL functions of barriers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "barrier_backend.h"
#include "barrier_shared.h"
#include "barrier_sql.h"
#include "check.h"
#include "command.h"
#include "contenders.h"
#include "names.h"
#include "nodes.h"
#include "query.h"
#include "room.h"
#include "row.h"

PG_FUNCTION_INFO_V1(zk_barrier);

/*
 * CALL zk_barrier(name text, parties integer, timeout interval)
 *
 * Waits without a snapshot, as zk_lock_session does.
 */
Datum
zk_barrier(PG_FUNCTION_ARGS)
{
	char name[ZKLOCK_NAME_MAX + 1];
	int32 parties;
	int64 timeout;

	ZKLOCK_REFUSE_NULLS("barrier name", "number of parties", NULL);
	zklock_check_callable();
	zklock_get_name(ZKLOCK_KIND_BARRIER, PG_GETARG_TEXT_PP(0), name);
	parties = PG_GETARG_INT32(1);
	if (parties < 1 || parties > ZKLOCK_BARRIER_PARTIES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of parties must be between 1 and %d",
						ZKLOCK_BARRIER_PARTIES_MAX)));
	timeout = zklock_get_timeout(fcinfo, 2);

	zklock_leave_transaction(fcinfo, "zk_barrier",
							 "Call it on its own, with autocommit on.");
	zklock_barrier_wait(name, parties, timeout);
	SPI_finish();
	PG_RETURN_VOID();
}

/* Count the sessions there that use the same number. */
static int
count_arrived(const ZkPartyNode *parties, const bool *is_party, int n, int32 number)
{
	int arrived = 0;

	for (int i = 0; i < n; i++)
		arrived += is_party[i] && parties[i].parties == number;
	return arrived;
}

/* Store the rows of one barrier. */
static void
put_barrier(ReturnSetInfo *rsinfo, const char *name, int64 session)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_BARRIER, .contenders = true};
	ZkPartyNode *parties;
	bool *is_party;
	ZkNode *nodes;
	int n;

	strlcpy(query.name, name, sizeof(query.name));
	n = zklock_query(&query, &nodes);
	parties = palloc(sizeof(*parties) * ((Size) n + 1));
	is_party = palloc(sizeof(*is_party) * ((Size) n + 1));
	for (int i = 0; i < n; i++)
		is_party[i] = zklock_barrier_parse_party(nodes[i].name, &parties[i]);
	for (int i = 0; i < n; i++)
	{
		const ZkNode *node = &nodes[i];
		ZkRow row;

		if (!is_party[i])
			continue;
		row = zklock_row_of_set(rsinfo);
		zklock_row_name(&row, "name", name);
		zklock_row_int(&row, "parties", parties[i].parties);
		zklock_row_int(&row, "arrived",
					   count_arrived(parties, is_party, n, parties[i].parties));
		zklock_row_node(&row, node);
		zklock_row_number(&row, "pid", node, "pid");
		zklock_row_time(&row, "since", zklock_time_of_ms(node->ctime));
		zklock_row_bool(&row, "ours", session != 0 && node->ephemeral_owner == session);
		zklock_row_store(rsinfo, &row);
	}
}

/* The view zk_barriers: the sessions that wait at barriers, on all servers. */
void
zklock_show_barriers(ReturnSetInfo *rsinfo)
{
	ZkQuery query = {.kind = ZKLOCK_KIND_BARRIER};
	ZkSessionShared s;
	ZkNode *nodes;
	int n;

	n = zklock_query(&query, &nodes);
	zklock_session_read(&s);
	for (int i = 0; i < n; i++)
	{
		char name[ZKLOCK_NAME_MAX + 1];

		if (nodes[i].nchildren > 0 && zklock_decode_name(nodes[i].name, name) &&
			zklock_in_namespace(name))
			put_barrier(rsinfo, name, s.id.id);
	}
}

void
zklock_show_stat_barriers(ReturnSetInfo *rsinfo)
{
	static const char *const columns[] = {
		[ZKLOCK_PARTY_STAT_PASSED] = "passed",
		[ZKLOCK_PARTY_STAT_TIMEOUTS] = "timeouts",
		[ZKLOCK_PARTY_STAT_CANCELS] = "cancels",
		[ZKLOCK_PARTY_STAT_FAILURES] = "failures",
		[ZKLOCK_PARTY_STAT_OPENED] = "opened",
		[ZKLOCK_PARTY_STAT_WAIT_US] = "total_wait",
		[ZKLOCK_PARTY_STAT_LONGEST_US] = "longest_wait",
	};
	int64 n[ZKLOCK_NPARTY_STATS];
	TimestampTz since;
	ZkRow row = zklock_row_of_set(rsinfo);

	zklock_barrier_stats(n, &since);
	zklock_row_int(&row, "waiting", zklock_barrier_used());
	for (int i = 0; i < ZKLOCK_NPARTY_STATS; i++)
	{
		if (i < ZKLOCK_PARTY_STAT_WAIT_US)
			zklock_row_bigint(&row, columns[i], n[i]);
		else
			zklock_row_interval(&row, columns[i], n[i]);
	}
	zklock_row_time(&row, "stats_reset", since);
	zklock_row_store(rsinfo, &row);
}
