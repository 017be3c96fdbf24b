/*-------------------------------------------------------------------------
 *
 * session.c
 *	  Opens, resumes and closes the worker's ZooKeeper session, and handles its loss.
 *
 * The session outlives the process.  Its id and password are in shared memory from the
 * moment it exists.  If a worker ends alone, it leaves the session, with the grants
 * that depend on it, to its successor, who resumes it.  The worker closes the session
 * when the server ends, when the ensemble has gone back, and when the base cannot be
 * determined.  The next life of the server closes a session that its previous life has
 * left.  If runs of jobs that depend on that session are to be settled, it keeps the
 * session beside its own until then.
 *
 * session_rules.h decides what is to be done, and when.  This file does it: with the
 * client, in shared memory, in files, and in the log.
 *
 * A new connection of an old session begins with a sync.  So a read on this connection
 * is at least as new as any write on an earlier one.
 *
 * A connection counts only when it is admitted (ensemble.c), or when it turns out that
 * there is no root.  While the ensemble counts as gone back there is no session, except
 * for a moment at the beginning of that time, when a session mends what can be mended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/ps_status.h"

#include "ensemble.h"
#include "hosts.h"
#include "job_leftruns.h"
#include "job_worker.h"
#include "member.h"
#include "path.h"
#include "security.h"
#include "session.h"
#include "session_rules.h"
#include "sessionfile.h"
#include "settings.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"
#include "watches.h"

/* Longest wait for the name service before the next handle. */
#define NAMES_MS 1000

/* Longest session timeout that the worker believes: the largest that can be set. */
#define LONGEST_TIMEOUT_MS (3600 * 1000)

/* Shortest session timeout that the worker asks for. */
#define SHORTEST_TIMEOUT_MS 100

/* Detail of messages that say that this worker makes way for another one */
#define RESUMES "The new worker resumes the ZooKeeper session."

/* Messages handled before the main loop looks elsewhere. */
#define MAX_MESSAGES 256

static const ZkRequestTag servers_tag = {.kind = ZKLOCK_TAG_SERVERS};

static const ZkSessionListener *listener = NULL;
static ZkSessionCourse course;
static ZkClient *client = NULL;	 /* course.phase */
static ZkClient *closing = NULL; /* course.closing */
static ZkClient *left = NULL;	 /* course.left */
static ZkSessionId resumed;		 /* by the handle; id 0: none */
static int64 renewed = 0;		 /* the session that this one takes the place of, for its
								  * lease's sake */
static int opened = 0;
static bool damaged = false; /* the connection, which is closed for that */
static int64 counted = 0; /* ns: send time of the write that took a heartbeat's place */

/* Writes that were acknowledged before the connection was admitted.  Without room for
 * more a write does not count, which is safe. */
static struct
{
	int64 sent; /* ns */
	int64 acknowledged;
} early[4];
static int nearly = 0;

/* A connection that begins, or that is held back. */
static struct
{
	ZkMessage *message; /* NULL: none is */
	ZkSessionId id;
	int timeout;
	int before; /* the timeout negotiated before */
	char server[sizeof(zklock_shared->session.server)];
} arrival;

/* The reason why there is no handle. */
typedef struct Failure
{
	char what[sizeof(zklock_shared->session.hosts) + 64];
	char error[1024];
	bool waits; /* for an answer of the name service */
} Failure;

static Failure failure;						   /* of the latest zklock_session_open */
static char told_error[sizeof(failure.error)]; /* ... that the log has; "": it went well */

static void feed(ZkCourseEvent event);

void
zklock_session_set_listener(const ZkSessionListener *to)
{
	listener = to;
}

int
zklock_session_fd(void)
{
	return client != NULL ? zklock_client_fd(client) : -1;
}

int
zklock_session_closing_fd(void)
{
	return closing != NULL && course.closing != ZKLOCK_CLOSING_LATER
		? zklock_client_fd(closing)
		: -1;
}

int
zklock_session_left_fd(void)
{
	/* as long as another one is being closed it is not received from */
	return left != NULL && closing == NULL ? zklock_client_fd(left) : -1;
}

int
zklock_session_names_fd(void)
{
	return zklock_hosts_fd();
}

int
zklock_session_opened(void)
{
	return opened;
}

ZkClient *
zklock_session_client(void)
{
	return zklock_course_usable(&course) ? client : NULL;
}

long
zklock_session_retry_in(void)
{
	int64 at = Max(course.retry_at, zklock_shared->session.auth_retry_at);
	int64 now;

	if (client != NULL)
		return -1;
	now = zklock_clock();
	return at <= now ? 0 : (long) ((at - now) / NS_PER_MS + 1);
}

/* Pause after refused credentials, or after a base that cannot be determined; 0: no
 * pause. */
static void
set_pause(long ms, ZkSessionState shown)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	s->auth_pause = ms;
	s->auth_retry_at = ms == 0 ? 0
							   : zklock_clock() +
			(int64) (1000000.0 * ms * (0.75 + 0.5 * pg_prng_double(&pg_global_prng_state)));
	s->auth_state = shown;
	zklock_session_unlock();
}

