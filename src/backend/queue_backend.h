/*-------------------------------------------------------------------------
 *
 * queue_backend.h
 *	  Queues of work: the items that this transaction puts, and the items that it has
 *	  taken.
 *
 * The backend keeps items that are put until the commit.  It holds an item that it has
 * taken until the end of the transaction, or until the subtransaction that took it is
 * rolled back.
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

/* Call zklock_callbacks_begin before the first two functions, so that puts and takes
 * end properly. */

/* Put an item into a queue at the commit.  Its id, of ZKLOCK_ITEM_ID bytes, is larger
 * than any before of this session.  Raises 54000, 53400 and 25006. */
extern void zklock_queue_put(const char *queue, const char *payload, int len, char *id);

/*
 * Take the oldest items that nobody has, up to "count", palloc'd to *handouts in their
 * order.  If there is none, wait for the first for wait_ms, or ZKLOCK_WAIT_FOREVER.
 * Items that were taken "most" times before go to the queue of failed items; with 0
 * none does.  Returns the number of items taken, which is smaller also where limits
 * have no room for more.  Raises 55P03 for lock_timeout, and 53400 where there is no
 * room for one item.  While the server is taken out of service it takes nothing, says
 * so, and waits as if the queue were empty.
 */
extern int zklock_queue_take(const char *queue, int64 wait_ms, int count, int most,
							 ZkHandout **handouts);

/* --- for callbacks; none throws but the first three ------------------------ */

/*
 * PRE_COMMIT: write the items that are put.  The wait for room raises 53400 and 55P03.
 * As the last step, check that this transaction still has its items, as
 * zklock_loss_await_verdict does for locks; raises 40001.  This waits for a lease, and
 * for the look at the items' marks on a new connection, and raises 58000 and 55P03.
 */
extern void zklock_queue_before_commit(void);
extern void zklock_queue_claim(void);

/* PRE_PREPARE. */
extern void zklock_queue_refuse_prepare(void);

/* Has this transaction put or taken anything, or is it about to? */
extern bool zklock_queue_any(void);

/* The transaction has ended. */
extern void zklock_queue_end(bool committed);

/* A subtransaction of this nest level has ended. */
extern void zklock_queue_end_sub(int level, bool committed);

#endif /* ZKLOCK_QUEUE_BACKEND_H */
