/*-------------------------------------------------------------------------
 *
 * check.h
 *	  Checks whether this backend can be served: preloaded, callable, connected.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECK_H
#define ZKLOCK_CHECK_H

/*
 * Raise unless this process may call zklock at all.  Raises 55000 if the library is not
 * preloaded, in a parallel worker, and in a walsender.  Code that only reads shared
 * memory needs the first check alone.
 */
extern void zklock_check_callable(void);
extern void zklock_check_preloaded(void);

/*
 * Has the ensemble been out of reach for too long, that is for zklock.connect_timeout?
 * The caller has waited for the ensemble since "start", and from "until" on (ns of
 * CLOCK_BOOTTIME; PG_INT64_MAX: never) it is content with what is known.  A waiter that
 * came while there was a connection keeps its place for as long as the session may
 * live, so it gets that time, too, if it is to wait at all.
 *
 * The state alone is the worker's opinion, and a stopped worker has none: without
 * heartbeats the state counts for nothing.  A connection counts for nothing before the
 * first write on it is acknowledged, since otherwise waiters would wait for ever for a
 * connection that always breaks again.
 *
 * Raises 55000 or 58000 if it has been too long, 57P01 while the server stops.  Returns
 * false while the table may be out of date about other servers.
 */
extern bool zklock_check_connection(int64 start, int64 until);

/* Raise 58000: no lease was proven within "ms". */
pg_noreturn extern void zklock_check_raise_unproven(int64 ms);

/* What to do if the ensemble has refused a request with this code; and an errhint that
 * says so. */
extern const char *zklock_refusal_advice(int rc);
extern int zklock_refusal_hint(int rc);

/* A sentence that says why the ensemble is out of reach; NULL: it is in reach, as far
 * as is known.  "hint": what to do; NULL if there is no more to say. */
extern const char *zklock_check_trouble(const char **hint);

#endif /* ZKLOCK_CHECK_H */