static void
set_state(ZkSessionState state)
{
	/* in ps, before the server */
	static const char *const titles[] = {
		[ZKLOCK_SESSION_STARTING] = "starting",
		[ZKLOCK_SESSION_CONNECTING] = "connecting",
		[ZKLOCK_SESSION_CONNECTED] = "connected to ",
		[ZKLOCK_SESSION_RECONNECTING] = "reconnecting",
		[ZKLOCK_SESSION_AUTH_FAILED] = "authentication failed",
		[ZKLOCK_SESSION_WENT_BACK] = "waiting: the ensemble went back",
		[ZKLOCK_SESSION_CLOSING] = "closing",
	};
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);
	char title[sizeof(s->server) + 32];

	Assert(state != ZKLOCK_SESSION_CONNECTED || zklock_course_usable(&course));
	/* where a session lives, or may, one is known */
	Assert((state != ZKLOCK_SESSION_CONNECTED && state != ZKLOCK_SESSION_RECONNECTING) ||
		   s->id.id != 0);
	if (s->state == ZKLOCK_SESSION_CONNECTED && state != ZKLOCK_SESSION_CONNECTED &&
		s->proven)
		s->not_connected_since = zklock_clock();
	s->proven = false;
	if (s->state != ZKLOCK_SESSION_CLOSING) /* which is for good */
		s->state = state;
	if (state == ZKLOCK_SESSION_CONNECTED)
	{
		s->attempts[0] = '\0';
		s->last_write = zklock_clock(); /* the first heartbeat is on its way */
	}
	else
		s->server[0] = '\0';
	snprintf(title, sizeof(title), "%s%s", titles[s->state], s->server);
	zklock_session_unlock();
	if (state == ZKLOCK_SESSION_CONNECTED)
		zklock_hosts_reached();
	set_ps_display(title);
}

/* Set whether the connection is good for calls that wait. */
static void
set_proven(bool admitted)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	s->proven = admitted && s->state == ZKLOCK_SESSION_CONNECTED;
	zklock_session_unlock();
}

/* Publish the lease for all backends that make a claim. */
static void
publish_lease(void)
{
	const ZkLease *lease = &zklock_shared->session.lease;

	Assert(zklock_in_worker());
	Assert(zklock_lease_end(lease) <= zklock_lease_lost_at(lease));
	pg_atomic_write_u64(&zklock_shared->lease_end, (uint64) zklock_lease_end(lease));
	pg_atomic_write_u64(&zklock_shared->lost_at, (uint64) zklock_lease_lost_at(lease));
	pg_atomic_write_u64(&zklock_shared->last_write, (uint64) lease->last_write);
	zklock_ensemble_note();
}

/* Forget the session: nobody may resume it. */
static void
forget_session(void)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	memset(&s->id, 0, sizeof(s->id));
	s->timeout_ms = 0;
	s->opened_at = 0;
	zklock_session_unlock();
	zklock_lease_init(&zklock_shared->session.lease);
	publish_lease();
}

static void
release_descriptors(void)
{
	for (int i = 0; i < ZKLOCK_CLIENT_FDS; i++)
		ReleaseExternalFD();
}

void
zklock_session_keeps(const char *setting)
{
	if (zklock_shared->session.id.id != 0)
		ereport(LOG,
				(errmsg("the new value of \"%s\" takes effect with the next ZooKeeper session",
						setting)));
}

const char *
zklock_session_reload(void)
{
	ZkProtection *security;
	char error[sizeof(failure.error)];
	bool same;

	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_RELOADED});
	zklock_client_log_debug(zklock_log_min_messages > 3);
	if (zklock_hosts_changed())
		return "zklock.hosts";
	if (client == NULL || !zklock_security_used())
		return NULL;
	security = zklock_security_read(error, sizeof(error));
	if (security == NULL)
	{
		/* what we have goes on being good */
		zklock_trouble("%s; the previous settings stay in use", error);
		return NULL;
	}
	same = zklock_security_in_use(security);
	zklock_security_free(security);
	return same ? NULL : "zklock.auth_file, acl, tls_*";
}

static int64
timeout_ns(void)
{
	const ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */

	return (s->timeout_ms > 0 ? s->timeout_ms : zklock_session_timeout) * NS_PER_MS;
}

/*
 * Set how the handle chooses among the hosts.  The session ends when its lease counts
 * as lost.  A session that rests lives by pings, the last of which was sent a third of
 * the timeout before the connection was lost.  The handle's patience is that of
 * zklock_course_gives_up, which grows meanwhile.
 */
static void
choose_hosts(ZkClient *handle, bool resume)
{
	const ZkSessionShared *s = &zklock_shared->session;
	int64 unreached = zklock_clock() - s->not_connected_since;
	int64 ends = 0;

	if (resume)
		ends = Max(zklock_lease_lost_at(&s->lease),
				   s->not_connected_since + timeout_ns() / 3);
	zklock_client_hosts(handle, zklock_hosts_tries(), ends,
						zklock_heartbeat_patience(timeout_ns(), 2 * unreached));
}

/* Open a handle that resumes this session, or makes a new one.  "bare": without
 * credentials, if that is possible.  NULL: the attempt failed. */
static ZkClient *
open_handle(int timeout, const ZkSessionId *resume, bool bare, Failure *failure)
{
	char hosts[sizeof(zklock_shared->session.hosts)];
	ZkProtection *security = zklock_security_read(failure->error, sizeof(failure->error));
	const ZkSecurity *settings;
	ZkClient *handle;
	char *addresses;

	failure->what[0] = '\0';
	failure->waits = false;
	if (security == NULL)
		return NULL;
	settings = zklock_security_settings(security);
	zklock_hosts_effective(hosts, sizeof(hosts));
	addresses = zklock_hosts_addresses(hosts, failure->error, sizeof(failure->error));
	if (addresses == NULL)
	{
		failure->waits = errno == EAGAIN;
		snprintf(failure->what, sizeof(failure->what),
				 "could not use ZooKeeper connect string \"%s\": ", hosts);
		zklock_security_free(security);
		return NULL;
	}
	for (int i = 0; i < ZKLOCK_CLIENT_FDS; i++)
		ReserveExternalFD();
	zklock_client_log_debug(zklock_log_min_messages > 3);
	if (bare && settings->tls == NULL)
		settings = NULL;
	handle = zklock_client_open(addresses, timeout, resume, settings, failure->error,
								sizeof(failure->error));
	if (handle == NULL)
	{
		/* else it is not the string's fault */
		if (errno != ENOSYS)
			snprintf(failure->what, sizeof(failure->what),
					 "could not use ZooKeeper connect string \"%s\": ", hosts);
		release_descriptors();
	}
	else
	{
		told_error[0] = '\0';
		choose_hosts(handle, resume != NULL);
		zklock_security_use(security);
		opened++;
		zklock_watches_forget_all();
	}
	zklock_security_free(security);
	return handle;
}

