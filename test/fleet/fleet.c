/*-------------------------------------------------------------------------
 *
 * fleet.c
 *	  Many zklock servers, as the ensemble sees them, without PostgreSQL.
 *
 *		fleet HOSTS TIMEOUT_MS
 *
 * Each server is a process with a session of its own, by the project's client, lease and
 * heartbeat: what a worker sends at the beginning of a session and of a connection, to
 * keep its lease, and for a lock.  test/t/150_fleet.pl holds that against what a real
 * server sends.  Reads orders from standard input and answers each with one line:
 *
 *		grow N		until there are so many servers, and all are connected: how many
 *		hold N		so many of them, evenly spread, hold a lock of their own each, the
 *					others none: how many hold one, when all do
 *		turns MS	every server takes a lock once in so long, at a time of its own, of
 *					one name for each ten servers; 0: no more.  At once: 0
 *		locks		locks taken since the last such order, p50 and p99 of the time from
 *					the wish to the good lease, us
 *		writes MS	who holds a lock writes a node of its own once in so long, besides;
 *					0: no more.  At once: 0
 *		cut			every server loses its connection, and makes another.  At once: 0
 *		proven MS	until all that hold have a good lease: ms, or -1 if it takes longer
 *		proofs		how many servers' connections were made again since the last such
 *					order while their leases were good, and the most writes that one
 *					needed until its lease was good for longer
 *		leases		servers whose lease is good
 *		sessions	sessions that were ever opened
 *		beats		heartbeats that were ever sent
 *		probe MS	one more process writes a node of its own once in so long: 0
 *		probed		its writes since the last such order, p50, p99 and longest time, us
 *		flood N		N processes more write a node of their own, each with so many writes
 *					under way that the ensemble is never without work; 0: no more.  At
 *					once: 0
 *
 * It ends with its standard input, and all servers with it, whose sessions time out.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "heartbeat.h"
#include "lease.h"

#define NS_PER_MS	 INT64_C(1000000)
#define MAX_SERVERS	 20000
#define MAX_CHILDREN (MAX_SERVERS + 100)
#define MAX_SAMPLES	 (1 << 20)
#define SHARING		 10	 /* servers that take turns with one name */
#define FLOOD		 200 /* writes of a process of the flood under way */

#define ROOT		 "/fleet"
#define TOKENS		 ROOT "/tokens"

/* What the process of a server tells the parent. */
typedef struct Server
{
	atomic_bool connected;
	atomic_bool held;
	_Atomic int64_t lease_end;
	atomic_uint proof;		/* writes that a connection made again needed; 0: none was */
	atomic_uint counted[2]; /* Count */
} Server;

typedef enum Count
{
	SESSIONS, /* opened */
	BEATS	  /* sent */
} Count;

/* In shared memory.  Times are us. */
typedef struct Samples
{
	atomic_uint n;
	float us[MAX_SAMPLES];
} Samples;

typedef struct Fleet
{
	/* the parent's; SIGUSR1 says that they have changed */
	atomic_int servers;
	atomic_int holders;
	atomic_int turns;  /* ms; 0: none */
	atomic_int writes; /* ms; 0: none */
	atomic_int cuts;   /* so far */
	atomic_bool flood;

	Server server[MAX_SERVERS];
	Samples locks;
	Samples probes;
} Fleet;

static Fleet *fleet;
static const char *hosts;
static int timeout_ms;
static pid_t parent;
static sigset_t no_signals; /* blocked, but while a process waits */

