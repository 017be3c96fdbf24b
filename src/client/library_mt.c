/*-------------------------------------------------------------------------
 *
 * library_mt.c
 *	  Lets one thread use a handle of the ZooKeeper library with threads alone.
 *
 * libzookeeper_mt starts two threads for a handle.  The completion thread makes the
 * callbacks; their news are passed on here.  The I/O thread would call
 * zookeeper_interest and zookeeper_process, which the library exports, in a loop of its
 * own.  We call these ourselves, as with the library without threads.  The first thing
 * that the I/O thread does is to log that it has started; at that moment the log
 * callback holds it.  After that the thread only closes the handle: it is not in the
 * loop yet then, and will not enter it (mt_adaptor.c, do_io; zookeeper_close can be
 * called on it).
 *
 * The library does not promise that the thread logs this, though it does in all
 * versions from 3.4 to 3.9.  So we wait for the line, and without it there is no
 * handle.  The same holds for the library's pipe, by which each request wakes that
 * thread.  The thread does not read it now, and once it is full no ping can be sent; so
 * we read it.  Its descriptors are the lowest that were free, and are checked before
 * they are believed.
 *
 * A handle with TLS has no log callback when its threads start, so this file makes none
 * with TLS.
 *
 * Access: the caller and the completion thread share the queue of news, under the
 * mutex; "zh" belongs to the I/O thread once it is let go; the rest belongs to the
 * caller.  No thread of the library takes a signal, and our code on it calls nothing
 * but the C library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "library.h"

#include "liblog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* s: the time for a thread of the library to do its part; far more than it needs */
#define PATIENCE 10

const char *const zklock_library_name = "libzookeeper_mt";
const bool zklock_library_sends_late = true;

struct ZkLibrary
{
	zhandle_t *zh;
	ZkHear hear;
	pthread_mutex_t mutex;
	ZkNews *head; /* oldest first */
	ZkNews *tail;
	int told;	/* eventfd: there are news */
	int pipe;	/* what wakes the I/O thread, to be read */
	sem_t held; /* the I/O thread: is where we want it */
	sem_t let;	/* ... may close the handle */
	sem_t gone; /* ... has ended */
};

/* The library whose threads are being started: the I/O thread takes it. */
static ZkLibrary *starting = NULL;

/* The library of an I/O thread that is held. */
static pthread_key_t held_key;
static bool has_held_key = false;

/* On the caller's thread; nobody reads what the library's threads log. */
static __thread log_callback_fn client_log = NULL;

/*-------------------------------------------------------------------------
 * On the library's threads
 *-------------------------------------------------------------------------
 */

/* The I/O thread has left the library. */
static void
on_thread_end(void *library)
{
	sem_post(&((ZkLibrary *) library)->gone);
}

static void
wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		;
}

static void
on_log(const char *line)
{
	ZkLibrary *library = NULL;
	int level;
	size_t len;

	if (zklock_liblog_io_started(zklock_liblog_text(line, &level, &len)))
		library = __atomic_exchange_n(&starting, NULL, __ATOMIC_ACQ_REL);
	if (library != NULL && pthread_setspecific(held_key, library) != 0)
	{
		__atomic_store_n(&starting, library, __ATOMIC_RELEASE);
		library = NULL;
	}
	if (library != NULL)
	{
		sem_post(&library->held);
		wait_for(&library->let);
		zookeeper_close(library->zh);
	}
	else if (client_log != NULL)
		client_log(line);
}

void
zklock_library_tell(ZkLibrary *library, ZkNews *news)
{
	const uint64_t one = 1;
	bool first;

	news->next = NULL;
	pthread_mutex_lock(&library->mutex);
	first = library->head == NULL;
	if (first)
		library->head = news;
	else
		library->tail->next = news;
	library->tail = news;
	pthread_mutex_unlock(&library->mutex);
	/* cannot fail: it counts no further than one, because a reader takes all news */
	if (first && write(library->told, &one, sizeof(one)) < 0)
		return;
}

/*-------------------------------------------------------------------------
 * On the caller's thread
 *-------------------------------------------------------------------------
 */

bool
zklock_library_has_tls(void)
{
	return false;
}

/* The library's pipe is looked for below this. */
#define MOST_FDS 4096

static bool
is_fifo(int fd)
{
	struct stat state;

	return fstat(fd, &state) == 0 && S_ISFIFO(state.st_mode);
}

static void
note_fifos(bool *fifo)
{
	for (int fd = 0; fd < MOST_FDS; fd++)
		fifo[fd] = is_fifo(fd);
}

static bool
is_pipe(const int fds[2])
{
	struct stat ends[2];

	return fds[0] >= 0 && fds[1] >= 0 && fstat(fds[0], &ends[0]) == 0 &&
		fstat(fds[1], &ends[1]) == 0 && S_ISFIFO(ends[0].st_mode) &&
		ends[0].st_dev == ends[1].st_dev && ends[0].st_ino == ends[1].st_ino &&
		(fcntl(fds[0], F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDONLY | O_NONBLOCK) &&
		(fcntl(fds[1], F_GETFL) & O_ACCMODE) == O_WRONLY;
}

/* Is the I/O thread held, or is it sure never to be? */
static bool
await_held(ZkLibrary *library)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	while (sem_timedwait(&library->held, &until) != 0)
	{
		/* it comes no more, unless it is just doing so */
		if (errno == ETIMEDOUT)
		{
			if (__atomic_exchange_n(&starting, NULL, __ATOMIC_ACQ_REL) != NULL)
				return false;
			wait_for(&library->held);
			break;
		}
	}
	return true;
}

static void
library_free(ZkLibrary *library)
{
	if (library->told >= 0)
		close(library->told);
	sem_destroy(&library->held);
	sem_destroy(&library->let);
	sem_destroy(&library->gone);
	pthread_mutex_destroy(&library->mutex);
	free(library);
}

