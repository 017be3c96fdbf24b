/*-------------------------------------------------------------------------
 *
 * election_text.h
 *	  Reads and writes the data of a candidate's node.
 *
 * The data are the server's name, which other programs show as the candidate's id.  A
 * candidate whose priority is not the default has a second line, a record with the
 * priority.
 *
 * Pure: libc only.  Any client of the ensemble may have written the data: they can be
 * any bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ELECTION_TEXT_H
#define ZKLOCK_ELECTION_TEXT_H

#include <stddef.h>

/* Room for everything except the name. */
#define ZKLOCK_CANDIDATE_MAX 64

/* Write the data; "out" has room for the name and ZKLOCK_CANDIDATE_MAX. */
extern void zklock_candidate_write(char *out, const char *server, int priority);

/* The priority in the data, or the default.  ZKLOCK_PRIORITY_UNKNOWN: it is in a record
 * of a newer version. */
extern int zklock_candidate_priority(const char *data, size_t len);

/* How many bytes of the data the name takes: all, unless a record follows. */
extern size_t zklock_candidate_name_len(const char *data, size_t len);

#endif /* ZKLOCK_ELECTION_TEXT_H */
