/*-------------------------------------------------------------------------
 *
 * contender.c
 *	  Encodes and decodes names on the wire: lock directories, contenders, sequence
 *	  numbers.
 *
 * contender.h says what the functions promise.  Two points need an explanation:
 *
 * The encoding of lock names must be one-to-one in both directions.  Two servers that
 * encode one name differently would not exclude each other, and a directory that two
 * names decode from would be listed under the wrong one.  So zklock_decode_name does
 * not check the rules a second time: it decodes, encodes the result and compares.
 *
 * Nothing separates the sequence number of a child from the text before it.  The server
 * appends "%010d" of a signed 32-bit counter, and the prefixes of other recipes end in
 * '-', in '_' or in neither.  So a '-' before the digits may be the prefix's last
 * character or a sign.  See parse_sequence.
 *
 *-------------------------------------------------------------------------
 */
#include "contender.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SEQUENCE_DIGITS 10 /* width of the server's "%010d" */
#define SEQUENCE_MAX	INT64_C(2147483647)

const ZkKind zklock_kinds[ZKLOCK_NKINDS] = {
	[ZKLOCK_KIND_LOCK] =
		{
			.name = "lock",
			.held = "lock",
			.thing = "lock",
			.loss =
				{
					.when = "while {holder} held the lock",
					.by_now = "another server may hold it by now",
					.retry = "The transaction might succeed if retried.",
					.ways = "Use SELECT zk_unlock({name}){times} to acknowledge the loss, or "
							"SELECT zk_lock({name}, '{mode}', 'session') to acquire the lock "
							"again{once}.",
				},
			.namespaced = true,
			.modes = true,
			.unlocked = true,
			.kept = true,
			.shown = true,
			.in_waits = true,
		},
	[ZKLOCK_KIND_ELECTION] =
		{
			.name = "election",
			.held = "leadership of election",
			.thing = "leadership",
			.loss =
				{
					.when = "while the transaction required the leadership",
					.by_now = "another server may lead by now",
					.retry =
						"Retry the transaction on the leader, which zk_candidates({name}) lists first.",
				},
			.by_server = true,
		},
	[ZKLOCK_KIND_JOB] =
		{
			.name = "job",
			.held = "job",
			.thing = "job",
			.loss =
				{
					.when = "during the run",
					.by_now = "another server may run the job by now",
					.retry = "The next call runs the job, if it is still due.",
					.ways = "Use SELECT zk_run_end({name}) to acknowledge the loss. It records "
							"that the run was lost, and the next call runs the job.",
					.never_warns = true,
				},
			.namespaced = true,
			.in_waits = true,
			.record = true,
		},
	[ZKLOCK_KIND_BARRIER] = {.name = "barrier", .namespaced = true},
	[ZKLOCK_KIND_SEMAPHORE] =
		{
			.name = "semaphore",
			.held = "a permit of semaphore",
			.thing = "permit",
			.loss =
				{
					.when = "while the permit was held",
					.by_now = "another session may have it by now",
					.retry = "The transaction might succeed if retried.",
					.ways = "Use SELECT zk_release({name}){times} to acknowledge the loss, or "
							"SELECT zk_acquire({name}, {permits}, 'session') to acquire a "
							"permit again{once}.",
				},
			.namespaced = true,
			.by_session = true,
			.unlocked = true,
			.kept = true,
			.shown = true,
			.in_waits = true,
		},
	[ZKLOCK_KIND_QUEUE] = {.name = "queue", .namespaced = true},
};

int
zklock_kind_find(const char *name, size_t len)
{
	for (int kind = 0; kind < ZKLOCK_NKINDS; kind++)
	{
		if (strlen(zklock_kinds[kind].name) == len &&
			memcmp(zklock_kinds[kind].name, name, len) == 0)
			return kind;
	}
	return -1;
}

static const char contender_prefix[] = "_c_";
static const char exclusive_suffix[] = "-lock-";
static const char shared_suffix[] = "-read-lock-";
static const char election_suffix[] = "-latch-";
static const char permit_suffix[] = "-permit"; /* the number of permits follows, and "-" */

/* ----------
 * Text
 * ----------
 */

