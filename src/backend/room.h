/*-------------------------------------------------------------------------
 *
 * room.h
 *	  Waits for room in the lock table, and raises the error if there is none.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROOM_H
#define ZKLOCK_ROOM_H

#include "table.h"
#include "waiter.h"

/* Raise 53200: there is no room for another name or proclock.  "waited": none was made
 * in time, either. */
pg_noreturn extern void zklock_raise_table_full(bool waited);

/* The result of an attempt that needs room. */
typedef enum ZkRoom
{
	ZKLOCK_ROOM_FOUND,
	ZKLOCK_ROOM_AWAITED, /* no room for another name: the worker may make some */
	ZKLOCK_ROOM_NONE	 /* nor will there be */
} ZkRoom;

/*
 * Try until there is room for another name, as long as there is hope of it
 * (zklock_table_hope).  "arg" is for "try".  When "try" finds no room it must leave
 * nothing behind, since the wait may end by an error.
 *
 * The wait has the limits of "wait", which may have begun before.  wait_ms: the
 * caller's own limit; 0 and ZKLOCK_WAIT_FOREVER: it has none.  Raises 53200 when that
 * or zklock.connect_timeout is over, and the errors of zklock_wait_for.
 */
extern void zklock_room_wait(ZkLockKind kind, const char *name, const ZkWait *wait,
							 int64 wait_ms, ZkRoom (*try)(void *), void *arg);

#endif /* ZKLOCK_ROOM_H */
