/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Reads and writes JSON in the form that zklock uses in the ensemble.
 *
 *-------------------------------------------------------------------------
 */
#include "json.h"

#include <string.h>

#include "contender.h"

/* Depth of nested values that are skipped. */
#define MAX_DEPTH 16

char *
zklock_json_write(char *out, const char *text)
{
	size_t len = strlen(text);
	bool utf8 = zklock_is_utf8(text, len);

	*out++ = '"';
	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8))
			c = '?';
		if (c == '"' || c == '\\')
			*out++ = '\\';
		*out++ = (char) c;
	}
	*out++ = '"';
	return out;
}

void
zklock_json_space(ZkJson *in)
{
	while (in->p < in->end &&
		   (*in->p == ' ' || *in->p == '\t' || *in->p == '\n' || *in->p == '\r'))
		in->p++;
}

bool
zklock_json_take(ZkJson *in, char c)
{
	zklock_json_space(in);
	if (in->p == in->end || *in->p != c)
		return false;
	in->p++;
	return true;
}

bool
zklock_json_word(ZkJson *in, const char *word)
{
	size_t len = strlen(word);

	zklock_json_space(in);
	if ((size_t) (in->end - in->p) < len || memcmp(in->p, word, len) != 0)
		return false;
	in->p += len;
	return true;
}

