/*-------------------------------------------------------------------------
 *
 * semaphore_rules.h
 *	  "At most N at a time": who of a queue has one of N permits.
 *
 * Pure: no postgres.h, no zookeeper.h, no allocation, no clock.
 *
 * A contender asks for one of so many permits, and says in its name of how many.  It has
 * one as soon as fewer contenders stand before it than it asks for, and than each of
 * those asks for: the smallest number up to it, itself included, is its limit.  Who
 * comes later changes nothing of that, so
 *
 *	 - who has a permit keeps it,
 *	 - those who have one are the first ones of the queue, without a gap,
 *	 - while somebody has a permit of N, no more than N have one.
 *
 * Who waits needs some of those before it to go, and knows how many.  Of a server's
 * contenders the first one that waits does the waiting for all (semaphore_siblings.h): it
 * watches those of other sessions that stand before it, and looks again when as many have
 * gone as it takes.  That is for few.  Where somebody waits more than
 * ZKLOCK_SEMAPHORE_NEAR numbers before it, it watches but that one, the last such, which
 * says when it is granted a permit (place.followed).  A contender that names no number,
 * which only other programs make, has no limit of its own, and says nothing.
 *
 * Both know by the numbers alone, which do not change, who waits to be told by whom.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_RULES_H
#define ZKLOCK_SEMAPHORE_RULES_H

#include "contender.h"

#ifndef ZKLOCK_SEMAPHORE_NEAR
#define ZKLOCK_SEMAPHORE_NEAR 16
#endif

/* So many are watched at most.  Else the directory is. */
#ifndef ZKLOCK_SEMAPHORE_WATCHED
#define ZKLOCK_SEMAPHORE_WATCHED 32
#endif

/* Where a contender stands. */
typedef struct ZkSemaphorePlace
{
	bool granted;
	bool contended; /* not everybody in the queue is granted a permit, perhaps */
	bool followed;	/* somebody may wait for it to be granted one */
	int lacks;		/* not granted: so many of those before it must go at least, besides
					 * those that are leaving; 0: there may be one for it already */
	int nothers;	/* of those before it are no siblings */
	const ZkLockChild *before; /* the next one before it, or NULL */
	const ZkLockChild *far;	   /* not granted: one that waits, too, and says when it does
								* no more, or another program's; NULL: there is none, or
								* it is too near */
	int other; /* a number of permits that another one names, 0: none does */
} ZkSemaphorePlace;

/*
 * The place of a session's contender for one of "permits" with this number, INT64_MAX
 * for one that would come now, in a listing of its queue, in any order.  It counts itself
 * only once.
 */
extern ZkSemaphorePlace zklock_semaphore_find_place(const ZkLockChild *children, int n,
													int64_t sequence, int permits,
													uint64_t session);

/* Who of a queue has a permit?  "queue" is all of it, in the order of the numbers. */
extern void zklock_semaphore_find_holders(const ZkLockChild *queue, int n, bool *holds);

/*
 * Numbers of permits: which holder has which number, as text of the queue's directory, a
 * line for each: the number, and the contender's UUID.  Who wants a number takes the
 * lowest that no other contender of the queue has and writes the text anew, if nobody
 * else has in between.  The queue is to be listed after the text was read: so whoever is
 * not there has gone, and will not come back.
 */
#define ZKLOCK_SEMAPHORE_TEXT_MAX (16 * 1024)

/*
 * The number of the contender hi, lo, between 1 and "permits", and in "written" (room
 * ZKLOCK_SEMAPHORE_TEXT_MAX) the text with it, its length in "len"; or 0 as length if it
 * has the number already.  0: all numbers are others'.  -1: there is no room for the
 * text.
 */
extern int zklock_semaphore_find_number(const char *text, size_t text_len,
										const ZkLockChild *children, int n, uint64_t hi,
										uint64_t lo, int permits, char *written,
										size_t *len);

#endif /* ZKLOCK_SEMAPHORE_RULES_H */
