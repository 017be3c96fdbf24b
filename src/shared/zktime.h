/*-------------------------------------------------------------------------
 *
 * zktime.h
 *	  Converts between ZooKeeper's time, in ms since 1970, and PostgreSQL's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ZKTIME_H
#define ZKLOCK_ZKTIME_H

#include "datatype/timestamp.h"

#define ZKLOCK_MS_TO_2000                                                                \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * INT64CONST(1000))

static inline TimestampTz
zklock_time_of_ms(int64 ms)
{
	return (ms - ZKLOCK_MS_TO_2000) * 1000;
}

/* Rounded down. */
static inline int64
zklock_ms_of_time(TimestampTz time)
{
	return time / 1000 - (time % 1000 < 0) + ZKLOCK_MS_TO_2000;
}

#endif /* ZKLOCK_ZKTIME_H */