/* Set the root, which belongs to the session, as the timeout does. */
static void
set_root(bool new)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	if (new)
		strlcpy(s->root, zklock_root, sizeof(s->root));
	zklock_paths_set(s->root);
	zklock_session_unlock();
}

static void
show_hosts(void)
{
	char hosts[sizeof(zklock_shared->session.hosts)];
	ZkSessionShared *s;

	zklock_hosts_effective(hosts, sizeof(hosts));
	s = zklock_session_lock(LW_EXCLUSIVE);
	if (strcmp(s->hosts, hosts) != 0)
		s->attempts[0] = '\0';
	strlcpy(s->hosts, hosts, sizeof(s->hosts));
	zklock_session_unlock();
}

/* Open a client that resumes the session, or makes a new one. */
static void
open_client(ZkSessionPhase phase, bool bare)
{
	const ZkSessionShared *s = &zklock_shared->session;
	/* resuming is no occasion to change the timeout, unless nobody could connect
	 * in that time */
	int timeout =
		s->timeout_ms >= SHORTEST_TIMEOUT_MS ? s->timeout_ms : zklock_session_timeout;

	client = open_handle(timeout, resumed.id != 0 ? &resumed : NULL, bare, &failure);
	if (client == NULL)
	{
		feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NO_HANDLE, .yes = failure.waits});
		return;
	}
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_OPENED, .phase = phase});
	zklock_client_spread(client,
						 (int) (zklock_heartbeat_spread(&s->lease, zklock_clock(),
														s->servers) /
								NS_PER_MS));
}

void
zklock_session_open(void)
{
	bool stale;
	long wait;

	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LOOK});
	/* no heartbeat does that now */
	if (zklock_ensemble_waiting())
		zklock_ensemble_save_again(true);
	if (client != NULL || zklock_session_retry_in() > 0)
		return;

	show_hosts();
	wait = zklock_ensemble_open_in();
	if (wait > 0)
	{
		feed((ZkCourseEvent){.type = ZKLOCK_COURSE_WAIT,
							 .at = zklock_clock() + wait * NS_PER_MS});
		return;
	}
	renewed = 0;
	resumed = zklock_shared->session.id;
	set_root(resumed.id == 0);
	stale = zklock_course_wants_stale(&course, resumed.id != 0) &&
		zklock_session_file_read(&resumed);
	/* the first answer may be that it has ended, which is told, too */
	if (stale)
		zklock_ensemble_resume(resumed.id);
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_OPEN, .yes = stale});
}

/* Close the connection, so that the next client resumes the session.  False: this
 * client goes on. */
static bool
leave_client(bool spoilt)
{
	if (!zklock_client_leave(client))
		return false;
	release_descriptors();
	client = NULL;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LEFT, .yes = spoilt});
	return true;
}

/* Are the addresses of the names up to date?  Asks for them, and waits for the answer,
 * but not for long. */
static bool
names_are_fresh(int64 now)
{
	static int64 asked_at = 0;

	if (asked_at < course.trying_since)
	{
		zklock_hosts_ask();
		asked_at = now;
	}
	return !zklock_hosts_asking() || now - asked_at >= NAMES_MS * NS_PER_MS;
}

bool
zklock_session_stuck(void)
{
	const ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */
	int64 now;
	int64 unreached;

	if (course.phase == ZKLOCK_PHASE_ANEW)
	{
		ereport(LOG,
				(errmsg("restarting zklock worker because znode \"%s\" was changed",
						zklock_path_tokens()),
				 errdetail(RESUMES)));
		return true;
	}
	if (!zklock_course_tries(&course))
		return false;
	now = zklock_clock();
	unreached = now - s->not_connected_since;
	if (zklock_client_spoilt(client))
		(void) leave_client(true);
	else if (zklock_course_gives_up(&course, timeout_ns(), unreached, now) &&
			 names_are_fresh(now) && leave_client(false))
		ereport(LOG,
				(errmsg("could not reach ZooKeeper for %lld ms, trying again with a new handle",
						(long long) (unreached / NS_PER_MS)),
				 errdetail(
					 "The worker makes a new handle of the ZooKeeper library, and keeps its ZooKeeper session.")));
	return false;
}

/* The library numbers the requests of a process with 32 bits, starting from the time of
 * day.  Nobody has tested what happens when these numbers wrap around. */
bool
zklock_session_worn(void)
{
	if (zklock_client_requests() < UINT64CONST(1000000000))
		return false;
	ereport(LOG,
			(errmsg("restarting zklock worker after 1000000000 requests to ZooKeeper"),
			 errdetail(RESUMES)));
	return true;
}

/* Close the session if it is connected; else, if it lives, it times out by itself. */
static void
drop_client(void)
{
	ZkClient *old = client;

	Assert(old != NULL);
	client = NULL;
	zklock_client_close(old);
	release_descriptors();
}

/*
 * Does the reply show a transaction of a session that lives?  A write of a new text
 * that a quota refuses is such a transaction: the leader checks the session first, and
 * has a quorum agree to the refusal (PrepRequestProcessor.java, pRequest2Txn and
 * pRequest).
 */
static bool
is_acknowledged(const ZkMessage *message)
{
	return message->rc == ZKLOCK_ZOK ||
		(message->type == ZKLOCK_MSG_SET && message->rc == ZKLOCK_ZQUOTAEXCEEDED);
}

