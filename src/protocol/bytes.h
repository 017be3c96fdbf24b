/*-------------------------------------------------------------------------
 *
 * bytes.h
 *	  Reads what ZooKeeper writes, and no further than it goes.
 *
 * Numbers are big-endian; a string and a buffer begin with their length.  What is read
 * has an end, which is known, and may not have arrived up to there.  Whoever reads past
 * the end reads zeros, and "wrong" says what was wrong first; past what has arrived, and
 * "part" is set.  Nothing is read after either.  Pure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BYTES_H
#define ZKLOCK_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ZkBytes
{
	const unsigned char *at;
	size_t here;	   /* bytes from there that have arrived */
	size_t left;	   /* bytes from there to the end */
	bool part;		   /* more would have to arrive */
	const char *wrong; /* NULL: nothing yet */
} ZkBytes;

/* "size" bytes, of which "here" have arrived. */
extern ZkBytes zklock_bytes(const void *data, size_t here, size_t size);

/* May more be read? */
static inline bool
zklock_bytes_good(const ZkBytes *bytes)
{
	return !bytes->part && bytes->wrong == NULL;
}

/* Something is wrong, unless something was before, or is not known yet. */
static inline void
zklock_bytes_refuse(ZkBytes *bytes, bool refused, const char *wrong)
{
	if (refused && zklock_bytes_good(bytes))
		bytes->wrong = wrong;
}

extern int32_t zklock_bytes_int(ZkBytes *bytes);
extern int64_t zklock_bytes_long(ZkBytes *bytes);
extern bool zklock_bytes_bool(ZkBytes *bytes);

/* A string's length, having passed it; it has no zero in it. */
extern int32_t zklock_bytes_string(ZkBytes *bytes);

/* The same of one that begins with "/". */
extern int32_t zklock_bytes_path(ZkBytes *bytes);

/* A buffer's length, having passed it; -1: there is none. */
extern int32_t zklock_bytes_buffer(ZkBytes *bytes);

/* Are there "n" zeros, "offset" bytes ahead?  Passes nothing; false: they are not here. */
extern bool zklock_bytes_zeros(const ZkBytes *bytes, size_t offset, size_t n);

/* How many elements follow, each of "least" bytes or more. */
extern int32_t zklock_bytes_vector(ZkBytes *bytes, size_t least);

#endif /* ZKLOCK_BYTES_H */
