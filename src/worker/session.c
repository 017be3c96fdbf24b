/*-------------------------------------------------------------------------
 *
 * session.c
 *	  The worker's ZooKeeper session: opened, resumed, lost, closed.
 *
 * The session outlives the process.  Its id and password are in shared memory
 * from the moment it exists; a worker that ends alone leaves it, and the
 * grants that hang on it, to its successor, who resumes it.  The end of the server
 * closes it; so do we when the ensemble went back, or its base cannot be told.  What a
 * life of the server has left open the next one closes, or keeps beside its own while
 * runs of jobs that hang on it are settled.
 *
 *	 STARTING -----(a worker)--------------------> CONNECTING
 *	 CONNECTING ---(admitted, a new session)-----> CONNECTED
 *	 CONNECTING ---(admitted, the old session)---> CONNECTED   (resumed)
 *	 CONNECTED ----(connection lost)-------------> RECONNECTING
 *	 RECONNECTING -(admitted)--------------------> CONNECTED
 *	 RECONNECTING -(too long: another client)----> CONNECTING
 *	 any ----------(credentials refused)---------> AUTH_FAILED (then CONNECTED)
 *	 any ----------(expired, or base unknown)----> CONNECTING  (grants are lost)
 *	 any ----------(the ensemble went back)------> WENT_BACK   (then CONNECTING)
 *	 any ----------(the worker ends)-------------> STARTING
 *	 any ----------(server stops)----------------> CLOSING
 *
 * A new connection of an old session begins with a sync: whatever is read on it then is
 * as new as anything that was written on an earlier one.
 *
 * A connection counts as one when it is admitted (ensemble.c), or when it turns out that
 * there is no root.  While WENT_BACK there is no session, but for a moment at its
 * beginning, when one mends what can be mended.
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
#include "sessionfile.h"
#include "settings.h"
#include "table.h"
#include "tag.h"
#include "trouble.h"
#include "watches.h"

#define RETRY_MS 1000

/* Pause before another handle, when one was told nonsense. */
#define SPOILT_MS 250

/* Longest that a new session waits for the end of the one before it. */
#define CLOSING_MS 500

/* For so long after its loss a connection may be back in a moment. */
#define RETURNING_MS 2000

/* Longest pause between two attempts when our credentials are refused. */
#define AUTH_RETRY_MS 60000

/* Longest session timeout that we believe in: the largest that can be set. */
#define LONGEST_TIMEOUT_MS (3600 * 1000)

/* Shortest that is asked for. */
#define SHORTEST_TIMEOUT_MS 100

/* Messages handled before the main loop looks elsewhere. */
#define MAX_MESSAGES 256

static const ZkRequestTag servers_tag = {.kind = ZKLOCK_TAG_SERVERS};

static const ZkSessionListener *listener = NULL;
static ZkClient *client = NULL;
static ZkClient *left = NULL;	 /* of a life before, kept while runs are settled */
static int64 left_until = 0;	 /* ns: ... at most */
static bool left_over = false;	 /* ... and settlers have done what they can */
static ZkClient *closing = NULL; /* of the session before it, to be closed */
static bool close_begun = false; /* ... which has begun */
static bool awaited = false;	 /* ... before the new one is used */
static bool connected = false;
static bool resuming = false;	   /* the first connection is to be the old session */
static bool closing_stale = false; /* ... only in order to close it, or to keep it */
static int64 stale_until = 0;	   /* ns: that one is asked at most; 0: not yet */
static bool anew = false;		   /* a new process is to resume the session */
static bool mending = false;	   /* the session is for ensemble.c alone */
static int64 renewed = 0;		   /* ... in place of this one, for its lease's sake */
static ZkMessage *arrival = NULL;  /* CONNECTED of a connection that is not used yet */
static int64 arrival_until = 0;	   /* ns: when it is */
static int opened = 0;
static int64 trying_since = 0;		/* ns; while there is a client, but no connection */
static int64 retry_at = 0;			/* ns; 0: at once */
static bool awaiting_names = false; /* what they stand for, for the first time */
static bool damaged = false;		/* the connection, which is closed for that */
static int64 counted = 0; /* ns: send time of the write that took a heartbeat's place */
static char open_error[1024]; /* of the latest zklock_session_open, if it failed */

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
	return closing != NULL && close_begun ? zklock_client_fd(closing) : -1;
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
	return connected && !mending ? client : NULL;
}

long
zklock_session_retry_in(void)
{
	int64 now = zklock_clock();
	int64 at = Max(retry_at, zklock_shared->session.auth_retry_at);

	if (client != NULL)
		return -1;
	return at <= now ? 0 : (long) ((at - now) / NS_PER_MS + 1);
}

/* After refused credentials, or a base that cannot be told; 0 and 0: no pause. */
static void
set_auth_pause(long ms, int64 until)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	s->auth_pause = ms;
	s->auth_retry_at = until;
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

	Assert(state != ZKLOCK_SESSION_CONNECTED || connected);
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

/* For everybody who makes a claim. */
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

/* Nobody shall resume the session. */
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
	char error[sizeof(open_error)];
	bool same;

	set_auth_pause(0, 0);
	retry_at = 0;
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