/*
 * Count this write for the lease.  An ensemble that went back acknowledges writes, too,
 * while another server may wait no longer: so not before the connection is admitted.
 * But a write that a quota refuses shows no number.  While all are refused no connection
 * is admitted, and nobody would keep his lock.
 */
static void
extend_lease(int64 sent, int64 acknowledged, bool refused)
{
	ZkLease *lease = &zklock_shared->session.lease;

	if (refused || zklock_ensemble_admitted())
	{
		zklock_lease_write(lease, sent, acknowledged);
		return;
	}
	zklock_lease_heard(lease, sent);
	if (nearly == lengthof(early))
		return;
	early[nearly].sent = sent;
	early[nearly++].acknowledged = acknowledged;
}

/* The connection is admitted. */
static void
count_early_writes(void)
{
	for (int i = 0; i < nearly; i++)
		extend_lease(early[i].sent, early[i].acknowledged, false);
	nearly = 0;
	publish_lease();
}

/* Each acknowledged write extends the lease, no matter which code has sent it, and may
 * replace a heartbeat. */
static void
count_write(const ZkMessage *message)
{
	if (!is_acknowledged(message))
		return;
	zklock_hosts_proven();
	pg_atomic_write_u64(&zklock_shared->write_latency,
						(uint64) (message->received_at - message->sent_at));
	extend_lease(message->sent_at, message->received_at, message->rc != ZKLOCK_ZOK);
	if (zklock_heartbeat_written(&zklock_shared->session.heartbeat,
								 &zklock_shared->session.lease, message->sent_at,
								 message->received_at,
								 pg_prng_uint32(&pg_global_prng_state)))
		counted = message->sent_at;
	publish_lease();
}

static void
count_read(const ZkMessage *message)
{
	if (message->rc == ZKLOCK_ZOK || message->rc == ZKLOCK_ZNONODE)
		pg_atomic_write_u64(&zklock_shared->read_latency,
							(uint64) (message->received_at - message->sent_at));
}

void
zklock_session_sent(int rc)
{
	zklock_trouble_sending(zklock_session_client(), rc);
}

/* A caller that asks before its requests sends a few more, so the limit is well below
 * ZKLOCK_MAX_PENDING. */
bool
zklock_session_busy(void)
{
	return client != NULL && zklock_client_pending(client) > ZKLOCK_MAX_PENDING / 4;
}

void
zklock_session_need(void)
{
	zklock_heartbeat_need(&zklock_shared->session.heartbeat, zklock_clock());
}

bool
zklock_session_resting(void)
{
	return zklock_shared->session.heartbeat.resting;
}

bool
zklock_session_renewable(void)
{
	ZkSessionShared *s = &zklock_shared->session;

	return zklock_heartbeat_rested(&s->heartbeat, &s->lease, zklock_clock()) &&
		zklock_course_renewable(&course);
}

bool
zklock_session_answered(void)
{
	Assert(zklock_session_renewable());
	return zklock_client_pending(client) == 0;
}

/*
 * Make a new session by another handle.  If the worker cannot make the handle, for
 * example because it cannot read a file, the session goes on, and its lease has to be
 * proven.
 */
void
zklock_session_renew(bool contends)
{
	Failure why;
	ZkClient *next;

	Assert(zklock_session_answered());
	ereport(DEBUG1, (errmsg_internal("opening a new ZooKeeper session, for its lease")));
	next = open_handle(zklock_session_timeout, NULL, false, &why);
	if (next == NULL)
	{
		zklock_trouble("%s%s; the ZooKeeper session stays in use", why.what, why.error);
		zklock_heartbeat_keep(&zklock_shared->session.heartbeat);
		zklock_session_need();
		return;
	}
	closing = client;
	client = next;
	resumed.id = 0;
	renewed = zklock_shared->session.id.id;
	/* with contenders rarely: zklock_grant_sweep */
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_RENEWED, .yes = contends});
	set_root(true);
}

static void
close_end(void)
{
	if (closing == NULL || course.closing == ZKLOCK_CLOSING_LATER ||
		!zklock_client_close_end(closing))
		return;
	release_descriptors();
	closing = NULL;
	if (left == NULL)
	{
		zklock_session_lock(LW_EXCLUSIVE)->keeps = false;
		zklock_session_unlock();
	}
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_CLOSED});
}

/* Show that the worker is not silent when it sends nothing because nobody needs a
 * heartbeat. */
static void
show_alive(void)
{
	ZkSessionShared *s = &zklock_shared->session;
	int64 now;

	if (!s->heartbeat.resting)
		return;
	now = zklock_clock();
	if (now - s->last_write < zklock_heartbeat_period(s->lease.timeout))
		return;
	zklock_session_lock(LW_EXCLUSIVE)->last_write = now;
	zklock_session_unlock();
}

long
zklock_session_heartbeat(void)
{
	long due = zklock_course_usable(&course) ? zklock_member_heartbeat(client) : -1;
	int64 at = zklock_course_due(&course);

	if (zklock_course_connected(&course))
		show_alive();
	if (at < PG_INT64_MAX)
	{
		long until = (long) (Max(at - zklock_clock(), 0) / NS_PER_MS + 1);

		due = due >= 0 ? Min(due, until) : until;
	}
	return due;
}

/* A heartbeat was acknowledged, or a write that replaces one. */
static void
on_beat(int64 sent_at)
{
	zklock_session_lock(LW_EXCLUSIVE)->last_write = sent_at;
	zklock_session_unlock();
	/* should it break later, that is another matter */
	zklock_client_spread(client, 0);
	zklock_ensemble_save_again(false);
	zklock_ensemble_remind(client);
	ConditionVariableBroadcast(&zklock_shared->write_cv);
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_BEAT, .yes = zklock_ensemble_admitted()});
}

