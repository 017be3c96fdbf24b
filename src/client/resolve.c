/*-------------------------------------------------------------------------
 *
 * resolve.c
 *	  Turns the names in a connect string into addresses.
 *
 * The library takes the text before the last colon for the host and resolves it,
 * brackets and all: so an IPv6 address stands without them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "resolve.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_HOST 256

/* Is it one of the addresses before, each with a comma behind it? */
static bool
is_there(const char *addresses, const char *address, size_t len)
{
	for (const char *at = addresses; at != NULL && *at != '\0'; at = strchr(at, ',') + 1)
		if (strcspn(at, ",") == len && strncmp(at, address, len) == 0)
			return true;
	return false;
}

bool
zklock_resolve_join(char **to, size_t *len, const char *more, int *n)
{
	while (*more != '\0')
	{
		size_t size = strcspn(more, ",");
		char *grown;

		if (!is_there(*to, more, size))
		{
			grown = realloc(*to, *len + size + 2);
			if (grown == NULL)
				return false;
			*to = grown;
			*len += (size_t) snprintf(grown + *len, size + 2, "%.*s,", (int) size, more);
			(*n)++;
		}
		more += size;
		more += *more == ',';
	}
	return true;
}

/* Splits "host:port"; false, with a text: it has another form. */
static bool
split(char *item, char **host, char **port, char *error, int errlen)
{
	char *end;
	char *colon;
	size_t len;

	while (isspace((unsigned char) *item))
		item++;
	colon = strrchr(item, ':');
	if (colon == NULL)
	{
		snprintf(error, errlen, "no port in \"%s\"", item);
		return false;
	}
	if (strtol(colon + 1, &end, 10) <= 0 || *end != '\0')
	{
		snprintf(error, errlen, "invalid port in \"%s\"", item);
		return false;
	}
	*colon = '\0';
	*port = colon + 1;
	len = strlen(item);
	if (len >= 2 && item[0] == '[' && item[len - 1] == ']')
	{
		item[len - 1] = '\0';
		item++;
	}
	*host = item;
	return true;
}

/*
 * An address is answered at once, without a look at what else is there.  A name is
 * looked up for the families that this machine uses; if the machine uses only loopback,
 * for all.
 */
static int
look_up(const char *host, const char *port, struct addrinfo **found)
{
	static const int flags[] = {AI_NUMERICHOST, AI_ADDRCONFIG, 0};
	int rc = EAI_NONAME;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
	{
		struct addrinfo hints = {.ai_flags = flags[i],
								 .ai_family = AF_UNSPEC,
								 .ai_socktype = SOCK_STREAM};

		if (i == 2 && rc != EAI_BADFLAGS && rc != EAI_ADDRFAMILY)
			break;
		rc = getaddrinfo(host, port, &hints, found);
		if (rc == 0)
			break;
	}
	return rc;
}

/* Appends the addresses of a host.  Returns a code of getaddrinfo, 0 if all is well. */
static int
resolve_host(const char *host, const char *port, char **to, size_t *len, int *n)
{
	struct addrinfo *found;
	char address[MAX_HOST];
	char text[MAX_HOST + 16];
	int rc = look_up(host, port, &found);

	if (rc != 0)
		return rc;
	for (struct addrinfo *a = found; rc == 0 && a != NULL; a = a->ai_next)
	{
		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		rc = getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address), NULL, 0,
						 NI_NUMERICHOST);
		snprintf(text, sizeof(text), "%s:%s", address, port);
		if (rc == 0 && !zklock_resolve_join(to, len, text, n))
			rc = EAI_MEMORY;
	}
	freeaddrinfo(found);
	return rc;
}

bool
zklock_resolve_takes_time(const char *text)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_family = AF_UNSPEC};
	struct addrinfo *found;
	char *copy = strdup(text);
	char error[MAX_HOST + 32];
	char *host;
	char *port;
	bool takes = false;

	if (copy != NULL && split(copy, &host, &port, error, sizeof(error)))
	{
		takes = getaddrinfo(host, NULL, &hints, &found) != 0;
		if (!takes)
			freeaddrinfo(found);
	}
	free(copy);
	return takes;
}

char *
zklock_resolve(const char *hosts, int *n,
			   void (*unresolved)(const char *text, void *context), void *context,
			   char *error, int errlen)
{
	const char *chroot = strchr(hosts, '/');
	char *copy = strndup(hosts, chroot != NULL ? (size_t) (chroot - hosts) : strlen(hosts));
	char *addresses = NULL;
	char *state;
	size_t len = 0;
	char *grown;

	*n = 0;
	error[0] = '\0';
	errno = copy != NULL ? EINVAL : ENOMEM;
	for (char *item = copy != NULL ? strtok_r(copy, ",", &state) : NULL; item != NULL;
		 item = strtok_r(NULL, ",", &state))
	{
		char *host;
		char *port;
		int rc;

		if (!split(item, &host, &port, error, errlen))
		{
			*n = 0;
			errno = EINVAL;
			break;
		}
		rc = resolve_host(host, port, &addresses, &len, n);
		if (rc != 0)
		{
			snprintf(error, errlen, "could not translate host name \"%s\" to address: %s",
					 host, gai_strerror(rc));
			errno = rc == EAI_MEMORY ? ENOMEM : ENOENT;
			unresolved(error, context);
		}
	}
	free(copy);
	if (len > 0)
		addresses[--len] = '\0';
	if (*n > 0 && chroot != NULL)
	{
		grown = realloc(addresses, len + strlen(chroot) + 1);
		if (grown != NULL)
			strcpy(grown + len, chroot);
		else
			*n = 0;
		addresses = grown != NULL ? grown : addresses;
	}
	if (*n > 0)
	{
		error[0] = '\0';
		return addresses;
	}
	free(addresses);
	return NULL;
}