/* There is no handle; say so, once and not at each retry. */
static void
open_failed(const char *what, const char *error)
{
	zklock_trouble_again(strcmp(error, open_error) != 0, "%s%s", what, error);
	strlcpy(open_error, error, sizeof(open_error));
	zklock_trouble_connecting(error);
	retry_at = zklock_clock() + RETRY_MS * NS_PER_MS;
}

static void
show_went_back(void)
{
	set_state(ZKLOCK_SESSION_WENT_BACK);
	zklock_trouble_connecting("the ensemble went back to an earlier state");
}

/* What is to be said where there is no handle. */
typedef struct Failure
{
	char what[sizeof(zklock_shared->session.hosts) + 64];
	char error[sizeof(open_error)];
	bool waits; /* for an answer of the name service */
} Failure;

/* Is the session that a life before has left to be closed without another question?  Its
 * contenders are in the way of others, and whatever is in the way of an answer may last. */
static bool
stale_is_over(void)
{
	return stale_until != 0 && zklock_clock() >= stale_until;
}

static int64
timeout_ns(void)
{
	const ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */

	return (s->timeout_ms > 0 ? s->timeout_ms : zklock_session_timeout) * NS_PER_MS;
}

/*
 * How the handle is to choose among the hosts.  The session ends when its lease counts as
 * lost; where it rests it lives by pings, of which the last was sent a third of the
 * timeout before.  Its patience is that of zklock_session_stuck, which grows meanwhile.
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

/* A handle for this session, or for a new one; NULL: it failed. */
static ZkClient *
open_handle(int timeout, const ZkSessionId *resume, Failure *failure)
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
	/* nobody needs credentials to close his session, but to ask before */
	if (closing_stale && stale_is_over() && settings->tls == NULL)
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
		open_error[0] = '\0';
		awaiting_names = false;
		trying_since = zklock_clock();
		choose_hosts(handle, resume != NULL);
		zklock_security_use(security);
		opened++;
		zklock_watches_forget_all();
	}
	zklock_security_free(security);
	return handle;
}

