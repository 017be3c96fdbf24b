/*-------------------------------------------------------------------------
 *
 * sessions.h
 *	  Decides what a user may see of sessions in results.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONS_H
#define ZKLOCK_SESSIONS_H

/* May the user see the activity of a backend of this role, or of none?  The rule is
 * that of pg_stat_activity. */
extern bool zklock_may_see(Oid role);

/* May the user see the activity of a session?  This server does not know the roles of
 * other servers' sessions. */
extern bool zklock_may_see_session(int pid, bool ours);

#endif /* ZKLOCK_SESSIONS_H */
