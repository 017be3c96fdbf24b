/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Checks the text of a setting or of the credentials file.
 *
 * Nothing here depends on the locale.
 *
 *-------------------------------------------------------------------------
 */
#include "options.h"

#include <string.h>

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool
is_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
		c == '-' || c == '.';
}

bool
zklock_valid_path(const char *path)
{
	const char *p = path;

	while (*p == '/')
	{
		size_t len = strcspn(p + 1, "/");

		if (len == 0 || (len == 1 && p[1] == '.') ||
			(len == 2 && p[1] == '.' && p[2] == '.'))
			return false;
		for (size_t i = 1; i <= len; i++)
		{
			if ((unsigned char) p[i] < 0x20 || p[i] == 0x7f)
				return false;
		}
		p += len + 1;
	}
	return p != path && *p == '\0';
}

/* "host:port"; the last colon counts, for IPv6. */
static bool
valid_host(const char *host, size_t len)
{
	size_t colon = 0;
	long port = 0;

	for (size_t i = 0; i < len; i++)
	{
		if (host[i] == ':')
			colon = i;
		else if (is_blank(host[i]))
			return false;
	}
	if (colon == 0)
		return false;
	for (size_t i = colon + 1; i < len; i++)
	{
		if (!is_digit(host[i]))
			return false;
		port = port * 10 + (host[i] - '0');
		if (port > 65535)
			return false;
	}
	return port > 0;
}

ZkHostsError
zklock_check_hosts(const char *hosts, const char **bad, int *bad_len)
{
	const char *p = hosts;
	size_t len = strcspn(p, "/");

	if (len + strlen(p + len) > ZKLOCK_HOSTS_MAX)
		return ZKLOCK_HOSTS_TOO_LONG;
	if (p[len] == '/' && !zklock_valid_path(p + len))
		return ZKLOCK_HOSTS_BAD_CHROOT;
	do
	{
		size_t n = strcspn(p, ",/");

		if (!valid_host(p, n))
		{
			*bad = p;
			*bad_len = (int) n;
			return ZKLOCK_HOSTS_BAD_HOST;
		}
		p += n;
	} while (*p++ == ',');
	return ZKLOCK_HOSTS_OK;
}

bool
zklock_valid_namespace(const char *name)
{
	size_t len = 0;

	while (name[len] != '\0')
	{
		if (!is_word(name[len]) || ++len > ZKLOCK_NAMESPACE_MAX)
			return false;
	}
	return true;
}

ZkAuthLine
zklock_parse_auth_line(const char *line, size_t len, const char **scheme,
					   size_t *scheme_len, const char **credential, size_t *credential_len)
{
	size_t i = 0;

	while (len > 0 && is_blank(line[len - 1]))
		len--;
	while (i < len && is_blank(line[i]))
		i++;
	if (i == len || line[i] == '#')
		return ZKLOCK_AUTH_NOTHING;

	*scheme = line + i;
	while (i < len && is_word(line[i]))
		i++;
	*scheme_len = (size_t) (line + i - *scheme);
	if (*scheme_len == 0 || i == len || !is_blank(line[i]))
		return ZKLOCK_AUTH_MALFORMED;
	while (is_blank(line[i]))
		i++; /* the last character is no blank */
	*credential = line + i;
	*credential_len = len - i;
	return memchr(*credential, '\0', *credential_len) == NULL ? ZKLOCK_AUTH_CREDENTIAL
															  : ZKLOCK_AUTH_MALFORMED;
}
