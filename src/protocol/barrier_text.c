/*-------------------------------------------------------------------------
 *
 * barrier_text.c
 *	  Barriers: names of parties, and the record of the rounds.
 *
 *-------------------------------------------------------------------------
 */
#include "barrier_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "record.h"

/* As many digits as a number may have that is read. */
#define ROUND_MAX INT64_C(999999999999999999)

#define ID_DIGITS 32

/* ------------------------------------------------------------------------
 * Names
 * ------------------------------------------------------------------------
 */

static const char party_prefix[] = "party-";

void
zklock_barrier_format_party(char *buf, const uint64_t id[2], uint64_t session,
							int32_t parties)
{
	assert(session != 0 && parties > 0 && parties <= ZKLOCK_BARRIER_PARTIES_MAX);
	(void) snprintf(buf, ZKLOCK_PARTY_NAME_MAX,
					"%s%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "-%" PRId32 "-",
					party_prefix, id[0], id[1], session, parties);
}

/* So many lower-case hex digits; what follows them, or NULL. */
static const char *
take_hex(const char *s, int n, uint64_t *value)
{
	*value = 0;
	for (int i = 0; i < n; i++, s++)
	{
		if (*s >= '0' && *s <= '9')
			*value = *value << 4 | (uint64_t) (*s - '0');
		else if (*s >= 'a' && *s <= 'f')
			*value = *value << 4 | (uint64_t) (*s - 'a' + 10);
		else
			return NULL;
	}
	return s;
}

/* One to eighteen decimal digits, the same. */
static const char *
take_number(const char *s, const char *end, int64_t *value)
{
	const char *start = s;

	*value = 0;
	for (; s < end && *s >= '0' && *s <= '9'; s++)
	{
		if (s - start >= 18)
			return NULL;
		*value = *value * 10 + (*s - '0');
	}
	return s > start ? s : NULL;
}

bool
zklock_barrier_parse_party(const char *name, ZkPartyNode *node)
{
	const char *end = name + strlen(name);
	const char *s = name;
	char ours[ZKLOCK_PARTY_NAME_MAX];
	int64_t parties;

	if (strncmp(s, party_prefix, sizeof(party_prefix) - 1) != 0)
		return false;
	s += sizeof(party_prefix) - 1;
	if ((s = take_hex(s, 16, &node->id[0])) == NULL ||
		(s = take_hex(s, 16, &node->id[1])) == NULL || *s++ != '-' ||
		(s = take_hex(s, 16, &node->session)) == NULL || *s++ != '-' ||
		(s = take_number(s, end, &parties)) == NULL || *s++ != '-')
		return false;
	/* the server writes ten digits, and a sign when it has come to an end */
	if (end - s != 10 || take_number(s, end, &node->sequence) != end)
		return false;
	if (parties < 1 || parties > ZKLOCK_BARRIER_PARTIES_MAX || node->session == 0 ||
		node->sequence > INT32_MAX)
		return false;
	node->parties = (int32_t) parties;
	/* nodes are deleted by the name that these make: "02" is nobody's number */
	zklock_barrier_format_party(ours, node->id, node->session, node->parties);
	return strncmp(name, ours, strlen(ours)) == 0;
}

/* ------------------------------------------------------------------------
 * The record
 * ------------------------------------------------------------------------
 */

/* A round: a line. */
typedef struct Round
{
	int64_t number;
	char members[ZKLOCK_BARRIER_PARTIES_MAX * (ID_DIGITS + 1)]; /* ids, and spaces between */
} Round;

static const ZkField round_fields[] = {
	{ZKLOCK_FIELD("round", INT, Round, number), .needed = true, .min = 1, .max = ROUND_MAX},
	{ZKLOCK_FIELD("members", TEXT, Round, members), .needed = true},
};

static const ZkShape round_shape = {ZKLOCK_SHAPE(round_fields, Round), .version = 1};

/* So many are too many for a stack. */
static Round line;

static bool
take_members(const char *s)
{
	uint64_t half;

	for (bool more = *s != '\0'; more; more = *s++ == ' ')
	{
		if ((s = take_hex(s, 16, &half)) == NULL || (s = take_hex(s, 16, &half)) == NULL)
			return false;
		if (*s == '\0')
			return true;
	}
	return *s == '\0';
}

bool
zklock_barrier_rounds_parse(const char *text, size_t len, int64_t *newest, int64_t *oldest)
{
	const char *end = text + len;
	int64_t first = 0;
	int64_t expected = 0;

	*newest = 0;
	*oldest = 1;
	while (text < end)
	{
		if (zklock_record_line(&round_shape, &text, end, &line) != ZKLOCK_RECORD_GOOD ||
			(first != 0 && line.number != expected) || !take_members(line.members))
			return false;
		if (first == 0)
			first = line.number;
		expected = line.number - 1;
	}
	if (len == 0)
		return true;
	*newest = first;
	*oldest = expected + 1;
	return true;
}

static void
format_id(char *buf, const uint64_t id[2])
{
	(void) snprintf(buf, ID_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, id[0], id[1]);
}

bool
zklock_barrier_rounds_have(const char *text, size_t len, const uint64_t id[2])
{
	char digits[ID_DIGITS + 1];
	const char *end = text + len;

	format_id(digits, id);
	while (text < end &&
		   zklock_record_line(&round_shape, &text, end, &line) == ZKLOCK_RECORD_GOOD)
	{
		/* one after the other, of one length */
		for (const char *s = line.members; *s != '\0'; s += ID_DIGITS)
		{
			s += *s == ' ';
			if (strncmp(s, digits, ID_DIGITS) == 0)
				return true;
		}
	}
	return false;
}

int
zklock_barrier_rounds_add(const char *text, size_t len, int64_t round,
						  const ZkPartyNode *member, int n, char *buf)
{
	const char *end = text + len;
	char *out = line.members;
	int lines = 1;

	assert(n <= ZKLOCK_BARRIER_PARTIES_MAX);
	line.number = round;
	*out = '\0';
	for (int i = 0; i < n; i++)
	{
		if (i > 0)
			*out++ = ' ';
		format_id(out, member[i].id);
		out += ID_DIGITS;
	}
	out = zklock_record_write(&round_shape, &line, buf);
	*out++ = '\n';
	for (const char *s = text; s < end && lines < ZKLOCK_ROUNDS_KEPT; lines++)
	{
		const char *eol = memchr(s, '\n', (size_t) (end - s));

		if (eol == NULL || (eol + 1 - s) >= ZKLOCK_ROUNDS_MAX - (out - buf))
			break;
		memcpy(out, s, (size_t) (eol + 1 - s));
		out += eol + 1 - s;
		s = eol + 1;
	}
	assert(out - buf < ZKLOCK_ROUNDS_MAX);
	*out = '\0';
	return (int) (out - buf);
}
