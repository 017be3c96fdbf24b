/*-------------------------------------------------------------------------
 *
 * queue_backend.h
 *	  Work that is handed out: what this transaction puts, and the items that it has.
 *
 * What is put is kept here until the commit.  An item that was taken is held until the
 * end of the transaction, or of the subtransaction that took it, if that is rolled back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_BACKEND_H
#define ZKLOCK_QUEUE_BACKEND_H

#include "queue_shared.h"

typedef struct ZkHandout
{
	ZkItemName item;
	char *payload; /* UTF-8, palloc'd, and a NUL */
	int len;
	int attempt;
	int64 since; /* ms since 1970 */
} ZkHandout;

/*
 * Before the first two zklock_callbacks_begin is to be called, so that what is put and
 * taken ends as it should.
 */

/* Put an item into a queue at the commit.  Its id, of ZKLOCK_ITEM_ID bytes, is larger
 * than any before of this session.  Raises 54000, 53400 and 25006. */
extern void zklock_queue_put(const char *queue, const char *payload, int len, char *id);

/*
 * Take the oldest items that nobody has, as many as "count", palloc'd to *handouts, in their
 * order.  Wait for the first, if there is none, for so many ms, or ZKLOCK_WAIT_FOREVER.
 * Those that were taken "most" times before go to the queue of failed ones; 0: none does.
 * Returns how many are taken: fewer also where limits have no room for more.  Raises 55P03
 * for lock_timeout, and 53400 where there is no room for one.  While the server is taken out
 * of service it takes nothing, says so, and waits as if the queue were empty.
 */
extern int zklock_queue_take(const char *queue, int64 wait_ms, int count, int most,
							 ZkHandout **handouts);

/* --- for callbacks; none throws but the first three ------------------------ */

/*
 * PRE_COMMIT: write what is put, after a wait for room, which raises 53400 and 55P03; as the
 * last thing, see whether the items that we have are ours still, as
 * zklock_loss_await_verdict does for locks: 40001.  It waits for a lease, and for the look at
 * their marks on a new connection, and raises 58000 and 55P03.
 */
extern void zklock_queue_before_commit(void);
extern void zklock_queue_claim(void);

/* PRE_PREPARE. */
extern void zklock_queue_refuse_prepare(void);

/* Has this transaction put or taken anything, or is it about to? */
extern bool zklock_queue_any(void);

/* The transaction has ended. */
extern void zklock_queue_end(bool committed);

/* A subtransaction of this nest level ends. */
extern void zklock_queue_end_sub(int level, bool committed);

#endif /* ZKLOCK_QUEUE_BACKEND_H */
