/*-------------------------------------------------------------------------
 *
 * test_client.c
 *	  Tests of client.c against a real ZooKeeper; TAP on standard output.
 *
 * The connect string comes from the environment variable ZK_HOSTS, the limit of all
 * waits, in seconds, from PG_TEST_TIMEOUT_DEFAULT (test/perl/Wait.pm).  Where a
 * test must hold, lose or cut what goes over the wire, the client connects
 * through a small proxy in a process of its own.  A second process that leaves a session
 * behind is this program again, with the argument "leave".
 *
 *-------------------------------------------------------------------------
 */
#include "client.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#define SESSION_TIMEOUT 60000	/* ms */
#define SHORT_TIMEOUT	6000	/* ms; a client that is silent for a third of it pings */
#define LONG_TIMEOUT	3600000 /* ms */
/* An attempt to connect that is not answered ends after two thirds of it, and is not to. */
#define LEAVE_TIMEOUT 30000 /* ms */

static int patience = 3600000; /* ms until a test gives up */
static int ntests = 0;
static int nfailed = 0;
static char base[64]; /* directory of this run */

/* ---------------------------------------------------------------------
 * TAP
 * ---------------------------------------------------------------------
 */
static bool __attribute__((format(printf, 2, 3))) ok(bool success, const char *format, ...)
{
	va_list args;

	/* for what has no limit of its own; longer, since those can say more */
	alarm(2 * (unsigned int) (patience / 1000));
	printf("%sok %d - ", success ? "" : "not ", ++ntests);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (!success)
		nfailed++;
	return success;
}

static void
bail_out(const char *why)
{
	printf("Bail out! %s\n", why);
	exit(1);
}

static void
too_long(int signal)
{
	static const char why[] = "Bail out! waited in vain for what follows the last test\n";

	(void) signal;
	_exit(write(STDOUT_FILENO, why, sizeof(why) - 1) > 0 ? 1 : 2);
}

/* ---------------------------------------------------------------------
 * The proxy.  One connection at a time; commands on a socket pair, each
 * answered when it is done by an int.
 * ---------------------------------------------------------------------
 */
typedef enum ProxyCommand
{
	PROXY_HOLD = 'h',	/* keep what the client sends */
	PROXY_HELD = 'n',	/* number of whole packets kept */
	PROXY_PASS = 'p',	/* send what was kept, pass everything */
	PROXY_MUTE = 'm',	/* throw away what the server sends */
	PROXY_GARBLE = 'g', /* give the next reply the number of another request */
	PROXY_READ = 'r',	/* have the next session be of a server that can be read alone */
	PROXY_CUT = 'c',	/* close the connection, accept new ones */
	PROXY_SILENCE = 's' /* ... and keep what they send */
} ProxyCommand;

static int proxy_fd;
static int proxy_port;
static pid_t proxy_pid;

static bool
send_all(int fd, const char *data, size_t len)
{
	while (len > 0)
	{
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t) n;
	}
	return true;
}

static int
count_packets(const char *data, size_t len)
{
	int n = 0;

	while (len >= 4)
	{
		uint32_t size;

		memcpy(&size, data, 4);
		size = ntohl(size);
		if (len < 4 + (size_t) size)
			break;
		data += 4 + size;
		len -= 4 + size;
		n++;
	}
	return n;
}

static void
proxy_main(int listener, int control, const struct sockaddr *server, socklen_t server_len)
{
	static char held[1 << 20];
	size_t nheld = 0;
	bool hold = false;
	bool mute = false;
	bool garble = false;
	bool read_only = false;
	int up = -1;
	int down = -1;

	for (;;)
	{
		struct pollfd fds[4] = {{control, POLLIN, 0},
								{down < 0 ? listener : -1, POLLIN, 0},
								{down, POLLIN, 0},
								{up, POLLIN, 0}};
		char buf[65536];
		bool close_both = false;

		if (poll(fds, 4, -1) < 0)
			_exit(1);
		if (fds[2].revents)
		{
			ssize_t n = recv(down, buf, sizeof(buf), 0);

			if (n <= 0)
				close_both = true;
			else if (hold && nheld + (size_t) n <= sizeof(held))
			{
				memcpy(held + nheld, buf, (size_t) n);
				nheld += (size_t) n;
			}
			else if (!send_all(up, buf, (size_t) n))
				close_both = true;
		}
		if (fds[3].revents)
		{
			ssize_t n = recv(up, buf, sizeof(buf), 0);

			/* not that of a ping, which is negative */
			if (garble && n >= 8 && (buf[4] & 0x80) == 0)
			{
				buf[5] ^= 0x10;
				garble = false;
			}
			/* the last byte of what answers a handshake */
			if (read_only && n == 41)
			{
				buf[40] = 1;
				read_only = false;
			}
			if (n <= 0)
				close_both = true;
			else if (!mute && !send_all(down, buf, (size_t) n))
				close_both = true;
		}
		if (fds[1].revents)
		{
			int one = 1;

			down = accept(listener, NULL, NULL);
			up = socket(server->sa_family, SOCK_STREAM, 0);
			if (up < 0 || connect(up, server, server_len) < 0)
				close_both = true;
			else
			{
				setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				setsockopt(down, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			}
		}
		if (fds[0].revents)
		{
			char command;
			int answer = 0;

			if (read(control, &command, 1) != 1)
				_exit(0);
			switch ((ProxyCommand) command)
			{
				case PROXY_HOLD:
					hold = true;
					break;
				case PROXY_HELD:
					answer = count_packets(held, nheld);
					break;
				case PROXY_PASS:
					if (!send_all(up, held, nheld))
						close_both = true;
					nheld = 0;
					hold = false;
					mute = false;
					break;
				case PROXY_MUTE:
					mute = true;
					break;
				case PROXY_GARBLE:
					garble = true;
					break;
				case PROXY_READ:
					read_only = true;
					break;
				case PROXY_CUT:
				case PROXY_SILENCE:
					close_both = true;
					break;
			}
			if (close_both)
			{
				close(up);
				close(down);
				up = down = -1;
				close_both = false;
				nheld = 0;
				mute = false;
				hold = command == PROXY_SILENCE;
			}
			if (write(control, &answer, sizeof(answer)) != sizeof(answer))
				_exit(1);
		}
		if (close_both)
		{
			close(up);
			close(down);
			up = down = -1;
			nheld = 0;
			hold = mute = false;
		}
	}
}

/* Start the proxy in front of the first server of "hosts". */
static void
proxy_start(const char *hosts)
{
	char host[256];
	char *colon;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *server;
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);
	int pair[2];
	int listener;

	snprintf(host, sizeof(host), "%.*s", (int) strcspn(hosts, ",/"), hosts);
	colon = strrchr(host, ':');
	if (colon == NULL)
		bail_out("no port in ZK_HOSTS");
	*colon = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &server) != 0)
		bail_out("cannot resolve ZK_HOSTS");

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *) &address, len) < 0 ||
		listen(listener, 10) < 0 ||
		getsockname(listener, (struct sockaddr *) &address, &len) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		bail_out("cannot set up the proxy");
	proxy_port = ntohs(address.sin_port);
	proxy_fd = pair[0];
	switch (proxy_pid = fork())
	{
		case -1:
			bail_out("cannot fork");
			break;
		case 0:
			close(pair[0]);
			proxy_main(listener, pair[1], server->ai_addr, server->ai_addrlen);
			_exit(0);
		default:
			close(pair[1]);
			close(listener);
			freeaddrinfo(server);
	}
}

