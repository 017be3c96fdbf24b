/*-------------------------------------------------------------------------
 *
 * latency.c
 *	  How long a lock takes, beside what it is made of.
 *
 * Measures an ensemble's writes through client.c, zk_lock on server A, the
 * hand-over of a lock from server A to server B, and pg_advisory_xact_lock on
 * server A.  All are times as a client of PostgreSQL sees them, in
 * milliseconds.  A part whose servers are not given is left out.
 *
 * The names are new in each run, so nothing is cached at its start.
 *
 *-------------------------------------------------------------------------
 */
#include "client.h"

#include <errno.h>
#include <getopt.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SESSION_TIMEOUT 10000 /* ms */
#define PATIENCE		60000 /* ms until we give up on an answer */
#define SETTLE                                                                           \
	20 /* ms from a wait seen to a wait in the                                           \
		* ensemble's queue */

#define LOCK_SQL	 "SELECT zk_lock($1)"
#define ADVISORY_SQL "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

typedef struct Samples
{
	double *ms;
	int n;
} Samples;

static int count = 200;
static int width = 100; /* backends at once */
static char run[64];	/* prefix of this run's names */

static void __attribute__((noreturn, format(printf, 1, 2))) fatal(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "latency: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

static double
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e3 + (double) ts.tv_nsec / 1e6;
}

/* ---------------------------------------------------------------------
 * The table
 * ---------------------------------------------------------------------
 */
static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return (x > y) - (x < y);
}

static Samples
new_samples(void)
{
	Samples samples = {calloc((size_t) count, sizeof(double)), 0};

	if (samples.ms == NULL)
		fatal("out of memory");
	return samples;
}

static void
add(Samples *samples, double ms)
{
	samples->ms[samples->n++] = ms;
}

/* Nearest rank. */
static double
percentile(const Samples *samples, int percent)
{
	int rank = (samples->n * percent + 99) / 100;

	return samples->ms[rank > 0 ? rank - 1 : 0];
}

static void
print_head(void)
{
	printf("%-52s %7s %10s %10s %10s\n", "", "n", "p50 ms", "p99 ms", "max ms");
}

static void
print_samples(const char *what, Samples *samples)
{
	qsort(samples->ms, (size_t) samples->n, sizeof(double), compare_doubles);
	printf("%-52s %7d %10.3f %10.3f %10.3f\n", what, samples->n, percentile(samples, 50),
		   percentile(samples, 99), samples->ms[samples->n - 1]);
	fflush(stdout);
	free(samples->ms);
}

static void
print_total(const char *what, int n, double ms)
{
	printf("%-52s %7d %10.3f in all\n", what, n, ms);
	fflush(stdout);
}

/* ---------------------------------------------------------------------
 * ZooKeeper
 * ---------------------------------------------------------------------
 */

/* The next message that is no log line. */
static ZkMessage *
next_message(ZkClient *client)
{
	double end = now_ms() + PATIENCE;

	for (;;)
	{
		ZkMessage *message = zklock_client_receive(client);
		struct pollfd fd = {zklock_client_fd(client), POLLIN, 0};

		if (message != NULL && message->type != ZKLOCK_MSG_LOG)
			return message;
		if (message != NULL)
		{
			if (message->level == 1)
				fprintf(stderr, "latency: %s\n", message->data);
			zklock_client_free_message(message);
			continue;
		}
		if (now_ms() > end)
			fatal("no answer from ZooKeeper");
		poll(&fd, 1, 1000);
	}
}

static void
expect(ZkClient *client, ZkMessageType type)
{
	ZkMessage *message = next_message(client);

	if (message->type != type || message->rc != ZKLOCK_ZOK)
		fatal("ZooKeeper: message %d instead of %d: %s", message->type, type,
			  zklock_client_strerror(message->rc));
	zklock_client_free_message(message);
}

static void
bench_writes(const char *hosts)
{
	char error[300];
	char path[80];
	ZkRequestTag tag = {.kind = 1};
	ZkClient *client =
		zklock_client_open(hosts, SESSION_TIMEOUT, NULL, error, sizeof(error));
	Samples writes = new_samples();

	if (client == NULL)
		fatal("%s", error);
	expect(client, ZKLOCK_MSG_CONNECTED);
	snprintf(path, sizeof(path), "/%s", run);
	if (zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &tag) !=
		ZKLOCK_ZOK)
		fatal("cannot create %s", path);
	expect(client, ZKLOCK_MSG_CREATED);

	for (int i = 0; i < count; i++)
	{
		double start = now_ms();

		if (zklock_client_set(client, path, "beat", 4, &tag) != ZKLOCK_ZOK)
			fatal("cannot write %s", path);
		expect(client, ZKLOCK_MSG_SET);
		add(&writes, now_ms() - start);
	}
	print_samples("ZooKeeper write (setData)", &writes);
	zklock_client_close(client);
}

