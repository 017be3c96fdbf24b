/*-------------------------------------------------------------------------
 *
 * library.h
 *	  A handle of the ZooKeeper library, of which one thread makes all use.
 *
 * The library comes without threads (libzookeeper_st) and with two (libzookeeper_mt).  Of
 * library_st.c and library_mt.c the Makefile builds one; client.c does not know which.
 * Only client.c includes this.
 *
 * Without threads the library calls back while it is called, on the caller's thread.
 * With them replies and events are called back on a thread of the library's.  So a
 * callback makes news of what it is told and calls zklock_library_tell; news are heard on
 * the caller's thread, in the order in which they were told.  What the library logs, and
 * what becomes of credentials, it tells on the thread that it is called on.
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

/* Which one it is, as its file is called. */
extern const char *const zklock_library_name;

/* Must zookeeper_process be told to write before what was asked is sent? */
extern const bool zklock_library_sends_late;

/* Does the library that we run with have TLS that can be used here? */
extern bool zklock_library_has_tls(void);

/*
 * Make a handle, as zookeeper_init2 does, or with "tls", unless that is NULL, as
 * zookeeper_init_ssl does.  It does nothing yet.  "library" is set before there can be
 * news; "zh" is for the functions of zookeeper.h, but not for zookeeper_close.  False
 * with errno set, and "library" NULL: it cannot be had.  ENOSYS: this library is not one
 * of which one thread can make all use; "error" says why (room errlen).  The library's
 * log level is another one after this, and after zklock_library_close.
 */
extern bool zklock_library_open(ZkLibrary **library, zhandle_t **zh, const char *hosts,
								const char *tls, int timeout_ms, const clientid_t *resume,
								void *context, watcher_fn watcher, log_callback_fn log,
								ZkHear hear, char *error, int errlen);

/* Readable when there are news; -1: there never are. */
extern int zklock_library_fd(ZkLibrary *library);

/* In callbacks, on any thread. */
extern void zklock_library_tell(ZkLibrary *library, ZkNews *news);

/* Hear what was told. */
extern void zklock_library_hear(ZkLibrary *library);

/*
 * The same, and wait until "settled" says that all has been heard which the last call of
 * zookeeper_interest or zookeeper_process has brought about and which we must know.  Ten
 * seconds without any news end the wait, too: what comes later is heard later.
 */
extern void zklock_library_settle(ZkLibrary *library, bool (*settled)(void *context),
								  void *context);

/* zookeeper_close.  All is heard that is told until the end. */
extern void zklock_library_close(ZkLibrary *library);

#endif /* ZKLOCK_LIBRARY_H */