static int
proxy(ProxyCommand command)
{
	char byte = (char) command;
	int answer = 0;

	if (write(proxy_fd, &byte, 1) != 1 ||
		read(proxy_fd, &answer, sizeof(answer)) != sizeof(answer))
		bail_out("the proxy is gone");
	return answer;
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */
static void
pause_ms(int ms)
{
	poll(NULL, 0, ms);
}

/* Wait until the proxy has so many packets of what was asked; how many it has. */
static int
await_held(ZkClient *client, int n)
{
	int held;

	while ((held = proxy(PROXY_HELD)) < n)
	{
		zklock_client_fd(client);
		pause_ms(10);
	}
	return held;
}

/* Wait until the proxy has noticed that who asked has hung up, and has nothing of his. */
static bool
await_none_held(void)
{
	int64_t end = zklock_clock() + (int64_t) patience * 1000000;

	while (proxy(PROXY_HELD) > 0 && zklock_clock() < end)
		pause_ms(10);
	return proxy(PROXY_HELD) == 0;
}

/* The next message, log lines too; NULL after "timeout" ms. */
static ZkMessage *
next_any(ZkClient *client, int timeout)
{
	int64_t end = zklock_clock() + (int64_t) timeout * 1000000;

	for (;;)
	{
		ZkMessage *message = zklock_client_receive(client);
		struct pollfd fd = {zklock_client_fd(client), POLLIN, 0};
		int64_t left = (end - zklock_clock()) / 1000000;

		if (message != NULL)
			return message;
		if (left <= 0)
			return NULL;
		poll(&fd, 1, (int) left);
	}
}

/* The next message that is no log line; NULL if none comes. */
static ZkMessage *
next_message(ZkClient *client)
{
	int64_t end = zklock_clock() + (int64_t) patience * 1000000;

	for (;;)
	{
		int left = (int) ((end - zklock_clock()) / 1000000);
		ZkMessage *message = left > 0 ? next_any(client, left) : NULL;

		if (message == NULL)
			return NULL;
		if (message->type != ZKLOCK_MSG_LOG)
			return message;
		if (getenv("VERBOSE") != NULL)
			printf("# log %d: %s\n", message->level, message->data);
		zklock_client_free_message(message);
	}
}

/* As above, and it must be of this type; else a failed test and NULL. */
static ZkMessage *
expect(ZkClient *client, ZkMessageType type, const char *what)
{
	ZkMessage *message = next_message(client);

	if (message == NULL)
		ok(false, "%s: no message of type %d in %d ms", what, type, patience);
	else if (message->type != type)
	{
		ok(false, "%s: expected type %d, got %d with code %d", what, type, message->type,
		   message->rc);
		zklock_client_free_message(message);
		message = NULL;
	}
	return message;
}

/* A message of which only type and code matter. */
static bool
expect_rc(ZkClient *client, ZkMessageType type, int rc, const char *what)
{
	ZkMessage *message = expect(client, type, what);
	bool good;

	if (message == NULL)
		return false;
	good = ok(message->rc == rc, "%s (code %d)", what, message->rc);
	zklock_client_free_message(message);
	return good;
}

static ZkClient *
open_client_timeout(const char *hosts, int timeout, const ZkSessionId *resume,
					const char *what)
{
	char error[200];
	ZkClient *client =
		zklock_client_open(hosts, timeout, resume, NULL, error, sizeof(error));

	if (client == NULL)
	{
		printf("# %s: %s\n", what, error);
		bail_out("cannot open");
	}
	return client;
}

static ZkClient *
open_client(const char *hosts, const ZkSessionId *resume, const char *what)
{
	return open_client_timeout(hosts, SESSION_TIMEOUT, resume, what);
}

static ZkClient *
connect_client(const char *hosts, const ZkSessionId *resume, const char *what)
{
	ZkClient *client = open_client(hosts, resume, what);

	if (!expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, what))
		bail_out("cannot connect");
	return client;
}

static ZkRequestTag
tag(uint32_t kind)
{
	ZkRequestTag t = {.kind = kind,
					  .entry = 0x80000000u + kind,
					  .generation = 0xfffffff0u + (kind & 15),
					  .uuid = UINT64_C(0xfedcba9876543210) ^ kind,
					  .hash = UINT64_C(0x0123456789abcdef) + kind};

	return t;
}

static bool
has_tag(const ZkMessage *message, uint32_t kind)
{
	ZkRequestTag t = tag(kind);

	return message->tag.kind == t.kind && message->tag.entry == t.entry &&
		message->tag.generation == t.generation && message->tag.uuid == t.uuid &&
		message->tag.hash == t.hash;
}

static bool
listed(const ZkMessage *message, const char *name)
{
	for (int i = 0; i < message->nchildren; i++)
		if (strcmp(message->children[i], name) == 0)
			return true;
	return false;
}

static const char *
last_part(const char *path)
{
	return strrchr(path, '/') + 1;
}

/*
 * Close, which waits for nobody.  Half of what a server that is silent, or a pause
 * between two attempts, might make it wait is ages for it, even on a slow machine.
 */
static void
close_quickly(ZkClient *client, const char *what)
{
	int64_t start = zklock_clock();
	int ms;

	zklock_client_close(client);
	ms = (int) ((zklock_clock() - start) / 1000000);
	ok(ms < SESSION_TIMEOUT / 2, "%s: closed in %d ms", what, ms);
}

/* Is there such a node? */
static bool
exists(ZkClient *client, const char *path)
{
	ZkRequestTag t = tag(2);
	ZkMessage *message;
	bool there;

	zklock_client_get(client, path, false, &t);
	message = next_message(client);
	there = message != NULL && message->type == ZKLOCK_MSG_GOT && message->rc == ZKLOCK_ZOK;
	zklock_client_free_message(message);
	return there;
}

/* The session that has this node is closed, and does not wait for its timeout. */
static void
expect_closed(ZkClient *other, const char *path, int64_t start, const char *what)
{
	int ms;

	do
		ms = (int) ((zklock_clock() - start) / 1000000);
	while (exists(other, path) && ms < SESSION_TIMEOUT / 2);
	ok(ms < SESSION_TIMEOUT / 2, "%s (%d ms)", what, ms);
}

/* Have one client watch a node that another one makes. */
static void
watch_node(ZkClient *watcher, ZkClient *other, const char *path)
{
	ZkRequestTag t = tag(1);

	zklock_client_create(other, path, "1", 1, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(other, ZKLOCK_MSG_CREATED, 0, "node");
	zklock_client_get(watcher, path, true, &t);
	expect_rc(watcher, ZKLOCK_MSG_GOT, 0, "get with watch");
}

/* ---------------------------------------------------------------------
 * Tests
 * ---------------------------------------------------------------------
 */

/* The entries of a directory that are numbers. */
static int
count_numbers(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		n += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
	if (dir != NULL)
		closedir(dir);
	return n;
}

static int
threads(void)
{
	return count_numbers("/proc/self/task");
}

static int
descriptors(void)
{
	return count_numbers("/proc/self/fd");
}

/* What a thread leaves to do when it has said that it ends takes it a moment. */
static void
await_threads(int n, const char *what)
{
	int64_t start = zklock_clock();

	while (threads() != n && zklock_clock() - start < INT64_C(1000000) * patience)
		pause_ms(1);
	ok(threads() == n, "%s", what);
}

static bool
has_threads(void)
{
	return strstr(zklock_client_library(), "_mt") != NULL;
}

/* Threads of this process that would take a signal. */
static int
signalled_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int n = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
	{
		char path[300];
		char line[200];
		unsigned long long blocked = 0;
		FILE *status;

		if (atoi(entry->d_name) <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		status = fopen(path, "r");
		while (status != NULL && fgets(line, sizeof(line), status) != NULL)
			if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
				break;
		if (status != NULL)
			fclose(status);
		n += (blocked & (1ULL << (SIGTERM - 1))) == 0;
	}
	if (dir != NULL)
		closedir(dir);
	return n;
}

/* ---------------------------------------------------------------------
 * A library that is not as we know it: what the one with threads calls is found here first.
 * ---------------------------------------------------------------------
 */
static bool hide_start = false;
static bool move_pipe = false;
static bool no_pipe = false;

/* Its own function, which is in no header.  All that it logs goes by here. */
extern void log_message(log_callback_fn callback, ZooLogLevel level, int line,
						const char *function, const char *format, ...);

void
log_message(log_callback_fn callback, ZooLogLevel level, int line, const char *function,
			const char *format, ...)
{
	static const char *const names[] = {"", "ERROR", "WARN", "INFO", "DEBUG"};
	char text[4096];
	int n;
	va_list args;

	if (callback == NULL || (hide_start && strstr(format, "started IO thread") != NULL))
		return;
	n = snprintf(text, sizeof(text), "0:0:ZOO_%s@%s@%d: ", names[level], function, line);
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - (size_t) n, format, args);
	va_end(args);
	callback(text);
}

