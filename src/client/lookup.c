/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  Looks names up on threads, while the caller goes on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "resolve.h"

#define ERROR_LEN 320

typedef struct Host
{
	ZkLookup *lookup;
	char *text; /* host:port */
	bool name;	/* it has to be looked up */
	/* under the mutex */
	bool asking;
	char *addresses; /* NULL: none are known */
	char error[ERROR_LEN];
} Host;

struct ZkLookup
{
	pthread_mutex_t mutex;
	int fd; /* eventfd */
	int nhosts;
	Host *host;
};

/* Threads that have no answer yet. */
static int running = 0;

/*
 * Functions that run at the process's end, those of libraries, too, must not meet a
 * thread in the midst of a look-up.
 */
static void
on_end(int status, void *arg)
{
	(void) arg;
	if (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0)
		_exit(status);
}

static void
ignore(const char *text, void *context)
{
	(void) text;
	(void) context;
}

/* On a thread: look one name up. */
static void *
look_up(void *arg)
{
	Host *host = arg;
	const uint64_t one = 1;
	char error[ERROR_LEN];
	int n;
	char *addresses = zklock_resolve(host->text, &n, ignore, NULL, error, sizeof(error));
	char *old = NULL;

	pthread_mutex_lock(&host->lookup->mutex);
	memcpy(host->error, error, sizeof(error));
	if (addresses != NULL)
	{
		old = host->addresses;
		host->addresses = addresses;
	}
	host->asking = false;
	pthread_mutex_unlock(&host->lookup->mutex);
	free(old);
	__atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
	/* cannot fail: it is not counted as far as that */
	if (write(host->lookup->fd, &one, sizeof(one)) < 0)
		return NULL;
	return NULL;
}

/* False with errno set. */
static bool
start_thread(Host *host)
{
	static bool prepared = false;
	pthread_t thread;
	sigset_t all;
	sigset_t mask;
	int rc;

	if (!prepared && on_exit(on_end, NULL) != 0)
		return false;
	prepared = true;
	__atomic_add_fetch(&running, 1, __ATOMIC_RELEASE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	rc = pthread_create(&thread, NULL, look_up, host);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (rc == 0)
		pthread_detach(thread);
	else
		__atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
	errno = rc;
	return rc == 0;
}

void
zklock_lookup_ask(ZkLookup *lookup)
{
	for (int i = 0; i < lookup->nhosts; i++)
	{
		Host *host = &lookup->host[i];
		bool asking;

		pthread_mutex_lock(&lookup->mutex);
		asking = host->asking;
		host->asking = host->name;
		pthread_mutex_unlock(&lookup->mutex);
		if (!host->name || asking || start_thread(host))
			continue;
		pthread_mutex_lock(&lookup->mutex);
		host->asking = false;
		snprintf(host->error, sizeof(host->error),
				 "could not start a thread to look up \"%s\": %s", host->text,
				 strerror(errno));
		pthread_mutex_unlock(&lookup->mutex);
	}
}

/* Takes one host: an address is known at once. */
static bool
take_host(ZkLookup *lookup, const char *text, char *error, int errlen)
{
	Host *host = &lookup->host[lookup->nhosts];
	int n;

	host->lookup = lookup;
	host->text = strdup(text);
	if (host->text == NULL)
		return false;
	host->name = zklock_resolve_takes_time(text);
	if (!host->name)
		host->addresses = zklock_resolve(text, &n, ignore, NULL, error, errlen);
	lookup->nhosts++;
	return host->name || host->addresses != NULL;
}

static void
lookup_free(ZkLookup *lookup)
{
	for (int i = 0; i < lookup->nhosts; i++)
	{
		free(lookup->host[i].text);
		free(lookup->host[i].addresses);
	}
	if (lookup->fd >= 0)
		close(lookup->fd);
	pthread_mutex_destroy(&lookup->mutex);
	free(lookup->host);
	free(lookup);
}

ZkLookup *
zklock_lookup_make(const char *hosts, char *error, int errlen)
{
	ZkLookup *lookup = calloc(1, sizeof(ZkLookup));
	char *copy = strdup(hosts);
	char *state;
	bool good;
	int save_errno;

	error[0] = '\0';
	if (lookup == NULL || copy == NULL)
	{
		free(lookup);
		free(copy);
		return NULL;
	}
	pthread_mutex_init(&lookup->mutex, NULL);
	lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* no more than there are characters */
	lookup->host = calloc(strlen(hosts) + 1, sizeof(Host));
	good = lookup->fd >= 0 && lookup->host != NULL;
	for (char *item = strtok_r(copy, ",", &state); good && item != NULL;
		 item = strtok_r(NULL, ",", &state))
		good = take_host(lookup, item, error, errlen);
	if (good && lookup->nhosts == 0)
	{
		good = false;
		errno = EINVAL;
	}
	save_errno = errno;
	free(copy);
	if (good)
		return lookup;
	lookup_free(lookup);
	errno = save_errno;
	return NULL;
}

int
zklock_lookup_fd(ZkLookup *lookup)
{
	for (int i = 0; i < lookup->nhosts; i++)
		if (lookup->host[i].name)
			return lookup->fd;
	return -1;
}

void
zklock_lookup_hear(ZkLookup *lookup)
{
	uint64_t n;

	/* there was none */
	if (read(lookup->fd, &n, sizeof(n)) < 0)
		return;
}

bool
zklock_lookup_asking(ZkLookup *lookup)
{
	bool asking = false;

	pthread_mutex_lock(&lookup->mutex);
	for (int i = 0; i < lookup->nhosts; i++)
		asking = asking || lookup->host[i].asking;
	pthread_mutex_unlock(&lookup->mutex);
	return asking;
}

char *
zklock_lookup_addresses(ZkLookup *lookup, char *error, int errlen)
{
	char *addresses = NULL;
	size_t len = 0;
	int n = 0;
	bool enough = true;

	error[0] = '\0';
	pthread_mutex_lock(&lookup->mutex);
	for (int i = 0; i < lookup->nhosts; i++)
	{
		const Host *host = &lookup->host[i];

		if (host->error[0] != '\0')
			snprintf(error, (size_t) errlen, "%s", host->error);
		if (host->addresses != NULL)
			enough = enough && zklock_resolve_join(&addresses, &len, host->addresses, &n);
	}
	pthread_mutex_unlock(&lookup->mutex);
	if (!enough)
		snprintf(error, (size_t) errlen, "out of memory");
	if (enough && n > 0)
	{
		addresses[len - 1] = '\0';
		return addresses;
	}
	free(addresses);
	return NULL;
}

char *
zklock_lookup_names(ZkLookup *lookup)
{
	char *names = NULL;
	size_t size;
	FILE *out = open_memstream(&names, &size);

	if (out == NULL)
		return NULL;
	pthread_mutex_lock(&lookup->mutex);
	for (int i = 0; i < lookup->nhosts; i++)
	{
		const Host *host = &lookup->host[i];

		if (!host->name)
			continue;
		if (host->addresses != NULL)
			fprintf(out, "%s=%s\n", host->text, host->addresses);
		else if (host->error[0] != '\0')
			fprintf(out, "%s!%s\n", host->text, host->error);
	}
	pthread_mutex_unlock(&lookup->mutex);
	if (fclose(out) == 0)
		return names;
	free(names);
	return NULL;
}
