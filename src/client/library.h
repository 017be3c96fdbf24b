/*-------------------------------------------------------------------------
 *
 * library.h
 *	  Lets one thread use a handle of the ZooKeeper library alone.
 *
 * The library comes without threads (libzookeeper_st) and with two (libzookeeper_mt).
 * The Makefile builds library_st.c or library_mt.c; client.c does not know which.  Only
 * client.c includes this.
 *
 * The library without threads calls back while it is called, on the caller's thread.
 * The library with threads calls back replies and events on a thread of its own.  So a
 * callback turns what it is told into news and calls zklock_library_tell.  The caller's
 * thread hears the news, in the order in which they were told.  The library calls back
 * its log lines, and the results of credentials, on the thread that calls it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIBRARY_H
#define ZKLOCK_LIBRARY_H

#include <stdbool.h>

#include <zookeeper/zookeeper.h>

typedef struct ZkLibrary ZkLibrary;

/* What a callback was told: the first member of a struct of client.c's. */
typedef struct ZkNews
{
	struct ZkNews *next; /* the library's */
} ZkNews;

typedef void (*ZkHear)(ZkNews *news);

/* The library, by the name of its file. */
extern const char *const zklock_library_name;

/* Must zookeeper_process be told to write before requests are sent? */
extern const bool zklock_library_sends_late;

/* Does the library that we run with have TLS that we can use here? */
extern bool zklock_library_has_tls(void);

/*
 * Makes a handle, as zookeeper_init2 does, or with "tls", unless that is NULL, as
 * zookeeper_init_ssl does.  It does nothing yet.  "library" is set before there can be
 * news; "zh" is for the functions of zookeeper.h, but not for zookeeper_close.  False
 * with errno set, and "library" NULL: there is no handle.  ENOSYS: one thread cannot
 * use this library alone; "error" says why (room errlen).  This function and
 * zklock_library_close change the library's log level.
 */
extern bool zklock_library_open(ZkLibrary **library, zhandle_t **zh, const char *hosts,
								const char *tls, int timeout_ms, const clientid_t *resume,
								void *context, watcher_fn watcher, log_callback_fn log,
								ZkHear hear, char *error, int errlen);

/* Readable when there are news; -1: there never are. */
extern int zklock_library_fd(ZkLibrary *library);

/* For callbacks, on any thread. */
extern void zklock_library_tell(ZkLibrary *library, ZkNews *news);

/* Hears the news. */
extern void zklock_library_hear(ZkLibrary *library);

/*
 * The same, and waits until "settled" says that everything has been heard that we must
 * know about the last call of zookeeper_interest or zookeeper_process.  Ten seconds
 * without any news end the wait, too: later news are heard later.
 */
extern void zklock_library_settle(ZkLibrary *library, bool (*settled)(void *context),
								  void *context);

/* zookeeper_close.  Hears everything that is told until the end. */
extern void zklock_library_close(ZkLibrary *library);

#endif /* ZKLOCK_LIBRARY_H */
