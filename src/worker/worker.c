/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker: the process around the session.
 *
 * It waits on its latch (backends changed the table), on the client's
 * descriptor (the ensemble answered) and on the postmaster's death.
 *
 * How it ends matters more than how it runs:
 *
 *	 the postmaster is gone: leave at once and close nothing, since orphaned
 *	 backends may still commit under their locks; the session times out;
 *	 SIGTERM while the server stops: let the holds end, then close the session,
 *	 so that other servers have our locks at once;
 *	 SIGTERM otherwise (an administrator), settings that take a new client, or an
 *	 ERROR: leave the session to the successor, who resumes it.
 *
 * Interrupts are held for the whole life of the process.  Once SIGTERM has set
 * ProcDiePending, even ereport(LOG) would act on it; here the main loop does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <fcntl.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "utils/ps_status.h"

#include "answer.h"
#include "client.h"
#include "dispatch.h"
#include "ensemble.h"
#include "grant.h"
#include "leadership.h"
#include "namesakes.h"
#include "parties.h"
#include "puts.h"
#include "rings.h"
#include "rounds.h"
#include "session.h"
#include "settle.h"
#include "settings.h"
#include "stat.h"
#include "table.h"
#include "tag.h"
#include "takes.h"
#include "unused.h"
#include "work.h"
#include "worker.h"

/* A backstop: nothing should depend on it. */
#define LONGEST_SLEEP_MS 1000

/* How long the end of the server may wait for holds and commits, and after that for what
 * the ensemble finds out by itself. */
#define STOPPING_MS 60000
#define ABORTED_MS	2000

/* Whoever ends all processes of a server at once may have come to us before the
 * postmaster: how long it may take that to say that it stops. */
#define STOPS_MS 500

/* A worker that ends sooner than this after its start had better not be
 * followed at once. */
#define RESTART_PAUSE_MS 1000

static uint32 wait_event_main = 0;

void
zklock_worker_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 0;
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, ZKLOCK_WORKER_MAIN, sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "zklock worker", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "zklock worker", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

/* Is the server on its way down?  The postmaster says so in its lock file. */
static bool
server_stopping(void)
{
	char buf[1024];
	int fd = OpenTransientFile("postmaster.pid", O_RDONLY);
	ssize_t n;
	char *line = buf;

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	CloseTransientFile(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	for (int i = 1; i < LOCK_FILE_LINE_PM_STATUS; i++)
	{
		line = strchr(line, '\n');
		if (line == NULL)
			return false;
		line++;
	}
	return strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

/* A successor is about to start, and takes over worker_pid and the state: nobody
 * need be told that there is no worker. */
static bool succeeded = false;

/* Nobody shall wake us any more. */
static void
withdraw(int code, Datum arg)
{
	ZkSessionShared *s;

	/* after an ERROR we may hold one */
	LWLockReleaseAll();

	SpinLockAcquire(&zklock_shared->mutex);
	zklock_shared->worker_latch = NULL;
	SpinLockRelease(&zklock_shared->mutex);

	pg_atomic_write_u32(&zklock_shared->in_flight, 0);
	if (succeeded)
		return;
	s = zklock_session_lock(LW_EXCLUSIVE);
	s->worker_pid = 0;
	if (s->state == ZKLOCK_SESSION_CONNECTED && s->proven)
		s->not_connected_since = zklock_clock();
	s->proven = false;
	if (s->state != ZKLOCK_SESSION_CLOSING)
		s->state = ZKLOCK_SESSION_STARTING;
	zklock_session_unlock();
}

static void
publish(void)
{
	ZkSessionShared *s = zklock_session_lock(LW_EXCLUSIVE);
	int64 now = zklock_clock();
	int64 pause = s->worker_started + RESTART_PAUSE_MS * NS_PER_MS - now;
	char library[sizeof(s->library)];

	s->worker_pid = MyProcPid;
	zklock_session_unlock();
	before_shmem_exit(withdraw, 0);

	SpinLockAcquire(&zklock_shared->mutex);
	zklock_shared->worker_latch = MyLatch;
	SpinLockRelease(&zklock_shared->mutex);

	/* The predecessor did not live long. */
	while (zklock_shared->session.worker_started != 0 && pause > 0 && !ProcDiePending)
	{
		int rc = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH,
						   (long) (pause / NS_PER_MS + 1),
						   zklock_wait_event(&wait_event_main, "ZkLockWorker"));

		if (rc & WL_POSTMASTER_DEATH)
			_exit(1);
		ResetLatch(MyLatch);
		pause -= zklock_clock() - now;
		now = zklock_clock();
	}

	/* The library asks the name service before it says its version, which may take long: a
	 * successor, who has a session to resume, goes by what its predecessor has heard. */
	strlcpy(library, zklock_shared->session.library, sizeof(library));
	if (library[0] == '\0')
		strlcpy(library, zklock_client_library(), sizeof(library));
	s = zklock_session_lock(LW_EXCLUSIVE);
	s->worker_started = zklock_clock();
	strlcpy(s->library, library, sizeof(s->library));
	zklock_session_unlock();
	ereport(LOG, (errmsg("zklock %s worker started with %s", ZKLOCK_VERSION, library)));
}

/* ------------------------------------------------------------------------
 * What the session has to say
 * ------------------------------------------------------------------------
 */

static void
on_session_event(ZkLockEventType type)
{
	if (type == ZKLOCK_EV_CONNECTED || type == ZKLOCK_EV_RESUMED)
	{
		zklock_unused_start();
		zklock_namesakes_start();
	}
	zklock_dispatch_all(type);
	zklock_rings_event(type);
	zklock_rounds_event(type);
	zklock_takes_event(type);
	zklock_puts_event(type);
	if (type == ZKLOCK_EV_TICK)
	{
		zklock_unused_work();
		zklock_namesakes_work();
	}
}

static void
on_session_message(const ZkMessage *message)
{
	if (message->tag.kind == ZKLOCK_TAG_ANSWER)
		zklock_answer_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_UNUSED)
		zklock_unused_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_NAMESAKES)
		zklock_namesakes_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_RINGS)
		zklock_rings_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_ROUNDS)
		zklock_rounds_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_TAKES)
		zklock_takes_message(message);
	else if (message->tag.kind == ZKLOCK_TAG_PUTS)
		zklock_puts_message(message);
	else if (message->tag.kind != ZKLOCK_TAG_ENSEMBLE)
	{
		if (message->type == ZKLOCK_MSG_NODE_DELETED ||
			message->type == ZKLOCK_MSG_CHILDREN_CHANGED)
			zklock_takes_watch(message);
		zklock_dispatch_message(message);
	}
}

