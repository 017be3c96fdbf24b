/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process of the background worker, around the session.
 *
 * It waits on its latch (backends have changed the table), on the client's descriptor
 * (the ensemble has answered) and on the postmaster's death.
 *
 * The worker must end in the right way:
 *
 *	 the postmaster is gone: leave at once and close nothing, since orphaned
 *	 backends may still commit under their locks; the session times out;
 *	 SIGTERM while the server stops: let the holds end, then close the session,
 *	 so that other servers have our locks at once;
 *	 SIGTERM otherwise (an administrator), settings that take a new client, or an
 *	 ERROR: leave the session to the successor, who resumes it.
 *
 * The process holds interrupts for all its life.  Once SIGTERM has set ProcDiePending,
 * even ereport(LOG) would act on it; in this process the main loop does.
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

#include "agent.h"
#include "answer.h"
#include "barrier_unused.h"
#include "barrier_worker.h"
#include "client.h"
#include "deadlock_worker.h"
#include "dispatch.h"
#include "election_priorities.h"
#include "election_worker.h"
#include "ensemble.h"
#include "grant.h"
#include "job_worker.h"
#include "namesakes.h"
#include "path.h"
#include "queue_puts.h"
#include "queue_takes.h"
#include "session.h"
#include "settings.h"
#include "stat.h"
#include "table.h"
#include "tag.h"
#include "watches.h"
#include "worker.h"

/* A backstop: nothing should depend on it. */
#define LONGEST_SLEEP_MS 1000

/* How long the end of the server may wait for holds and commits, and after that for
 * reports of facts that the ensemble would find out by itself. */
#define STOPPING_MS 60000
#define ABORTED_MS	2000

/* How often the worker checks whether it may end. */
#define STOPPING_LOOK_MS 20

/*
 * A program that ends all processes of a server at once may have signaled the worker
 * before the postmaster.  This is the time that the postmaster may take to say that it
 * stops.
 */
#define STOPS_MS 500

/* If a worker ends sooner than this after its start, its successor does not start at
 * once. */
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

/* A successor is about to start.  It takes over worker_pid and the state, so the worker
 * tells nobody that there is no worker. */
static bool succeeded = false;

/* Withdraw the worker's latch: nobody may wake it any more. */
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
 * Events and messages of the session
 * ------------------------------------------------------------------------
 */

/* The worker calls the agents in this order.  Queues come before locks: there may be so
 * many locks that they leave no room for other requests. */
static const ZkAgent *const agents[] = {
	&zklock_election_agent,
	&zklock_job_agent,
	&zklock_answer_agent,
	&zklock_queue_puts_agent,
	&zklock_queue_takes_agent,
	&zklock_barrier_agent,
	&zklock_lock_agent,
	&zklock_deadlock_agent,
	&zklock_barrier_unused_agent,
	&zklock_namesakes_agent,
	&zklock_election_priorities_agent,
};

/* Does any agent answer yes? */
static bool
any(ZkAgentAsk what)
{
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->ask != NULL && agents[i]->ask(what))
			return true;
	}
	return false;
}

static void
on_session_event(ZkLockEventType type)
{
	/* before anybody asks for one */
	if (type != ZKLOCK_EV_TICK)
		zklock_watches_doubt_all();
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->event != NULL)
			agents[i]->event(type);
	}
}

static void
on_watch(const ZkMessage *message)
{
	char name[ZKLOCK_NAME_MAX + 1];
	ZkWatch watch = {
		.name = name,
		.message = message->type,
		.children = message->type != ZKLOCK_MSG_NODE_CHANGED,
		.data = message->type != ZKLOCK_MSG_CHILDREN_CHANGED,
	};

	if (message->path == NULL || message->path[0] != '/')
		return;
	if (watch.children)
		zklock_watch_fired(message->path, true);
	if (watch.data)
		zklock_watch_fired(message->path, false);
	if (!zklock_parse_path(message->path, &watch.kind, name, &watch.child))
		return;
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->watch != NULL && agents[i]->watch(&watch))
			return;
	}
}

/* Does the tag show that the reply belongs to the agent? */
static bool
is_reply_to(const ZkAgent *agent, uint32 tag)
{
	return agent->tag != NULL ? *agent->tag == tag
							  : tag == ZKLOCK_TAG_NONE || zklock_tag_is_lock_queue(tag);
}