/*
 * Returns the length in bytes of the UTF-8 character at "s", and the character itself.
 * "len" bytes are there, at least one.  Returns 0 if they are malformed: stray or
 * missing continuation bytes, overlong forms, and values above U+10FFFF.  Surrogates
 * pass; needs_escape and zklock_is_utf8 find them.
 */
static size_t
utf8_decode(const unsigned char *s, size_t len, uint32_t *codepoint)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c;
	size_t n;
	size_t i;

	if (s[0] < 0x80)
	{
		*codepoint = s[0];
		return 1;
	}
	if ((s[0] & 0xe0) == 0xc0)
	{
		n = 2;
		c = s[0] & 0x1f;
	}
	else if ((s[0] & 0xf0) == 0xe0)
	{
		n = 3;
		c = s[0] & 0x0f;
	}
	else if ((s[0] & 0xf8) == 0xf0)
	{
		n = 4;
		c = s[0] & 0x07;
	}
	else
		return 0;
	if (n > len)
		return 0;

	for (i = 1; i < n; i++)
	{
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = (c << 6) | (s[i] & 0x3f);
	}
	if (c < smallest[n] || c > 0x10ffff)
		return 0;

	*codepoint = c;
	return n;
}

bool
zklock_is_utf8(const char *bytes, size_t len)
{
	const unsigned char *s = (const unsigned char *) bytes;

	while (len > 0)
	{
		uint32_t c = 0;
		size_t n = utf8_decode(s, len, &c);

		if (c == 0 || n == 0 || (c >= 0xd800 && c <= 0xdfff))
			return false;
		s += n;
		len -= n;
	}
	return true;
}

size_t
zklock_clip_utf8(const char *bytes, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++)
	{
		unsigned char c = (unsigned char) bytes[len - back];
		size_t n = c >= 0xf0 && c <= 0xf4 ? 4
			: c >= 0xe0 && c <= 0xef	  ? 3
			: c >= 0xc2 && c <= 0xdf	  ? 2
										  : 1;

		if ((c & 0xc0) != 0x80)
			return n > back ? len - back : len;
	}
	return len;
}

/*
 * The characters that ZooKeeper's PathUtils refuses, and those that are
 * special here.  Java sees characters beyond the basic plane as surrogate
 * pairs and refuses those, whatever they stand for.
 */
static bool
needs_escape(uint32_t c)
{
	return c == '/' || c == '%' || c <= 0x1f || (c >= 0x7f && c <= 0x9f) ||
		(c >= 0xd800 && c <= 0xf8ff) || c >= 0xfff0;
}

static char *
escape_byte(char *out, unsigned char byte)
{
	static const char hex[] = "0123456789ABCDEF";

	*out++ = '%';
	*out++ = hex[byte >> 4];
	*out++ = hex[byte & 0x0f];
	return out;
}

size_t
zklock_escape(const char *bytes, size_t len, bool ascii, char *buf)
{
	const unsigned char *s = (const unsigned char *) bytes;
	char *out = buf;

	while (len > 0)
	{
		uint32_t c = 0;
		size_t n = utf8_decode(s, len, &c);
		bool escape = n == 0 || needs_escape(c) || (ascii && n > 1);

		/* A malformed byte stands for itself. */
		if (n == 0)
			n = 1;
		len -= n;
		while (n-- > 0)
		{
			if (escape)
				out = escape_byte(out, *s);
			else
				*out++ = (char) *s;
			s++;
		}
	}
	*out = '\0';
	assert((size_t) (out - buf) <= 3 * (size_t) (s - (const unsigned char *) bytes));
	return (size_t) (out - buf);
}

/* ----------
 * Lock names
 * ----------
 */

const char *
zklock_local_name(const char *name)
{
	const char *end = strchr(name, (unsigned char) ZKLOCK_NAMESPACE_END);

	return end != NULL ? end + 1 : name;
}

size_t
zklock_encode_name(const char *name, char *buf)
{
	char *out = buf;

	assert(strlen(name) <= ZKLOCK_NAME_MAX);
	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return zklock_escape(name, strlen(name), false, buf);
	while (*name != '\0')
		out = escape_byte(out, (unsigned char) *name++);
	*out = '\0';
	return (size_t) (out - buf);
}

