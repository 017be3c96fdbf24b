/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Hides the differences between PostgreSQL 15, 16, 17, 18 and 19 that zklock meets,
 *	  under the newest version's names.
 *
 * Include it right after postgres.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "fmgr.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 150000
#error "zklock needs PostgreSQL 15 or newer"
#endif

/* 17: the wait event set belongs to a resource owner, not a memory context */
static inline WaitEventSet *
zklock_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* 17: a third argument, whether a stronger mode will do */
static inline bool
zklock_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* 17: named wait events, made on first use, and not in the postmaster */
static inline uint32
zklock_wait_event(uint32 *cache, const char *name)
{
#if PG_VERSION_NUM >= 170000
	if (*cache == 0)
		*cache = WaitEventExtensionNew(name);
	return *cache;
#else
	(void) cache;
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

/* 17: MyProcNumber instead of a field of MyProc */
#if PG_VERSION_NUM >= 170000
#define ZKLOCK_MY_PROC_NUMBER MyProcNumber
#else
#define ZKLOCK_MY_PROC_NUMBER (MyProc->pgprocno)
#endif

/* 16: the entries of the table of backends, from 1, have another function */
#if PG_VERSION_NUM >= 160000
#define zklock_backend_status(i) (&pgstat_get_local_beentry_by_index(i)->backendStatus)
#else
#define zklock_backend_status(i) (&pgstat_fetch_stat_local_beentry(i)->backendStatus)
#endif

/* 17: whether to flush the message; that is not meant for the data that wait for it */
#if PG_VERSION_NUM >= 170000
#define zklock_log_message(prefix, message, size)                                        \
	LogLogicalMessage(prefix, message, size, true, false)
#else
#define zklock_log_message(prefix, message, size)                                        \
	LogLogicalMessage(prefix, message, size, true)
#endif

/* 17: another name for the data about transactions */
#if PG_VERSION_NUM >= 170000
#define ZKLOCK_OLDEST_CLOG_XID (TransamVariables->oldestClogXid)
#else
#define ZKLOCK_OLDEST_CLOG_XID (ShmemVariableCache->oldestClogXid)
#endif

/* 18: ExecutorRun without "execute_once" */
#if PG_VERSION_NUM >= 180000
#define ZKLOCK_EXECUTE_ONCE_ARG
#define ZKLOCK_EXECUTE_ONCE
#else
#define ZKLOCK_EXECUTE_ONCE_ARG , bool execute_once
#define ZKLOCK_EXECUTE_ONCE		, execute_once
#endif

/* 18: a module says its name and version */
#if PG_VERSION_NUM >= 180000
#define ZKLOCK_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "zklock", .version = "1.0")
#else
#define ZKLOCK_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 18: pg_noreturn goes before the declaration */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

/* 17: intervals can be infinite */
#if PG_VERSION_NUM >= 170000
#define ZKLOCK_INTERVAL_IS_ENDLESS(i)		INTERVAL_IS_NOEND(i)
#define ZKLOCK_INTERVAL_IS_MINUS_ENDLESS(i) INTERVAL_IS_NOBEGIN(i)
#else
#define ZKLOCK_INTERVAL_IS_ENDLESS(i)		false
#define ZKLOCK_INTERVAL_IS_MINUS_ENDLESS(i) false
#endif

/* 19: a level for each kind of process */
#if PG_VERSION_NUM >= 190000
#define ZKLOCK_LOG_MIN_MESSAGES (log_min_messages[MyBackendType])
#else
#define ZKLOCK_LOG_MIN_MESSAGES log_min_messages
#endif

/* 19: options, and no mention of a move to another partition.  Waits for nobody. */
#if PG_VERSION_NUM >= 190000
#define ZKLOCK_HEAP_DELETE(rel, tid, failure)                                            \
	heap_delete(rel, tid, GetCurrentCommandId(true), 0, InvalidSnapshot, false, failure)
#else
#define ZKLOCK_HEAP_DELETE(rel, tid, failure)                                            \
	heap_delete(rel, tid, GetCurrentCommandId(true), InvalidSnapshot, false, failure,    \
				false)
#endif

/* For a build of test/interrupts: calls that may raise an error can be made to raise
 * one. */
#ifdef ZKLOCK_FAULTS
#include "faults.h"
#endif

#endif /* ZKLOCK_COMPAT_H */
