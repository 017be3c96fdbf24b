/*-------------------------------------------------------------------------
 *
 * sessionfile.h
 *	  The session's id and password on disk, so that the next run of this
 *	  server can close a session that this one left behind.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONFILE_H
#define ZKLOCK_SESSIONFILE_H

#include "zk.h"

/* Remember the session.  A failure is logged and otherwise ignored: it costs
 * a session timeout after a crash, no more. */
extern void zklock_session_file_write(const ZkSessionId *id);

/*
 * The session of an earlier run of this server on this boot of this machine,
 * or false.  A copy of the data directory does not qualify.
 */
extern bool zklock_session_file_read(ZkSessionId *id);

extern void zklock_session_file_remove(void);

#endif /* ZKLOCK_SESSIONFILE_H */