int
pipe(int fds[2])
{
	if ((no_pipe ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe2(fds, 0)) != 0)
		return -1;
	for (int i = 0; i < 2 && move_pipe; i++)
	{
		int moved = fcntl(fds[i], F_DUPFD, 100);

		close(fds[i]);
		fds[i] = moved;
	}
	return 0;
}

static void
expect_refusal(const char *hosts, const char *what)
{
	int before[2] = {threads(), descriptors()};
	char error[300] = "";
	ZkClient *client =
		zklock_client_open(hosts, SESSION_TIMEOUT, NULL, NULL, error, sizeof(error));

	ok(client == NULL && errno == ENOSYS && strstr(error, what) != NULL, "refused: %s",
	   error);
	ok(strstr(error, "install libzookeeper_st") != NULL,
	   "... and what can be done about it");
	await_threads(before[0], "... and no thread is left");
	ok(descriptors() == before[1], "... nor a descriptor");
}

static bool works(ZkClient *client);

static void
test_library(const char *hosts)
{
	const char *version = strchr(zklock_client_library(), ' ');
	ZkClient *client = connect_client(hosts, NULL, zklock_client_library());
	int before;
	int fds;

	/* what is made once for all clients, also by a sanitizer, is there now */
	zklock_client_close(client);
	before = threads();
	client = connect_client(hosts, NULL, "another one");
	ok(version != NULL && atoi(version + 1) >= 3, "the library has a version");
	ok(threads() == before + (has_threads() ? 2 : 0), "threads are made: %d",
	   threads() - before);
	ok(signalled_threads() == 1, "... none of which takes a signal");
	close_quickly(client, "connected");
	await_threads(before, "... and none is left");

	fds = descriptors();
	for (int i = 0; i < 1000; i++)
	{
		char error[300];
		ZkClient *one =
			zklock_client_open(hosts, SESSION_TIMEOUT, NULL, NULL, error, sizeof(error));

		if (one == NULL)
			bail_out(error);
		zklock_client_close(one);
	}
	await_threads(before, "after 1000 clients no thread is left");
	ok(descriptors() == fds, "... nor a descriptor");

	if (!has_threads())
		return;
	/* the library would abort; root has no such limit */
	if (geteuid() != 0)
	{
		struct rlimit limit;
		struct rlimit none;
		char error[300] = "";

		getrlimit(RLIMIT_NPROC, &limit);
		none = limit;
		none.rlim_cur = 1;
		setrlimit(RLIMIT_NPROC, &none);
		client =
			zklock_client_open(hosts, SESSION_TIMEOUT, NULL, NULL, error, sizeof(error));
		ok(client == NULL && errno == EAGAIN, "no thread can be made: %s", error);
		setrlimit(RLIMIT_NPROC, &limit);
	}
	hide_start = true;
	expect_refusal(hosts, "its I/O thread does not log that it has started");
	hide_start = false;
	move_pipe = true;
	client = connect_client(hosts, NULL, "the pipe may be anywhere");
	ok(works(client), "... where it is found");
	zklock_client_close(client);
	move_pipe = false;
	no_pipe = true;
	expect_refusal(hosts, "there is no pipe that wakes its I/O thread");
	no_pipe = false;
}

/* The library with threads writes a byte for each request into a pipe of 64 kB. */
static void
test_many(const char *hosts)
{
	enum
	{
		N = 70000,
		AT_A_TIME = 1000
	};
	char error[300] = "";
	ZkClient *client =
		zklock_client_open(hosts, SHORT_TIMEOUT, NULL, NULL, error, sizeof(error));
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	int good = 0;
	bool pinged = false;

	if (client == NULL)
		bail_out(error);
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "a client that asks much");
	for (int i = 0; i < N; i += AT_A_TIME)
	{
		for (int j = 0; j < AT_A_TIME; j++)
			zklock_client_sync(client, "/", &t);
		for (int j = 0; j < AT_A_TIME; j++)
		{
			message = expect(client, ZKLOCK_MSG_SYNCED, "one of many");
			good += message != NULL && message->rc == 0;
			zklock_client_free_message(message);
		}
	}
	ok(good == N, "%d requests are answered", good);
	zklock_client_log_debug(true);
	while (!pinged && (message = next_any(client, patience)) != NULL)
	{
		pinged = message->type == ZKLOCK_MSG_LOG &&
			strstr(message->data, "Got ping response") != NULL;
		zklock_client_free_message(message);
	}
	zklock_client_log_debug(false);
	ok(pinged, "... and then a ping");
	ok(zklock_client_connected(client), "... on the same connection");
	zklock_client_close(client);
}

static void
test_session(const char *hosts)
{
	int64_t opened;
	ZkClient *client;
	ZkSessionId session;
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	char server[128];
	int timeout = 0;
	bool known;
	int rc;

	opened = zklock_clock();
	client = open_client(hosts, NULL, "session");
	ok(!zklock_client_session(client, &session, &timeout) &&
		   !zklock_client_connected(client),
	   "no session without a connection");
	rc = zklock_client_sync(client, "/", &t);
	ok(rc == ZKLOCK_ZCONNECTIONLOSS, "a request before CONNECTED is refused (%s)",
	   zklock_rc_text(rc));
	message = expect(client, ZKLOCK_MSG_CONNECTED, "connected");
	if (message != NULL)
		ok(message->sent_at > opened && message->sent_at < message->received_at,
		   "asked for after it was opened, %d us before the answer",
		   (int) ((message->received_at - message->sent_at) / 1000));
	zklock_client_free_message(message);
	ok(zklock_client_connected(client), "and says so");
	known = zklock_client_session(client, &session, &timeout);
	ok(known && session.id != 0 && timeout == SESSION_TIMEOUT,
	   "session %#llx, timeout %d ms", (unsigned long long) session.id, timeout);
	zklock_client_server(client, server, sizeof(server));
	ok(strchr(server, ':') != NULL, "server %s", server);

	rc = zklock_client_create(client, "no slash", "", 0, ZKLOCK_CREATE_PERSISTENT, &t);
	ok(rc < 0, "a bad path is refused (%s)", zklock_rc_text(rc));
	ok(zklock_client_sync(client, "/", &t) == ZKLOCK_ZOK, "sync");
	message = expect(client, ZKLOCK_MSG_SYNCED, "and nothing before its reply");
	if (message != NULL)
		ok(message->rc == 0 && has_tag(message, 1) && message->sent_at > 0 &&
			   message->received_at > message->sent_at,
		   "synced in %d us", (int) ((message->received_at - message->sent_at) / 1000));
	zklock_client_free_message(message);

	zklock_client_close_begin(client);
	while (!zklock_client_close_end(client))
		usleep(1000);
	client = open_client(hosts, &session, "closed");
	expect_rc(client, ZKLOCK_MSG_EXPIRED, 0, "the session was closed");
	zklock_client_close(client);
}

/*
 * What a client has heard when it hangs up it must not hang up on: the server would be
 * told so by a reset, which may overtake the request to close the session.
 */
