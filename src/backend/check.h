/*-------------------------------------------------------------------------
 *
 * check.h
 *	  Can this backend be served: preloaded, callable, connected?
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_H
#define ZKLOCK_CHECK_H

/*
 * Raise unless this process may call zklock at all: 55000 when the library is
 * not preloaded, in a parallel worker and in a walsender.  The first alone is
 * what reading shared memory needs.
 */
extern void zklock_check_callable(void);
extern void zklock_check_preloaded(void);

/*
 * For one that waits for the ensemble since "start", and is content with what is known
 * from "until" on (ns of CLOCK_BOOTTIME; PG_INT64_MAX: never).  Has the ensemble been
 * out of reach for too long, that is for zklock.connect_timeout?  One who came while
 * there was a connection keeps his place as long as the session may live, so he is
 * given that time, too, if he is to wait at all.  The state alone is the
 * worker's opinion, and a worker that is stopped has none: without heartbeats it counts
 * for nothing; nor does a connection before the first write on it is acknowledged,
 * or one that always breaks again would be waited for for ever.
 *
 * Raises 55000 or 58000 if so.  False while what the table says of other servers may be
 * out of date.
 */
extern bool zklock_check_connection(int64 start, int64 until);

/* No lease was proven within so many ms: 58000. */
pg_noreturn extern void zklock_check_raise_unproven(int64 ms);

/* What to do where the ensemble has refused a request with this code: an errhint. */
extern int zklock_refusal_hint(int rc);

/* Why the ensemble is out of reach now, a sentence; NULL: it is not, as far as is known. */
extern const char *zklock_check_trouble(void);

#endif /* ZKLOCK_CHECK_H */