static void
on_session_message(const ZkMessage *message)
{
	if (message->type == ZKLOCK_MSG_NODE_DELETED ||
		message->type == ZKLOCK_MSG_CHILDREN_CHANGED ||
		message->type == ZKLOCK_MSG_NODE_CHANGED)
	{
		on_watch(message);
		return;
	}
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->message != NULL && is_reply_to(agents[i], message->tag.kind))
		{
			agents[i]->message(message);
			Assert(zklock_unlocked());
			return;
		}
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

/* The latch, the postmaster's death, and descriptors. */
#define NFDS	4
#define NEVENTS (2 + NFDS)

/* The events that the main loop waits for.  The descriptor of a new session may have
 * the same number as that of the previous one. */
static WaitEventSet *
wait_set(void)
{
	static WaitEventSet *set = NULL;
	static int opened = -1;
	static int fds[NFDS] = {-1, -1, -1, -1};
	int now[NFDS] = {zklock_session_fd(), zklock_session_closing_fd(),
					 zklock_session_left_fd(), zklock_session_names_fd()};
	MemoryContext context;

	if (set != NULL && opened == zklock_session_opened() &&
		memcmp(fds, now, sizeof(fds)) == 0)
		return set;
	if (set != NULL)
		FreeWaitEventSet(set);
	context = MemoryContextSwitchTo(TopMemoryContext);
	set = zklock_create_wait_event_set(NEVENTS);
	MemoryContextSwitchTo(context);
	opened = zklock_session_opened();
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < NFDS; i++)
	{
		fds[i] = now[i];
		if (fds[i] >= 0)
			AddWaitEventToSet(set, WL_SOCKET_READABLE, fds[i], NULL, NULL);
	}
	return set;
}

static void
start_agents(void)
{
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->tag != NULL)
			*agents[i]->tag = ZKLOCK_TAG_AGENTS + (uint32) i;
	}
}

static void
reload_agents(void)
{
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->reload != NULL)
			agents[i]->reload();
	}
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
		ereport(LOG,
				(errmsg("restarting zklock worker to apply the new value of \"%s\"",
						changed)));
		zklock_shared->session.worker_started = 0; /* no pause: we meant it */
		proc_exit(1);
	}
	reload_agents();
}

/* Act on SIGTERM.  Returns true when the session is to be closed.  If the session is
 * left to a successor, this function does not return; until then work goes on. */
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

/* Time between two checks for need of a session, unless the session rests. */
#define LOOK_NS (50 * NS_PER_MS)

/*
 * Find out whether somebody needs the session.  A proclock shows a backend that holds
 * or waits.  A kept grant needs nothing until a backend takes it, and a candidate that
 * does not lead needs nothing until its turn comes.  A grant that was taken and given
 * back between two checks will probably be needed again.  Puts need no lease, but they
 * need ticks if the ensemble refuses them; so does a look for strays.  A watch that
 * nobody needs any more is removed after some ticks.
 *
 * True: a new session is needed, and begins when all that was asked in this one has its
 * answer.  The agents have to send nothing until then: an item that is marked in this
 * session, say, would be bound to it.
 */
static bool
look_at_need(bool stopping)
{
	static int64 look_at = 0;
	static int64 kept_seen = 0;
	int64 kept;
	int64 now = zklock_clock();
	bool stands = pg_atomic_exchange_u32(&zklock_shared->stands, 0) != 0;
	bool renewable = !stopping && zklock_session_renewable();
	bool wanted;
	bool taken;
	bool bound;

	if (now < look_at && !stands && !renewable && !zklock_session_resting())
		return false;
	look_at = now + LOOK_NS;
	kept = zklock_stat_kept_unlocked();
	taken = kept != kept_seen;
	kept_seen = kept;
	wanted = stands || any(ZKLOCK_AGENT_WANTS);
	bound = any(ZKLOCK_AGENT_BOUND);
	if (wanted && !bound && renewable && !any(ZKLOCK_AGENT_HOLDS))
	{
		if (!zklock_session_answered())
		{
			if (stands)
				pg_atomic_write_u32(&zklock_shared->stands, 1);
			return true;
		}
		zklock_session_renew(zklock_dispatch_contends());
	}
	else if (wanted || taken || bound || stopping || any(ZKLOCK_AGENT_TICKS))
		zklock_session_need();
	return false;
}

