/*-------------------------------------------------------------------------
 *
 * sessionfile.h
 *	  Keeps the session's id and password on disk, so that the next run of this server
 *	  can close a session that this run has left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONFILE_H
#define ZKLOCK_SESSIONFILE_H

#include "zk.h"

/* Write the session's file.  A failure is logged and otherwise ignored: it costs no
 * more than a session timeout after a crash. */
extern void zklock_session_file_write(const ZkSessionId *id);

/* Read the session of an earlier run of this server in this boot of the machine.  False
 * if there is none.  A copy of the data directory does not count as this server. */
extern bool zklock_session_file_read(ZkSessionId *id);

extern void zklock_session_file_remove(void);

#endif /* ZKLOCK_SESSIONFILE_H */