static void
test_close(const char *hosts, const char *proxied)
{
	ZkClient *b = connect_client(hosts, NULL, "a client that stays");
	ZkClient *a = connect_client(proxied, NULL, "a client to be closed");
	ZkRequestTag t = tag(1);
	int64_t start;
	char path[128];
	char watched[128];

	snprintf(path, sizeof(path), "%s/of-session", base);
	snprintf(watched, sizeof(watched), "%s/watched", base);
	zklock_client_create(a, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(a, ZKLOCK_MSG_CREATED, 0, "... a node");
	watch_node(a, b, watched);

	start = zklock_clock();
	proxy(PROXY_HOLD);
	zklock_client_close_begin(a);
	while (proxy(PROXY_HELD) < 1)
		pause_ms(10);
	zklock_client_set(b, watched, "2", 1, -1, &t);
	expect_rc(b, ZKLOCK_MSG_SET, 0, "the watch fires before the ensemble hears of that");
	pause_ms(200);
	proxy(PROXY_PASS);
	while (!zklock_client_close_end(a))
		pause_ms(1);
	expect_closed(b, path, start, "the session is closed");
	zklock_client_close(b);
}

/* What the socket does not take when a client is closed goes out before the close request. */
static void
test_close_backlog(const char *hosts, const char *proxied)
{
	enum
	{
		LARGE = 900000,
		N = 12
	};
	ZkClient *b = connect_client(hosts, NULL, "a client that stays");
	ZkClient *a =
		connect_client(proxied, NULL, "a client to be closed that has much to say");
	ZkRequestTag t = tag(1);
	char *data = calloc(1, LARGE);
	int64_t start;
	int ms;
	char path[128];

	snprintf(path, sizeof(path), "%s/of-session", base);
	zklock_client_create(a, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(a, ZKLOCK_MSG_CREATED, 0, "... a node");
	kill(proxy_pid, SIGSTOP);
	start = zklock_clock();
	for (int i = 0; i < N; i++)
		zklock_client_set(a, path, data, LARGE, -1, &t);
	zklock_client_close_begin(a);
	ms = (int) ((zklock_clock() - start) / 1000000);
	ok(ms < SESSION_TIMEOUT / 2, "... is closed without a wait (%d ms)", ms);
	kill(proxy_pid, SIGCONT);
	while (!zklock_client_close_end(a))
		pause_ms(1);
	expect_closed(b, path, start, "the session is closed after all that");
	free(data);
	zklock_client_close(b);
}

static void
heed(int signum)
{
	(void) signum;
}

/* Signal the thread that closes while its close request is kept back; then let it pass. */
static void *
thread_signals(void *closing)
{
	while (proxy(PROXY_HELD) < 1)
		pause_ms(10);
	for (int i = 0; i < 20; i++)
	{
		pthread_kill(*(pthread_t *) closing, SIGUSR1);
		pause_ms(10);
	}
	proxy(PROXY_PASS);
	return NULL;
}

/*
 * A signal must not end the wait for the server's answer.  A client that hangs up then
 * may be told a moment later what it did not wait for, and the reset that this brings may
 * overtake the request to close the session.  The proxy drops what it has kept when the
 * client hangs up.
 */
static void
test_close_signals(const char *hosts, const char *proxied)
{
	ZkClient *b = connect_client(hosts, NULL, "a client that stays");
	ZkClient *a = connect_client(proxied, NULL, "a client to be closed, and signalled");
	struct sigaction action = {.sa_handler = heed};
	ZkRequestTag t = tag(1);
	pthread_t main_thread = pthread_self();
	pthread_t thread;
	int64_t start;
	char path[128];

	snprintf(path, sizeof(path), "%s/of-session", base);
	zklock_client_create(a, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(a, ZKLOCK_MSG_CREATED, 0, "... a node");

	sigaction(SIGUSR1, &action, NULL);
	start = zklock_clock();
	proxy(PROXY_HOLD);
	if (pthread_create(&thread, NULL, thread_signals, &main_thread) != 0)
		bail_out("no thread");
	zklock_client_close(a);
	pthread_join(thread, NULL);
	signal(SIGUSR1, SIG_DFL);
	expect_closed(b, path, start, "the session is closed, whatever the signals");
	zklock_client_close(b);
}

/* Directories, then contenders and listings pipelined. */
static void
test_requests(const char *proxied)
{
	enum
	{
		N = 100
	};
	ZkClient *client = connect_client(proxied, NULL, "requests");
	ZkSessionId session;
	ZkRequestTag t;
	ZkMessage *created[N];
	ZkMessage *message;
	char dir[128];
	char path[256];
	int npackets = 0;
	int bad = 0;
	int64_t czxid = 0;
	bool good = true;

	zklock_client_session(client, &session, NULL);

	t = tag(1);
	zklock_client_create(client, base, "", 0, ZKLOCK_CREATE_PERSISTENT, &t);
	message = expect(client, ZKLOCK_MSG_CREATED, "persistent");
	ok(message != NULL && message->rc == 0 && strcmp(message->path, base) == 0,
	   "persistent directory");
	zklock_client_free_message(message);

	snprintf(dir, sizeof(dir), "%s/dir", base);
	t = tag(2);
	zklock_client_create(client, dir, "d\0ta", 4, ZKLOCK_CREATE_CONTAINER, &t);
	message = expect(client, ZKLOCK_MSG_CREATED, "container");
	ok(message != NULL && message->rc == 0 && has_tag(message, 2) &&
		   strcmp(message->path, dir) == 0 && message->czxid > 0 &&
		   message->ephemeral_owner != session.id,
	   "container: path, czxid %#llx, owner %#llx",
	   message != NULL ? (unsigned long long) message->czxid : 0,
	   message != NULL ? (unsigned long long) message->ephemeral_owner : 0);
	if (message != NULL)
		czxid = message->czxid;
	zklock_client_free_message(message);

	zklock_client_create(client, dir, "", 0, ZKLOCK_CREATE_CONTAINER, &t);
	expect_rc(client, ZKLOCK_MSG_CREATED, ZKLOCK_ZNODEEXISTS, "again: exists");

	t = tag(3);
	zklock_client_get(client, dir, false, &t);
	message = expect(client, ZKLOCK_MSG_GOT, "get");
	ok(message != NULL && message->rc == 0 && has_tag(message, 3) &&
		   message->czxid == czxid && message->datalen == 4 &&
		   memcmp(message->data, "d\0ta", 5) == 0,
	   "get: data with a NUL in it, a NUL behind it, same czxid");
	zklock_client_free_message(message);

	/* The proxy has both packets before the first answer can exist. */
	snprintf(path, sizeof(path), "%s/_c_x-lock-", dir);
	proxy(PROXY_HOLD);
	t = tag(4);
	zklock_client_create(client, path, "{}", 2, ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL, &t);
	t = tag(5);
	zklock_client_list(client, dir, false, &t);
	npackets = await_held(client, 2);
	proxy(PROXY_PASS);
	ok(npackets == 2, "create and listing leave together: %d packets", npackets);
	created[0] = expect(client, ZKLOCK_MSG_CREATED, "pipelined create");
	message = expect(client, ZKLOCK_MSG_LISTED, "pipelined listing");
	ok(created[0] != NULL && created[0]->rc == 0 && has_tag(created[0], 4) &&
		   strcmp(last_part(created[0]->path), "_c_x-lock-0000000000") == 0 &&
		   created[0]->czxid > czxid && created[0]->ephemeral_owner == session.id,
	   "contender: sequence number, later czxid, owner");
	ok(message != NULL && message->rc == 0 && has_tag(message, 5) &&
		   message->nchildren == 1 && listed(message, "_c_x-lock-0000000000"),
	   "the listing shows the contender created just before");
	zklock_client_free_message(message);

	for (int i = 1; i < N; i++)
	{
		t = tag(100 + (uint32_t) i);
		zklock_client_create(client, path, "{}", 2, ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL, &t);
		zklock_client_list(client, dir, false, &t);
	}
	for (int i = 1; i < N; i++)
	{
		created[i] = expect(client, ZKLOCK_MSG_CREATED, "one of many");
		message = expect(client, ZKLOCK_MSG_LISTED, "its listing");
		if (created[i] == NULL || created[i]->rc != 0 || message == NULL ||
			created[i - 1] == NULL || !has_tag(created[i], 100 + (uint32_t) i) ||
			!has_tag(message, 100 + (uint32_t) i) || message->nchildren != i + 1 ||
			message->ncreated != (uint32_t) i + 1 || message->zxid != created[i]->czxid ||
			!listed(message, last_part(created[i]->path)) ||
			created[i]->czxid <= created[i - 1]->czxid)
			bad++;
		zklock_client_free_message(message);
	}
	ok(bad == 0,
	   "%d creates and listings, each with its tag, in order, "
	   "czxids rising",
	   N - 1);

	/* a failed listing, and deletes */
	t = tag(6);
	snprintf(path, sizeof(path), "%s/absent", base);
	zklock_client_list(client, path, false, &t);
	expect_rc(client, ZKLOCK_MSG_LISTED, ZKLOCK_ZNONODE, "listing of nothing");
	zklock_client_set(client, path, "", 0, -1, &t);
	expect_rc(client, ZKLOCK_MSG_SET, ZKLOCK_ZNONODE, "set of nothing");
	for (int i = 0; i < N; i++)
	{
		t = tag((uint32_t) i);
		if (created[i] != NULL)
			zklock_client_delete(client, created[i]->path, &t);
	}
	for (int i = 0; i < N; i++)
	{
		if (created[i] == NULL)
			continue;
		message = expect(client, ZKLOCK_MSG_DELETED, "delete");
		good =
			good && message != NULL && message->rc == 0 && has_tag(message, (uint32_t) i);
		zklock_client_free_message(message);
	}
	ok(good, "deleted them all");
	zklock_client_list(client, dir, false, &t);
	message = expect(client, ZKLOCK_MSG_LISTED, "empty");
	ok(message != NULL && message->rc == 0 && message->nchildren == 0 &&
		   message->ncreated == N && message->zxid > created[N - 1]->czxid,
	   "empty listing, which still counts them, and says when the last one went");
	zklock_client_free_message(message);
	t = tag(7);
	zklock_client_delete(client, created[0] ? created[0]->path : dir, &t);
	expect_rc(client, ZKLOCK_MSG_DELETED, ZKLOCK_ZNONODE, "delete of nothing");

	for (int i = 0; i < N; i++)
		zklock_client_free_message(created[i]);
	zklock_client_close(client);
}

/* Several changes at once, or none of them. */
static void
test_multi(const char *hosts)
{
	ZkClient *client = connect_client(hosts, NULL, "multi");
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	char dir[128];
	char node[160];
	char lock[160];
	int64_t zxid;
	ZkOp ops[] = {
		{.type = ZKLOCK_OP_CREATE,
		 .path = lock,
		 .data = "{}",
		 .datalen = 2,
		 .mode = ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL},
		{.type = ZKLOCK_OP_CREATE,
		 .path = lock,
		 .data = "",
		 .datalen = 0,
		 .mode = ZKLOCK_CREATE_PERSISTENT_SEQUENTIAL},
		{.type = ZKLOCK_OP_SET, .path = node, .data = "new", .datalen = 3, .version = 0},
	};
	ZkOp ends[] = {
		{.type = ZKLOCK_OP_DELETE, .path = node, .version = -1},
		{.type = ZKLOCK_OP_DELETE, .path = lock, .version = -1},
	};

	snprintf(dir, sizeof(dir), "%s/multi", base);
	snprintf(node, sizeof(node), "%s/node", dir);
	snprintf(lock, sizeof(lock), "%s/lock-", dir);
	zklock_client_create(client, dir, "", 0, ZKLOCK_CREATE_PERSISTENT, &t);
	expect_rc(client, ZKLOCK_MSG_CREATED, 0, "directory of the multi");
	zklock_client_create(client, node, "old", 3, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(client, ZKLOCK_MSG_CREATED, 0, "node of the multi");

	t = tag(2);
	zklock_client_multi(client, ops, 3, &t);
	message = expect(client, ZKLOCK_MSG_MULTI, "multi");
	zxid = message != NULL ? message->zxid : 0;
	ok(message != NULL && message->rc == 0 && has_tag(message, 2) &&
		   message->nchildren == 3 && strcmp(message->children[0], "lock-0000000001") == 0 &&
		   strcmp(message->children[1], "lock-0000000002") == 0 &&
		   strcmp(message->children[2], "") == 0 && message->failed_op == -1,
	   "multi: the names of what it made");
	zklock_client_free_message(message);
	snprintf(lock, sizeof(lock), "%s/lock-0000000001", dir);
	zklock_client_get(client, lock, false, &t);
	message = expect(client, ZKLOCK_MSG_GOT, "what the multi made");
	ok(message != NULL && message->rc == 0 && message->czxid == zxid && zxid > 0,
	   "multi: the transaction's number is the czxid of what it made");
	zklock_client_free_message(message);

	/* the version is another by now */
	snprintf(lock, sizeof(lock), "%s/lock-", dir);
	zklock_client_multi(client, ops, 3, &t);
	message = expect(client, ZKLOCK_MSG_MULTI, "refused multi");
	ok(message != NULL && message->rc == ZKLOCK_ZBADVERSION && message->failed_op == 2 &&
		   message->nchildren == 0,
	   "multi: refused, for the sake of the third");
	zklock_client_free_message(message);
	snprintf(lock, sizeof(lock), "%s/absent", dir);
	zklock_client_multi(client, ends, 2, &t);
	message = expect(client, ZKLOCK_MSG_MULTI, "refused deletes");
	ok(message != NULL && message->rc == ZKLOCK_ZNONODE && message->failed_op == 1,
	   "multi: refused, for the sake of the second");
	zklock_client_free_message(message);
	zklock_client_list(client, dir, false, &t);
	message = expect(client, ZKLOCK_MSG_LISTED, "what is there after refusals");
	ok(message != NULL && message->nchildren == 3 && listed(message, "node"),
	   "multi: refused, it has changed nothing");
	zklock_client_free_message(message);

	/* all goes; nobody takes the reply to the last one */
	for (int i = 1; i <= 2; i++)
	{
		snprintf(lock, sizeof(lock), "%s/lock-000000000%d", dir, i);
		ends[1].path = i == 1 ? node : dir;
		ends[0].path = lock;
		zklock_client_multi(client, ends, 2, &t);
		expect_rc(client, ZKLOCK_MSG_MULTI, 0, "deletes");
	}
	zklock_client_multi(client, ops, 1, &t);
	zklock_client_close(client);
}

static void
test_watches(const char *hosts)
{
	ZkClient *a = connect_client(hosts, NULL, "watcher");
	ZkClient *b = connect_client(hosts, NULL, "other");
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	char path[128];
	char absent[128];

	snprintf(path, sizeof(path), "%s/watched", base);
	snprintf(absent, sizeof(absent), "%s/absent", base);

	watch_node(a, b, path);
	zklock_client_set(b, path, "2", 1, -1, &t);
	expect_rc(b, ZKLOCK_MSG_SET, 0, "set by the other");
	message = expect(a, ZKLOCK_MSG_NODE_CHANGED, "data change");
	ok(message != NULL && strcmp(message->path, path) == 0,
	   "data change seen, with its path");
	zklock_client_free_message(message);

	zklock_client_get(a, path, true, &t);
	expect_rc(a, ZKLOCK_MSG_GOT, 0, "get with a watch that is taken back");
	for (int i = 0; i < 2; i++)
	{
		zklock_client_unwatch(a, path, false, &t);
		expect_rc(a, ZKLOCK_MSG_UNWATCHED, 0, i == 0 ? "it is" : "there is none");
	}
	zklock_client_set(b, path, "2", 1, -1, &t);
	expect_rc(b, ZKLOCK_MSG_SET, 0, "set once more");
	zklock_client_sync(a, path, &t);
	expect_rc(a, ZKLOCK_MSG_SYNCED, 0, "nothing is heard of that");

	zklock_client_get(a, path, true, &t);
	message = expect(a, ZKLOCK_MSG_GOT, "get again");
	ok(message != NULL && message->datalen == 1 && message->data[0] == '2',
	   "watch set again");
	zklock_client_free_message(message);
	zklock_client_get(a, absent, true, &t);
	expect_rc(a, ZKLOCK_MSG_GOT, ZKLOCK_ZNONODE, "get with watch of nothing");
	zklock_client_create(b, absent, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(b, ZKLOCK_MSG_CREATED, 0, "which then appears");
	zklock_client_delete(b, path, &t);
	expect_rc(b, ZKLOCK_MSG_DELETED, 0, "delete by the other");
	message = expect(a, ZKLOCK_MSG_NODE_DELETED, "deletion");
	ok(message != NULL && strcmp(message->path, path) == 0,
	   "deletion seen, with its path, and no event from the absent one");
	zklock_client_free_message(message);

	/* the end of a session deletes its nodes, and fires watches */
	zklock_client_get(a, absent, true, &t);
	expect_rc(a, ZKLOCK_MSG_GOT, 0, "watch on an ephemeral node");
	zklock_client_close(b);
	message = expect(a, ZKLOCK_MSG_NODE_DELETED, "close of the owner");
	ok(message != NULL && strcmp(message->path, absent) == 0,
	   "the owner's close is seen as a deletion");
	zklock_client_free_message(message);
	zklock_client_close(a);
}

/* Does the descriptor become readable within "timeout" ms? */
static bool
readable(ZkClient *client, int timeout)
{
	struct pollfd fd = {zklock_client_fd(client), POLLIN, 0};

	return poll(&fd, 1, timeout) == 1;
}

/* All that there is. */
static void
drain(ZkClient *client)
{
	ZkMessage *message;

	while ((message = zklock_client_receive(client)) != NULL)
		zklock_client_free_message(message);
}

/* The descriptor says when there is something to receive, whoever looks when. */
static void
test_descriptor(const char *hosts)
{
	ZkClient *a = connect_client(hosts, NULL, "descriptor");
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	char path[128];

	snprintf(path, sizeof(path), "%s/readable", base);
	drain(a);
	ok(!readable(a, 0), "there is nothing");
	zklock_client_create(a, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	zklock_client_get(a, path, true, &t);
	ok(readable(a, patience), "an answer");
	while ((message = zklock_client_receive(a)) == NULL)
		readable(a, patience);
	ok(message->type == ZKLOCK_MSG_CREATED, "... is received");
	zklock_client_free_message(message);
	ok(readable(a, patience), "the next one, of which nothing was asked");
	expect_rc(a, ZKLOCK_MSG_GOT, 0, "get with a watch");
	/* the event and the reply are one after the other */
	zklock_client_delete(a, path, &t);
	expect_rc(a, ZKLOCK_MSG_NODE_DELETED, 0, "deleted");
	expect_rc(a, ZKLOCK_MSG_DELETED, 0, "... by us");
	drain(a);
	ok(!readable(a, 0), "there is nothing again");
	zklock_client_close(a);
}

/* A request of more bytes than the socket takes goes out when it does. */
static void
test_large(const char *proxied)
{
	enum
	{
		LARGE = 900000,
		N = 20
	};
	ZkClient *a = connect_client(proxied, NULL, "large requests");
	ZkRequestTag t = tag(1);
	char *data = calloc(1, LARGE);
	char path[128];
	bool good = true;

	snprintf(path, sizeof(path), "%s/large", base);
	zklock_client_create(a, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(a, ZKLOCK_MSG_CREATED, 0, "a node");
	for (int i = 0; i < N; i++)
		good = good && zklock_client_set(a, path, data, LARGE, -1, &t) == ZKLOCK_ZOK;
	for (int i = 0; i < N && good; i++)
		good = expect_rc(a, ZKLOCK_MSG_SET, 0, "a megabyte, almost");
	ok(good, "%d of them at once", N);
	free(data);
	close_quickly(a, "large requests");
}

/* Wait for a line of the library's log. */
static void
expect_line(ZkClient *client, const char *begin)
{
	ZkMessage *message;
	bool found = false;

	while (!found && (message = next_any(client, patience)) != NULL)
	{
		found = message->type == ZKLOCK_MSG_LOG &&
			strncmp(message->data, begin, strlen(begin)) == 0;
		zklock_client_free_message(message);
	}
	ok(found, "log: %s", begin);
}

/* Has a listing a child whose name begins so?  Others may go meanwhile: containers. */
static bool
has_child(const ZkMessage *message, const char *prefix)
{
	for (int i = 0; message != NULL && i < message->nchildren; i++)
	{
		if (strncmp(message->children[i], prefix, strlen(prefix)) == 0)
			return true;
	}
	return false;
}

/* What is open when the connection breaks is answered before CONNECTED. */
static void
test_loss(const char *hosts, const char *proxied)
{
	ZkClient *client = connect_client(proxied, NULL, "connection loss");
	ZkClient *other = connect_client(hosts, NULL, "observer");
	ZkRequestTag t;
	ZkMessage *message;
	ZkSessionId before;
	ZkSessionId after;
	char path[128];
	int64_t cut;
	bool arrived;

	zklock_client_session(client, &before, NULL);

	/* requests that never arrive */
	proxy(PROXY_HOLD);
	for (uint32_t i = 1; i <= 3; i++)
	{
		t = tag(i);
		zklock_client_sync(client, "/", &t);
	}
	await_held(client, 3);
	cut = zklock_clock();
	proxy(PROXY_CUT);
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "disconnected");
	ok(zklock_client_sync(client, "/", &t) == ZKLOCK_ZCONNECTIONLOSS,
	   "no request between DISCONNECTED and CONNECTED");
	for (uint32_t i = 1; i <= 3; i++)
	{
		message = expect(client, ZKLOCK_MSG_SYNCED, "lost reply");
		ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, i),
		   "lost request %u is answered", i);
		zklock_client_free_message(message);
	}
	message = expect(client, ZKLOCK_MSG_CONNECTED, "then connected");
	ok(message != NULL && message->sent_at > cut && message->sent_at < message->received_at,
	   "which was asked for after the loss, and before the answer");
	zklock_client_free_message(message);
	ok(zklock_client_session(client, &after, NULL) && after.id == before.id,
	   "to the same session");

	/* a create that arrives, and whose reply does not */
	snprintf(path, sizeof(path), "%s/replylost-", base);
	proxy(PROXY_MUTE);
	t = tag(4);
	zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL_SEQUENTIAL, &t);
	zklock_client_fd(client);
	do
	{
		zklock_client_list(other, base, false, &t);
		message = expect(other, ZKLOCK_MSG_LISTED, "the create arrives");
		arrived = message == NULL || has_child(message, "replylost-");
		zklock_client_free_message(message);
	} while (!arrived);
	zklock_client_close(other);
	proxy(PROXY_CUT);
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "cut after a create");
	expect_rc(client, ZKLOCK_MSG_CREATED, ZKLOCK_ZCONNECTIONLOSS, "reply lost");
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "connected again");
	zklock_client_sync(client, base, &t);
	zklock_client_list(client, base, false, &t);
	expect_rc(client, ZKLOCK_MSG_SYNCED, 0, "sync");
	message = expect(client, ZKLOCK_MSG_LISTED, "list");
	ok(has_child(message, "replylost-"), "sync and listing find the node");
	zklock_client_free_message(message);

	/* A request made when the library has lost the connection, before we have read of it:
	 * what it logs comes first. */
	proxy(PROXY_CUT);
	expect_line(client, "Socket");
	snprintf(path, sizeof(path), "%s/straddler", base);
	t = tag(5);
	ok(zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t) == ZKLOCK_ZOK,
	   "request between two connections");
	t = tag(6);
	ok(zklock_client_sync(client, "/", &t) == ZKLOCK_ZOK, "and another");
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "disconnected");
	message = expect(client, ZKLOCK_MSG_CREATED, "straddler");
	ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, 5) &&
		   message->path == NULL,
	   "first is answered as lost");
	zklock_client_free_message(message);
	message = expect(client, ZKLOCK_MSG_SYNCED, "straddler 2");
	ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, 6),
	   "so is the second");
	zklock_client_free_message(message);
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "then connected");
	t = tag(7);
	zklock_client_get(client, path, false, &t);
	message = expect(client, ZKLOCK_MSG_GOT, "no second answer");
	ok(message != NULL && message->rc == ZKLOCK_ZNONODE && has_tag(message, 7),
	   "it was not made, and nothing is answered twice");
	zklock_client_free_message(message);

	/*
	 * A request that cannot be sent: the library closes the socket and does not say so.
	 */
	proxy(PROXY_HOLD);
	t = tag(11);
	zklock_client_sync(client, "/", &t);
	await_held(client, 1);
	proxy(PROXY_CUT);
	for (uint32_t i = 12; i < 15; i++)
	{
		/* what the first one of these brings is a reset */
		t = tag(i);
		zklock_client_sync(client, "/", &t);
		zklock_client_fd(client);
		pause_ms(100);
	}
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "requests that cannot be sent");
	for (uint32_t i = 11; i < 15; i++)
	{
		message = expect(client, ZKLOCK_MSG_SYNCED, "request that was not sent");
		ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, i),
		   "request %u is answered as lost", i);
		zklock_client_free_message(message);
	}
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "then connected");
	t = tag(15);
	zklock_client_sync(client, "/", &t);
	expect_rc(client, ZKLOCK_MSG_SYNCED, 0, "... for good");

	/*
	 * A reply that is not the one that is due: the connection is broken, and the library
	 * makes up a code for all that is open.
	 */
	proxy(PROXY_GARBLE);
	snprintf(path, sizeof(path), "%s/garbled", base);
	t = tag(8);
	zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	t = tag(9);
	zklock_client_sync(client, "/", &t);
	message = expect(client, ZKLOCK_MSG_DAMAGED, "a reply with a wrong number");
	ok(message != NULL && strstr(message->data, "oldest request") != NULL, "... %s",
	   message != NULL ? message->data : "none");
	zklock_client_free_message(message);
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "... breaks the connection");
	message = expect(client, ZKLOCK_MSG_CREATED, "its request");
	ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, 8) &&
		   message->path == NULL,
	   "its request is answered as lost");
	zklock_client_free_message(message);
	message = expect(client, ZKLOCK_MSG_SYNCED, "the next one");
	ok(message != NULL && message->rc == ZKLOCK_ZCONNECTIONLOSS && has_tag(message, 9),
	   "so is the next one");
	zklock_client_free_message(message);
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "then connected");
	t = tag(10);
	zklock_client_get(client, path, false, &t);
	expect_rc(client, ZKLOCK_MSG_GOT, 0, "it was done all the same");

	/* close with requests open */
	proxy(PROXY_HOLD);
	for (int i = 0; i < 100; i++)
		zklock_client_list(client, base, false, &t);
	proxy(PROXY_CUT);
	close_quickly(client, "cut, 100 requests open");
}