/* This server's node is missing, and perhaps the root is, too. */
static void
on_missing(void)
{
	bool made = zklock_member_times_missing() > 1;

	/* nothing comes of a connection without a root but errors, which are wanted */
	if (made && !zklock_ensemble_admitted())
	{
		feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NO_ROOT});
		zklock_ensemble_remind(client);
	}
	zklock_paths_make(client);
	zklock_member_make(client);
	if (made)
		return;
	/* the connection begins now, ahead of whatever meets no directory */
	zklock_member_start(client);
	zklock_ensemble_make(client);
}

static void
on_heartbeat(const ZkMessage *message)
{
	if (is_acknowledged(message))
	{
		counted = 0;
		on_beat(message->sent_at);
	}
	/* a quota's refusal, too: what others are shown of us is of before, or less */
	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE &&
		message->rc != ZKLOCK_ZCONNECTIONLOSS)
		zklock_trouble_refused(message);
	else if (message->rc == ZKLOCK_ZNONODE && zklock_course_usable(&course))
		on_missing();
}

/*
 * Begin the session's part of a connection: create this server's node if the session
 * has none, write it, and ask the ensemble what it remembers.  "known": the connection
 * is not the session's first.
 */
static void
introduce(bool known)
{
	Assert(zklock_course_connected(&course));
	zklock_ensemble_connected(known);
	/* who mends has no other try on this connection */
	if (course.phase == ZKLOCK_PHASE_MENDING)
		zklock_paths_make(client);
	if (!known || !zklock_member_resume())
	{
		zklock_member_set_name();
		zklock_ensemble_new_member();
		zklock_member_make(client);
	}
	zklock_member_start(client);
	zklock_ensemble_ask(client);
	(void) zklock_client_get(client, zklock_path_servers(), false, &servers_tag);
}

/* The connection belongs to this session.  If the session is a new one, it gets a mark
 * of its own, which its contenders have in their names. */
static void
adopt_session(void)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	arrival.before = s->timeout_ms;
	if (s->id.id != arrival.id.id)
	{
		s->opened_at = zklock_clock();
		if (!pg_strong_random(&s->uuid_hi, sizeof(s->uuid_hi)) ||
			!pg_strong_random(&s->next_uuid, sizeof(s->next_uuid)))
		{
			zklock_session_unlock();
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random numbers")));
		}
		s->id = arrival.id;
		s->uuid_hi |= 1; /* never 0 */
		s->timeout_ms = arrival.timeout;
	}
	else
	{
		s->reconnects++;
		s->timeout_ms = Min(arrival.before, arrival.timeout); /* see lease.h */
	}
	strlcpy(s->server, arrival.server, sizeof(s->server));
	zklock_session_unlock();
}

/* Start the lease of a connection, and send the requests that come before all others. */
static void
begin_connection(bool known)
{
	ZkLease *lease = &zklock_shared->session.lease;
	int64 timeout = NS_PER_MS * arrival.timeout;

	Assert(known || !zklock_lease_valid());
	adopt_session();
	nearly = 0;
	if (known)
		zklock_lease_new_connection(lease, timeout, arrival.message->sent_at,
									arrival.message->received_at);
	else
		zklock_lease_new_session(lease, timeout, arrival.message->sent_at);
	publish_lease();
	if (known)
		(void) zklock_client_sync(client, zklock_path_directory(ZKLOCK_KIND_LOCK),
								  &zklock_no_tag);
	introduce(known);
	zklock_security_check(client, known);
}

/* Warn if the ensemble has set another timeout than the worker asked for, or than it
 * had before. */
static void
warn_of_timeout(bool known)
{
	int timeout = arrival.timeout;

	if (!known && timeout > zklock_session_timeout)
		ereport(WARNING,
				(errmsg("ZooKeeper set the session timeout to %d ms instead of %d ms",
						timeout, zklock_session_timeout),
				 errdetail("It is the least that the ensemble allows.")));
	if (known && timeout != arrival.before)
		ereport(WARNING,
				(errmsg("ZooKeeper server %s set the timeout of ZooKeeper session 0x%llx to %d ms instead of %d ms",
						arrival.server, (unsigned long long) arrival.id.id, timeout,
						arrival.before),
				 timeout > arrival.before
					 ? errdetail(
						   "The next leader of the ensemble uses the shorter one again, so zklock uses it until the ZooKeeper session ends.")
					 : errdetail(
						   "It is the most that this server allows; all servers of the ensemble should allow the same.")));
}

static void
say_opened(bool known, bool resumed_now)
{
	ereport(LOG,
			(errmsg("%s to ZooKeeper server %s, session 0x%llx, timeout %d ms",
					resumed_now ? "session resumed: connected"
						: known ? "reconnected"
								: "connected",
					arrival.server, (unsigned long long) arrival.id.id, arrival.timeout),
			 renewed == 0
				 ? 0
				 : errdetail("It replaces ZooKeeper session 0x%llx, whose lease ended while nothing needed it.",
							 (unsigned long long) renewed)));
	renewed = 0;
	warn_of_timeout(known);
}

/* Write a line of the library's log. */
static void
log_line(const char *line, int level)
{
	static const char *const level_name[] = {"", "error: ", "warning: ", "", "debug: "};

	ereport(level <= zklock_log_min_messages ? LOG
				: level <= 1				 ? DEBUG1
											 : DEBUG2,
			(errmsg_internal("libzookeeper: %s%s", level_name[level], line)));
}

/* Keep the session of the previous life beside the one that the worker opens now. */
static void
keep_stale(void)
{
	ZkSessionShared *s;

	ereport(LOG,
			(errmsg("keeping ZooKeeper session 0x%llx from before the restart until it is known which runs of jobs committed",
					(unsigned long long) resumed.id)));
	zklock_ensemble_note();
	s = zklock_session_lock(LW_EXCLUSIVE);
	s->before = resumed.id;
	s->keeps = true;
	zklock_session_unlock();
	left = client;
	client = NULL;
}

