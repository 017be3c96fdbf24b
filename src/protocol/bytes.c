/*-------------------------------------------------------------------------
 *
 * bytes.c
 *	  Reads ZooKeeper's encoding, and never past the end of the data.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"

#include <string.h>

ZkBytes
zklock_bytes(const void *data, size_t here, size_t size)
{
	ZkBytes bytes = {.at = data, .here = here < size ? here : size, .left = size};

	return bytes;
}

/* Returns the next n bytes; NULL: they cannot be read. */
static const unsigned char *
take(ZkBytes *bytes, size_t n)
{
	const unsigned char *taken = bytes->at;

	zklock_bytes_refuse(bytes, n > bytes->left, "it is too short for what it says");
	if (zklock_bytes_good(bytes) && n > bytes->here)
		bytes->part = true;
	if (!zklock_bytes_good(bytes))
		return NULL;
	bytes->at += n;
	bytes->here -= n;
	bytes->left -= n;
	return taken;
}

static uint64_t
number(ZkBytes *bytes, size_t size)
{
	const unsigned char *taken = take(bytes, size);
	uint64_t value = 0;

	for (size_t i = 0; taken != NULL && i < size; i++)
		value = value << 8 | taken[i];
	return value;
}

int32_t
zklock_bytes_int(ZkBytes *bytes)
{
	return (int32_t) number(bytes, 4);
}

int64_t
zklock_bytes_long(ZkBytes *bytes)
{
	return (int64_t) number(bytes, 8);
}

bool
zklock_bytes_bool(ZkBytes *bytes)
{
	uint64_t value = number(bytes, 1);

	zklock_bytes_refuse(bytes, value > 1, "a truth value is neither 0 nor 1");
	return value == 1;
}

/* Reads a string of "least" bytes or more, which begins with "first" if that is not 0. */
static int32_t
string(ZkBytes *bytes, int32_t least, unsigned char first)
{
	int32_t len = zklock_bytes_int(bytes);
	const unsigned char *text;

	zklock_bytes_refuse(bytes, len < least, "a string has a wrong length");
	text = take(bytes, (size_t) len);
	if (text == NULL)
		return 0;
	zklock_bytes_refuse(bytes, memchr(text, 0, (size_t) len) != NULL,
						"a string has a zero in it");
	zklock_bytes_refuse(bytes, first != 0 && text[0] != first,
						"a path does not begin with a slash");
	return len;
}

int32_t
zklock_bytes_string(ZkBytes *bytes)
{
	return string(bytes, 0, 0);
}

int32_t
zklock_bytes_path(ZkBytes *bytes)
{
	return string(bytes, 1, '/');
}

int32_t
zklock_bytes_buffer(ZkBytes *bytes)
{
	int32_t len = zklock_bytes_int(bytes);

	zklock_bytes_refuse(bytes, len < -1, "a buffer has a wrong length");
	if (len > 0)
		(void) take(bytes, (size_t) len);
	return len;
}

bool
zklock_bytes_zeros(const ZkBytes *bytes, size_t offset, size_t n)
{
	if (!zklock_bytes_good(bytes) || bytes->here < offset + n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (bytes->at[offset + i] != 0)
			return false;
	return true;
}

int32_t
zklock_bytes_vector(ZkBytes *bytes, size_t least)
{
	int32_t n = zklock_bytes_int(bytes);

	zklock_bytes_refuse(bytes, n < 0 || (size_t) n > bytes->left / least,
						"a list has a wrong length");
	return zklock_bytes_good(bytes) ? n : 0;
}