/* Run as a second process: make a session with nodes, and leave. */
static int
leave_session(const char *hosts, const char *dir)
{
	ZkClient *client = open_client(hosts, NULL, "leave");
	ZkMessage *message = next_message(client);
	ZkSessionId session;
	ZkRequestTag t = tag(1);
	char path[256];

	snprintf(path, sizeof(path), "%s/left", dir);
	if (message == NULL || message->type != ZKLOCK_MSG_CONNECTED)
		return 1;
	zklock_client_free_message(message);
	zklock_client_create(client, path, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	message = next_message(client);
	if (message == NULL || message->rc != 0)
		return 1;
	zklock_client_free_message(message);
	zklock_client_session(client, &session, NULL);
	printf("%llx ", (unsigned long long) session.id);
	for (int i = 0; i < ZKLOCK_PASSWORD_LEN; i++)
		printf("%02x", (unsigned char) session.password[i]);
	printf("\n");
	fflush(stdout);
	_exit(0);
}

static void
test_resume(const char *hosts, const char *program)
{
	ZkSessionId left;
	ZkSessionId now;
	ZkClient *client;
	ZkMessage *message;
	ZkRequestTag t = tag(1);
	unsigned long long id = 0;
	char password[64] = "";
	char command[1024];
	char path[256];
	FILE *child;
	int n;

	snprintf(command, sizeof(command), "'%s' leave '%s' '%s'", program, hosts, base);
	child = popen(command, "r");
	n = child != NULL ? fscanf(child, "%llx %63s", &id, password) : 0;
	if (child != NULL)
		pclose(child);
	if (!ok(n == 2, "a process leaves session %#llx", id))
		return;
	left.id = (int64_t) id;
	for (int i = 0; i < ZKLOCK_PASSWORD_LEN; i++)
	{
		unsigned int byte;

		if (sscanf(password + 2 * i, "%2x", &byte) != 1)
			bail_out("bad password");
		left.password[i] = (char) byte;
	}

	client = connect_client(hosts, &left, "resume");
	zklock_client_session(client, &now, NULL);
	ok(now.id == left.id, "the same session");
	snprintf(path, sizeof(path), "%s/left", base);
	zklock_client_get(client, path, true, &t);
	message = expect(client, ZKLOCK_MSG_GOT, "node left");
	ok(message != NULL && message->rc == 0 && message->ephemeral_owner == left.id,
	   "its ephemeral node lives on");
	zklock_client_free_message(message);
	close_quickly(client, "resumed");

	client = connect_client(hosts, NULL, "new session");
	zklock_client_session(client, &now, NULL);
	ok(now.id != left.id, "a new session");
	zklock_client_get(client, path, false, &t);
	expect_rc(client, ZKLOCK_MSG_GOT, ZKLOCK_ZNONODE, "close has removed the node");
	zklock_client_close(client);

	client = open_client(hosts, &left, "resume what was closed");
	expect_rc(client, ZKLOCK_MSG_EXPIRED, 0, "resuming it gives EXPIRED");
	ok(!zklock_client_connected(client), "not connected");
	ok(zklock_client_sync(client, "/", &t) != ZKLOCK_ZOK, "takes no request");
	close_quickly(client, "expired");
}

/* A request of a client is answered, maybe on its next connection. */
static bool
works(ZkClient *client)
{
	ZkRequestTag t = tag(9);
	bool good;

	for (;;)
	{
		ZkMessage *message = NULL;

		if (zklock_client_sync(client, "/", &t) == ZKLOCK_ZOK)
			while ((message = next_message(client)) != NULL &&
				   message->type != ZKLOCK_MSG_SYNCED)
				zklock_client_free_message(message);
		else
			message = next_message(client);
		good = message != NULL && message->type == ZKLOCK_MSG_SYNCED && message->rc == 0;
		if (message == NULL || message->type == ZKLOCK_MSG_EXPIRED || good)
		{
			zklock_client_free_message(message);
			return good;
		}
		zklock_client_free_message(message);
	}
}

/* A server that would let us read alone, though we have not asked for one, is none. */
static void
test_read_only(const char *proxied)
{
	ZkClient *client;

	proxy(PROXY_READ);
	client = open_client(proxied, NULL, "read-only");
	expect_line(client, "session establishment complete");
	drain(client);
	ok(!zklock_client_connected(client), "connected to a server that can be read alone");
	proxy(PROXY_CUT);
	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, "... and then to another one");
	ok(works(client), "... which answers");
	close_quickly(client, "read-only");
}