/* The session of the previous life ends, at once or after it was kept. */
static void
end_stale(int64 id)
{
	ereport(LOG,
			(errmsg("closing ZooKeeper session 0x%llx from before the restart",
					(unsigned long long) id),
			 left != NULL && zklock_job_leftruns_any()
				 ? errdetail(
					   "It is not known whether some of its runs of jobs committed. Other servers can run these jobs now.")
				 : 0));
	zklock_job_leftruns_forget();
}

/* Leave that session to the server's next start. */
static void
leave_left(void)
{
	ZkSessionId id;
	int timeout;

	if (zklock_client_session(left, &id, &timeout))
		zklock_session_file_write(&id);
}

static void
receive_left(void)
{
	ZkLeftRuns runs = ZKLOCK_LEFT_UNKNOWN;
	ZkMessage *message;

	if (left == NULL || closing != NULL)
		return;
	while (runs != ZKLOCK_LEFT_NONE && (message = zklock_client_receive(left)) != NULL)
	{
		if (message->type == ZKLOCK_MSG_CONNECTED)
			(void) zklock_job_leftruns_ask(left);
		else if (message->type == ZKLOCK_MSG_EXPIRED ||
				 message->type == ZKLOCK_MSG_AUTH_FAILED)
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LEFT_ENDED});
		else if (message->type == ZKLOCK_MSG_LOG)
			log_line(message->data ? message->data : "", message->level);
		else
			runs = zklock_job_leftruns_look(left, message);
		zklock_client_free_message(message);
	}
	feed((ZkCourseEvent){
		.type = ZKLOCK_COURSE_LEFT_RUNS,
		.runs = runs,
		.yes = zklock_job_leftruns_own(),
		.settled = zklock_shared->session.proven && zklock_job_settled(),
	});
}

/* ------------------------------------------------------------------------
 * Actions of the rules
 * ------------------------------------------------------------------------
 */

/* Report what went wrong, in the log and in zk_session. */
static void
say_trouble(ZkCourseEventType event)
{
	ZkSessionShared *s = &zklock_shared->session;

	switch (event)
	{
		case ZKLOCK_COURSE_NO_HANDLE:
			/* once, and not at each retry */
			zklock_trouble_again(strcmp(failure.error, told_error) != 0, "%s%s",
								 failure.what, failure.error);
			strlcpy(told_error, failure.error, sizeof(told_error));
			break;
		case ZKLOCK_COURSE_KEEPER:
			renewed = 0;
			zklock_trouble("%s is ClickHouse Keeper, which could give one lock to two servers",
						   arrival.server);
			break;
		case ZKLOCK_COURSE_DISCONNECTED:
			/* why it is lost again and again is to be read in last_error all the time */
			if (damaged)
				ereport(LOG, (errmsg("lost connection to ZooKeeper, reconnecting")));
			else
				zklock_trouble("lost connection to ZooKeeper, reconnecting");
			break;
		case ZKLOCK_COURSE_EXPIRED:
			zklock_trouble("ZooKeeper session 0x%llx expired",
						   (unsigned long long) s->id.id);
			if (s->id.id == 0)
				break;
			zklock_session_lock(LW_EXCLUSIVE)->expiries++;
			zklock_session_unlock();
			break;
		case ZKLOCK_COURSE_AUTH_FAILED:
			zklock_trouble("ZooKeeper refused the credentials in \"%s\"", zklock_auth_file);
			break;
		case ZKLOCK_COURSE_WENT_BACK:
			zklock_trouble_again(false,
								 "ZooKeeper ensemble went back to an earlier state: %s",
								 zklock_ensemble_reason());
			break;
		default:
			zklock_trouble("%s", zklock_ensemble_reason());
			break;
	}
}

static void
say_why(ZkCourseEventType event)
{
	zklock_trouble_connecting(
		event == ZKLOCK_COURSE_NO_HANDLE	   ? failure.error
			: event == ZKLOCK_COURSE_KEEPER	   ? zklock_shared->session.last_error
			: event == ZKLOCK_COURSE_WENT_BACK ? "the ensemble went back to an earlier state"
			: event == ZKLOCK_COURSE_AUTH_FAILED ? "authentication failed"
												 : zklock_ensemble_reason());
}

static void
perform_on_handle(const ZkCourseAction *action)
{
	switch (action->type)
	{
		case ZKLOCK_DO_OPEN:
			open_client(action->phase, action->yes);
			break;
		case ZKLOCK_DO_DROP:
			drop_client();
			break;
		case ZKLOCK_DO_HOSTS:
			choose_hosts(client, true);
			break;
		case ZKLOCK_DO_BEGIN:
			begin_connection(action->known);
			break;
		case ZKLOCK_DO_MEND:
			zklock_ensemble_extend(arrival.timeout);
			introduce(false);
			break;
		case ZKLOCK_DO_CLOSE:
			zklock_client_close_begin(closing);
			break;
		case ZKLOCK_DO_AWAIT:
			for (; closing != NULL; pg_usleep(1000L))
				close_end();
			break;
		case ZKLOCK_DO_STALE:
			if (!zklock_ensemble_ask_left(client, resumed.id))
				feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STALE_TOLD});
			break;
		case ZKLOCK_DO_STALE_RUNS:
			if (!zklock_job_leftruns_ask(client))
				feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STALE_RUNS,
									 .runs = ZKLOCK_LEFT_NONE});
			break;
		case ZKLOCK_DO_STALE_CLOSE:
			end_stale(resumed.id);
			break;
		case ZKLOCK_DO_KEEP:
			keep_stale();
			break;
		case ZKLOCK_DO_LEFT_RUNS:
			(void) zklock_job_leftruns_ask(left);
			break;
		case ZKLOCK_DO_LEFT_CLOSE:
			end_stale(zklock_shared->session.before);
			closing = left;
			left = NULL;
			zklock_client_close_begin(closing);
			break;
		default:
			leave_left();
			break;
	}
}