/* The root, like the timeout, belongs to the session. */
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
no_handle(const Failure *failure)
{
	if (!failure->waits || awaiting_names)
	{
		open_failed(failure->what, failure->error);
		return;
	}
	/* no trouble yet */
	awaiting_names = true;
	zklock_trouble_connecting(failure->error);
	retry_at = zklock_clock() + RETRY_MS * NS_PER_MS;
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

void
zklock_session_open(void)
{
	ZkSessionId id;
	ZkSessionShared *s;
	Failure failure;
	int timeout;
	long wait;

	/* the pause that a predecessor began is ours to end */
	if (zklock_shared->session.auth_pause > 0 &&
		zklock_shared->session.state == ZKLOCK_SESSION_STARTING)
		set_state(zklock_shared->session.auth_state);
	/* no heartbeat does that now */
	if (zklock_ensemble_waiting())
		zklock_ensemble_save_again(true);
	if (client != NULL || zklock_session_retry_in() > 0)
		return;

	show_hosts();
	wait = zklock_ensemble_open_in();
	if (wait > 0)
	{
		/* a predecessor's finding, or that of before the server's start, shows, too */
		if (zklock_shared->session.state != ZKLOCK_SESSION_WENT_BACK)
			show_went_back();
		retry_at = zklock_clock() + wait * NS_PER_MS;
		return;
	}
	mending = zklock_ensemble_waiting();
	renewed = 0;

	s = &zklock_shared->session;
	id = s->id;
	/* resuming is no occasion to change the timeout, unless nobody could connect
	 * in that time */
	timeout = s->timeout_ms >= SHORTEST_TIMEOUT_MS ? s->timeout_ms : zklock_session_timeout;
	set_root(id.id == 0);

	/*
	 * A server that crashed or was stopped in a hurry left a session behind
	 * that nobody can use: shared memory is new, and every backend of that
	 * time is gone.  Its contenders would block everybody until it expires, so
	 * it is closed before anything else is done, when it has told what it can; but
	 * not while jobs hang on it whose runs only we can tell the end of.
	 */
	closing_stale =
		id.id == 0 && closing == NULL && left == NULL && zklock_session_file_read(&id);
	/* the first answer may be that it has ended, which is told, too */
	if (closing_stale)
		zklock_ensemble_resume(id.id);
	resuming = id.id != 0;

	/* why nothing could be mended yet goes on being shown */
	if (mending)
	{
		if (zklock_shared->session.state != ZKLOCK_SESSION_WENT_BACK)
			show_went_back();
	}
	else if (zklock_shared->session.auth_pause == 0)
		set_state(ZKLOCK_SESSION_CONNECTING);
	client = open_handle(timeout, resuming ? &id : NULL, &failure);
	if (client == NULL)
		no_handle(&failure);
	else
		zklock_client_spread(client,
							 (int) (zklock_heartbeat_spread(&s->lease, zklock_clock(),
															s->servers) /
									NS_PER_MS));
}

/* The next client resumes the session.  False: this one goes on. */
static bool
leave_client(void)
{
	if (!zklock_client_leave(client))
		return false;
	release_descriptors();
	client = NULL;
	retry_at = 0;
	return true;
}

/* Do names stand for what they do now?  They are asked for, and the answer is awaited,
 * but not for long. */
static bool
names_are_fresh(int64 now)
{
	static int64 asked_at = 0;

	if (asked_at < trying_since)
	{
		zklock_hosts_ask();
		asked_at = now;
	}
	return !zklock_hosts_asking() || now - asked_at >= RETRY_MS * NS_PER_MS;
}

/*
 * Has the library tried for long enough?  It never accepts an ensemble that has seen less
 * than itself, one that was restored from a backup, say; and names may stand for other
 * addresses by now.  A new handle begins with a fresh list and the same session, and has
 * seen nothing.
 *
 * Each handle is given as long as all before it.
 */
bool
zklock_session_stuck(void)
{
	ZkSessionShared *s = &zklock_shared->session; /* the worker alone writes */
	int64 now = zklock_clock();
	int64 unreached = now - s->not_connected_since;

	if (anew)
	{
		ereport(LOG,
				(errmsg("starting anew, since znode \"%s\" was changed",
						zklock_path_tokens())));
		return true;
	}
	if (client == NULL || connected || arrival != NULL)
		return false;
	if (zklock_client_spoilt(client))
	{
		if (leave_client())
			retry_at = now + Min(SPOILT_MS * NS_PER_MS, timeout_ns() / 6);
		return false;
	}
	if (now - trying_since < zklock_heartbeat_patience(timeout_ns(), unreached) ||
		!names_are_fresh(now))
		return false;
	if (leave_client())
		ereport(LOG,
				(errmsg("no ZooKeeper server reached for %lld ms, starting anew",
						(long long) (unreached / NS_PER_MS))));
	return false;
}

/*
 * The library numbers the requests of a process with 32 bits, from the time of day on,
 * and what happens at the end of them nobody has tried.
 */
bool
zklock_session_worn(void)
{
	if (zklock_client_requests() < UINT64CONST(1000000000))
		return false;
	ereport(LOG, (errmsg("restarting after 1000000000 requests")));
	return true;
}

static void
drop_arrival(void)
{
	if (arrival != NULL)
		zklock_client_free_message(arrival);
	arrival = NULL;
}

/* Give up the handle; the session, if it lives, times out by itself. */
static void
drop_client(bool retry_now)
{
	ZkClient *old = client;

	Assert(old != NULL);
	drop_arrival();
	client = NULL;
	connected = false;
	retry_at = retry_now ? 0 : zklock_clock() + RETRY_MS * NS_PER_MS;
	zklock_client_close(old);
	release_descriptors();
}

/* Try again later, and if that is no use either, later still.  What is shown meanwhile
 * is for a successor, too. */
static void
pause_after_refusal(ZkSessionState state)
{
	long pause = zklock_shared->session.auth_pause;

	zklock_session_lock(LW_EXCLUSIVE)->auth_state = state;
	zklock_session_unlock();
	set_state(state);
	pause = pause == 0 ? RETRY_MS : Min(2 * pause, AUTH_RETRY_MS);
	set_auth_pause(pause,
				   zklock_clock() +
					   (int64) (1000000.0 * pause *
								(0.75 + 0.5 * pg_prng_double(&pg_global_prng_state))));
}

/*
 * Was that a transaction of a session that lives?  A new text that a quota refuses is
 * one: the leader looks at the session first, and has a quorum agree that the write is
 * refused (PrepRequestProcessor.java, pRequest2Txn and pRequest).
 */
static bool
is_acknowledged(const ZkMessage *message)
{
	return message->rc == ZKLOCK_ZOK ||
		(message->type == ZKLOCK_MSG_SET && message->rc == ZKLOCK_ZQUOTAEXCEEDED);
}

/* Any acknowledged write extends the lease, whoever wanted it, and may do for a heartbeat. */
static void
count_write(const ZkMessage *message)
{
	if (!is_acknowledged(message))
		return;
	zklock_hosts_proven();
	pg_atomic_write_u64(&zklock_shared->write_latency,
						(uint64) (message->received_at - message->sent_at));
	zklock_lease_write(&zklock_shared->session.lease, message->sent_at,
					   message->received_at);
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

/* Whoever asks first makes a few more, so this stays well below ZKLOCK_MAX_PENDING. */
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

/* Close the session before this one, if there is one and that has not begun, without a
 * wait. */
static void
close_begin(void)
{
	if (closing == NULL || close_begun)
		return;
	close_begun = true;
	zklock_client_close_begin(closing);
}

static int64
awaited_until(void)
{
	return trying_since + CLOSING_MS * NS_PER_MS;
}

bool
zklock_session_renewable(void)
{
	ZkSessionShared *s = &zklock_shared->session;

	if (!zklock_heartbeat_rested(&s->heartbeat, &s->lease, zklock_clock()))
		return false;
	/* what is asked has its answer first */
	return connected && !mending && closing == NULL && zklock_client_pending(client) == 0;
}

/*
 * By another handle.  The old session is closed when the new one has come to a write, so
 * that the first lock need not wait for that, too; but at once if there are contenders of
 * ours in it, or whoever would not wait for a lock would find it taken by what we kept.
 * Where there is no other handle to be had, since a file cannot be read, say, the session
 * goes on, and its lease has to be proven.
 */
void
zklock_session_renew(bool contends)
{
	Failure failure;
	ZkClient *next;
	ZkClient *old;

	Assert(zklock_session_renewable());
	ereport(DEBUG1, (errmsg_internal("opening a new ZooKeeper session, for its lease")));
	next = open_handle(zklock_session_timeout, NULL, &failure);
	if (next == NULL)
	{
		zklock_trouble("%s%s; the ZooKeeper session stays in use", failure.what,
					   failure.error);
		zklock_heartbeat_keep(&zklock_shared->session.heartbeat);
		zklock_session_need();
		return;
	}
	old = client;
	client = next;
	connected = false;
	renewed = zklock_shared->session.id.id;
	forget_session();
	set_state(ZKLOCK_SESSION_CONNECTING);
	listener->event(ZKLOCK_EV_SESSION_LOST);
	set_root(true);
	closing = old;
	close_begun = false;
	awaited = contends; /* rarely: zklock_grant_sweep */
	if (contends)
		close_begin();
}

static void
close_end(void)
{
	if (closing == NULL)
	{
		awaited = false;
		return;
	}
	/* the new session has not come to an acknowledged write: it is not waited for */
	if (zklock_clock() >= awaited_until())
		close_begin();
	if (close_begun && zklock_client_close_end(closing))
	{
		release_descriptors();
		closing = NULL;
	}
	if (closing == NULL || zklock_clock() >= awaited_until())
		awaited = false;
}

/* A worker that sends nothing for want of need is not silent. */
static void
show_alive(void)
{
	ZkSessionShared *s = &zklock_shared->session;
	int64 now = zklock_clock();

	if (!s->heartbeat.resting ||
		now - s->last_write < zklock_heartbeat_period(s->lease.timeout))
		return;
	zklock_session_lock(LW_EXCLUSIVE)->last_write = now;
	zklock_session_unlock();
}

long
zklock_session_heartbeat(void)
{
	long due = connected && !mending ? zklock_member_heartbeat(client) : -1;

	if (connected)
		show_alive();
	if (arrival != NULL && !awaited)
		due = (long) (Max(arrival_until - zklock_clock(), 0) / NS_PER_MS + 1);
	if (left != NULL)
	{
		long until = (long) (Max(left_until - zklock_clock(), 0) / NS_PER_MS + 1);

		due = due >= 0 ? Min(due, until) : until;
	}
	if (closing != NULL && (awaited || !close_begun))
	{
		long until = (long) (Max(awaited_until() - zklock_clock(), 0) / NS_PER_MS + 1);

		due = due >= 0 ? Min(due, until) : until;
	}
	return due;
}

/* A heartbeat was acknowledged, or a write that does for one. */
static void
on_beat(int64 sent_at)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);

	if (zklock_ensemble_admitted())
	{
		s->auth_pause = 0; /* whatever is needed, we have it */
		s->auth_retry_at = 0;
	}
	s->last_write = sent_at;
	s->proven = s->state == ZKLOCK_SESSION_CONNECTED && zklock_ensemble_admitted();
	zklock_session_unlock();
	/* should it break later, that is another matter */
	zklock_client_spread(client, 0);
	/* what the end of the old session takes the ensemble is not in the way of the first lock */
	close_begin();
	zklock_ensemble_save_again(false);
	zklock_ensemble_remind(client);
	ConditionVariableBroadcast(&zklock_shared->write_cv);
	listener->event(ZKLOCK_EV_TICK);
}

