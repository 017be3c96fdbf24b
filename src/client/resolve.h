/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  The names in a connect string, as addresses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RESOLVE_H
#define ZKLOCK_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * "host:port,...[/chroot]", where a host is a name or an address, of IPv6 in brackets or
 * without, as a connect string of addresses for the library, each once, allocated; "n" is
 * how many they are.  Can block on the resolver.  A name that does not resolve while
 * others do is left out, and "unresolved" is told a text about it.  NULL, with errno set:
 * nothing is left, or the string is unusable; "error" (room errlen) says why.
 */
extern char *zklock_resolve(const char *hosts, int *n,
							void (*unresolved)(const char *text, void *context),
							void *context, char *error, int errlen);

/* Is "host:port" to be asked of the resolver?  Not if it is an address, or unusable. */
extern bool zklock_resolve_takes_time(const char *text);

/* Append addresses, "address:port,...", to "to", allocated, of "len" characters, with a
 * comma behind each, but for those that are there; "n" counts them.  False: no memory. */
extern bool zklock_resolve_join(char **to, size_t *len, const char *more, int *n);

#endif /* ZKLOCK_RESOLVE_H */