/* Reads the four digits behind \u; -1: they are wrong. */
static int
take_hex(ZkJson *in)
{
	int value = 0;

	if (in->end - in->p < 4)
		return -1;
	for (int i = 0; i < 4; i++, in->p++)
	{
		char c = *in->p;

		if (c >= '0' && c <= '9')
			value = 16 * value + (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = 16 * value + ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return value;
}

/* Reads one character that is written \u...., as UTF-8.  Returns its bytes; 0: there
 * is none. */
static size_t
take_unicode(ZkJson *in, char *utf8)
{
	int c = take_hex(in);

	if (c >= 0xD800 && c <= 0xDBFF)
	{
		int low;

		if (in->end - in->p < 2 || in->p[0] != '\\' || in->p[1] != 'u')
			return 0;
		in->p += 2;
		low = take_hex(in);
		if (low < 0xDC00 || low > 0xDFFF)
			return 0;
		c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
	}
	else if (c <= 0 || (c >= 0xDC00 && c <= 0xDFFF))
		return 0;
	if (c < 0x80)
	{
		utf8[0] = (char) c;
		return 1;
	}
	if (c < 0x800)
	{
		utf8[0] = (char) (0xC0 | (c >> 6));
		utf8[1] = (char) (0x80 | (c & 0x3F));
		return 2;
	}
	if (c < 0x10000)
	{
		utf8[0] = (char) (0xE0 | (c >> 12));
		utf8[1] = (char) (0x80 | ((c >> 6) & 0x3F));
		utf8[2] = (char) (0x80 | (c & 0x3F));
		return 3;
	}
	utf8[0] = (char) (0xF0 | (c >> 18));
	utf8[1] = (char) (0x80 | ((c >> 12) & 0x3F));
	utf8[2] = (char) (0x80 | ((c >> 6) & 0x3F));
	utf8[3] = (char) (0x80 | (c & 0x3F));
	return 4;
}

bool
zklock_json_text(ZkJson *in, char *buf, size_t size)
{
	size_t len = 0;
	bool full = false;

	if (!zklock_json_take(in, '"'))
		return false;
	while (in->p < in->end && *in->p != '"')
	{
		static const char escaped[] = "\"\\/bfnrt";
		static const char meant[] = "\"\\/\b\f\n\r\t";
		char bytes[4] = {*in->p++};
		size_t n = 1;

		if ((unsigned char) bytes[0] < 0x20)
			return false;
		if (bytes[0] == '\\')
		{
			const char *which;

			if (in->p == in->end)
				return false;
			if (*in->p == 'u')
			{
				in->p++;
				n = take_unicode(in, bytes);
			}
			else if (*in->p != '\0' && (which = strchr(escaped, *in->p)) != NULL)
			{
				in->p++;
				bytes[0] = meant[which - escaped];
			}
			else
				return false;
			if (n == 0)
				return false;
		}
		full |= len + n >= size;
		if (!full)
		{
			memcpy(buf + len, bytes, n);
			len += n;
		}
	}
	buf[full ? zklock_clip_utf8(buf, len) : len] = '\0';
	return zklock_json_take(in, '"');
}

/* Reads an integer of at most "max", or below zero of at most "min". */
static bool
take_integer(ZkJson *in, uint64_t max, uint64_t min, bool *negative, uint64_t *value)
{
	const char *start;

	*value = 0;
	*negative = zklock_json_take(in, '-');
	start = in->p;
	for (; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++)
	{
		unsigned digit = (unsigned) (*in->p - '0');

		if (*value > (UINT64_MAX - digit) / 10)
			return false;
		*value = 10 * *value + digit;
	}
	if (in->p == start || (*start == '0' && in->p > start + 1))
		return false;
	/* neither a fraction nor an exponent */
	if (in->p < in->end && (*in->p == '.' || *in->p == 'e' || *in->p == 'E'))
		return false;
	return *value <= (*negative ? min : max);
}

bool
zklock_json_int64(ZkJson *in, int64_t *value)
{
	bool negative;
	uint64_t number;

	if (!take_integer(in, INT64_MAX, INT64_MAX, &negative, &number))
		return false;
	*value = negative ? -(int64_t) number : (int64_t) number;
	return true;
}

bool
zklock_json_uint64(ZkJson *in, uint64_t *value)
{
	bool negative;

	return take_integer(in, UINT64_MAX, 0, &negative, value) && !negative;
}

bool
zklock_json_bool(ZkJson *in, bool *value)
{
	*value = zklock_json_word(in, "true");
	return *value || zklock_json_word(in, "false");
}

/* Skips any value. */
static bool
skip_value(ZkJson *in, int depth)
{
	char none[1];
	bool object;

	zklock_json_space(in);
	if (in->p == in->end || depth > MAX_DEPTH)
		return false;
	if (*in->p == '"')
		return zklock_json_text(in, none, sizeof(none));
	if (zklock_json_word(in, "null") || zklock_json_word(in, "true") ||
		zklock_json_word(in, "false"))
		return true;
	object = *in->p == '{';
	if (object || *in->p == '[')
	{
		char end = object ? '}' : ']';

		in->p++;
		if (zklock_json_take(in, end))
			return true;
		do
		{
			if (object &&
				(!zklock_json_text(in, none, sizeof(none)) || !zklock_json_take(in, ':')))
				return false;
			if (!skip_value(in, depth + 1))
				return false;
		} while (zklock_json_take(in, ','));
		return zklock_json_take(in, end);
	}
	/* the zero that ends a literal is in it, too */
	if (*in->p == '\0' || strchr("-0123456789", *in->p) == NULL)
		return false;
	while (in->p < in->end && *in->p != '\0' && strchr("+-.0123456789eE", *in->p) != NULL)
		in->p++;
	return true;
}

bool
zklock_json_skip(ZkJson *in)
{
	return skip_value(in, 0);
}

bool
zklock_json_field(const char *text, size_t len, const char *key, char *buf)
{
	ZkJson in = {.p = text, .end = text + len};
	bool more = zklock_json_take(&in, '{');

	for (; more; more = zklock_json_take(&in, ','))
	{
		const char *value;
		bool found;

		if (!zklock_json_text(&in, buf, len + 1) || !zklock_json_take(&in, ':'))
			return false;
		found = strcmp(buf, key) == 0;
		zklock_json_space(&in);
		value = in.p;
		if (found && value < in.end && *value == '"')
			return zklock_json_text(&in, buf, len + 1) && buf[0] != '\0';
		if (!zklock_json_skip(&in))
			return false;
		if (!found)
			continue;
		len = (size_t) (in.p - value);
		memcpy(buf, value, len);
		buf[len] = '\0';
		return *value != '{' && *value != '[' && strcmp(buf, "null") != 0;
	}
	return false;
}