const char *
zklock_read_digits(const char *text, int base, int min, int max, uint64_t *value)
{
	int n = 0;

	for (*value = 0; n < max; n++)
	{
		int digit = text[n] >= '0' && text[n] <= '9' ? text[n] - '0'
			: text[n] >= 'a' && text[n] <= 'f'		 ? text[n] - 'a' + 10
													 : 16;

		if (digit >= base)
			break;
		*value = *value * (uint64_t) base + (uint64_t) digit;
	}
	return n >= min ? text + n : NULL;
}

char *
zklock_write_uuid(char *out, uint64_t hi, uint64_t lo)
{
	static const char hex[] = "0123456789abcdef";

	for (int i = 0; i < 32; i++)
	{
		uint64_t half = i < 16 ? hi : lo;

		if (i == 8 || i == 12 || i == 16 || i == 20)
			*out++ = '-';
		*out++ = hex[(half >> (60 - 4 * (i % 16))) & 0x0f];
	}
	return out;
}

const char *
zklock_read_uuid(const char *text, uint64_t *hi, uint64_t *lo)
{
	static const int digits[] = {8, 4, 4, 4, 12};
	uint64_t part[5];

	for (int i = 0; i < 5; i++)
	{
		if (i > 0 && *text++ != '-')
			return NULL;
		text = zklock_read_digits(text, 16, digits[i], digits[i], &part[i]);
		if (text == NULL)
			return NULL;
	}
	*hi = part[0] << 32 | part[1] << 16 | part[2];
	*lo = part[3] << 48 | part[4];
	return text;
}

/* Upper case only: lower case is not what zklock_encode_name writes. */
static int
upper_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool
zklock_decode_name(const char *encoded, char *buf)
{
	char again[ZKLOCK_ENCODED_MAX + 1];
	const char *s = encoded;
	size_t len = 0;

	while (*s != '\0')
	{
		if (len >= ZKLOCK_NAME_MAX)
			return false;

		if (*s == '%')
		{
			int high = upper_hex_value(s[1]);
			int low = high < 0 ? -1 : upper_hex_value(s[2]);

			if (low < 0 || (high == 0 && low == 0))
				return false;
			buf[len++] = (char) (high << 4 | low);
			s += 3;
		}
		else
			buf[len++] = *s++;
	}
	buf[len] = '\0';
	if (len == 0)
		return false;

	zklock_encode_name(buf, again);
	return strcmp(again, encoded) == 0;
}

/* ----------
 * Contenders
 * ----------
 */

/* Writes "_c_<uuid>"; returns the place behind it. */
static char *
put_uuid(char *buf, uint64_t uuid_hi, uint64_t uuid_lo)
{
	assert(uuid_hi != 0); /* that is for names without our form */
	memcpy(buf, contender_prefix, sizeof(contender_prefix) - 1);
	return zklock_write_uuid(buf + sizeof(contender_prefix) - 1, uuid_hi, uuid_lo);
}

void
zklock_format_contender(char *buf, uint64_t uuid_hi, uint64_t uuid_lo, ZkLockKind kind,
						ZkLockMode mode)
{
	assert(zklock_kinds[kind].modes || mode == ZKLOCK_EXCLUSIVE);
	strcpy(put_uuid(buf, uuid_hi, uuid_lo),
		   kind == ZKLOCK_KIND_ELECTION ? election_suffix
			   : mode == ZKLOCK_SHARED	? shared_suffix
										: exclusive_suffix);
	assert(strlen(buf) < ZKLOCK_CONTENDER_LEN);
}

void
zklock_format_permit(char *buf, uint64_t uuid_hi, uint64_t uuid_lo, int permits)
{
	assert(permits > 0 && permits <= ZKLOCK_PERMITS_MAX);
	sprintf(put_uuid(buf, uuid_hi, uuid_lo), "%s%d-", permit_suffix, permits);
	assert(strlen(buf) < ZKLOCK_CONTENDER_LEN);
}

