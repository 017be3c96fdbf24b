/*-------------------------------------------------------------------------
 *
 * barrier_text.c
 *	  Reads and writes the names of a barrier's parties, and the record of its rounds.
 *
 *-------------------------------------------------------------------------
 */
#include "barrier_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "record.h"

/* The largest round number that is read: it limits the digits. */
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

/* Reads both halves of a party's id.  Returns what follows them, or NULL. */
static const char *
read_id(const char *s, uint64_t id[2])
{
	s = zklock_read_digits(s, 16, 16, 16, &id[0]);
	return s != NULL ? zklock_read_digits(s, 16, 16, 16, &id[1]) : NULL;
}

bool
zklock_barrier_parse_party(const char *name, ZkPartyNode *node)
{
	const char *s = name;
	char ours[ZKLOCK_PARTY_NAME_MAX];
	uint64_t parties;
	uint64_t sequence;

	if (strncmp(s, party_prefix, sizeof(party_prefix) - 1) != 0)
		return false;
	s += sizeof(party_prefix) - 1;
	if ((s = read_id(s, node->id)) == NULL || *s++ != '-' ||
		(s = zklock_read_digits(s, 16, 16, 16, &node->session)) == NULL || *s++ != '-' ||
		(s = zklock_read_digits(s, 10, 1, 18, &parties)) == NULL || *s++ != '-')
		return false;
	/* the server writes ten digits, and a sign when it has come to an end */
	if ((s = zklock_read_digits(s, 10, 10, 10, &sequence)) == NULL || *s != '\0')
		return false;
	if (parties < 1 || parties > ZKLOCK_BARRIER_PARTIES_MAX || node->session == 0 ||
		sequence > INT32_MAX)
		return false;
	node->parties = (int32_t) parties;
	node->sequence = (int64_t) sequence;
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

/* Static: too large for the stack. */
static Round line;

static bool
take_members(const char *s)
{
	uint64_t id[2];

	for (bool more = *s != '\0'; more; more = *s++ == ' ')
	{
		if ((s = read_id(s, id)) == NULL)
			return false;
		if (*s == '\0')
			return true;
	}
	return *s == '\0';
}

ZkRecordRead
zklock_barrier_rounds_parse(const char *text, size_t len, int64_t *newest, int64_t *oldest)
{
	const char *end = text + len;
	int64_t first = 0;
	int64_t expected = 0;

	*newest = 0;
	*oldest = 1;
	while (text < end)
	{
		ZkRecordRead read = zklock_record_line(&round_shape, &text, end, &line);

		if (read != ZKLOCK_RECORD_GOOD)
			return read;
		if ((first != 0 && line.number != expected) || !take_members(line.members))
			return ZKLOCK_RECORD_DAMAGED;
		if (first == 0)
			first = line.number;
		expected = line.number - 1;
	}
	if (len == 0)
		return ZKLOCK_RECORD_GOOD;
	*newest = first;
	*oldest = expected + 1;
	return ZKLOCK_RECORD_GOOD;
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