/* Our node is not there, and perhaps the root is not. */
static void
on_missing(void)
{
	bool made = zklock_member_times_missing() > 1;

	/* nothing comes of a connection without a root but errors, which are wanted */
	if (made && !zklock_ensemble_admitted())
	{
		if (zklock_shared->session.state != ZKLOCK_SESSION_CONNECTED)
			set_state(ZKLOCK_SESSION_CONNECTED);
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
	/* a quota's refusal, too: what others are shown of us is of before */
	if (message->rc != ZKLOCK_ZOK && message->rc != ZKLOCK_ZNONODE &&
		message->rc != ZKLOCK_ZCONNECTIONLOSS)
		zklock_trouble_refused(message);
	else if (message->rc == ZKLOCK_ZNONODE && connected)
		on_missing();
}

/*
 * The beginning of each connection: our node is made, if the session has none, and
 * written, and the ensemble shows what it remembers.
 */
static void
introduce(bool resumed)
{
	Assert(connected);
	zklock_ensemble_connected(resumed);
	/* who mends has no other try on this connection */
	if (mending)
		zklock_paths_make(client);
	if (!resumed || resuming)
	{
		if (zklock_member_set_name() || !resumed)
		{
			zklock_ensemble_new_member();
			zklock_member_make(client);
		}
	}
	zklock_member_start(client);
	zklock_ensemble_ask(client);
	(void) zklock_client_get(client, zklock_path_servers(), false, &servers_tag);
}

/*
 * The connection is one of this session: is it another than the one before?  Then
 * "known" is not its id, and it has a mark of its own, which its contenders bear.
 * Returns the timeout that was negotiated before.
 */
static int
adopt_session(const ZkSessionId *id, int timeout, const char *server, ZkSessionId *known)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);
	int before = s->timeout_ms;

	*known = s->id;
	if (known->id != id->id)
	{
		s->id = *id;
		s->opened_at = zklock_clock();
		if (!pg_strong_random(&s->uuid_hi, sizeof(s->uuid_hi)) ||
			!pg_strong_random(&s->next_uuid, sizeof(s->next_uuid)))
		{
			zklock_session_unlock();
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random numbers")));
		}
		s->uuid_hi |= 1; /* never 0 */
		s->timeout_ms = timeout;
	}
	else
	{
		s->reconnects++;
		s->timeout_ms = Min(before, timeout); /* see lease.h */
	}
	strlcpy(s->server, server, sizeof(s->server));
	zklock_session_unlock();
	return before;
}