/* ---------------------------------------------------------------------
 * PostgreSQL
 * ---------------------------------------------------------------------
 */
static PGconn *
connect_server(const char *conninfo)
{
	PGconn *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		fatal("%s", PQerrorMessage(conn));
	return conn;
}

static void
check_result(PGconn *conn, PGresult *result, const char *what)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		fatal("%s: %s", what, PQerrorMessage(conn));
	PQclear(result);
}

static void
execute(PGconn *conn, const char *sql)
{
	check_result(conn, PQexec(conn, sql), sql);
}

static void
prepare(PGconn *conn, const char *sql)
{
	check_result(conn, PQprepare(conn, "ask", sql, 0, NULL), sql);
}

/* Run the prepared statement. */
static void
ask(PGconn *conn, const char *name)
{
	check_result(conn, PQexecPrepared(conn, "ask", 1, &name, NULL, NULL, 0), name);
}

static void
flush_out(PGconn *conn)
{
	int left;

	while ((left = PQflush(conn)) > 0)
	{
		struct pollfd fd = {PQsocket(conn), POLLOUT, 0};

		poll(&fd, 1, 1000);
	}
	if (left < 0)
		fatal("%s", PQerrorMessage(conn));
}

/* Send the prepared statement and do not wait. */
static void
send_ask(PGconn *conn, const char *name)
{
	if (!PQsendQueryPrepared(conn, "ask", 1, &name, NULL, NULL, 0))
		fatal("%s", PQerrorMessage(conn));
	flush_out(conn);
}

static void
send_sql(PGconn *conn, const char *sql)
{
	if (!PQsendQuery(conn, sql))
		fatal("%s", PQerrorMessage(conn));
	flush_out(conn);
}

/* Wait for the answer to what was sent. */
static void
finish(PGconn *conn, const char *what)
{
	double end = now_ms() + PATIENCE;
	PGresult *result;

	while (PQisBusy(conn))
	{
		struct pollfd fd = {PQsocket(conn), POLLIN, 0};

		if (now_ms() > end)
			fatal("%s: no answer", what);
		poll(&fd, 1, 1000);
		if (!PQconsumeInput(conn))
			fatal("%s: %s", what, PQerrorMessage(conn));
	}
	while ((result = PQgetResult(conn)) != NULL)
		check_result(conn, result, what);
}

/* Until the backend of "conn" waits for a lock of either kind. */
static void
wait_until_waiting(PGconn *conn, PGconn *monitor)
{
	double end = now_ms() + PATIENCE;
	char sql[300];

	snprintf(sql, sizeof(sql),
			 "SELECT 1 FROM pg_stat_activity WHERE pid = %d AND "
			 "state = 'active' AND wait_event_type IN ('Lock', 'Extension', 'IPC')",
			 PQbackendPID(conn));
	for (;;)
	{
		PGresult *result = PQexec(monitor, sql);
		bool waiting = PQntuples(result) > 0;

		check_result(monitor, result, "pg_stat_activity");
		if (waiting)
			break;
		if (now_ms() > end)
			fatal("the second server's backend does not wait");
		poll(NULL, 0, 1);
	}
	poll(NULL, 0, SETTLE);
}

/*
 * One statement, one transaction, again and again.  With "fresh", a name of
 * its own for each.
 */
static void
bench_acquire(const char *conninfo, const char *sql, const char *what, const char *prefix,
			  bool fresh)
{
	PGconn *conn = connect_server(conninfo);
	Samples samples = new_samples();
	char name[128];

	prepare(conn, sql);
	for (int i = 0; i < count; i++)
	{
		double start;

		snprintf(name, sizeof(name), "%s-%s-%d", run, prefix, fresh ? i : 0);
		start = now_ms();
		ask(conn, name);
		add(&samples, now_ms() - start);
	}
	PQfinish(conn);
	print_samples(what, &samples);
}

