/*-------------------------------------------------------------------------
 *
 * historyfile.h
 *	  What history.h remembers, on disk, so that it outlives the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORYFILE_H
#define ZKLOCK_HISTORYFILE_H

#include "history.h"

/*
 * Write it so that it survives a crash of the machine.  False when that failed, which
 * is logged once, until it has worked again.  "last": see zklock_history_format.
 */
extern bool zklock_history_file_write(ZkHistory *history, bool last);

/*
 * What was written last, or nothing to remember: then false.  "now" and "wait", in ns,
 * as for zklock_history_parse.  A file that is of no use is logged.
 */
extern bool zklock_history_file_read(ZkHistory *history, int64_t now, int64_t wait);

#endif /* ZKLOCK_HISTORYFILE_H */