/* What the ensemble made of the timeout that was asked for, or held before. */
static void
warn_of_timeout(bool new, const ZkSessionId *id, const char *server, int timeout, int before)
{
	if (new &&timeout > zklock_session_timeout)
		ereport(WARNING,
				(errmsg("ZooKeeper set the session timeout to %d ms instead of %d ms",
						timeout, zklock_session_timeout),
				 errdetail("It is the least that the ensemble allows.")));
	if (!new &&timeout != before)
		ereport(WARNING,
				(errmsg("ZooKeeper server %s set the timeout of ZooKeeper session 0x%llx to %d ms instead of %d ms",
						server, (unsigned long long) id->id, timeout, before),
				 timeout > before
					 ? errdetail(
						   "The next leader goes back to the shorter one, so zklock goes by that until the ZooKeeper session ends.")
					 : errdetail(
						   "It is the most that this server allows; all servers of the ensemble should allow the same.")));
}

/* It is asked, or closed, no more. */
static void
end_stale(void)
{
	closing_stale = false;
	stale_until = 0;
}

static void
close_stale(const ZkSessionId *id)
{
	ereport(LOG,
			(errmsg("closing ZooKeeper session 0x%llx of this server's previous run",
					(unsigned long long) id->id)));
	end_stale();
	zklock_ensemble_note();

	/*
	 * Connected, so this closes the session, unless the connection breaks
	 * right now.  The file stays, and the next attempt to use it hears
	 * that the session is gone (on_expired).
	 */
	drop_client(true);
	zklock_job_leftruns_forget();
}

/* A line of the library's log. */
static void
log_line(const char *line, int level)
{
	static const char *const level_name[] = {"", "error: ", "warning: ", "", "debug: "};

	ereport(level <= zklock_log_min_messages ? LOG
				: level <= 1				 ? DEBUG1
											 : DEBUG2,
			(errmsg_internal("libzookeeper: %s%s", level_name[level], line)));
}

/*
 * The session of a life before has left runs to be settled.  The jobs hang on it, so it
 * stays until that is done, beside the one that is opened now; but for no longer than it
 * would without us, since all that it has is in the way of others.
 */
static void
keep_stale(const ZkSessionId *id, int timeout)
{
	ereport(LOG,
			(errmsg("keeping ZooKeeper session 0x%llx of this server's previous run until its runs of jobs are settled",
					(unsigned long long) id->id)));
	end_stale();
	zklock_ensemble_note();
	zklock_session_lock(LW_EXCLUSIVE)->before = id->id;
	zklock_session_unlock();
	left = client;
	left_over = false;
	left_until = zklock_clock() + NS_PER_MS * Min(timeout, LONGEST_TIMEOUT_MS);
	client = NULL;
	retry_at = 0;
}

/* That session goes. */
static void
end_left(void)
{
	ereport(LOG,
			(errmsg("closing ZooKeeper session 0x%llx of this server's previous run",
					(unsigned long long) zklock_shared->session.before),
			 zklock_job_leftruns_any()
				 ? errdetail(
					   "Some of its runs of jobs could not be settled. Other servers can run these jobs now.")
				 : 0));
	closing = left;
	close_begun = false;
	left = NULL;
	zklock_job_leftruns_forget();
	close_begin();
}

/* Is it of no use any more?  Settlers that are at their end have settled what they could:
 * the records are read once more. */
static bool
left_ends(ZkLeftRuns runs)
{
	if (runs == ZKLOCK_LEFT_NONE || (runs == ZKLOCK_LEFT_SOME && left_over))
		return true;
	if (!left_over && connected && zklock_shared->session.proven && zklock_job_settled())
	{
		left_over = true;
		(void) zklock_job_leftruns_ask(left);
	}
	return !zklock_job_leftruns_own() || zklock_clock() >= left_until;
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
			left_until = 0;
		else if (message->type == ZKLOCK_MSG_LOG)
			log_line(message->data ? message->data : "", message->level);
		else
			runs = zklock_job_leftruns_look(left, message);
		zklock_client_free_message(message);
	}
	if (left_ends(runs))
		end_left();
}

