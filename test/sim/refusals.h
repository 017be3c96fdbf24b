/*-------------------------------------------------------------------------
 *
 * refusals.h
 *	  The mutants of what is refused on the wire: each of its refusals is left out once.
 *
 * Included before all else by the compiler; ZKLOCK_REFUSAL is the number of the one.
 *
 *-------------------------------------------------------------------------
 */
#include "bytes.h"

static inline void
zklock_refusal(int number, ZkBytes *bytes, bool refused, const char *wrong)
{
	if (number != ZKLOCK_REFUSAL)
		zklock_bytes_refuse(bytes, refused, wrong);
}

#define zklock_bytes_refuse(bytes, refused, wrong)                                       \
	zklock_refusal(__COUNTER__, bytes, refused, wrong)
