/*-------------------------------------------------------------------------
 *
 * election_text.c
 *	  Reads and writes the data of a candidate's node.
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

/* Finds the record, if there is one.  Data that others have written may have lines,
 * too. */
static const char *
read_record(const char *data, size_t len, Candidate *candidate)
{
	const char *end = memchr(data, '\n', len);

	candidate->priority = ZKLOCK_PRIORITY_DEFAULT;
	if (end == NULL)
		return NULL;
	switch (zklock_record_read(&shape, end + 1, len - (size_t) (end + 1 - data), candidate))
	{
		case ZKLOCK_RECORD_GOOD:
			return end;
		case ZKLOCK_RECORD_NEWER:
			candidate->priority = ZKLOCK_PRIORITY_UNKNOWN;
			return end;
		case ZKLOCK_RECORD_DAMAGED:
			break;
	}
	candidate->priority = ZKLOCK_PRIORITY_DEFAULT;
	return NULL;
}

size_t
zklock_candidate_name_len(const char *data, size_t len)
{
	Candidate candidate;
	const char *end = read_record(data, len, &candidate);

	return end != NULL ? (size_t) (end - data) : len;
}

int
zklock_candidate_priority(const char *data, size_t len)
{
	Candidate candidate;

	(void) read_record(data, len, &candidate);
	return candidate.priority;
}