/* On a connection that is to close a session that was left, and that has told all. */
static void
ask_stale(const ZkSessionId *id)
{
	if (stale_is_over() || !zklock_job_leftruns_ask(client))
		close_stale(id);
}

/* The server is ClickHouse Keeper, which ends sessions while their clients believe in
 * them.  It resumes no session, so this is not the one that we had. */
static void
refuse_keeper(const char *server)
{
	renewed = 0;
	zklock_trouble("%s is ClickHouse Keeper, with which two could hold one lock", server);
	drop_client(false);
	pause_after_refusal(mending ? ZKLOCK_SESSION_WENT_BACK : ZKLOCK_SESSION_CONNECTING);
	zklock_trouble_connecting(zklock_shared->session.last_error);
}

/* Not for the session of all else: to close one that was left, or to mend. */
static bool
connected_apart(const ZkSessionId *id, int timeout)
{
	if (closing_stale)
	{
		if (stale_until == 0)
			stale_until = zklock_clock() + NS_PER_MS * timeout;
		if (!zklock_ensemble_ask_left(client, id->id))
			ask_stale(id);
		return true;
	}
	if (!mending)
		return false;
	connected = true;
	zklock_ensemble_extend(timeout);
	introduce(false);
	return true;
}

/* The lease, and what is asked before all else. */
static void
begin_connection(const ZkMessage *message, bool new, int timeout)
{
	connected = true;
	if (new)
		zklock_lease_new_session(&zklock_shared->session.lease, NS_PER_MS * timeout,
								 message->sent_at);
	else
		zklock_lease_new_connection(&zklock_shared->session.lease, NS_PER_MS * timeout,
									message->sent_at, message->received_at);
	publish_lease();
	if (new)
	{
		introduce(false);
		zklock_security_check(client);
	}
	else
	{
		(void) zklock_client_sync(client, zklock_path_directory(ZKLOCK_KIND_LOCK),
								  &zklock_no_tag);
		introduce(true);
	}
	resuming = false;
}

static void
on_connected(const ZkMessage *message)
{
	ZkSessionId id;
	ZkSessionId known;
	ZkLockEventType event = ZKLOCK_EV_CONNECTED;
	int timeout;
	int before;
	bool new;
	char server[sizeof(zklock_shared->session.server)];
	const char *how = "reconnected";

	damaged = false;
	if (!zklock_client_session(client, &id, &timeout))
		return;
	zklock_client_server(client, server, sizeof(server));
	if (zklock_session_is_of_keeper(&id))
	{
		refuse_keeper(server);
		return;
	}

	/*
	 * No ensemble gives a longer timeout.  A timeout that is too short here does no harm.
	 * And the library computes with the timeout that it is given to resume with.
	 */
	timeout = Max(1, Min(timeout, LONGEST_TIMEOUT_MS));
	if (connected_apart(&id, timeout))
		return;

	before = adopt_session(&id, timeout, server, &known);
	new = known.id != id.id;
	if (new)
		how = "connected";
	else if (resuming)
	{
		how = "session resumed: connected";
		event = ZKLOCK_EV_RESUMED;
	}

	/*
	 * A predecessor that heard of its session's end may not have lived to tell
	 * all entries.  Their grants must be gone before there is a lease again.
	 */
	if (new)
		listener->event(ZKLOCK_EV_SESSION_LOST);
	Assert(!new || !zklock_lease_valid());

	begin_connection(message, new, timeout);

	ereport(LOG,
			(errmsg("%s to ZooKeeper server %s, session 0x%llx, timeout %d ms", how,
					server, (unsigned long long) id.id, timeout),
			 renewed == 0
				 ? 0
				 : errdetail("It takes the place of ZooKeeper session 0x%llx, whose lease has lapsed while it was not needed.",
							 (unsigned long long) renewed)));
	renewed = 0;
	warn_of_timeout(new, &id, server, timeout, before);
	listener->event(event);
	/* at last, and when all is sent: somebody may be waiting for that */
	(void) zklock_client_fd(client);
	if (new)
		zklock_session_file_write(&id);
}

static void
on_disconnected(void)
{
	if (!connected)
		return;
	zklock_ensemble_save_again(true);
	connected = false;
	trying_since = zklock_clock();
	if (mending)
	{
		drop_client(false);
		return;
	}
	/* why it is lost again and again is to be read in last_error all the time */
	if (damaged)
		ereport(LOG, (errmsg("lost connection to ZooKeeper, reconnecting")));
	else
		zklock_trouble("lost connection to ZooKeeper, reconnecting");
	set_state(ZKLOCK_SESSION_RECONNECTING);
	choose_hosts(client, true);
	listener->event(ZKLOCK_EV_DISCONNECTED);
}

/* From here on nobody believes in the session.  Closing the client may take its time. */
static void
give_up_session(void)
{
	connected = resuming = false;
	end_stale();
	forget_session();
}