/*
 * Reads the sequence number at the end of a name and says where it begins.  False:
 * there is none.
 *
 * "%010d" makes ten characters of every number except those up to -10^9, which take
 * eleven.  So a leading '-' in the last ten characters is a sign.  Ten digits after a
 * '-' are the hard case: "lock-1000000000" is a billion, but "lock--1000000000" and
 * "__lock__-1000000000" are minus a billion.  No positive number exceeds 2^31 - 1, and
 * a prefix that ends in a separator does not need another: hence the rule below.  No
 * number down to minus a billion begins with a zero: "x--0000000001" is 1.
 */
static bool
parse_sequence(const char *name, size_t len, int64_t *sequence, size_t *start)
{
	const char *tail;
	uint64_t digits;
	int64_t value;

	if (len < SEQUENCE_DIGITS)
		return false;
	*start = len - SEQUENCE_DIGITS;
	tail = name + *start;

	if (tail[0] == '-')
	{
		if (zklock_read_digits(tail + 1, 10, SEQUENCE_DIGITS - 1, SEQUENCE_DIGITS - 1,
							   &digits) == NULL ||
			digits == 0)
			return false; /* there is no minus zero */
		*sequence = -(int64_t) digits;
		return true;
	}

	if (zklock_read_digits(tail, 10, SEQUENCE_DIGITS, SEQUENCE_DIGITS, &digits) == NULL)
		return false;
	value = (int64_t) digits;
	if (*start > 0 && tail[-1] == '-' && tail[0] != '0' &&
		(value > SEQUENCE_MAX || (*start > 1 && (tail[-2] == '-' || tail[-2] == '_'))))
	{
		*start -= 1;
		value = -value;
	}

	/* Only what fits 32 bits was made by the server's counter. */
	if (value > SEQUENCE_MAX || value < -SEQUENCE_MAX - 1)
		return false;
	*sequence = value;
	return true;
}

/* Reads "-permit<N>-": returns N as written, or 0 if the text is something else. */
static int
parse_permits(const char *suffix, size_t len)
{
	size_t begin = sizeof(permit_suffix) - 1;
	const char *last = suffix + len - 1;
	uint64_t permits;

	if (len < begin + 2 || memcmp(suffix, permit_suffix, begin) != 0 || *last != '-' ||
		suffix[begin] == '0' ||
		zklock_read_digits(suffix + begin, 10, 1, 7, &permits) != last)
		return 0;
	return permits <= ZKLOCK_PERMITS_MAX ? (int) permits : 0;
}

bool
zklock_parse_child(const char *name, ZkLockChild *child)
{
	const size_t prefix_len = sizeof(contender_prefix) - 1;
	size_t start;
	uint64_t hi;
	uint64_t lo;

	if (!parse_sequence(name, strlen(name), &child->sequence, &start))
		return false;

	child->name = name;
	child->hash = zklock_hash_child(name);
	child->uuid_hi = 0;
	child->uuid_lo = 0;
	child->mode = ZKLOCK_EXCLUSIVE;
	child->permits = 0;
	child->sibling = false;

	if (start > prefix_len + ZKLOCK_UUID_LEN &&
		memcmp(name, contender_prefix, prefix_len) == 0 &&
		zklock_read_uuid(name + prefix_len, &hi, &lo) != NULL)
	{
		const char *suffix = name + prefix_len + ZKLOCK_UUID_LEN;
		size_t suffix_len = start - prefix_len - ZKLOCK_UUID_LEN;
		bool shared = suffix_len == sizeof(shared_suffix) - 1 &&
			memcmp(suffix, shared_suffix, suffix_len) == 0;
		bool exclusive = suffix_len == sizeof(exclusive_suffix) - 1 &&
			memcmp(suffix, exclusive_suffix, suffix_len) == 0;
		bool election = suffix_len == sizeof(election_suffix) - 1 &&
			memcmp(suffix, election_suffix, suffix_len) == 0;

		child->permits = parse_permits(suffix, suffix_len);
		if (shared || exclusive || election || child->permits > 0)
		{
			child->uuid_hi = hi;
			child->uuid_lo = lo;
		}
		if (shared)
			child->mode = ZKLOCK_SHARED;
	}
	return true;
}

uint64_t
zklock_hash_child(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (; *name != '\0'; name++)
	{
		hash ^= (unsigned char) *name;
		hash *= UINT64_C(1099511628211);
	}

	/* 0 means "no child" to those who keep a hash. */
	return hash != 0 ? hash : 1;
}
