/*-------------------------------------------------------------------------
 *
 * options.h
 *	  Checks the text of a setting or of the credentials file.
 *
 * Pure, as contender.h is: no postgres.h, no zookeeper.h, no allocation.  So a fuzzer
 * can link it (test/fuzz).
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_OPTIONS_H
#define ZKLOCK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#define ZKLOCK_HOSTS_MAX	 1023 /* bytes of a connect string, without the NUL */
#define ZKLOCK_NAMESPACE_MAX 63	  /* bytes of a namespace, without the NUL */

/* A znode path as ZooKeeper takes it: "/a/b", no empty or relative element. */
extern bool zklock_valid_path(const char *path);

typedef enum ZkHostsError
{
	ZKLOCK_HOSTS_OK,
	ZKLOCK_HOSTS_BAD_CHROOT,
	ZKLOCK_HOSTS_BAD_HOST, /* *bad, *bad_len: which */
	ZKLOCK_HOSTS_TOO_LONG
} ZkHostsError;

/* host:port[,host:port...][/chroot] */
extern ZkHostsError zklock_check_hosts(const char *hosts, const char **bad, int *bad_len);

/* 0 to ZKLOCK_NAMESPACE_MAX letters, digits, '_', '-' and '.', all ASCII. */
extern bool zklock_valid_namespace(const char *name);

typedef enum ZkAuthLine
{
	ZKLOCK_AUTH_NOTHING, /* blank, or a comment */
	ZKLOCK_AUTH_CREDENTIAL,
	ZKLOCK_AUTH_MALFORMED
} ZkAuthLine;

/*
 * Reads one line of the credentials file, without its newline: a scheme, blanks, and
 * the credential up to the last character that is no blank.  The parts point into the
 * line.
 */
extern ZkAuthLine zklock_parse_auth_line(const char *line, size_t len,
										 const char **scheme, size_t *scheme_len,
										 const char **credential, size_t *credential_len);

#endif /* ZKLOCK_OPTIONS_H */
