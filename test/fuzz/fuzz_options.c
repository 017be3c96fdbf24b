/*-------------------------------------------------------------------------
 *
 * fuzz_options.c
 *	  Fuzzer of src/protocol/options.c: settings, and lines of the credentials file.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "options.h"

static void
fuzz_hosts(const char *text)
{
	const char *bad = NULL;
	int bad_len = -1;

	switch (zklock_check_hosts(text, &bad, &bad_len))
	{
		case ZKLOCK_HOSTS_OK:
			CHECK(strlen(text) <= ZKLOCK_HOSTS_MAX);
			CHECK(strpbrk(text, "\n\t\r") == NULL && text[0] != '/');
			CHECK(strchr(text, ':') != NULL);
			if (strchr(text, '/') != NULL)
				CHECK(zklock_valid_path(strchr(text, '/')));
			break;
		case ZKLOCK_HOSTS_BAD_CHROOT:
			CHECK(!zklock_valid_path(strchr(text, '/')));
			break;
		case ZKLOCK_HOSTS_BAD_HOST:
			CHECK(bad >= text && bad_len >= 0 && bad + bad_len <= text + strlen(text));
			CHECK(memchr(bad, ',', (size_t) bad_len) == NULL);
			break;
		case ZKLOCK_HOSTS_TOO_LONG:
			CHECK(strlen(text) > ZKLOCK_HOSTS_MAX);
			break;
	}
}

static void
fuzz_names(const char *text)
{
	if (zklock_valid_path(text))
		CHECK(text[0] == '/' && text[strlen(text) - 1] != '/' &&
			  strstr(text, "//") == NULL && strstr(text, "/../") == NULL);
	if (zklock_valid_namespace(text))
		CHECK(strlen(text) <= ZKLOCK_NAMESPACE_MAX && strpbrk(text, "/%\377 ") == NULL);
}

/* Not a string: the end is where it ends. */
static void
fuzz_auth_line(const uint8_t *data, size_t size)
{
	char *line = malloc(size > 0 ? size : 1);
	const char *scheme;
	const char *credential;
	size_t scheme_len;
	size_t len;

	CHECK(line != NULL);
	if (size > 0)
		memcpy(line, data, size);
	if (zklock_parse_auth_line(line, size, &scheme, &scheme_len, &credential, &len) ==
		ZKLOCK_AUTH_CREDENTIAL)
	{
		CHECK(scheme >= line && scheme_len > 0 && scheme + scheme_len < credential);
		CHECK(len > 0 && credential + len <= line + size);
		CHECK(*scheme != '#' && memchr(scheme, ' ', scheme_len) == NULL);
		CHECK(credential[0] != ' ' && credential[len - 1] != ' ');
		CHECK(memchr(credential, '\0', len) == NULL);
	}
	free(line);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fuzz_hosts(text);
	fuzz_names(text);
	fuzz_auth_line(data, size);
	free(text);
	return 0;
}