static const ZkSessionListener session_listener = {
	.event = on_session_event,
	.message = on_session_message,
};

/* ------------------------------------------------------------------------
 * The process
 * ------------------------------------------------------------------------
 */

/* What the main loop waits for.  The descriptor of another session may have the number of
 * the last one's. */
static WaitEventSet *
wait_set(void)
{
	static WaitEventSet *set = NULL;
	static int opened = -1;
	static int fds[4] = {-1, -1, -1, -1};
	int now[4] = {zklock_session_fd(), zklock_session_closing_fd(),
				  zklock_session_left_fd(), zklock_session_names_fd()};
	MemoryContext context;

	if (set != NULL && opened == zklock_session_opened() &&
		memcmp(fds, now, sizeof(fds)) == 0)
		return set;
	if (set != NULL)
		FreeWaitEventSet(set);
	context = MemoryContextSwitchTo(TopMemoryContext);
	set = zklock_create_wait_event_set(6);
	MemoryContextSwitchTo(context);
	opened = zklock_session_opened();
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < 4; i++)
	{
		fds[i] = now[i];
		if (fds[i] >= 0)
			AddWaitEventToSet(set, WL_SOCKET_READABLE, fds[i], NULL, NULL);
	}
	return set;
}

static void
reload(void)
{
	char *root = pstrdup(zklock_root);
	int timeout = zklock_session_timeout;
	const char *changed;

	ProcessConfigFile(PGC_SIGHUP);
	if (strcmp(root, zklock_root) != 0)
		zklock_session_keeps("zklock.root");
	if (timeout != zklock_session_timeout)
		zklock_session_keeps("zklock.session_timeout");
	pfree(root);
	changed = zklock_session_reload();
	if (changed != NULL)
	{
		/*
		 * The library cannot change its servers safely (ZOOKEEPER-4699), and
		 * cannot take credentials back.  Our successor resumes the session by the
		 * new connect string or with the new credentials.
		 */
		ereport(LOG, (errmsg("restarting to apply the new value of \"%s\"", changed)));
		zklock_shared->session.worker_started = 0; /* no pause: we meant it */
		proc_exit(1);
	}
	zklock_leadership_enter_listed();
}

/*
 * SIGTERM.  True when the session is to be closed.  When it is left to a successor this
 * does not return; until then work goes on.
 */
static bool
begin_exit(void)
{
	static int64 leave_at = 0;

	if (server_stopping())
		return true;
	if (leave_at == 0)
		leave_at = zklock_clock() + STOPS_MS * NS_PER_MS;
	if (zklock_clock() < leave_at)
		return false;
	ereport(LOG,
			(errmsg(
				"zklock worker terminated, leaving its ZooKeeper session to its successor")));
	proc_exit(1);
}

/* Between two looks at what there is need of, unless the session rests. */
#define LOOK_NS (50 * NS_PER_MS)

/*
 * A proclock is somebody who holds or waits.  Kept grants, and candidates who do not
 * lead, need nothing before they are taken, or their turn comes; those that were taken
 * and given back between two looks are needed again, as likely as not.  Puts need no
 * lease, but ticks, if the ensemble refuses them; so does a look for strays.  What is
 * watched in vain is no longer after some ticks.
 */
