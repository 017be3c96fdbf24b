/*-------------------------------------------------------------------------
 *
 * election_rules.h
 *	  Decides when a leader gives way to a candidate of higher priority.
 *
 * Candidates lead in the order in which they came, and a leader leads until it resigns
 * or fails.  Priorities change neither.  A priority tells a leader when to resign;
 * after that the leader is a candidate again at once, as the last.  So a wrong
 * priority, or one that nobody has read, costs no safety.
 *
 * Only the leader looks at the other candidates: when it begins to lead, and then once
 * in a session timeout.  It resigns if a candidate of higher priority has stood for two
 * timeouts, by the ensemble's clock.  If the next leader has a lower priority than that
 * candidate, it finds the same when it begins to lead, and resigns as well, and so on:
 * each candidate before the highest leads for a moment.  The highest finds nobody.
 * Equals never resign for each other.
 *
 * A candidate that stands is alive, or has died within the latest timeout: its node
 * lasts no longer than its session.  If it has died just before the others resign for
 * its sake, that costs as much as a leader's death.
 *
 * Pure: no clock, no allocation.  The worker calls it, and the simulator
 * (election_sim).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_RULES_H
#define ZKLOCK_ELECTION_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* The priority of a candidate that names none, such as another program's. */
#define ZKLOCK_PRIORITY_DEFAULT 100
#define ZKLOCK_PRIORITY_MAX		1000

/* That of a candidate whose record is of a newer version.  Nobody resigns for it: if the
 * candidate's priority is lower, the candidate would resign in turn, and so on. */
#define ZKLOCK_PRIORITY_UNKNOWN (-1)

/* Another candidate, as the leader sees it. */
typedef struct ZkRival
{
	int priority;
	int64_t since; /* it stands, ms, by the ensemble's clock */
} ZkRival;

/*
 * May the leader have to resign for this candidate, rather than for the best so far?  Of
 * the candidates of higher priority it resigns for the one that has stood for longest,
 * because the highest may come and go again and again.  best->since is 0 if there is none.
 */
extern bool zklock_election_is_better(int priority, const ZkRival *rival,
									  const ZkRival *best);

/* Must the leader resign for this candidate?  "now" is a time of the same clock;
 * timeout: ms. */
extern bool zklock_election_yields(int priority, const ZkRival *rival, int64_t now,
								   int64_t timeout);

#endif /* ZKLOCK_ELECTION_RULES_H */