/* What a client is doing that is left. */
typedef enum Attempt
{
	ATTEMPT_ASKED,	/* it has asked for the session, and has no answer */
	ATTEMPT_PAUSED, /* several have failed, and it pauses before the next */
	NATTEMPTS
} Attempt;

/* Wait until an attempt has reached the proxy, and asked for the session. */
static void
await_attempt(ZkClient *client)
{
	while (proxy(PROXY_HELD) < 1)
		zklock_client_free_message(next_any(client, 10));
}

/* Have attempts fail, until the pause before the next one is long. */
static void
fail_attempts(ZkClient *client)
{
	for (int i = 0; i < 6; i++)
	{
		await_attempt(client);
		proxy(PROXY_SILENCE);
		expect_line(client, "Socket");
	}
}

/* A client is left for another one, which has the session at once. */
static void
leave_for_another(const char *hosts, const char *proxied, Attempt attempt)
{
	static const char *const whats[NATTEMPTS] = {
		[ATTEMPT_ASKED] = "left, not connected",
		[ATTEMPT_PAUSED] = "left between two attempts",
	};
	const char *what = whats[attempt];
	ZkClient *client = open_client_timeout(proxied, LEAVE_TIMEOUT, NULL, what);
	ZkClient *next;
	ZkRequestTag t = tag(1);
	ZkSessionId session;
	ZkSessionId now;
	ZkMessage *message;
	char node[256];

	expect_rc(client, ZKLOCK_MSG_CONNECTED, 0, what);
	snprintf(node, sizeof(node), "%s/leave", base);
	zklock_client_create(client, node, "", 0, ZKLOCK_CREATE_EPHEMERAL, &t);
	expect_rc(client, ZKLOCK_MSG_CREATED, 0, "a session with a node");
	zklock_client_session(client, &session, NULL);
	ok(!zklock_client_leave(client), "a client that is connected is not left");

	proxy(PROXY_SILENCE);
	expect_rc(client, ZKLOCK_MSG_DISCONNECTED, 0, "silence");
	if (attempt == ATTEMPT_PAUSED)
		fail_attempts(client);
	else
		await_attempt(client);
	drain(client);
	ok(zklock_client_leave(client), "a client that is not connected is left");
	next = open_client_timeout(hosts, LEAVE_TIMEOUT, &session, what);
	expect_rc(next, ZKLOCK_MSG_CONNECTED, 0, "the next one connects");
	ok(zklock_client_session(next, &now, NULL) && now.id == session.id,
	   "... to the session");
	ok(await_none_held(), "%s: nothing is asked any more", what);
	ok(works(next), "... which the session survives");
	zklock_client_get(next, node, false, &t);
	message = expect(next, ZKLOCK_MSG_GOT, what);
	ok(message != NULL && message->rc == 0 && message->ephemeral_owner == session.id,
	   "... with its node");
	zklock_client_free_message(message);
	zklock_client_close(next);
}

