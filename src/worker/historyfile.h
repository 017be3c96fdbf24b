/*-------------------------------------------------------------------------
 *
 * historyfile.h
 *	  Keeps the history (history.h) in a file, so that it outlives the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTORYFILE_H
#define ZKLOCK_HISTORYFILE_H

#include "history.h"

/* Write the file so that it survives a crash of the machine.  Returns false if that
 * failed; a series of failures is logged once.  "last": see zklock_history_format. */
extern bool zklock_history_file_write(ZkHistory *history, bool last);

/* Read what was written last.  False: there is nothing to remember.  "now" and "wait",
 * in ns, are as for zklock_history_parse.  An unusable file is logged. */
extern bool zklock_history_file_read(ZkHistory *history, int64_t now, int64_t wait);

#endif /* ZKLOCK_HISTORYFILE_H */
