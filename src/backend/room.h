/*-------------------------------------------------------------------------
 *
 * room.h
 *	  Room in the lock table: waiting for it, and the error of having none.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROOM_H
#define ZKLOCK_ROOM_H

#include "table.h"
#include "waiter.h"

/* 53200: no room for another name or proclock; "waited": and none was made in time. */
pg_noreturn extern void zklock_raise_table_full(bool waited);

/* An attempt at what needs room. */
typedef enum ZkRoom
{
	ZKLOCK_ROOM_FOUND,
	ZKLOCK_ROOM_AWAITED, /* no room for another name: the worker may make some */
	ZKLOCK_ROOM_NONE	 /* nor will there be */
} ZkRoom;

/*
 * Try until there is room for another name, as long as there is hope of it
 * (zklock_table_hope).  "arg" is for "try", which leaves nothing behind where it finds no
 * room: the wait may end by an error.
 *
 * Within the limits of "wait", which may have begun before.  wait_ms: the caller's own; 0
 * and ZKLOCK_WAIT_FOREVER: it has none.  Raises 53200 when that is over, or
 * zklock.connect_timeout, and what zklock_wait_for does.
 */
extern void zklock_room_wait(ZkLockKind kind, const char *name, const ZkWait *wait,
							 int64 wait_ms, ZkRoom (*try)(void *), void *arg);

#endif /* ZKLOCK_ROOM_H */