static void
test_leave(const char *hosts, const char *proxied)
{
	for (int attempt = 0; attempt < NATTEMPTS; attempt++)
		leave_for_another(hosts, proxied, (Attempt) attempt);
}

/* Does the log say that there was an attempt at this host? */
static bool
is_refused(const ZkMessage *message, const char *host)
{
	return message->type == ZKLOCK_MSG_LOG && message->level == 1 &&
		strstr(message->data, host) != NULL &&
		strstr(message->data, "Connection refused") != NULL;
}

static void
drain_refused(ZkClient *client, const char *host, int *times)
{
	ZkMessage *message;

	while ((message = zklock_client_receive(client)) != NULL)
	{
		*times += is_refused(message, host);
		zklock_client_free_message(message);
	}
}

static void
test_unreachable(void)
{
	char error[300] = "";
	ZkClient *waits;
	int refused[2] = {0};
	char server[128];
	ZkClient *client;
	ZkMessage *message;
	bool found = false;
	int port;
	char hosts[64];
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	/* a port that is bound and not listening refuses */
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(sock, (struct sockaddr *) &address, len) < 0 ||
		getsockname(sock, (struct sockaddr *) &address, &len) < 0)
		bail_out("cannot bind");
	port = ntohs(address.sin_port);
	snprintf(hosts, sizeof(hosts), "127.0.0.1:%d", port);

	client = open_client_timeout(hosts, LONG_TIMEOUT, NULL, "unreachable");
	while (!found && (message = next_any(client, patience)) != NULL)
	{
		found = is_refused(message, hosts);
		if (found)
			ok(true, "log: %s", message->data);
		zklock_client_free_message(message);
	}
	if (!found)
		ok(false, "a log line names host and error");
	zklock_client_server(client, server, sizeof(server));
	ok(strcmp(server, hosts) == 0, "server tried is %s", server);
	close_quickly(client, "unreachable");

	/* two at a time: one of them is told to leave it to others */
	client = open_client_timeout(hosts, LONG_TIMEOUT, NULL, "many attempts");
	waits = open_client_timeout(hosts, LONG_TIMEOUT, NULL, "one attempt");
	zklock_client_spread(waits, LONG_TIMEOUT);
	while (refused[0] < 5 && readable(client, patience))
	{
		drain_refused(client, hosts, &refused[0]);
		if (readable(waits, 0))
			drain_refused(waits, hosts, &refused[1]);
	}
	ok(refused[0] >= 5, "attempts: %d", refused[0]);
	ok(refused[1] == 1, "... of a client that spreads them: %d", refused[1]);
	close_quickly(client, "unreachable");
	close_quickly(waits, "unreachable");

	close(sock);

	errno = 0;
	client = zklock_client_open("nosuchhost.invalid:2181", 1000, NULL, NULL, error,
								sizeof(error));
	ok(client == NULL && errno != 0 && error[0] != '\0',
	   "a name that does not resolve: \"%s\" (%s)", error, strerror(errno));
	client = zklock_client_open("", 1000, NULL, NULL, error, sizeof(error));
	ok(client == NULL && errno != 0 && error[0] != '\0',
	   "an empty connect string: \"%s\" (%s)", error, strerror(errno));
	client = zklock_client_open("127.0.0.1", 1000, NULL, NULL, error, sizeof(error));
	ok(client == NULL && error[0] != '\0', "no port: \"%s\"", error);
}