static void
perform(const ZkCourseAction *action)
{
	switch (action->type)
	{
		case ZKLOCK_DO_FORGET:
			forget_session();
			break;
		case ZKLOCK_DO_NOTE:
			zklock_ensemble_note();
			break;
		case ZKLOCK_DO_SAVE:
			zklock_ensemble_save_again(true);
			break;
		case ZKLOCK_DO_FOUND:
			zklock_ensemble_found((int) (action->lasts / NS_PER_MS));
			break;
		case ZKLOCK_DO_STOP:
			zklock_ensemble_stop(action->yes);
			break;
		case ZKLOCK_DO_FILE:
			(void) zklock_client_fd(client); /* it sends what was asked */
			zklock_session_file_write(&arrival.id);
			break;
		case ZKLOCK_DO_NO_FILE:
			zklock_session_file_remove();
			break;
		case ZKLOCK_DO_PAUSE:
			set_pause(action->pause, action->state);
			break;
		case ZKLOCK_DO_SHOW:
			set_state(action->state);
			break;
		case ZKLOCK_DO_PROVE:
			set_proven(action->yes);
			break;
		case ZKLOCK_DO_TELL:
			listener->event(action->told);
			break;
		case ZKLOCK_DO_SAY_OPENED:
			say_opened(action->known, action->resumed);
			break;
		case ZKLOCK_DO_SAY_TROUBLE:
			say_trouble(action->event);
			break;
		case ZKLOCK_DO_SAY_WHY:
			say_why(action->event);
			break;
		case ZKLOCK_DO_SAY_STOPPING:
			if (zklock_shared->session.id.id != 0)
				ereport(LOG,
						(errmsg("closing ZooKeeper session 0x%llx as soon as no lock is held",
								(unsigned long long) zklock_shared->session.id.id)));
			break;
		case ZKLOCK_DO_SAY_LEAVING:
			ereport(LOG,
					(errmsg("leaving ZooKeeper session 0x%llx open until the next start, which finds out which runs of jobs committed",
							(unsigned long long) zklock_shared->session.id.id)));
			break;
		default:
			perform_on_handle(action);
			break;
	}
}

/* Feed an event to the rules, and do what they ask for. */
static void
feed(ZkCourseEvent event)
{
	const ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */
	ZkCourseActions actions;

	event.now = zklock_clock();
	event.session = s->id.id != 0;
	event.found = zklock_ensemble_waiting();
	event.state = s->state;
	event.pause_state = s->auth_state;
	event.pause = s->auth_pause;
	event.timeout = timeout_ns();
	zklock_course_step(&course, &event, &actions);
	for (int i = 0; i < actions.n; i++)
		perform(&actions.action[i]);
}

/* ------------------------------------------------------------------------
 * Messages of the client
 * ------------------------------------------------------------------------
 */

/* A connection exists.  The rules use it now, or hold it back for a while.  True: this
 * file keeps the message. */
static bool
on_connected(ZkMessage *message)
{
	const ZkSessionShared *s = &zklock_shared->session;
	ZkCourseEvent event = {.type = ZKLOCK_COURSE_CONNECTED, .at = message->received_at};

	damaged = false;
	if (!zklock_client_session(client, &arrival.id, &arrival.timeout))
		return false;
	zklock_client_server(client, arrival.server, sizeof(arrival.server));

	/*
	 * No ensemble gives a longer timeout.  A timeout that is too short here does no harm.
	 * And the library computes with the timeout that it is given to resume with.
	 */
	arrival.timeout = Max(1, Min(arrival.timeout, LONGEST_TIMEOUT_MS));
	arrival.message = message;
	event.known = arrival.id.id == s->id.id;
	event.lasts = NS_PER_MS * arrival.timeout;
	/* after an outage it is the first one of another handle */
	if (event.known)
		event.at += zklock_heartbeat_pause(&s->lease, event.lasts, message->sent_at,
										   message->received_at,
										   pg_prng_uint32(&pg_global_prng_state));
	if (zklock_session_is_of_keeper(&arrival.id))
		event.type = ZKLOCK_COURSE_KEEPER;
	feed(event);
	if (zklock_course_held(&course))
		return true;
	arrival.message = NULL;
	return false;
}

static void
free_arrival(void)
{
	if (arrival.message != NULL)
		zklock_client_free_message(arrival.message);
	arrival.message = NULL;
}

/* Use the connection that was held back. */
static void
use_connection(void)
{
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_USE,
						 .known = arrival.id.id == zklock_shared->session.id.id});
	free_arrival();
}

/* There is no root, for example because the chroot path is missing in an ensemble that
 * was wiped. */
static void
on_not_mended(const ZkMessage *message)
{
	if (message->rc != ZKLOCK_ZNONODE && message->rc != ZKLOCK_ZCONNECTIONLOSS)
		zklock_trouble_refused(message);
	if (zklock_member_times_missing() >= ZKLOCK_TIMES_MISSING)
		zklock_trouble_connecting(zklock_shared->session.last_error);
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NOT_MENDED});
}

/*
 * Look at a message on the connection that is to close a session of the previous life:
 * has the session told everything, and are there runs to be settled?  False: the
 * message has served.
 */
