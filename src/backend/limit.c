/*-------------------------------------------------------------------------
 *
 * limit.c
 *	  Limits how much one session may use of what all sessions share.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "limit.h"
#include "queue_shared.h"
#include "settings.h"

static const struct
{
	const char *message;
	const char *has;
	const char *hint;
} texts[] = {
	[ZKLOCK_LIMIT_LOCKS] = {.message = "session holds too many zklock locks",
							.has = "It holds locks of %d names",
							.hint =
								"Release locks, or ask an administrator for a higher limit."},
	[ZKLOCK_LIMIT_ITEMS] =
		{.message = "transaction has taken too many queue items",
		 .has = "It has %d items",
		 .hint =
			 "Take fewer items in one transaction, or ask an administrator for a higher limit."},
	[ZKLOCK_LIMIT_QUEUES] =
		{.message = "transaction puts into too many queues",
		 .has = "It puts into %d queues",
		 .hint =
			 "Put into fewer queues in one transaction, or ask an administrator for a higher limit."},
	[ZKLOCK_LIMIT_ELECTIONS] =
		{.message = "role has made this server a candidate in too many elections",
		 .has = "It has in %d elections",
		 .hint =
			 "Resign from some with zk_resign, or ask an administrator for a higher limit."},
};

/* Half of the places that exist. */
static int
half(ZkLimit limit)
{
	switch (limit)
	{
		case ZKLOCK_LIMIT_ITEMS:
			return (zklock_max_items() + 1) / 2;
		case ZKLOCK_LIMIT_QUEUES:
			return ZKLOCK_QUEUE_PUTS / 2;
		default:
			return PG_INT32_MAX; /* zklock.max_locks, for whom the setting has no limit */
	}
}

/* Is the setting the limit? */
static bool
is_own(ZkLimit limit)
{
	return zklock_max_locks_per_backend > 0 && zklock_max_locks_per_backend < half(limit);
}

int
zklock_limit_room(ZkLimit limit, int has)
{
	return Max((is_own(limit) ? zklock_max_locks_per_backend : half(limit)) - has, 0);
}

void
zklock_limit_check(ZkLimit limit, int has, int more)
{
	int own = zklock_max_locks_per_backend;
	char *now;
	char *asks;

	if (more <= zklock_limit_room(limit, has))
		return;
	now = psprintf(texts[limit].has, has);
	asks = more > 1 ? psprintf(", asks for %d more", more) : "";
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("%s", texts[limit].message),
			 is_own(limit)
				 ? errdetail("%s%s, and \"%s\" is %d.", now, asks,
							 "zklock.max_locks_per_backend", own)
				 : errdetail("%s%s, and one transaction can have %d: half of what the server has room for.",
							 now, asks, half(limit)),
			 /* no setting makes more room for puts */
			 is_own(limit) || limit != ZKLOCK_LIMIT_QUEUES
				 ? errhint("%s", texts[limit].hint)
				 : errhint("Put into fewer queues in one transaction.")));
}
