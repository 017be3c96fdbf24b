/*-------------------------------------------------------------------------
 *
 * process.h
 *	  Starts processes with a database, since the worker has none itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCESS_H
#define ZKLOCK_PROCESS_H

#include "postmaster/bgworker.h"

/* A process of a kind; initially NULL. */
typedef BackgroundWorkerHandle *ZkProcess;

/* Is the process running, or about to run? */
extern bool zklock_process_runs(ZkProcess *process);

/* Start a process with one of our functions, its argument and a name to show.  False if
 * there is no room for another process. */
extern bool zklock_process_start(ZkProcess *process, const char *function,
								 const char *name, Datum arg);

#endif /* ZKLOCK_PROCESS_H */