/* The server stops: has the worker done everything?  If no hold is left, it has closed
 * its session then. */
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
	if (any(ZKLOCK_AGENT_OWES))
		aborted_until = PG_INT64_MAX;
	else if (aborted_until == PG_INT64_MAX)
		aborted_until = now + ABORTED_MS * NS_PER_MS;
	if (now < Min(until, aborted_until) &&
		(any(ZKLOCK_AGENT_BUSY) || zklock_session_returning()))
		return false;
	/* jobs that sessions have left to us, and that nobody settles any more */
	zklock_session_close(zklock_dispatch_holds() && !zklock_dispatch_sessions_hold());
	return true;
}

/*
 * The server stops: is a session useful that the worker has not opened yet?  It is if
 * the predecessor's session is to be closed, or if committed work is to be reported,
 * for which any session will do.
 */
static bool
needs_session(void)
{
	return zklock_shared->session.id.id != 0 || any(ZKLOCK_AGENT_OWES);
}

static void
stop_agents(void)
{
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		if (agents[i]->stop != NULL)
			agents[i]->stop();
	}
}

/* Call the agents.  Returns the ms until the next call, "timeout" at most. */
static long
call_agents(long timeout)
{
	for (size_t i = 0; i < lengthof(agents); i++)
	{
		long due = agents[i]->work != NULL ? agents[i]->work() : -1;

		if (due >= 0)
			timeout = Min(timeout, due);
	}
	return timeout;
}

/* Act on signals.  "stopping_until": not 0 once the server stops. */
static void
obey_signals(int64 *stopping_until)
{
	if (*stopping_until != 0)
		return;
	if (ProcDiePending && begin_exit())
	{
		zklock_session_set_stopping();
		stop_agents();
		*stopping_until = zklock_clock() + STOPPING_MS * NS_PER_MS;
	}
	else if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		reload();
	}
}

/* Wait, for so many ms at most.  False: no descriptor has anything for the worker.  True
 * where that is not known, too: the wait does not look at the descriptors if the latch is
 * set already; and when the time is up, as a backstop. */
static bool
wait_for_work(long timeout)
{
	WaitEvent events[NEVENTS];
	WaitEventSet *set = wait_set();
	bool came = MyLatch->is_set;
	int n = WaitEventSetWait(set, timeout, events, lengthof(events),
							 zklock_wait_event(&wait_event_main, "ZkLockWorker"));

	for (int i = 0; i < n; i++)
	{
		if (events[i].events & WL_POSTMASTER_DEATH)
			_exit(1);
		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		else
			came = true;
	}
	return came || n == 0;
}

/* Do all work that there is now.  Returns the ms until there may be more. */
static long
work(bool stopping, bool came)
{
	long timeout = LONGEST_SLEEP_MS;
	long due;

	if (!stopping || needs_session())
		zklock_session_open();
	zklock_session_receive(came);
	if (!stopping && (zklock_session_stuck() || zklock_session_worn()))
	{
		succeeded = true;
		proc_exit(1);
	}
	due = zklock_grant_sweep();
	if (due >= 0)
		timeout = Min(timeout, due);
	if (!look_at_need(stopping))
		timeout = call_agents(timeout);
	due = zklock_session_heartbeat();
	if (due >= 0)
		timeout = Min(timeout, due);
	due = zklock_session_retry_in();
	if (due >= 0 && !stopping)
		timeout = Min(timeout, due);
	return timeout;
}

void
zklock_worker_main(Datum arg)
{
	int64 stopping_until = 0;
	MemoryContext context;
	bool came = true;

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
	start_agents();
	zklock_session_set_listener(&session_listener);
	zklock_ensemble_start();
	reload_agents();

	for (;;)
	{
		long timeout;

		MemoryContextReset(context);
		obey_signals(&stopping_until);
		timeout = work(stopping_until != 0, came);
		if (stopping_until != 0 && may_end(stopping_until))
			proc_exit(0);
		if (ProcDiePending)
			timeout = Min(timeout, STOPPING_LOOK_MS);
		zklock_session_count_requests();
		came = wait_for_work(timeout);
	}
}