static void
look_at_need(bool stopping)
{
	static int64 look_at = 0;
	static int64 kept_seen = 0;
	int64 kept;
	int64 now = zklock_clock();
	bool stands = pg_atomic_exchange_u32(&zklock_shared->stands, 0) != 0;
	bool wanted;
	bool taken;
	bool bound;

	if (now < look_at && !stands && !zklock_session_resting())
		return;
	look_at = now + LOOK_NS;
	kept = zklock_stat_kept_unlocked();
	taken = kept != kept_seen;
	kept_seen = kept;
	wanted = stands || zklock_shared->proclocks_used > 0 || zklock_work->takes_used > 0;
	bound = zklock_leadership_leads() || zklock_parties_used() > 0;
	if (wanted && !bound && !stopping && zklock_session_renewable() &&
		!zklock_dispatch_holds() && !zklock_work_has_items())
		zklock_session_renew(zklock_dispatch_contends());
	else if (wanted || taken || bound || stopping || zklock_work_busy() ||
			 zklock_puts_looking() || zklock_dispatch_wants_tick() ||
			 zklock_rounds_wants_tick() || zklock_takes_wants_tick())
		zklock_session_need();
}

/* The server stops: has the worker done what there is to do?  It has closed its session
 * then if no hold is left. */
static bool
may_end(int64 until)
{
	static int64 aborted_until = PG_INT64_MAX;
	int64 now = zklock_clock();

	if (zklock_dispatch_sessions_hold())
	{
		aborted_until = PG_INT64_MAX;
		return now > until;
	}
	if (zklock_work_owed())
		aborted_until = PG_INT64_MAX;
	else if (aborted_until == PG_INT64_MAX)
		aborted_until = now + ABORTED_MS * NS_PER_MS;
	if (now < Min(until, aborted_until) &&
		(zklock_dispatch_holds() || zklock_work_busy() || zklock_session_returning()))
		return false;
	/* jobs that sessions have left to us, and that nobody settles any more */
	zklock_session_close(zklock_dispatch_holds() && !zklock_dispatch_sessions_hold());
	return true;
}

/* The server stops: is a session that we have not opened yet of use?  Our predecessor's
 * is to be closed, and what has committed can be told in any. */
static bool
needs_session(void)
{
	return zklock_shared->session.id.id != 0 || zklock_work_owed();
}

static void
hand_out_work(void)
{
	bool wanted = pg_atomic_exchange_u32(&zklock_work->wanted, 0) != 0;

	zklock_settle_work();
	zklock_answer_work();
	zklock_puts_work(wanted);
	zklock_takes_work(wanted);
}

void
zklock_worker_main(Datum arg)
{
	int64 stopping_until = 0;
	MemoryContext context;

	HOLD_INTERRUPTS();
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* a reload since we were forked is lost: BackgroundWorkerMain ignores SIGHUP first */
	ProcessConfigFile(PGC_SIGHUP);
	BackgroundWorkerUnblockSignals();

	publish();
	context =
		AllocSetContextCreate(TopMemoryContext, "zklock worker", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	zklock_session_set_listener(&session_listener);
	zklock_ensemble_start();
	zklock_leadership_enter_listed();

	for (;;)
	{
		WaitEvent event;
		long timeout = LONGEST_SLEEP_MS;
		long retry;
		long due;
		int n;

		MemoryContextReset(context);

		if (ProcDiePending && stopping_until == 0 && begin_exit())
		{
			zklock_session_set_stopping();
			zklock_leadership_set_stopping();
			stopping_until = zklock_clock() + STOPPING_MS * NS_PER_MS;
		}
		if (ConfigReloadPending && stopping_until == 0)
		{
			ConfigReloadPending = false;
			reload();
		}

		if (stopping_until == 0 || needs_session())
			zklock_session_open();
		zklock_session_receive();
		if (stopping_until == 0 && (zklock_session_stuck() || zklock_session_worn()))
		{
			succeeded = true;
			proc_exit(1);
		}
		due = zklock_grant_sweep();
		if (due >= 0)
			timeout = Min(timeout, due);
		timeout = Min(timeout, zklock_leadership_work());
		look_at_need(stopping_until != 0);
		hand_out_work();
		zklock_dispatch_dirty();
		zklock_dispatch_sets();
		zklock_rounds_work();
		due = zklock_rings_work();
		if (due >= 0)
			timeout = Min(timeout, due);
		due = zklock_session_heartbeat();
		if (due >= 0)
			timeout = Min(timeout, due);

		if (stopping_until != 0)
		{
			if (may_end(stopping_until))
				proc_exit(0);
			timeout = 20;
		}
		else if (ProcDiePending)
			timeout = Min(timeout, 20);

		retry = zklock_session_retry_in();
		if (retry >= 0 && stopping_until == 0)
			timeout = Min(timeout, retry);

		zklock_session_count_requests();
		n = WaitEventSetWait(wait_set(), timeout, &event, 1,
							 zklock_wait_event(&wait_event_main, "ZkLockWorker"));
		if (n > 0 && (event.events & WL_POSTMASTER_DEATH))
			_exit(1);
		if (n > 0 && (event.events & WL_LATCH_SET))
			ResetLatch(MyLatch);
	}
}
