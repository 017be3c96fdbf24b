/*-------------------------------------------------------------------------
 *
 * hosts_backend.c
 *	  Asks the ZooKeeper servers in the connect string whether they answer, and for
 *	  their versions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <ctype.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "hosts_backend.h"
#include "settings.h"
#include "table.h"
#include "zktime.h"

/* Number of addresses that are asked; more are not. */
#define MAX_HOSTS 64

/* ms: the longest sleep before interrupts are looked at */
#define SLICE 100

typedef struct Ask
{
	int fd; /* -1: it is over */
	bool connected;
	char reply[2048];
	int len;
} Ask;

/* The state of all requests. */
typedef struct Asks
{
	ZkHostAnswer *answers;
	Ask *asks;
	int n;
} Asks;

static void
finish(Asks *all, int i, ZkHostState state, const char *text)
{
	Ask *ask = &all->asks[i];

	all->answers[i].state = state;
	all->answers[i].text = text;
	if (ask->fd < 0)
		return;
	close(ask->fd);
	ReleaseExternalFD();
	ask->fd = -1;
}

static void
fail(Asks *all, int i, int error)
{
	finish(all, i, ZKLOCK_HOST_FAILS, pstrdup(strerror(error)));
}

/* The text after a word in the reply, up to the end of the line or a character of
 * "stop". */
static char *
said_after(const char *reply, const char *word, const char *stop)
{
	const char *at = strstr(reply, word);

	if (at == NULL)
		return NULL;
	at += strlen(word);
	return pnstrdup(at, strcspn(at, stop));
}

/* The reply is complete, or the server has closed the connection. */
static void
take_reply(Asks *all, int i)
{
	const Ask *ask = &all->asks[i];
	char *version = said_after(ask->reply, "Zookeeper version: ", "-, \r\n");
	char *mode = said_after(ask->reply, "Mode: ", "\r\n");
	int major;
	int minor;
	int patch = 0;

	if (version != NULL && sscanf(version, "%3d.%3d.%3d", &major, &minor, &patch) >= 2)
	{
		all->answers[i].version = major * 10000 + minor * 100 + patch;
		finish(all, i, ZKLOCK_HOST_ANSWERS,
			   psprintf("ZooKeeper %d.%d.%d, %s", major, minor, patch,
						mode != NULL ? mode : "which serves nobody"));
		/* it has no majority */
		if (mode == NULL)
			all->answers[i].state = ZKLOCK_HOST_ALONE;
	}
	else if (strstr(ask->reply, "not in the whitelist") != NULL)
		finish(all, i, ZKLOCK_HOST_ANSWERS,
			   pstrdup("the command \"srvr\" is not in its whitelist"));
	else if (strstr(ask->reply, "not currently serving") != NULL)
		finish(all, i, ZKLOCK_HOST_ALONE,
			   pstrdup("it serves nobody: it starts, or has no majority of the ensemble"));
	else
		finish(all, i, ZKLOCK_HOST_STRANGE,
			   pstrdup(ask->len > 0 ? "it answers like no ZooKeeper server"
									: "it hung up without an answer"));
}

/* There is no connection any more.  Who resets one has taken it before. */
static void
lose(Asks *all, int i, int error)
{
	if (error == ECONNRESET || error == EPIPE)
		take_reply(all, i);
	else
		fail(all, i, error);
}

