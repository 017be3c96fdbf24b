/*-------------------------------------------------------------------------
 *
 * limit.c
 *	  What ZooKeeper itself can do: the bounds that no lock on it can beat.
 *
 *		limit HOSTS
 *
 * reads orders from standard input and answers each with one line, the number
 * of times and the median in microseconds:
 *
 *		write SECONDS				setData of one node, again and again
 *		run CLIENTS NAMES SECONDS	locks without contention: create a contender
 *									and list the queue, back to back; then delete
 *									the contender and go on without waiting.  All
 *									clients share one session; NAMES must be at
 *									least CLIENTS
 *		write-alone COUNT MS		setData, after so long with nothing under way
 *		acquire COUNT MS			create and list, in the same way
 *		connect COUNT MS			the same in a session that is opened for it
 *		notify COUNT				from a delete in one session to the watch
 *									event in another one
 *
 * What has SECONDS happens on the completion thread of libzookeeper, which sends the
 * next request from within the answer to the last.
 *
 *-------------------------------------------------------------------------
 */
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "bench.h"

#define SESSION_TIMEOUT 10000 /* ms */
#define MAX_CLIENTS		64
#define CONTENDER		"_c_00000000-0000-0000-0000-000000000000-lock-"

/* One loop of requests. */
typedef struct Client
{
	char directory[64];
	char contender[160];
	double started;
} Client;

static zhandle_t *zh;	 /* who works */
static zhandle_t *other; /* who watches */
static const char *hosts;
static Client clients[MAX_CLIENTS];
static double deadline;
static sem_t done; /* one post for each client that has ended */

static double *samples;
static size_t nsamples;

static void
check(int rc, const char *what)
{
	if (rc != ZOK)
		fatal("%s: %s", what, zerror(rc));
}

/* The time of one round; the next one begins now. */
static void
sample(Client *client)
{
	double now = now_us();

	if ((nsamples & (nsamples - 1)) == 0)
	{
		samples = realloc(samples, (nsamples > 0 ? 2 * nsamples : 1) * sizeof(double));
		if (samples == NULL)
			fatal("out of memory");
	}
	samples[nsamples++] = now - client->started;
	client->started = now;
}

/* ---------------------------------------------------------------------
 * write
 * ---------------------------------------------------------------------
 */
static void
written(int rc, const struct Stat *stat, const void *data)
{
	Client *client = (Client *) data;

	(void) stat;
	check(rc, "setData");
	sample(client);
	if (client->started < deadline)
		check(zoo_aset(zh, client->directory, "beat", 4, -1, written, client), "setData");
	else
		sem_post(&done);
}

static void
bench_write(void)
{
	clients[0].started = now_us();
	check(zoo_aset(zh, clients[0].directory, "beat", 4, -1, written, &clients[0]),
		  "setData");
	sem_wait(&done);
}

/* ---------------------------------------------------------------------
 * run
 * ---------------------------------------------------------------------
 */
static void acquire(Client *client);

static void
deleted(int rc, const void *data)
{
	(void) data;
	check(rc, "delete");
}

static void
created(int rc, const char *path, const void *data)
{
	check(rc, "create");
	snprintf(((Client *) data)->contender, sizeof(clients[0].contender), "%s", path);
}

static void
listed(int rc, const struct String_vector *children, const void *data)
{
	Client *client = (Client *) data;

	check(rc, "getChildren");
	if (children->count != 1)
		fatal("%s has %d contenders", client->directory, children->count);
	check(zoo_adelete(zh, client->contender, -1, deleted, NULL), "delete");
	sample(client);
	if (client->started < deadline)
		acquire(client);
	else
		sem_post(&done);
}

static void
acquire(Client *client)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/" CONTENDER, client->directory);
	check(zoo_acreate(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL,
					  created, client),
		  "create");
	check(zoo_aget_children(zh, client->directory, 0, listed, client), "getChildren");
}

static void
bench_run(int nclients)
{
	for (int i = 0; i < nclients; i++)
	{
		clients[i].started = now_us();
		acquire(&clients[i]);
	}
	for (int i = 0; i < nclients; i++)
		sem_wait(&done);
	/* Answers come in order: the last deletes are done, too. */
	check(zoo_exists(zh, clients[0].directory, 0, NULL), "exists");
}

/* ---------------------------------------------------------------------
 * write-alone, acquire
 * ---------------------------------------------------------------------
 */

