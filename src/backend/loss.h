/*-------------------------------------------------------------------------
 *
 * loss.h
 *	  What a holder does when its lock may be, or is, somebody else's.
 *
 * A claim is checked by the backend that makes it, when it makes it, against
 * the lease in shared memory (table.h).  Past the lease the backend waits for
 * the verdict: the lease comes back, or the lock is lost.  A lost lock cancels
 * the statement that runs, and fails the next one, and the commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include "executor/execdesc.h"
#include "utils/timestamp.h"

#include "hold.h"

/*
 * Is any hold of this backend lost, by the worker's word or by the clock?
 * Returns one of them, in transaction scope if there is one, or NULL.
 */
extern ZkHeldLock *zklock_loss_find(void);

/*
 * Return when the lease is good; raise when the holds are lost (40001, 55000).
 * Waits for as long as neither is known: at most one session timeout from the newest
 * acknowledged write.  Where writes are acknowledged, but too slowly for a lease, it
 * raises 58000 after that time and connect_timeout.  Can be cancelled.
 */
extern void zklock_loss_await_verdict(void);

/* Since when is nothing known, if the newest acknowledged write was sent at "last_write"?
 * Does not throw. */
extern TimestampTz zklock_loss_unproven_since(int64 last_write);

/* ... and what is said of it, and of who may have by now what was lost. */
extern const char *zklock_loss_describe_unproven(TimestampTz since,
												 const char *consequence);

/*
 * Is this hold lost, by the worker's word or by the clock?  Past the lease it waits for
 * the verdict, and raises what zklock_loss_await_verdict does.  What is not lost may be
 * claimed.
 */
extern bool zklock_loss_settle(const ZkHeldLock *held);

/* The same of all holds but this one, or NULL: raise, or warn, if one of them is lost. */
extern void zklock_loss_check_others(const ZkHeldLock *but);

/* The token of what we hold right now, or the error of its loss. */
extern int64 zklock_loss_claim(ZkHeldLock *held);

/*
 * A hold is about to be ended or taken anew, which acknowledges its loss: raise if
 * the transaction has run statements that relied on what is lost.
 */
extern void zklock_loss_acknowledge(void);

/* ... and warn if it is lost, and nothing has said so yet.  May throw, so it comes
 * before anything is ended. */
extern void zklock_loss_tell(ZkHeldLock *held);

/* So many statements of this session have been refused or cancelled for a loss. */
extern uint64 zklock_loss_raised;

/*
 * Our timer's cancel has struck: the hold for whose sake it did is lost from now on, also
 * if that was by the clock alone and the lease has come back meanwhile.  Returns that
 * hold, or NULL if it has ended.  Does not throw.
 */
extern ZkHeldLock *zklock_loss_cancelled(void);

/*
 * A transaction or subtransaction is being aborted.  If our timer's cancel has struck,
 * that counts as a loss that was raised, whatever text the client is sent and whoever has
 * caught the error.  Does not throw.
 */
extern void zklock_loss_on_abort(void);

/*
 * Errors of a lost lock: SQLSTATE 40001 if the hold is the transaction's, so
 * that retry loops retry it, else 55000.
 */
typedef struct ZkLossText
{
	const char *what; /* before the name */
	int sqlstate;
	const char *detail;
	const char *hint;
} ZkLossText;

/* What the client is being told, who sees the lock's name like this.  From now on the
 * hold is lost, also where the clock alone says so and the lease comes back. */
extern void zklock_loss_describe(ZkHeldLock *held, const char *name, ZkLossText *text);
pg_noreturn extern void zklock_loss_raise(ZkHeldLock *held);

/*
 * Before a statement, which is one of the executor's or a utility statement: no work
 * for somebody whose lock is lost.  Returns whether it is excused.
 */
extern bool zklock_loss_before_statement(QueryDesc *query, Node *utility);

/*
 * After the outermost one, unless excused: it may have run where no cancel strikes, or
 * waited there, as COPY does for its client.  Raise what can still be undone.
 */
extern void zklock_loss_after_statement(QueryDesc *query, Node *utility);

/*
 * PRE_COMMIT: the last moment at which a commit can be refused.  "holding": there are
 * holds in transaction scope.
 */
extern void zklock_loss_before_commit(bool holding);

/* The commit is durable and visible, the holds still there: warn if they were lost
 * on the way.  Does not throw. */
extern void zklock_loss_after_commit(void);

/* The transaction has ended, one way or the other. */
extern void zklock_loss_after_transaction(bool committed);

/*
 * Wait until a write that was sent from now on is acknowledged.  Raises 58000
 * when that takes longer than zklock.connect_timeout, and the errors of
 * zklock_loss_await_verdict.
 */
extern void zklock_loss_prove(void);

#endif /* ZKLOCK_LOSS_H */
