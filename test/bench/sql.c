/*-------------------------------------------------------------------------
 *
 * sql.c
 *	  How a lock passes between PostgreSQL sessions, timed in their client.
 *
 *		sql CONNINFO_A CONNINFO_B
 *
 * reads orders from standard input and answers each with one line.  SQL takes a
 * lock for the transaction.
 *
 *		wait COUNT SQL		one has it, the other waits, all is quiet: from sending
 *							the holder's COMMIT to the waiter's answer.  A and B
 *							change places each time.  Answer: how many times, and
 *							the median in microseconds
 *		acquire COUNT SQL	a transaction of A takes it, all is quiet: the time of the
 *							statement alone.  The same answer
 *		turns COUNT SQL		nobody waits: one transaction that takes the lock, on
 *							A, then on B, then on A; the time of each.  The same
 *							answer
 *		cycles COUNT SQL	so many transactions of A, one after the other: the time of
 *							each.  The same answer
 *		steps COUNT SQL		how many instructions A's backend executes in user space
 *							from one answer to the next, again and again.  The same
 *							answer
 *		fill COUNT SQL		a session of A holds the lock, and so many others of A
 *							queue for it
 *		drain				let it go; how many milliseconds from sending COMMIT
 *							until the last of them has had it
 *
 *-------------------------------------------------------------------------
 */
#include <libpq-fe.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static const char *conninfo[2];
static PGconn *conn[2];
static PGconn *monitor[2];

/* of fill and drain */
static PGconn **waiters;
static int nwaiters;

static void *
allocate(int n, size_t size)
{
	void *memory = calloc((size_t) n, size);

	if (memory == NULL)
		fatal("out of memory");
	return memory;
}

/* ---------------------------------------------------------------------
 * Statements
 * ---------------------------------------------------------------------
 */
static void
start(PGconn *session, const char *sql)
{
	if (!PQsendQuery(session, sql))
		fatal("%s", PQerrorMessage(session));
}

