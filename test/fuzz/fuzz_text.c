/*-------------------------------------------------------------------------
 *
 * fuzz_text.c
 *	  Fuzzer of src/protocol/contender.c: bytes that others wrote, on their way to people.
 *
 * The input is taken for a node's data or name as it is, for what is left of one that
 * was cut off anywhere, and for what a node's data say behind a key.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "contender.h"
#include "json.h"

/* The input in memory of exactly its size: no byte follows. */
static char *
exactly(const char *data, size_t size)
{
	char *bytes = malloc(size > 0 ? size : 1);

	CHECK(bytes != NULL);
	if (size > 0)
		memcpy(bytes, data, size);
	return bytes;
}

/* How long the character is, by the table of the Unicode standard; 0: it is none. */
static size_t
character(const unsigned char *s, size_t len)
{
	size_t n;
	unsigned char low = 0x80;
	unsigned char high = 0xbf;

	if (s[0] >= 0x01 && s[0] <= 0x7f)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0;
	if (s[0] == 0xed)
		high = 0x9f;
	if (s[0] == 0xf0)
		low = 0x90;
	if (s[0] == 0xf4)
		high = 0x8f;
	if (n > len || s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
	{
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	}
	return n;
}

static bool
is_utf8(const char *bytes, size_t len)
{
	while (len > 0)
	{
		size_t n = character((const unsigned char *) bytes, len);

		if (n == 0)
			return false;
		bytes += n;
		len -= n;
	}
	return true;
}

/* Percent-encoded: it is text, and what it was can be read from it. */
static void
fuzz_escape(const char *bytes, size_t len, bool ascii)
{
	char *text = malloc(3 * len + 1);
	size_t n;
	size_t at = 0;

	CHECK(text != NULL);
	n = zklock_escape(bytes, len, ascii, text);
	CHECK(n == strlen(text) && n >= len && n <= 3 * len && is_utf8(text, n));
	for (size_t i = 0; i < n; at++)
	{
		unsigned byte;

		CHECK(at < len);
		CHECK((unsigned char) text[i] >= 0x20 && text[i] != 0x7f);
		CHECK(!ascii || (unsigned char) text[i] < 0x80);
		if (text[i] == '%')
		{
			CHECK(i + 2 < n && sscanf(text + i + 1, "%2X", &byte) == 1);
			CHECK((unsigned char) bytes[at] == byte);
			i += 3;
		}
		else
			CHECK(bytes[at] == text[i++]);
	}
	CHECK(at == len);
	free(text);
}

static void
fuzz_clip(const char *bytes, size_t len, bool utf8)
{
	for (size_t n = 0; n <= len; n++)
	{
		char *cut = exactly(bytes, n);
		size_t whole = zklock_clip_utf8(cut, n);

		CHECK(whole <= n && n - whole <= 3);
		if (utf8)
			CHECK(zklock_is_utf8(cut, whole) && (whole == n || !zklock_is_utf8(cut, n)));
		free(cut);
	}
}

static void
fuzz_field(const char *data, size_t len, const char *key)
{
	char *bytes = exactly(data, len);
	char *field = malloc(len + 1);

	CHECK(field != NULL);
	if (zklock_json_field(bytes, len, key, field))
	{
		CHECK(strlen(field) > 0 && strlen(field) < len);
		fuzz_escape(field, strlen(field), false);
	}
	free(field);
	free(bytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char before[] = "{\"server\": \"";
	char *bytes = exactly((const char *) data, size);
	char *quoted = malloc(size + sizeof(before));
	bool utf8 = zklock_is_utf8(bytes, size);

	CHECK(utf8 == is_utf8(bytes, size));
	fuzz_escape(bytes, size, false);
	fuzz_escape(bytes, size, true);
	fuzz_clip(bytes, size, utf8);
	fuzz_field(bytes, size, "b");

	/* most inputs are not that of a server */
	CHECK(quoted != NULL);
	memcpy(quoted, before, sizeof(before) - 1);
	if (size > 0)
		memcpy(quoted + sizeof(before) - 1, data, size);
	fuzz_field(quoted, size + sizeof(before) - 1, "server");
	free(quoted);
	free(bytes);
	return 0;
}
