/*-------------------------------------------------------------------------
 *
 * liblog.h
 *	  Understands a line of the ZooKeeper library's log.
 *
 * Only the log says what a host has answered to an attempt to connect.  The library
 * does not promise the form of its lines, so these functions read any line safely.
 * Pure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIBLOG_H
#define ZKLOCK_LIBLOG_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A line is "<time>:<pid>:ZOO_<LEVEL>@<function>@<line>: <text>".  Returns
 * the text, "len" bytes without the end of the line, and the level: 1 error, 2 warning,
 * 3 info, 4 debug.
 */
extern const char *zklock_liblog_text(const char *line, int *level, size_t *len);

/* Returns the name of the server that a text calls the one in use, "len" bytes; NULL:
 * it names none. */
extern const char *zklock_liblog_server(const char *text, size_t *len);

/* Has an attempt asked for its session? */
extern bool zklock_liblog_initiated(const char *text);

/* Is a session established? */
extern bool zklock_liblog_established(const char *text);

/* Has the I/O thread of a handle started?  Libraries with threads, at level 4. */
extern bool zklock_liblog_io_started(const char *text);

/* The library's version, "len" bytes; NULL: the text does not say it. */
extern const char *zklock_liblog_version(const char *text, size_t *len);

/* The return code with which a connection has failed; 0: it has not. */
extern int zklock_liblog_failure(const char *text);

/* What a host answered, clipped to whole characters. */
typedef struct ZkLogAnswer
{
	char host[64];
	char answer[96];
	int rc;
} ZkLogAnswer;

/*
 * A text about a socket, "Socket HOST:PORT zk retcode=R, errno=N(TEXT): MESSAGE".
 * False: it is none.
 */
extern bool zklock_liblog_answer(const char *text, ZkLogAnswer *answer);

#endif /* ZKLOCK_LIBLOG_H */
