/*-------------------------------------------------------------------------
 *
 * delay.c
 *	  Links that take their time: what a network between machines adds.
 *
 *		delay MS FROM:TO ...
 *
 * accepts TCP connections on each local port FROM and carries them to the local
 * port TO.  Whatever is sent arrives MS milliseconds later, in each direction; no
 * link is ever full.  Ends at the end of its standard input.
 *
 * Why not packets, between two taps: messages here are far smaller than a window
 * and everybody has TCP_NODELAY, so that acknowledgements hold nothing up and TCP
 * adds nothing to the delay; and this needs no root.  At 1 ms a round trip takes
 * 2.1 ms.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FDS 2048

/* What came in at one end, on its way to the other.  No bytes: the end. */
typedef struct Chunk
{
	struct Chunk *next;
	double due; /* ms */
	int to;
	size_t length;
	char bytes[];
} Chunk;

/* Slots of "fds": standard input, the listening sockets, then connections. */
static struct pollfd fds[MAX_FDS];
static int sockets[MAX_FDS]; /* of a connection; -1: slot is free */
static int target[MAX_FDS];	 /* of a listening socket: the port behind it */
static int peer[MAX_FDS];	 /* of a connection: slot of its other end */
static bool ended[MAX_FDS];	 /* nothing more will be written to it */
static int nfds;
static int nlisteners;

/* All chunks take equally long, so the first to come is the first to go. */
static Chunk *first;
static Chunk **last = &first;

static double
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e3 + (double) ts.tv_nsec / 1e6;
}

static void __attribute__((noreturn)) fatal(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in
address(int port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return sin;
}

static int
add(int fd)
{
	int slot = 1 + nlisteners;

	while (slot < nfds && sockets[slot] >= 0)
		slot++;
	if (slot == MAX_FDS)
		fatal("too many connections");
	if (slot == nfds)
		nfds++;
	sockets[slot] = fd;
	fds[slot] = (struct pollfd){fd, POLLIN, 0};
	ended[slot] = false;
	return slot;
}

static void
listen_on(int from, int to)
{
	struct sockaddr_in sin = address(from);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *) &sin, sizeof(sin)) < 0 || listen(fd, 128) < 0)
		fatal("delay: listen");
	target[nfds] = to;
	fds[nfds++] = (struct pollfd){fd, POLLIN, 0};
	nlisteners++;
}

static void
accept_connection(int slot)
{
	struct sockaddr_in sin = address(target[slot]);
	int near = accept(fds[slot].fd, NULL, NULL);
	int far = socket(AF_INET, SOCK_STREAM, 0);
	int on = 1;
	int a;
	int b;

	if (connect(far, (struct sockaddr *) &sin, sizeof(sin)) < 0)
	{
		close(near);
		close(far);
		return;
	}
	setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	a = add(near);
	b = add(far);
	peer[a] = b;
	peer[b] = a;
}

static void
take(int slot, double delay)
{
	char bytes[65536];
	ssize_t n = read(sockets[slot], bytes, sizeof(bytes));
	size_t length = n > 0 ? (size_t) n : 0;
	Chunk *chunk = malloc(sizeof(Chunk) + length);

	if (chunk == NULL)
		fatal("delay");
	chunk->next = NULL;
	chunk->due = now_ms() + delay;
	chunk->to = peer[slot];
	chunk->length = length;
	memcpy(chunk->bytes, bytes, length);
	*last = chunk;
	last = &chunk->next;
	if (length == 0)
		fds[slot].fd = -1; /* poll skips it */
}

/* Both ends take what they get, so a write that blocks does not block for long. */
static void
give(Chunk *chunk)
{
	int slot = chunk->to;
	ssize_t n;

	for (size_t done = 0; done < chunk->length; done += (size_t) n)
	{
		n = send(sockets[slot], chunk->bytes + done, chunk->length - done, 0);
		if (n < 0)
			return; /* the end will come from the other side */
	}
	if (chunk->length > 0)
		return;
	shutdown(sockets[slot], SHUT_WR);
	ended[slot] = true;
	if (ended[peer[slot]])
	{
		close(sockets[slot]);
		close(sockets[peer[slot]]);
		sockets[slot] = sockets[peer[slot]] = -1;
	}
}

int
main(int argc, char **argv)
{
	double delay = argc > 2 ? atof(argv[1]) : 0;

	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	fds[nfds++] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
	for (int i = 2; i < argc; i++)
	{
		int from;
		int to;

		if (sscanf(argv[i], "%d:%d", &from, &to) != 2)
		{
			fprintf(stderr, "usage: delay MS FROM:TO ...\n");
			return 2;
		}
		listen_on(from, to);
	}
	printf("ready\n");
	fflush(stdout);

	for (;;)
	{
		double wait = first != NULL ? first->due - now_ms() : 1000;
		struct timespec timeout = {0, 0};
		int n = nfds;

		if (wait > 0)
			timeout =
				(struct timespec){(time_t) (wait / 1e3), (long) (wait * 1e6) % 1000000000};
		if (ppoll(fds, (nfds_t) n, &timeout, NULL) < 0 && errno != EINTR)
			fatal("delay: poll");
		if (fds[0].revents != 0)
			return 0;
		for (int i = 1; i < n; i++)
		{
			if (fds[i].fd < 0 || fds[i].revents == 0)
				continue;
			if (i <= nlisteners)
				accept_connection(i);
			else
				take(i, delay);
		}
		while (first != NULL && first->due <= now_ms())
		{
			Chunk *chunk = first;

			give(chunk);
			first = chunk->next;
			if (first == NULL)
				last = &first;
			free(chunk);
		}
	}
}
