/*-------------------------------------------------------------------------
 *
 * loss.h
 *	  Decides what a holder does when its lock may be, or is, another session's.
 *
 * The backend that makes a claim checks it at that time, against the lease in shared
 * memory (table.h).  Past the lease the backend waits for the verdict: either the lease
 * comes back, or the lock is lost.  A lost lock cancels the statement that runs, and
 * makes the next one fail, and the commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSS_H
#define ZKLOCK_LOSS_H

#include "executor/execdesc.h"
#include "utils/timestamp.h"

#include "hold.h"

/* Is any hold of this backend lost, according to the worker or the clock?  Returns one
 * of them, in transaction scope if there is one, or NULL. */
extern ZkHeldLock *zklock_loss_find(void);

/*
 * Return when the lease is good; raise when the holds are lost (40001, 55000).  Waits
 * as long as neither is known: at most one session timeout from the newest acknowledged
 * write.  If writes are acknowledged, but too slowly for a lease, it raises 58000 after
 * that time plus connect_timeout.  Can be cancelled.
 */
extern void zklock_loss_await_verdict(void);

/* The time since which nothing is known, if the newest acknowledged write was sent at
 * "last_write".  Does not throw. */
extern TimestampTz zklock_loss_unproven_since(int64 last_write);

/* A text about that, and about who may have the lost lock by now. */
extern const char *zklock_loss_describe_unproven(TimestampTz since,
												 const char *consequence);

/*
 * Is this hold lost, according to the worker or the clock?  Past the lease it waits for
 * the verdict, and raises as zklock_loss_await_verdict does.  A hold that is not lost
 * may be claimed.
 */
extern bool zklock_loss_settle(const ZkHeldLock *held);

/* Check all holds except this one, or all with NULL: raise, or warn, if one of them is
 * lost. */
extern void zklock_loss_check_others(const ZkHeldLock *but);

/* The token of the hold as of now; raises the loss if it is lost. */
extern int64 zklock_loss_claim(ZkHeldLock *held);

/* A hold is about to be ended or taken again, which acknowledges its loss: raise if the
 * transaction has run statements that relied on the lost hold. */
extern void zklock_loss_acknowledge(void);

/* Warn if the hold is lost and nothing has said so yet.  May throw, so call it before
 * anything is ended. */
extern void zklock_loss_tell(ZkHeldLock *held);

/* The number of statements of this session that were refused or cancelled for a loss. */
extern uint64 zklock_loss_raised;

/*
 * The cancel of our timer has struck.  The hold that caused it is lost from now on,
 * even if only the clock said so and the lease has come back meanwhile.  Returns that
 * hold, or NULL if it has ended.  Does not throw.
 */
extern ZkHeldLock *zklock_loss_cancelled(void);

/*
 * A transaction or subtransaction is being aborted.  If the cancel of our timer has
 * struck, that counts as a loss that was raised, even if the client gets another text,
 * or if a handler has caught the error.  Does not throw.
 */
extern void zklock_loss_on_abort(void);

/* The error of a lost lock.  Its SQLSTATE is 40001 if the hold is the transaction's, so
 * that retry loops retry the transaction, else 55000. */
typedef struct ZkLossText
{
	const char *what; /* before the name */
	int sqlstate;
	const char *detail;
	const char *hint;
} ZkLossText;

/* Make the text for the client, which shows the lock's name as "name".  From now on the
 * hold is lost, even if only the clock says so and the lease comes back. */
extern void zklock_loss_describe(ZkHeldLock *held, const char *name, ZkLossText *text);
pg_noreturn extern void zklock_loss_raise(ZkHeldLock *held);

/* Before a statement, which is the executor's or a utility statement: refuse it if a
 * lock is lost.  Returns whether the statement is excused. */
extern bool zklock_loss_before_statement(QueryDesc *query, Node *utility);

/*
 * After the outermost statement, unless excused: it may have run, or waited, where no
 * cancel strikes, as COPY does for its client.  Raise a loss if the work can still be
 * undone.
 */
extern void zklock_loss_after_statement(QueryDesc *query, Node *utility);

/* PRE_COMMIT: the last moment at which a commit can be refused.  "holding": there are
 * holds in transaction scope. */
extern void zklock_loss_before_commit(bool holding);

/* The commit is durable and visible, and the holds still exist: warn if they were lost
 * on the way.  Does not throw. */
extern void zklock_loss_after_commit(void);

/* The transaction has ended, by commit or abort. */
extern void zklock_loss_after_transaction(bool committed);

/*
 * Wait until a write is acknowledged that was sent after this call.  Raises 58000 when
 * that takes longer than zklock.connect_timeout, and the errors of
 * zklock_loss_await_verdict.
 */
extern void zklock_loss_prove(void);

#endif /* ZKLOCK_LOSS_H */
