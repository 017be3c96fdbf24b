/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  Turns the names in a connect string into addresses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RESOLVE_H
#define ZKLOCK_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Resolves "host:port,...[/chroot]".  A host is a name or an address, of IPv6 with or
 * without brackets.  Returns a connect string of addresses for the library, each once,
 * allocated; "n" is their number.  Can block on the resolver.  A name that does not
 * resolve while others do is left out, and "unresolved" gets a text about it.  NULL,
 * with errno set: no address is left, or the string is unusable; "error" (room errlen)
 * says why.
 */
extern char *zklock_resolve(const char *hosts, int *n,
							void (*unresolved)(const char *text, void *context),
							void *context, char *error, int errlen);

/* Does "host:port" take a question to the resolver?  Not if it is an address, or
 * unusable. */
extern bool zklock_resolve_takes_time(const char *text);

/* Appends addresses, "address:port,...", to "to", allocated, of "len" characters,
 * with a comma behind each, except those that are there already; "n" counts them.
 * False: no memory. */
extern bool zklock_resolve_join(char **to, size_t *len, const char *more, int *n);

#endif /* ZKLOCK_RESOLVE_H */