static void
on_went_back(void)
{
	int timeout = zklock_shared->session.timeout_ms;

	/* what our successor goes by comes before all that may fail */
	give_up_session();
	zklock_trouble_again(false, "ZooKeeper ensemble went back to an earlier state: %s",
						 zklock_ensemble_reason());
	zklock_ensemble_found(timeout);
	show_went_back();
	listener->event(ZKLOCK_EV_SESSION_LOST);
	drop_client(true);
	zklock_session_file_remove();
}

/* As with credentials that are refused: the session is of no use, and the trouble will
 * last. */
static void
on_unknown_base(void)
{
	give_up_session();
	zklock_trouble("%s", zklock_ensemble_reason());
	pause_after_refusal(mending ? ZKLOCK_SESSION_WENT_BACK : ZKLOCK_SESSION_CONNECTING);
	zklock_trouble_connecting(zklock_ensemble_reason());
	listener->event(ZKLOCK_EV_SESSION_LOST);
	drop_client(false);
	zklock_session_file_remove();
}

/* There is no root, since one that was wiped lacks the chroot path, say. */
static void
on_not_mended(const ZkMessage *message)
{
	if (message->rc != ZKLOCK_ZNONODE && message->rc != ZKLOCK_ZCONNECTIONLOSS)
		zklock_trouble_refused(message);
	if (zklock_member_times_missing() >= ZKLOCK_TIMES_MISSING)
		zklock_trouble_connecting(zklock_shared->session.last_error);
	drop_client(false);
}

/* On a connection that is to close a session that was left: has it told all, and are
 * there runs to be settled?  False: the message has served. */
static bool
look_at_stale(const ZkMessage *message)
{
	ZkSessionId id;
	int timeout;

	switch (zklock_ensemble_look_left(message))
	{
		case ZKLOCK_ENSEMBLE_WENT_BACK:
			on_went_back();
			return false;
		case ZKLOCK_ENSEMBLE_ADMITTED:
			(void) zklock_client_session(client, &id, &timeout);
			ask_stale(&id);
			return false;
		default:
			break;
	}
	if (message->tag.kind != ZKLOCK_TAG_LEFTRUNS)
		return true;
	(void) zklock_client_session(client, &id, &timeout);
	switch (zklock_job_leftruns_look(client, message))
	{
		case ZKLOCK_LEFT_NONE:
			close_stale(&id);
			break;
		case ZKLOCK_LEFT_SOME:
			keep_stale(&id, timeout);
			break;
		case ZKLOCK_LEFT_UNKNOWN:
			if (stale_is_over())
				close_stale(&id);
			break;
	}
	return false;
}

/*
 * What is known of the ensemble comes before all else that is made of a message.  False
 * if the client is gone.
 */
static bool
look(const ZkMessage *message)
{
	if (closing_stale)
		return look_at_stale(message);
	if (!connected)
		return true;
	switch (zklock_ensemble_look(client, message))
	{
		case ZKLOCK_ENSEMBLE_NOTHING:
			return true;
		case ZKLOCK_ENSEMBLE_ADMITTED:
			/* after the base was read again, it is still so */
			if (zklock_shared->session.state != ZKLOCK_SESSION_CONNECTED)
				set_state(ZKLOCK_SESSION_CONNECTED);
			zklock_session_lock(LW_EXCLUSIVE)->proven =
				zklock_shared->session.state == ZKLOCK_SESSION_CONNECTED;
			zklock_session_unlock();
			return true;
		case ZKLOCK_ENSEMBLE_WENT_BACK:
			on_went_back();
			return false;
		case ZKLOCK_ENSEMBLE_MENDED:
			show_went_back();
			drop_client(true);
			return false;
		case ZKLOCK_ENSEMBLE_ANEW:
			anew = true;
			return false;
		case ZKLOCK_ENSEMBLE_UNKNOWN:
			on_unknown_base();
			return false;
	}
	return true;
}

static void
on_expired(const ZkMessage *message)
{
	ZkSessionId id = zklock_shared->session.id;
	bool stale = closing_stale;
	ZkEnsembleNews news = ZKLOCK_ENSEMBLE_NOTHING;

	if (stale || id.id != 0)
		news = zklock_ensemble_expired(message->received_at);
	end_stale();
	resuming = false;
	if (!stale)
		zklock_trouble("ZooKeeper session 0x%llx expired", (unsigned long long) id.id);
	if (!stale && id.id != 0)
	{
		zklock_session_lock(LW_EXCLUSIVE)->expiries++;
		zklock_session_unlock();
	}
	if (news == ZKLOCK_ENSEMBLE_WENT_BACK)
	{
		on_went_back();
		return;
	}
	drop_client(true);
	forget_session();
	zklock_session_file_remove();
	if (stale || mending)
		return;
	set_state(ZKLOCK_SESSION_CONNECTING);
	listener->event(ZKLOCK_EV_SESSION_LOST);
}

/*
 * The ensemble does not take our credentials.  The session may live, and waits
 * for its time.
 */
