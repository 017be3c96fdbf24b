/*-------------------------------------------------------------------------
 *
 * settle.h
 *	  Runs of jobs that only this server can tell the end of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTLE_H
#define ZKLOCK_SETTLE_H

/* Each time round: start the processes where there may be some. */
extern void zklock_settle_work(void);

/* Is nothing wanted of them, and none at work? */
extern bool zklock_settle_over(void);

#endif /* ZKLOCK_SETTLE_H */