/* Wait for the answer to what was sent; a single number in it, or 0. */
static int
finish(PGconn *session)
{
	PGresult *result;
	int value = 0;

	while ((result = PQgetResult(session)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			fatal("%s", PQerrorMessage(session));
		if (PQntuples(result) == 1)
			value = atoi(PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return value;
}

static int
execute(PGconn *session, const char *sql)
{
	start(session, sql);
	return finish(session);
}

static void
start_lock(PGconn *session)
{
	if (!PQsendQueryPrepared(session, "lock", 0, NULL, NULL, NULL, 0))
		fatal("%s", PQerrorMessage(session));
}

static void
lock(PGconn *session)
{
	start_lock(session);
	finish(session);
}

static void
prepare(PGconn *session, const char *sql)
{
	execute(session, "DEALLOCATE ALL");
	PQclear(PQprepare(session, "lock", sql, 0, NULL));
}

static PGconn *
connect_server(int which)
{
	PGconn *session = PQconnectdb(conninfo[which]);

	if (PQstatus(session) != CONNECTION_OK)
		fatal("%s", PQerrorMessage(session));
	return session;
}

/* Until a query says so many. */
static void
wait_until(PGconn *session, const char *sql, int count)
{
	for (int i = 0; execute(session, sql) != count; i++)
	{
		if (i == 30000)
			fatal("waited in vain until %d is the answer to %s", count, sql);
		usleep(1000);
	}
}

/* ---------------------------------------------------------------------
 * Orders
 * ---------------------------------------------------------------------
 */

/* "from" has the lock and lets it go, "to" waits for it. */
static double
pass_on(int from, int to)
{
	double sent;
	double answered;

	execute(conn[to], "BEGIN");
	start_lock(conn[to]);
	/* One is in the queue, the other one knows, and neither has more to ask. */
	wait_until(monitor[to],
			   "SELECT count(*) FROM zk_locks l, zk_contenders(l.name) WHERE NOT l.granted",
			   2);
	wait_until(monitor[from], "SELECT count(*) FROM zk_locks WHERE grant_state = 'held'",
			   0);
	for (int i = 0; i < 2; i++)
		wait_until(monitor[i], "SELECT in_flight FROM zk_session", 0);
	usleep(IDLE_US);
	sent = now_us();
	start(conn[from], "COMMIT");
	finish(conn[to]);
	answered = now_us();
	finish(conn[from]);
	return answered - sent;
}

static double
timed_lock(PGconn *session)
{
	double begun = now_us();

	lock(session);
	return now_us() - begun;
}

/* Nobody has the lock, and nothing of it is under way. */
static double
acquire(PGconn *session)
{
	double took;

	execute(session, "BEGIN");
	wait_until(monitor[0], "SELECT in_flight FROM zk_session", 0);
	usleep(IDLE_US);
	took = timed_lock(session);
	execute(session, "COMMIT");
	return took;
}

static void
alternate(bool waits, int count, const char *sql)
{
	double *times = allocate(count, sizeof(double));

	for (int i = 0; i < 2; i++)
	{
		prepare(conn[i], sql);
		lock(conn[i]);
	}
	if (waits)
	{
		execute(conn[1], "BEGIN");
		lock(conn[1]);
	}
	for (int i = 0; i < count; i++)
	{
		int to = i % 2;

		times[i] = waits ? pass_on(1 - to, to) : timed_lock(conn[to]);
	}
	if (waits)
		execute(conn[(count - 1) % 2], "COMMIT");
	answer(times, (size_t) count);
	free(times);
}

/* So many times, one after the other. */
static void
often(int count, const char *sql, double (*once)(PGconn *session))
{
	double *times = allocate(count, sizeof(double));

	prepare(conn[0], sql);
	for (int i = 0; i < count; i++)
		times[i] = once(conn[0]);
	answer(times, (size_t) count);
	free(times);
}

/* Do that with the process, which the kernel has stopped; a signal to be delivered. */
static void
trace(enum __ptrace_request what, pid_t pid, int signal)
{
	if (ptrace(what, pid, NULL, (void *) (intptr_t) signal) != 0)
		fatal("could not trace process %d: %s", (int) pid, strerror(errno));
}

/* Until the kernel has stopped the process; returns by which signal. */
static int
await_stop(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
		fatal("process %d is gone", (int) pid);
	return WSTOPSIG(status);
}

/* From here to there and back on another CPU would take most of the time. */
static void
share_cpu(pid_t pid)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0 ||
		sched_setaffinity(pid, sizeof(one), &one) != 0)
		fatal("could not bind process %d to one CPU: %s", (int) pid, strerror(errno));
}

/*
 * One at a time.  The backend's timers are held back: they go off twice a second, and
 * here so in each transaction, since that takes a good part of a second.
 */
static void
count_steps(int count, const char *sql)
{
	double *steps = allocate(count, sizeof(double));
	pid_t pid = PQbackendPID(conn[0]);
	cpu_set_t cpus;
	int alarm = 0;
	int signal = 0;

	prepare(conn[0], sql);
	for (int i = 0; i < 1000; i++)
		lock(conn[0]); /* plans are cached, and so is all else */
	sched_getaffinity(0, sizeof(cpus), &cpus);
	share_cpu(pid);
	trace(PTRACE_ATTACH, pid, 0);
	await_stop(pid);
	for (int i = -1; i < count; i++) /* the first one begins elsewhere */
	{
		struct pollfd answered = {.fd = PQsocket(conn[0]), .events = POLLIN};
		double n = 0;

		start_lock(conn[0]);
		while (poll(&answered, 1, 0) == 0)
		{
			trace(PTRACE_SINGLESTEP, pid, signal);
			signal = await_stop(pid);
			if (signal == SIGTRAP)
				n++;
			else if (signal == SIGALRM)
				alarm = signal;
			if (signal == SIGTRAP || signal == SIGALRM)
				signal = 0;
		}
		finish(conn[0]);
		if (i >= 0)
			steps[i] = n;
	}
	trace(PTRACE_DETACH, pid, alarm);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sched_setaffinity(pid, sizeof(cpus), &cpus);
	answer(steps, (size_t) count);
	free(steps);
}

static void
fill(int count, const char *sql)
{
	execute(conn[0], "BEGIN");
	prepare(conn[0], sql);
	lock(conn[0]);
	waiters = allocate(count, sizeof(PGconn *));
	nwaiters = count;
	for (int i = 0; i < count; i++)
	{
		waiters[i] = connect_server(0);
		prepare(waiters[i], sql);
	}
	for (int i = 0; i < count; i++)
		start_lock(waiters[i]);
	wait_until(monitor[0],
			   "SELECT count(*) FROM pg_stat_activity"
			   " WHERE state = 'active' AND wait_event_type IN ('Lock', 'Extension')",
			   count);
	printf("ok\n");
}

static void
drain(void)
{
	int epoll = epoll_create1(0);
	double begun;
	double ended;

	for (int i = 0; i < nwaiters; i++)
	{
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = waiters[i]};

		epoll_ctl(epoll, EPOLL_CTL_ADD, PQsocket(waiters[i]), &event);
	}
	begun = now_us();
	execute(conn[0], "COMMIT");
	for (int left = nwaiters; left > 0;)
	{
		struct epoll_event event;

		if (epoll_wait(epoll, &event, 1, 60000) != 1)
			fatal("waiters are left");
		finish(event.data.ptr);
		epoll_ctl(epoll, EPOLL_CTL_DEL, PQsocket(event.data.ptr), NULL);
		left--;
	}
	ended = now_us();
	close(epoll);
	for (int i = 0; i < nwaiters; i++)
		PQfinish(waiters[i]);
	free(waiters);
	/* The next who is measured shall not share the machine with their exits. */
	wait_until(monitor[0],
			   "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sql'", 2);
	printf("%.1f\n", (ended - begun) / 1e3);
}

int
main(int argc, char **argv)
{
	char line[1000];

	if (argc != 3)
		fatal("usage: sql CONNINFO_A CONNINFO_B");
	setenv("PGAPPNAME", "sql", 1);
	for (int i = 0; i < 2; i++)
	{
		conninfo[i] = argv[1 + i];
		conn[i] = connect_server(i);
		monitor[i] = connect_server(i);
	}
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		char order[20];
		int count = 0;
		int sql = 0;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%19s %d %n", order, &count, &sql) < 1)
			fatal("no order");
		if (strcmp(order, "drain") == 0)
			drain();
		else if (count < 1 || sql == 0)
			fatal("unknown order: %s", line);
		else if (strcmp(order, "fill") == 0)
			fill(count, line + sql);
		else if (strcmp(order, "acquire") == 0)
			often(count, line + sql, acquire);
		else if (strcmp(order, "cycles") == 0)
			often(count, line + sql, timed_lock);
		else if (strcmp(order, "steps") == 0)
			count_steps(count, line + sql);
		else
			alternate(strcmp(order, "wait") == 0, count, line + sql);
		fflush(stdout);
	}
	return 0;
}