static void
on_auth_failed(void)
{
	bool was_connected = connected && !mending;

	/* the next attempt closes it without them, and so without a word from it */
	if (closing_stale)
	{
		zklock_ensemble_note();
		stale_until = zklock_clock();
	}
	closing_stale = resuming = false;
	zklock_trouble("ZooKeeper refused the credentials in \"%s\"", zklock_auth_file);
	drop_client(false);
	pause_after_refusal(ZKLOCK_SESSION_AUTH_FAILED);
	zklock_trouble_connecting("authentication failed");
	if (was_connected)
		listener->event(ZKLOCK_EV_DISCONNECTED);
}

/* A line of the library's log, which may say what a host answered. */
static void
on_log(const char *line, int level)
{
	log_line(line, level);
	/* what broke a connection that was up is no answer to an attempt */
	if (!connected && arrival == NULL)
		zklock_hosts_heard(line);
}

/* A server has sent what it cannot mean, and its connection is broken for that. */
static void
on_damage(const char *why)
{
	char server[sizeof(zklock_shared->session.server)];

	zklock_client_server(client, server, sizeof(server));
	zklock_hosts_damaged(server, why);
	damaged = true;
}

/* On a connection of the session that we have nothing is asked for a while, so that not
 * all servers that come back ask at once.  After an outage it is the first one of another
 * handle.  True: the message is ours now. */
static bool
keep_arrival(ZkMessage *message)
{
	const ZkSessionShared *s = &zklock_shared->session;
	ZkSessionId id;
	int timeout;

	Assert(arrival == NULL);
	/* what is asked in the new session does not meet what was kept in the old one */
	if (awaited)
	{
		arrival = message;
		arrival_until = message->received_at;
		return true;
	}
	if (mending || closing_stale || !zklock_client_session(client, &id, &timeout) ||
		id.id != s->id.id)
		return false;
	arrival_until = message->received_at +
		zklock_heartbeat_pause(&s->lease, NS_PER_MS * timeout, message->sent_at,
							   message->received_at, pg_prng_uint32(&pg_global_prng_state));
	if (arrival_until <= zklock_clock())
		return false;
	arrival = message;
	return true;
}

static void
arrive(void)
{
	ZkMessage *message = arrival;

	arrival = NULL;
	on_connected(message);
	zklock_client_free_message(message);
}

/* True: it has been kept, else it has served. */
static bool
on_message(ZkMessage *message)
{
	switch (message->type)
	{
		case ZKLOCK_MSG_CONNECTED:
			if (keep_arrival(message))
				return true;
			on_connected(message);
			break;
		case ZKLOCK_MSG_DISCONNECTED:
			if (arrival != NULL)
				trying_since = zklock_clock();
			drop_arrival();
			on_disconnected();
			break;
		case ZKLOCK_MSG_EXPIRED:
			drop_arrival();
			on_expired(message);
			break;
		case ZKLOCK_MSG_AUTH_FAILED:
			drop_arrival();
			on_auth_failed();
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
			if (!mending)
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
zklock_session_receive(void)
{
	ZkMessage *message;

	close_end();
	receive_left();
	if (zklock_hosts_hear() && client == NULL)
		retry_at = 0;
	if (arrival != NULL && !awaited && zklock_clock() >= arrival_until)
		arrive();

	/* not without end: backends have wishes, too */
	for (int i = 0; i < MAX_MESSAGES && client != NULL && !anew &&
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
		if (counted != 0 && connected && !mending)
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
	set_state(ZKLOCK_SESSION_CLOSING);
	if (zklock_shared->session.id.id != 0)
		ereport(LOG,
				(errmsg("closing ZooKeeper session 0x%llx as soon as no lock is held",
						(unsigned long long) zklock_shared->session.id.id)));
}

bool
zklock_session_returning(void)
{
	return client != NULL && !connected && arrival == NULL &&
		(closing_stale || zklock_shared->session.id.id != 0) &&
		zklock_clock() - trying_since < RETURNING_MS * NS_PER_MS;
}

/* Our next start goes on with it. */
static void
leave_left(void)
{
	ZkSessionId id;
	int timeout;

	if (zklock_client_session(left, &id, &timeout))
		zklock_session_file_write(&id);
}

void
zklock_session_close(bool leaves)
{
	/* what cannot be closed may tell our next start something */
	zklock_ensemble_stop(!leaves && (connected || arrival != NULL));
	/* or its kept grants might be in the way of others until it times out */
	close_begin();
	while (closing != NULL)
	{
		close_end();
		pg_usleep(1000L);
	}
	if (leaves && client != NULL)
	{
		ereport(LOG,
				(errmsg("leaving ZooKeeper session 0x%llx to the next run of this server, which settles runs of jobs",
						(unsigned long long) zklock_shared->session.id.id)));
		return;
	}
	if (client != NULL && arrival != NULL)
		arrive();
	if (client != NULL && connected)
	{
		/*
		 * From here on nobody may resume it.  The library does not say whether
		 * the ensemble has heard of the end, so the file stays: our next start
		 * looks.
		 */
		forget_session();
		drop_client(false);
		if (left != NULL)
			leave_left();
	}

	/*
	 * Otherwise the session times out, or our next start closes it.  We do not
	 * wait for a library that cannot reach anybody.
	 */
}