static void
clean_up(const char *hosts)
{
	ZkClient *client = connect_client(hosts, NULL, "clean up");
	ZkRequestTag t = tag(1);
	ZkMessage *message;
	char path[256];
	int n = 0;

	/* ephemeral nodes too: the session closed while cut off lives on a while */
	zklock_client_list(client, base, false, &t);
	message = expect(client, ZKLOCK_MSG_LISTED, "clean up");
	for (int i = 0; message != NULL && i < message->nchildren; i++, n++)
	{
		snprintf(path, sizeof(path), "%s/%s", base, message->children[i]);
		zklock_client_delete(client, path, &t);
	}
	zklock_client_free_message(message);
	while (n-- > 0)
		zklock_client_free_message(next_message(client));
	zklock_client_delete(client, base, &t);
	expect_rc(client, ZKLOCK_MSG_DELETED, 0, "no node is left");
	zklock_client_close(client);
}

/* What zk.c says of a return code is what the library says, for all that it knows. */
static void
test_texts(void)
{
	int different = 0;

	for (int rc = -1000; rc <= 0; rc++)
	{
		if (rc == ZKLOCK_ZQUOTAEXCEEDED || strcmp(zklock_rc_text(rc), zerror(rc)) == 0)
			continue;
		printf("# %d: %s, and not %s\n", rc, zerror(rc), zklock_rc_text(rc));
		different++;
	}
	ok(different == 0, "return codes have the library's texts");
}

int
main(int argc, char **argv)
{
	const char *hosts = getenv("ZK_HOSTS");
	char proxied[300];
	const char *chroot;
	const char *limit = getenv("PG_TEST_TIMEOUT_DEFAULT");

	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, too_long);
	if (limit != NULL && atoi(limit) > 0)
		patience = 1000 * atoi(limit);
	if (argc == 4 && strcmp(argv[1], "leave") == 0)
		return leave_session(argv[2], argv[3]);

	if (hosts == NULL || hosts[0] == '\0')
	{
		printf("1..0 # SKIP ZK_HOSTS is not set\n");
		return 0;
	}
	snprintf(base, sizeof(base), "/zklock-test-client-%ld-%lld", (long) getpid(),
			 (long long) (zklock_clock() / 1000000));
	proxy_start(hosts);
	chroot = strchr(hosts, '/');
	snprintf(proxied, sizeof(proxied), "127.0.0.1:%d%s", proxy_port,
			 chroot != NULL ? chroot : "");

	test_texts();
	test_library(hosts);
	test_many(hosts);
	test_session(hosts);
	test_requests(proxied);
	test_close(hosts, proxied);
	test_close_signals(hosts, proxied);
	test_close_backlog(hosts, proxied);
	test_multi(hosts);
	test_watches(hosts);
	test_descriptor(hosts);
	test_large(proxied);
	test_loss(hosts, proxied);
	test_read_only(proxied);
	test_resume(hosts, argv[0]);
	test_leave(hosts, proxied);
	test_unreachable();
	clean_up(hosts);

	printf("1..%d\n", ntests);
	close(proxy_fd);
	return nfailed == 0 ? 0 : 1;
}