static ZkLibrary *
library_make(ZkHear hear)
{
	ZkLibrary *library;

	if (!has_held_key && (errno = pthread_key_create(&held_key, on_thread_end)) != 0)
		return NULL;
	has_held_key = true;
	library = calloc(1, sizeof(ZkLibrary));
	if (library == NULL)
		return NULL;
	library->hear = hear;
	pthread_mutex_init(&library->mutex, NULL);
	sem_init(&library->held, 0, 0);
	sem_init(&library->let, 0, 0);
	sem_init(&library->gone, 0, 0);
	library->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (library->told < 0)
	{
		library_free(library);
		return NULL;
	}
	return library;
}

static void *
short_thread(void *let)
{
	wait_for(let);
	return NULL;
}

/* Can the process make two threads?  If the library cannot make its own, it aborts
 * the process. */
static bool
can_start_threads(void)
{
	pthread_t threads[2];
	sem_t let;
	int n = 0;

	sem_init(&let, 0, 0);
	while (n < 2 && (errno = pthread_create(&threads[n], NULL, short_thread, &let)) == 0)
		n++;
	for (int i = 0; i < n; i++)
		sem_post(&let);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	sem_destroy(&let);
	return n == 2;
}

/*
 * Makes the library make its handle and start its threads, where no signal reaches
 * them, and holds the I/O thread.  False with "zh" set: that thread went its own way.
 */
static bool
start_threads(ZkLibrary *library, const char *hosts, int timeout_ms,
			  const clientid_t *resume, void *context, watcher_fn watcher)
{
	sigset_t all;
	sigset_t mask;
	int save_errno;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	zoo_set_debug_level(ZOO_LOG_LEVEL_DEBUG);
	__atomic_store_n(&starting, library, __ATOMIC_RELEASE);
	errno = 0;
	if (can_start_threads())
		library->zh = zookeeper_init2(hosts, watcher, timeout_ms, resume, context,
									  ZOO_NO_LOG_CLIENTENV, on_log);
	save_errno = errno;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (library->zh != NULL)
		return await_held(library);
	__atomic_store_n(&starting, NULL, __ATOMIC_RELEASE);
	errno = save_errno;
	return false;
}

/*
 * Finds the read end of a pipe that was not there before; -1: there is none.  Its
 * number may be any: threads that look names up open and close descriptors, too.
 */
static int
find_pipe(const bool *before)
{
	int found[16];
	int n = 0;

	for (int fd = 0; fd < MOST_FDS && n < 16; fd++)
		if (!before[fd] && is_fifo(fd))
			found[n++] = fd;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (is_pipe((int[2]){found[i], found[j]}))
				return found[i];
	return -1;
}

bool
zklock_library_open(ZkLibrary **made, zhandle_t **zh, const char *hosts, const char *tls,
					int timeout_ms, const clientid_t *resume, void *context,
					watcher_fn watcher, log_callback_fn log, ZkHear hear, char *error,
					int errlen)
{
	ZkLibrary *library = NULL;
	const char *why = NULL;
	int save_errno = ENOSYS;
	bool before[MOST_FDS];

	*made = NULL;
	if (tls != NULL)
		why = "it has no TLS that it could be used with";
	else if ((library = library_make(hear)) == NULL)
		return false;
	else
	{
		*made = library;
		client_log = log;
		note_fifos(before);
		if (start_threads(library, hosts, timeout_ms, resume, context, watcher))
		{
			library->pipe = find_pipe(before);
			if (library->pipe >= 0)
			{
				*zh = library->zh;
				return true;
			}
			why = "there is no pipe that wakes its I/O thread";
			zklock_library_close(library);
		}
		else
		{
			save_errno = errno;
			if (library->zh != NULL)
			{
				why = "its I/O thread does not log that it has started";
				save_errno = ENOSYS;
				zookeeper_close(library->zh);
				zklock_library_hear(library);
			}
			library_free(library);
		}
		*made = NULL;
	}
	if (why != NULL)
		snprintf(error, (size_t) errlen,
				 "%s cannot be used: %s; install libzookeeper_st, and build zklock with ZOOKEEPER_LIB=st",
				 zklock_library_name, why);
	errno = save_errno;
	return false;
}

int
zklock_library_fd(ZkLibrary *library)
{
	return library->told;
}

void
zklock_library_hear(ZkLibrary *library)
{
	uint64_t n;
	ZkNews *news;

	/* nothing was told since we were last here */
	if (read(library->told, &n, sizeof(n)) < 0)
		return;
	pthread_mutex_lock(&library->mutex);
	news = library->head;
	library->head = library->tail = NULL;
	pthread_mutex_unlock(&library->mutex);
	while (news != NULL)
	{
		ZkNews *next = news->next;

		library->hear(news);
		news = next;
	}
}

void
zklock_library_settle(ZkLibrary *library, bool (*settled)(void *context), void *context)
{
	char wakes[4096];

	while (read(library->pipe, wakes, sizeof(wakes)) == sizeof(wakes))
		;
	zklock_library_hear(library);
	while (!settled(context))
	{
		struct pollfd fd = {.fd = library->told, .events = POLLIN};

		/* an event that the library had no memory for never comes */
		if (poll(&fd, 1, PATIENCE * 1000) == 0)
			return;
		zklock_library_hear(library);
	}
}

void
zklock_library_close(ZkLibrary *library)
{
	/* up to 3.9.2 it takes the log callback of a freed handle to log its end
	 * (ZOOKEEPER-4809) */
	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	sem_post(&library->let);
	wait_for(&library->gone);
	zklock_library_hear(library);
	library_free(library);
}
