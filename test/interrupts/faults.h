/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  Points at which a statement can be made to fail.
 *
 * Included by compat.h in a build with ZKLOCK_FAULTS, and in no other.  Whatever a
 * backend calls of PostgreSQL that may raise an error, or sleep, becomes a point; and
 * zk_fault(n) has the n-th point that the next statement passes fail:
 *
 *	 error      raised instead of the call
 *	 cancel     as by pg_cancel_backend in the moment before the call
 *	 terminate  as by pg_terminate_backend
 *
 * A call that can do several of these counts as so many points.  What must not raise
 * (hold.c, proclock.c, all that ends a transaction) has no points, or is found out.
 *
 * zk_pause(n) stops the process (SIGSTOP) as it is about to look at the lease for the
 * n-th time: to see, when it goes on, what it makes of what has come to pass meanwhile.
 * zk_lapse() ends the lease of a server that nobody renews, as time would, until a write
 * is acknowledged that was sent after that.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FAULTS_H
#define ZKLOCK_FAULTS_H

/* Whoever declares what becomes a macro here must have done so before. */
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

#define ZKLOCK_FAULT_ERROR	   1
#define ZKLOCK_FAULT_CANCEL	   2
#define ZKLOCK_FAULT_TERMINATE 4

extern void zklock_fault(int kinds, const char *function, const char *callee);
extern void zklock_pause(const char *function);

