/*-------------------------------------------------------------------------
 *
 * room.h
 *	  Room in the lock table: waiting for it, and the error of having none.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROOM_H
#define ZKLOCK_ROOM_H

/* A limit, in ms, that is none. */
#define ZKLOCK_WAIT_FOREVER (-1)

/* 53200: no room for another name or proclock; "waited": and none was made in time. */
pg_noreturn extern void zklock_raise_table_full(bool waited);

/*
 * There was no room for another name, but hope (zklock_table_hope): have the worker
 * make some, and wait a moment, to try again.
 *
 * start: since when, ns of CLOCK_BOOTTIME.  wait_ms: the caller's own limit; 0 and
 * ZKLOCK_WAIT_FOREVER: it has none.  Raises 53200 when that is over, or
 * zklock.connect_timeout, and the errors of zklock_check_connection.  Can be
 * cancelled: the caller must not have anything that an error would leave behind.
 */
extern void zklock_await_room(int64 start, int64 wait_ms);

#endif /* ZKLOCK_ROOM_H */
