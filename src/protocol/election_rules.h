/*-------------------------------------------------------------------------
 *
 * election_rules.h
 *	  Elections: when a leader gives way to a candidate of higher priority.
 *
 * Candidates lead in the order in which they came, and a leader leads until it resigns or
 * fails.  Priorities change neither: they tell a leader when to resign, and who resigns
 * is a candidate again at once, as the last.  So a wrong priority, or one that nobody has
 * read, costs no safety.
 *
 * The leader alone looks at the others: when it has come to lead, and then once in a
 * session timeout.  It resigns if somebody of higher priority has stood for two timeouts,
 * by the clock of the ensemble.  Whoever comes next, and has a lower priority than that
 * one, finds the same when it has come to lead, and resigns as well, and so on: each
 * candidate before the highest leads for a moment.  The highest finds nobody.  Equals
 * never resign for each other.
 *
 * One that stands is alive, or has died within the latest timeout: its node is there no
 * longer than its session.  If it has died just before the others resign for its sake, it
 * costs what a leader's death costs.
 *
 * Pure: no clock, no allocation.  The worker calls it, and the simulator (election_sim).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_RULES_H
#define ZKLOCK_ELECTION_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* Of a candidate that says none, such as another program. */
#define ZKLOCK_PRIORITY_DEFAULT 100
#define ZKLOCK_PRIORITY_MAX		1000

/* Another candidate, as the leader sees it. */
typedef struct ZkRival
{
	int priority;
	int64_t since; /* it stands, ms, by the ensemble's clock */
} ZkRival;

/*
 * Is it this one that the leader may have to resign for, rather than the best so far?  Of
 * those of higher priority it is the one that has stood for longest: the highest may come
 * and go again and again.  best->since is 0 while there is none.
 */
extern bool zklock_election_is_better(int priority, const ZkRival *rival,
									  const ZkRival *best);

/* Is the leader to resign for this one?  "now" is the same clock's; timeout: ms. */
extern bool zklock_election_yields(int priority, const ZkRival *rival, int64_t now,
								   int64_t timeout);

#endif /* ZKLOCK_ELECTION_RULES_H */
