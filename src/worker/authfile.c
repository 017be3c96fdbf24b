/*-------------------------------------------------------------------------
 *
 * authfile.c
 *	  Reads the file of credentials that zklock.auth_file names.
 *
 * Credentials are in a file and not in a setting, because PostgreSQL shows settings,
 * copies them in base backups and writes them by ALTER SYSTEM.  If something is wrong
 * with the file, the message contains no part of its content.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"
#include "compat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "authfile.h"
#include "options.h"

#define MAX_FILE_SIZE 65536

/* Apply the rule of zklock_check_private_file. */
static bool
is_private(const char *path, int fd, char *error, size_t errlen)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		snprintf(error, errlen, "could not stat file \"%s\": %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		snprintf(error, errlen, "\"%s\" is not a regular file", path);
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		snprintf(error, errlen,
				 "file \"%s\" must be owned by the server's user or by root", path);
	else if ((st.st_uid == geteuid() && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0) ||
			 (st.st_uid != geteuid() && (st.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) != 0))
		snprintf(error, errlen,
				 "file \"%s\" has group or world access: its permissions must be 0600 or less if it is owned by the server's user, or 0640 or less if owned by root",
				 path);
	else
		return true;
	return false;
}

/* Open the file without blocking: it may be a pipe. */
static int
open_file(const char *path, char *error, size_t errlen)
{
	int fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (fd < 0)
		snprintf(error, errlen, "could not open file \"%s\": %s", path, strerror(errno));
	return fd;
}

bool
zklock_check_private_file(const char *path, char *error, size_t errlen)
{
	int fd = open_file(path, error, errlen);
	bool fine = fd >= 0 && is_private(path, fd, error, errlen);

	if (fd >= 0)
		CloseTransientFile(fd);
	return fine;
}

static bool
parse(ZkAuthFile *auth, char *text, size_t size, const char *path, char *error,
	  size_t errlen)
{
	char *line = text;

	for (int number = 1; line < text + size; number++)
	{
		char *end = memchr(line, '\n', (size_t) (text + size - line));
		const char *scheme;
		const char *data;
		size_t scheme_len;
		size_t len;
		ZkCredential *credential;

		if (end == NULL)
			end = text + size;
		switch (zklock_parse_auth_line(line, (size_t) (end - line), &scheme, &scheme_len,
									   &data, &len))
		{
			case ZKLOCK_AUTH_NOTHING:
				break;
			case ZKLOCK_AUTH_MALFORMED:
				snprintf(error, errlen,
						 "line %d of file \"%s\" is not of the form \"scheme credential\", such as \"digest user:password\"",
						 number, path);
				return false;
			case ZKLOCK_AUTH_CREDENTIAL:
				if (auth->ncredentials == ZKLOCK_MAX_CREDENTIALS)
				{
					snprintf(error, errlen, "file \"%s\" has more than %d credentials",
							 path, ZKLOCK_MAX_CREDENTIALS);
					return false;
				}
				credential = &auth->credentials[auth->ncredentials++];
				credential->data = data;
				credential->len = (int) len;
				/* a blank follows it, which can be overwritten */
				credential->scheme = scheme;
				text[scheme + scheme_len - text] = '\0';
				break;
		}
		line = end + 1;
	}
	if (auth->ncredentials > 0)
		return true;
	snprintf(error, errlen, "file \"%s\" has no credential in it", path);
	return false;
}

ZkAuthFile *
zklock_auth_read(const char *path, char *error, size_t errlen)
{
	ZkAuthFile *auth;
	char *text;
	size_t size = 0;
	ssize_t n = 0;
	int fd = open_file(path, error, errlen);

	if (fd < 0)
		return NULL;
	if (!is_private(path, fd, error, errlen))
	{
		CloseTransientFile(fd);
		return NULL;
	}
	auth = palloc0(sizeof(ZkAuthFile) + MAX_FILE_SIZE);
	text = (char *) (auth + 1);
	while (size < MAX_FILE_SIZE && (n = read(fd, text + size, MAX_FILE_SIZE - size)) > 0)
		size += (size_t) n;
	if (n < 0)
		snprintf(error, errlen, "could not read file \"%s\": %s", path, strerror(errno));
	else if (size == MAX_FILE_SIZE)
		snprintf(error, errlen, "file \"%s\" is too large", path);
	CloseTransientFile(fd);
	if (n >= 0 && size < MAX_FILE_SIZE && parse(auth, text, size, path, error, errlen))
		return auth;
	explicit_bzero(text, MAX_FILE_SIZE);
	pfree(auth);
	return NULL;
}
