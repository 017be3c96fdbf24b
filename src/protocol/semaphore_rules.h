/*-------------------------------------------------------------------------
 *
 * semaphore_rules.h
 *	  Decides which contenders of a queue have one of N permits.
 *
 * Pure: no postgres.h, no zookeeper.h, no allocation, no clock.
 *
 * A contender asks for one of N permits, and its name says N.  Its limit is the
 * smallest N of all contenders up to it, itself included.  It has a permit as soon as
 * fewer contenders than that stand before it.  Contenders that come later change
 * nothing, so
 *
 *	 - a contender that has a permit keeps it,
 *	 - the contenders that have one are the first ones of the queue, without a gap,
 *	 - while somebody has a permit of N, no more than N have one.
 *
 * A waiter needs some of the contenders before it to go, and knows how many.  The first
 * waiter of a server waits for all waiters of that server (semaphore_siblings.h).  It
 * watches the contenders of other sessions that stand before it, and looks again when
 * enough of them have gone.  This is for short distances.  If another waits more than
 * ZKLOCK_SEMAPHORE_NEAR numbers before it, it watches only the last such contender,
 * which says when it gets a permit (place.followed).  A contender that names no number,
 * which only other programs make, has no limit of its own, and says nothing.
 *
 * Both know who waits for whose word from the numbers alone, which do not change.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_RULES_H
#define ZKLOCK_SEMAPHORE_RULES_H

#include "contender.h"

#ifndef ZKLOCK_SEMAPHORE_NEAR
#define ZKLOCK_SEMAPHORE_NEAR 16
#endif

/* The most contenders that are watched.  Beyond that, the directory is. */
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
 * Finds the place of a session's contender for one of "permits" with this number, in a
 * listing of its queue, in any order; INT64_MAX: a contender that would come now.  It
 * counts itself only once.
 */
extern ZkSemaphorePlace zklock_semaphore_find_place(const ZkLockChild *children, int n,
													int64_t sequence, int permits,
													uint64_t session);

/* Finds who has a permit.  "queue" is all of the queue, in the order of the numbers. */
extern void zklock_semaphore_find_holders(const ZkLockChild *queue, int n, bool *holds);

/*
 * Numbers of permits.  The text of the queue's directory says which holder has which
 * number, with a line for each: the number, and the contender's UUID.  A holder that
 * wants a number takes the lowest that no other contender of the queue has, and
 * rewrites the text if nobody else has in between.  List the queue after reading the
 * text: then a contender that is not there has gone, and will not come back.
 */
#define ZKLOCK_SEMAPHORE_TEXT_MAX (16 * 1024)

/*
 * Returns the number of the contender hi, lo, between 1 and "permits".  "written" (room
 * ZKLOCK_SEMAPHORE_TEXT_MAX) gets the text with it, and "len" its length, or 0 if the
 * contender has the number already. 0: others have all numbers. -1: there is no room
 * for the text.
 */
extern int zklock_semaphore_find_number(const char *text, size_t text_len,
										const ZkLockChild *children, int n, uint64_t hi,
										uint64_t lo, int permits, char *written,
										size_t *len);

#endif /* ZKLOCK_SEMAPHORE_RULES_H */