static void __attribute__((noreturn, format(printf, 1, 2))) fatal(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "fleet: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static void
sample(Samples *samples, int64_t ns)
{
	unsigned int n = atomic_fetch_add(&samples->n, 1);

	if (n < MAX_SAMPLES)
		samples->us[n] = (float) ((double) ns / 1e3);
}

/* ------------------------------------------------------------------------
 * A server: one process
 * ------------------------------------------------------------------------
 */
typedef enum LockState
{
	LOCK_NONE,
	LOCK_QUEUED, /* created, or about to be */
	LOCK_GRANTED /* and had, when the lease is good */
} LockState;

static int number;
static Server *self;
static ZkClient *client;
static ZkClient *closing; /* of the session before it */
static bool close_begun;
static bool connected;
static ZkMessage *arrival; /* CONNECTED of a connection that is not used yet */
static int64_t arrival_until;
static ZkSessionId session;
static ZkLease lease;
static ZkHeartbeat heartbeat;
static char member[64];

static LockState lock;
static bool brief;		   /* this lock is a turn's */
static char directory[64]; /* of the lock */
static char contender[128];
static bool creating; /* it has no answer */
static int64_t wished_at;
static int64_t turn_at; /* when the next turn begins; 0: none */
static int64_t write_at; /* when the next write is due that is for something else; 0: none */

static int64_t trying_since; /* while there is no connection: this handle ... */
static int64_t unreached_since;
static int servers; /* that there were when the connection began */
static int cuts;	/* that have been done */

/* Of a connection that was made again while the lease was good. */
static bool proving;
static unsigned int proof;	 /* writes acknowledged so far */
static int64_t proven_until; /* the lease's end when it began */

static const ZkRequestTag heartbeat_tag = {.kind = 1};
static const ZkRequestTag lock_tag = {.kind = 2};
static const ZkRequestTag other_tag = {.kind = 3};
static const ZkRequestTag servers_tag = {.kind = 4};

static bool
lease_valid(void)
{
	return zklock_lease_end(&lease) > zklock_clock();
}

static void
send_heartbeat(void)
{
	static const char data[] =
		"{\"version\": \"1.0\", \"elections_led\": 0, \"jobs\": 0, \"drain\": \"off\", \"holders\": [], \"waits\": []}";

	if (zklock_client_set(client, member, data, sizeof(data) - 1, -1, &heartbeat_tag) !=
		ZKLOCK_ZOK)
		return;
	atomic_fetch_add(&self->counted[BEATS], 1);
	zklock_heartbeat_sent(&heartbeat, zklock_clock());
}

static void
queue_up(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/_c_%016llx-lock-", directory,
			 (unsigned long long) session.id);
	lock = LOCK_QUEUED;
	contender[0] = '\0';
	creating = true;
	zklock_client_get(client, directory, true, &other_tag);
	zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL,
						 &lock_tag);
	zklock_client_list(client, directory, false, &lock_tag);
}

static void
release(void)
{
	if (contender[0] != '\0')
		zklock_client_delete(client, contender, &other_tag);
	lock = LOCK_NONE;
	atomic_store(&self->held, false);
}

static void
open_session(void)
{
	char error[512];

	connected = false;
	memset(&session, 0, sizeof(session));
	zklock_lease_init(&lease);
	client = zklock_client_open(hosts, timeout_ms, NULL, NULL, error, sizeof(error));
	if (client == NULL)
		fatal("%s", error);
	trying_since = unreached_since = zklock_clock();
}

/* When another handle is to resume the session, as in session_rules.c: zklock_course_gives_up. */
static int64_t
stuck_at(void)
{
	return trying_since +
		zklock_heartbeat_patience(timeout_ms * NS_PER_MS, zklock_clock() - unreached_since);
}

static void
resume_session(void)
{
	char error[512];

	if (!zklock_client_leave(client))
		return;
	client = zklock_client_open(hosts, timeout_ms, session.id != 0 ? &session : NULL,
								NULL, error, sizeof(error));
	if (client == NULL)
		fatal("%s", error);
	trying_since = zklock_clock();
	zklock_client_spread(client,
						 (int) (zklock_heartbeat_spread(&lease, trying_since, servers) /
								NS_PER_MS));
}

static void
on_expired(void)
{
	zklock_client_close(client);
	open_session();
}

/* The lease comes with a new session sooner than it can be proven: session.c. */
static void
renew_session(void)
{
	closing = client; /* when the new one has come to a write: session.c */
	close_begun = false;
	lock = LOCK_QUEUED; /* when it is there */
	contender[0] = '\0';
	open_session();
}

