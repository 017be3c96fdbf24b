/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  Declares the zklock.* settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTINGS_H
#define ZKLOCK_SETTINGS_H

extern char *zklock_hosts;		   /* connect string, maybe with a chroot suffix */
extern char *zklock_root;		   /* absolute znode path, no trailing slash */
extern char *zklock_server_name;   /* "": see names.h */
extern int zklock_session_timeout; /* ms, asked for */
extern int zklock_connect_timeout; /* ms */
/* zklock.on_loss */
typedef enum ZkOnLoss
{
	ZKLOCK_ON_LOSS_ABORT,
	ZKLOCK_ON_LOSS_WARN
} ZkOnLoss;

/* zklock.acl: the access to the znodes that the worker makes */
typedef enum ZkAclMode
{
	ZKLOCK_ACL_AUTO,	/* its own if it has credentials */
	ZKLOCK_ACL_CREATOR, /* its own */
	ZKLOCK_ACL_OPEN		/* everybody's */
} ZkAclMode;

extern char *zklock_auth_file;	 /* credentials; "": none */
extern int zklock_acl;			 /* ZkAclMode */
extern char *zklock_tls_ca_file; /* "": no TLS */
extern char *zklock_tls_cert_file;
extern char *zklock_tls_key_file;

extern int zklock_log_min_messages; /* as ZkMessage.level; 0: none */

extern int zklock_on_loss;				 /* ZkOnLoss */
extern int zklock_keep_time;			 /* ms that a grant is kept for nobody; 0: not */
extern int zklock_handoff_limit;		 /* local waiters served after a demand */
extern char *zklock_advisory_database;	 /* "", or what stands for the database in keys */
extern char *zklock_namespace;			 /* "", or what sets this role's names apart */
extern int zklock_max_locks_per_backend; /* names; 0: no limit */
extern int zklock_max_locks;			 /* names; fixed at server start */

/* zklock.leader_eligible */
typedef enum ZkLeaderEligible
{
	ZKLOCK_LEADER_PRIMARY,
	ZKLOCK_LEADER_ANY
} ZkLeaderEligible;

/* queues of work */
extern int zklock_max_item_size;	/* bytes */
extern int zklock_max_queue_length; /* items */

extern int zklock_run_history; /* minutes that rows of zk_runs are kept; -1: for ever */

extern char *zklock_elections;		 /* to enter at start: a list */
extern int zklock_leader_eligible;	 /* ZkLeaderEligible */
extern char *zklock_notify_database; /* "": none */

extern int zklock_leader_priority;
extern int zklock_election_idle_time; /* s; 0: for ever */
extern bool zklock_drain;			  /* for the worker: all others see zklock_draining */

/* Called once, from _PG_init. */
extern void zklock_define_settings(bool preloaded);

/* The most grants that are kept for nobody at a time. */
static inline uint32
zklock_max_kept(void)
{
	return (uint32) Max(zklock_max_locks / 10, 1);
}

/* The most queue items that sessions of this server can have, or wait for, at a time. */
static inline int
zklock_max_items(void)
{
	return Min(Max(zklock_max_locks / 4, 1), 100000);
}

#endif /* ZKLOCK_SETTINGS_H */