/* With a deadline that has passed, "write" and "run" do it once. */
static void
bench_alone(int count, int pause_ms, bool write)
{
	deadline = 0;
	for (int i = 0; i < count; i++)
	{
		usleep((useconds_t) pause_ms * 1000);
		if (write)
			bench_write();
		else
			bench_run(1);
	}
}

/* ---------------------------------------------------------------------
 * notify
 * ---------------------------------------------------------------------
 */
static void
session_event(zhandle_t *handle, int type, int state, const char *path, void *data)
{
	(void) handle, (void) path, (void) data;
	if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
		sem_post(&done);
}

static void
gone(zhandle_t *handle, int type, int state, const char *path, void *data)
{
	(void) handle, (void) state, (void) path;
	if (type != ZOO_DELETED_EVENT)
		fatal("event %d instead of a deletion", type);
	sample(data);
	sem_post(&done);
}

static void
synced(int rc, const char *path, const void *data)
{
	(void) path, (void) data;
	check(rc, "sync");
}

static zhandle_t *
connect_session(void)
{
	zhandle_t *handle =
		zookeeper_init(hosts, session_event, SESSION_TIMEOUT, NULL, NULL, 0);

	if (handle == NULL)
		fatal("no session");
	zoo_set_servers_resolution_delay(handle, -1);
	sem_wait(&done);
	return handle;
}

static void
bench_connect(int count, int pause_ms)
{
	zhandle_t *own = zh;

	deadline = 0;
	for (int i = 0; i < count; i++)
	{
		double begun;
		double connected;

		usleep((useconds_t) pause_ms * 1000);
		begun = now_us();
		zh = connect_session();
		connected = now_us();
		bench_run(1);
		samples[nsamples - 1] += connected - begun;
		check(zookeeper_close(zh), "close");
	}
	zh = own;
}

static void
bench_notify(int count)
{
	Client *client = &clients[0];
	char path[80];
	char buffer[8];

	if (other == NULL)
		other = connect_session();
	snprintf(path, sizeof(path), "%s/node", client->directory);
	for (int i = 0; i < count; i++)
	{
		int length = sizeof(buffer);

		check(zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0),
			  "create");
		check(zoo_async(other, path, synced, NULL), "sync");
		check(zoo_wget(other, path, gone, client, buffer, &length, NULL), "getData");
		usleep(IDLE_US);
		client->started = now_us();
		check(zoo_adelete(zh, path, -1, deleted, NULL), "delete");
		sem_wait(&done);
	}
}

/* ---------------------------------------------------------------------
 * orders
 * ---------------------------------------------------------------------
 */
static void
make_directory(const char *path)
{
	int rc = zoo_create(zh, path, "", -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0);

	if (rc != ZNODEEXISTS)
		check(rc, path);
}

int
main(int argc, char **argv)
{
	char line[200];

	if (argc != 2)
		fatal("usage: limit HOSTS");
	hosts = argv[1];
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	sem_init(&done, 0, 0);
	zh = connect_session();
	make_directory("/bench");
	for (int i = 0; i < MAX_CLIENTS; i++)
	{
		snprintf(clients[i].directory, sizeof(clients[i].directory), "/bench/limit-%d", i);
		make_directory(clients[i].directory);
	}
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		double seconds;
		int n;
		int names;
		int ms;

		if (sscanf(line, "write %lf", &seconds) == 1)
		{
			deadline = now_us() + seconds * 1e6;
			bench_write();
		}
		else if (sscanf(line, "run %d %d %lf", &n, &names, &seconds) == 3 && n <= names &&
				 n <= MAX_CLIENTS)
		{
			deadline = now_us() + seconds * 1e6;
			bench_run(n);
		}
		else if (sscanf(line, "write-alone %d %d", &n, &ms) == 2)
			bench_alone(n, ms, true);
		else if (sscanf(line, "acquire %d %d", &n, &ms) == 2)
			bench_alone(n, ms, false);
		else if (sscanf(line, "connect %d %d", &n, &ms) == 2)
			bench_connect(n, ms);
		else if (sscanf(line, "notify %d", &n) == 1)
			bench_notify(n);
		else
			fatal("unknown order: %s", line);
		answer(samples, nsamples);
		fflush(stdout);
		nsamples = 0;
	}
	return 0;
}
