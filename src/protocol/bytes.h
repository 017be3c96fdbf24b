/*-------------------------------------------------------------------------
 *
 * bytes.h
 *	  Reads ZooKeeper's encoding, and never past the end of the data.
 *
 * Numbers are big-endian; a string and a buffer begin with their length.  The end of
 * the data is known, but not all of the data may have arrived.  A read past the end
 * returns zeros, and "wrong" says what was wrong first.  A read past what has arrived
 * returns zeros, too, and sets "part".  After either, nothing is read.  Pure.
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

/* "size" bytes; "here" of them have arrived. */
extern ZkBytes zklock_bytes(const void *data, size_t here, size_t size);

/* May more be read? */
static inline bool
zklock_bytes_good(const ZkBytes *bytes)
{
	return !bytes->part && bytes->wrong == NULL;
}

/* Notes an error, unless one was noted before or data is still missing. */
static inline void
zklock_bytes_refuse(ZkBytes *bytes, bool refused, const char *wrong)
{
	if (refused && zklock_bytes_good(bytes))
		bytes->wrong = wrong;
}

extern int32_t zklock_bytes_int(ZkBytes *bytes);
extern int64_t zklock_bytes_long(ZkBytes *bytes);
extern bool zklock_bytes_bool(ZkBytes *bytes);

/* Passes a string and returns its length.  The string contains no zero byte. */
extern int32_t zklock_bytes_string(ZkBytes *bytes);

/* The same for a string that begins with "/". */
extern int32_t zklock_bytes_path(ZkBytes *bytes);

/* Passes a buffer and returns its length; -1: there is none. */
extern int32_t zklock_bytes_buffer(ZkBytes *bytes);

/* Are there "n" zeros, "offset" bytes ahead?  Passes nothing.  False: they have not
 * arrived. */
extern bool zklock_bytes_zeros(const ZkBytes *bytes, size_t offset, size_t n);

/* Returns how many elements follow; each has "least" bytes or more. */
extern int32_t zklock_bytes_vector(ZkBytes *bytes, size_t least);

#endif /* ZKLOCK_BYTES_H */