static bool
look_at_stale(const ZkMessage *message)
{
	switch (zklock_ensemble_look_left(message))
	{
		case ZKLOCK_ENSEMBLE_WENT_BACK:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_WENT_BACK});
			return false;
		case ZKLOCK_ENSEMBLE_ADMITTED:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STALE_TOLD});
			return false;
		default:
			break;
	}
	if (message->tag.kind != ZKLOCK_TAG_LEFTRUNS)
		return true;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STALE_RUNS,
						 .runs = zklock_job_leftruns_look(client, message),
						 .lasts = NS_PER_MS * arrival.timeout});
	return false;
}

/* Learn about the ensemble from a message, before any other code handles it.  False if
 * the client is gone. */
static bool
look(const ZkMessage *message)
{
	if (course.phase == ZKLOCK_PHASE_STALE)
		return look_at_stale(message);
	if (!zklock_course_connected(&course))
		return true;
	switch (zklock_ensemble_look(client, message))
	{
		case ZKLOCK_ENSEMBLE_NOTHING:
			return true;
		case ZKLOCK_ENSEMBLE_ADMITTED:
			count_early_writes();
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_ADMITTED});
			return true;
		case ZKLOCK_ENSEMBLE_WENT_BACK:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_WENT_BACK});
			return false;
		case ZKLOCK_ENSEMBLE_MENDED:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_MENDED});
			return false;
		case ZKLOCK_ENSEMBLE_ANEW:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_TOUCHED});
			return false;
		case ZKLOCK_ENSEMBLE_UNKNOWN:
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_UNKNOWN_BASE});
			return false;
	}
	return true;
}

static void
on_expired(const ZkMessage *message)
{
	bool went_back = false;

	if (course.phase == ZKLOCK_PHASE_STALE || zklock_shared->session.id.id != 0)
		went_back =
			zklock_ensemble_expired(message->received_at) == ZKLOCK_ENSEMBLE_WENT_BACK;
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_EXPIRED, .yes = went_back});
}

/* Handle a line of the library's log, which may contain a host's answer. */
static void
on_log(const char *line, int level)
{
	log_line(line, level);
	/* what broke a connection that was up is no answer to an attempt */
	if (zklock_course_tries(&course))
		zklock_hosts_heard(line);
}

/* A ZooKeeper server has sent data that make no sense, so its connection is being
 * closed. */
static void
on_damage(const char *why)
{
	char server[sizeof(zklock_shared->session.server)];

	zklock_client_server(client, server, sizeof(server));
	zklock_hosts_damaged(server, why);
	damaged = true;
}

/* Handle a message.  True: it has been kept; else it has served. */
static bool
on_message(ZkMessage *message)
{
	switch (message->type)
	{
		case ZKLOCK_MSG_CONNECTED:
			return on_connected(message);
		case ZKLOCK_MSG_DISCONNECTED:
			free_arrival();
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_DISCONNECTED});
			break;
		case ZKLOCK_MSG_EXPIRED:
			free_arrival();
			on_expired(message);
			break;
		case ZKLOCK_MSG_AUTH_FAILED:
			free_arrival();
			feed((ZkCourseEvent){.type = ZKLOCK_COURSE_AUTH_FAILED});
			break;
		case ZKLOCK_MSG_ACL:
			zklock_security_checked(message);
			break;
		case ZKLOCK_MSG_SET:
			count_write(message);
			if (message->tag.kind != ZKLOCK_TAG_NONE)
			{
				listener->message(message);
				break;
			}
			zklock_member_answer(message);
			if (course.phase != ZKLOCK_PHASE_MENDING)
				on_heartbeat(message);
			else if (message->rc != ZKLOCK_ZOK)
				on_not_mended(message);
			break;
		case ZKLOCK_MSG_CREATED:
		case ZKLOCK_MSG_DELETED:
		case ZKLOCK_MSG_MULTI:
			count_write(message);
			zklock_path_make_missing(client, message);
			listener->message(message);
			break;
		case ZKLOCK_MSG_DAMAGED:
			on_damage(message->data);
			break;
		case ZKLOCK_MSG_LOG:
			on_log(message->data ? message->data : "", message->level);
			break;
		default:
			if (message->type == ZKLOCK_MSG_LISTED || message->type == ZKLOCK_MSG_GOT)
				count_read(message);
			if (message->tag.kind != ZKLOCK_TAG_SERVERS)
				listener->message(message);
			else if (message->rc == ZKLOCK_ZOK)
				zklock_shared->session.servers = message->nchildren;
			break;
	}
	return false;
}

void
zklock_session_receive(bool came)
{
	ZkMessage *message;

	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_LOOK});
	close_end();
	receive_left();
	if (zklock_hosts_hear())
		feed((ZkCourseEvent){.type = ZKLOCK_COURSE_NAMED});
	if (zklock_course_held(&course) && zklock_course_use_due(&course, zklock_clock()))
		use_connection();

	/* not without end: backends have wishes, too */
	for (int i = 0; came && i < MAX_MESSAGES && client != NULL &&
		 course.phase != ZKLOCK_PHASE_ANEW &&
		 (message = zklock_client_receive(client)) != NULL;
		 i++)
	{
		if (!look(message))
		{
			zklock_client_free_message(message);
			continue;
		}
		if (on_message(message))
			continue;
		zklock_client_free_message(message);
		if (counted != 0 && zklock_course_usable(&course))
		{
			zklock_member_look(client);
			on_beat(counted);
		}
		counted = 0;
	}
}

void
zklock_session_count_requests(void)
{
	pg_atomic_write_u32(&zklock_shared->in_flight,
						client ? (uint32) zklock_client_pending(client) : 0);
}

void
zklock_session_set_stopping(void)
{
	zklock_table_set_stopping();
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_STOPPING});
}

bool
zklock_session_returning(void)
{
	return zklock_course_returning(&course, zklock_shared->session.id.id != 0,
								   zklock_clock());
}

void
zklock_session_close(bool leaves)
{
	feed((ZkCourseEvent){.type = ZKLOCK_COURSE_END, .yes = leaves});
}