/* Continue with the request whose descriptor is ready. */
static void
go_on(Asks *all, int i)
{
	Ask *ask = &all->asks[i];
	int error = 0;
	socklen_t size = sizeof(error);
	ssize_t n;

	if (!ask->connected)
	{
		if (getsockopt(ask->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
			error = errno;
		ask->connected = true;
		if (error != 0)
			lose(all, i, error);
		else if (zklock_tls_ca_file[0] != '\0')
			finish(all, i, ZKLOCK_HOST_ANSWERS,
				   pstrdup("takes connections; what it is TLS hides"));
		else if (send(ask->fd, "srvr", 4, MSG_NOSIGNAL) != 4)
			lose(all, i, errno);
		return;
	}
	n = recv(ask->fd, ask->reply + ask->len, sizeof(ask->reply) - 1 - (size_t) ask->len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		ask->len += (int) n;
	ask->reply[ask->len] = '\0';
	if (n <= 0 || ask->len == (int) sizeof(ask->reply) - 1)
		take_reply(all, i);
}

/* Connect to "address:port", which must contain no name. */
static void
begin(Asks *all, int i)
{
	char *address = pstrdup(all->answers[i].address);
	char *port = strrchr(address, ':');
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
							 .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	Ask *ask = &all->asks[i];

	if (port != NULL)
		*port++ = '\0';
	if (port == NULL || getaddrinfo(address, port, &hints, &found) != 0)
	{
		finish(all, i, ZKLOCK_HOST_UNKNOWN, pstrdup("its name has not been looked up yet"));
		return;
	}
	if (!AcquireExternalFD())
		finish(all, i, ZKLOCK_HOST_UNKNOWN, pstrdup(strerror(errno)));
	else
	{
		ask->fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (ask->fd < 0)
		{
			int error = errno;

			ReleaseExternalFD();
			fail(all, i, error);
		}
		else if (connect(ask->fd, found->ai_addr, found->ai_addrlen) != 0 &&
				 errno != EINPROGRESS)
			fail(all, i, errno);
	}
	freeaddrinfo(found);
}

static bool
wait_for_some(Asks *all)
{
	struct pollfd fds[MAX_HOSTS];
	int which[MAX_HOSTS];
	int n = 0;

	for (int i = 0; i < all->n; i++)
	{
		if (all->asks[i].fd < 0)
			continue;
		which[n] = i;
		fds[n++] = (struct pollfd){
			.fd = all->asks[i].fd,
			.events = all->asks[i].connected ? POLLIN : POLLOUT,
		};
	}
	if (n == 0)
		return false;
	CHECK_FOR_INTERRUPTS();
	Assert(zklock_unlocked());
	if (poll(fds, (nfds_t) n, SLICE) <= 0)
		return true;
	for (int i = 0; i < n; i++)
	{
		if (fds[i].revents != 0)
			go_on(all, which[i]);
	}
	return true;
}

static void
add(Asks *all, const char *host, const char *address)
{
	ZkHostAnswer *answer = &all->answers[all->n];

	if (all->n == MAX_HOSTS)
		return;
	answer->host = pstrdup(host);
	answer->address = address != NULL ? pstrdup(address) : NULL;
	answer->state = ZKLOCK_HOST_UNKNOWN;
	answer->text = "";
	all->asks[all->n++].fd = -1;
}

/*
 * Add the addresses of a host.  The worker publishes them as lines
 * "host:port=address:port,..." or "host:port!error".  An address has no line, and
 * stands for itself.
 */
static void
add_host(Asks *all, const char *host, const char *names)
{
	size_t len = strlen(host);
	const char *line = names;
	char *list;
	char *state;

	while (line != NULL &&
		   (strncmp(line, host, len) != 0 || (line[len] != '=' && line[len] != '!')))
	{
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	if (line == NULL || *line == '\0')
	{
		const char *colon = strrchr(host, ':');

		/* of IPv6 without its brackets */
		if (colon != NULL && host[0] == '[' && colon[-1] == ']')
			add(all, host, psprintf("%.*s%s", (int) (colon - host - 2), host + 1, colon));
		else if (colon != NULL)
			add(all, host, host);
		return;
	}
	if (all->n == MAX_HOSTS)
		return;
	list = pnstrdup(line + len + 1, strcspn(line + len + 1, "\n"));
	if (line[len] == '!')
	{
		add(all, host, NULL);
		finish(all, all->n - 1, ZKLOCK_HOST_NAMELESS, list);
		return;
	}
	for (char *item = strtok_r(list, ",", &state); item != NULL;
		 item = strtok_r(NULL, ",", &state))
		add(all, host, item);
}

static void
add_hosts(Asks *all)
{
	ZkSessionShared s;
	char *list;
	char *state;

	zklock_session_read(&s);
	list = pstrdup(s.hosts[0] != '\0' ? s.hosts : zklock_hosts);
	list[strcspn(list, "/")] = '\0';
	for (char *item = strtok_r(list, ",", &state); item != NULL;
		 item = strtok_r(NULL, ",", &state))
	{
		while (isspace((unsigned char) *item))
			item++;
		add_host(all, item, s.names);
	}
}

int
zklock_hosts_probe(ZkHostAnswer **answers)
{
	int64 until = (int64) zklock_clock() + zklock_connect_timeout * NS_PER_MS;
	Asks all = {
		.answers = palloc0(sizeof(ZkHostAnswer) * MAX_HOSTS),
		.asks = palloc0(sizeof(Ask) * MAX_HOSTS),
	};

	add_hosts(&all);
	PG_TRY();
	{
		for (int i = 0; i < all.n; i++)
			if (all.answers[i].address != NULL)
				begin(&all, i);
		while ((int64) zklock_clock() < until && wait_for_some(&all))
			;
	}
	PG_FINALLY();
	{
		for (int i = 0; i < all.n; i++)
			if (all.asks[i].fd >= 0)
				finish(&all, i, ZKLOCK_HOST_SILENT, "no answer");
	}
	PG_END_TRY();
	*answers = all.answers;
	return all.n;
}