/* The library has the only TCP socket. */
static void
cut_connection(void)
{
	for (int fd = 0; fd < 1024; fd++)
	{
		int domain;
		socklen_t len = sizeof(domain);

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain != AF_UNIX)
			shutdown(fd, SHUT_RDWR);
	}
}

/* Whoever holds something does so for a purpose, and may write for that. */
static void
write_besides(int64_t now)
{
	int interval_ms = atomic_load(&fleet->writes);

	if (interval_ms == 0 || lock != LOCK_GRANTED)
		write_at = 0;
	else if (write_at == 0)
		write_at = now + rand() % interval_ms * NS_PER_MS;
	else if (now >= write_at)
	{
		zklock_client_set(client, contender, "", 0, -1, &other_tag);
		write_at += interval_ms * NS_PER_MS;
	}
}

/* Bring about what the orders say, as far as it can be done now. */
static void
act(void)
{
	int servers = atomic_load(&fleet->servers);
	int holders = atomic_load(&fleet->holders);
	int turns = atomic_load(&fleet->turns);
	bool hold = (int64_t) number * holders / servers !=
		(int64_t) (number + 1) * holders / servers;
	int64_t now = zklock_clock();

	if (cuts != atomic_load(&fleet->cuts))
	{
		cuts = atomic_load(&fleet->cuts);
		cut_connection();
	}
	if (turns == 0)
		turn_at = 0;
	else if (turn_at == 0)
		turn_at = now + rand() % turns * NS_PER_MS;
	if (!connected)
		return;
	if (lock == LOCK_GRANTED && lease_valid() && !atomic_load(&self->held))
	{
		atomic_store(&self->held, true);
		if (wished_at != 0)
			sample(&fleet->locks, now - wished_at);
		wished_at = 0;
	}
	if (lock == LOCK_GRANTED && (brief ? atomic_load(&self->held) : !hold))
		release();
	write_besides(now);
	if (lock != LOCK_NONE)
	{
		zklock_heartbeat_need(&heartbeat, now);
		return;
	}
	if (hold)
	{
		snprintf(directory, sizeof(directory), ROOT "/hold-%d", number);
		brief = false;
	}
	else if (turn_at != 0 && now >= turn_at)
	{
		snprintf(directory, sizeof(directory), ROOT "/turn-%d", number / SHARING);
		brief = true;
		turn_at += turns * NS_PER_MS;
	}
	else
		return;
	wished_at = now;
	if (zklock_heartbeat_rested(&heartbeat, &lease, now) && closing == NULL)
	{
		renew_session();
		return;
	}
	zklock_heartbeat_need(&heartbeat, now);
	queue_up();
}

static int
order_of(const char *name)
{
	size_t len = strlen(name);

	return len < 10 ? 0 : atoi(name + len - 10);
}

