/*-------------------------------------------------------------------------
 *
 * sessions.h
 *	  Sessions in results: what a user may see of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONS_H
#define ZKLOCK_SESSIONS_H

/* pg_stat_activity's rule: who may see what a backend of this role, or of none, does? */
extern bool zklock_may_see(Oid role);

/* May the user see what a session does?  Of other servers' sessions nobody here knows the
 * role. */
extern bool zklock_may_see_session(int pid, bool ours);

#endif /* ZKLOCK_SESSIONS_H */
