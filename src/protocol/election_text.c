/*-------------------------------------------------------------------------
 *
 * election_text.c
 *	  Elections: what a candidate's node says.
 *
 *-------------------------------------------------------------------------
 */
#include "election_text.h"

#include <stdio.h>
#include <string.h>

#include "election_rules.h"
#include "record.h"

typedef struct Candidate
{
	int priority;
} Candidate;

static const ZkField fields[] = {
	{ZKLOCK_FIELD("priority", INT, Candidate, priority), .needed = true, .min = 0,
	 .max = ZKLOCK_PRIORITY_MAX},
};

static const ZkShape shape = {ZKLOCK_SHAPE(fields, Candidate), .version = 1};

void
zklock_candidate_write(char *out, const char *server, int priority)
{
	Candidate candidate = {.priority = priority};

	out += sprintf(out, "%s", server);
	if (priority == ZKLOCK_PRIORITY_DEFAULT)
		return;
	*out++ = '\n';
	(void) zklock_record_write(&shape, &candidate, out);
}

size_t
zklock_candidate_name_len(const char *data, size_t len)
{
	const char *end = memchr(data, '\n', len);

	return end != NULL ? (size_t) (end - data) : len;
}

int
zklock_candidate_priority(const char *data, size_t len)
{
	size_t name = zklock_candidate_name_len(data, len);
	Candidate candidate;

	if (name == len ||
		zklock_record_read(&shape, data + name + 1, len - name - 1, &candidate) !=
			ZKLOCK_RECORD_GOOD)
		return ZKLOCK_PRIORITY_DEFAULT;
	return candidate.priority;
}