/* The queue: is it our turn?  Else watch the one before us. */
static void
on_listed(const ZkMessage *message)
{
	const char *before = NULL;
	char prefix[32];
	char path[128];

	/* whether one was made whose answer was lost with the connection */
	snprintf(prefix, sizeof(prefix), "_c_%016llx-", (unsigned long long) session.id);
	for (int i = 0; i < message->nchildren && contender[0] == '\0'; i++)
	{
		if (strncmp(message->children[i], prefix, strlen(prefix)) == 0)
			snprintf(contender, sizeof(contender), "%s/%s", directory,
					 message->children[i]);
	}
	if (contender[0] == '\0')
	{
		if (!creating)
			queue_up();
		return;
	}
	for (int i = 0; i < message->nchildren; i++)
	{
		const char *child = message->children[i];

		/* One that was released, but the connection was lost before the ensemble knew. */
		if (strncmp(child, prefix, strlen(prefix)) == 0 &&
			strcmp(child, strrchr(contender, '/') + 1) != 0)
		{
			snprintf(path, sizeof(path), "%s/%s", directory, child);
			zklock_client_delete(client, path, &other_tag);
		}
		if (order_of(child) < order_of(contender) &&
			(before == NULL || order_of(child) > order_of(before)))
			before = child;
	}
	if (before == NULL)
	{
		lock = LOCK_GRANTED;
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", directory, before);
	zklock_client_get(client, path, true, &lock_tag);
}

static void
on_lock_answer(const ZkMessage *message)
{
	if (lock != LOCK_QUEUED)
		return;
	if (message->type == ZKLOCK_MSG_CREATED)
		creating = false;
	if (message->type == ZKLOCK_MSG_CREATED && message->rc == ZKLOCK_ZOK)
		snprintf(contender, sizeof(contender), "%s", message->path);
	else if (message->type == ZKLOCK_MSG_CREATED && message->rc == ZKLOCK_ZNONODE)
	{
		zklock_client_create(client, directory, "", 0, ZKLOCK_CREATE_CONTAINER, &other_tag);
		queue_up();
	}
	else if (message->type == ZKLOCK_MSG_LISTED && message->rc == ZKLOCK_ZOK)
		on_listed(message);
	else if (message->type == ZKLOCK_MSG_LISTED && message->rc == ZKLOCK_ZNONODE &&
			 !creating)
		queue_up();
	else if (message->type == ZKLOCK_MSG_GOT && message->rc == ZKLOCK_ZNONODE)
		zklock_client_list(client, directory, false, &lock_tag);
}

/* What a worker sends first, see ensemble.c and session.c. */
static void
on_connected(const ZkMessage *message)
{
	ZkSessionId id;
	bool new_session;
	int timeout;

	if (!zklock_client_session(client, &id, &timeout))
		return;
	connected = true;
	new_session = id.id != session.id;
	if (new_session)
	{
		session = id;
		atomic_fetch_add(&self->counted[SESSIONS], 1);
		zklock_lease_new_session(&lease, timeout * NS_PER_MS, message->sent_at);
		proving = false;
		atomic_store(&self->held, false);
		contender[0] = '\0';
		snprintf(member, sizeof(member), ROOT "/servers/%d-%016llx", number,
				 (unsigned long long) id.id);
		zklock_client_create(client, member, "", 0, ZKLOCK_CREATE_EPHEMERAL, &other_tag);
	}
	else
	{
		proving = lease_valid();
		proof = 0;
		proven_until = zklock_lease_end(&lease);
		zklock_lease_new_connection(&lease, timeout * NS_PER_MS, message->sent_at,
									message->received_at);
		zklock_client_sync(client, ROOT, &other_tag);
	}
	zklock_heartbeat_connected(&heartbeat, zklock_clock());
	send_heartbeat();
	zklock_client_get(client, TOKENS, true, &other_tag);
	zklock_client_get(client, ROOT "/servers", false, &servers_tag);
	creating = false;
	if (lock != LOCK_NONE)
	{
		/* in a new session there is none; else whether it was made is to be seen there */
		if (new_session)
			queue_up();
		else
			zklock_client_list(client, directory, false, &lock_tag);
	}
}

static void
count_write(const ZkMessage *message)
{
	if (message->rc == ZKLOCK_ZOK)
	{
		zklock_client_spread(client, 0);
		zklock_lease_write(&lease, message->sent_at, message->received_at);
		zklock_heartbeat_written(&heartbeat, &lease, message->sent_at,
								 message->received_at, (uint32_t) rand());
		proof++;
		if (closing != NULL && !close_begun)
		{
			close_begun = true;
			zklock_client_close_begin(closing);
		}
		if (proving && zklock_lease_end(&lease) > proven_until)
		{
			proving = false;
			atomic_store(&self->proof, proof);
		}
	}
	if (message->tag.kind == heartbeat_tag.kind)
		zklock_heartbeat_answered(&heartbeat);
}

static void
drop_arrival(void)
{
	if (arrival != NULL)
		zklock_client_free_message(arrival);
	arrival = NULL;
}

/* As session.c does. */
static bool
keep_arrival(ZkMessage *message)
{
	ZkSessionId id;
	int timeout;

	if (!zklock_client_session(client, &id, &timeout) || id.id != session.id)
		return false;
	arrival_until = message->received_at +
		zklock_heartbeat_pause(&lease, timeout * NS_PER_MS, message->sent_at,
							   message->received_at, (uint32_t) rand());
	if (arrival_until <= zklock_clock())
		return false;
	arrival = message;
	return true;
}

static void
receive(void)
{
	ZkMessage *message;

	if (arrival != NULL && zklock_clock() >= arrival_until)
	{
		message = arrival;
		arrival = NULL;
		on_connected(message);
		zklock_client_free_message(message);
	}

	if (closing != NULL && close_begun && zklock_client_close_end(closing))
		closing = NULL;
	while ((message = zklock_client_receive(client)) != NULL)
	{
		switch (message->type)
		{
			case ZKLOCK_MSG_CONNECTED:
				if (keep_arrival(message))
					continue;
				on_connected(message);
				break;
			case ZKLOCK_MSG_DISCONNECTED:
				drop_arrival();
				connected = false;
				trying_since = unreached_since = zklock_clock();
				break;
			case ZKLOCK_MSG_EXPIRED:
				drop_arrival();
				on_expired();
				break;
			case ZKLOCK_MSG_CREATED:
			case ZKLOCK_MSG_DELETED:
			case ZKLOCK_MSG_SET:
				count_write(message);
				break;
			case ZKLOCK_MSG_NODE_DELETED:
				if (lock == LOCK_QUEUED && connected)
					zklock_client_list(client, directory, false, &lock_tag);
				break;
			default:
				break;
		}
		if (message->tag.kind == lock_tag.kind && connected)
			on_lock_answer(message);
		if (message->tag.kind == servers_tag.kind && message->rc == ZKLOCK_ZOK)
			servers = message->nchildren;
		zklock_client_free_message(message);
	}
	atomic_store(&self->connected, connected);
	atomic_store(&self->lease_end, zklock_lease_end(&lease));
}

static void
on_signal(int signo)
{
	(void) signo;
}

/* The children of this program end with it. */
static void
begin_child(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	close(0);
	close(1);
}

/* Wait for the session, for an order, or until this moment (0: none). */
static void
wait_for(int64_t until)
{
	struct pollfd fds[2] = {
		{.fd = zklock_client_fd(client), .events = POLLIN},
		{.fd = closing != NULL && close_begun ? zklock_client_fd(closing) : -1,
		 .events = POLLIN},
	};
	int64_t ns = until - zklock_clock(); /* INT64_MAX: for ever */
	struct timespec timeout;

	if (ns < 0)
		ns = 0;
	timeout.tv_sec = ns / (1000 * NS_PER_MS);
	timeout.tv_nsec = ns % (1000 * NS_PER_MS);
	(void) ppoll(fds, 2, until != 0 && until != INT64_MAX ? &timeout : NULL, &no_signals);
}

static void __attribute__((noreturn)) run_server(int n)
{
	begin_child();
	number = n;
	self = &fleet->server[n];
	srand((unsigned int) getpid());
	cuts = atomic_load(&fleet->cuts);
	open_session();
	for (;;)
	{
		int64_t next = 0;

		receive();
		act();
		if (connected)
		{
			if (zklock_clock() >= zklock_heartbeat_due(&heartbeat, &lease, zklock_clock()))
				send_heartbeat();
			next = zklock_heartbeat_due(&heartbeat, &lease, zklock_clock());
			if (turn_at != 0 && lock == LOCK_NONE && turn_at < next)
				next = turn_at;
			if (write_at != 0 && write_at < next)
				next = write_at;
		}
		else if (arrival != NULL)
			next = arrival_until;
		else
		{
			if (zklock_clock() >= stuck_at())
				resume_session();
			next = stuck_at();
		}
		wait_for(next);
	}
}

/* ------------------------------------------------------------------------
 * Who else writes: the probe, and the flood
 * ------------------------------------------------------------------------
 */

/* Handle what has come; "node" is ours. */
static void
receive_as_writer(const char *node)
{
	ZkMessage *message;

	while ((message = zklock_client_receive(client)) != NULL)
	{
		switch (message->type)
		{
			case ZKLOCK_MSG_CONNECTED:
				connected = true;
				zklock_client_create(client, node, "", 0, ZKLOCK_CREATE_PERSISTENT,
									 &other_tag);
				break;
			case ZKLOCK_MSG_DISCONNECTED:
				connected = false;
				break;
			case ZKLOCK_MSG_EXPIRED:
				on_expired();
				break;
			case ZKLOCK_MSG_SET:
				if (message->rc == ZKLOCK_ZOK && message->tag.kind == heartbeat_tag.kind)
					sample(&fleet->probes, message->received_at - message->sent_at);
				break;
			default:
				break;
		}
		zklock_client_free_message(message);
	}
}

/* A write each time that one is due, answered or not: a request that waits does not keep
 * others from being made, and so from being counted. */
static void __attribute__((noreturn)) run_probe(int interval_ms)
{
	int64_t next = 0;

	begin_child();
	open_session();
	for (;;)
	{
		int64_t now;

		receive_as_writer(ROOT "/probe");
		now = zklock_clock();
		if (connected && now >= next)
		{
			zklock_client_set(client, ROOT "/probe", "beat", 4, -1, &heartbeat_tag);
			/* what could not be made while there was no connection is not made up for */
			next = (next + 1000 * NS_PER_MS < now ? now : next) + interval_ms * NS_PER_MS;
		}
		wait_for(connected ? next : 0);
	}
}

static void __attribute__((noreturn)) run_flood(int n)
{
	char node[64];

	begin_child();
	snprintf(node, sizeof(node), ROOT "/flood-%d", n);
	open_session();
	while (atomic_load(&fleet->flood))
	{
		receive_as_writer(node);
		while (connected && zklock_client_pending(client) < FLOOD)
			zklock_client_set(client, node, "beat", 4, -1, &other_tag);
		wait_for(0);
	}
	zklock_client_close(client);
	exit(0);
}

/* ------------------------------------------------------------------------
 * The parent: orders
 * ------------------------------------------------------------------------
 */
static pid_t *children;
static int nchildren;

static void
fork_child(void (*run)(int), int argument)
{
	pid_t pid = nchildren < MAX_CHILDREN ? fork() : -1;

	if (pid < 0)
		fatal("could not fork");
	if (pid == 0)
		run(argument);
	children[nchildren++] = pid;
}

/* All know the orders. */
static void
tell(void)
{
	for (int i = 0; i < nchildren; i++)
		kill(children[i], SIGUSR1);
}

static int
count_servers(bool held)
{
	int count = 0;

	for (int i = 0; i < atomic_load(&fleet->servers); i++)
		count += held ? atomic_load(&fleet->server[i].held)
					  : atomic_load(&fleet->server[i].connected);
	return count;
}

/* While the parent waits for its children: one that fails, or dies, ends all. */
static void
pause_a_little(void)
{
	struct timespec ms = {.tv_nsec = NS_PER_MS};
	int status;

	nanosleep(&ms, NULL);
	if (waitpid(-1, &status, WNOHANG) > 0 && status != 0)
		fatal("a process has ended with status %d", status);
}

static void
grow(int to)
{
	int servers = atomic_load(&fleet->servers);

	if (to > MAX_SERVERS)
		fatal("no more than %d servers", MAX_SERVERS);
	/* no more at a time than an ensemble likes: it is not this that is measured */
	while (servers < to)
	{
		/* before it runs: it divides by that */
		atomic_store(&fleet->servers, servers + 1);
		fork_child(run_server, servers++);
		while (servers - count_servers(false) > 50)
			pause_a_little();
	}
	while (count_servers(false) < servers)
		pause_a_little();
	printf("%d\n", servers);
}

static void
hold(int holders)
{
	atomic_store(&fleet->holders, holders);
	tell();
	while (count_servers(true) != holders)
		pause_a_little();
	printf("%d\n", holders);
}

/* Those whose lease is good, and who are connected and hold, or whoever they are. */
static int
count_leases(bool held)
{
	int64_t now = zklock_clock();
	int count = 0;

	for (int i = 0; i < atomic_load(&fleet->servers); i++)
	{
		const Server *server = &fleet->server[i];

		count += atomic_load(&server->lease_end) > now &&
			(!held || (atomic_load(&server->held) && atomic_load(&server->connected)));
	}
	return count;
}

static void
proven(int64_t patience)
{
	int64_t begun = zklock_clock();

	for (;;)
	{
		bool all = count_leases(true) >= atomic_load(&fleet->holders);
		int64_t now = zklock_clock();

		if (all)
		{
			printf("%lld\n", (long long) ((now - begun) / NS_PER_MS));
			return;
		}
		if (now - begun > patience * NS_PER_MS)
		{
			printf("-1\n");
			return;
		}
		pause_a_little();
	}
}

static void
proofs(void)
{
	unsigned int most = 0;
	int n = 0;

	for (int i = 0; i < atomic_load(&fleet->servers); i++)
	{
		unsigned int one = atomic_exchange(&fleet->server[i].proof, 0);

		n += one > 0;
		most = one > most ? one : most;
	}
	printf("%d %u\n", n, most);
}

static int
compare(const void *a, const void *b)
{
	float x = *(const float *) a;
	float y = *(const float *) b;

	return (x > y) - (x < y);
}

static void
report(Samples *samples)
{
	unsigned int n = atomic_exchange(&samples->n, 0);
	unsigned int kept = n < MAX_SAMPLES ? n : MAX_SAMPLES;

	qsort(samples->us, kept, sizeof(float), compare);
	if (kept == 0)
		printf("0 0 0 0\n");
	else
		printf("%u %.0f %.0f %.0f\n", n, samples->us[kept / 2],
			   samples->us[kept * 99ULL / 100], samples->us[kept - 1]);
}

static unsigned int
sum(Count count)
{
	unsigned int total = 0;

	for (int i = 0; i < atomic_load(&fleet->servers); i++)
		total += atomic_load(&fleet->server[i].counted[count]);
	return total;
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	char line[256];
	sigset_t usr1;

	if (argc != 3)
		fatal("usage: fleet HOSTS TIMEOUT_MS");
	hosts = argv[1];
	timeout_ms = atoi(argv[2]);
	parent = getpid();
	fleet = mmap(NULL, sizeof(Fleet), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				 -1, 0);
	children = calloc(MAX_CHILDREN, sizeof(pid_t));
	if (fleet == MAP_FAILED || children == NULL)
		fatal("out of memory");

	/* heeded in wait_for alone */
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &no_signals);

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		char order[16];
		int n = 0;

		if (sscanf(line, "%15s %d", order, &n) < 1)
			continue;
		if (strcmp(order, "grow") == 0)
			grow(n);
		else if (strcmp(order, "hold") == 0)
			hold(n);
		else if (strcmp(order, "turns") == 0)
		{
			atomic_store(&fleet->turns, n);
			tell();
			printf("0\n");
		}
		else if (strcmp(order, "writes") == 0)
		{
			atomic_store(&fleet->writes, n);
			tell();
			printf("0\n");
		}
		else if (strcmp(order, "cut") == 0)
		{
			atomic_fetch_add(&fleet->cuts, 1);
			tell();
			printf("0\n");
		}
		else if (strcmp(order, "locks") == 0)
			report(&fleet->locks);
		else if (strcmp(order, "proven") == 0)
			proven(n);
		else if (strcmp(order, "proofs") == 0)
			proofs();
		else if (strcmp(order, "leases") == 0)
			printf("%d\n", count_leases(false));
		else if (strcmp(order, "sessions") == 0)
			printf("%u\n", sum(SESSIONS));
		else if (strcmp(order, "beats") == 0)
			printf("%u\n", sum(BEATS));
		else if (strcmp(order, "probe") == 0)
		{
			fork_child(run_probe, n);
			printf("0\n");
		}
		else if (strcmp(order, "probed") == 0)
			report(&fleet->probes);
		else if (strcmp(order, "flood") == 0)
		{
			atomic_store(&fleet->flood, n > 0);
			for (int i = 0; i < n; i++)
				fork_child(run_flood, i);
			printf("0\n");
		}
		else
			fatal("unknown order \"%s\"", order);
	}
	/* their sessions end with their timeouts: the ensemble goes, too */
	for (int i = 0; i < nchildren; i++)
		kill(children[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return 0;
}
