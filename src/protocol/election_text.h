/*-------------------------------------------------------------------------
 *
 * election_text.h
 *	  Elections: what a candidate's node says.
 *
 * Its data is the server's name, which other programs show as the candidate's id.  One
 * whose priority is not the default has a second line, a record of that.
 *
 * Pure: libc only.  Whoever can reach the ensemble may have written what is read, any
 * bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_TEXT_H
#define ZKLOCK_ELECTION_TEXT_H

#include <stddef.h>

/* Room for all but the name. */
#define ZKLOCK_CANDIDATE_MAX 64

/* Write the data; "out" has room for the name and ZKLOCK_CANDIDATE_MAX. */
extern void zklock_candidate_write(char *out, const char *server, int priority);

/* The priority that data say, or the default. */
extern int zklock_candidate_priority(const char *data, size_t len);

/* How many bytes of the data are the name: all, unless a record follows. */
extern size_t zklock_candidate_name_len(const char *data, size_t len);

#endif /* ZKLOCK_ELECTION_TEXT_H */