/* From the COMMIT sent on "a" to the answer of the waiter on "b". */
static void
bench_handover(const char *conninfo_a, const char *conninfo_b, const char *sql,
			   const char *what, const char *prefix)
{
	PGconn *a = connect_server(conninfo_a);
	PGconn *b = connect_server(conninfo_b);
	PGconn *monitor = connect_server(conninfo_b);
	Samples samples = new_samples();
	char name[128];

	prepare(a, sql);
	prepare(b, sql);
	snprintf(name, sizeof(name), "%s-%s", run, prefix);
	for (int i = 0; i < count; i++)
	{
		double start;

		execute(a, "BEGIN");
		ask(a, name);
		execute(b, "BEGIN");
		send_ask(b, name);
		wait_until_waiting(b, monitor);

		start = now_ms();
		send_sql(a, "COMMIT");
		finish(b, what);
		add(&samples, now_ms() - start);
		finish(a, "COMMIT");
		execute(b, "COMMIT");
	}
	PQfinish(a);
	PQfinish(b);
	PQfinish(monitor);
	print_samples(what, &samples);
}

/*
 * Many backends, each with a name of its own, ask at once.  The time is until
 * the last has its answer; the sum of single times if they queue for the
 * worker, little more than one if they are in flight together.
 */
static void
bench_many(const char *conninfo, const char *sql, const char *what, const char *prefix)
{
	PGconn **conn = calloc((size_t) width, sizeof(PGconn *));
	double start;
	double end;
	char name[128];

	if (conn == NULL)
		fatal("out of memory");
	for (int i = 0; i < width; i++)
	{
		conn[i] = connect_server(conninfo);
		prepare(conn[i], sql);
		execute(conn[i], "BEGIN");
	}
	start = now_ms();
	for (int i = 0; i < width; i++)
	{
		snprintf(name, sizeof(name), "%s-%s-%d", run, prefix, i);
		send_ask(conn[i], name);
	}
	for (int i = 0; i < width; i++)
		finish(conn[i], what);
	end = now_ms();
	for (int i = 0; i < width; i++)
	{
		execute(conn[i], "COMMIT");
		PQfinish(conn[i]);
	}
	free(conn);
	print_total(what, width, end - start);
}

static void __attribute__((noreturn)) usage(void)
{
	fprintf(stderr,
			"usage: latency [--zk HOSTS] [--a CONNINFO] [--b CONNINFO]\n"
			"               [--count N] [--width N]\n"
			"  --zk     connect string of the ensemble\n"
			"  --a      connection string of a server with zklock\n"
			"  --b      ... of another one, on the same ensemble\n"
			"  --count  iterations of each measurement (%d)\n"
			"  --width  backends that ask at once (%d; max_connections!)\n",
			count, width);
	exit(2);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"zk", required_argument, NULL, 'z'},
											{"a", required_argument, NULL, 'a'},
											{"b", required_argument, NULL, 'b'},
											{"count", required_argument, NULL, 'n'},
											{"width", required_argument, NULL, 'w'},
											{NULL, 0, NULL, 0}};
	const char *zk = NULL;
	const char *a = NULL;
	const char *b = NULL;
	char what[80];
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 'z':
				zk = optarg;
				break;
			case 'a':
				a = optarg;
				break;
			case 'b':
				b = optarg;
				break;
			case 'n':
				count = atoi(optarg);
				break;
			case 'w':
				width = atoi(optarg);
				break;
			default:
				usage();
		}
	}
	if (optind < argc || (zk == NULL && a == NULL) || count < 1 || width < 1)
		usage();
	signal(SIGPIPE, SIG_IGN);
	snprintf(run, sizeof(run), "latency-%ld-%ld", (long) time(NULL), (long) getpid());

	print_head();
	if (zk != NULL)
		bench_writes(zk);
	if (a != NULL)
	{
		bench_acquire(a, "SELECT $1::text", "SELECT of a constant", "none", false);
		bench_acquire(a, ADVISORY_SQL, "pg_advisory_xact_lock", "advisory", false);
		bench_acquire(a, LOCK_SQL, "zk_lock, a new name each time (cold)", "cold", true);
		bench_acquire(a, LOCK_SQL, "zk_lock, the same names once more", "cold", true);
		bench_acquire(a, LOCK_SQL, "zk_lock, one name again and again", "warm", false);
		bench_handover(a, a, ADVISORY_SQL,
					   "pg_advisory_xact_lock, hand-over in one server", "advisory");
		bench_handover(a, a, LOCK_SQL, "zk_lock, hand-over in one server", "local");
	}
	if (a != NULL && b != NULL)
		bench_handover(a, b, LOCK_SQL, "zk_lock, hand-over from A to B", "handover");
	if (a != NULL)
	{
		snprintf(what, sizeof(what), "pg_advisory_xact_lock, %d backends at once", width);
		bench_many(a, ADVISORY_SQL, what, "advisory");
		snprintf(what, sizeof(what), "zk_lock, %d backends at once, %d names", width,
				 width);
		bench_many(a, LOCK_SQL, what, "many");
	}
	return 0;
}
