/*-------------------------------------------------------------------------
 *
 * process.h
 *	  Processes with a database that the worker starts, since it has none itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCESS_H
#define ZKLOCK_PROCESS_H

#include "postmaster/bgworker.h"

/* One of a kind; to begin with, NULL. */
typedef BackgroundWorkerHandle *ZkProcess;

/* Does it run still, or is about to? */
extern bool zklock_process_runs(ZkProcess *process);

/* Start it, by a function of ours with its argument and a name for people; false, if
 * there is no room for another process. */
extern bool zklock_process_start(ZkProcess *process, const char *function,
								 const char *name, Datum arg);

#endif /* ZKLOCK_PROCESS_H */
