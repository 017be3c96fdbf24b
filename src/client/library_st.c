/*-------------------------------------------------------------------------
 *
 * library_st.c
 *	  Uses a handle of the ZooKeeper library without threads.
 *
 * The library works, and calls back, only in zookeeper_interest, zookeeper_process and
 * zookeeper_close; it sends each request at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const zklock_library_name = "libzookeeper_st";
const bool zklock_library_sends_late = false;

struct ZkLibrary
{
	zhandle_t *zh;
	ZkHear hear;
};

/*
 * zookeeper.h declares this only where the library was built with OpenSSL, and
 * what matters is the library that we run with.
 */
typedef zhandle_t *(*init_ssl_fn)(const char *hosts, const char *certificates,
								  watcher_fn watcher, int timeout,
								  const clientid_t *resume, void *context, int flags);

static init_ssl_fn
find_init_ssl(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "zookeeper_init_ssl");
	init_ssl_fn function;

	/* POSIX promises that this works, and C does not */
	memcpy(&function, &symbol, sizeof(function));
	return function;
}

/*
 * PostgreSQL loads libraries so that each sees the names of those before it, and the
 * library with threads has the same names as this one.  Do our calls reach that
 * library, because some other library has loaded it?  Only the library with threads has
 * functions that wait, such as zoo_create.
 */
static bool
has_threads(void)
{
	Dl_info info;
	void *file;
	bool found;

	if (dladdr((void *) zookeeper_init2, &info) == 0 ||
		(file = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) == NULL)
		return false;
	found = dlsym(file, "zoo_create") != NULL;
	dlclose(file);
	return found;
}

bool
zklock_library_has_tls(void)
{
	return find_init_ssl() != NULL;
}

bool
zklock_library_open(ZkLibrary **made, zhandle_t **zh, const char *hosts, const char *tls,
					int timeout_ms, const clientid_t *resume, void *context,
					watcher_fn watcher, log_callback_fn log, ZkHear hear, char *error,
					int errlen)
{
	ZkLibrary *library;
	init_ssl_fn init_ssl = tls != NULL ? find_init_ssl() : NULL;

	*made = NULL;
	if (has_threads())
	{
		snprintf(error, (size_t) errlen,
				 "another library has loaded libzookeeper_mt before %s: put zklock first in shared_preload_libraries",
				 zklock_library_name);
		errno = ENOSYS;
		return false;
	}
	*made = library = calloc(1, sizeof(ZkLibrary));
	if (library == NULL)
		return false;
	library->hear = hear;
	errno = 0;
	if (tls == NULL)
		library->zh = zookeeper_init2(hosts, watcher, timeout_ms, resume, context,
									  ZOO_NO_LOG_CLIENTENV, log);
	else if (init_ssl == NULL)
	{
		snprintf(error, (size_t) errlen, "%s has no TLS", zklock_library_name);
		errno = ENOSYS;
	}
	else
	{
		/* it takes no log function, and must not write to stderr meanwhile */
		zoo_set_debug_level((ZooLogLevel) 0);
		library->zh = init_ssl(hosts, tls, watcher, timeout_ms, resume, context,
							   ZOO_NO_LOG_CLIENTENV);
		if (library->zh != NULL)
			zoo_set_log_callback(library->zh, log);
	}
	*zh = library->zh;
	if (library->zh != NULL)
		return true;
	free(library);
	*made = NULL;
	return false;
}

int
zklock_library_fd(ZkLibrary *library)
{
	(void) library;
	return -1;
}

void
zklock_library_tell(ZkLibrary *library, ZkNews *news)
{
	library->hear(news);
}

void
zklock_library_hear(ZkLibrary *library)
{
	(void) library;
}

void
zklock_library_settle(ZkLibrary *library, bool (*settled)(void *context), void *context)
{
	(void) library;
	(void) settled;
	(void) context;
}

void
zklock_library_close(ZkLibrary *library)
{
	zookeeper_close(library->zh);
	free(library);
}