#define MAY_RAISE(callee, args)                                                          \
	(zklock_fault(ZKLOCK_FAULT_ERROR, __func__, #callee), callee args)
#define MAY_BE_INTERRUPTED(callee, args)                                                 \
	(zklock_fault(ZKLOCK_FAULT_CANCEL | ZKLOCK_FAULT_TERMINATE, __func__, #callee),      \
	 callee args)
#define MAY_DO_BOTH(callee, args)                                                        \
	(zklock_fault(ZKLOCK_FAULT_ERROR | ZKLOCK_FAULT_CANCEL | ZKLOCK_FAULT_TERMINATE,     \
				  __func__, #callee),                                                    \
	 callee args)

/* --- interrupts ------------------------------------------------------------ */

#undef CHECK_FOR_INTERRUPTS
#define CHECK_FOR_INTERRUPTS()                                                           \
	do                                                                                   \
	{                                                                                    \
		zklock_fault(ZKLOCK_FAULT_CANCEL | ZKLOCK_FAULT_TERMINATE, __func__,             \
					 "CHECK_FOR_INTERRUPTS");                                            \
		if (INTERRUPTS_PENDING_CONDITION())                                              \
			ProcessInterrupts();                                                         \
	} while (0)

/* --- waits ------------------------------------------------------------------- */

/* All sleep in one function (waiter.c): a point goes by the name of its wait event. */
extern const char *zklock_fault_event;
#define zklock_wait_event(number, name)                                                  \
	(zklock_fault_event = (name), zklock_wait_event(number, name))
#define MAY_END_SLEEP(callee, args)                                                      \
	(zklock_fault(ZKLOCK_FAULT_CANCEL | ZKLOCK_FAULT_TERMINATE, zklock_fault_event,      \
				  #callee),                                                              \
	 callee args)
#define ConditionVariableTimedSleep(...)                                                 \
	MAY_END_SLEEP(ConditionVariableTimedSleep, (__VA_ARGS__))
#define WaitLatch(...)			  MAY_END_SLEEP(WaitLatch, (__VA_ARGS__))
#define LockAcquire(...)		  MAY_DO_BOTH(LockAcquire, (__VA_ARGS__))
#define SPI_commit(...)			  MAY_DO_BOTH(SPI_commit, (__VA_ARGS__))
#define SPI_execute_extended(...) MAY_DO_BOTH(SPI_execute_extended, (__VA_ARGS__))

/* --- memory ------------------------------------------------------------------ */

#define palloc(...)					MAY_RAISE(palloc, (__VA_ARGS__))
#define palloc0(...)				MAY_RAISE(palloc0, (__VA_ARGS__))
#define palloc_extended(...)		MAY_RAISE(palloc_extended, (__VA_ARGS__))
#define repalloc_huge(...)			MAY_RAISE(repalloc_huge, (__VA_ARGS__))
#define pstrdup(...)				MAY_RAISE(pstrdup, (__VA_ARGS__))
#define pnstrdup(...)				MAY_RAISE(pnstrdup, (__VA_ARGS__))
#define psprintf(...)				MAY_RAISE(psprintf, (__VA_ARGS__))
#define MemoryContextAlloc(...)		MAY_RAISE(MemoryContextAlloc, (__VA_ARGS__))
#define MemoryContextAllocZero(...) MAY_RAISE(MemoryContextAllocZero, (__VA_ARGS__))
#define AllocSetContextCreateInternal(...)                                               \
	MAY_RAISE(AllocSetContextCreateInternal, (__VA_ARGS__))
#define hash_create(...) MAY_RAISE(hash_create, (__VA_ARGS__))
#define hash_search(table, key, action, found)                                           \
	((action) == HASH_ENTER ? MAY_RAISE(hash_search, (table, key, action, found))        \
							: hash_search(table, key, action, found))

/* --- transactions ------------------------------------------------------------ */

#define RegisterXactCallback(...)	 MAY_RAISE(RegisterXactCallback, (__VA_ARGS__))
#define RegisterSubXactCallback(...) MAY_RAISE(RegisterSubXactCallback, (__VA_ARGS__))
#define before_shmem_exit(...)		 MAY_RAISE(before_shmem_exit, (__VA_ARGS__))
#define BeginInternalSubTransaction(...)                                                 \
	MAY_RAISE(BeginInternalSubTransaction, (__VA_ARGS__))
#define ReleaseCurrentSubTransaction() MAY_RAISE(ReleaseCurrentSubTransaction, ())

/* --- arguments and results ---------------------------------------------------- */

#define pg_detoast_datum_packed(...)   MAY_RAISE(pg_detoast_datum_packed, (__VA_ARGS__))
#define text_to_cstring(...)		   MAY_RAISE(text_to_cstring, (__VA_ARGS__))
#define cstring_to_text(...)		   MAY_RAISE(cstring_to_text, (__VA_ARGS__))
#define pg_server_to_any(...)		   MAY_RAISE(pg_server_to_any, (__VA_ARGS__))
#define FindDefaultConversionProc(...) MAY_RAISE(FindDefaultConversionProc, (__VA_ARGS__))
#define InitMaterializedSRF(...)	   MAY_RAISE(InitMaterializedSRF, (__VA_ARGS__))
#define tuplestore_putvalues(...)	   MAY_RAISE(tuplestore_putvalues, (__VA_ARGS__))
#define get_call_result_type(...)	   MAY_RAISE(get_call_result_type, (__VA_ARGS__))
#define CatalogTupleInsert(...)		   MAY_RAISE(CatalogTupleInsert, (__VA_ARGS__))
#define CatalogTupleUpdate(...)		   MAY_RAISE(CatalogTupleUpdate, (__VA_ARGS__))
#define heap_form_tuple(...)		   MAY_RAISE(heap_form_tuple, (__VA_ARGS__))
#define accumArrayResult(...)		   MAY_RAISE(accumArrayResult, (__VA_ARGS__))
#define get_database_name(...)		   MAY_RAISE(get_database_name, (__VA_ARGS__))
#define GetUserNameFromId(...)		   MAY_RAISE(GetUserNameFromId, (__VA_ARGS__))
#define SPI_connect(...)			   MAY_RAISE(SPI_connect, (__VA_ARGS__))
#define SPI_connect_ext(...)		   MAY_RAISE(SPI_connect_ext, (__VA_ARGS__))
#define table_open(...)				   MAY_RAISE(table_open, (__VA_ARGS__))
#define try_table_open(...)			   MAY_RAISE(try_table_open, (__VA_ARGS__))
#define index_open(...)				   MAY_RAISE(index_open, (__VA_ARGS__))
#define AfterTriggerSetState(...)	   MAY_RAISE(AfterTriggerSetState, (__VA_ARGS__))
#define PreventInTransactionBlock(...) MAY_RAISE(PreventInTransactionBlock, (__VA_ARGS__))

/* --- looks at the lease --------------------------------------------------------- */

#include "table.h"

extern int64 zklock_lapsed_end(const ZkLease *lease);

#define zklock_lease_valid()	(zklock_pause(__func__), zklock_lease_valid())
#define zklock_lease_lost()		(zklock_pause(__func__), zklock_lease_lost())
#define zklock_lease_end(lease) zklock_lapsed_end(lease)

/* losses.pl ends sessions before their time, which is no sign of anything here. */
#define zklock_history_expired(history, told, lost_at)                                   \
	zklock_history_expired(history, told, 0)

#endif /* ZKLOCK_FAULTS_H */
